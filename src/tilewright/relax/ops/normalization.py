"""Softmax, normalisation and padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te, topi
from tilewright.arith import simplify
from tilewright.ir import ExprLike, as_int, dtypes, product
from tilewright.relax.conditions import require_equal
from tilewright.relax.expr import RelaxCall, RelaxExpr, Tuple
from tilewright.relax.ops.binary import add, multiply
from tilewright.relax.ops.common import known, same_dtype, tensor_like
from tilewright.relax.ops.create import ones_like, zeros_like
from tilewright.relax.ops.manipulate import reshape
from tilewright.relax.ops.reduce import mean as mean_of
from tilewright.relax.ops.reduce import variance
from tilewright.relax.ops.unary import astype, rsqrt
from tilewright.relax.registry import Tensor, operator, renamed
from tilewright.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from tilewright.support.errors import VerifyError
from tilewright.topi.utils import normal_axes, normal_axis, sum_dtype

# ---- softmax and normalisation ---------------------------------------------------------------


@operator("nn.softmax", legalize=topi.nn.softmax)
def softmax(data: Tensor, axis: int = -1) -> StructInfo:
    """Exponentials that sum to one along an axis."""
    normal_axis(axis, data.ndim)
    return tensor_like(data)


@operator("nn.log_softmax", legalize=topi.nn.log_softmax)
def log_softmax(data: Tensor, axis: int = -1) -> StructInfo:
    """Logarithm of softmax."""
    normal_axis(axis, data.ndim)
    return tensor_like(data)


def _check_scales(info: TensorStructInfo, axes: tuple[int, ...], *scales: tuple[str, Any]) -> None:
    if not dtypes.is_float(info.dtype):
        raise VerifyError(f"normalises floating-point numbers, got {info.dtype}")
    for name, scale in scales:
        if scale is None:
            continue
        if not dtypes.is_float(scale.dtype):
            raise VerifyError(f"{name} must be of a floating-point dtype, got {scale.dtype}")
        shape = known(scale, name)
        if len(shape) != len(axes):
            raise VerifyError(f"{name} must have {len(axes)} dimensions, it has {len(shape)}")
        for extent, axis in zip(shape, axes):
            require_equal(f"extent of {name} for axis {axis}", extent, known(info)[axis])


def _affine(
    made: RelaxExpr,
    gamma: RelaxExpr | None,
    beta: RelaxExpr | None,
    view: Sequence[ExprLike],
    dtype: str,
) -> RelaxExpr:
    """Scale and shift what is normalised, then round it once to a dtype."""
    for scale, function in ((gamma, multiply), (beta, add)):
        if scale is not None:
            made = function(made, reshape(_as(made.dtype, scale), view))
    return _as(dtype, made)


def _usual_layer_norm(call: RelaxCall) -> RelaxExpr | None:
    """Without ``scale`` or ``center``: normalised alone, and what is left of the rest."""
    options = dict(call.attrs)
    center, scale = options.pop("center"), options.pop("scale")
    data, *rest = call.args
    gamma, beta = (*rest, None, None)[:2]
    if (scale or gamma is None) and (center or beta is None):
        return None
    wide = sum_dtype(data.dtype)  # half floats are rounded once
    made = layer_norm(_as(wide, data), None, None, **options)
    view: list[ExprLike] = [e if n in options["axes"] else 1 for n, e in enumerate(data.shape)]
    return _affine(made, gamma if scale else None, beta if center else None, view, data.dtype)


def _normalised(
    data: te.Tensor, gamma: te.Tensor | None, beta: te.Tensor | None, *, axes: tuple[int, ...],
    epsilon: float, center: bool, scale: bool,
) -> te.Tensor:  # fmt: skip
    assert (center or beta is None) and (scale or gamma is None)
    return topi.nn.layer_norm(data, gamma, beta, axes, epsilon)


@operator(
    "nn.layer_norm",
    legalize=_normalised,
    usual=_usual_layer_norm,
    prepare=lambda data, axes, **_: {"axes": normal_axes(axes, data.struct_info.ndim)},
)
def layer_norm(
    data: Tensor,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    axes: tuple[int, ...] | int = -1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> StructInfo:
    """Normalise to mean 0 and variance 1 over ``axes``, then scale by gamma and add beta.

    Without ``gamma`` there is no ``beta`` either. Without ``scale`` gamma has no part, without
    ``center`` beta has none.
    """
    _check_scales(data, normal_axes(axes, data.ndim), ("gamma", gamma), ("beta", beta))
    return tensor_like(data)


@operator(
    "nn.rms_norm",
    legalize=renamed(topi.nn.rms_norm, axes="axis"),
    prepare=lambda data, weight, axes, epsilon: {"axes": normal_axes(axes, data.struct_info.ndim)},
)
def rms_norm(
    data: Tensor, weight: Tensor, axes: tuple[int, ...] | int = -1, epsilon: float = 1e-5
) -> StructInfo:
    """Divide by the root mean square over ``axes``, then scale by weight."""
    _check_scales(data, normal_axes(axes, data.ndim), ("weight", weight))
    return tensor_like(data)


def _batch_norm_arithmetic(call: RelaxCall) -> RelaxExpr:
    """``x * scale + shift`` per channel: with constant statistics both fold into constants."""
    data, gamma, beta, mean, var = call.args
    options = call.attrs
    gamma = gamma if options["scale"] else ones_like(gamma)
    beta = beta if options["center"] else zeros_like(beta)
    if options["training"]:
        return _batch_norm_of_batch(data, gamma, beta, mean, var, options)
    scale = gamma * rsqrt(var + options["epsilon"])
    shift = beta - mean * scale
    axis = options["axis"]
    made: RelaxExpr = add(
        multiply(data, _per_channel(scale, data, axis)), _per_channel(shift, data, axis)
    )
    return Tuple((made, mean, var))


def _per_channel(x: RelaxExpr, data: RelaxExpr, axis: int) -> RelaxExpr:
    ndim = len(data.shape)
    return reshape(x, [data.shape[axis] if n == axis else 1 for n in range(ndim)])


def _batch_norm_of_batch(
    data: RelaxExpr,
    gamma: RelaxExpr,
    beta: RelaxExpr,
    mean: RelaxExpr,
    var: RelaxExpr,
    options: Any,
) -> RelaxExpr:
    """By the batch's own statistics, which the running ones move towards."""
    axis, share = options["axis"], float(options["momentum"])
    axes = tuple(n for n in range(len(data.shape)) if n != axis)
    own_mean, own_var = mean_of(data, axes), variance(data, axes)
    centred = data - _per_channel(own_mean, data, axis)
    scale = gamma * rsqrt(own_var + options["epsilon"])
    made = centred * _per_channel(scale, data, axis) + _per_channel(beta, data, axis)
    moved = [old * (1 - share) + new * share for old, new in ((mean, own_mean), (var, own_var))]
    return Tuple((made, *moved))


@operator(
    "nn.batch_norm",
    decompose=_batch_norm_arithmetic,
    prepare=lambda data, axis, **_: {"axis": normal_axes(axis, data.struct_info.ndim)[0]},
)
def batch_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
    momentum: float = 0.1,
    training: bool = True,
) -> StructInfo:
    """Normalise each channel, then scale by gamma and add beta; also give the running statistics.

    The result is a tuple: the normalised tensor, the running mean and the running variance. With
    ``training`` the statistics are the batch's own, and the running ones (biased, too) move towards
    these by the share ``momentum``; else they are the running ones. Without ``scale`` gamma has no
    part, without ``center`` beta has none. All have one dtype.
    """
    channel = (normal_axis(axis, data.ndim),)
    _check_scales(
        data, channel, ("gamma", gamma), ("beta", beta), ("moving_mean", moving_mean),
        ("moving_var", moving_var),
    )  # fmt: skip
    same_dtype(data, gamma, beta, moving_mean, moving_var)
    return TupleStructInfo(tuple(map(tensor_like, (data, moving_mean, moving_var))))


# ---- groups and instances ----------------------------------------------------------------------


def _prepared_axes(data: RelaxExpr, channel_axis: int, axes: object, **_: object) -> dict[str, Any]:
    """Axes counted from the first one."""
    return {
        "channel_axis": normal_axis(channel_axis, data.ndim),
        "axes": normal_axes(axes, data.ndim),
    }


def _check_channels(
    data: TensorStructInfo,
    gamma: TensorStructInfo,
    beta: TensorStructInfo,
    channel_axis: int,
    axes: Sequence[int] | int,
) -> StructInfo:
    channel = normal_axis(channel_axis, data.ndim)
    if channel in normal_axes(axes, data.ndim):
        raise VerifyError(f"the axis of channels, {channel}, isn't one of axes, got {axes}")
    _check_scales(data, (channel,), ("gamma", gamma), ("beta", beta))
    return tensor_like(data)


def _channel_scales(call: RelaxCall) -> tuple[RelaxExpr | None, RelaxExpr | None, list[ExprLike]]:
    """The scale and the shift of each channel, and their shape beside the data's."""
    data, gamma, beta = call.args
    options = call.attrs
    view: list[ExprLike] = [
        e if n == options["channel_axis"] else 1 for n, e in enumerate(data.shape)
    ]
    return gamma if options["scale"] else None, beta if options["center"] else None, view


def _group_norm_arithmetic(call: RelaxCall) -> RelaxExpr:
    """Groups apart from the channels in them; then a layer norm, and scales."""
    data, options = call.args[0], call.attrs
    channel, groups = options["channel_axis"], options["num_groups"]
    shape = list(data.shape)
    inner = simplify(shape[channel] // groups)
    apart: list[ExprLike] = [*shape[:channel], groups, inner, *shape[channel + 1 :]]
    axes = sorted({channel + 1, *(axis + (axis > channel) for axis in options["axes"])})
    if axes == list(range(axes[0], len(apart))):
        # What is normalised is one axis, which schedules know better.
        apart = [*apart[: axes[0]], product(apart[axes[0] :])]
        axes = [axes[0]]
    wide = sum_dtype(data.dtype)  # half floats are rounded once
    rows = _as(wide, reshape(data, apart))
    made = reshape(layer_norm(rows, None, None, axes, options["epsilon"]), shape)
    return _affine(made, *_channel_scales(call), data.dtype)


@operator("nn.group_norm", decompose=_group_norm_arithmetic, prepare=_prepared_axes)
def group_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    num_groups: int,
    channel_axis: int,
    axes: tuple[int, ...] | int,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> StructInfo:
    """Normalise each group of channels over ``axes`` too, then scale and shift each channel.

    ``axes`` don't contain ``channel_axis``. Without ``scale`` gamma has no part, without ``center``
    beta has none.

    Raises ``VerifyError`` if the number of channels isn't known, or the groups don't divide it.
    """
    channels = known(data, "data")[normal_axis(channel_axis, data.ndim)]
    count = as_int(channels)
    if count is None or num_groups < 1 or count % num_groups:
        raise VerifyError(f"{channels} channels can't be divided into {num_groups}")
    return _check_channels(data, gamma, beta, channel_axis, axes)


def _instance_norm_arithmetic(call: RelaxCall) -> RelaxExpr:
    data, options = call.args[0], call.attrs
    wide = sum_dtype(data.dtype)  # half floats are rounded once
    made = layer_norm(_as(wide, data), None, None, options["axes"], options["epsilon"])
    return _affine(made, *_channel_scales(call), data.dtype)


@operator("nn.instance_norm", decompose=_instance_norm_arithmetic, prepare=_prepared_axes)
def instance_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    channel_axis: int,
    axes: tuple[int, ...] | int,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> StructInfo:
    """Normalise each channel of each image over ``axes``, then scale and shift each channel.

    ``axes`` don't contain ``channel_axis``. Without ``scale`` gamma has no part, without ``center``
    beta has none.
    """
    return _check_channels(data, gamma, beta, channel_axis, axes)


def _as(dtype: str, x: RelaxExpr) -> RelaxExpr:
    return x if x.dtype == dtype else astype(x, dtype)


@operator("nn.dropout", decompose=lambda call: Tuple((call.args[0], ones_like(call.args[0]))))
def dropout(data: Tensor, rate: float = 0.5) -> StructInfo:
    """Return the data itself and a mask of ones: graphs are compiled for inference.

    Raises ``VerifyError`` for a rate outside of ``[0, 1)``.
    """
    if not 0 <= rate < 1:
        raise VerifyError(f"rate must be in [0, 1), got {rate}")
    return TupleStructInfo((tensor_like(data), tensor_like(data)))
