"""The part of the dialect ``T`` that builds expressions: dtypes, constants, nodes, intrinsics.

Functions here build what they say and fold only constants with constants, so that text and tree
agree. The CamelCase ones are the nodes themselves.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from typing import Any

from tilewright.arith import simplify
from tilewright.ir import (
    INDEX,
    OPS,
    Expr,
    ExprLike,
    FloatImm,
    IntImm,
    Op,
    Range,
    Var,
    as_expr,
    cast,
    const,
    const_value,
    dtypes,
    expr_equal,
    match_types,
    max_value,
    maximum,
    min_value,
    minimum,
    structural_equal,
)
from tilewright.ir import expr as _expr
from tilewright.script.allowance import register_values
from tilewright.script.operators import to_value
from tilewright.script.references import register_subscript
from tilewright.support.errors import VerifyError
from tilewright.target import Target

_bool, _float, _int = builtins.bool, builtins.float, builtins.int


class ScalarType:
    """A dtype: ``T.float32``. Annotates parameters, makes constants, symbols and casts.

    ``T.int64()`` is a new variable, ``T.float32(1.5)`` and ``T.float32("inf")`` constants,
    ``T.float32(x)`` converts an expression.
    """

    def __init__(self, dtype: str) -> None:
        self.dtype = self.stated_dtype = dtype

    def __call__(self, expr: ExprLike | str | None = None) -> Expr:
        """Make a variable, a constant or a cast."""
        if expr is None:
            return Var("", self.dtype)
        value = to_value(expr)
        if isinstance(value, Expr):
            return cast(value, self.dtype)
        kind = dtypes.kind_of(self.dtype)
        if isinstance(value, str):
            if kind != "float":
                raise VerifyError(f"{self.dtype} takes a number, got {value!r}")
            return FloatImm(self.dtype, _float(value))
        if kind == "handle":
            if value != 0:
                raise VerifyError("the only constant of dtype handle is 0")
            return IntImm(self.dtype, 0)
        if isinstance(value, _float) and kind != "float" and not value.is_integer():
            raise VerifyError(f"the constant {value!r} is not of dtype {self.dtype}")
        return const(value, self.dtype)

    def __repr__(self) -> str:
        return f"T.{self.dtype}"


DTypeLike = str | ScalarType


class HandleType(ScalarType):
    """``T.handle``, and ``T.handle("float32", "shared")`` of what it points at.

    A handle itself has no type of elements: the buffer that is declared over it says it.
    """

    def __call__(
        self, dtype: ExprLike | DTypeLike | None = None, storage_scope: str = "global"
    ) -> Expr:
        """Make a variable, or the handle that is nowhere: ``T.handle(0)``."""
        if not isinstance(storage_scope, str):
            raise VerifyError(f"a scope of memory is text, got {storage_scope!r}")
        if isinstance(dtype, (str, ScalarType)):
            as_dtype(dtype)
            dtype = None
        return super().__call__(dtype)


class LetAnnotation:
    """``x: T.let = value``: a variable of the value's dtype; ``T.let[T.int32]`` states that."""

    def __init__(self, type_spec: Any = None) -> None:
        self.type_spec = type_spec

    def __getitem__(self, item: Any) -> LetAnnotation:
        return LetAnnotation(item)

    def __class_getitem__(cls, item: Any) -> LetAnnotation:
        return cls(item)

    def as_var(self, rhs_dtype: DTypeLike | None = None) -> Var:
        """A variable of the stated dtype, else of the value's, which is ``rhs_dtype``."""
        spec = self.type_spec
        if type(spec) is Var:  # T.handle("float32")
            return spec
        if spec is None and rhs_dtype is None:
            raise TypeError("T.let needs a dtype, or that of the value")
        dtype: Any = rhs_dtype if spec is None else spec
        return Var("", as_dtype(dtype))


@register_subscript(LetAnnotation)
def _declared_let(marker: LetAnnotation, given: tuple[Any, ...]) -> LetAnnotation:
    if len(given) != 1 or not isinstance(given[0], (str, ScalarType, Var)):
        raise VerifyError("T.let takes one dtype: T.let[T.int32]")
    return LetAnnotation(given[0])


register_values(ScalarType, attributes="dtype")
register_values(LetAnnotation)

let = LetAnnotation()
bool = ScalarType("bool")
int4 = ScalarType("int4")
int8 = ScalarType("int8")
int16 = ScalarType("int16")
int32 = ScalarType("int32")
int64 = ScalarType("int64")
uint4 = ScalarType("uint4")
uint8 = ScalarType("uint8")
uint16 = ScalarType("uint16")
uint32 = ScalarType("uint32")
uint64 = ScalarType("uint64")
float16 = ScalarType("float16")
bfloat16 = ScalarType("bfloat16")
float8_e4m3fn = ScalarType("float8_e4m3fn")
float8_e5m2 = ScalarType("float8_e5m2")
float32 = ScalarType("float32")
float64 = ScalarType("float64")
handle = HandleType("handle")
void = ScalarType("void")


SHORT_DTYPES = {
    **{f"{letter}{bits}": f"{kind}{bits}" for letter, kind in (("i", "int"), ("u", "uint"))
       for bits in (8, 16, 32, 64)},
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
    "bf16": "bfloat16",
    "boolean": "bool",
}  # fmt: skip
"""Other names of dtypes in the dialect: ``T.f32``, ``T.i64``, ``T.boolean``."""


def Ptr(dtype: DTypeLike, storage_scope: str = "global") -> Expr:
    """A new variable of dtype handle: ``T.Ptr(T.float32, "shared")``; also types a parameter."""
    return handle(dtype, storage_scope)


def as_dtype(dtype: DTypeLike) -> str:
    """Return a dtype's text; ``T.float32`` stands for ``"float32"``."""
    if isinstance(dtype, ScalarType):
        return dtype.dtype
    dtypes.split_dtype(dtype)
    return str(dtype)


def _pair(
    kind: Callable[[Expr, Expr], Expr], fold: Callable[[Any, Any], Expr], a: ExprLike, b: ExprLike
) -> Expr:
    a, b = match_types(to_value(a), to_value(b))
    if const_value(a) is not None and const_value(b) is not None:
        return fold(a, b)
    made: Expr = kind(a, b)
    return made


def min(a: ExprLike, b: ExprLike) -> Expr:
    """The lesser of two."""
    return _pair(_expr.Min, minimum, a, b)


def max(a: ExprLike, b: ExprLike) -> Expr:
    """The greater of two."""
    return _pair(_expr.Max, maximum, a, b)


def if_then_else(cond: ExprLike, t: ExprLike, f: ExprLike, dtype: DTypeLike | None = None) -> Expr:
    """``t`` if ``cond`` holds, else ``f``; only one is evaluated."""
    t, f = match_types(to_value(t), to_value(f))
    made = as_dtype(dtype) if dtype is not None else f.dtype
    return _expr.Call.of_fields(OPS.get("if_then_else"), (_condition(cond), t, f), made)


def _condition(condition: ExprLike) -> Expr:
    made = as_expr(condition)
    if dtypes.element_of(made.dtype) != "bool":
        raise VerifyError(f"a condition must be bool, got {made.dtype}")
    return made


def Let(expr: ExprLike, where: Mapping[Var, Any]) -> Expr:
    """``expr`` with variables (made by ``x = T.float32()``) standing for values."""
    result = as_expr(expr)
    for var, value in reversed(list(where.items())):
        if type(var) is not Var:
            raise VerifyError(f"Let binds variables, got {var!r}")
        made = const(value, var.dtype) if not isinstance(value, Expr) else value
        result = _expr.Let(var, made, result)
    return result


def Call(op: str | Op, *args: ExprLike, dtype: DTypeLike) -> Expr:
    """The call of an operator as it stands, with the result's dtype given."""
    op = OPS.get(op) if isinstance(op, str) else op
    return _expr.Call.of_fields(op, tuple(map(as_expr, args)), as_dtype(dtype))


def variable(dtype: DTypeLike, name: str = "") -> Var:
    """Make a variable of a dtype."""
    return Var(name, as_dtype(dtype))


def index_range(begin: ExprLike, end: ExprLike) -> Range:
    """The half-open range ``[begin, end)``."""
    from_, extent = split_range(begin, end)
    return Range.from_min_extent(from_, extent)


def _same(a: Expr, b: Expr) -> builtins.bool:
    """Whether two expressions are the same; each may define variables of its own."""
    return expr_equal(a, b) or (type(a) is type(b) and structural_equal(a, b, map_free_vars=False))


def split_range(start: ExprLike, stop: ExprLike) -> tuple[Expr, Expr]:
    """Return minimum and extent of ``start:stop``, undoing ``start + extent`` as it stands."""
    start, stop = to_value(start), to_value(stop)
    for bound in (start, stop):
        if not isinstance(bound, Expr) and isinstance(bound, _float):
            raise VerifyError(f"a range is of integers, got {bound!r}")
    if not isinstance(start, Expr):
        start = const(start, stop.dtype if isinstance(stop, Expr) else INDEX)
    stop = as_expr(stop, start.dtype)
    if isinstance(stop, _expr.Add) and stop.a.dtype != stop.b.dtype and _same(stop.a, start):
        return start, stop.b
    if isinstance(start, IntImm):
        if start.value == 0 and start.dtype == stop.dtype:
            return start, stop
        if isinstance(stop, IntImm) and stop.dtype == start.dtype:
            return start, const(stop.value - start.value, start.dtype)
    if isinstance(stop, _expr.Add):
        if _same(stop.a, start):
            return start, stop.b
        if _same(stop.b, start):
            return start, stop.a
        inner, offset = stop.a, stop.b
        # start = x + 4, stop = x + 20
        if (
            isinstance(start, _expr.Add)
            and _same(inner, start.a)
            and isinstance(offset, IntImm)
            and isinstance(start.b, IntImm)
        ):
            return start, offset - start.b
    return start, simplify(stop - start)


def operator(name: str) -> Op:
    """An operator of the table, as an attribute."""
    return OPS.get(name)


def cast_to(value: ExprLike, dtype: DTypeLike) -> Expr:
    """Convert; nothing happens if the value has the dtype."""
    return cast(to_value(value), as_dtype(dtype))


def target(
    target_config: str | dict[str, Any], host: str | dict[str, Any] | Target | None = None
) -> Target:
    """A target, as attributes of functions hold it."""
    return Target(target_config) if host is None else Target(target_config, host)


def infinity(dtype: DTypeLike) -> Expr:
    """Positive infinity."""
    return FloatImm(as_dtype(dtype), _float("inf"))


def least(dtype: DTypeLike) -> Expr:
    """The least number of a dtype: finite, also for floats."""
    return min_value(as_dtype(dtype))


def greatest(dtype: DTypeLike) -> Expr:
    """The greatest number of a dtype: finite, also for floats."""
    return max_value(as_dtype(dtype))
