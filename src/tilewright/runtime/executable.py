"""``Executable``: what a build gives, as TVM's programs use it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

FCompile = Callable[..., Any]
"""``fcompile(file_name, files, **options)`` links object files into a library."""


class Executable:
    """Compiled code to be called, and to be exported: a module, or what holds one.

    Every module is an executable itself; ``Executable(module)`` is another handle of it.
    """

    def __init__(self, mod: Executable) -> None:
        if not isinstance(mod, Executable):
            raise TypeError(f"expected a module or an executable, got {type(mod).__name__}")
        self._mod = mod

    @property
    def mod(self) -> Any:
        """The module."""
        return self._mod

    def __getitem__(self, name: str) -> Any:
        """Return the function ``name``."""
        return self.mod[name]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the entry function."""
        return self.mod(*args, **kwargs)

    def jit(
        self,
        *,
        fcompile: FCompile | None = None,
        addons: Sequence[str] | None = None,
        force_recompile: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Return a module that can be called; code is linked in memory when it is first called.

        With ``fcompile`` or ``addons`` it is linked into a library by these (``export_library``),
        which is loaded. ``force_recompile`` gives a module that is linked anew.
        """
        return self.mod.jit(
            fcompile=fcompile, addons=addons, force_recompile=force_recompile, **kwargs
        )

    def export_library(
        self,
        file_name: str | os.PathLike[str],
        *,
        fcompile: FCompile | None = None,
        addons: Sequence[str] | None = None,
        workspace_dir: str | os.PathLike[str] | None = None,
        **kwargs: Any,
    ) -> Path:
        """Write a shared library: see ``Module.export_library``."""
        made: Path = self.mod.export_library(
            file_name, fcompile=fcompile, addons=addons, workspace_dir=workspace_dir, **kwargs
        )
        return made
