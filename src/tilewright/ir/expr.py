"""Scalar and vector expressions, and the functions that build them.

Every expression has a ``dtype`` (see ``ir.dtype``). Python operators on expressions build nodes:
integers and floats next to an expression take its dtype, two dtypes are promoted (wider wins,
float beats integer), and constants fold. ``//`` and ``%`` round towards minus infinity, as Python's
do; ``/`` is for floating-point numbers only.

``a == b`` on expressions builds an ``EQ`` node. Compare nodes with ``is``, ``structural_equal`` or
``arith.Analyzer.can_prove_equal``. Only ``EQ``/``NE`` may be used as a Python truth value, where
they mean identity (so that ``var in list`` works); any other expression refuses.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any, Union

from tilewright.ir.dtype import (
    INDEX,
    bits_of,
    element_of,
    integer_limits,
    is_bool,
    is_float,
    is_integer,
    kind_of,
    lanes_of,
    split_dtype,
    vector_dtype,
)
from tilewright.ir.node import Node, attr, child, children, definition, derived, node
from tilewright.ir.op import OPS, Op
from tilewright.support.errors import VerifyError

ExprLike = Union["Expr", int, float, bool]


class Expr(Node):
    """Base of scalar and vector expressions; every one has a ``dtype``."""

    __slots__ = ()
    dtype: str

    def __add__(self, other: ExprLike) -> Expr:
        return add(self, other)

    def __radd__(self, other: ExprLike) -> Expr:
        return add(other, self)

    def __sub__(self, other: ExprLike) -> Expr:
        return sub(self, other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return sub(other, self)

    def __mul__(self, other: ExprLike) -> Expr:
        return mul(self, other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return mul(other, self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return div(self, other)

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return div(other, self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return floordiv(self, other)

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return floordiv(other, self)

    def __mod__(self, other: ExprLike) -> Expr:
        return floormod(self, other)

    def __rmod__(self, other: ExprLike) -> Expr:
        return floormod(other, self)

    def __neg__(self) -> Expr:
        return neg(self)

    def __lshift__(self, other: ExprLike) -> Expr:
        return call("shift_left", self, other)

    def __rshift__(self, other: ExprLike) -> Expr:
        return call("shift_right", self, other)

    def __and__(self, other: ExprLike) -> Expr:
        return call("bitwise_and", self, other) if not is_bool(self.dtype) else and_(self, other)

    def __or__(self, other: ExprLike) -> Expr:
        return call("bitwise_or", self, other) if not is_bool(self.dtype) else or_(self, other)

    def __xor__(self, other: ExprLike) -> Expr:
        return call("bitwise_xor", self, other)

    def __invert__(self) -> Expr:
        return call("bitwise_not", self) if not is_bool(self.dtype) else not_(self)

    def __lt__(self, other: ExprLike) -> Expr:
        return compare(LT, self, other)

    def __le__(self, other: ExprLike) -> Expr:
        return compare(LE, self, other)

    def __gt__(self, other: ExprLike) -> Expr:
        return compare(GT, self, other)

    def __ge__(self, other: ExprLike) -> Expr:
        return compare(GE, self, other)

    def __eq__(self, other: object) -> Any:
        return compare(EQ, self, other) if _is_exprlike(other) else NotImplemented

    def __ne__(self, other: object) -> Any:
        return compare(NE, self, other) if _is_exprlike(other) else NotImplemented

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise VerifyError(
            f"the value of `{self!r}` is not known while the program is being built; "
            "use if_then_else, Select, all or any instead of Python's if, and, or"
        )

    def astype(self, dtype: str) -> Expr:
        """Convert to another dtype."""
        return cast(self, dtype)


def _is_exprlike(value: object) -> bool:
    return isinstance(value, (Expr, int, float))


@node
class Var(Expr):
    """A scalar variable. Identity is the object; the name is for people."""

    name: str = attr()
    dtype: str = attr(default=INDEX)

    def __repr__(self) -> str:
        return self.name


@node
class IntImm(Expr):
    """An integer or bool constant."""

    value: int = attr()
    dtype: str = attr(default=INDEX)

    def __repr__(self) -> str:
        return str(self.value) if self.dtype == INDEX else f"{self.dtype}({self.value})"


@node
class FloatImm(Expr):
    """A floating-point constant; the value is rounded by whoever uses it at ``dtype``."""

    value: float = attr()
    dtype: str = attr(default="float32")

    def __repr__(self) -> str:
        return f"{self.dtype}({self.value!r})"


@node
class StringImm(Expr):
    """A text constant, as an argument of intrinsics."""

    value: str = attr()
    dtype: str = derived()

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", "handle")


@node
class Cast(Expr):
    """A conversion: floats to integers truncate, integers wrap, floats round to nearest even."""

    value: Expr = child()
    dtype: str = attr()


class BinaryExpr(Expr):
    """Base of arithmetic on two operands of one dtype."""

    __slots__ = ()
    symbol = "?"
    a: Expr
    b: Expr

    def __repr__(self) -> str:
        if self.symbol.isalpha():
            return f"{self.symbol}({self.a!r}, {self.b!r})"
        return f"({self.a!r} {self.symbol} {self.b!r})"


def _binary(
    name: str, symbol: str, doc: str, base: type = BinaryExpr, boolean: bool = False
) -> Any:
    """Declare one binary node class; all of them have the same shape."""

    def bool_dtype(self: Any) -> None:
        lanes = lanes_of(self.a.dtype)
        object.__setattr__(self, "dtype", "bool" if lanes == 1 else f"boolx{lanes}")

    body = {
        "__annotations__": {"a": "Expr", "b": "Expr", "dtype": "str"},
        "__module__": __name__,
        "__qualname__": name,
        "__doc__": doc,
        "symbol": symbol,
        "a": child(),
        "b": child(),
        "dtype": derived() if boolean else derived("a"),
        "__slots__": (),
    }
    if boolean:
        body["__post_init__"] = bool_dtype
    return node(type(name, (base,), body))


class CompareExpr(BinaryExpr):
    """Base of comparisons and logic: the result is bool."""

    __slots__ = ()


class _Identity(CompareExpr):
    """Base of EQ and NE, whose Python truth value is identity."""

    __slots__ = ()


class _EqualBase(_Identity):
    __slots__ = ()

    def __bool__(self) -> bool:
        return self.a is self.b


class _NotEqualBase(_Identity):
    __slots__ = ()

    def __bool__(self) -> bool:
        return self.a is not self.b


Add = _binary("Add", "+", "``a + b``.")
Sub = _binary("Sub", "-", "``a - b``.")
Mul = _binary("Mul", "*", "``a * b``.")
Div = _binary("Div", "/", "``a / b`` on floats.")
FloorDiv = _binary("FloorDiv", "//", "Integer division rounded towards minus infinity.")
FloorMod = _binary("FloorMod", "%", "``a - b * (a // b)``: has the sign of ``b``.")
Min = _binary("Min", "min", "The lesser operand; NaN if either is NaN, ``a`` of equals.")
Max = _binary("Max", "max", "The greater operand; NaN if either is NaN, ``a`` of equals.")
EQ = _binary("EQ", "==", "``a == b``.", _EqualBase, True)
NE = _binary("NE", "!=", "``a != b``.", _NotEqualBase, True)
LT = _binary("LT", "<", "``a < b``.", CompareExpr, True)
LE = _binary("LE", "<=", "``a <= b``.", CompareExpr, True)
GT = _binary("GT", ">", "``a > b``.", CompareExpr, True)
GE = _binary("GE", ">=", "``a >= b``.", CompareExpr, True)
And = _binary("And", "and", "Logical and of truth values.", CompareExpr, True)
Or = _binary("Or", "or", "Logical or of truth values.", CompareExpr, True)


@node
class Not(Expr):
    """Logical not."""

    a: Expr = child()
    dtype: str = derived("a")


@node
class Select(Expr):
    """``true_value if condition else false_value``; both sides are evaluated."""

    condition: Expr = child()
    true_value: Expr = child()
    false_value: Expr = child()
    dtype: str = derived("true_value")


@node
class Ramp(Expr):
    """The vector ``base, base + stride, …`` of ``lanes`` lanes."""

    base: Expr = child()
    stride: Expr = child()
    lanes: int = attr()
    dtype: str = derived()

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", vector_dtype(self.base.dtype, self.lanes))


@node
class Broadcast(Expr):
    """A vector whose ``lanes`` lanes all hold ``value``."""

    value: Expr = child()
    lanes: int = attr()
    dtype: str = derived()

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", vector_dtype(self.value.dtype, self.lanes))


@node
class Shuffle(Expr):
    """Lanes picked by constant ``indices`` from the concatenation of ``vectors``."""

    vectors: tuple[Expr, ...] = children()
    indices: tuple[int, ...] = attr()
    dtype: str = derived()

    def __post_init__(self) -> None:
        element = element_of(self.vectors[0].dtype)
        object.__setattr__(self, "dtype", vector_dtype(element, len(self.indices)))


@node
class Call(Expr):
    """A call of an intrinsic operator."""

    op: Op = attr()
    args: tuple[Expr, ...] = children()
    dtype: str = attr()

    def __repr__(self) -> str:
        return f"{self.op.name}({', '.join(map(repr, self.args))})"


@node
class Let(Expr):
    """``body`` with ``var`` standing for ``value``."""

    var: Var = definition()
    value: Expr = child()
    body: Expr = child()
    dtype: str = derived("body")


@node
class Range(Node):
    """The half-open range ``[min, min + extent)``."""

    min: Expr = child()
    extent: Expr = child()

    def __repr__(self) -> str:
        return f"Range({self.min!r}, extent={self.extent!r})"

    @staticmethod
    def from_min_extent(minimum: ExprLike, extent: ExprLike) -> Range:
        """Make a range from its start and its length."""
        return Range(as_expr(minimum), as_expr(extent))


# ---- building -------------------------------------------------------------------------------

_SMALL = {value: IntImm(value, INDEX) for value in range(-16, 1025)}
_LEAST_INDEX = integer_limits(INDEX)[0]
TRUE = IntImm(1, "bool")
FALSE = IntImm(0, "bool")


def _small(value: int) -> IntImm:
    found = _SMALL.get(value)
    return IntImm(value, INDEX) if found is None else found


def const(value: ExprLike, dtype: str | None = None) -> Expr:
    """Make a constant; without ``dtype``: int64, float32 or bool by the Python type.

    A vector dtype gives a ``Broadcast``.
    """
    if type(value) is int and (dtype is None or dtype == INDEX):
        return _small(value)
    if isinstance(value, Expr):
        return value if dtype is None else cast(value, dtype)
    if dtype is None:
        if isinstance(value, bool):
            return TRUE if value else FALSE
        if isinstance(value, int):
            return _small(value)
        dtype = "float32"
    element, lanes = split_dtype(dtype)
    if lanes > 1:
        return Broadcast(const(value, element), lanes)
    if is_float(element):
        return FloatImm(float(value), element)
    if is_bool(element):
        return TRUE if value else FALSE
    if not isinstance(value, int) and not float(value).is_integer():
        raise VerifyError(f"the constant {value!r} is no integer, so no {element}")
    value = int(value)
    if element == INDEX:
        return _small(value)
    low, high = integer_limits(element)
    if not low <= value <= high:
        raise VerifyError(f"the constant {value} does not fit {element} ({low} .. {high})")
    return IntImm(value, element)


def as_expr(value: Any, dtype: str | None = None) -> Expr:
    """Turn a Python or NumPy number (or anything with ``as_expr``) into an expression."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, (bool, int, float)):
        return const(value, dtype)
    if isinstance(value, str):
        return StringImm(value)
    if hasattr(value, "as_expr"):
        made: Expr = value.as_expr()
        return made
    if hasattr(value, "item"):  # NumPy scalars
        return const(value.item(), dtype or str(value.dtype))
    raise VerifyError(f"expected an expression or a number, got {type(value).__name__}: {value!r}")


def _rank(dtype: str) -> tuple[int, int]:
    kind = kind_of(dtype)
    return {"bool": 0, "uint": 1, "int": 2, "float": 3, "handle": 4, "void": 5}[kind], bits_of(
        dtype
    )


def match_types(a: ExprLike, b: ExprLike) -> tuple[Expr, Expr]:
    """Bring two operands to one dtype: numbers follow expressions, then the wider type wins."""
    # Index arithmetic first: most of it is between expressions of one type, or with a number.
    if type(b) is int:
        if isinstance(a, Expr) and a.dtype == INDEX:
            return a, _small(b)
    elif type(a) is int:
        if isinstance(b, Expr) and b.dtype == INDEX:
            return _small(a), b
    elif isinstance(a, Expr) and isinstance(b, Expr) and a.dtype == b.dtype:
        return a, b
    if not isinstance(a, Expr):
        a = _literal(a, b) if isinstance(b, Expr) else as_expr(a)
    if not isinstance(b, Expr):
        b = _literal(b, a)
    if a.dtype == b.dtype:
        return a, b
    lanes_a, lanes_b = lanes_of(a.dtype), lanes_of(b.dtype)
    if lanes_a != lanes_b:
        if lanes_a == 1:
            return match_types(Broadcast(a, lanes_b), b)
        if lanes_b == 1:
            return match_types(a, Broadcast(b, lanes_a))
        raise VerifyError(f"cannot combine {a.dtype} with {b.dtype}: the numbers of lanes differ")
    # A constant takes the other's dtype when it loses nothing by it.
    for first, second, swap in ((a, b, False), (b, a, True)):
        if isinstance(first, IntImm) and is_integer(element_of(second.dtype)):
            low, high = integer_limits(element_of(second.dtype))
            if low <= first.value <= high:
                made = const(first.value, second.dtype)
                return (second, made) if swap else (made, second)
    if _rank(a.dtype) < _rank(b.dtype):
        return cast(a, b.dtype), b
    return a, cast(b, a.dtype)


def _literal(value: Any, like: Expr) -> Expr:
    """Give a Python number the dtype of the expression it meets; floats never become integers."""
    if isinstance(value, float) and not is_float(element_of(like.dtype)):
        return const(value, vector_dtype("float32", lanes_of(like.dtype)))
    if is_bool(element_of(like.dtype)) and not isinstance(value, bool):
        return as_expr(value)
    if isinstance(value, (bool, int, float)):
        return const(value, like.dtype)
    return as_expr(value)


def is_const(expr: Any, value: float | None = None) -> bool:
    """Whether ``expr`` is a numeric constant (equal to ``value`` if given)."""
    return isinstance(expr, (IntImm, FloatImm)) and (value is None or expr.value == value)


def const_value(expr: Any) -> int | float | None:
    """Return the Python number of a constant, else ``None``."""
    return expr.value if isinstance(expr, (IntImm, FloatImm)) else None


def as_int(expr: ExprLike) -> int | None:
    """Return the Python int of an integer constant, else ``None``."""
    if isinstance(expr, IntImm):
        return expr.value
    return int(expr) if isinstance(expr, int) else None


def _fold(kind: Any, a: Expr, b: Expr, result: int | float) -> Expr:
    """Make a folded constant unless the result leaves the type's range or would round."""
    if a.dtype == INDEX and _LEAST_INDEX <= result <= -_LEAST_INDEX - 1:
        return _small(result)  # type: ignore[arg-type]
    if is_float(a.dtype):
        exact = all(_rounded(v, a.dtype) == v for v in (const_value(a), const_value(b), result))
        if a.dtype in ("float32", "float64") and exact:
            return FloatImm(float(result), a.dtype)
    else:
        low, high = integer_limits(a.dtype)
        if low <= result <= high:
            return const(int(result), a.dtype)
    made: Expr = kind(a, b)
    return made


def _rounded(value: Any, dtype: str) -> float | None:
    """The number that a constant of a float dtype has in memory, ``None`` if not known here."""
    code = {"float64": "<d", "float32": "<f", "float16": "<e"}.get(dtype)
    try:
        return None if code is None else float(struct.unpack(code, struct.pack(code, value))[0])
    except OverflowError:
        return None


def add(a: ExprLike, b: ExprLike) -> Expr:
    """``a + b``."""
    a, b = match_types(a, b)
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


def sub(a: ExprLike, b: ExprLike) -> Expr:
    """``a - b``."""
    a, b = match_types(a, b)
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


def div(a: ExprLike, b: ExprLike) -> Expr:
    """``a / b`` on floating-point numbers."""
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


def floordiv(a: ExprLike, b: ExprLike) -> Expr:
    """``a // b``, rounded towards minus infinity."""
    a, b = match_types(a, b)
    _check_integer(a, "//")
    if isinstance(b, IntImm):
        if b.value == 0:
            raise VerifyError(f"division by zero in `{a!r} // 0`")
        if b.value == 1:
            return a
        if isinstance(a, IntImm):
            return _fold(FloorDiv, a, b, a.value // b.value)
    if isinstance(a, IntImm) and a.value == 0:
        return a
    return FloorDiv(a, b)  # type: ignore[no-any-return]


def floormod(a: ExprLike, b: ExprLike) -> Expr:
    """``a % b`` with the sign of ``b``."""
    a, b = match_types(a, b)
    _check_integer(a, "%")
    if isinstance(b, IntImm):
        if b.value == 0:
            raise VerifyError(f"division by zero in `{a!r} % 0`")
        if b.value == 1:
            return const(0, a.dtype)
        if isinstance(a, IntImm):
            return const(a.value % b.value, a.dtype)
    if isinstance(a, IntImm) and a.value == 0:
        return a
    return FloorMod(a, b)  # type: ignore[no-any-return]


def truncdiv(a: ExprLike, b: ExprLike) -> Expr:
    """Integer division rounded towards zero."""
    a, b = match_types(a, b)
    _check_integer(a, "truncdiv")
    return call("truncdiv", a, b)


def truncmod(a: ExprLike, b: ExprLike) -> Expr:
    """Remainder of ``truncdiv``: has the sign of ``a``."""
    a, b = match_types(a, b)
    _check_integer(a, "truncmod")
    return call("truncmod", a, b)


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
        return b if b.value < a.value or b.value != b.value else a
    return Min(a, b)  # type: ignore[no-any-return]


def maximum(a: ExprLike, b: ExprLike) -> Expr:
    """The greater of two expressions."""
    a, b = match_types(a, b)
    if a is b:
        return a
    if isinstance(a, (IntImm, FloatImm)) and isinstance(b, (IntImm, FloatImm)):
        return b if b.value > a.value or b.value != b.value else a
    return Max(a, b)  # type: ignore[no-any-return]


def neg(a: ExprLike) -> Expr:
    """``-a``."""
    a = as_expr(a)
    if is_float(element_of(a.dtype)):
        return FloatImm(-a.value, a.dtype) if isinstance(a, FloatImm) else mul(a, -1.0)
    return sub(const(0, a.dtype), a)


_COMPARE_FOLD = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def compare(kind: Any, a: Any, b: Any) -> Expr:
    """Build a comparison node of class ``kind``; two constants fold."""
    a, b = match_types(a, b)
    if isinstance(a, (IntImm, FloatImm)) and isinstance(b, (IntImm, FloatImm)):
        # EQ of two distinct constants must stay usable as identity: fold only by value.
        return TRUE if _COMPARE_FOLD[kind.symbol](a.value, b.value) else FALSE
    made: Expr = kind(a, b)
    return made


def and_(*conditions: ExprLike) -> Expr:
    """Logical and; constants fold, no condition gives true."""
    result: Expr | None = None
    for condition in conditions:
        condition = as_expr(condition)
        if isinstance(condition, IntImm):
            if not condition.value:
                return FALSE
            continue
        result = condition if result is None else And(result, condition)
    return TRUE if result is None else result


def or_(*conditions: ExprLike) -> Expr:
    """Logical or; constants fold, no condition gives false."""
    result: Expr | None = None
    for condition in conditions:
        condition = as_expr(condition)
        if isinstance(condition, IntImm):
            if condition.value:
                return TRUE
            continue
        result = condition if result is None else Or(result, condition)
    return FALSE if result is None else result


def not_(a: ExprLike) -> Expr:
    """Logical not."""
    a = as_expr(a)
    if isinstance(a, IntImm):
        return FALSE if a.value else TRUE
    return a.a if isinstance(a, Not) else Not(a)


def select(condition: ExprLike, true_value: ExprLike, false_value: ExprLike) -> Expr:
    """A ``Select`` node: both sides are evaluated."""
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
    return Call(OPS.get("if_then_else"), (condition, true_value, false_value), true_value.dtype)


def cast(value: ExprLike, dtype: str) -> Expr:
    """Convert to ``dtype``; nothing happens if it already has it."""
    value = as_expr(value)
    if value.dtype == dtype:
        return value
    if lanes_of(dtype) > 1 and lanes_of(value.dtype) == 1:
        return Broadcast(cast(value, element_of(dtype)), lanes_of(dtype))
    if isinstance(value, IntImm):
        if is_float(dtype):
            return FloatImm(float(value.value), dtype)
        if is_bool(dtype):
            return TRUE if value.value else FALSE
        low, high = integer_limits(dtype)
        if low <= value.value <= high:
            return const(value.value, dtype)
    elif isinstance(value, FloatImm) and is_float(dtype):
        known = value.value if value.value.is_integer() and abs(value.value) <= 8 else None
        known = _rounded(value.value, value.dtype) if known is None else known
        if known is not None:
            return FloatImm(known, dtype)
    return Cast(value, dtype)


def call(op: str | Op, *args: ExprLike, dtype: str | None = None) -> Expr:
    """Call an intrinsic by name, with the result dtype by the operator's rule."""
    if isinstance(op, str):
        op = OPS.get(op)
    if op.arity is not None and len(args) != op.arity:
        raise VerifyError(f"{op.name} takes {op.arity} arguments, got {len(args)}")
    if op.arity == 2 and op.result == "same":
        made: tuple[Expr, ...] = match_types(args[0], args[1])
    else:
        made = tuple(as_expr(arg) for arg in args)
    if dtype is None:
        if op.result == "given":
            raise VerifyError(f"{op.name} needs dtype=")
        dtype = made[-1].dtype if op.result == "last" else made[0].dtype
        if op.result == "bool":
            dtype = vector_dtype("bool", lanes_of(dtype))
    return Call(op, made, dtype)


def min_value(dtype: str) -> Expr:
    """The least value of a dtype (minus infinity for floats with infinities)."""
    if is_float(dtype):
        return FloatImm(-448.0 if dtype == "float8_e4m3fn" else -math.inf, dtype)
    return const(integer_limits(dtype)[0], dtype)


def max_value(dtype: str) -> Expr:
    """The greatest value of a dtype (infinity for floats with infinities)."""
    if is_float(dtype):
        return FloatImm(448.0 if dtype == "float8_e4m3fn" else math.inf, dtype)
    return const(integer_limits(dtype)[1], dtype)


Substitution = Mapping[Var, Expr]
