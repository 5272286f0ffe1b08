"""Builders: what is open on a thread, innermost last, and what it has given."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeAlias, TypeVar

from tilewright.support.errors import VerifyError

_open = threading.local()

F = TypeVar("F", bound="Frame")
V = TypeVar("V")


class IRBuilder:
    """Collects a program while ``with`` frames are open; ``get`` gives it.

    ::

        with IRBuilder() as builder:
            with T.prim_func():
                T.func_name("main")
                A = T.arg("A", T.Buffer((16,), "float32"))
                with T.serial(16) as i:
                    T.buffer_store(A, A[i] + 1.0, [i])
        func = builder.get()
    """

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.result: Any = None
        self.outside: Any = None
        """What a dialect keeps of parts that are built without a function around them."""

    def __enter__(self) -> IRBuilder:
        _open.__dict__.setdefault("builders", []).append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _open.builders.pop()

    @staticmethod
    def current() -> IRBuilder:
        """Return the builder that is open on this thread; raises ``VerifyError`` if none is."""
        builders: list[IRBuilder] = getattr(_open, "builders", [])
        if not builders:
            raise VerifyError("no builder is open: this stands inside `with IRBuilder():`")
        return builders[-1]

    @staticmethod
    def is_in_scope() -> bool:
        """Whether a builder is open on this thread."""
        return bool(getattr(_open, "builders", []))

    def get(self) -> Any:
        """Return the function or module that was built; raises ``VerifyError`` if none was."""
        if self.result is None:
            raise VerifyError("the builder has built nothing: no function or module was closed")
        return self.result

    def find_frame(self, cls: type[F]) -> F | None:
        """Return the innermost open frame of a class."""
        return next((item for item in reversed(self.frames) if isinstance(item, cls)), None)

    @staticmethod
    def name(s: str, v: V) -> V:
        """Give a variable or buffer a name, and return it."""
        if not isinstance(s, str) or not hasattr(v, "name"):
            raise VerifyError(f"name takes text and a variable or buffer, got {s!r} and {v!r}")
        object.__setattr__(v, "name", s)
        return v

    @staticmethod
    def name_many(s: list[str], vs: list[V]) -> list[V]:
        """Give variables or buffers names, and return them."""
        if len(s) != len(vs):
            raise VerifyError(f"{len(s)} names for {len(vs)} values")
        return [IRBuilder.name(name, value) for name, value in zip(s, vs)]


Raised: TypeAlias = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]
"""What ``__exit__`` is told of an error: its class, itself, and where it comes from."""


class Frame:
    """Something that is open while the body of a ``with`` runs, once."""

    entered = False
    callbacks: tuple[Callable[[], object], ...] = ()

    def add_callback(self, callback: Callable[[], object]) -> None:
        """Call something when the body has run without an error, the latest first."""
        self.callbacks = (*self.callbacks, callback)

    def __enter__(self) -> Any:
        if self.entered:
            what = type(self).__name__
            raise VerifyError(f"this {what} was opened before and holds what it got; make another")
        self.open(IRBuilder.current())
        IRBuilder.current().frames.append(self)
        self.entered = True
        return self.value()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        builder = IRBuilder.current()
        place = next((i for i, item in enumerate(builder.frames) if item is self), None)
        inner = [] if place is None else builder.frames[place + 1 :]
        if kind is None and (place is None or inner):
            names = ", ".join(type(item).__name__ for item in inner) or "none of it"
            raise VerifyError(
                f"{type(self).__name__} is closed out of order: still open inside of it is {names}"
            )
        if place is not None:
            del builder.frames[place:]
        self.leave((kind, error, trace))
        if kind is None:
            for callback in reversed(self.callbacks):
                callback()
            self.close(builder)

    def leave(self, raised: Raised) -> None:
        """End what ``open`` began; what the body ``raised``, if anything, goes on."""

    def open(self, builder: IRBuilder) -> None:
        """Check that the frame may stand here, before its body runs."""

    def value(self) -> Any:
        """Return what ``as`` names."""
        return self

    def close(self, builder: IRBuilder) -> None:
        """Add what the body has given to what is around."""
        raise NotImplementedError(f"{type(self).__name__} must define close")


def enclosing(cls: type[F], what: str) -> F:
    """Return the innermost open frame of a class; raises ``VerifyError`` if there is none."""
    found = IRBuilder.current().find_frame(cls)
    if found is None:
        raise VerifyError(f"{what}, and nothing of that kind is open")
    return found
