"""Operators of two tensors with broadcasting, and ``where``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir import (
    EQ,
    NE,
    Expr,
    ExprLike,
    and_,
    as_expr,
    call,
    compare,
    or_,
    select,
)
from tilewright.ir import (
    maximum as max_expr,
)
from tilewright.ir import (
    minimum as min_expr,
)
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, require_equal, with_conditions
from tilewright.te.arithmetic import (
    Operand,
    add,
    binary,
    broadcast_shape,
    divide,
    floor_divide,
    floor_mod,
    multiply,
    of_kind,
    power,
    read_broadcast,
    subtract,
)
from tilewright.tir import formulas
from tilewright.tir.float_division import float_mod, float_trunc_divide
from tilewright.topi.elementwise import truth_of
from tilewright.topi.utils import is_one


def _logical(function: Callable[[Expr, Expr], Expr]) -> Callable[[ExprLike, ExprLike], Expr]:
    return lambda a, b: function(truth_of(as_expr(a)), truth_of(as_expr(b)))


mod = binary(
    "mod",
    of_kind(lambda a, b: call("truncmod", a, b), float_mod),
    "Remainder with the dividend's sign (as ``numpy.fmod`` and C).",
)
trunc_divide = binary(
    "trunc_divide",
    of_kind(lambda a, b: call("truncdiv", a, b), float_trunc_divide),
    "Divide, rounding towards zero.",
)
atan2 = binary("atan2", lambda a, b: call("atan2", a, b), "The angle of the point ``(b, a)``.")
copysign = binary("copysign", lambda a, b: call("copysign", a, b), "``a`` with the sign of ``b``.")
hypot = binary("hypot", formulas.hypot, "The root of ``a² + b²``, without overflow on the way.")
log_add_exp = binary("log_add_exp", formulas.logaddexp, "``log(exp(a) + exp(b))``.")
nextafter = binary("nextafter", formulas.nextafter, "The number next to ``a`` towards ``b``.")
maximum = binary("maximum", max_expr, "The greater of two.")
minimum = binary("minimum", min_expr, "The lesser of two.")
equal = binary("equal", lambda a, b: compare(EQ, a, b), "Compare for equality.")
not_equal = binary("not_equal", lambda a, b: compare(NE, a, b), "Compare for difference.")
less = binary("less", lambda a, b: as_expr(a) < b, "Compare ``a < b``.")
less_equal = binary("less_equal", lambda a, b: as_expr(a) <= b, "Compare ``a <= b``.")
greater = binary("greater", lambda a, b: as_expr(a) > b, "Compare ``a > b``.")
greater_equal = binary("greater_equal", lambda a, b: as_expr(a) >= b, "Compare ``a >= b``.")
logical_and = binary("logical_and", _logical(and_), "Whether both are true, or not zero.")
logical_or = binary("logical_or", _logical(or_), "Whether one is true, or not zero.")
logical_xor = binary(
    "logical_xor",
    _logical(lambda a, b: compare(NE, a, b)),
    "Whether exactly one is true, or not zero.",
)
bitwise_and = binary("bitwise_and", lambda a, b: a & b, "Bitwise and of integers.")
bitwise_or = binary("bitwise_or", lambda a, b: a | b, "Bitwise or of integers.")
bitwise_xor = binary("bitwise_xor", lambda a, b: a ^ b, "Bitwise exclusive or of integers.")
left_shift = binary("left_shift", lambda a, b: a << b, "Shift left.")
right_shift = binary("right_shift", lambda a, b: a >> b, "Shift right.")

BINARY: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        add, subtract, multiply, divide, floor_divide, trunc_divide, floor_mod, mod, power, atan2,
        copysign, hypot, log_add_exp, nextafter, maximum, minimum, equal, not_equal, less,
        less_equal, greater, greater_equal, logical_and, logical_or, logical_xor, bitwise_and,
        bitwise_or, bitwise_xor, left_shift, right_shift,
    )
}  # fmt: skip


def require_broadcast(what: str, shape: Sequence[Expr | int], target: Sequence[Expr | int]) -> None:
    """Require that a tensor of ``shape`` broadcasts to ``target``, and not the other way.

    Raises ``VerifyError`` if it surely doesn't.
    """
    shown = f"{what} of shape {list(shape)} does not broadcast to {list(target)}"
    if len(shape) > len(target):
        raise VerifyError(shown)
    for extent, wanted in zip(shape, target[len(target) - len(shape) :]):
        if not is_one(extent):
            require_equal(shown, extent, wanted)


@with_conditions
def broadcast_to(data: Tensor, shape: Sequence[Expr | int]) -> Tensor:
    """Repeat ``data`` along new and unit axes to fill ``shape``."""
    require_broadcast(data.name, data.shape, shape)
    made: Tensor = compute(
        tuple(shape),
        lambda *i: read_broadcast(data, i, shape),
        name="broadcast_to",
        tag="broadcast",
    )
    return made


@with_conditions
def where(condition: Tensor, x: Operand, y: Operand) -> Tensor:
    """Choose ``x`` where ``condition`` is true (not zero), else ``y``; all broadcast."""
    operands = [item for item in (condition, x, y) if isinstance(item, Tensor)]
    shape = broadcast_shape(*(item.shape for item in operands))

    def formula(*i: Expr) -> Expr:
        test = truth_of(read_broadcast(condition, i, shape))
        typed = [item.dtype for item in (x, y) if isinstance(item, (Tensor, Expr))]
        like = typed[0] if typed else None
        values = [
            read_broadcast(item, i, shape) if isinstance(item, Tensor) else as_expr(item, like)
            for item in (x, y)
        ]
        return select(test, *values)

    made: Tensor = compute(shape, formula, name="where", tag="broadcast")
    return made
