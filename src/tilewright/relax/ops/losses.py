"""Losses of classifiers, as arithmetic on log-probabilities."""

from __future__ import annotations

from tilewright.ir import dtypes
from tilewright.relax.conditions import require_equal
from tilewright.relax.expr import RelaxCall, RelaxExpr
from tilewright.relax.ops.binary import divide, equal, maximum, minimum, multiply, not_equal
from tilewright.relax.ops.common import known, require_ndim, same_dtype, tensor_like
from tilewright.relax.ops.create import arange, ones, zeros
from tilewright.relax.ops.derived import size_value
from tilewright.relax.ops.manipulate import (
    expand_dims,
    gather_elements,
    reshape,
    squeeze,
    take,
    where,
)
from tilewright.relax.ops.reduce import sum as sum_of
from tilewright.relax.ops.unary import astype, negative
from tilewright.relax.registry import Tensor, operator
from tilewright.relax.struct_info import StructInfo, TensorStructInfo
from tilewright.relax.values import const
from tilewright.support.errors import VerifyError

REDUCTIONS = ("mean", "sum", "none")


def check_reduction(reduction: str) -> None:
    """Refuse what is no reduction of losses."""
    if reduction not in REDUCTIONS:
        raise VerifyError(f"reduction must be {', '.join(REDUCTIONS)}, got {reduction!r}")


def _nll_arithmetic(call: RelaxCall) -> RelaxExpr:
    predictions, targets, *rest = call.args
    ignored = const(call.attrs["ignore_index"], targets.dtype)
    is_counted = not_equal(targets, ignored)
    safe = where(is_counted, targets, const(0, targets.dtype))
    axis = 0 if predictions.ndim == 1 else 1
    picked = squeeze(gather_elements(predictions, expand_dims(safe, axis), axis), axis)
    shape, dtype = targets.shape, predictions.dtype
    weights: RelaxExpr = take(rest[0], safe, 0) if rest else ones(shape, dtype)
    weights = where(is_counted, weights, zeros((), dtype))
    losses: RelaxExpr = negative(multiply(picked, weights))
    if call.attrs["reduction"] == "none":
        return losses
    total: RelaxExpr = sum_of(losses)
    return total if call.attrs["reduction"] == "sum" else divide(total, sum_of(weights))


@operator("nn.nll_loss", decompose=_nll_arithmetic)
def nll_loss(
    predictions: Tensor,
    targets: Tensor,
    weights: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> StructInfo:
    """Negative log-likelihood of the target classes.

    ``predictions`` are log-probabilities ``[N, C, …]`` (or ``[C]``), ``targets`` classes
    ``[N, …]``, ``weights`` one number for each class. Targets that are ``ignore_index`` don't
    count; ``mean`` divides by the sum of the others' weights. Classes out of bounds are the nearest
    class.

    Raises ``VerifyError`` for operands that don't fit, and an unknown ``reduction``.
    """
    return _check_nll(predictions, targets, weights, reduction)


def _check_nll(
    predictions: TensorStructInfo,
    targets: TensorStructInfo,
    weights: TensorStructInfo | None,
    reduction: str,
) -> TensorStructInfo:
    """The struct info of a loss."""
    check_reduction(reduction)
    if not dtypes.is_float(predictions.dtype):
        raise VerifyError(f"predictions must be floating-point numbers, got {predictions.dtype}")
    if not dtypes.is_integer(targets.dtype):
        raise VerifyError(f"targets must be integers, got {targets.dtype}")
    shape = known(predictions, "predictions")
    if not shape:
        raise VerifyError("predictions need an axis of classes")
    classes = shape[0] if len(shape) == 1 else shape[1]
    rest = () if len(shape) == 1 else (shape[0], *shape[2:])
    require_ndim(targets, len(rest), "targets")
    for axis, (have, wanted) in enumerate(zip(known(targets, "targets"), rest)):
        require_equal(f"extents of axis {axis} of targets", have, wanted)
    if weights is not None:
        require_ndim(weights, 1, "weights")
        require_equal("numbers of classes and weights", known(weights, "weights")[0], classes)
        same_dtype(predictions, weights)
    return TensorStructInfo(rest if reduction == "none" else (), predictions.dtype)


def _nll_backward_arithmetic(call: RelaxCall) -> RelaxExpr:
    """Minus the gradient of each loss, times its weight, where its class is; else nothing."""
    output_grad, predictions, targets, *rest = call.args
    dtype, kind = predictions.dtype, targets.dtype
    is_counted = not_equal(targets, const(call.attrs["ignore_index"], kind))
    axis = 0 if predictions.ndim == 1 else 1
    classes = predictions.shape[axis]
    last = astype(size_value(classes - 1), kind)
    safe = maximum(minimum(where(is_counted, targets, const(0, kind)), last), const(0, kind))
    weights: RelaxExpr = take(rest[0], safe, 0) if rest else ones(targets.shape, dtype)
    weights = where(is_counted, weights, zeros((), dtype))
    share: RelaxExpr = negative(multiply(output_grad, weights))
    if call.attrs["reduction"] == "mean":
        share = divide(share, sum_of(weights))
    numbers = reshape(
        astype(arange(0, classes, 1, "int64"), kind),
        [classes if n == axis else 1 for n in range(predictions.ndim)],
    )
    chosen = equal(expand_dims(safe, axis), numbers)
    made: RelaxExpr = where(chosen, expand_dims(share, axis), zeros((), dtype))
    return made


@operator("grad.nll_loss_backward", decompose=_nll_backward_arithmetic)
def nll_loss_backward(
    output_grad: Tensor,
    predictions: Tensor,
    targets: Tensor,
    weights: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> StructInfo:
    """Gradient of ``nn.nll_loss`` for ``predictions``; ``output_grad`` has the loss's shape.

    Raises ``VerifyError`` for operands that don't fit, and an unknown ``reduction``.
    """
    loss = _check_nll(predictions, targets, weights, reduction)
    require_ndim(output_grad, loss.ndim, "output_grad")
    same_dtype(output_grad, predictions)
    for axis, (have, wanted) in enumerate(zip(known(output_grad), loss.shape)):
        require_equal(f"extents of axis {axis} of output_grad", have, wanted)
    return tensor_like(predictions)


def _cross_entropy_arithmetic(call: RelaxCall) -> RelaxExpr:
    predictions, labels = call.args
    total = negative(sum_of(multiply(predictions, labels)))
    if predictions.ndim == 1:
        return total
    batch = sum_of(ones((predictions.shape[0],), predictions.dtype))
    made: RelaxExpr = divide(total, batch)
    return made


@operator("nn.cross_entropy_with_logits", decompose=_cross_entropy_arithmetic)
def cross_entropy_with_logits(predictions: Tensor, labels: Tensor) -> StructInfo:
    """``-sum(predictions * labels)``, over the batch's size (axis 0) if there are several axes.

    Both have one shape; ``predictions`` are log-probabilities, ``labels`` probabilities.

    Raises ``VerifyError`` for operands that don't fit.
    """
    dtype = same_dtype(predictions, labels)
    if not dtypes.is_float(dtype):
        raise VerifyError(f"takes floating-point numbers, got {dtype}")
    shape = known(predictions, "predictions")
    if not shape:
        raise VerifyError("predictions need an axis")
    require_ndim(labels, len(shape), "labels")
    for axis, (have, wanted) in enumerate(zip(known(labels, "labels"), shape)):
        require_equal(f"extents of axis {axis}", have, wanted)
    return TensorStructInfo((), dtype)
