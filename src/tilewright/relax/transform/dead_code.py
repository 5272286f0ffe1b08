"""``DeadCodeElimination``: removes unused bindings and functions."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import GLOBAL_SYMBOL, BaseFunc, IRModule, Pass
from tilewright.relax.analysis import called_functions, remove_all_unused
from tilewright.relax.expr import Function
from tilewright.tir.attrs import CODEGEN


class DeadCodeElimination(Pass):
    """Remove unused pure bindings, and functions that ``entry_functions`` do not reach.

    The default ``entry_functions`` are the graph functions that are no groups; a module
    without any graph function keeps everything.
    """

    def __init__(self, entry_functions: Sequence[str] | None = None) -> None:
        self.entry_functions = None if entry_functions is None else tuple(entry_functions)

    def transform(self, mod: IRModule) -> IRModule:
        """Clean every function, then the module."""
        mod = mod.map_functions(lambda _, function: remove_all_unused(function), Function)
        entries = self.entry_functions
        if entries is None:
            entries = tuple(
                name
                for name, function in mod.functions.items()
                if _is_entry(function)
                or (GLOBAL_SYMBOL in function.attrs and CODEGEN not in function.attrs)
            )
            if not any(isinstance(mod[name], Function) for name in entries):
                return mod
        reached: dict[str, None] = {}
        pending = list(entries)
        while pending:
            name = pending.pop()
            if name not in reached:
                reached[name] = None
                if isinstance(mod[name], Function):
                    pending.extend(called_functions(mod[name]))
        return mod.map_functions(lambda name, function: function if name in reached else None)


def _is_entry(function: BaseFunc) -> bool:
    return isinstance(function, Function) and not (function.is_primitive or function.is_partition)
