"""Conversions between element types, with those that have no dtype here.

Values of a narrow type are kept in a wider dtype that has all of them; converting to it rounds as
the narrow type would.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright import te
from tilewright.ir import Expr, call, cast, const, dtypes, maximum, minimum, select
from tilewright.relax import ops as op
from tilewright.relax.frontend.onnx.converters.base import Context, Tensor, converts
from tilewright.relax.frontend.onnx.model import NARROW, dtype_named, element_name

_NAN, _INF = float("nan"), float("inf")
_INTEGERS = {"INT2": 2, "UINT2": 2, "INT4": 4, "UINT4": 4}


@dataclass(frozen=True)
class _Float:
    """A narrow float: bits of its mantissa, the exponent of its least normal number, limits."""

    mantissa: int
    least: int
    most: float
    infinity: float
    """What an infinite number becomes if it isn't made the greatest one."""
    signed_zero: bool = True
    has_nan: bool = True


_FLOATS = {
    "FLOAT8E4M3FN": _Float(3, -6, 448.0, _NAN),
    "FLOAT8E4M3FNUZ": _Float(3, -7, 240.0, _NAN, False),
    "FLOAT8E5M2": _Float(2, -14, 57344.0, _INF),
    "FLOAT8E5M2FNUZ": _Float(2, -15, 57344.0, _NAN, False),
    "FLOAT4E2M1": _Float(1, 0, 6.0, 6.0, has_nan=False),
}


def narrow_limits(element: str) -> tuple[int, int] | None:
    """The least and greatest of a narrow type of integers; ``None`` for other types."""
    bits = _INTEGERS.get(element)
    if bits is None:
        return None
    return (
        (0, (1 << bits) - 1) if element[0] == "U" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    )


@converts("Cast")
def _cast(ctx: Context, x: Tensor, *, to: int, saturate: int = 1, round_mode: str = "up") -> Tensor:
    return convert(ctx, x, element_name(to), bool(saturate), round_mode)


@converts("CastLike")
def _cast_like(
    ctx: Context, x: Tensor, like: Tensor, *, saturate: int = 1, round_mode: str = "up"
) -> Tensor:
    element = ctx.element(like)
    if element in NARROW:
        return convert(ctx, x, element, bool(saturate), round_mode)
    if element in _OF_DTYPE:
        return convert(ctx, x, _OF_DTYPE[element], bool(saturate), round_mode)
    return ctx.cast(x, element)


_OF_DTYPE = {"float8_e4m3fn": "FLOAT8E4M3FN", "float8_e5m2": "FLOAT8E5M2"}


def convert(
    ctx: Context, x: Tensor, element: str, saturate: bool = True, round_mode: str = "up"
) -> Tensor:
    """Convert to an ONNX element type, and note that the node's result is of it."""
    if element not in NARROW:
        return ctx.cast(x, dtype_named(element))
    ctx.element_of_result = element
    if element in _INTEGERS:
        return _cut(ctx, x, element)
    wide = ctx.cast(x, "float32")
    if element == "FLOAT8E8M0":
        ctx.choice("round_mode", round_mode, ("up", "down", "nearest"))
        return ctx.te(lambda t: _powers(t, round_mode, saturate), wide, name="cast_e8m0")
    form = _FLOATS[element]
    made = ctx.te(lambda t: _rounded(t, form, saturate), wide, name="cast_" + element.lower())
    return ctx.cast(made, dtype_named(element))


def _cut(ctx: Context, x: Tensor, element: str) -> Tensor:
    """The lowest bits of an integer, as a number of so few."""
    bits, signed = _INTEGERS[element], not element.startswith("U")
    if dtypes.is_float(x.dtype):
        x = op.astype(x, "int32")
    x = ctx.cast(x, "int8")
    low = op.bitwise_and(x, ctx.scalar((1 << bits) - 1, "int8"))
    if not signed:
        return op.astype(low, "uint8")
    half = ctx.scalar(1 << (bits - 1), "int8")
    return op.subtract(op.bitwise_xor(low, half), half)


def _rounded(x: te.Tensor, form: _Float, saturate: bool) -> te.Tensor:
    """Round float32 to the nearest number of a narrow type, ties to even."""

    def formula(*i: Expr) -> Expr:
        value = x(*i)
        size = call("fabs", value)
        drop = 23 - form.mantissa
        bits = call("reinterpret", size, dtype="uint32")
        odd = call(
            "bitwise_and", call("shift_right", bits, const(drop, "uint32")), const(1, "uint32")
        )
        moved = bits + const((1 << (drop - 1)) - 1, "uint32") + odd
        kept = call("bitwise_and", moved, const((0xFFFFFFFF >> drop) << drop, "uint32"))
        normal = call("reinterpret", kept, dtype="float32")
        step = 2.0 ** (form.least - form.mantissa)
        small = call("nearbyint", size * const(1 / step, "float32")) * const(step, "float32")
        made = select(size < const(2.0**form.least, "float32"), small, normal)
        most = const(form.most, "float32")
        beyond = made > most
        made = select(beyond, most if saturate else const(form.infinity, "float32"), made)
        signed = select(value < const(0.0, "float32"), -made, made)
        if form.signed_zero:
            signed = call("copysign", made, value)
        not_a_number = value != value
        return select(not_a_number, value if form.has_nan else const(0.0, "float32"), signed)

    made: te.Tensor = te.compute(x.shape, formula, name="rounded")
    return made


def _powers(x: te.Tensor, round_mode: str, saturate: bool) -> te.Tensor:
    """Round positive float32 to powers of two."""

    def formula(*i: Expr) -> Expr:
        value = x(*i)
        bits = call("reinterpret", value, dtype="uint32")
        add = {"up": 0x007FFFFF, "down": 0, "nearest": 0x00400000}[round_mode]
        moved = call("shift_right", bits + const(add, "uint32"), const(23, "uint32"))
        exponent = minimum(maximum(cast(moved, "int32"), const(0, "int32")), const(254, "int32"))
        # The least power is subnormal in float32.
        kept = call("shift_left", cast(exponent, "uint32"), const(23, "uint32"))
        made = select(
            exponent == 0, const(2.0**-127, "float32"), call("reinterpret", kept, dtype="float32")
        )
        broken = value != value
        return select(broken, value, made)

    made: te.Tensor = te.compute(x.shape, formula, name="powers")
    return made
