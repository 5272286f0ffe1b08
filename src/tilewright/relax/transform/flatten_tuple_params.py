"""``FlattenTupleParams``: parameters that are tuples become one parameter per tensor.

Native functions take tensors and numbers. The executable takes nested arguments apart as the graph
function's own parameters say (``graph_call``).
"""

from __future__ import annotations

from typing import Any

from tilewright.ir import IRModule
from tilewright.relax.expr import Function, RelaxExpr, RelaxVar, Tuple
from tilewright.relax.rewriter import FunctionRewriter, GraphPass
from tilewright.relax.struct_info import StructInfo, TupleStructInfo
from tilewright.relax.transform.canonicalize import canonicalized


class FlattenTupleParams(GraphPass):
    """Replace each parameter that is a tuple by parameters for its items, ``NAME_0``, …"""

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return _Flattener(mod)


class _Flattener(FunctionRewriter):
    def rewrite(self, function: Function) -> Function:
        if not any(isinstance(param.struct_info, TupleStructInfo) for param in function.params):
            return function
        return canonicalized(super().rewrite(function))

    def rewrite_params(self, function: Function) -> list[RelaxVar]:
        made: list[RelaxVar] = []
        names = {param.name for param in function.params}
        for param in function.params:
            info = param.struct_info
            if isinstance(info, TupleStructInfo):
                self.mapping[param] = _items(param.name, info, made, names)
            else:
                made.append(param)
        return made


def _items(name: str, info: StructInfo, made: list[RelaxVar], names: set[str]) -> RelaxExpr:
    if isinstance(info, TupleStructInfo):
        items = [_items(f"{name}_{n}", item, made, names) for n, item in enumerate(info.fields_)]
        return Tuple(tuple(items))
    while name in names:
        name += "_"
    names.add(name)
    var = RelaxVar(name, info)
    made.append(var)
    return var


def nesting(info: StructInfo) -> Any:
    """How the tensors of a parameter are nested: a tuple of nestings, ``None`` for a tensor."""
    if isinstance(info, TupleStructInfo):
        return tuple(map(nesting, info.fields_))
    return None
