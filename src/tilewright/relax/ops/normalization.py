"""Softmax, normalisation and padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te, topi
from tilewright.arith import simplify
from tilewright.ir import Expr, as_int, dtypes, product
from tilewright.relax.conditions import require_equal
from tilewright.relax.expr import RelaxCall, RelaxExpr, Tuple
from tilewright.relax.ops.binary import add, multiply
from tilewright.relax.ops.common import known, tensor_like
from tilewright.relax.ops.create import ones_like, zeros_like
from tilewright.relax.ops.manipulate import reshape
from tilewright.relax.ops.reduce import mean as mean_of
from tilewright.relax.ops.reduce import variance
from tilewright.relax.ops.unary import astype, rsqrt
from tilewright.relax.registry import Tensor, builder, operator, renamed
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


@operator(
    "nn.layer_norm",
    legalize=renamed(topi.nn.layer_norm, axes="axis"),
    prepare=lambda data, gamma, beta, axes, epsilon: {
        "axes": normal_axes(axes, data.struct_info.ndim)
    },
)
def layer_norm(
    data: Tensor,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    axes: tuple[int, ...] | int = -1,
    epsilon: float = 1e-5,
) -> StructInfo:
    """Normalise to mean 0 and variance 1 over ``axes``, then scale by gamma and add beta.

    Without ``gamma`` there is no ``beta`` either.
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
    return made


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
    training: bool = False,
) -> StructInfo:
    """Normalise each channel by running statistics, then scale by gamma and add beta.

    With ``training`` the statistics are the batch's own, and the result is a tuple: the normalised
    tensor, and the running mean and (biased) variance, moved towards the batch's by the share
    ``momentum``. Without ``scale`` gamma has no part, without ``center`` beta has none.
    """
    channel = (normal_axis(axis, data.ndim),)
    _check_scales(
        data, channel, ("gamma", gamma), ("beta", beta), ("moving_mean", moving_mean),
        ("moving_var", moving_var),
    )  # fmt: skip
    made = tensor_like(data)
    if not training:
        return made
    statistics = (tensor_like(moving_mean), tensor_like(moving_var))
    return TupleStructInfo((made, *statistics))


@builder("nn.group_norm")
def group_norm(
    data: RelaxExpr,
    gamma: RelaxExpr,
    beta: RelaxExpr,
    num_groups: int,
    epsilon: float = 1e-5,
) -> RelaxExpr:
    """Normalise groups of channels (axis 1), then scale and shift each channel.

    Raises ``VerifyError`` if the number of channels isn't known, or the groups don't divide it.
    """
    shape = data.shape
    channels = shape[1]
    known_channels = as_int(channels)
    if known_channels is None or num_groups < 1 or known_channels % num_groups:
        raise VerifyError(f"group_norm: {channels} channels can't be divided into {num_groups}")
    size = product([known_channels // num_groups, *shape[2:]])
    grouped = reshape(data, (shape[0], num_groups, size))
    wide = sum_dtype(data.dtype)  # half floats are rounded once
    normal = reshape(layer_norm(_as(wide, grouped), None, None, (2,), epsilon), shape)
    view = [channels if axis == 1 else 1 for axis in range(len(shape))]
    scale, shift = (_as(wide, reshape(item, view)) for item in (gamma, beta))
    return _as(data.dtype, add(multiply(normal, scale), shift))


def _as(dtype: str, x: RelaxExpr) -> RelaxExpr:
    return x if x.dtype == dtype else astype(x, dtype)


# ---- padding ---------------------------------------------------------------------------------


def _pad_pairs(pad_width: Sequence[int]) -> list[tuple[int, int]]:
    flat = list(pad_width)
    return list(zip(flat[0::2], flat[1::2]))


def _pad_topi(data: te.Tensor, pad_width: Sequence[int], pad_value: float) -> te.Tensor:
    pairs = _pad_pairs(pad_width)
    return topi.nn.pad(data, [p[0] for p in pairs], [p[1] for p in pairs], pad_value)


@operator("nn.pad", legalize=_pad_topi)
def pad(data: Tensor, pad_width: tuple[int, ...], pad_value: float = 0.0) -> StructInfo:
    """Pad: ``pad_width`` has the elements before and after each axis in turn.

    Raises ``VerifyError`` for a wrong number of widths.
    """
    if not isinstance(pad_value, (int, float)):
        raise VerifyError(f"pad_value must be a number, got {pad_value!r}")
    shape = known(data, "data")
    if len(pad_width) != 2 * len(shape):
        raise VerifyError(
            f"pad_width takes {2 * len(shape)} numbers for {len(shape)} axes, got {len(pad_width)}"
        )
    extents: list[Expr] = [
        simplify(extent + (before + after))
        for extent, (before, after) in zip(shape, _pad_pairs(pad_width))
    ]
    return TensorStructInfo(extents, data.dtype)
