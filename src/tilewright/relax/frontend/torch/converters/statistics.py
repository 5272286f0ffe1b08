"""Normalisation by statistics of the operand, which are results too: for training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir import dtypes
from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.frontend.torch.converters.base import (
    Context,
    Results,
    Size,
    converts,
    dtype_name,
)
from tilewright.relax.frontend.torch.converters.networks import (
    batch_normalized,
    group_normalized,
    layer_normalized,
    rms_normalized,
)
from tilewright.relax.ops.common import element_count


def _wide(x: RelaxExpr) -> RelaxExpr:
    """Half floats as float32: what PyTorch keeps statistics in."""
    return op.astype(x, "float32") if dtypes.is_float(x.dtype) and _is_half(x.dtype) else x


def _is_half(dtype: str) -> bool:
    return dtype in ("float16", "bfloat16")


def _moments(
    ctx: Context, x: RelaxExpr, axes: Sequence[int], eps: float
) -> tuple[RelaxExpr, RelaxExpr, RelaxExpr]:
    """Mean, variance and ``1 / sqrt(variance + eps)`` over axes, which stay with extent 1."""
    x = ctx.emit(_wide(x))
    mean = ctx.emit(op.mean(x, tuple(axes), True))
    distance = op.subtract(x, mean)
    variance = ctx.emit(op.mean(op.multiply(distance, distance), tuple(axes), True))
    rstd = ctx.emit(op.rsqrt(op.add(variance, ctx.tensor(float(eps), x.dtype))))
    return mean, variance, rstd


def _as_result(ctx: Context, number: int, value: RelaxExpr) -> RelaxExpr:
    """Give a result the shape and dtype that PyTorch recorded."""
    wanted = ctx.result[number]
    return ctx.cast(op.reshape(value, ctx.symbols.shape(wanted.shape)), dtype_name(wanted.dtype))


@converts("aten.native_layer_norm.default")
def _native_layer_norm(
    ctx: Context, x: RelaxExpr, normalized_shape: Sequence[Size], weight: RelaxExpr | None,
    bias: RelaxExpr | None, eps: float,
) -> Results:  # fmt: skip
    axes = range(x.ndim - len(normalized_shape), x.ndim)
    made = layer_normalized(ctx, x, normalized_shape, weight, bias, eps)
    if not ctx.uses(1, 2):
        return [made, None, None]
    mean, _, rstd = _moments(ctx, x, axes, eps)
    return [made, _as_result(ctx, 1, mean), _as_result(ctx, 2, rstd)]


@converts("aten._fused_rms_norm.default")
def _fused_rms_norm(
    ctx: Context,
    x: RelaxExpr,
    normalized_shape: Sequence[Size],
    weight: RelaxExpr | None,
    eps: float | None,
) -> Results:
    made = rms_normalized(ctx, x, normalized_shape, weight, eps)
    if not ctx.uses(1):
        return [made, None]
    import torch

    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    wide = ctx.emit(_wide(x))
    shift = float(torch.finfo(getattr(torch, x.dtype)).eps if eps is None else eps)
    square = op.mean(op.multiply(wide, wide), axes, True)
    rstd = op.rsqrt(op.add(square, ctx.tensor(shift, wide.dtype)))
    return [made, _as_result(ctx, 1, rstd)]


@dataclass(frozen=True)
class _Groups:
    """The arguments of PyTorch's normalisation of groups of channels, after the tensors."""

    batch: Size  # the three sizes are known from the shape, too
    channels: Size
    size: Size
    groups: Size
    eps: float


@converts("aten.native_group_norm.default", form=_Groups)
def _native_group_norm(
    ctx: Context, x: RelaxExpr, weight: RelaxExpr | None, bias: RelaxExpr | None, form: _Groups
) -> Results:
    count = ctx.int(form.groups, "groups")
    made = group_normalized(ctx, x, count, weight, bias, form.eps)
    if not ctx.uses(1, 2):
        return [made, None, None]
    inner = (x.shape[1] // count, *x.shape[2:])
    rows = op.reshape(x, (x.shape[0], count, element_count(inner)))
    mean, _, rstd = _moments(ctx, rows, (2,), form.eps)
    return [made, _as_result(ctx, 1, mean), _as_result(ctx, 2, rstd)]


@converts("aten._native_batch_norm_legit_no_training.default")
def _batch_norm_inference(
    ctx: Context, x: RelaxExpr, weight: RelaxExpr | None, bias: RelaxExpr | None, mean: RelaxExpr,
    var: RelaxExpr, momentum: float, eps: float,
) -> Results:  # fmt: skip
    made = batch_normalized(ctx, x, weight, bias, mean, var, eps)
    return [made, *(_nothing(ctx, number) for number in (1, 2))]


def _nothing(ctx: Context, number: int) -> RelaxExpr | None:
    """A result without elements: statistics that a normalisation by given ones doesn't have."""
    if not ctx.uses(number):
        return None
    wanted = ctx.result[number]
    return op.zeros(ctx.symbols.shape(wanted.shape), dtype_name(wanted.dtype))


def _trained(
    ctx: Context, x: RelaxExpr, weight: RelaxExpr | None, bias: RelaxExpr | None, eps: float
) -> tuple[RelaxExpr, RelaxExpr, RelaxExpr, RelaxExpr]:
    """Normalised by the batch's statistics; the batch's mean, variance and ``1 / sqrt``."""
    axes = [axis for axis in range(x.ndim) if axis != 1]
    mean, variance, rstd = _moments(ctx, x, axes, eps)
    made = op.multiply(op.subtract(_wide(x), mean), rstd)
    for factor, function in ((weight, op.multiply), (bias, op.add)):
        if factor is not None:
            shape: list[Size] = [1, factor.shape[0], *[1] * (x.ndim - 2)]
            made = function(made, ctx.cast(op.reshape(factor, shape), made.dtype))
    return ctx.cast(made, x.dtype), mean, variance, rstd


@dataclass(frozen=True)
class _Running:
    """The arguments of PyTorch's batch normalisation by running statistics, after the others."""

    mean: RelaxExpr | None
    var: RelaxExpr | None
    training: bool
    momentum: float
    eps: float
    cudnn_enabled: bool = True


@converts("aten.batch_norm.default", form=_Running)
def _batch_norm(
    ctx: Context, x: RelaxExpr, weight: RelaxExpr | None, bias: RelaxExpr | None, form: _Running
) -> RelaxExpr:
    if form.training and form.mean is not None:
        raise ctx.error(
            "batch normalisation updates its running statistics, which this form of the operator "
            "hides: call model.eval() before torch.export"
        )
    if form.mean is None or form.var is None:
        return _trained(ctx, x, weight, bias, form.eps)[0]
    return batch_normalized(ctx, x, weight, bias, form.mean, form.var, form.eps)


@converts("aten._native_batch_norm_legit.no_stats")
def _batch_norm_no_stats(
    ctx: Context, x: RelaxExpr, weight: RelaxExpr | None, bias: RelaxExpr | None, training: bool,
    momentum: float, eps: float,
) -> Results:  # fmt: skip
    made, mean, _, rstd = _trained(ctx, x, weight, bias, eps)
    return [made, _as_result(ctx, 1, mean), _as_result(ctx, 2, rstd)]


@converts("aten._native_batch_norm_legit_functional.default", form=_Running)
def _batch_norm_functional(
    ctx: Context, x: RelaxExpr, weight: RelaxExpr | None, bias: RelaxExpr | None, form: _Running
) -> Results:
    """The last two results are the new running statistics."""
    running_mean, running_var, momentum = form.mean, form.var, form.momentum
    assert running_mean is not None and running_var is not None  # by the operator's schema
    if not form.training:
        made = batch_normalized(ctx, x, weight, bias, running_mean, running_var, form.eps)
        kept = (_as_result(ctx, 3, running_mean), _as_result(ctx, 4, running_var))
        return [made, _nothing(ctx, 1), _nothing(ctx, 2), *kept]
    made, mean, variance, rstd = _trained(ctx, x, weight, bias, form.eps)
    count = element_count([extent for axis, extent in enumerate(x.shape) if axis != 1])
    n = ctx.emit(ctx.tensor(count, variance.dtype))
    # PyTorch normalises by n, but keeps the estimate by n - 1.
    unbiased = op.multiply(variance, op.divide(n, op.subtract(n, ctx.tensor(1.0, n.dtype))))

    def moved(number: int, running: RelaxExpr, new: RelaxExpr) -> RelaxExpr:
        running = ctx.cast(running, new.dtype)
        step = op.multiply(op.reshape(new, running.shape), ctx.tensor(float(momentum), new.dtype))
        rest = op.multiply(running, ctx.tensor(1.0 - momentum, new.dtype))
        return _as_result(ctx, number, op.add(rest, step))

    return [
        made,
        _as_result(ctx, 1, mean),
        _as_result(ctx, 2, rstd),
        moved(3, running_mean, mean),
        moved(4, running_var, unbiased),
    ]
