"""``AttachGlobalSymbol``: functions that others may call say under which name."""

from __future__ import annotations

from tilewright.ir import GLOBAL_SYMBOL, BaseFunc, IRModule, Pass
from tilewright.relax.analysis import private_functions
from tilewright.relax.expr import Function
from tilewright.tir import PrimFunc


class AttachGlobalSymbol(Pass):
    """Give functions the attribute ``global_symbol``, their name in the module.

    Functions that have one keep it. Graph functions that another one calls are private without it,
    and stay so; so do fusion groups.
    """

    def transform(self, mod: IRModule) -> IRModule:
        """Rebuild the functions."""
        private = private_functions(mod)

        def attach(name: str, function: BaseFunc) -> BaseFunc:
            if not isinstance(function, (Function, PrimFunc)) or name in private:
                return function
            if GLOBAL_SYMBOL in function.attrs or getattr(function, "is_primitive", False):
                return function
            return function.replace(attrs={**function.attrs, GLOBAL_SYMBOL: name})

        return mod.map_functions(attach)
