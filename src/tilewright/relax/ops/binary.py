"""Operators on two tensors that broadcast against each other: a table."""

from __future__ import annotations

from tilewright.ir import dtypes
from tilewright.relax.expr_operators import OPERATOR_SUGAR
from tilewright.relax.ops.common import broadcast, same_dtype, topi_function
from tilewright.relax.registry import Builder, Tensor, operator
from tilewright.relax.struct_info import StructInfo, TensorStructInfo
from tilewright.support.errors import VerifyError


def _binary(name: str, doc: str, *, result: str | None = None, kind: str = "") -> Builder:
    """Declare one; ``result`` is its dtype if not the operands', ``kind`` the kind it accepts."""

    @operator(name, legalize=topi_function(name))
    def rule(x1: Tensor, x2: Tensor) -> StructInfo:
        dtype = same_dtype(x1, x2)
        if kind and dtypes.kind_of(dtype) not in kind.split():
            raise VerifyError(f"takes {kind.replace(' ', ' or ')} operands, got {dtype}")
        if not (x1.has_shape and x2.has_shape):
            ndim = -1 if -1 in (x1.ndim, x2.ndim) else max(x1.ndim, x2.ndim)
            return TensorStructInfo(None, result or dtype, ndim=ndim)
        return TensorStructInfo(broadcast(x1.shape, x2.shape), result or dtype)

    rule.__doc__ = doc
    return rule


_INTS = "int uint"
_BITS = "int uint bool"

add = _binary("add", "a + b.")
subtract = _binary("subtract", "a - b.")
multiply = _binary("multiply", "a * b.")
divide = _binary("divide", "a / b; integers round towards zero.")
floor_divide = _binary("floor_divide", "a / b rounded down, as NumPy does.")
floor_mod = _binary("floor_mod", "Remainder with the sign of b, as ``numpy.mod``.")
mod = _binary("mod", "Remainder with the sign of a, as ``numpy.fmod``.")
trunc_divide = _binary("trunc_divide", "a / b rounded towards zero.")
power = _binary(
    "power", "a to the power of b; powers of integers wrap, to negative ones they round towards 0.",
    kind="float int uint",
)  # fmt: skip
atan2 = _binary("atan2", "The angle of the point (b, a), from -pi to pi.", kind="float")
hypot = _binary("hypot", "The root of a² + b², without overflow on the way.", kind="float")
copysign = _binary("copysign", "a with the sign of b.", kind="float")
nextafter = _binary("nextafter", "The number next to a in the direction of b.", kind="float")
log_add_exp = _binary("log_add_exp", "log(exp(a) + exp(b)).", kind="float")
maximum = _binary("maximum", "The greater of a and b.")
minimum = _binary("minimum", "The lesser of a and b.")
equal = _binary("equal", "a == b.", result="bool")
not_equal = _binary("not_equal", "a != b.", result="bool")
less = _binary("less", "a < b.", result="bool")
less_equal = _binary("less_equal", "a <= b.", result="bool")
greater = _binary("greater", "a > b.", result="bool")
greater_equal = _binary("greater_equal", "a >= b.", result="bool")
logical_and = _binary("logical_and", "Both are true, or not zero.", result="bool")
logical_or = _binary("logical_or", "One is true, or not zero.", result="bool")
logical_xor = _binary("logical_xor", "Exactly one is true, or not zero.", result="bool")
bitwise_and = _binary("bitwise_and", "Bits that both have.", kind=_BITS)
bitwise_or = _binary("bitwise_or", "Bits that one has.", kind=_BITS)
bitwise_xor = _binary("bitwise_xor", "Bits that exactly one has.", kind=_BITS)
left_shift = _binary("left_shift", "Bits of a moved up by b; 0 unless 0 <= b < width.", kind=_INTS)
right_shift = _binary(
    "right_shift", "Bits of a moved down by b; copies of the sign come in.", kind=_INTS
)

for _name, _function in (
    ("add", add),
    ("subtract", subtract),
    ("multiply", multiply),
    ("divide", divide),
    ("floor_divide", floor_divide),
    ("mod", mod),
    ("power", power),
    ("less", less),
    ("less_equal", less_equal),
    ("greater", greater),
    ("greater_equal", greater_equal),
):
    OPERATOR_SUGAR[_name] = _function
