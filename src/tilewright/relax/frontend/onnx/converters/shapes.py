"""Operators that move elements or give tensors another shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.arith import simplify
from tilewright.ir import Expr, as_expr, as_int
from tilewright.relax import ops as op
from tilewright.relax.frontend.onnx.converters.base import (
    Context,
    Shape,
    Tensor,
    Value,
    converts,
)
from tilewright.relax.struct_info import prove_equal
from tilewright.topi.slices import NO_END, slice_bounds

MOST_PARTS = 10_000
"""Each part of what is split is a value of its own."""


def cut(x: Tensor, axis: int, begin: Expr | int, end: Expr | int, step: int = 1) -> Tensor:
    """Take ``begin:end:step`` of an axis; bounds may be formulas of extents."""
    extent = x.shape[axis]
    low, high = as_int(as_expr(begin)), as_int(as_expr(end))
    if high is None and step > 0:
        # So far before the end: a slice says that by a negative number.
        before = as_int(simplify(as_expr(end) - extent))
        high = None if before is None or before > 0 else before or NO_END
    if low is not None and high is not None:
        return op.strided_slice(x, [axis], [low], [high], [step])
    first, last = slice_bounds(begin, end, extent, step)
    return op.take(x, op.arange(first, last, step), axis)


@converts("Reshape")
def _reshape(ctx: Context, data: Tensor, shape: Shape, *, allowzero: int = 0) -> Tensor:
    extents: list[Any] = list(shape)
    for axis, extent in enumerate(extents):
        if not allowzero and as_int_or_none(extent) == 0:
            ctx.require(axis < data.ndim, f"there is no axis {axis} whose extent 0 stands for")
            extents[axis] = data.shape[axis]
    return op.reshape(data, extents)


def as_int_or_none(extent: Expr | int) -> int | None:
    """The number that an extent is, if it is one."""
    return extent if isinstance(extent, int) else as_int(extent)


@converts("Flatten")
def _flatten(ctx: Context, x: Tensor, *, axis: int = 1) -> Tensor:
    at = axis if axis == x.ndim else ctx.axis(axis, x.ndim)
    return op.reshape(x, (_count(x.shape[:at]), _count(x.shape[at:])))


def _count(extents: Sequence[Expr]) -> Expr:
    made = as_expr(1)
    for extent in extents:
        made = simplify(extent * made)
    return made


@converts("Transpose")
def _transpose(ctx: Context, x: Tensor, *, perm: tuple[int, ...] | None = None) -> Tensor:
    return op.permute_dims(x, perm) if x.ndim else x


def _axes(
    ctx: Context, given: Shape | None, attribute: tuple[int, ...] | None, ndim: int
) -> tuple[int, ...] | None:
    if given is not None:
        return ctx.axes(ctx.ints(given, "axes"), ndim)
    return None if attribute is None else ctx.axes(attribute, ndim)


@converts("Squeeze")
def _squeeze(
    ctx: Context, x: Tensor, axes: Shape | None = None, *, axes_: tuple[int, ...] | None = None
) -> Tensor:
    return op.squeeze(x, _axes(ctx, axes, axes_, x.ndim))


@converts("Unsqueeze")
def _unsqueeze(
    ctx: Context, x: Tensor, axes: Shape | None = None, *, axes_: tuple[int, ...] | None = None
) -> Tensor:
    count = len(axes if axes is not None else axes_ or ())
    found = _axes(ctx, axes, axes_, x.ndim + count)
    ctx.require(found is not None, "axes are missing")
    return op.expand_dims(x, found) if found else x


@converts("Concat")
def _concat(ctx: Context, *tensors: Tensor, axis: int) -> Tensor:
    ctx.require(tensors, "there is nothing to join")
    return op.concat(list(tensors), ctx.axis(axis, tensors[0].ndim))


@converts("Split")
def _split(
    ctx: Context, x: Tensor, split: Shape | None = None,
    *, axis: int = 0, num_outputs: int | None = None, split_: tuple[int, ...] | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    at = ctx.axis(axis, x.ndim)
    sizes = split if split is not None else split_
    if sizes is None:
        return tuple(equal_parts(ctx, x, at, num_outputs or len(ctx.node.output)))
    return tuple(parts_of(ctx, x, at, sizes))


def parts_of(ctx: Context, x: Tensor, axis: int, sizes: Sequence[Expr | int]) -> list[Tensor]:
    """Parts of the given sizes, which must add up to the extent."""
    ctx.require(
        prove_equal(x.shape[axis], _total(sizes)),
        f"the sizes {list(sizes)} of parts don't add up to {x.shape[axis]}",
    )
    return _cut(x, axis, sizes)


def _total(sizes: Sequence[Expr | int]) -> Expr:
    made = as_expr(0)
    for size in sizes:
        made = made + size
    return simplify(made)


def equal_parts(ctx: Context, x: Tensor, axis: int, count: int) -> list[Tensor]:
    """Equal parts, of which the last may be smaller."""
    ctx.require(0 < count <= MOST_PARTS, f"there may be 1 to {MOST_PARTS} parts, not {count}")
    if count == 1:
        return [x]
    extent = as_int(x.shape[axis])
    if extent is None or extent % count == 0:
        return list(ctx.emit(op.split(x, count, axis)))
    size = -(-extent // count)
    sizes = [size] * (count - 1)
    ctx.require(extent >= sum(sizes), f"{extent} elements don't divide into {count} parts")
    return _cut(x, axis, [*sizes, extent - sum(sizes)])


def _cut(x: Tensor, axis: int, sizes: Sequence[Expr | int]) -> list[Tensor]:
    made: list[Tensor] = []
    start: Expr | int = 0
    for size in sizes:
        made.append(cut(x, axis, start, start + size))
        start = start + size
    return made


@dataclass(frozen=True, kw_only=True)
class _SliceAttributes:
    """What are inputs since version 10."""

    starts: tuple[int, ...] | None = None
    ends: tuple[int, ...] | None = None
    axes: tuple[int, ...] | None = None


@converts("Slice")
def _slice(
    ctx: Context, x: Tensor, starts: Shape | None = None, ends: Shape | None = None,
    axes: Shape | None = None, steps: Shape | None = None, *, attrs: _SliceAttributes,
) -> Tensor:  # fmt: skip
    begin = attrs.starts if starts is None else starts
    end = attrs.ends if ends is None else ends
    if begin is None or end is None:
        raise ctx.error("starts or ends are missing")
    found = _axes(ctx, axes, attrs.axes, x.ndim)
    where = tuple(range(len(begin))) if found is None else found
    strides = ctx.ints(steps, "steps") if steps is not None else [1] * len(begin)
    if not where:
        return x
    for axis, first, last, step in zip(where, begin, end, strides):
        x = cut(x, axis, _bound(first), _bound(last), step)
    return x


def _bound(value: Expr | int) -> Expr | int:
    """The greatest and least numbers stand for the ends of an axis."""
    if isinstance(value, int):
        return max(min(value, 2**31 - 1), -(2**31) + 1)
    return value


@converts("Expand")
def _expand(ctx: Context, x: Tensor, shape: Shape) -> Tensor:
    extents: list[Any] = list(shape)
    own: list[Any] = list(x.shape)
    size = max(len(extents), len(own))
    extents = [1] * (size - len(extents)) + extents
    own = [1] * (size - len(own)) + own
    made = [have if as_int_or_none(want) == 1 else want for have, want in zip(own, extents)]
    return op.broadcast_to(x, made)


@converts("Tile")
def _tile(ctx: Context, x: Tensor, repeats: Shape) -> Tensor:
    return op.tile(x, ctx.ints(repeats, "repeats"))


def _check_blocks(ctx: Context, blocksize: int, mode: str) -> None:
    ctx.choice("mode", mode, ("DCR", "CRD"))
    ctx.require(blocksize > 0, f"blocksize must be positive, got {blocksize}")


@converts("DepthToSpace")
def _depth_to_space(ctx: Context, x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    _check_blocks(ctx, blocksize, mode)
    (n, c, h, w), b = x.shape, blocksize
    if mode == "DCR":
        made = op.reshape(x, (n, b, b, simplify(c // (b * b)), h, w))
        made = op.permute_dims(made, (0, 3, 4, 1, 5, 2))
    else:
        made = op.reshape(x, (n, simplify(c // (b * b)), b, b, h, w))
        made = op.permute_dims(made, (0, 1, 4, 2, 5, 3))
    return op.reshape(made, (n, simplify(c // (b * b)), h * b, w * b))


@converts("SpaceToDepth")
def _space_to_depth(ctx: Context, x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    _check_blocks(ctx, blocksize, mode)
    (n, c, h, w), b = x.shape, blocksize
    made = op.reshape(x, (n, c, simplify(h // b), b, simplify(w // b), b))
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    made = op.permute_dims(made, order)
    return op.reshape(made, (n, c * b * b, simplify(h // b), simplify(w // b)))


@converts("Shape")
def _shape(ctx: Context, x: Value, *, start: int = 0, end: int | None = None) -> Value:
    raise ctx.error("its input has no shape")


@converts("Size")
def _size(ctx: Context, x: Value) -> Value:
    raise ctx.error("its input has no shape")


@converts("ReverseSequence")
def _reverse_sequence(
    ctx: Context, x: Tensor, lengths: Tensor, *, batch_axis: int = 1, time_axis: int = 0
) -> Tensor:
    batch, time = ctx.axis(batch_axis, x.ndim), ctx.axis(time_axis, x.ndim)
    ctx.require(batch != time, "batch_axis and time_axis are the same")

    def view(extent: object, axis: int) -> list[Any]:
        return [extent if n == axis else 1 for n in range(x.ndim)]

    steps = op.reshape(op.arange(0, x.shape[time], 1, "int64"), view(x.shape[time], time))
    length = op.reshape(ctx.cast(lengths, "int64"), view(x.shape[batch], batch))
    back = op.subtract(op.subtract(length, ctx.scalar(1, "int64")), steps)
    place = op.where(op.less(steps, length), back, steps)
    return op.gather_elements(x, op.broadcast_to(place, x.shape), time)


@converts("Trilu")
def _trilu(ctx: Context, x: Tensor, k: Shape | None = None, *, upper: int = 1) -> Tensor:
    offset = 0 if k is None else ctx.ints(k, "k")[0]
    offset = max(min(offset, 1 << 40), -(1 << 40))
    function = op.triu if upper else op.tril
    if x.dtype == "bool":
        return ctx.cast(function(op.astype(x, "int8"), offset), "bool")
    return function(x, offset)


@converts("CenterCropPad")
def _center_crop_pad(
    ctx: Context, x: Tensor, shape: Shape, *, axes: tuple[int, ...] | None = None
) -> Tensor:
    where = ctx.axes(range(x.ndim) if axes is None else axes, x.ndim)
    wanted = ctx.ints(shape, "shape")
    have = ctx.ints([x.shape[axis] for axis in where], "the cropped extents")
    widths = [0] * (2 * x.ndim)
    for axis, size, extent in zip(where, wanted, have):
        if size < extent:
            start = (extent - size) // 2
            x = op.strided_slice(x, [axis], [start], [start + size])
        else:
            widths[2 * axis] = (size - extent) // 2
            widths[2 * axis + 1] = size - extent - widths[2 * axis]
    return op.nn.pad(x, widths) if any(widths) else x
