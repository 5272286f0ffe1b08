"""``DispatchByHash``: functions that a user has written by hand replace those of the same hash."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from tilewright import script
from tilewright.ir import IRModule, Pass, const, structural_equal, structural_hash
from tilewright.meta_schedule.containment import contained
from tilewright.meta_schedule.database.record import normalized
from tilewright.support.errors import TilewrightError, TuneError
from tilewright.tir import Evaluate, PrimFunc
from tilewright.tir.attrs import IS_SCHEDULED

_SUFFIX = ".py"
_MOST_BYTES = 1 << 20


class DispatchByHash(Pass):
    """Replace tensor functions by those in a folder, one script file each, and leave the rest.

    A file ``LABEL.HASH.py``, or ``HASH.py``, holds what replaces the function of that structural
    hash: a ``T.prim_func`` with the same parameters, in any form, scheduled as far as it shall be.
    ``DispatchByHash.file_name(function)`` gives the name. That it computes the same is the user's
    word. The hash is the one that a database has for the function: neither its name nor the
    annotations of graph passes count.

    The text runs nothing: it may use the dialect's names only, and a function that calls external
    code not named in ``allow_extern``, makes pointers or may write elsewhere is refused.
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, allow_extern: Collection[str] = ()
    ) -> None:
        self.folder = Path(folder)
        self.allow_extern = tuple(allow_extern)

    @staticmethod
    def file_name(function: PrimFunc, label: str = "") -> str:
        """Return the name of the file that replaces a function."""
        return f"{label}{'.' if label else ''}{_hash(function)}{_SUFFIX}"

    def transform(self, mod: IRModule) -> IRModule:
        """Replace functions that have no schedule yet.

        Raises ``TuneError`` if the folder isn't there, has two files for a function, or the file of
        one can't replace it.
        """
        if not self.folder.is_dir():
            raise TuneError(f"there is no folder {self.folder}")
        files: dict[str, list[Path]] = {}
        for path in sorted(self.folder.iterdir()):
            if path.suffix == _SUFFIX:
                files.setdefault(path.stem.rpartition(".")[2], []).append(path)

        def dispatch(name: str, func: PrimFunc) -> PrimFunc:
            if func.attrs.get(IS_SCHEDULED):
                return func
            found = files.get(_hash(func), [])
            if len(found) > 1:
                raise TuneError(f"{name} has several files: {', '.join(p.name for p in found)}")
            return self._replacement(name, func, found[0]) if found else func

        return mod.map_functions(dispatch, PrimFunc)

    def _replacement(self, name: str, func: PrimFunc, path: Path) -> PrimFunc:
        try:
            made = script.parse(_read(path), name=str(path))
            if isinstance(made, IRModule) and len(made) == 1:
                (made,) = made.functions.values()
            if not isinstance(made, PrimFunc):
                raise TuneError(f"holds a {type(made).__name__}, not one T.prim_func")
            if not structural_equal(_interface(made), _interface(func)):
                raise TuneError(f"takes other parameters than {name}")
            made = contained(IRModule({"main": made}), self.allow_extern)["main"]
        except TilewrightError as error:
            raise TuneError(f"{path.name} can't replace {name}: {error}") from error
        return made.replace(attrs={**func.attrs, **made.attrs, IS_SCHEDULED: 1})  # type: ignore[no-any-return]


def _hash(func: PrimFunc) -> str:
    return structural_hash(normalized(func))


def _interface(func: PrimFunc) -> PrimFunc:
    """The function without what it does."""
    made: PrimFunc = func.replace(body=Evaluate(const(0)), attrs={})
    return made


def _read(path: Path) -> str:
    if path.stat().st_size > _MOST_BYTES:
        raise TuneError(f"is longer than {_MOST_BYTES} bytes")
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TuneError(f"can't be read: {error}") from None
