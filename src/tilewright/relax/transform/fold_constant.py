"""``FoldConstant``: operators on constants are computed at compile time.

Their tensor functions are compiled and run on this machine, so a result is the same whether it is
folded or not; operators that only move elements need no compilation. Results much larger than their
operands (``full``, ``broadcast_to``) stay calls: storing them costs more than computing them. So do
tensors that are made from nothing (``full``, ``arange``, their slices), until they meet constants.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.dlight import default_schedule
from tilewright.driver import compile as compile_module
from tilewright.driver import resolve_target
from tilewright.ir import GlobalVar, IRModule, as_int, structural_hash
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.branches import If
from tilewright.relax.call_tir import call_tir_operands, is_call_tir, output_infos
from tilewright.relax.expr import (
    Binding,
    Constant,
    ConstantData,
    PrimValue,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    ShapeExpr,
    TupleGetItem,
)
from tilewright.relax.expr import Tuple as RelaxTuple
from tilewright.relax.registry import RelaxOp, usual_form
from tilewright.relax.rewriter import FunctionRewriter, GraphPass
from tilewright.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from tilewright.relax.transform.legalize_ops import legalize_call
from tilewright.relax.values import numpy_dtype
from tilewright.tir import PrimFunc

GROWTH_LIMIT = 1 << 16
"""A result may be this many elements larger than all operands together."""

MANY_ELEMENTS = 1 << 18
"""From so many on scheduling a tensor function may save more time than it takes."""


LATER_ELEMENTS = 1 << 14
"""So many elements are moved when the constant is needed, which may be never."""


class FoldConstant(GraphPass):
    """Compute calls whose operands are constants; known conditions take their branches."""

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return _Folder(mod)


Compiled = dict[object, Any]
"""Functions by structural hash and whether they are scheduled, and by what is called with which
types: a model repeats the same few."""


class _Folder(FunctionRewriter):
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.compiled: Compiled = {}
        self.made: dict[RelaxExpr, RelaxCall] = {}
        """Calls that make few elements from nothing, by their variables."""
        self.constants: dict[RelaxExpr, RelaxExpr | None] = {}
        """What they make, if it was needed."""

    def rewrite_value(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        if isinstance(value, TupleGetItem) and isinstance(value.tuple_value, RelaxTuple):
            value = value.tuple_value.fields[value.index]
        if is_call_tir(value):
            folded = self.run(value)
        else:
            folded = fold_call(value, self.compiled) or self.fold_made(value, var)
        if folded is None:
            return value
        # Uses see the constant itself; the binding, now unused, goes with DeadCodeElimination.
        self.mapping[var] = folded
        return folded

    def rewrite_if(self, binding: Binding, value: If) -> None:
        taken = If(self.resolve(value.cond), *value.branches).taken
        if taken is None:
            super().rewrite_if(binding, value)
            return
        self.rewrite_blocks(taken.blocks)
        self.mapping[binding.var] = self.resolve(taken.body)

    def fold_made(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr | None:
        """Fold a call on constants and what is made from nothing; note one on the latter only."""
        if not isinstance(value, RelaxCall) or not _is_foldable(value):
            return None
        args = [item for arg in value.args for item in _items(arg)]
        if not all(arg in self.made or _is_known(arg) for arg in args):
            return None
        if any(isinstance(arg, Constant) and arg.value.size > 1 for arg in args):
            return fold_call(self.with_made(value), self.compiled)
        if not _grows(value, 0):
            self.made[var] = value
        return None

    def with_made(self, value: RelaxCall) -> RelaxCall:
        """A call with constants for what is made from nothing."""

        def constant(arg: RelaxExpr) -> RelaxExpr:
            if isinstance(arg, RelaxTuple):
                return RelaxTuple(tuple(map(constant, arg.fields)))
            call = self.made.get(arg)
            if call is None:
                return arg
            known = self.constants.get(arg)
            if known is None:
                known = _fold(self.with_made(call), self.compiled)
                self.constants[arg] = known
            return arg if known is None else known

        return value.replace(args=tuple(map(constant, value.args)))

    def run(self, value: RelaxExpr) -> RelaxExpr | None:
        """Compile and run a tensor function of the module on constants."""
        assert isinstance(value, RelaxCall)
        _, args, _ = call_tir_operands(value)
        made = _compiled(self.builder.get(), value, self.compiled) if args else None
        return None if made is None else _run(*made, value.struct_info)


def fold_call(value: RelaxExpr, compiled: Compiled | None = None) -> RelaxExpr | None:
    """Compute a call of an operator on constants; ``None`` if it isn't one.

    ``compiled`` are functions of earlier calls, under the same options.
    """
    if not isinstance(value, RelaxCall) or not _is_foldable(value):
        return None
    if not any(isinstance(arg, (Constant, RelaxTuple)) for arg in value.args):
        return None
    return _fold(value, {} if compiled is None else compiled)


def _is_foldable(value: RelaxCall) -> bool:
    op = value.op
    if not isinstance(op, RelaxOp) or op.effect != "pure":
        return False
    return op.numpy is not None or op.legalize is not None


def _fold(value: RelaxCall, known: Compiled) -> RelaxExpr | None:
    op = value.op
    if not all(map(_is_known, value.args)) or usual_form(value) is not None:
        return None
    held = [item.value.size for arg in value.args for item in _constants(arg)]
    if _grows(value, sum(held)):
        return None
    if op.numpy is not None:
        later = _moved_later(value)
        if later is not None:
            return later
    operands = [_number(arg) for arg in value.args]
    if op.numpy is not None:
        return _moved(value, op.evaluate(operands, value.attrs))
    key = _call_key(value)
    if key in known:
        function, places = known[key]
        return _run(function, [operands[place] for place in places], value.struct_info)
    own = BlockBuilder()
    made = legalize_call(own, value, whole=True)
    if not is_call_tir(made):
        return None
    run = _compiled(own.get(), made, known)
    if run is None:
        return None
    function, inputs = run
    places = {id(operand): place for place, operand in enumerate(operands)}
    # One array that is several operands may be a single input: others needn't be equal.
    if key is not None and len(places) == len(operands) and all(id(a) in places for a in inputs):
        known[key] = function, [places[id(item)] for item in inputs]
    return _run(function, inputs, value.struct_info)


def _call_key(value: RelaxCall) -> tuple[object, ...] | None:
    """What the tensor function of a call on constants depends on, if that can be told.

    Numbers without dimensions may be part of the function.
    """
    if not all(isinstance(arg, Constant) for arg in value.args):
        return None
    kinds = tuple(
        repr(arg.value) if arg.value.shape else arg.value.content_key(False)
        for arg in value.args
        if isinstance(arg, Constant)
    )
    attrs = sorted(value.attrs.items())
    if not all(isinstance(item, (int, float, str, bool, type(None))) for _, item in attrs):
        return None
    # As text: True, 1 and 1.0 are equal, and so are zero and minus zero.
    return value.op.key, kinds, repr(attrs)


def _moved_later(value: RelaxCall) -> RelaxExpr | None:
    """The result of an operator that only moves elements, made when needed if it is large."""
    info = value.struct_info
    if not isinstance(info, TensorStructInfo):
        return None
    shape = [as_int(extent) or 0 for extent in info.shape]
    if math.prod(shape) < LATER_ELEMENTS:
        return None

    def make() -> NDArray[Any]:
        operands = [_number(arg) for arg in value.args]
        (array,) = _arrays(value, value.op.evaluate(operands, value.attrs))
        return array

    sources = [item.value for arg in value.args for item in _constants(arg)]
    return Constant(ConstantData.later(shape, numpy_dtype(info.dtype), make, sources))


def _items(arg: RelaxExpr) -> Iterator[RelaxExpr]:
    """An operand, or what a tuple consists of."""
    if isinstance(arg, RelaxTuple):
        for item in arg.fields:
            yield from _items(item)
    else:
        yield arg


def _constants(arg: RelaxExpr) -> Iterator[Constant]:
    return (item for item in _items(arg) if isinstance(item, Constant))


def _moved(value: RelaxCall, made: object) -> RelaxExpr:
    """The result of an operator that only moves elements."""
    return _as_constants(_arrays(value, made), value.struct_info)


def _arrays(value: RelaxCall, made: Any) -> list[NDArray[Any]]:
    info = value.struct_info
    infos = info.fields if isinstance(info, TupleStructInfo) else (info,)
    arrays = made if isinstance(made, (list, tuple)) else [made]
    for array, expected in zip(arrays, infos):
        assert isinstance(expected, TensorStructInfo)
        assert list(array.shape) == list(map(as_int, expected.shape)), value
        assert array.dtype == numpy_dtype(expected.dtype), value
    return [np.ascontiguousarray(a).reshape(a.shape) for a in arrays]


def _compiled(
    mod: IRModule, call: RelaxExpr, compiled: Compiled
) -> tuple[Any, list[NDArray[Any]]] | None:
    """The compiled tensor function of a call on constants, and its operands."""
    assert isinstance(call, RelaxCall)
    ref, args, extra = call_tir_operands(call)
    if extra is not None or not isinstance(ref.callee, GlobalVar):
        return None
    infos = output_infos(call)
    shapes = [[as_int(extent) for extent in info.shape] for info in infos]
    if any(None in shape for shape in shapes) or not all(isinstance(a, Constant) for a in args):
        return None
    inputs = [arg.value.compute() for arg in args if isinstance(arg, Constant)]
    if _grows(call, sum(map(_size, inputs))):
        return None
    func = mod[ref.callee]
    assert isinstance(func, PrimFunc)
    made = [math.prod(extent or 0 for extent in shape) for shape in shapes]
    elements = sum(map(_size, inputs)) + sum(made)
    large = elements >= MANY_ELEMENTS
    key = structural_hash(func), large
    if key not in compiled:
        module = IRModule({"folded": func})
        if large:
            module = default_schedule(resolve_target("native"))(module)
        compiled[key] = compile_module(module, "native")["folded"]
    return compiled[key], inputs


def _run(function: Any, inputs: Sequence[Any], info: StructInfo) -> RelaxExpr:
    infos = info.fields if isinstance(info, TupleStructInfo) else (info,)
    results = [
        np.zeros([as_int(extent) or 0 for extent in item.shape], numpy_dtype(item.dtype))
        for item in infos
        if isinstance(item, TensorStructInfo)
    ]
    function(*inputs, *results)
    return _as_constants(results, info)


def _as_constants(arrays: list[Any], info: StructInfo) -> RelaxExpr:
    # What can't be written is a view of an operand, whose memory may be somebody's.
    lent = [not array.flags.writeable for array in arrays]
    made = tuple(Constant(ConstantData(array, lent=flag)) for array, flag in zip(arrays, lent))
    return RelaxTuple(made) if isinstance(info, TupleStructInfo) else made[0]


def _is_known(arg: RelaxExpr) -> bool:
    """Whether an operand's values are known, be it later."""
    if isinstance(arg, RelaxTuple):
        return all(map(_is_known, arg.fields))
    return isinstance(arg, Constant) or _number(arg) is not None


def _number(arg: RelaxExpr) -> object:
    if isinstance(arg, Constant):
        return arg.value.compute()
    if isinstance(arg, ShapeExpr):
        extents = [as_int(extent) for extent in arg.values]
        return None if any(extent is None for extent in extents) else tuple(extents)
    if isinstance(arg, PrimValue):
        return getattr(arg.value, "value", None)
    if isinstance(arg, RelaxTuple):
        items = [_number(item) for item in arg.fields]
        return None if any(item is None for item in items) else items
    return None


def _size(operand: object) -> int:
    if isinstance(operand, np.ndarray):
        return operand.size
    if isinstance(operand, list):
        return sum(map(_size, operand))
    return 0


def _grows(call: RelaxCall, operands: int) -> bool:
    """Whether results have many more elements than operands."""
    info = call.struct_info
    infos = info.fields if isinstance(info, TupleStructInfo) else (info,)
    total = 0
    for item in infos:
        if isinstance(item, TensorStructInfo):
            total += math.prod(as_int(extent) or 1 for extent in item.shape)
    return total > operands + GROWTH_LIMIT
