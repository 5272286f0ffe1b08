"""The functions that build expressions: arithmetic, comparison, logic, intrinsic calls.

Each promotes its operands to one dtype (``expr_convert.match_types``) and folds constants, so
``x + 0`` is never built. Folding never changes a value: integers wrap as they do when the program
runs (``ir.integers``), and an operation that would round a float is not folded. Python's operators
on expressions are these functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tilewright.ir.dtype import (
    INDEX,
    element_of,
    integer_limits,
    is_bool,
    is_float,
    is_integer,
    lanes_of,
    vector_dtype,
)
from tilewright.ir.expr import (
    Add,
    And,
    Call,
    Div,
    Expr,
    ExprLike,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Select,
    Sub,
    builds,
)
from tilewright.ir.expr_convert import (
    FALSE,
    TRUE,
    as_expr,
    const,
    const_value,
    match_types,
    rounded,
    small_index,
    value_in_memory,
)
from tilewright.ir.integers import (
    INTEGER_CALLS,
    floor_quotient,
    floor_remainder,
    wrap_integer,
)
from tilewright.ir.op import OPS, STATED_RESULTS, Op
from tilewright.support.errors import VerifyError

_LEAST_INDEX = integer_limits(INDEX)[0]


def _fold(kind: Any, a: Expr, b: Expr, result: int | float) -> Expr:
    """Make a folded constant, wrapped to the type's range, unless the result would round."""
    if a.dtype == INDEX and _LEAST_INDEX <= result <= -_LEAST_INDEX - 1:
        return small_index(result)  # type: ignore[arg-type]
    if is_float(a.dtype):
        exact = all(rounded(v, a.dtype) == v for v in (const_value(a), const_value(b), result))
        if a.dtype in ("float32", "float64") and exact:
            return FloatImm(a.dtype, float(result))
    elif is_integer(a.dtype) or 0 <= result <= 1:
        return const(wrap_integer(int(result), a.dtype), a.dtype)
    made: Expr = kind(a, b)
    return made


@builds
def add(a: ExprLike, b: ExprLike) -> Expr:
    """``a + b``; of booleans, logical or, as in NumPy."""
    a, b = match_types(a, b)
    if is_bool(element_of(a.dtype)):
        return or_(a, b)
    if isinstance(b, IntImm):
        if b.value == 0:
            return a
        if isinstance(a, IntImm):
            return _fold(Add, a, b, a.value + b.value)
    elif isinstance(a, IntImm) and a.value == 0:
        return b
    elif isinstance(a, FloatImm) and isinstance(b, FloatImm):
        return _fold(Add, a, b, a.value + b.value)
    return Add(a, b)  # type: ignore[no-any-return]


@builds
def sub(a: ExprLike, b: ExprLike) -> Expr:
    """``a - b``.

    Raises ``VerifyError`` for truth values.
    """
    a, b = match_types(a, b)
    if is_bool(element_of(a.dtype)):
        raise VerifyError(f"`-` needs numbers, got {a.dtype}; use ^ or ~, or cast to an integer")
    if isinstance(b, IntImm):
        if b.value == 0:
            return a
        if isinstance(a, IntImm):
            return _fold(Sub, a, b, a.value - b.value)
    elif isinstance(a, FloatImm) and isinstance(b, FloatImm):
        return _fold(Sub, a, b, a.value - b.value)
    elif a is b and is_integer(a.dtype) and lanes_of(a.dtype) == 1:
        return const(0, a.dtype)
    return Sub(a, b)  # type: ignore[no-any-return]


@builds
def mul(a: ExprLike, b: ExprLike) -> Expr:
    """``a * b``."""
    a, b = match_types(a, b)
    if isinstance(a, IntImm) and not isinstance(b, IntImm):
        if a.value == 1:
            return b
        if a.value == 0:
            return a
    if isinstance(b, IntImm):
        if b.value == 1:
            return a
        if b.value == 0:
            return b
        if isinstance(a, IntImm):
            return _fold(Mul, a, b, a.value * b.value)
    elif isinstance(a, FloatImm) and isinstance(b, FloatImm):
        return _fold(Mul, a, b, a.value * b.value)
    return Mul(a, b)  # type: ignore[no-any-return]


@builds
def div(a: ExprLike, b: ExprLike) -> Expr:
    """``a / b`` on floating-point numbers.

    Raises ``VerifyError`` for integers, where it is ambiguous.
    """
    a, b = match_types(a, b)
    if not is_float(element_of(a.dtype)):
        raise VerifyError(
            f"`/` on {a.dtype} is ambiguous: use // (floor), truncdiv, or cast to a float first"
        )
    if isinstance(a, FloatImm) and isinstance(b, FloatImm) and b.value != 0.0:
        return _fold(Div, a, b, a.value / b.value)
    return Div(a, b)  # type: ignore[no-any-return]


def _check_integer(a: Expr, symbol: str) -> None:
    if not is_integer(element_of(a.dtype)):
        raise VerifyError(f"`{symbol}` needs integers, got {a.dtype}")


@builds
def floordiv(a: ExprLike, b: ExprLike) -> Expr:
    """``a // b``, rounded towards minus infinity; 0 if ``b`` is 0 (see ``ir.integers``)."""
    a, b = match_types(a, b)
    _check_integer(a, "//")
    if isinstance(b, IntImm):
        if b.value == 0:
            return b
        if b.value == 1:
            return a
        if isinstance(a, IntImm):
            return _fold(FloorDiv, a, b, floor_quotient(a.value, b.value))
    if isinstance(a, IntImm) and a.value == 0:
        return a
    return FloorDiv(a, b)  # type: ignore[no-any-return]


@builds
def floormod(a: ExprLike, b: ExprLike) -> Expr:
    """``a % b`` with the sign of ``b``; 0 if ``b`` is 0."""
    a, b = match_types(a, b)
    _check_integer(a, "%")
    if isinstance(b, IntImm):
        if b.value == 0:
            return b
        if b.value == 1:
            return const(0, a.dtype)
        if isinstance(a, IntImm):
            return const(floor_remainder(a.value, b.value), a.dtype)
    if isinstance(a, IntImm) and a.value == 0:
        return a
    return FloorMod(a, b)  # type: ignore[no-any-return]


def truncdiv(a: ExprLike, b: ExprLike) -> Expr:
    """Integer division rounded towards zero; 0 if ``b`` is 0."""
    return _truncating("truncdiv", *match_types(a, b))


def truncmod(a: ExprLike, b: ExprLike) -> Expr:
    """Remainder of ``truncdiv``, with the sign of ``a``; 0 if ``b`` is 0."""
    return _truncating("truncmod", *match_types(a, b))


def _truncating(name: str, a: Expr, b: Expr) -> Expr:
    _check_integer(a, name)
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return const(INTEGER_CALLS[name](a.value, b.value, a.dtype), a.dtype)
    return call(name, a, b)


def ceildiv(a: ExprLike, b: ExprLike) -> Expr:
    """``ceil(a / b)`` for integers."""
    a, b = match_types(a, b)
    return floordiv(add(a, sub(b, 1)), b)


def minimum(a: ExprLike, b: ExprLike) -> Expr:
    """The lesser of two expressions."""
    a, b = match_types(a, b)
    if a is b:
        return a
    if isinstance(a, (IntImm, FloatImm)) and isinstance(b, (IntImm, FloatImm)):
        first, second = value_in_memory(a), value_in_memory(b)
        if first is not None and second is not None:
            return b if second < first or second != second else a
    return Min(a, b)  # type: ignore[no-any-return]


def maximum(a: ExprLike, b: ExprLike) -> Expr:
    """The greater of two expressions."""
    a, b = match_types(a, b)
    if a is b:
        return a
    if isinstance(a, (IntImm, FloatImm)) and isinstance(b, (IntImm, FloatImm)):
        first, second = value_in_memory(a), value_in_memory(b)
        if first is not None and second is not None:
            return b if second > first or second != second else a
    return Max(a, b)  # type: ignore[no-any-return]


@builds
def neg(a: ExprLike) -> Expr:
    """``-a``."""
    a = as_expr(a)
    if is_float(element_of(a.dtype)):
        return FloatImm(a.dtype, -a.value) if isinstance(a, FloatImm) else mul(a, -1.0)
    return sub(const(0, a.dtype), a)


_COMPARE_FOLD = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


@builds
def compare(kind: Any, a: Any, b: Any) -> Expr:
    """Build a comparison node of class ``kind``; two constants fold."""
    a, b = match_types(a, b)
    if isinstance(a, (IntImm, FloatImm)) and isinstance(b, (IntImm, FloatImm)):
        # EQ of two distinct constants must stay usable as identity: fold only by value.
        first, second = value_in_memory(a), value_in_memory(b)
        if first is not None and second is not None:
            return TRUE if _COMPARE_FOLD[kind.symbol](first, second) else FALSE
    made: Expr = kind(a, b)
    return made


@builds
def and_(*conditions: ExprLike) -> Expr:
    """Logical and; constants fold, and no arguments give true."""
    result: Expr | None = None
    for condition in conditions:
        condition = as_expr(condition)
        if isinstance(condition, IntImm):
            if not condition.value:
                return FALSE
            continue
        result = condition if result is None else And(result, condition)
    return TRUE if result is None else result


@builds
def or_(*conditions: ExprLike) -> Expr:
    """Logical or; constants fold, and no arguments give false."""
    result: Expr | None = None
    for condition in conditions:
        condition = as_expr(condition)
        if isinstance(condition, IntImm):
            if condition.value:
                return TRUE
            continue
        result = condition if result is None else Or(result, condition)
    return FALSE if result is None else result


@builds
def not_(a: ExprLike) -> Expr:
    """Logical not."""
    a = as_expr(a)
    if isinstance(a, IntImm):
        return FALSE if a.value else TRUE
    return a.a if isinstance(a, Not) else Not(a)


def product(factors: Iterable[ExprLike]) -> Expr:
    """Multiply factors from left to right; 1 if there are none."""
    made = const(1)
    for factor in factors:
        made = mul(made, factor)
    return made


def select(condition: ExprLike, true_value: ExprLike, false_value: ExprLike) -> Expr:
    """A ``Select`` node: both sides are evaluated, so the elements they read must exist."""
    true_value, false_value = match_types(true_value, false_value)
    condition = as_expr(condition)
    if isinstance(condition, IntImm):
        return true_value if condition.value else false_value
    return Select(condition, true_value, false_value)


def if_then_else(condition: ExprLike, true_value: ExprLike, false_value: ExprLike) -> Expr:
    """A conditional value: only the chosen side is evaluated."""
    true_value, false_value = match_types(true_value, false_value)
    condition = as_expr(condition)
    if isinstance(condition, IntImm):
        return true_value if condition.value else false_value
    return Call.of_fields(
        OPS.get("if_then_else"), (condition, true_value, false_value), true_value.dtype
    )


_TAKES: dict[str, tuple[Callable[[str], bool], str, str]] = {
    "float": (is_float, "floating-point numbers", "; cast it to a float first"),
    "integer": (is_integer, "integers", ""),
    "number": (lambda dtype: is_float(dtype) or is_integer(dtype), "numbers", ""),
    "bits": (lambda dtype: is_bool(dtype) or is_integer(dtype), "integers or truth values", ""),
}


def wrong_operand(op: Op, args: Sequence[Expr]) -> str | None:
    """Return why an operator doesn't take operands of these dtypes, if so."""
    if op.operands == "any":
        return None
    kinds = op.operands.split()
    for arg, word in zip(args, kinds if len(kinds) > 1 else kinds * len(args)):
        takes, kind, hint = _TAKES[word]
        if not takes(element_of(arg.dtype)):
            return f"{op.name} takes {kind}, got {arg.dtype} in `{arg!r}`{hint}"
    return None


def _real(value: ExprLike) -> ExprLike:
    """Convert a Python integer to a float where only floats are allowed."""
    return float(value) if type(value) is int else value


@builds
def call(op: str | Op, *args: ExprLike, dtype: str | None = None) -> Expr:
    """Call an intrinsic by name; its result dtype follows the operator's rule.

    Raises ``VerifyError`` if the operator takes other arguments, or needs ``dtype``.
    """
    if isinstance(op, str):
        op = OPS.get(op)
    if op.arity is not None and len(args) != op.arity:
        raise VerifyError(f"{op.name} takes {op.arity} arguments, got {len(args)}")
    if op.operands == "float":
        args = tuple(_real(arg) for arg in args)
    if op.arity == 2 and op.result == "same" and " " not in op.operands:
        made: tuple[Expr, ...] = match_types(args[0], args[1])
    else:
        made = tuple(as_expr(arg) for arg in args)
    wrong = wrong_operand(op, made)
    if wrong is not None:
        raise VerifyError(wrong)
    if op.result == "bool" and (is_integer(made[0].dtype) or is_bool(made[0].dtype)):
        return const(op.name == "isfinite", vector_dtype("bool", lanes_of(made[0].dtype)))
    if dtype is None:
        if op.result == "given":
            raise VerifyError(f"{op.name} needs dtype=")
        if op.result in STATED_RESULTS:
            return Call.of_fields(op, made, op.result)
        dtype = made[-1].dtype if op.result == "last" else made[0].dtype
        if op.result == "bool":
            dtype = vector_dtype("bool", lanes_of(dtype))
    return Call.of_fields(op, made, dtype)
