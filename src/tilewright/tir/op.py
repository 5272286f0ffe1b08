"""Functions that build operators: ``tir.exp(x)``, ``tir.all(a, b)``, ``tir.floordiv(a, b)`` …

The names and parameters are TVM's; the meaning stands in the operator table (``ir.op``). Of the
functions that give whole numbers ``round`` and ``nearbyint`` take halves to the even neighbour, as
NumPy does; ``floor``, ``ceil`` and ``trunc`` round down, up and towards zero. Those leave integers
as they are; functions of floats such as ``sqrt`` refuse integers, which are to be cast first.
``span`` says where the expression stands in source text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import ir
from tilewright.ir import Expr, ExprLike, as_expr, call, dtypes, located, match_types
from tilewright.ir.op import UNARY_FLOAT, UNARY_NUMBER
from tilewright.support.naming import named


def _unary(name: str, doc: str = "") -> Callable[..., Expr]:
    def build(x: ExprLike, span: object = None) -> Expr:
        return located(call(name, x), span)

    usual = f"``{name}(x)``, elementwise on vectors; the result has the dtype of ``x``."
    return named(build, name, doc or usual)


def _binary(name: str, doc: str = "") -> Callable[..., Expr]:
    def build(x: ExprLike, y: ExprLike, span: object = None) -> Expr:
        return located(call(name, x, y), span)

    return named(build, name, doc or f"``{name}(x, y)``; operands are brought to one dtype.")


def _pair(name: str, doc: str = "") -> Callable[..., Expr]:
    """A function of two floats, with the names that TVM gives these."""

    def build(x1: ExprLike, x2: ExprLike, span: object = None) -> Expr:
        return located(call(name, x1, x2), span)

    return named(build, name, doc or f"``{name}(x1, x2)``; operands are brought to one dtype.")


def _division(name: str, function: Callable[[ExprLike, ExprLike], Expr]) -> Callable[..., Expr]:
    def build(a: ExprLike, b: ExprLike, span: object = None) -> Expr:
        return located(function(a, b), span)

    return named(build, name, function.__doc__)


exp = _unary("exp")
exp2 = _unary("exp2")
exp10 = _unary("exp10")
log = _unary("log")
log2 = _unary("log2")
log10 = _unary("log10")
log1p = _unary("log1p")
expm1 = _unary("expm1")
sqrt = _unary("sqrt")
rsqrt = _unary("rsqrt")
tanh = _unary("tanh")
sigmoid = _unary("sigmoid")
silu = _unary("silu", "``x * sigmoid(x)``, elementwise on vectors; the dtype stays.")
erf = _unary("erf")
gelu = _unary(
    "gelu", "``x / 2 * (1 + erf(x / sqrt(2)))``, elementwise on vectors; the dtype stays."
)
gelu_tanh = _unary(
    "gelu_tanh", "``gelu`` by its approximation with ``tanh``, as neural networks use it."
)
sin = _unary("sin")
cos = _unary("cos")
tan = _unary("tan")
sinh = _unary("sinh")
cosh = _unary("cosh")
asin = _unary("asin")
acos = _unary("acos")
atan = _unary("atan")
asinh = _unary("asinh")
acosh = _unary("acosh")
atanh = _unary("atanh")
abs = _unary("abs", "The absolute value; that of the least integer is itself.")
floor = _unary("floor")
ceil = _unary("ceil")
trunc = _unary("trunc")
round = _unary(
    "round",
    "``round(x)``: to the nearest integer, halves to the even neighbour (``round(2.5)`` is 2, "
    "``round(3.5)`` is 4), as ``nearbyint`` does. The dtype stays.",
)
nearbyint = _unary("nearbyint")
fabs = _unary("fabs")
popcount = _unary("popcount", "The number of bits that are set; those of the sign count too.")
clz = _unary("clz", "The number of leading zero bits; all of them for 0.")
isnan = _unary("isnan", "Whether ``x`` is NaN; integers never are.")
isinf = _unary("isinf", "Whether ``x`` is infinite; integers never are.")
isfinite = _unary("isfinite", "Whether ``x`` is neither infinite nor NaN.")
isnullptr = _unary("isnullptr", "Whether a pointer is null.")
bitwise_not = _unary("bitwise_not")
pow = _binary("pow")
power = pow
fmod = _binary("fmod", "The rest of ``x / y`` rounded towards zero; it has the sign of ``x``.")
bitwise_and = _binary("bitwise_and")
bitwise_or = _binary("bitwise_or")
bitwise_xor = _binary("bitwise_xor")
shift_left = _binary("shift_left")
shift_right = _binary("shift_right")
atan2 = _pair("atan2")
copysign = _pair("copysign", "The size of ``x1`` with the sign of ``x2``.")
hypot = _pair("hypot", "``sqrt(x1**2 + x2**2)``, without overflow on the way.")
nextafter = _pair("nextafter", "The number next to ``x1`` in the direction of ``x2``.")
ldexp = _pair("ldexp", "``x1 * 2**x2``, rounded once; ``x2`` is an integer.")
floordiv = _division("floordiv", ir.floordiv)
floormod = _division("floormod", ir.floormod)
truncdiv = _division("truncdiv", ir.truncdiv)
truncmod = _division("truncmod", ir.truncmod)
indexdiv = _division("indexdiv", ir.floordiv)
indexdiv.__doc__ = "``a // b`` of indices, which aren't negative; the same as ``floordiv``."
indexmod = _division("indexmod", ir.floormod)
indexmod.__doc__ = "``a % b`` of indices, which aren't negative; the same as ``floormod``."

# The element-wise functions of one argument that may be a floating-point number, by name.
ELEMENTWISE = (*UNARY_FLOAT, *UNARY_NUMBER)


def ceildiv(lhs: ExprLike, rhs: ExprLike, span: object = None) -> Expr:
    """``ceil(lhs / rhs)`` for integers."""
    return located(ir.ceildiv(lhs, rhs), span)


def div(a: ExprLike, b: ExprLike, span: object = None) -> Expr:
    """Divide as C does: floats as they are, integers rounded towards zero."""
    a, b = match_types(a, b)
    divide = ir.div if dtypes.is_float(a.dtype) else ir.truncdiv
    return located(divide(a, b), span)


def logaddexp(a: ExprLike, b: ExprLike, span: object = None) -> Expr:
    """``log(exp(a) + exp(b))``, without overflow on the way."""
    return located(call("logaddexp", a, b), span)


def fma(x: ExprLike, y: ExprLike, z: ExprLike) -> Expr:
    """Return ``x * y + z``, rounded once."""
    return call("fma", x, y, z)


def likely(cond: ExprLike, span: object = None) -> Expr:
    """A condition that nearly always holds."""
    return located(call("likely", cond), span)


def ignore_loop_partition(predicate: ExprLike) -> Expr:
    """The condition itself; ``transform.LoopPartition`` cuts no loop where it changes."""
    return call("ignore_loop_partition", predicate)


def all(*args: ExprLike, span: object = None) -> Expr:
    """Return the logical and of all conditions."""
    return located(ir.and_(*_conditions("all", args)), span)


def any(*args: ExprLike, span: object = None) -> Expr:
    """Return the logical or of all conditions."""
    return located(ir.or_(*_conditions("any", args)), span)


def _conditions(name: str, args: Sequence[Any]) -> Sequence[Any]:
    """The conditions, which may come as one list."""
    return args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args


def if_then_else(cond: ExprLike, t: ExprLike, f: ExprLike, span: object = None) -> Expr:
    """A conditional value: only the chosen side is evaluated."""
    return located(ir.if_then_else(cond, t, f), span)


def const(value: ExprLike, dtype: str | None = None, span: object = None) -> Expr:
    """Make a constant; without ``dtype``: int64, float32 or bool by the Python type, or NumPy's.

    A vector dtype gives a ``Broadcast``. Raises ``VerifyError`` if the number isn't of the dtype.
    """
    return located(ir.const(value, dtype), span)


def convert(expr: Expr) -> Any:
    """Make an expression of a number, and a list of those of a list."""
    if isinstance(expr, (list, tuple)):
        return [convert(item) for item in expr]
    return expr if isinstance(expr, ir.Node) else as_expr(expr)


def min_value(dtype: str, span: object = None) -> Expr:
    """The least number of a dtype: finite, also for floats with infinities."""
    return located(ir.min_value(dtype), span)


def max_value(dtype: str, span: object = None) -> Expr:
    """The greatest number of a dtype: finite, also for floats with infinities."""
    return located(ir.max_value(dtype), span)


def infinity(dtype: str, span: object = None) -> Expr:
    """Positive infinity of a floating-point dtype."""
    return located(ir.FloatImm(dtype, float("inf")), span)


def q_multiply_shift(x: ExprLike, y: ExprLike, q: ExprLike, s: ExprLike) -> Expr:
    """Multiply by a fixed-point number of ``q`` fractional bits and by ``2**s``.

    That is ``x * y * 2**(s - q)``, computed in 64 bits and rounded half up; a positive ``s`` shifts
    ``x`` left before. Integers of up to 32 bits.
    """
    return call("q_multiply_shift", x, y, q, s)


def q_multiply_shift_per_axis(
    x: ExprLike,
    y: ExprLike,
    ls: ExprLike,
    rs: ExprLike,
    q: ExprLike,
    is_lshift_required: ExprLike,
    is_rshift_required: ExprLike,
) -> Expr:
    """Multiply fixed-point numbers with shifts of their own, say of each channel.

    That is ``(x << ls) * y / 2**(q + rs)``, computed in 64 bits and rounded half up; ``x`` is not
    shifted where ``is_lshift_required`` is false. ``rs`` must be 0 where there is no shift.
    """
    return call(
        "q_multiply_shift_per_axis", x, y, ls, rs, q, is_lshift_required, is_rshift_required
    )
