"""``FlattenTupleParams``: tuples and shapes as parameters become one parameter per item.

Native functions take tensors and numbers. The executable takes nested arguments apart as the graph
function's own parameters say (``graph_call``).
"""

from __future__ import annotations

from typing import Any

from tilewright.ir import INDEX, IRModule, Var
from tilewright.relax.expr import Function, RelaxExpr, RelaxVar, ShapeExpr, Tuple
from tilewright.relax.rewriter import FunctionRewriter, GraphPass
from tilewright.relax.struct_info import (
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TupleStructInfo,
)
from tilewright.relax.transform.canonicalize import canonicalized
from tilewright.support.errors import LowerError


class FlattenTupleParams(GraphPass):
    """Replace each parameter that is a tuple or shape by parameters for its items, ``NAME_0``, …

    Extents of shapes, and scalars of 64 bits, become symbolic extents if they are none yet.
    """

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return _Flattener(mod)


class _Flattener(FunctionRewriter):
    def rewrite(self, function: Function) -> Function:
        if not any(_is_split(param.struct_info) for param in function.params):
            return function
        return canonicalized(super().rewrite(function))

    def rewrite_params(self, function: Function) -> list[RelaxVar]:
        made: list[RelaxVar] = []
        names = {param.name for param in function.params}
        for param in function.params:
            info = param.struct_info
            if _is_split(info):
                names.discard(param.name)
                self.mapping[param] = _items(param.name, info, made, names)
            else:
                made.append(param)
        return made


def _is_split(info: StructInfo) -> bool:
    nameless = isinstance(info, PrimStructInfo) and info.dtype == INDEX and info.value is None
    return nameless or isinstance(info, (TupleStructInfo, ShapeStructInfo))


def _items(name: str, info: StructInfo, made: list[RelaxVar], names: set[str]) -> RelaxExpr:
    if isinstance(info, TupleStructInfo):
        items = [_items(f"{name}_{n}", item, made, names) for n, item in enumerate(info.fields_)]
        return Tuple(tuple(items))
    if isinstance(info, ShapeStructInfo):
        if info.ndim < 0:
            raise LowerError(f"the number of extents of {name} must be known: R.Shape(ndim=...)")
        values = info.values if info.is_known else (None,) * info.ndim
        scalars = [
            _items(f"{name}_{n}", PrimStructInfo(INDEX, value), made, names)
            for n, value in enumerate(values)
        ]
        return ShapeExpr(tuple(item.struct_info.value for item in scalars))  # type: ignore[attr-defined]
    while name in names:
        name += "_"
    names.add(name)
    if isinstance(info, PrimStructInfo) and info.value is None and info.dtype == INDEX:
        info = PrimStructInfo(INDEX, Var(name))
    var = RelaxVar(name, info)
    made.append(var)
    return var


def nesting(info: StructInfo) -> Any:
    """How the tensors of a parameter are nested: a tuple of nestings, ``None`` for a tensor."""
    if isinstance(info, TupleStructInfo):
        return tuple(map(nesting, info.fields_))
    if isinstance(info, ShapeStructInfo) and info.ndim >= 0:
        return (None,) * info.ndim
    return None
