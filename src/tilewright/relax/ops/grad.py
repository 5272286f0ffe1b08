"""Operators that gradients need: ``relax.op.grad``. They are made by ``transform.Gradient``.

Pooling's sum, for each pixel, over the windows that contain it, so that nothing is written twice;
lookups add what belongs to one element in the order of the indices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te, topi
from tilewright.arith import simplify
from tilewright.ir import (
    Expr,
    ExprLike,
    Var,
    and_,
    ceildiv,
    const,
    dtypes,
    if_then_else,
    max_value,
    maximum,
    minimum,
    or_,
    product,
    select,
)
from tilewright.ir import cast as cast_expr
from tilewright.relax.conditions import require, require_equal
from tilewright.relax.ops.common import (
    known,
    plain_info,
    require_ndim,
    same_dtype,
    tensor_like,
)
from tilewright.relax.ops.other_layouts import in_usual_order, layouts_of
from tilewright.relax.registry import Builder, Tensor, in_usual_form, operator
from tilewright.relax.struct_info import StructInfo, TensorStructInfo
from tilewright.support.errors import VerifyError
from tilewright.tir import Buffer, IfThenElse, Stmt, decl_buffer, seq
from tilewright.tir.building import Axis, block, let, load, loop, store
from tilewright.topi.nn.spatial import image_axes
from tilewright.topi.utils import normal_axis, padding_of, pair, sum_dtype


@operator("grad.no_grad", decompose=lambda call: call.args[0])
def no_grad(input: Tensor) -> StructInfo:
    """``input``, through which no gradient flows back."""
    return tensor_like(input)


@operator("grad.start_checkpoint", decompose=lambda call: call.args[0])
def start_checkpoint(input: Tensor) -> StructInfo:
    """``input``, which is kept for the backward pass: it starts a part that is computed again.

    What is computed from here to ``end_checkpoint`` isn't kept. So training needs less memory, and
    does that part's work twice (Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016).
    """
    return tensor_like(input)


@operator("grad.end_checkpoint", decompose=lambda call: call.args[0])
def end_checkpoint(input: Tensor) -> StructInfo:
    """``input``; the backward pass computes again what it depends on, from ``start_checkpoint``."""
    return tensor_like(input)


def _root(x: te.Tensor, order: float) -> te.Tensor:
    if order == 2:
        return topi.sqrt(x)
    made: te.Tensor = topi.power(x, const(1 / order, x.dtype))
    return made


@operator("grad.root", legalize=_root)
def root(x: Tensor, order: float = 2.0) -> StructInfo:
    """The root of a sum of powers, as in norms: where it is 0, so is its gradient."""
    return tensor_like(x)


# ---- pooling ---------------------------------------------------------------------------------


def _taps(kernel: Sequence[int]) -> list[Any]:
    return [te.reduce_axis((0, size), f"r{axis}") for axis, size in enumerate(kernel)]


def _spread(
    values: te.Tensor,
    shape: Sequence[Expr],
    kernel: Sequence[int],
    stride: Sequence[int],
    before: Sequence[int],
    dilation: Sequence[int],
    counts: Callable[[list[Expr], list[Expr]], Expr] | None,
    name: str,
) -> te.Tensor:
    """For each pixel the sum of the values of its windows, or of those that ``counts`` selects."""
    taps = _taps(kernel)
    wide = sum_dtype(values.dtype)

    def formula(n: Expr, c: Expr, *place: Expr) -> Expr:
        offsets = [p + b - t.var * d for p, b, t, d in zip(place, before, taps, dilation)]
        at = [offset // s for offset, s in zip(offsets, stride)]
        inside = [and_(o >= 0, a < e) for o, a, e in zip(offsets, at, values.shape[2:])]
        inside += [o % s == 0 for o, s in zip(offsets, stride) if s != 1]
        value: Expr = values(n, c, *at)
        if counts is not None:
            value = select(counts([n, c, *at], [t.var for t in taps]), value, const(0, value.dtype))
        value = if_then_else(and_(*inside), value, const(0, value.dtype))
        made: Expr = te.sum(cast_expr(value, wide), axis=taps)
        return made

    return _in_dtype(te.compute(tuple(shape), formula, name=name), values.dtype)


def _in_dtype(total: te.Tensor, dtype: str) -> te.Tensor:
    """Sums in the dtype of the result."""
    if total.dtype == dtype:
        return total
    made: te.Tensor = te.compute(total.shape, lambda *i: cast_expr(total(*i), dtype), name="narrow")
    return made


def _max_pool_backward(
    output_grad: te.Tensor, data: te.Tensor, pool_size: object, strides: object, padding: Any,
    dilation: Any,
) -> te.Tensor:  # fmt: skip
    """The gradient goes to the first greatest element of each window, never to the padding.

    How many windows there are, the gradient's extents say.
    """
    spatial = data.ndim - 2
    kernel, stride = pair(pool_size, spatial), pair(strides, spatial)
    reach, before = pair(dilation, spatial), padding_of(padding, spatial)[0]
    windows = output_grad.shape

    def read(place: Sequence[Expr], taps: Sequence[Any], otherwise: Expr, use: Any) -> Expr:
        """A use of the element at a step of a window, or what padding gives."""
        n, c, *rest = place
        at = [p * s + t.var * d - b for p, s, t, d, b in zip(rest, stride, taps, reach, before)]
        inside = and_(*(and_(a >= 0, a < e) for a, e in zip(at, data.shape[2:])))
        made: Expr = if_then_else(inside, use(data(n, c, *at)), otherwise)
        return made

    lowest = const(float("-inf"), data.dtype)
    first, second = _taps(kernel), _taps(kernel)
    best = te.compute(
        windows,
        lambda *i: te.max(
            read(i, first, lowest, lambda x: x),
            axis=first,
        ),
        name="greatest",
    )
    never = max_value("int32")

    def number(taps: Sequence[Expr]) -> Expr:
        flat: Expr = const(0)
        for size, tap in zip(kernel, taps):
            flat = flat * size + tap
        return cast_expr(flat, "int32")

    def place_of(*i: Expr) -> Expr:
        own = number([tap.var for tap in second])

        def hit(x: Expr) -> Expr:
            found = x == best(*i)
            return select(or_(found, x != x), own, never)

        made: Expr = te.min(read(i, second, never, hit), axis=second)
        return made

    winner = te.compute(windows, place_of, name="place")
    counts = lambda at, taps: winner(*at) == number(taps)
    return _spread(
        output_grad, data.shape, kernel, stride, before, reach, counts, "max_pool_backward"
    )


def _max_pool_places_backward(
    output_grad: te.Tensor, data: te.Tensor, places: te.Tensor
) -> te.Tensor:
    """Image by image: zeros, to which the gradient of each window is added at its place.

    Sums are kept apart, so that images are independent blocks.
    """
    wide, extents = sum_dtype(output_grad.dtype), data.shape[2:]

    def body(operands: Sequence[Buffer], outputs: Sequence[Buffer]) -> Stmt:
        gradient, where = operands
        # Flat, as places are: finding rows and columns would take most of the time.
        result, sums = outputs[0], decl_buffer((product(extents),), wide, "sums")

        def image(n: Expr, c: Expr) -> Stmt:
            def add(*window: Expr) -> Stmt:
                def at(place: Expr) -> Stmt:
                    value = cast_expr(load(gradient, n, c, *window), wide)
                    inside = and_(place >= 0, place < product(extents))
                    return IfThenElse(inside, store(sums, load(sums, place) + value, place))

                return let("place", load(where, n, c, *window), at)

            def copy(*i: Expr) -> Stmt:
                place: Expr = const(0)
                for at, extent in zip(i, extents):
                    place = place * extent + at
                return store(result, cast_expr(load(sums, place), result.dtype), n, c, *i)

            return seq(
                _nest("z", sums.shape, lambda *i: store(sums, const(0, wide), *i)),
                _nest("w", places.shape[2:], add),
                _nest("i", extents, copy),
            )

        axes = [Axis("n", data.shape[0]), Axis("c", data.shape[1])]
        return block("max_pool_backward", axes, image, alloc=[sums])

    made: te.Tensor = te.extern(
        [data.shape], [output_grad, places], body, dtype=[output_grad.dtype],
        name="max_pool_backward",
    )  # fmt: skip
    return made


def _nest(name: str, extents: Sequence[Expr], body: Callable[..., Stmt]) -> Stmt:
    """A nest of loops around a statement."""

    def inner(*taken: Var) -> Stmt:
        depth = len(taken)
        if depth == len(extents):
            return body(*taken)
        return loop(f"{name}{depth}", extents[depth], lambda v: inner(*taken, v))

    return inner()


@operator("grad.max_pool_places_backward", legalize=_max_pool_places_backward)
def max_pool_places_backward(output_grad: Tensor, data: Tensor, places: Tensor) -> StructInfo:
    """Gradient of max pooling for ``data``, given the places of the maxima (int64, flat)."""
    return _check_pool(output_grad, data, data.ndim - 2)


def _avg_pool_backward(
    output_grad: te.Tensor, data: te.Tensor, pool_size: object, strides: object, padding: Any,
    dilation: Any, count_include_pad: bool,
) -> te.Tensor:  # fmt: skip
    """Each window gives its elements equal shares; padding counts as the forward operator says."""
    spatial = data.ndim - 2
    kernel, stride = pair(pool_size, spatial), pair(strides, spatial)
    reach = pair(dilation, spatial)
    before, after = padding_of(padding, spatial)

    def count(place: Expr, a: int) -> Expr:
        """Steps of a window until it leaves what counts, but those before it gets there."""
        low = const(0) if count_include_pad else const(before[a])
        high = data.shape[2 + a] + before[a] + (after[a] if count_include_pad else 0)
        begin, end = (ceildiv(edge - place * stride[a], reach[a]) for edge in (low, high))
        # A window that has nothing that counts is divided by 1, as in the operator itself.
        return maximum(minimum(end, kernel[a]) - maximum(begin, 0), 1)

    def share(n: Expr, c: Expr, *place: Expr) -> Expr:
        numbers = product([count(p, a) for a, p in enumerate(place)])
        return output_grad(n, c, *place) / cast_expr(numbers, output_grad.dtype)

    shares = te.compute(output_grad.shape, share, name="share")
    return _spread(shares, data.shape, kernel, stride, before, reach, None, "avg_pool_backward")


def _check_pool(
    output_grad: TensorStructInfo,
    data: TensorStructInfo,
    spatial: int,
    layout: str | None = None,
    out_layout: str | None = None,
) -> StructInfo:
    axes = image_axes(spatial)
    names = dict.fromkeys(("layout", "out_layout"), axes)
    x, y = layouts_of({"layout": layout, "out_layout": out_layout}, names)
    gradient = plain_info(output_grad, y, "output_grad", axes)
    image = plain_info(data, x, "data", axes)
    same_dtype(output_grad, data)
    if not dtypes.is_float(data.dtype):
        raise VerifyError(f"only floating-point numbers have gradients, got {data.dtype}")
    for axis in range(2):
        require_equal(f"extents of axis {axes[axis]}", gradient.shape[axis], image.shape[axis])
    return tensor_like(data)


def _declare_pooling(spatial: int) -> tuple[Builder, Builder]:
    """Declare the gradients of pooling over so many axes."""
    ones, zeros, axes = (1,) * spatial, (0,) * (2 * spatial), image_axes(spatial)
    names = dict.fromkeys(("layout", "out_layout"), axes)
    usual = in_usual_order(("out_layout", "layout"), "layout", names)
    unused = ("ceil_mode", "layout", "out_layout")
    of_maxima = in_usual_form(_max_pool_backward, *unused, "count_include_pad")
    of_means = in_usual_form(_avg_pool_backward, *unused)

    def rule(
        output_grad: Tensor,
        data: Tensor,
        pool_size: int | tuple[int, ...] = ones,
        strides: int | tuple[int, ...] = ones,
        padding: int | tuple[int, ...] = zeros,
        dilation: int | tuple[int, ...] = ones,
        ceil_mode: bool = False,
        count_include_pad: bool = False,
        layout: str = axes,
        out_layout: str | None = None,
    ) -> StructInfo:
        """Gradient of pooling for ``data``; that of a maximum goes to the first in its window."""
        return _check_pool(output_grad, data, spatial, layout, out_layout)

    return (
        operator(f"grad.max_pool{spatial}d_backward", legalize=of_maxima, usual=usual)(rule),
        operator(f"grad.avg_pool{spatial}d_backward", legalize=of_means, usual=usual)(rule),
    )


max_pool1d_backward, avg_pool1d_backward = _declare_pooling(1)
max_pool2d_backward, avg_pool2d_backward = _declare_pooling(2)
max_pool3d_backward, avg_pool3d_backward = _declare_pooling(3)


# ---- convolution -----------------------------------------------------------------------------


@operator("grad.conv_weight_backward", legalize=topi.nn.conv_weight_backward)
def conv_weight_backward(
    output_grad: Tensor,
    data: Tensor,
    window: tuple[int, ...] = (),
    strides: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
    groups: int = 1,
    by_image: bool = False,
) -> StructInfo:
    """Gradient of a convolution for its weight ``[O, C / groups, *window]``.

    ``data`` is ``[N, C, …]``, ``output_grad`` ``[N, O, …]``. With ``by_image`` there is one for
    each image: the gradient is their sum.

    Raises ``VerifyError`` where shapes and groups don't fit.
    """
    spatial = len(window)
    for name, info in (("output_grad", output_grad), ("data", data)):
        require_ndim(info, spatial + 2, name)
    gradient, image = known(output_grad, "output_grad"), known(data, "data")
    require_equal("numbers of images", gradient[0], image[0])
    for what, channels in (("channels", image[1]), ("filters", gradient[1])):
        require(channels % groups == 0, channels, f" {what} don't divide into {groups} groups")
    steps, reach = pair(strides, spatial), pair(dilation, spatial)
    before, after = padding_of(padding, spatial)
    for a, size in enumerate(window):
        need = (gradient[2 + a] - 1) * steps[a] + (size - 1) * reach[a] + 1
        require(
            need <= image[2 + a] + before[a] + after[a],
            f"windows of axis {2 + a} reach beyond the padded image: ", need, " elements",
        )  # fmt: skip
    shape: tuple[ExprLike, ...] = (gradient[1], simplify(image[1] // groups), *window)
    dtype = same_dtype(output_grad, data)
    return TensorStructInfo((image[0], *shape) if by_image else shape, dtype)


# ---- lookups ---------------------------------------------------------------------------------


def _place(index: Expr, extent: Expr, mode: str) -> Expr:
    """Where a lookup's index points."""
    index = cast_expr(index, "int64")
    if mode == "wrap":
        return index % extent
    return index if mode == "fast" else maximum(minimum(index, extent - 1), 0)


def _added(
    gradient: te.Tensor, indices: te.Tensor, shape: Sequence[Expr],
    positions: Callable[[Sequence[Expr], Callable[[Sequence[Expr]], Expr]], Sequence[Expr]],
    name: str,
) -> te.Tensor:  # fmt: skip
    """Zeros to which the gradient's elements are added one after the other."""
    wide = sum_dtype(gradient.dtype)

    def body(operands: Sequence[Buffer], outputs: Sequence[Buffer]) -> Stmt:
        source, looked_up = operands
        result = outputs[0]
        clear = block(
            f"{name}_zero",
            [Axis(f"z{n}", extent) for n, extent in enumerate(result.shape)],
            lambda *i: store(result, const(0, wide), *i),
        )

        def add() -> Stmt:
            def inner(*i: Expr) -> Stmt:
                where = positions(i, lambda place: load(looked_up, *place))
                value = cast_expr(load(source, *i), wide)
                return store(result, load(result, *where) + value, *where)

            return _nest("i", source.shape, inner)

        return seq(clear, block(f"{name}_add", [], add))

    total = te.extern([shape], [gradient, indices], body, dtype=[wide], name=name)
    return _in_dtype(total, gradient.dtype)


def _take_backward(
    output_grad: te.Tensor, x: te.Tensor, indices: te.Tensor, axis: int | None, mode: str
) -> te.Tensor:
    if axis is None:
        flat = topi.reshape(x, (product(x.shape),))
        return topi.reshape(_take_backward(output_grad, flat, indices, 0, mode), x.shape)
    at, count = normal_axis(axis, x.ndim), indices.ndim

    def positions(i: Sequence[Expr], index: Any) -> list[Expr]:
        own = _place(index(i[at : at + count]), x.shape[at], mode)
        return [*i[:at], own, *i[at + count :]]

    return _added(output_grad, indices, x.shape, positions, "take_backward")


@operator("grad.take_backward", legalize=_take_backward)
def take_backward(
    output_grad: Tensor, x: Tensor, indices: Tensor, axis: int | None = None, mode: str = "clip"
) -> StructInfo:
    """Gradient of ``take`` for ``x``: the slices of ``output_grad`` added up by index."""
    if axis is not None:
        normal_axis(axis, x.ndim)
    return TensorStructInfo(known(x), output_grad.dtype)


def _gather_backward(
    output_grad: te.Tensor, data: te.Tensor, indices: te.Tensor, axis: int, mode: str
) -> te.Tensor:
    at = normal_axis(axis, data.ndim)

    def positions(i: Sequence[Expr], index: Any) -> list[Expr]:
        return [*i[:at], _place(index(i), data.shape[at], mode), *i[at + 1 :]]

    return _added(output_grad, indices, data.shape, positions, "gather_backward")


@operator("grad.gather_elements_backward", legalize=_gather_backward)
def gather_elements_backward(
    output_grad: Tensor, data: Tensor, indices: Tensor, axis: int = 0, mode: str = "clip"
) -> StructInfo:
    """Gradient of ``gather_elements`` for ``data``: elements added up by index."""
    normal_axis(axis, data.ndim)
    return TensorStructInfo(known(data, "data"), output_grad.dtype)
