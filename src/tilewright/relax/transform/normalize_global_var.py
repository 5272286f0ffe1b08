"""``NormalizeGlobalVar``: functions are named in the module as they are exported."""

from __future__ import annotations

from typing import Any

from tilewright.ir import GLOBAL_SYMBOL, BaseFunc, GlobalVar, IRModule, Pass
from tilewright.relax.expr import FunctionRef, RelaxCall
from tilewright.support.errors import VerifyError
from tilewright.tir import fresh_name


class NormalizeGlobalVar(Pass):
    """Rename functions with a ``global_symbol`` to that; others whose name it is get a free one.

    Calls are renamed with them.
    """

    def transform(self, mod: IRModule) -> IRModule:
        """Rename the functions.

        Raises ``VerifyError`` if two have one ``global_symbol``.
        """
        names = _names(mod)
        if all(old == new for old, new in names.items()):
            return mod
        made: dict[str, BaseFunc] = {}
        for old, function in mod.functions.items():
            made[names[old]] = _renamed(function, names)
        return mod.replace(functions=made)


def _names(mod: IRModule) -> dict[str, str]:
    names: dict[str, str] = {}
    public: dict[str, str] = {}
    for old, function in mod.functions.items():
        symbol = function.attrs.get(GLOBAL_SYMBOL)
        if symbol is None:
            continue
        if symbol in public:
            raise VerifyError(
                f"{old!r} and {public[symbol]!r} have one {GLOBAL_SYMBOL}, {symbol!r}"
            )
        public[symbol] = old
        names[old] = symbol
    taken = {*public, *(name for name in mod.functions if name not in names)}
    for old in mod.functions:
        if old not in names:
            names[old] = fresh_name(old, taken) if old in public else old
    return names


def _renamed(function: BaseFunc, names: dict[str, str]) -> BaseFunc:
    """Rename what a function refers to."""

    def new(ref: object) -> Any:
        if not isinstance(ref, GlobalVar) or names.get(ref.name, ref.name) == ref.name:
            return ref
        return GlobalVar(names[ref.name])

    def go(item: Any) -> Any:
        if isinstance(item, FunctionRef):
            callee = new(item.callee)
            return item if callee is item.callee else FunctionRef(callee)
        made = item.map_children(go)
        if isinstance(made, RelaxCall) and new(made.op) is not made.op:
            return made.replace(op=new(made.op))
        return made

    result: BaseFunc = go(function)
    return result
