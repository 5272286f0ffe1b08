"""Operators of two tensors with broadcasting, and ``where``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.arith import same_extent
from tilewright.ir import (
    EQ,
    NE,
    Expr,
    ExprLike,
    and_,
    as_expr,
    as_int,
    call,
    compare,
    dtypes,
    floordiv,
    floormod,
    match_types,
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
from tilewright.te import Tensor, compute, require, require_equal, with_conditions
from tilewright.tir import formulas
from tilewright.topi.division import (
    float_floor_divide,
    float_floor_mod,
    float_mod,
    float_trunc_divide,
)
from tilewright.topi.elementwise import truth_of
from tilewright.topi.power import power_of
from tilewright.topi.utils import is_one

Operand = Tensor | ExprLike


def broadcast_shape(*shapes: Sequence[object]) -> tuple[Expr, ...]:
    """Return the common shape, by NumPy's rules.

    A symbolic extent is taken not to be 1: it must equal the extents aligned with it, unless they
    are 1. That becomes a condition of the calling operator (``te.with_conditions``).
    """
    shown = " and ".join(str(list(shape)) for shape in shapes)
    ndim = max(len(shape) for shape in shapes)
    result = []
    for axis in range(ndim):
        extents = [
            as_expr(shape[axis - ndim + len(shape)])
            for shape in shapes
            if axis - ndim + len(shape) >= 0
        ]
        best = extents[0]
        for extent in extents[1:]:
            if is_one(best):
                best = extent
            elif not is_one(extent) and not same_extent(extent, best):
                require(
                    best == extent, f"shapes {shown} do not broadcast: ", best, " against ", extent
                )
                if as_int(extent) is not None:
                    best = extent  # numbers say more than variables
        result.append(best)
    return tuple(result)


def read_broadcast(x: object, indices: Sequence[Expr], shape: Sequence[object]) -> Expr:
    """Read ``x`` (a tensor or a number) at the indices of ``shape``, to which it broadcasts."""
    if not isinstance(x, Tensor):
        return as_expr(x)
    first = len(indices) - x.ndim
    # Where both extents are 1 the index stays, so that the access tells which axis is which.
    return x(
        *(
            0 if is_one(extent) and not is_one(target) else index
            for index, extent, target in zip(indices[first:], x.shape, shape[first:])
        )
    )


def _binary(name: str, function: Callable[..., Expr], doc: str) -> Callable[..., Any]:
    @with_conditions
    def define(lhs: Operand, rhs: Operand) -> Tensor:
        shape = broadcast_shape(*(x.shape for x in (lhs, rhs) if isinstance(x, Tensor)))

        def formula(*i: Expr) -> Expr:
            a = read_broadcast(lhs, i, shape) if isinstance(lhs, Tensor) else lhs
            b = read_broadcast(rhs, i, shape) if isinstance(rhs, Tensor) else rhs
            return function(a, b)

        made: Tensor = compute(shape, formula, name=name, tag="broadcast")
        return made

    def build(lhs: Operand, rhs: Operand) -> Tensor | Expr:
        if not isinstance(lhs, Tensor) and not isinstance(rhs, Tensor):
            return function(as_expr(lhs), as_expr(rhs))
        return define(lhs, rhs)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"{doc} Tensors broadcast; either operand may be a number."
    return build


def _divide(a: Expr, b: Expr) -> Expr:
    a = as_expr(a, getattr(b, "dtype", None))
    if not dtypes.is_float(a.dtype):
        return call("truncdiv", a, b)
    quotient: Expr = a / b
    return quotient


def _of_kind(
    integers: Callable[[Expr, Expr], Expr], floats: Callable[[Expr, Expr], Expr]
) -> Callable[[ExprLike, ExprLike], Expr]:
    """Choose the formula for integers or for floats, by the operands' common dtype."""

    def formula(a: ExprLike, b: ExprLike) -> Expr:
        x, y = match_types(a, b)
        return (floats if dtypes.is_float(x.dtype) else integers)(x, y)

    return formula


def _logical(function: Callable[[Expr, Expr], Expr]) -> Callable[[ExprLike, ExprLike], Expr]:
    return lambda a, b: function(truth_of(as_expr(a)), truth_of(as_expr(b)))


add = _binary("add", lambda a, b: a + b, "Add.")
subtract = _binary("subtract", lambda a, b: a - b, "Subtract.")
multiply = _binary("multiply", lambda a, b: a * b, "Multiply.")
divide = _binary("divide", _divide, "Divide; integers round towards zero.")
floor_divide = _binary(
    "floor_divide",
    _of_kind(floordiv, float_floor_divide),
    "Divide, rounding down (as ``numpy.floor_divide``).",
)
floor_mod = _binary(
    "floor_mod",
    _of_kind(floormod, float_floor_mod),
    "Remainder with the divisor's sign (as ``numpy.mod``).",
)
mod = _binary(
    "mod",
    _of_kind(lambda a, b: call("truncmod", a, b), float_mod),
    "Remainder with the dividend's sign (as ``numpy.fmod`` and C).",
)
trunc_divide = _binary(
    "trunc_divide",
    _of_kind(lambda a, b: call("truncdiv", a, b), float_trunc_divide),
    "Divide, rounding towards zero.",
)
power = _binary("power", power_of, "Raise to a power; powers of integers wrap.")
atan2 = _binary("atan2", lambda a, b: call("atan2", a, b), "The angle of the point ``(b, a)``.")
copysign = _binary("copysign", lambda a, b: call("copysign", a, b), "``a`` with the sign of ``b``.")
hypot = _binary("hypot", formulas.hypot, "The root of ``a² + b²``, without overflow on the way.")
log_add_exp = _binary("log_add_exp", formulas.logaddexp, "``log(exp(a) + exp(b))``.")
nextafter = _binary("nextafter", formulas.nextafter, "The number next to ``a`` towards ``b``.")
maximum = _binary("maximum", max_expr, "The greater of two.")
minimum = _binary("minimum", min_expr, "The lesser of two.")
equal = _binary("equal", lambda a, b: compare(EQ, a, b), "Compare for equality.")
not_equal = _binary("not_equal", lambda a, b: compare(NE, a, b), "Compare for difference.")
less = _binary("less", lambda a, b: as_expr(a) < b, "Compare ``a < b``.")
less_equal = _binary("less_equal", lambda a, b: as_expr(a) <= b, "Compare ``a <= b``.")
greater = _binary("greater", lambda a, b: as_expr(a) > b, "Compare ``a > b``.")
greater_equal = _binary("greater_equal", lambda a, b: as_expr(a) >= b, "Compare ``a >= b``.")
logical_and = _binary("logical_and", _logical(and_), "Whether both are true, or not zero.")
logical_or = _binary("logical_or", _logical(or_), "Whether one is true, or not zero.")
logical_xor = _binary(
    "logical_xor",
    _logical(lambda a, b: compare(NE, a, b)),
    "Whether exactly one is true, or not zero.",
)
bitwise_and = _binary("bitwise_and", lambda a, b: a & b, "Bitwise and of integers.")
bitwise_or = _binary("bitwise_or", lambda a, b: a | b, "Bitwise or of integers.")
bitwise_xor = _binary("bitwise_xor", lambda a, b: a ^ b, "Bitwise exclusive or of integers.")
left_shift = _binary("left_shift", lambda a, b: a << b, "Shift left.")
right_shift = _binary("right_shift", lambda a, b: a >> b, "Shift right.")

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
