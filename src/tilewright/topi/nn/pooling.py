"""Pooling over windows of channel-first tensors, over any number of spatial axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.arith import simplify
from tilewright.ir import (
    INDEX,
    Expr,
    ExprLike,
    and_,
    as_expr,
    as_int,
    ceildiv,
    const,
    maximum,
    minimum,
)
from tilewright.ir import cast as cast_expr
from tilewright.support.errors import VerifyError
from tilewright.support.naming import named
from tilewright.te import Tensor
from tilewright.te.arithmetic import divide
from tilewright.tir.float_division import fast_dtype
from tilewright.topi.layout import Layout, image_layout, layout_of
from tilewright.topi.nn.pad import pad
from tilewright.topi.nn.spatial import (
    Padding,
    axis_names,
    compute_image,
    image_axes,
    padding_around,
)
from tilewright.topi.reduction import mean
from tilewright.topi.utils import pair, require_ndim


@dataclass(frozen=True)
class PooledImage:
    """The image that windows slide over, and the operator's name in error messages."""

    what: str
    x: Tensor
    spatial: int
    layout: Layout

    @classmethod
    def of(cls, kind: str, x: Tensor, spatial: int, layout: str = "") -> PooledImage:
        """Parse the layout (channels first if empty); refuse unsupported ones."""
        what = f"{kind}_pool{spatial}d"
        axes = image_axes(spatial)
        if sorted(layout) == sorted(axes):
            made = layout_of(layout)
        else:
            made = image_layout(what, layout or axes, axes)
        require_ndim(what, x, made.ndim)
        made.extents(x.shape)  # refuses another size of blocks
        return cls(what, x, spatial, made)

    @property
    def is_blocked(self) -> bool:
        """Whether channels are in blocks; these come last."""
        return self.layout.ndim > self.spatial + 2

    @property
    def dimensions(self) -> list[int]:
        """The dimensions of the spatial axes."""
        return [self.layout.dimension(axis.upper()) for axis in axis_names(self.spatial)]

    def channels_first(self) -> Tensor:
        """The image with its axes in the usual order."""
        if self.layout.name.startswith("NC"):
            return self.x
        shape = [self.x.shape[self.layout.dimension(axis)] for axis in "NC"]
        return compute_image(
            (*shape, *self.extents), "c",
            lambda n, c, *place: self.read(self.x, n, c, place, ()), "channels_first", "injective",
        )  # fmt: skip

    @property
    def extents(self) -> tuple[Expr, ...]:
        """Extents of the spatial axes."""
        return tuple(self.x.shape[dimension] for dimension in self.dimensions)

    def shape(self, extents: Sequence[object]) -> tuple[Any, ...]:
        """The shape with other extents of the spatial axes."""
        return tuple(self.filled(self.x.shape, extents))

    def filled(self, values: Sequence[Any], spatial: Sequence[Any]) -> list[Any]:
        """Values of the dimensions, with those of the spatial axes replaced."""
        made = list(values)
        for dimension, value in zip(self.dimensions, spatial):
            made[dimension] = value
        return made

    def read(self, x: Tensor, n: Expr, c: Expr, at: Sequence[Expr], lane: Sequence[Expr]) -> Expr:
        """Element of an image of this layout."""
        index = self.filled([None] * (self.layout.ndim - len(lane)), at)
        index[self.layout.dimension("N")], index[self.layout.dimension("C")] = n, c
        return x(*index, *lane)

    def compute(
        self, extents: Sequence[object], formula: Callable[..., Expr], name: str, tag: str
    ) -> Tensor:
        """Compute an image of this layout; the formula has channels first."""
        order = "" if self.is_blocked else self.layout.name
        return compute_image(
            self.shape(extents), "c", formula, name, tag, self.is_blocked, layout=order
        )


@dataclass(frozen=True)
class Windows:
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
        """Whether windows reach beyond the image."""
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


def windows_over(
    image: PooledImage,
    pool_size: int | Sequence[int],
    strides: int | Sequence[int],
    padding: Padding,
    dilation: int | Sequence[int],
    ceil_mode: bool,
) -> Windows:
    """Lay windows over an image, one number or several per option."""
    spatial = image.spatial
    kernel, stride = pair(pool_size, spatial), pair(strides, spatial)
    dilate = pair(dilation, spatial)
    before, given_after = padding_around(padding, spatial, kernel, dilate)
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
    return Windows(kernel, stride, dilate, before, given_after, tuple(after), tuple(out))


def surrounded(image: PooledImage, w: Windows, value: float) -> Tensor:
    """Pad an image for windows."""
    if not w.padded:
        return image.x
    none = [0] * image.x.ndim
    return pad(
        image.x, image.filled(none, w.before), image.filled(none, w.after), value, "pad_temp"
    )


def lowest(dtype: str) -> float:
    """What is not greater than any element of a dtype."""
    if dtype.startswith(("float", "bfloat")):
        return -math.inf
    return te.min_value(dtype).value  # type: ignore[attr-defined, no-any-return]


def _max_pool(image: PooledImage, w: Windows) -> Tensor:
    spatial = image.spatial
    source = surrounded(image, w, lowest(image.x.dtype))
    steps = w.steps()

    def formula(n: Expr, c: Expr, *place: Expr) -> Expr:
        at = w.at(place[:spatial], steps)
        result: Expr = te.max(image.read(source, n, c, at, place[spatial:]), axis=steps)
        return result

    return image.compute(w.out, formula, image.what, "pool_max")


def pooled(
    kind: str, x: Tensor, options: Sequence[Any], spatial: int, layout: str, count_include_pad: bool
) -> Tensor:
    """Pool by maxima or means (``kind`` is ``max`` or ``avg``) over one to three axes.

    ``options``: windows, strides, padding, dilation and whether partial windows at the end count.
    """
    image = PooledImage.of(kind, x, spatial, layout)
    windows = windows_over(image, *options)
    return (
        _max_pool(image, windows) if kind == "max" else _avg_pool(image, windows, count_include_pad)
    )


def _avg_pool(image: PooledImage, w: Windows, count_include_pad: bool) -> Tensor:
    x, spatial, name = image.x, image.spatial, image.what
    source = surrounded(image, w, 0.0)
    wide = fast_dtype(x.dtype)
    steps = w.steps()

    def summed(n: Expr, c: Expr, *place: Expr) -> Expr:
        at = w.at(place[:spatial], steps)
        value = cast_expr(image.read(source, n, c, at, place[spatial:]), wide)
        result: Expr = te.sum(value, axis=steps)
        return result

    total = image.compute(w.out, summed, "pool_sum", "pool_sum")

    counted = elements_counted(image, w, count_include_pad)

    def formula(n: Expr, c: Expr, *place: Expr) -> Expr:
        divisor = cast_expr(counted(place[:spatial]), wide)
        value = image.read(total, n, c, place[:spatial], place[spatial:])
        return cast_expr(divide(value, divisor), x.dtype)

    return image.compute(w.out, formula, name, "elemwise")


def elements_counted(
    image: PooledImage, w: Windows, count_include_pad: bool
) -> Callable[[Sequence[Expr]], Expr]:
    """How many elements a window has, given its place; what ``ceil_mode`` adds is none."""
    # Where all windows are whole, none is counted.
    if not w.padded or (count_include_pad and w.given_after == w.after):
        return lambda place: const(math.prod(w.kernel))

    def along(place: Expr, a: int) -> Expr:
        if w.before[a] == w.after[a] == 0:
            return const(w.kernel[a])
        start = place * w.stride[a]
        low = const(0) if count_include_pad else const(w.before[a])
        high = image.extents[a] + w.before[a] + (w.given_after[a] if count_include_pad else 0)
        # Steps of the window until it reaches the image, and until it leaves it.
        begin, end = ((edge - start + w.dilation[a] - 1) // w.dilation[a] for edge in (low, high))
        inside: Expr = minimum(end, w.kernel[a]) - maximum(begin, 0)
        return inside

    def counted(place: Sequence[Expr]) -> Expr:
        numbers: Expr = const(1)
        for a, p in enumerate(place):
            # A window that has nothing of the image sums to 0, and is divided by 1.
            numbers = numbers * maximum(along(p, a), 1)
        return numbers

    return counted


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


def adaptive_pooled(
    x: Tensor, output_size: object, spatial: int, largest: bool, layout: str = ""
) -> Tensor:
    """Pool windows that divide the spatial axes into so many; see :func:`adaptive_avg_pool2d`."""
    kind = "max" if largest else "avg"
    adaptive = PooledImage.of(f"adaptive_{kind}", x, spatial, layout)
    size = _numbers_of_windows(output_size, spatial)
    if all(as_int(s) == 1 for s in size) and not largest:
        return mean(x, axis=adaptive.dimensions, keepdims=True)
    extents = adaptive.extents
    known = [number for number in map(as_int, extents) if number is not None]
    counts = [s for s in size if isinstance(s, int)]
    if len(known) == len(counts) == spatial and all(n % s == 0 for n, s in zip(known, counts)):
        kernel = [number // s for number, s in zip(known, counts)]
        image = PooledImage.of(kind, x, spatial, layout)
        windows = windows_over(image, kernel, kernel, 0, 1, False)
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
        value = adaptive.read(x, n, c, at, place[spatial:])
        result: Expr = reducer(cast_expr(value, wide), axis=steps, where=inside)
        return result

    name = "adaptive_max" if largest else "pool_sum"
    total = adaptive.compute(size, reduced, name, name)
    if largest:
        return total

    def formula(n: Expr, c: Expr, *place: Expr) -> Expr:
        count: Expr = const(1)
        for a, p in enumerate(place[:spatial]):
            begin, end = bounds(p, a)
            count = count * (end - begin)
        value = adaptive.read(total, n, c, place[:spatial], place[spatial:])
        return cast_expr(divide(value, cast_expr(count, wide)), x.dtype)

    return adaptive.compute(size, formula, adaptive.what, "elemwise")


_Pool = Callable[..., Tensor]


def _max_pool_over(spatial: int) -> _Pool:
    axes = image_axes(spatial)

    def max_pool(
        x: Tensor,
        pool_size: int | Sequence[int],
        strides: int | Sequence[int] = 1,
        padding: Padding = 0,
        dilation: int | Sequence[int] = 1,
        ceil_mode: bool = False,
        layout: str = axes,
    ) -> Tensor:
        options = pool_size, strides, padding, dilation, ceil_mode
        return pooled("max", x, options, spatial, layout, False)

    doc = f"""Return the maximum over windows of ``x [{", ".join(axes)}]``; padding never wins.

    ``layout`` may have channels in blocks (``{axes}16c``).
    """
    return named(max_pool, f"max_pool{spatial}d", doc)


def _avg_pool_over(spatial: int) -> _Pool:
    axes = image_axes(spatial)

    def avg_pool(
        x: Tensor,
        pool_size: int | Sequence[int],
        strides: int | Sequence[int] = 1,
        padding: Padding = 0,
        dilation: int | Sequence[int] = 1,
        ceil_mode: bool = False,
        count_include_pad: bool = False,
        layout: str = axes,
    ) -> Tensor:
        options = pool_size, strides, padding, dilation, ceil_mode
        return pooled("avg", x, options, spatial, layout, count_include_pad)

    doc = f"""Return the mean over windows of ``x [{", ".join(axes)}]``.

    ``count_include_pad`` says whether padding counts as elements; what ``ceil_mode`` adds never
    does. ``layout`` may have channels in blocks (``{axes}16c``).
    """
    return named(avg_pool, f"avg_pool{spatial}d", doc)


def _adaptive_pool_over(kind: str, spatial: int) -> _Pool:
    axes = image_axes(spatial)

    def adaptive_pool(
        x: Tensor, output_size: ExprLike | Sequence[ExprLike], layout: str = axes
    ) -> Tensor:
        return adaptive_pooled(x, output_size, spatial, kind == "max", layout)

    results = "maxima" if kind == "max" else "means"
    doc = f"""Return {results} over windows of ``x [{", ".join(axes)}]`` chosen to give that size.

    ``layout`` may have channels in blocks (``{axes}16c``).
    """
    return named(adaptive_pool, f"adaptive_{kind}_pool{spatial}d", doc)


max_pool1d, max_pool2d, max_pool3d = map(_max_pool_over, (1, 2, 3))
avg_pool1d, avg_pool2d, avg_pool3d = map(_avg_pool_over, (1, 2, 3))
adaptive_avg_pool1d = _adaptive_pool_over("avg", 1)
adaptive_avg_pool2d = _adaptive_pool_over("avg", 2)
adaptive_avg_pool3d = _adaptive_pool_over("avg", 3)
adaptive_max_pool1d = _adaptive_pool_over("max", 1)
adaptive_max_pool2d = _adaptive_pool_over("max", 2)
adaptive_max_pool3d = _adaptive_pool_over("max", 3)
