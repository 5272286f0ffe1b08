"""Pooling over windows of channel-first tensors, over any number of spatial axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.ir import Expr, and_, as_int, const, maximum, minimum
from tilewright.ir import cast as cast_expr
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor
from tilewright.topi.elementwise import fast_dtype
from tilewright.topi.layout import image_layout
from tilewright.topi.nn.pad import pad
from tilewright.topi.nn.spatial import axis_names, compute_image
from tilewright.topi.reduction import mean
from tilewright.topi.utils import padding_of, pair, require_ndim


@dataclass(frozen=True)
class _Windows:
    """Windows that slide over an image; ``after`` includes what ``ceil_mode`` adds."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    out: tuple[Expr, ...]

    @property
    def padded(self) -> bool:
        return any(self.before) or any(self.after)

    def steps(self) -> list[Any]:
        """Reduction axes over a window."""
        names = axis_names(len(self.kernel))
        return [te.reduce_axis((0, size), f"r{name}") for size, name in zip(self.kernel, names)]

    def at(self, place: Sequence[Expr], steps: Sequence[Any]) -> list[Expr]:
        """The element that a step of a window reads."""
        return [
            p * stride + step.var * dilation
            for p, step, stride, dilation in zip(place, steps, self.stride, self.dilation)
        ]


def _windows(
    what: str,
    x: Tensor,
    spatial: int,
    pool_size: int | Sequence[int],
    strides: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
    ceil_mode: bool,
) -> _Windows:
    kernel, stride = pair(pool_size, spatial), pair(strides, spatial)
    dilate = pair(dilation, spatial)
    before, after_given = padding_of(padding, spatial)
    after = list(after_given)
    out = []
    for a in range(spatial):
        span = x.shape[2 + a] + before[a] + after[a] - (kernel[a] - 1) * dilate[a] - 1
        count = span // stride[a] + 1
        if ceil_mode:
            size = as_int(x.shape[2 + a])
            if size is None:
                raise VerifyError(f"{what}: ceil_mode needs constant extents")
            number = -(-int(as_int(span) or 0) // stride[a]) + 1
            # The last window must start inside the input or its leading padding.
            number = min(number, (size + before[a] - 1) // stride[a] + 1)
            after[a] += max(0, (number - 1) * stride[a] - int(as_int(span) or 0))
            count = const(number)
        out.append(count)
    return _Windows(kernel, stride, dilate, before, tuple(after), tuple(out))


def _is_blocked(what: str, x: Tensor, spatial: int, layout: str) -> bool:
    """Whether the channels of an image are in blocks; refuses other layouts than supported."""
    axes = "NC" + "".join(axis_names(spatial)).upper()
    made = image_layout(what, layout or axes, axes)
    require_ndim(what, x, made.ndim)
    made.extents(x.shape)  # refuses another size of blocks
    return made.ndim > spatial + 2


def _surrounded(x: Tensor, w: _Windows, value: float) -> Tensor:
    """Pad an image for windows."""
    if not w.padded:
        return x
    lanes = (0,) * (x.ndim - 2 - len(w.kernel))
    return pad(x, (0, 0, *w.before, *lanes), (0, 0, *w.after, *lanes), value)


def _lowest(dtype: str) -> float:
    if dtype.startswith(("float", "bfloat")):
        return -math.inf
    return te.min_value(dtype).value  # type: ignore[attr-defined, no-any-return]


def _max_pool(
    x: Tensor,
    pool_size: int | Sequence[int],
    strides: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
    ceil_mode: bool,
    spatial: int,
    layout: str = "",
) -> Tensor:
    name = f"max_pool{spatial}d"
    blocked = _is_blocked(name, x, spatial, layout)
    w = _windows(name, x, spatial, pool_size, strides, padding, dilation, ceil_mode)
    source = _surrounded(x, w, _lowest(x.dtype))
    steps = w.steps()

    def formula(n: Expr, c: Expr, *place: Expr) -> Expr:
        at = w.at(place[:spatial], steps)
        result: Expr = te.max(source(n, c, *at, *place[spatial:]), axis=steps)
        return result

    shape = *x.shape[:2], *w.out, *x.shape[2 + spatial :]
    return compute_image(shape, "c", formula, name, "pool_max", blocked)


def max_pool1d(
    x: Tensor,
    pool_size: int | Sequence[int],
    strides: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """Return the maximum over windows of ``x [N, C, W]``; padding never wins."""
    return _max_pool(x, pool_size, strides, padding, dilation, ceil_mode, 1)


def max_pool2d(
    x: Tensor,
    pool_size: int | Sequence[int],
    strides: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    layout: str = "NCHW",
) -> Tensor:
    """Return the maximum over windows of ``x [N, C, H, W]``; padding never wins.

    ``layout`` may have channels in blocks (``NCHW16c``).
    """
    return _max_pool(x, pool_size, strides, padding, dilation, ceil_mode, 2, layout)


def max_pool3d(
    x: Tensor,
    pool_size: int | Sequence[int],
    strides: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """Return the maximum over windows of ``x [N, C, D, H, W]``; padding never wins."""
    return _max_pool(x, pool_size, strides, padding, dilation, ceil_mode, 3)


def _avg_pool(
    x: Tensor,
    pool_size: int | Sequence[int],
    strides: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    spatial: int,
    layout: str = "",
) -> Tensor:
    name = f"avg_pool{spatial}d"
    blocked = _is_blocked(name, x, spatial, layout)
    w = _windows(name, x, spatial, pool_size, strides, padding, dilation, ceil_mode)
    if w.padded and any(step != 1 for step in w.dilation):
        raise VerifyError(f"{name}: dilation with padding is not supported")
    source = _surrounded(x, w, 0.0)
    wide = fast_dtype(x.dtype)
    steps = w.steps()

    def summed(n: Expr, c: Expr, *place: Expr) -> Expr:
        at = w.at(place[:spatial], steps)
        value = cast_expr(source(n, c, *at, *place[spatial:]), wide)
        result: Expr = te.sum(value, axis=steps)
        return result

    shape = *x.shape[:2], *w.out, *x.shape[2 + spatial :]
    total = compute_image(shape, "c", summed, "pool_sum", "pool_sum", blocked)
    _, limit_after = padding_of(padding, spatial)

    def count(place: Expr, a: int) -> Expr:
        """Elements of a window along one axis; what ``ceil_mode`` adds is none."""
        if w.before[a] == w.after[a] == 0:
            return const(w.kernel[a])
        start = place * w.stride[a]
        low = const(0) if count_include_pad else const(w.before[a])
        high = x.shape[2 + a] + w.before[a] + (limit_after[a] if count_include_pad else 0)
        return minimum(start + w.kernel[a], high) - maximum(start, low)

    # Where all windows are whole, none is counted.
    whole = count_include_pad and tuple(limit_after) == w.after

    def formula(n: Expr, c: Expr, *place: Expr) -> Expr:
        divisor: Expr = const(math.prod(w.kernel), wide)
        if w.padded and not whole:
            numbers: Expr = const(1)
            for a, p in enumerate(place[:spatial]):
                numbers = numbers * count(p, a)
            divisor = cast_expr(numbers, wide)
        return cast_expr(total(n, c, *place) / divisor, x.dtype)

    return compute_image(total.shape, "c", formula, name, "elemwise", blocked)


def avg_pool1d(
    x: Tensor,
    pool_size: int | Sequence[int],
    strides: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Tensor:
    """Return the mean over windows of ``x [N, C, W]``; options as of :func:`avg_pool2d`."""
    return _avg_pool(x, pool_size, strides, padding, dilation, ceil_mode, count_include_pad, 1)


def avg_pool2d(
    x: Tensor,
    pool_size: int | Sequence[int],
    strides: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    layout: str = "NCHW",
) -> Tensor:
    """Return the mean over windows of ``x [N, C, H, W]``.

    ``count_include_pad`` says whether padding counts as elements; what ``ceil_mode`` adds never
    does. ``layout`` may have channels in blocks (``NCHW16c``).
    """
    return _avg_pool(
        x, pool_size, strides, padding, dilation, ceil_mode, count_include_pad, 2, layout
    )


def avg_pool3d(
    x: Tensor,
    pool_size: int | Sequence[int],
    strides: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Tensor:
    """Return the mean over windows of ``x [N, C, D, H, W]``; options as of :func:`avg_pool2d`."""
    return _avg_pool(x, pool_size, strides, padding, dilation, ceil_mode, count_include_pad, 3)


def global_avg_pool2d(x: Tensor) -> Tensor:
    """Return the mean over H and W: ``[N, C, H, W] -> [N, C, 1, 1]``."""
    require_ndim("global_avg_pool2d", x, 4)
    return mean(x, axis=(2, 3), keepdims=True)


def adaptive_windows(extent: int, size: int) -> list[tuple[int, int]]:
    """Return begin and end of the ``size`` windows that an axis is divided into.

    They overlap by one element where ``size`` doesn't divide the extent.
    """
    return [(i * extent // size, -(-(i + 1) * extent // size)) for i in range(size)]


def _adaptive_pool(
    x: Tensor, output_size: Any, spatial: int, largest: bool, layout: str = ""
) -> Tensor:
    what = f"adaptive_{'max' if largest else 'avg'}_pool{spatial}d"
    blocked = _is_blocked(what, x, spatial, layout)
    size = pair(output_size, spatial, "output_size")
    if set(size) == {1} and not largest:
        return mean(x, axis=tuple(range(2, spatial + 2)), keepdims=True)
    extents = [as_int(extent) for extent in x.shape[2 : 2 + spatial]]
    if any(extent is None for extent in extents):
        raise VerifyError(f"{what}: extents must be constant, got {list(x.shape[2:])}")
    known = [int(extent or 0) for extent in extents]
    if all(extent % s == 0 for extent, s in zip(known, size)):
        kernel = [extent // s for extent, s in zip(known, size)]
        if largest:
            return _max_pool(x, kernel, kernel, 0, 1, False, spatial, layout)
        return _avg_pool(x, kernel, kernel, 0, 1, False, False, spatial, layout)
    names = axis_names(spatial)
    steps = [
        te.reduce_axis((0, max(end - begin for begin, end in adaptive_windows(extent, s))), f"r{n}")
        for extent, s, n in zip(known, size, names)
    ]
    wide = x.dtype if largest else fast_dtype(x.dtype)

    def bounds(place: Expr, a: int) -> tuple[Expr, Expr]:
        return place * known[a] // size[a], (place * known[a] + known[a] + size[a] - 1) // size[a]

    def reduced(n: Expr, c: Expr, *place: Expr) -> Expr:
        begins, ends = zip(*(bounds(p, a) for a, p in enumerate(place[:spatial])))
        at = [begin + step.var for begin, step in zip(begins, steps)]
        inside = and_(*(index < end for index, end in zip(at, ends)))
        reducer = te.max if largest else te.sum
        result: Expr = reducer(
            cast_expr(x(n, c, *at, *place[spatial:]), wide), axis=steps, where=inside
        )
        return result

    name = "adaptive_max" if largest else "pool_sum"
    shape = *x.shape[:2], *size, *x.shape[2 + spatial :]
    total = compute_image(shape, "c", reduced, name, name, blocked)
    if largest:
        return total

    def formula(n: Expr, c: Expr, *place: Expr) -> Expr:
        count: Expr = const(1)
        for a, p in enumerate(place[:spatial]):
            begin, end = bounds(p, a)
            count = count * (end - begin)
        return cast_expr(total(n, c, *place) / cast_expr(count, wide), x.dtype)

    return compute_image(total.shape, "c", formula, what, "elemwise", blocked)


def adaptive_avg_pool1d(x: Tensor, output_size: Any) -> Tensor:
    """Return means over windows of ``x [N, C, W]`` chosen so that the output has that size."""
    return _adaptive_pool(x, output_size, 1, False)


def adaptive_avg_pool2d(x: Tensor, output_size: Any, layout: str = "NCHW") -> Tensor:
    """Return means over windows of ``x [N, C, H, W]`` chosen so that the output has that size.

    ``layout`` may have channels in blocks (``NCHW16c``).
    """
    return _adaptive_pool(x, output_size, 2, False, layout)


def adaptive_avg_pool3d(x: Tensor, output_size: Any) -> Tensor:
    """Return means over windows of ``x [N, C, D, H, W]``, as many as ``output_size`` says."""
    return _adaptive_pool(x, output_size, 3, False)


def adaptive_max_pool2d(x: Tensor, output_size: Any, layout: str = "NCHW") -> Tensor:
    """Return maxima over windows of ``x [N, C, H, W]`` chosen so that the output has that size.

    ``layout`` may have channels in blocks (``NCHW16c``).
    """
    return _adaptive_pool(x, output_size, 2, True, layout)
