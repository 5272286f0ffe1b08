"""Normalisations. Sums are kept in at least float32; variances take two passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.ir import Expr, as_expr, const, product
from tilewright.ir import cast as cast_expr
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, with_conditions
from tilewright.tir.float_division import fast_dtype
from tilewright.topi.utils import normal_axes, normal_axis, require_along, require_groups


def _sum_over(x: Any, shape: Sequence[Any], axes: tuple[int, ...], name: str) -> Tensor:
    """Sum the formula ``x(*indices)`` over some axes of a shape."""
    reduced = {a: te.reduce_axis((0, shape[a]), f"k{a}") for a in axes}

    def formula(*i: Expr) -> Any:
        rest = iter(i)
        indices = [reduced[a].var if a in reduced else next(rest) for a in range(len(shape))]
        return te.sum(x(*indices), axis=list(reduced.values()))

    outer = tuple(extent for a, extent in enumerate(shape) if a not in axes)
    made: Tensor = compute(outer, formula, name=name, tag="comm_reduce")
    return made


@with_conditions
def layer_norm(
    data: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    axis: int | Sequence[int] | None = -1,
    epsilon: float = 1e-5,
) -> Tensor:
    """``(data - mean) / sqrt(var + epsilon) * gamma + beta`` over the axes.

    ``gamma`` and ``beta`` have the shape of the normalised axes.
    """
    axes = normal_axes(axis, data.ndim)
    return _standardized("layer_norm", data, (gamma, beta), axes, axes, epsilon)


@with_conditions
def instance_norm(
    data: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    channel_axis: int = 1,
    axis: int | Sequence[int] | None = None,
    epsilon: float = 1e-5,
) -> Tensor:
    """Normalise over the axes (if not given, those behind the channels), each channel of an image.

    ``gamma`` and ``beta``: ``[C]``, one number per index of ``channel_axis``.
    """
    channel = normal_axis(channel_axis, data.ndim)
    axes = tuple(range(channel + 1, data.ndim)) if axis is None else normal_axes(axis, data.ndim)
    return _standardized("instance_norm", data, (gamma, beta), axes, (channel,), epsilon)


def _standardized(
    what: str,
    x: Tensor,
    affine: tuple[Tensor | None, Tensor | None],
    axes: tuple[int, ...],
    along: tuple[int, ...],
    epsilon: float,
) -> Tensor:
    """``(x - mean) / sqrt(var + epsilon)`` over some axes, times and plus tensors of others."""
    gamma, beta = affine
    wide = fast_dtype(x.dtype)
    count = cast_expr(product([x.shape[a] for a in axes]), wide)
    require_along(what, x, along, gamma, beta)

    def outer(i: Sequence[Expr]) -> tuple[Expr, ...]:
        return tuple(index for a, index in enumerate(i) if a not in axes)

    total = _sum_over(lambda *i: cast_expr(x(*i), wide), x.shape, axes, f"{what}_sum")

    def centered(*i: Expr) -> Expr:
        return cast_expr(x(*i), wide) - total(*outer(i)) / count

    squares = _sum_over(lambda *i: centered(*i) * centered(*i), x.shape, axes, f"{what}_square_sum")

    def formula(*i: Expr) -> Expr:
        inner = tuple(i[a] for a in along)
        scale = te.rsqrt(squares(*outer(i)) / count + const(epsilon, wide))
        value = centered(*i) * scale
        if gamma is not None:
            value = value * cast_expr(gamma(*inner), wide)
        if beta is not None:
            value = value + cast_expr(beta(*inner), wide)
        return cast_expr(value, x.dtype)

    made: Tensor = compute(x.shape, formula, name=what, tag="norm")
    return made


@with_conditions
def rms_norm(
    data: Tensor,
    weight: Tensor | None,
    axis: int | Sequence[int] | None = -1,
    epsilon: float = 1e-5,
) -> Tensor:
    """``data / sqrt(mean(data²) + epsilon) * weight`` over the axes."""
    axes = normal_axes(axis, data.ndim)
    wide = fast_dtype(data.dtype)
    count = cast_expr(product([data.shape[a] for a in axes]), wide)
    require_along("rms_norm", data, axes, weight)

    def element(*i: Expr) -> Expr:
        return cast_expr(data(*i), wide)

    squares = _sum_over(
        lambda *i: element(*i) * element(*i), data.shape, axes, "rms_norm_square_sum"
    )

    def formula(*i: Expr) -> Expr:
        outer = tuple(index for a, index in enumerate(i) if a not in axes)
        value = element(*i) * te.rsqrt(squares(*outer) / count + const(epsilon, wide))
        if weight is not None:
            value = value * cast_expr(weight(*(i[a] for a in axes)), wide)
        return cast_expr(value, data.dtype)

    made: Tensor = compute(data.shape, formula, name="rms_norm", tag="norm")
    return made


@with_conditions
def batch_norm(
    data: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    moving_mean: Tensor,
    moving_var: Tensor,
    axis: int | None = None,
    epsilon: float | None = None,
    center: bool | None = None,
    scale: bool | None = None,
    training: bool | None = None,
    momentum: float | None = None,
) -> list[Tensor]:
    """``(data - mean) / sqrt(var + epsilon) * gamma + beta`` per channel (``axis``, else 1).

    Without ``center``, ``beta`` is not added; without ``scale``, ``gamma`` is no factor. The result
    has three tensors: the normalised data, and the moving mean and variance. In ``training``, mean
    and (biased) variance are those of the batch, which the moving ones approach by ``momentum``
    (0.1). By default both are used, ``epsilon`` is 1e-5, and nothing is trained.
    """
    axis = normal_axis(1 if axis is None else axis, data.ndim)
    epsilon = 1e-5 if epsilon is None else epsilon
    momentum = 0.1 if momentum is None else momentum
    center, scale = center is not False, scale is not False
    require_along("batch_norm", data, (axis,), gamma, beta, moving_mean, moving_var)
    kept_gamma, kept_beta = gamma if scale else None, beta if center else None
    if not training:
        affine = kept_gamma, kept_beta
        made = _by_channel(data, affine, moving_mean, moving_var, axis, epsilon)
        return [made, moving_mean, moving_var]
    wide = fast_dtype(data.dtype)
    axes = tuple(a for a in range(data.ndim) if a != axis)
    count = cast_expr(product([data.shape[a] for a in axes]), wide)
    total = _sum_over(lambda *i: cast_expr(data(*i), wide), data.shape, axes, "batch_norm_sum")
    mean: Tensor = compute(total.shape, lambda c: total(c) / count, name="batch_mean")

    def deviation(*i: Expr) -> Expr:
        return cast_expr(data(*i), wide) - mean(i[axis])

    squares = _sum_over(
        lambda *i: deviation(*i) * deviation(*i), data.shape, axes, "batch_norm_square_sum"
    )
    var: Tensor = compute(total.shape, lambda c: squares(c) / count, name="batch_var")
    made = _by_channel(data, (kept_gamma, kept_beta), mean, var, axis, epsilon)
    return [made, _approached(moving_mean, mean, momentum), _approached(moving_var, var, momentum)]


def _approached(moving: Tensor, now: Tensor, momentum: float) -> Tensor:
    """``moving``, moved towards what is measured by a share ``momentum`` of the distance."""

    def formula(c: Expr) -> Expr:
        kept = cast_expr(moving(c), now.dtype) * const(1 - momentum, now.dtype)
        value: Expr = cast_expr(kept + now(c) * const(momentum, now.dtype), moving.dtype)
        return value

    made: Tensor = compute(moving.shape, formula, name=f"new_{moving.name}")
    return made


def _by_channel(
    x: Tensor,
    affine: tuple[Tensor | None, Tensor | None],
    mean: Tensor,
    var: Tensor,
    axis: int,
    epsilon: float,
) -> Tensor:
    gamma, beta = affine
    wide = fast_dtype(x.dtype)

    def formula(*i: Expr) -> Expr:
        def channel(tensor: Tensor) -> Expr:
            return cast_expr(tensor(i[axis]), wide)

        scale = te.rsqrt(channel(var) + const(epsilon, wide))
        value = (cast_expr(x(*i), wide) - channel(mean)) * scale
        if gamma is not None:
            value = value * channel(gamma)
        if beta is not None:
            value = value + channel(beta)
        return cast_expr(value, x.dtype)

    made: Tensor = compute(x.shape, formula, name="batch_norm", tag="broadcast")
    return made


@with_conditions
def group_norm(
    data: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    num_groups: int,
    channel_axis: int = 1,
    axes: int | Sequence[int] | None = None,
    epsilon: float = 1e-5,
) -> Tensor:
    """Normalise groups of channels, over ``axes`` too (if not given, those behind the channels).

    ``gamma`` and ``beta``: ``[C]``, one number per index of ``channel_axis``.

    Raises ``VerifyError`` if channels don't divide into the groups, or are named by ``axes``.
    """
    wide = fast_dtype(data.dtype)
    at = normal_axis(channel_axis, data.ndim)
    others = tuple(range(at + 1, data.ndim)) if axes is None else normal_axes(axes, data.ndim)
    if at in others:
        raise VerifyError(f"group_norm: axes {list(others)} include that of the channels, {at}")
    require_groups("group_norm", "channels", data.shape[at], num_groups)
    require_along("group_norm", data, (at,), gamma, beta)
    members = data.shape[at] // num_groups
    shape = (*data.shape[:at], num_groups, members, *data.shape[at + 1 :])
    summed = (*(a for a in others if a < at), at + 1, *(a + 1 for a in others if a > at))
    count = cast_expr(product([as_expr(shape[a]) for a in summed]), wide)

    def element(*i: Expr) -> Expr:
        return cast_expr(data(*i[:at], i[at] * members + i[at + 1], *i[at + 2 :]), wide)

    def group_of(i: Sequence[Expr]) -> tuple[Expr, ...]:
        return tuple(index for a, index in enumerate(i) if a not in summed)

    total = _sum_over(element, shape, summed, "group_norm_sum")

    def centered(*i: Expr) -> Expr:
        return element(*i) - total(*group_of(i)) / count

    squares = _sum_over(
        lambda *i: centered(*i) * centered(*i), shape, summed, "group_norm_square_sum"
    )

    def formula(*i: Expr) -> Expr:
        channel = i[at]
        group = group_of((*i[:at], channel // members, const(0), *i[at + 1 :]))
        scale = te.rsqrt(squares(*group) / count + const(epsilon, wide))
        value = (cast_expr(data(*i), wide) - total(*group) / count) * scale
        if gamma is not None:
            value = value * cast_expr(gamma(channel), wide)
        if beta is not None:
            value = value + cast_expr(beta(channel), wide)
        return cast_expr(value, data.dtype)

    made: Tensor = compute(data.shape, formula, name="group_norm", tag="norm")
    return made
