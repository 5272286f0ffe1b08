"""``InlinePrivateFunctions``: functions that only the module calls go into their callers."""

from __future__ import annotations

from tilewright.ir import IRModule, Pass
from tilewright.relax.analysis import called_functions, private_functions
from tilewright.relax.expr import Function
from tilewright.relax.transform.inline_functions import Inlined


class InlinePrivateFunctions(Pass):
    """Inline all calls of private functions and remove them.

    A function is private if it has no ``global_symbol`` and another graph function of the module
    calls it. One that calls itself, also by way of others, stays.

    Before:
        def double(x): return R.add(x, x)
        def main(x): return R.exp(double(x))
    After:
        def main(x): return R.exp(R.add(x, x))
    """

    def transform(self, mod: IRModule) -> IRModule:
        """Inline into every function that stays."""
        calls = {
            name: called_functions(function)
            for name, function in mod.functions.items()
            if isinstance(function, Function)
        }
        gone = {name for name in private_functions(mod) if not _recursive(name, calls)}
        if not gone:
            return mod
        done = Inlined(mod, gone)

        def rewritten(name: str, function: Function) -> Function | None:
            if name in gone:
                return None
            return function if function.is_primitive else done.function(name)

        return mod.map_functions(rewritten, Function)


def _recursive(name: str, calls: dict[str, list[str]]) -> bool:
    pending, seen = list(calls[name]), set()
    while pending:
        callee = pending.pop()
        if callee == name:
            return True
        if callee not in seen:
            seen.add(callee)
            pending.extend(calls.get(callee, ()))
    return False
