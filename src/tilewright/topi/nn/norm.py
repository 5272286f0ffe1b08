"""Normalisations. Sums are kept in at least float32; variances take two passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.ir import Expr, as_expr, const, product
from tilewright.ir import cast as cast_expr
from tilewright.te import Tensor, compute, with_conditions
from tilewright.topi.elementwise import fast_dtype
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
    x: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    axis: int | Sequence[int] | None = -1,
    epsilon: float = 1e-5,
) -> Tensor:
    """``(x - mean) / sqrt(var + epsilon) * gamma + beta`` over the axes.

    ``gamma`` and ``beta`` have the shape of the normalised axes.
    """
    axes = normal_axes(axis, x.ndim)
    wide = fast_dtype(x.dtype)
    count = cast_expr(product([x.shape[a] for a in axes]), wide)
    require_along("layer_norm", x, axes, gamma, beta)

    def outer(i: Sequence[Expr]) -> tuple[Expr, ...]:
        return tuple(index for a, index in enumerate(i) if a not in axes)

    total = _sum_over(lambda *i: cast_expr(x(*i), wide), x.shape, axes, "layer_norm_sum")

    def centered(*i: Expr) -> Expr:
        return cast_expr(x(*i), wide) - total(*outer(i)) / count

    squares = _sum_over(
        lambda *i: centered(*i) * centered(*i), x.shape, axes, "layer_norm_square_sum"
    )

    def formula(*i: Expr) -> Expr:
        inner = tuple(i[a] for a in axes)
        scale = te.rsqrt(squares(*outer(i)) / count + const(epsilon, wide))
        value = centered(*i) * scale
        if gamma is not None:
            value = value * cast_expr(gamma(*inner), wide)
        if beta is not None:
            value = value + cast_expr(beta(*inner), wide)
        return cast_expr(value, x.dtype)

    made: Tensor = compute(x.shape, formula, name="layer_norm", tag="norm")
    return made


@with_conditions
def rms_norm(
    x: Tensor, weight: Tensor | None, axis: int | Sequence[int] | None = -1, epsilon: float = 1e-5
) -> Tensor:
    """``x / sqrt(mean(x²) + epsilon) * weight`` over the axes."""
    axes = normal_axes(axis, x.ndim)
    wide = fast_dtype(x.dtype)
    count = cast_expr(product([x.shape[a] for a in axes]), wide)
    require_along("rms_norm", x, axes, weight)

    def element(*i: Expr) -> Expr:
        return cast_expr(x(*i), wide)

    squares = _sum_over(lambda *i: element(*i) * element(*i), x.shape, axes, "rms_norm_square_sum")

    def formula(*i: Expr) -> Expr:
        outer = tuple(index for a, index in enumerate(i) if a not in axes)
        value = element(*i) * te.rsqrt(squares(*outer) / count + const(epsilon, wide))
        if weight is not None:
            value = value * cast_expr(weight(*(i[a] for a in axes)), wide)
        return cast_expr(value, x.dtype)

    made: Tensor = compute(x.shape, formula, name="rms_norm", tag="norm")
    return made


@with_conditions
def batch_norm(
    x: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    moving_mean: Tensor,
    moving_var: Tensor,
    axis: int = 1,
    epsilon: float = 1e-5,
) -> Tensor:
    """Inference form: ``(x - mean) / sqrt(var + epsilon) * gamma + beta`` per channel."""
    axis = normal_axis(axis, x.ndim)
    wide = fast_dtype(x.dtype)
    require_along("batch_norm", x, (axis,), gamma, beta, moving_mean, moving_var)

    def formula(*i: Expr) -> Expr:
        def channel(tensor: Tensor) -> Expr:
            return cast_expr(tensor(i[axis]), wide)

        scale = te.rsqrt(channel(moving_var) + const(epsilon, wide))
        value = (cast_expr(x(*i), wide) - channel(moving_mean)) * scale
        if gamma is not None:
            value = value * channel(gamma)
        if beta is not None:
            value = value + channel(beta)
        return cast_expr(value, x.dtype)

    made: Tensor = compute(x.shape, formula, name="batch_norm", tag="broadcast")
    return made


@with_conditions
def group_norm(
    x: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    num_groups: int,
    epsilon: float = 1e-5,
) -> Tensor:
    """Normalise groups of channels of ``x [N, C, ...]``; ``gamma``, ``beta``: ``[C]``."""
    wide = fast_dtype(x.dtype)
    require_groups("group_norm", "channels", x.shape[1], num_groups)
    require_along("group_norm", x, (1,), gamma, beta)
    members = x.shape[1] // num_groups
    shape = (x.shape[0], num_groups, members, *x.shape[2:])
    axes = tuple(range(2, len(shape)))
    count = cast_expr(product([as_expr(shape[a]) for a in axes]), wide)

    def element(n: Expr, group: Expr, member: Expr, *rest: Expr) -> Expr:
        return cast_expr(x(n, group * members + member, *rest), wide)

    total = _sum_over(element, shape, axes, "group_norm_sum")

    def centered(*i: Expr) -> Expr:
        return element(*i) - total(*i[:2]) / count

    squares = _sum_over(
        lambda *i: centered(*i) * centered(*i), shape, axes, "group_norm_square_sum"
    )

    def formula(n: Expr, channel: Expr, *rest: Expr) -> Expr:
        group = channel // members
        scale = te.rsqrt(squares(n, group) / count + const(epsilon, wide))
        value = (cast_expr(x(n, channel, *rest), wide) - total(n, group) / count) * scale
        if gamma is not None:
            value = value * cast_expr(gamma(channel), wide)
        if beta is not None:
            value = value + cast_expr(beta(channel), wide)
        return cast_expr(value, x.dtype)

    made: Tensor = compute(x.shape, formula, name="group_norm", tag="norm")
    return made
