"""Moving elements: views, permutations, concatenation, splitting, slicing, padding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.ir import as_expr, as_int
from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.frontend.padding import extended
from tilewright.relax.frontend.torch.converters.base import (
    Context,
    Results,
    Size,
    converts,
    same_tensor,
)
from tilewright.relax.frontend.torch.converters.indexing import cut
from tilewright.relax.ops.common import element_count

# All that gives a tensor another shape; which one, PyTorch has recorded.
_RESHAPES = (
    "aten._unsafe_view.default", "aten.flatten.using_ints", "aten.ravel.default",
    "aten.reshape.default", "aten.reshape_as.default",
    "aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims", "aten.unflatten.int",
    "aten.unsqueeze.default", "aten.view.default", "aten.view_as.default",
)  # fmt: skip


@converts(*_RESHAPES)
def _reshape(ctx: Context, x: RelaxExpr, *_: object) -> RelaxExpr:
    return x if same_tensor(x, ctx.shape) else op.reshape(x, ctx.shape)


@converts("aten.expand.default", "aten.expand_as.default", "aten.broadcast_to.default")
def _expand(ctx: Context, x: RelaxExpr, *_: object, implicit: bool = False) -> RelaxExpr:
    return x if same_tensor(x, ctx.shape) else op.broadcast_to(x, ctx.shape)


@converts("aten.repeat.default")
def _repeat(ctx: Context, x: RelaxExpr, repeats: Sequence[Size]) -> RelaxExpr:
    return op.tile(x, tuple(ctx.ints(repeats, "repeats")))


@converts("aten.repeat_interleave.self_int")
def _repeat_interleave(
    ctx: Context,
    x: RelaxExpr,
    repeats: Size,
    dim: int | None = None,
    output_size: Size | None = None,
) -> RelaxExpr:
    if dim is None:
        x, dim = op.reshape(x, (-1,)), 0
    return op.repeat(x, ctx.int(repeats, "repeats"), ctx.axis(dim, x.ndim))


# ---- permutations -----------------------------------------------------------------------------


def _permuted(x: RelaxExpr, axes: list[int]) -> RelaxExpr:
    return x if axes == sorted(axes) else op.permute_dims(x, tuple(axes))


@converts("aten.permute.default")
def _permute(ctx: Context, x: RelaxExpr, dims: Sequence[int]) -> RelaxExpr:
    return _permuted(x, [ctx.axis(dim, x.ndim) for dim in dims])


@converts("aten.transpose.int", "aten.swapaxes.default", "aten.swapdims.default")
def _transpose(ctx: Context, x: RelaxExpr, first: int, second: int) -> RelaxExpr:
    axes = list(range(x.ndim))
    if axes:
        a, b = ctx.axis(first, x.ndim), ctx.axis(second, x.ndim)
        axes[a], axes[b] = axes[b], axes[a]
    return _permuted(x, axes)


@converts("aten.t.default", "aten.numpy_T.default")
def _reverse(ctx: Context, x: RelaxExpr) -> RelaxExpr:
    return _permuted(x, list(reversed(range(x.ndim))))


@converts("aten.mT.default", "aten.mH.default", "aten.adjoint.default", "aten.matrix_H.default")
def _matrix_transpose(ctx: Context, x: RelaxExpr) -> RelaxExpr:
    return _transpose(ctx, x, -1, -2)


@converts("aten.movedim.int", "aten.movedim.intlist")
def _movedim(
    ctx: Context, x: RelaxExpr, source: int | Sequence[int], destination: int | Sequence[int]
) -> RelaxExpr:
    sources = ctx.axes(source, x.ndim)
    places = dict(zip(ctx.axes(destination, x.ndim), sources))
    rest = iter(axis for axis in range(x.ndim) if axis not in sources)
    return _permuted(x, [places[axis] if axis in places else next(rest) for axis in range(x.ndim)])


@converts("aten.flip.default")
def _flip(ctx: Context, x: RelaxExpr, dims: Sequence[int]) -> RelaxExpr:
    for axis in ctx.axes(dims, x.ndim) if dims else ():
        x = op.flip(x, axis)
    return x


# ---- joining and cutting ----------------------------------------------------------------------


@converts("aten.cat.default", "aten.concat.default")
def _cat(ctx: Context, tensors: list[RelaxExpr], dim: int = 0) -> RelaxExpr:
    ndim = len(ctx.shape)
    # PyTorch lets an empty one-dimensional tensor join anything.
    kept = [
        x for x in tensors if x.ndim == ndim and (ndim == 1 or as_int(element_count(x.shape)) != 0)
    ]
    kept = [ctx.cast(x, ctx.dtype) for x in kept or tensors[:1]]
    return kept[0] if len(kept) == 1 else op.concat(kept, ctx.axis(dim, ndim))


@converts("aten.stack.default")
def _stack(ctx: Context, tensors: list[RelaxExpr], dim: int = 0) -> RelaxExpr:
    return op.stack([ctx.cast(x, ctx.dtype) for x in tensors], ctx.axis(dim, len(ctx.shape)))


def _chunks(ctx: Context, x: RelaxExpr, dim: int) -> Results:
    """Split into the chunks that PyTorch has recorded."""
    axis = ctx.axis(dim, x.ndim)
    sizes = ctx.ints(
        [ctx.symbols.expr(chunk.shape[axis]) for chunk in ctx.result], "sizes of the chunks"
    )
    if len(sizes) == 1:
        return [x]
    places = tuple(np.cumsum(sizes[:-1]).tolist())
    made = ctx.emit(op.split(x, places, axis))
    return [made[number] for number in range(len(sizes))]


@converts(
    "aten.split.Tensor", "aten.split.sizes", "aten.split_with_sizes.default", "aten.chunk.default",
    "aten.tensor_split.sections", "aten.tensor_split.indices",
)  # fmt: skip
def _split(ctx: Context, x: RelaxExpr, how: Size | Sequence[Size], dim: int = 0) -> Results:
    return _chunks(ctx, x, dim)


@converts("aten.unbind.int")
def _unbind(ctx: Context, x: RelaxExpr, dim: int = 0) -> Results:
    axis = ctx.axis(dim, x.ndim)
    count = len(ctx.result)
    rest = (*x.shape[:axis], *x.shape[axis + 1 :])
    if count == 1:
        return [op.reshape(x, rest)]
    made = ctx.emit(op.split(x, count, axis))
    return [op.reshape(made[number], rest) for number in range(count)]


_TO_THE_END = 2**63 - 1


@converts("aten.slice.Tensor")
def _slice(
    ctx: Context,
    x: RelaxExpr,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: Size = 1,
) -> RelaxExpr:
    if same_tensor(x, ctx.shape):
        return x
    axis, by = ctx.axis(dim, x.ndim), ctx.int(step, "step")
    low, high = 0 if start is None else start, _TO_THE_END if end is None else end
    bounds = ctx.known(low), ctx.known(high)
    if by == 1 and None in bounds and len(ctx.shape) == x.ndim:
        # PyTorch knows how many are left, whatever the signs of the bounds are.
        extent, length = x.shape[axis], ctx.shape[axis]
        if bounds[1] is not None and bounds[1] >= _TO_THE_END:
            low = extent - length
        elif bounds[0] is not None and bounds[0] < 0:
            low = extent + bounds[0]
        return cut(ctx, x, axis, low, as_expr(low) + length)
    return cut(ctx, x, axis, low, high, by)


@converts("aten.narrow.default")
def _narrow(ctx: Context, x: RelaxExpr, dim: int, start: Size, length: Size) -> RelaxExpr:
    return cut(ctx, x, ctx.axis(dim, x.ndim), start, as_expr(start) + length)


@converts("aten.select.int")
def _select(ctx: Context, x: RelaxExpr, dim: int, index: Size) -> RelaxExpr:
    axis = ctx.axis(dim, x.ndim)
    stop = 2**63 - 1 if as_int(as_expr(index)) == -1 else as_expr(index) + 1
    return op.reshape(cut(ctx, x, axis, index, stop), ctx.shape)


# ---- padding ----------------------------------------------------------------------------------


@converts("aten.constant_pad_nd.default")
def _pad(ctx: Context, x: RelaxExpr, pad: Sequence[Size], value: float = 0) -> RelaxExpr:
    amounts = ctx.ints(pad, "padding")
    pairs = [(0, 0)] * (x.ndim - len(amounts) // 2)
    pairs += list(zip(amounts[0::2], amounts[1::2]))[::-1]
    for axis, (before, after) in enumerate(pairs):
        if before < 0 or after < 0:
            x = cut(ctx, x, axis, max(0, -before), after if after < 0 else 2**63 - 1)
    width = [max(0, amount) for pair in pairs for amount in pair]
    filled = float(ctx.number(value, x.dtype))
    return op.nn.pad(x, tuple(width), pad_value=filled) if any(width) else x


_CONTINUED = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@converts("aten.pad.default")
def _pad_by_mode(
    ctx: Context,
    x: RelaxExpr,
    pad: Sequence[Size],
    mode: str = "constant",
    value: float | None = None,
) -> RelaxExpr:
    if mode == "constant":
        return _pad(ctx, x, pad, value or 0)
    amounts = ctx.ints(pad, "padding")
    for number, (before, after) in enumerate(zip(amounts[0::2], amounts[1::2])):
        axis = x.ndim - 1 - number
        if before < 0 or after < 0:
            x = cut(ctx, x, axis, max(0, -before), after if after < 0 else 2**63 - 1)
        x = extended(x, axis, max(0, before), max(0, after), _CONTINUED[mode])
    return x
