"""``FlattenTupleParams``: tuples and shapes as parameters become one parameter per item.

Native functions take tensors and numbers. The executable takes nested arguments apart as the graph
function's own parameters say (``execution.graph_call``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from tilewright.ir import INDEX, GlobalVar, IRModule, Var, pre_order
from tilewright.relax.analysis import called_functions
from tilewright.relax.expr import (
    Function,
    FunctionRef,
    PrimValue,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    ShapeExpr,
    Tuple,
    TupleGetItem,
)
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

    Extents of shapes, and scalars of 64 bits, become symbolic extents if they are none yet. Calls
    pass the items. Functions that are passed on keep their parameters.
    """

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return Flattener(mod)


class Flattener(FunctionRewriter):
    """Takes parameters apart: tuples, and shapes too if so told; of all functions or of some."""

    def __init__(
        self, mod: IRModule, names: Collection[str] | None = None, *, shapes: bool = True
    ) -> None:
        super().__init__(mod)
        self.shapes = shapes
        graphs = {n: f for n, f in mod.functions.items() if isinstance(f, Function)}
        passed = {
            item.name
            for function in graphs.values()
            for item in pre_order(function)
            if isinstance(item, FunctionRef)
        }
        self.split = {
            name: function.params
            for name, function in graphs.items()
            if name not in passed and (names is None or name in names) and self.has_split(function)
        }
        """Parameters of functions that change."""
        self.kept = {f for n, f in graphs.items() if n not in self.split and self.has_split(f)}

    def has_split(self, function: Function) -> bool:
        """Whether a parameter is to be taken apart."""
        return any(_is_split(param.struct_info, self.shapes) for param in function.params)

    def rewrite(self, function: Function) -> Function:
        """Rewrite a function whose parameters change, or that calls one."""
        calls = not self.split.keys().isdisjoint(called_functions(function))
        if not calls and (function in self.kept or not self.has_split(function)):
            return function
        made = super().rewrite(function)
        return made if made is function else canonicalized(made)

    def rewrite_value(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        """Pass the items of tuples to functions whose parameters change."""
        if not isinstance(value, RelaxCall) or not isinstance(value.op, GlobalVar):
            return value
        if value.op.name not in self.split:
            return value
        params = self.split[value.op.name]
        pairs = zip(value.args, params)
        args = (a for arg, p in pairs for a in _leaves(arg, p.struct_info, self.shapes))
        return value.replace(args=tuple(args))

    def rewrite_params(self, function: Function) -> Sequence[RelaxVar]:
        """Take parameters apart."""
        if function in self.kept:
            return function.params
        made: list[RelaxVar] = []
        names = {param.name for param in function.params}
        for param in function.params:
            info = param.struct_info
            if _is_split(info, self.shapes):
                names.discard(param.name)
                self.mapping[param] = _items(param.name, info, made, names, self.shapes)
            else:
                made.append(param)
        return made


def _leaves(arg: RelaxExpr, info: StructInfo, shapes: bool) -> list[RelaxExpr]:
    """What is passed for the items of a parameter."""
    if isinstance(info, TupleStructInfo):
        items = [
            arg.fields[n] if isinstance(arg, Tuple) else TupleGetItem(arg, n)
            for n in range(len(info.fields))
        ]
        return [
            leaf for item, own in zip(items, info.fields) for leaf in _leaves(item, own, shapes)
        ]
    if shapes and isinstance(info, ShapeStructInfo):
        have = arg.struct_info
        if not isinstance(have, ShapeStructInfo) or not have.is_known:
            raise LowerError(f"the extents of {arg!r} must be known: inline the function it is for")
        return [PrimValue(extent) for extent in have.values]
    return [arg]


def _is_split(info: StructInfo, shapes: bool) -> bool:
    if not shapes:
        return isinstance(info, TupleStructInfo)
    nameless = isinstance(info, PrimStructInfo) and info.dtype == INDEX and info.value is None
    return nameless or isinstance(info, (TupleStructInfo, ShapeStructInfo))


def _items(
    name: str, info: StructInfo, made: list[RelaxVar], names: set[str], shapes: bool
) -> RelaxExpr:
    if isinstance(info, TupleStructInfo):
        items = [
            _items(f"{name}_{n}", item, made, names, shapes) for n, item in enumerate(info.fields)
        ]
        return Tuple(tuple(items))
    if shapes and isinstance(info, ShapeStructInfo):
        if info.ndim < 0:
            raise LowerError(f"the number of extents of {name} must be known: R.Shape(ndim=...)")
        values = info.values if info.is_known else (None,) * info.ndim
        scalars = [
            _items(f"{name}_{n}", PrimStructInfo(INDEX, value), made, names, shapes)
            for n, value in enumerate(values)
        ]
        return ShapeExpr(tuple(item.struct_info.value for item in scalars))  # type: ignore[attr-defined]
    while name in names:
        name += "_"
    names.add(name)
    nameless = isinstance(info, PrimStructInfo) and info.value is None and info.dtype == INDEX
    if shapes and nameless:
        info = PrimStructInfo(INDEX, Var(name))
    var = RelaxVar(name, info)
    made.append(var)
    return var


def nesting(info: StructInfo) -> Any:
    """How the tensors of a parameter are nested: a tuple of nestings, ``None`` for a tensor."""
    if isinstance(info, TupleStructInfo):
        return tuple(map(nesting, info.fields))
    if isinstance(info, ShapeStructInfo) and info.ndim >= 0:
        return (None,) * info.ndim
    return None
