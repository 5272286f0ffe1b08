"""A named collection of entries of one kind, open to third parties."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from types import FrameType
from typing import Generic, TypeVar

from tilewright.support.errors import TilewrightError

T = TypeVar("T")
U = TypeVar("U")


def near_matches(name: str, known: list[str]) -> str:
    """Render ``known`` names for an error message, those close to ``name`` first."""
    close = difflib.get_close_matches(str(name)[:200], known, n=3)  # it takes quadratic time
    if close:
        return "did you mean " + " or ".join(repr(entry) for entry in close) + "?"
    shown = ", ".join(sorted(known)[:40])
    return f"known: {shown}" + (", …" if len(known) > 40 else "")


_PACKAGE = __name__.partition(".")[0]


def _called_from_elsewhere() -> bool:
    """Whether the caller is neither this package nor imported as a part of it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package != _PACKAGE:
            return package != "importlib"
        frame = frame.f_back
    return False


class Registry(Generic[T]):
    """Entries by name. ``kind`` says in words what an entry is, for error messages.

    Plug-ins add entries through the entry point group ``tilewright.plugins``: each entry point is a
    function that is called once, on the first look-up of an unknown name.
    """

    _plugins_loaded = False

    def __init__(self, kind: str, error: type[TilewrightError] = TilewrightError) -> None:
        self.kind = kind
        self._error = error
        self.extended = False
        """Whether code outside of this package has registered anything."""
        self._entries: dict[str, T] = {}

    def register(self, name: str, entry: T) -> T:
        """Add ``entry``; a second one of the same name is an error."""
        if name in self._entries:
            raise self._error(f"{self.kind} {name!r} is registered twice")
        self._entries[name] = entry
        self.extended = self.extended or _called_from_elsewhere()
        return entry

    def decorator(self, name: str) -> Callable[[T], T]:
        """Return a decorator that registers what it decorates."""
        return lambda entry: self.register(name, entry)

    def get(self, name: str) -> T:
        """Return the entry, or raise an error that lists near matches."""
        entry = self._entries.get(name)
        if entry is None:
            self._load_plugins()
            if name not in self._entries:
                raise self._error(
                    f"unknown {self.kind} {name!r}; {near_matches(name, list(self._entries))}"
                )
            entry = self._entries[name]
        return entry

    def instance(self, kind: object, base: type[U], *args: object, **kwargs: object) -> U:
        """Return ``kind`` if it is a ``base``, else a new one of the entry of that name.

        Arguments are for the new one. Raises the registry's error for anything else.
        """
        made = kind
        if isinstance(kind, str):
            made = self.get(kind)(*args, **kwargs)  # type: ignore[operator]
        if isinstance(made, base) and (isinstance(kind, str) or not (args or kwargs)):
            return made
        what = repr(kind) if isinstance(kind, type) else f"a {type(kind).__name__}"
        raise self._error(
            f"a {self.kind} is an instance of {base.__name__} or a name, not {what}; "
            f"names: {', '.join(sorted(self._entries))}"
        )

    @staticmethod
    def _load_plugins() -> None:
        if not Registry._plugins_loaded:
            Registry._plugins_loaded = True
            for entry_point in metadata.entry_points(group="tilewright.plugins"):
                entry_point.load()()

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def items(self) -> list[tuple[str, T]]:
        """All entries in the order of registration."""
        return list(self._entries.items())
