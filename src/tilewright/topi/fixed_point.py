"""Products with fixed-point numbers, rounded half up, as quantised networks rescale sums."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import Expr, ExprLike, as_int, const
from tilewright.ir import cast as cast_expr
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, require_equal, with_conditions
from tilewright.te.arithmetic import map_elements
from tilewright.topi.utils import normal_axes, require_ndim

_BITS = 31
"""Bits after the point of a multiplier."""
_WIDE = "int64"


def fixed_point_multiply(x: Tensor, multiplier: ExprLike, shift: ExprLike) -> Tensor:
    """Return ``round(x * multiplier * 2**(shift - 31))`` of int32; halves are rounded up.

    Raises ``VerifyError`` unless ``x`` is int32, and ``shift`` is a number from -32 to 31.
    """
    what = "fixed_point_multiply"
    _require_int32(what, x)
    places = as_int(shift)
    if places is None or not -_BITS <= places <= _BITS:
        raise VerifyError(f"{what}: shift is a number from {-_BITS} to {_BITS}, got {shift!r}")
    factor, right = const(multiplier, _WIDE), _BITS - places

    def rescaled(value: Expr) -> Expr:
        made: Expr = cast_expr(value, _WIDE) * factor
        if right:
            made = (made + const(1 << (right - 1), _WIDE)) >> const(right, _WIDE)
        return cast_expr(made, "int32")

    return map_elements(x, rescaled, what)


@with_conditions
def fixed_point_multiply_per_axis(
    x: Tensor,
    y: Tensor,
    lshift: Tensor,
    rshift: Tensor,
    is_lshift_required: int | bool,
    is_rshift_required: int | bool,
    axes: int | Sequence[int],
) -> Tensor:
    """Return ``round((x << lshift) * y * 2**(-31 - rshift))`` of int32; halves are rounded up.

    ``y``, ``lshift`` and ``rshift`` have a number for each place along ``axes`` of ``x``; shifts
    that aren't required are 0.

    Raises ``VerifyError`` unless all are int32 and have these extents.
    """
    what = "fixed_point_multiply_per_axis"
    along = normal_axes(axes, x.ndim)
    tables = [
        y,
        *([lshift] if is_lshift_required else []),
        *([rshift] if is_rshift_required else []),
    ]
    for tensor in (x, *tables):
        _require_int32(what, tensor)
    for tensor in tables:
        require_ndim(what, tensor, len(along))
        for axis, extent in zip(along, tensor.shape):
            require_equal(f"{what}: {tensor.name} and axis {axis}", extent, x.shape[axis])

    def element(*i: Expr) -> Expr:
        at = [i[axis] for axis in along]
        value: Expr = cast_expr(x(*i), _WIDE)
        if is_lshift_required:
            value = value << cast_expr(lshift(*at), _WIDE)
        right: Expr = const(_BITS, _WIDE)
        if is_rshift_required:
            right = right + cast_expr(rshift(*at), _WIDE)
        half = const(1, _WIDE) << (right - const(1, _WIDE))
        return cast_expr((value * cast_expr(y(*at), _WIDE) + half) >> right, "int32")

    made: Tensor = compute(x.shape, element, name=what, tag="injective")
    return made


def _require_int32(what: str, x: Tensor) -> None:
    if x.dtype != "int32":
        raise VerifyError(f"{what} takes int32, {x.name} is {x.dtype}")
