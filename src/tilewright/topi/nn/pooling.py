"""Pooling over windows of channel-first tensors, over any number of spatial axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.arith import simplify
from tilewright.ir import (
    EQ,
    INDEX,
    NE,
    Expr,
    ExprLike,
    and_,
    as_expr,
    as_int,
    ceildiv,
    compare,
    const,
    if_then_else,
    max_value,
    maximum,
    minimum,
    or_,
    select,
)
from tilewright.ir import cast as cast_expr
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor
from tilewright.tir.steps import Steps
from tilewright.topi.broadcast import divide
from tilewright.topi.elementwise import fast_dtype
from tilewright.topi.layout import image_layout
from tilewright.topi.nn.pad import pad
from tilewright.topi.nn.spatial import axis_names, compute_image
from tilewright.topi.reduction import mean
from tilewright.topi.utils import padding_of, pair, require_ndim


@dataclass(frozen=True)
class _Image:
    """The image that windows slide over, and the operator's name in error messages."""

    what: str
    x: Tensor
    spatial: int
    is_blocked: bool

    @classmethod
    def of(cls, kind: str, x: Tensor, spatial: int, layout: str = "") -> _Image:
        """Parse the layout (the one without blocks if empty); refuse unsupported ones."""
        what = f"{kind}_pool{spatial}d"
        axes = "NC" + "".join(axis_names(spatial)).upper()
        made = image_layout(what, layout or axes, axes)
        require_ndim(what, x, made.ndim)
        made.extents(x.shape)  # refuses another size of blocks
        return cls(what, x, spatial, made.ndim > spatial + 2)

    @property
    def extents(self) -> tuple[Expr, ...]:
        """Extents of the spatial axes."""
        return tuple(self.x.shape[2 : 2 + self.spatial])

    def shape(self, extents: Sequence[object]) -> tuple[Any, ...]:
        """The shape with other extents of the spatial axes."""
        return *self.x.shape[:2], *extents, *self.x.shape[2 + self.spatial :]


@dataclass(frozen=True)
class _Windows:
    """Windows that slide over an image; ``after`` includes what ``ceil_mode`` adds."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    given_after: tuple[int, ...]
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
    image: _Image,
    pool_size: int | Sequence[int],
    strides: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
    ceil_mode: bool,
) -> _Windows:
    spatial = image.spatial
    kernel, stride = pair(pool_size, spatial), pair(strides, spatial)
    dilate = pair(dilation, spatial)
    before, given_after = padding_of(padding, spatial)
    after = list(given_after)
    out = []
    for a in range(spatial):
        span = image.extents[a] + before[a] + after[a] - (kernel[a] - 1) * dilate[a] - 1
        count = span // stride[a] + 1
        if ceil_mode:
            # The last window must start inside the input or its leading padding.
            last = simplify(minimum(span + stride[a] - 1, image.extents[a] + before[a] - 1))
            count = simplify(last // stride[a] + 1)
            # Where sizes come with the call, padding is added for all that may be missing.
            beyond = as_int(simplify((count - 1) * stride[a] - span))
            after[a] += stride[a] - 1 if beyond is None else max(0, beyond)
        out.append(count)
    return _Windows(kernel, stride, dilate, before, given_after, tuple(after), tuple(out))


def _surrounded(x: Tensor, w: _Windows, value: float) -> Tensor:
    """Pad an image for windows."""
    if not w.padded:
        return x
    lanes = (0,) * (x.ndim - 2 - len(w.kernel))
    return pad(x, (0, 0, *w.before, *lanes), (0, 0, *w.after, *lanes), value, "pad_temp")


def _lowest(dtype: str) -> float:
    if dtype.startswith(("float", "bfloat")):
        return -math.inf
    return te.min_value(dtype).value  # type: ignore[attr-defined, no-any-return]


def _max_pool(image: _Image, w: _Windows) -> Tensor:
    x, spatial, name = image.x, image.spatial, image.what
    source = _surrounded(x, w, _lowest(x.dtype))
    steps = w.steps()

    def formula(n: Expr, c: Expr, *place: Expr) -> Expr:
        at = w.at(place[:spatial], steps)
        result: Expr = te.max(source(n, c, *at, *place[spatial:]), axis=steps)
        return result

    return compute_image(image.shape(w.out), "c", formula, name, "pool_max", image.is_blocked)


def max_pool1d(
    x: Tensor,
    pool_size: int | Sequence[int],
    strides: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """Return the maximum over windows of ``x [N, C, W]``; padding never wins."""
    image = _Image.of("max", x, 1)
    return _max_pool(image, _windows(image, pool_size, strides, padding, dilation, ceil_mode))


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
    image = _Image.of("max", x, 2, layout)
    return _max_pool(image, _windows(image, pool_size, strides, padding, dilation, ceil_mode))


def max_pool3d(
    x: Tensor,
    pool_size: int | Sequence[int],
    strides: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """Return the maximum over windows of ``x [N, C, D, H, W]``; padding never wins."""
    image = _Image.of("max", x, 3)
    return _max_pool(image, _windows(image, pool_size, strides, padding, dilation, ceil_mode))


def _avg_pool(image: _Image, w: _Windows, count_include_pad: bool) -> Tensor:
    x, spatial, name = image.x, image.spatial, image.what
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

    total = compute_image(image.shape(w.out), "c", summed, "pool_sum", "pool_sum", image.is_blocked)

    def count(place: Expr, a: int) -> Expr:
        """Elements of a window along one axis; what ``ceil_mode`` adds is none."""
        if w.before[a] == w.after[a] == 0:
            return const(w.kernel[a])
        start = place * w.stride[a]
        low = const(0) if count_include_pad else const(w.before[a])
        high = x.shape[2 + a] + w.before[a] + (w.given_after[a] if count_include_pad else 0)
        return minimum(start + w.kernel[a], high) - maximum(start, low)

    # Where all windows are whole, none is counted.
    whole = count_include_pad and w.given_after == w.after

    def formula(n: Expr, c: Expr, *place: Expr) -> Expr:
        divisor: Expr = const(math.prod(w.kernel), wide)
        if w.padded and not whole:
            numbers: Expr = const(1)
            for a, p in enumerate(place[:spatial]):
                numbers = numbers * count(p, a)
            divisor = cast_expr(numbers, wide)
        return cast_expr(divide(total(n, c, *place), divisor), x.dtype)

    return compute_image(total.shape, "c", formula, name, "elemwise", image.is_blocked)


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
    image = _Image.of("avg", x, 1)
    windows = _windows(image, pool_size, strides, padding, dilation, ceil_mode)
    return _avg_pool(image, windows, count_include_pad)


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
    image = _Image.of("avg", x, 2, layout)
    windows = _windows(image, pool_size, strides, padding, dilation, ceil_mode)
    return _avg_pool(image, windows, count_include_pad)


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
    image = _Image.of("avg", x, 3)
    windows = _windows(image, pool_size, strides, padding, dilation, ceil_mode)
    return _avg_pool(image, windows, count_include_pad)


def global_avg_pool2d(x: Tensor) -> Tensor:
    """Return the mean over H and W: ``[N, C, H, W] -> [N, C, 1, 1]``."""
    require_ndim("global_avg_pool2d", x, 4)
    return mean(x, axis=(2, 3), keepdims=True)


def adaptive_windows(extent: int, size: int) -> list[tuple[int, int]]:
    """Return begin and end of the ``size`` windows that an axis is divided into.

    They overlap by one element where ``size`` doesn't divide the extent.
    """
    return [(i * extent // size, -(-(i + 1) * extent // size)) for i in range(size)]


def _longest_window(extent: Expr, size: int | Expr) -> Expr | int:
    """The most elements of a window, or a bound of it where sizes come with the call."""
    number = as_int(extent)
    if isinstance(size, Expr):
        return simplify(ceildiv(extent, maximum(size, 1)) + 1)
    if number is None:
        return simplify((extent + size - 1) // size + (1 if size > 1 else 0))
    return max(end - begin for begin, end in adaptive_windows(number, size))


def _numbers_of_windows(output_size: Any, spatial: int) -> list[int | Expr]:
    """How many windows there are along each axis."""
    if isinstance(output_size, Expr):
        output_size = [output_size]
    if isinstance(output_size, int) or all(isinstance(n, int) for n in output_size):
        return list(pair(output_size, spatial, "output_size"))
    given = [as_expr(n, INDEX) for n in output_size]
    if len(given) not in (1, spatial):
        raise VerifyError(f"output_size takes 1 or {spatial} numbers, got {given}")
    known = [(as_int(n), n) for n in given]
    return [n if number is None else number for number, n in known] * (spatial // len(given))


def _adaptive_pool(
    x: Tensor, output_size: object, spatial: int, largest: bool, layout: str = ""
) -> Tensor:
    kind = "max" if largest else "avg"
    adaptive = _Image.of(f"adaptive_{kind}", x, spatial, layout)
    what, blocked = adaptive.what, adaptive.is_blocked
    size = _numbers_of_windows(output_size, spatial)
    if all(as_int(s) == 1 for s in size) and not largest:
        return mean(x, axis=tuple(range(2, spatial + 2)), keepdims=True)
    extents = adaptive.extents
    known = [number for number in map(as_int, extents) if number is not None]
    counts = [s for s in size if isinstance(s, int)]
    if len(known) == len(counts) == spatial and all(n % s == 0 for n, s in zip(known, counts)):
        kernel = [number // s for number, s in zip(known, counts)]
        image = _Image.of(kind, x, spatial, layout)
        windows = _windows(image, kernel, kernel, 0, 1, False)
        return _max_pool(image, windows) if largest else _avg_pool(image, windows, False)
    names = axis_names(spatial)
    steps = [
        te.reduce_axis((0, _longest_window(extent, s)), f"r{n}")
        for extent, s, n in zip(extents, size, names)
    ]
    wide = x.dtype if largest else fast_dtype(x.dtype)

    def bounds(place: Expr, a: int) -> tuple[Expr, Expr]:
        end = place * extents[a] + extents[a] + size[a] - 1
        return place * extents[a] // size[a], end // size[a]

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
    total = compute_image(adaptive.shape(size), "c", reduced, name, name, blocked)
    if largest:
        return total

    def formula(n: Expr, c: Expr, *place: Expr) -> Expr:
        count: Expr = const(1)
        for a, p in enumerate(place[:spatial]):
            begin, end = bounds(p, a)
            count = count * (end - begin)
        return cast_expr(divide(total(n, c, *place), cast_expr(count, wide)), x.dtype)

    return compute_image(total.shape, "c", formula, what, "elemwise", blocked)


@dataclass(frozen=True)
class _Along:
    """Windows along an axis: where each begins and ends, and the elements of the largest."""

    begin: Callable[[Expr], Expr]
    size: int
    dilation: int = 1
    end: Callable[[Expr], Expr] | None = None


# Windows of so many elements are compared in one formula.
_FEW_STEPS = 16


def _places_in_steps(
    x: Tensor, windows: Sequence[_Along], out: Sequence[Expr], name: str
) -> Tensor:
    """What ``_places`` gives, element by element of a window, all windows side by side."""
    extents = x.shape[2:]
    small = all((as_int(extent) or 1 << 15) < 1 << 15 for extent in extents)
    kind = "int32" if small and len(extents) < 3 else INDEX
    none = const(-1, kind)

    def formula(*i: Expr) -> Expr:
        n, c, *place = i
        steps = Steps()
        best: Expr = const(_lowest(x.dtype), x.dtype)
        found: Expr = none
        begins = [w.begin(p) for w, p in zip(windows, place)]
        for taps in itertools.product(*(range(w.size) for w in windows)):
            at = [b + tap * w.dilation for w, b, tap in zip(windows, begins, taps)]
            inside = [and_(a >= 0, a < extent) for a, extent in zip(at, extents)]
            inside += [a < w.end(p) for w, p, a in zip(windows, place, at) if w.end is not None]
            here = and_(*inside)
            value = steps(if_then_else(here, x(n, c, *at), const(_lowest(x.dtype), x.dtype)))
            flat: Expr = const(0)
            for a, extent in zip(at, extents):
                flat = flat * extent + a
            is_nan, was_none = compare(NE, value, value), compare(EQ, found, none)
            better = or_(value > best, and_(is_nan, compare(EQ, best, best)), was_none)
            better = steps(and_(here, better))
            best, found = (
                steps(select(better, value, best)),
                steps(select(better, cast_expr(flat, kind), found)),
            )
        return steps.result(cast_expr(found, INDEX))

    made: Tensor = te.compute((*x.shape[:2], *out), formula, name=name)
    return made


def _places(x: Tensor, windows: Sequence[_Along], out: Sequence[Expr], name: str) -> Tensor:
    """For each window the place of its first greatest element in the image, counted flat.

    NaN is greater than anything.
    """
    if math.prod(w.size for w in windows) <= _FEW_STEPS:
        return _places_in_steps(x, windows, out, name)
    first, second = (
        [te.reduce_axis((0, w.size), f"{letter}{axis}") for axis, w in enumerate(windows)]
        for letter in "rs"
    )
    shape = (*x.shape[:2], *out)

    def read(
        i: Sequence[Expr], steps: Sequence[Any], otherwise: Expr,
        use: Callable[[Expr, Sequence[Expr]], Expr],
    ) -> Expr:  # fmt: skip
        n, c, *place = i
        at = [w.begin(p) + r.var * w.dilation for w, p, r in zip(windows, place, steps)]
        inside = [and_(a >= 0, a < extent) for a, extent in zip(at, x.shape[2:])]
        inside += [a < w.end(p) for w, p, a in zip(windows, place, at) if w.end is not None]
        made: Expr = if_then_else(and_(*inside), use(x(n, c, *at), at), otherwise)
        return made

    def greatest(*i: Expr) -> Expr:
        lowest = const(_lowest(x.dtype), x.dtype)
        made: Expr = te.max(read(i, first, lowest, lambda value, at: value), axis=first)
        return made

    best = te.compute(shape, greatest, name="greatest")

    def first_of(*i: Expr) -> Expr:
        def place(value: Expr, at: Sequence[Expr]) -> Expr:
            flat: Expr = const(0)
            for a, extent in zip(at, x.shape[2:]):
                flat = flat * extent + a
            found = compare(EQ, value, best(*i))
            return select(or_(found, compare(NE, value, value)), flat, max_value(INDEX))

        made: Expr = te.min(read(i, second, max_value(INDEX), place), axis=second)
        return made

    made: Tensor = te.compute(shape, first_of, name=name)
    return made


def max_pool_places(
    x: Tensor,
    pool_size: int | Sequence[int],
    strides: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """Return where in its image ``[...]`` of ``x [N, C, ...]``, counted flat, each maximum is.

    Options are as of :func:`max_pool2d`; the result is int64. Of equal elements it is the first.
    """
    image = _Image.of("max", x, x.ndim - 2)
    w = _windows(image, pool_size, strides, padding, dilation, ceil_mode)
    along = [
        _Along(lambda p, s=step, b=before: p * s - b, size, reach)  # type: ignore[misc]
        for step, before, size, reach in zip(w.stride, w.before, w.kernel, w.dilation)
    ]
    return _places(x, along, w.out, "max_pool_places")


def adaptive_max_pool_places(x: Tensor, output_size: int | Sequence[int]) -> Tensor:
    """Return where in its image the maximum of each window of an adaptive pool is; int64."""
    spatial = x.ndim - 2
    size = pair(output_size, spatial, "output_size")
    extents = [as_int(extent) for extent in x.shape[2:]]
    if any(extent is None for extent in extents):
        raise VerifyError(f"adaptive_max_pool: extents must be constant, got {list(x.shape[2:])}")
    along = []
    for extent, count in zip(extents, size):
        n = int(extent or 0)
        longest = max(end - begin for begin, end in adaptive_windows(n, count))
        along.append(
            _Along(
                lambda p, n=n, c=count: p * n // c,  # type: ignore[misc]
                longest,
                end=lambda p, n=n, c=count: (p * n + n + c - 1) // c,  # type: ignore[misc]
            )
        )
    return _places(x, along, [const(count) for count in size], "adaptive_max_pool_places")


def adaptive_avg_pool1d(x: Tensor, output_size: ExprLike | Sequence[ExprLike]) -> Tensor:
    """Return means over windows of ``x [N, C, W]`` chosen so that the output has that size."""
    return _adaptive_pool(x, output_size, 1, False)


def adaptive_avg_pool2d(
    x: Tensor, output_size: ExprLike | Sequence[ExprLike], layout: str = "NCHW"
) -> Tensor:
    """Return means over windows of ``x [N, C, H, W]`` chosen so that the output has that size.

    ``layout`` may have channels in blocks (``NCHW16c``).
    """
    return _adaptive_pool(x, output_size, 2, False, layout)


def adaptive_avg_pool3d(x: Tensor, output_size: ExprLike | Sequence[ExprLike]) -> Tensor:
    """Return means over windows of ``x [N, C, D, H, W]`` chosen to give that output size."""
    return _adaptive_pool(x, output_size, 3, False)


def adaptive_max_pool1d(x: Tensor, output_size: ExprLike | Sequence[ExprLike]) -> Tensor:
    """Return maxima over windows of ``x [N, C, W]`` chosen so that the output has that size."""
    return _adaptive_pool(x, output_size, 1, True)


def adaptive_max_pool2d(
    x: Tensor, output_size: ExprLike | Sequence[ExprLike], layout: str = "NCHW"
) -> Tensor:
    """Return maxima over windows of ``x [N, C, H, W]`` chosen so that the output has that size.

    ``layout`` may have channels in blocks (``NCHW16c``).
    """
    return _adaptive_pool(x, output_size, 2, True, layout)


def adaptive_max_pool3d(x: Tensor, output_size: ExprLike | Sequence[ExprLike]) -> Tensor:
    """Return maxima over windows of ``x [N, C, D, H, W]`` chosen to give that output size."""
    return _adaptive_pool(x, output_size, 3, True)
