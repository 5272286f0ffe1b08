"""``SplitBatch``: images pass through the first layers of a network one after the other.

    for a batch of 8:       y = conv(relu(conv(x)))
    ->                      y = concat(conv(relu(conv(x[0:1]))), conv(relu(conv(x[1:2]))), …)

The first layers of a convolutional network have large images and few weights. The images of a whole
batch between two of them go to memory and come back; those of one stay in the caches. Weights are
read once for each part, so the pass stops where they outweigh images: behind the last operator
whose images are large. Runs after ``SelectConvLayout`` and before algorithms of convolutions are
chosen, which are chosen for the parts.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tilewright.ir import IRModule, Var, dtypes, free_vars, pre_order, substitute
from tilewright.relax.branches import all_bindings
from tilewright.relax.expr import (
    Binding,
    BindingBlock,
    Constant,
    DataflowBlock,
    DataflowVar,
    Function,
    MatchCast,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    Tuple,
    VarBinding,
)
from tilewright.relax.ops import concat, reshape, strided_slice
from tilewright.relax.registry import RelaxOp
from tilewright.relax.rewriter import FunctionRewriter, GraphPass
from tilewright.relax.struct_info import TensorStructInfo, static_shape, used_vars
from tilewright.relax.transform.layout_rules import RULES, elementwise
from tilewright.target import Target

# An operator has large images if those of the batch are so many times the second-level caches, and
# so many times its weights.
_LARGE, _OUTWEIGHED = 8, 4
# Parts of a batch at most: each is code of its own in the graph's function.
_MOST_PARTS = 16
# Calls of all parts at most: hundreds of layers, many times, build for longer than they gain.
_MOST_CALLS = 1024
# What cutting and joining moves, and weights read again, as a share of the large images' bytes.
_MOST_MOVED = 0.25

_POOLS = "nn.max_pool2d nn.avg_pool2d nn.adaptive_avg_pool2d nn.adaptive_max_pool2d".split()


class SplitBatch(GraphPass):
    """Run the layers with large images for a part of the batch at a time."""

    def __init__(self, target: Target | None = None) -> None:
        self.target = target

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return _Splitter(mod, self.target or Target.current() or Target("native"))


@dataclass(frozen=True)
class _Plan:
    """What is computed in parts: bindings, what they read of the batch, what others read."""

    region: Sequence[VarBinding]
    sources: Sequence[RelaxVar]
    results: Sequence[RelaxVar]
    late: frozenset[RelaxVar | Var]
    """What depends on results, or comes after them."""
    batch: int
    size: int


class _Splitter(FunctionRewriter):
    def __init__(self, mod: IRModule, target: Target) -> None:
        super().__init__(mod)
        self.near = target.l2_bytes * target.num_cores if target.device_kind == "cpu" else None

    def rewrite(self, function: Function) -> Function:
        self.whole = function
        return super().rewrite(function)

    def rewrite_blocks(self, blocks: Sequence[BindingBlock]) -> None:
        for block in blocks:
            plan = self._planned(block)
            if plan is None:
                super().rewrite_blocks([block])
                continue
            inside = {binding.var for binding in plan.region}
            rest = [binding for binding in block.bindings if binding.var not in inside]
            with self.builder.dataflow():
                self.rewrite_block([item for item in rest if item.var not in plan.late])
                self._emit_parts(plan)
                self.rewrite_block([item for item in rest if item.var in plan.late])

    def _planned(self, block: BindingBlock) -> _Plan | None:
        if self.near is None or not isinstance(block, DataflowBlock):
            return None
        for batch in _batches(block.bindings):
            plan = _plan(block.bindings, batch, self.near, self.whole)
            if plan is not None:
                return plan
        return None

    def _emit_parts(self, plan: _Plan) -> None:
        parts: dict[RelaxVar, list[RelaxExpr]] = {var: [] for var in plan.results}
        for first in range(0, plan.batch, plan.size):
            made: dict[RelaxExpr, RelaxExpr] = {}
            for source in plan.sources:
                whole = self.resolve(source)
                part = strided_slice(whole, axes=[0], begin=[first], end=[first + plan.size])
                made[source] = self.builder.emit(part)
            for binding in plan.region:
                call = binding.value
                assert isinstance(call, RelaxCall)
                taken = {item: made[item] for item in _batch_operands(call, plan.batch) or ()}
                args = [substitute(arg, {**self.mapping, **taken}) for arg in call.args]
                made[binding.var] = self.builder.emit(_of_part(call, args, plan.size))
            for var in plan.results:
                parts[var].append(made[var])
        for var, items in parts.items():
            self.bind(var, concat(Tuple(tuple(items)), axis=0))


# ---- what to split ------------------------------------------------------------------------------


def _plan(bindings: Sequence[Binding], batch: int, near: int, function: Function) -> _Plan | None:
    """Choose what is computed in parts; ``None`` if that doesn't pay off."""
    parts = _part_count(batch)
    if parts == 1:
        return None
    candidates = _connected(bindings, batch)
    large = [n for n, binding in enumerate(candidates) if _is_large(binding, near)]
    if not large:
        return None
    end = large[-1] + 1
    while end < len(candidates) and _is_epilogue(candidates[end]):
        end += 1
    region = candidates[:end]
    inside = {binding.var for binding in region}
    read = dict.fromkeys(
        item for binding in region for item in _batch_operands(_call(binding), batch) or ()
    )
    sources = [var for var in read if var not in inside]
    outside = set(_variables(function.body.body))
    for binding in all_bindings(function):
        if binding.var not in inside:
            outside.update(_variables(binding.value))
    results = [
        binding.var
        for binding in region
        if binding.var in outside or not isinstance(binding.var, DataflowVar)
    ]
    moved = 2 * sum(map(_bytes, (*sources, *results)))
    again = sum(_weights(binding) for binding in region) * (parts - 1)
    images = sum(_images(region[n]) for n in large)
    if moved + again > _MOST_MOVED * images or parts * len(region) > _MOST_CALLS:
        return None
    return _Plan(region, sources, results, _after(bindings, region), batch, batch // parts)


def _after(bindings: Sequence[Binding], region: Sequence[VarBinding]) -> frozenset[RelaxVar | Var]:
    """What depends on a region, and whatever follows its last binding."""
    inside, late = {binding.var for binding in region}, set[RelaxVar | Var]()
    seen = 0
    for binding in bindings:
        if binding.var in inside:
            seen += 1
            continue
        used = _used(binding)
        if seen == len(region) or any(item in inside or item in late for item in used):
            late.update(_defined(binding))
    return frozenset(late)


def _connected(bindings: Sequence[Binding], batch: int) -> list[VarBinding]:
    """Calls that treat images alike, and read nothing that others made of their results."""
    found: dict[RelaxVar, VarBinding] = {}
    behind: set[RelaxVar | Var] = set()
    for binding in bindings:
        used = _used(binding)
        free = not any(item in behind for item in used)
        if free and isinstance(binding, VarBinding) and _is_alike(binding, batch, found):
            found[binding.var] = binding
        elif not free or any(item in found for item in used):
            behind.update(_defined(binding))
    return list(found.values())


def _batches(bindings: Sequence[Binding]) -> list[int]:
    """Numbers of images that convolutions get."""
    made: dict[int, None] = {}
    for binding in bindings:
        if isinstance(binding.value, RelaxCall) and _name(binding.value) == "nn.conv2d":
            shape = _shape(binding.value)
            if shape and shape[0] > 1:
                made[shape[0]] = None
    return list(made)


def _part_count(batch: int) -> int:
    """The most parts of one size, of those that are allowed."""
    return next(n for n in range(min(batch, _MOST_PARTS), 0, -1) if batch % n == 0)


def _is_large(binding: VarBinding, near: int) -> bool:
    if _is_elementwise(_call(binding)):  # part of the kernel before it
        return False
    images = _images(binding)
    return images > _LARGE * near and images > _OUTWEIGHED * _weights(binding)


def _is_epilogue(binding: VarBinding) -> bool:
    """Whether a call belongs to the convolution before it, or makes its images smaller."""
    call = _call(binding)
    return _is_elementwise(call) or _name(call) in _POOLS


def _is_elementwise(call: RelaxCall) -> bool:
    return RULES.get(_name(call)) is elementwise


def _images(binding: VarBinding) -> int:
    """Bytes of all images that a call reads and writes."""
    batch = (_shape(binding.var) or (0,))[0]
    return _bytes(binding.var) + sum(map(_bytes, _batch_operands(_call(binding), batch) or ()))


def _weights(binding: VarBinding) -> int:
    return sum(_bytes(arg) for arg in _call(binding).args if isinstance(arg, Constant))


# ---- operators ----------------------------------------------------------------------------------


def _is_alike(binding: VarBinding, batch: int, found: Collection[RelaxVar]) -> bool:
    """Whether each image of the result is made of the same one of the operands, and no other.

    ``found`` are results that will be there in parts only.
    """
    call = binding.value
    if not isinstance(call, RelaxCall) or not isinstance(call.op, RelaxOp):
        return False
    shape = _shape(binding.var)
    if shape is None or len(shape) < 2 or shape[0] != batch:
        return False
    operands = _batch_operands(call, batch)
    used = _variables(call)
    if not operands:
        return False
    return all(item in operands or item not in found for item in used)


def _batch_operands(call: RelaxCall, batch: int) -> list[RelaxVar] | None:
    """Variables that hold an image for each of the result; ``None`` for other operators."""
    name = _name(call)
    if name == "nn.conv2d":
        data, weight = call.args
        layouts = (call.attrs["data_layout"], call.attrs["out_layout"] or "N")
        if not isinstance(weight, Constant) or any(item[0] != "N" for item in layouts):
            return None
        return _each([data], batch)
    if name in _POOLS:
        layouts = (call.attrs["layout"], call.attrs["out_layout"] or "N")
        return _each(call.args, batch) if all(item[0] == "N" for item in layouts) else None
    if name == "reshape":
        return _each(call.args[:1], batch)
    if name == "permute_dims":
        return _each(call.args, batch) if call.attrs["axes"][0] == 0 else None
    if name == "concat":
        (given,) = call.args
        ndim = len(_shape(call) or ())
        if not isinstance(given, Tuple) or ndim == 0 or call.attrs["axis"] % ndim == 0:
            return None
        return _each(given.fields, batch)
    if _is_elementwise(call):
        ndim = len(_shape(call) or ())
        # Others are the same for all images.
        varying = [arg for arg in call.args if not _is_shared(arg, ndim)]
        return _each(varying, batch)
    return None


def _of_part(call: RelaxCall, args: Sequence[RelaxExpr], size: int) -> RelaxCall:
    """The same call of so many images."""
    if _name(call) == "reshape":
        return reshape(args[0], (size, *(_shape(call) or ())[1:]))
    return RelaxCall(call.op, args, call.attrs)


def _each(operands: Sequence[RelaxExpr], batch: int) -> list[RelaxVar] | None:
    """The operands, if all are variables of so many images."""
    made = [item for item in operands if isinstance(item, RelaxVar)]
    if len(made) < len(operands) or any((_shape(item) or (0,))[0] != batch for item in made):
        return None
    return made


def _is_shared(arg: RelaxExpr, ndim: int) -> bool:
    """Whether an operand of an element-wise operator is broadcast along the batch."""
    shape = _shape(arg)
    if shape is None:  # an attribute-like operand, or a size that isn't known
        return not isinstance(arg.struct_info, TensorStructInfo)
    return len(shape) < ndim or shape[0] == 1


def _name(call: RelaxCall) -> str:
    return call.op.key if isinstance(call.op, RelaxOp) else ""


def _call(binding: VarBinding) -> RelaxCall:
    assert isinstance(binding.value, RelaxCall)
    return binding.value


def _variables(value: RelaxExpr) -> list[RelaxVar]:
    return [item for item in pre_order(value) if isinstance(item, RelaxVar)]


def _used(binding: Binding) -> list[RelaxVar | Var]:
    """Variables that a binding reads, and extents that it goes by."""
    given = used_vars(binding.struct_info) if isinstance(binding, MatchCast) else []
    return [*_variables(binding.value), *free_vars(binding.value), *given]


def _defined(binding: Binding) -> list[RelaxVar | Var]:
    """What a binding defines: its variable, and extents that a cast may be the first to know."""
    return [
        binding.var,
        *(used_vars(binding.struct_info) if isinstance(binding, MatchCast) else ()),
    ]


def _shape(expr: RelaxExpr) -> tuple[int, ...] | None:
    return static_shape(expr.struct_info)


def _bytes(expr: RelaxExpr) -> int:
    info = expr.struct_info
    assert isinstance(info, TensorStructInfo)
    return math.prod(_shape(expr) or (0,)) * dtypes.bytes_of(info.dtype)


__all__ = ["SplitBatch"]
