"""Small maps: scales and shifts per channel, flat rows, a buffer of the latest elements, losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright import te
from tilewright.ir import (
    EQ,
    INDEX,
    Expr,
    call,
    cast,
    compare,
    const,
    if_then_else,
    maximum,
    minimum,
    product,
    select,
)
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, require, require_equal, with_conditions
from tilewright.te.arithmetic import divide
from tilewright.tir.float_division import fast_dtype
from tilewright.topi.utils import normal_axis, require_along, require_ndim, unravel


def _scale_shift(name: str, axes: Sequence[int]) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """``Input * Scale + Shift``, with factors and summands for each index of some axes."""

    def scale_shift(Input: Tensor, Scale: Tensor, Shift: Tensor) -> Tensor:
        require_along(name, Input, axes, Scale, Shift)

        def formula(*i: Expr) -> Expr:
            channel = [i[axis] for axis in axes]
            return Input(*i) * Scale(*channel) + Shift(*channel)

        made: Tensor = compute(Input.shape, formula, name="scale_shift", tag="broadcast")
        return made

    scale_shift.__name__ = scale_shift.__qualname__ = name
    scale_shift.__doc__ = f"Scale and shift each channel (axes {[*axes]} of the image)."
    made: Callable[[Tensor, Tensor, Tensor], Tensor] = with_conditions(scale_shift)
    return made


scale_shift_nchw = _scale_shift("scale_shift_nchw", (1,))
scale_shift_nhwc = _scale_shift("scale_shift_nhwc", (3,))
scale_shift_nchwc = _scale_shift("scale_shift_nchwc", (1, 4))


def flatten(data: Tensor) -> Tensor:
    """Give all but the first axis as one: ``[N, …] -> [N, product]``."""
    inner = data.shape[1:]
    made: Tensor = compute(
        (data.shape[0], product(inner)),
        lambda n, i: data(n, *unravel(i, inner)),
        name="flatten",
        tag="injective",
    )
    return made


@with_conditions
def fifo_buffer(data: Tensor, buffer: Tensor, axis: int) -> Tensor:
    """Append ``data`` to ``buffer`` along an axis, and drop as many of the oldest elements.

    Raises ``VerifyError`` if other extents differ, or data has more elements than the buffer.
    """
    require_ndim("fifo_buffer", data, buffer.ndim)
    at = normal_axis(axis, buffer.ndim)
    for n, (mine, own) in enumerate(zip(data.shape, buffer.shape)):
        if n != at:
            require_equal(f"fifo_buffer: axis {n}", mine, own)
    new, length = data.shape[at], buffer.shape[at]
    require(new <= length, "fifo_buffer: ", new, " elements do not fit a buffer of ", length)
    kept = length - new

    def formula(*i: Expr) -> Expr:
        def along(index: Expr) -> list[Expr]:
            return [*i[:at], index, *i[at + 1 :]]

        return if_then_else(i[at] < kept, buffer(*along(i[at] + new)), data(*along(i[at] - kept)))

    made: Tensor = compute(buffer.shape, formula, name="new_buffer", tag="injective")
    return made


@with_conditions
def nll_loss(
    predictions: Tensor, targets: Tensor, weights: Tensor, reduction: str, ignore_index: int
) -> Tensor:
    """Negative log likelihood: ``-predictions[n, target, …] * weights[target]``.

    ``predictions`` is ``[N, C, …]``, ``targets`` ``[N, …]``, ``weights`` ``[C]``. Elements whose
    target is ``ignore_index`` are zero. ``reduction``: ``none``, ``sum`` or ``mean``, which is
    weighted.

    Raises ``VerifyError`` for other reductions, and operands that don't fit.
    """
    if reduction not in ("mean", "sum", "none"):
        raise VerifyError(f"nll_loss: reduction is 'mean', 'sum' or 'none', got {reduction!r}")
    require_ndim("nll_loss", targets, predictions.ndim - 1)
    require_along("nll_loss", predictions, (1,), weights)
    for axis, extent in enumerate(targets.shape):
        require_equal("nll_loss: targets", extent, predictions.shape[axis + (axis > 0)])
    wide = fast_dtype(predictions.dtype)
    last = predictions.shape[1] - 1

    def chosen(value: Callable[[Expr], Expr], *i: Expr) -> Expr:
        target = targets(*i)
        inside = maximum(minimum(cast(target, INDEX), last), 0)
        ignored = compare(EQ, target, const(ignore_index, targets.dtype))
        return select(ignored, const(0, wide), cast(value(inside), wide))

    weight: Tensor = compute(targets.shape, lambda *i: chosen(weights, *i), name="nll_weight")

    def loss(*i: Expr) -> Expr:
        value = chosen(lambda at: predictions(i[0], at, *i[1:]), *i)
        return const(0, wide) - value * weight(*i)

    losses: Tensor = compute(targets.shape, loss, name="nll_loss")
    total = losses
    if reduction != "none":
        total = _total(losses)
    if reduction == "mean":
        of = _total(weight)
        mean: Tensor = compute((), lambda: divide(total(), of()), name="nll_mean")
        total = mean
    if total.dtype == predictions.dtype:
        return total
    dtype = predictions.dtype
    made: Tensor = compute(total.shape, lambda *i: cast(total(*i), dtype), name="nll_cast")
    return made


def _total(x: Tensor) -> Tensor:
    axes = [te.reduce_axis((0, extent), f"k{n}") for n, extent in enumerate(x.shape)]
    made: Tensor = compute(
        (), lambda: te.sum(x(*(axis.var for axis in axes)), axis=axes), name=f"{x.name}_sum"
    )
    return made


@with_conditions
def lrn(
    data: Tensor,
    size: int,
    axis: int = 1,
    alpha: float = 0.0001,
    beta: float = 0.75,
    bias: float = 2,
) -> Tensor:
    """Local response normalisation: ``data / (bias + alpha / size * sum of squares) ** beta``.

    The sum is over ``size`` neighbours (an odd number) along an axis.

    Raises ``VerifyError`` for an even size.
    """
    if size % 2 != 1:
        raise VerifyError(f"lrn: size must be odd, got {size}")
    at = normal_axis(axis, data.ndim)
    wide = fast_dtype(data.dtype)
    step = te.reduce_axis((0, size), "rc")

    def summed(*i: Expr) -> Expr:
        index = i[at] + step.var - size // 2
        value = cast(data(*i[:at], index, *i[at + 1 :]), wide)
        inside = (index >= 0) & (index < data.shape[at])
        made: Expr = te.sum(value * value, axis=[step], where=inside)
        return made

    squares = compute(data.shape, summed, name="lrn_square_sum")

    def formula(*i: Expr) -> Expr:
        base = const(bias, wide) + const(alpha / size, wide) * squares(*i)
        return cast(divide(cast(data(*i), wide), call("pow", base, const(beta, wide))), data.dtype)

    made: Tensor = compute(data.shape, formula, name="lrn", tag="norm")
    return made
