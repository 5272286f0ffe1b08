"""Moving elements: views, permutations, concatenation, splitting, indexing, padding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.ir import Expr, as_expr, as_int
from tilewright.relax import ops as op
from tilewright.relax.expr import Constant, RelaxExpr, const
from tilewright.relax.frontend.torch.converters.base import (
    Context,
    Results,
    Size,
    converts,
    same_tensor,
)
from tilewright.relax.ops.common import element_count
from tilewright.relax.struct_info import prove_equal

# All that gives a tensor another shape; which one, PyTorch has recorded.
_RESHAPES = (
    "aten._unsafe_view.default", "aten.flatten.using_ints", "aten.ravel.default",
    "aten.reshape.default",
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


@converts("aten.mT.default")
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


def _cut(
    ctx: Context, x: RelaxExpr, axis: int, start: Size, stop: Size, step: int = 1
) -> RelaxExpr:
    """``x[start:stop:step]`` along an axis; with symbolic bounds by look-up."""
    low, high = as_int(as_expr(start)), as_int(as_expr(stop))
    if low is not None and high is not None:
        places = (axis,), (low,), (high,), (step,)
        if as_int(x.shape[axis]) is None:
            # Where PyTorch has proven that nothing is cut off, extents need no `min`.
            whole = op.strided_slice(x, *places, assume_inbound=True)
            if len(ctx.shape) != x.ndim or prove_equal(whole.shape[axis], ctx.shape[axis]):
                return whole
        return op.strided_slice(x, *places)
    extent = x.shape[axis]
    if low is not None and low < 0:
        start = extent + low
    if high is not None:
        stop = extent if high >= 2**31 - 1 else extent + high if high < 0 else stop
    return op.take(x, op.arange(start, stop, step), axis)


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
    axis = ctx.axis(dim, x.ndim)
    stop = 2**63 - 1 if end is None else end
    return _cut(ctx, x, axis, 0 if start is None else start, stop, ctx.int(step, "step"))


@converts("aten.narrow.default")
def _narrow(ctx: Context, x: RelaxExpr, dim: int, start: Size, length: Size) -> RelaxExpr:
    return _cut(ctx, x, ctx.axis(dim, x.ndim), start, as_expr(start) + length)


@converts("aten.select.int")
def _select(ctx: Context, x: RelaxExpr, dim: int, index: Size) -> RelaxExpr:
    axis = ctx.axis(dim, x.ndim)
    stop = 2**63 - 1 if as_int(as_expr(index)) == -1 else as_expr(index) + 1
    return op.reshape(_cut(ctx, x, axis, index, stop), ctx.shape)


@converts("aten.slice_scatter.default")
def _slice_scatter(
    ctx: Context,
    x: RelaxExpr,
    source: RelaxExpr,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: Size = 1,
) -> RelaxExpr:
    axis = ctx.axis(dim, x.ndim)
    extent = as_int(x.shape[axis])
    if extent is None or ctx.int(step, "step") != 1:
        raise ctx.error("writing into a slice needs a constant extent and step 1")
    first = 0 if start is None else ctx.int(start, "start")
    stop = extent if end is None else ctx.int(end, "end")
    low, high, _ = slice(first, stop).indices(extent)
    before = [] if low == 0 else [_cut(ctx, x, axis, 0, low)]
    after = [] if high >= extent else [_cut(ctx, x, axis, high, extent)]
    chunks = [*before, ctx.cast(source, x.dtype), *after]
    return chunks[0] if len(chunks) == 1 else op.concat(chunks, axis)


@converts("aten.select_scatter.default")
def _select_scatter(
    ctx: Context, x: RelaxExpr, source: RelaxExpr, dim: int, index: Size
) -> RelaxExpr:
    axis = ctx.axis(dim, x.ndim)
    chunk = op.reshape(ctx.cast(source, x.dtype), [*x.shape[:axis], 1, *x.shape[axis + 1 :]])
    place = ctx.int(index, "index")
    return _slice_scatter(ctx, x, chunk, axis, place, None if place == -1 else place + 1)


# ---- indexing ---------------------------------------------------------------------------------


@converts("aten.embedding.default")
def _embedding(
    ctx: Context,
    weight: RelaxExpr,
    indices: RelaxExpr,
    padding_idx: Size = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> RelaxExpr:
    """Rows of a table; the padding row is special for gradients only."""
    return op.take(weight, indices, 0)


@converts("aten.index_select.default")
def _index_select(ctx: Context, x: RelaxExpr, dim: int, index: RelaxExpr) -> RelaxExpr:
    return op.take(x, index, ctx.axis(dim, x.ndim))


def _from_front(ctx: Context, index: RelaxExpr, extent: Expr) -> RelaxExpr:
    """Make indices non-negative: negative ones count from the end."""
    if isinstance(index, Constant) and as_int(extent) is not None:
        return const(np.where(index.data < 0, index.data + as_int(extent), index.data), "int64")
    index = ctx.emit(ctx.cast(index, "int64"))
    wrapped = op.add(index, ctx.tensor(extent, "int64"))
    made: RelaxExpr = op.where(op.less(index, const(0, "int64")), wrapped, index)
    return made


@converts("aten.index.Tensor")
def _index(ctx: Context, x: RelaxExpr, indices: list[RelaxExpr | None]) -> RelaxExpr:
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    chosen = [index for index in indices if index is not None]
    if any(index.dtype == "bool" for index in chosen):
        raise ctx.error(
            "indexing by a mask gives a size that depends on data; use torch.where or masked_fill"
        )
    places = [_from_front(ctx, index, x.shape[axis]) for axis, index in zip(axes, chosen)]
    if len(axes) == 1:
        return op.take(x, places[0], axes[0])
    if axes != list(range(axes[0], axes[0] + len(axes))):
        # Indices that are not next to each other put their dimensions first.
        rest = [axis for axis in range(x.ndim) if axis not in axes]
        x = op.permute_dims(x, (*axes, *rest))
        axes = list(range(len(axes)))
    first, last = axes[0], axes[-1]
    shape = x.shape
    flat = places[0]
    for place, axis in zip(places[1:], axes[1:]):
        flat = op.add(op.multiply(flat, ctx.tensor(shape[axis], "int64")), place)
    joined = op.reshape(
        x, (*shape[:first], element_count(shape[first : last + 1]), *shape[last + 1 :])
    )
    return op.take(joined, flat, first)


@converts("aten.gather.default")
def _gather(
    ctx: Context, x: RelaxExpr, dim: int, index: RelaxExpr, sparse_grad: bool = False
) -> RelaxExpr:
    return op.gather_elements(x, index, ctx.axis(dim, x.ndim))


# ---- padding ----------------------------------------------------------------------------------


@converts("aten.constant_pad_nd.default")
def _pad(ctx: Context, x: RelaxExpr, pad: Sequence[Size], value: float = 0) -> RelaxExpr:
    amounts = ctx.ints(pad, "padding")
    pairs = [(0, 0)] * (x.ndim - len(amounts) // 2)
    pairs += list(zip(amounts[0::2], amounts[1::2]))[::-1]
    for axis, (before, after) in enumerate(pairs):
        if before < 0 or after < 0:
            x = _cut(ctx, x, axis, max(0, -before), after if after < 0 else 2**63 - 1)
    width = [max(0, amount) for pair in pairs for amount in pair]
    return op.nn.pad(x, tuple(width), float(value)) if any(width) else x
