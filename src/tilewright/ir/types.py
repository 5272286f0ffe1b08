"""Types: what is known of the values of expressions, functions and graphs.

Scalar expressions have a ``dtype``, from which ``Expr.ty`` makes a type. Graph values hold theirs:
``relax.struct_info`` has the types of tensors, shapes and graph functions, and ``StructInfo`` there
is ``Type``. Types are values: two of the same content over the same variables are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir import dtype as dtypes
from tilewright.ir.expr import BUILD, Expr, StringImm, Var, builds
from tilewright.ir.expr_convert import const
from tilewright.ir.node import Node, attr, child, children, node
from tilewright.ir.structural import structural_equal
from tilewright.support.errors import VerifyError

# Codes of kinds of dtypes, as DLPack counts them; small floats have codes of their own there.
_CODES = {"int": 0, "uint": 1, "float": 2, "handle": 3, "bool": 6}
_FLOAT_CODES = {
    "bfloat16": 4, "float8_e3m4": 7, "float8_e4m3": 8, "float8_e4m3b11fnuz": 9, "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11, "float8_e5m2": 12, "float8_e5m2fnuz": 13, "float8_e8m0fnu": 14,
    "float6_e2m3fn": 15, "float6_e3m2fn": 16, "float4_e2m1fn": 17,
}  # fmt: skip


@node
class Type(Node):
    """Base of types; an object of this class itself says nothing."""

    def is_base_of(self, derived: Type) -> bool:
        """Whether each value of ``derived`` is one of this, whatever its symbolic extents are."""
        return _base_check(self, derived)

    @staticmethod
    def missing() -> Type:
        """Return the type of what has none yet."""
        return _MISSING

    Missing = missing

    def is_missing(self) -> bool:
        """Whether this is the type of what has none yet."""
        return self is _MISSING

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Type) and structural_equal(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((type(self), repr(self)))


_MISSING = Type()


@node
class PrimType(Type):
    """A scalar or vector of a dtype that is not a tensor, with its value if it is known."""

    dtype: str = attr()
    value: Expr | None = child(default=None)

    def __post_init__(self) -> None:
        if type(self.dtype) is not str:
            object.__setattr__(self, "dtype", dtypes.dtype_text(self.dtype))
        dtypes.split_dtype(self.dtype)
        if self.value is None:
            return
        value = self.value if isinstance(self.value, Expr) else const(self.value, self.dtype)
        if value.dtype != self.dtype:
            raise VerifyError(f"the value of a {self.dtype} scalar is {value!r}, a {value.dtype}")
        object.__setattr__(self, "value", value)

    @property
    def stated_dtype(self) -> str:
        """The dtype of a variable that has this type."""
        return self.dtype

    def is_scalar(self) -> bool:
        """Whether it has one lane."""
        return dtypes.lanes_of(self.dtype) == 1

    def matches_code(self, *codes: int) -> bool:
        """Whether the kind of the elements has one of the codes, of ``runtime.DataTypeCode``."""
        element = dtypes.element_of(self.dtype)
        code = _FLOAT_CODES.get(element, _CODES.get(dtypes.kind_of(element), -1))
        return code in [int(each) for each in codes]

    def matches_element_type(self, code: int, bits: int) -> bool:
        """Whether the elements have a code and a number of bits."""
        return self.matches_code(code) and dtypes.bits_of(self.dtype) == bits

    def __repr__(self) -> str:
        return f"Prim({self.dtype})"


@node
class PointerType(Type):
    """A pointer; a variable that has this type is a ``handle``, and buffers say what is there."""

    element_type: Type = child()
    storage_scope: str = attr(default="")

    def __post_init__(self) -> None:
        if not isinstance(self.element_type, Type) or not isinstance(self.storage_scope, str):
            raise VerifyError(f"a pointer is one to a Type, got {self.element_type!r}")
        object.__setattr__(self, "storage_scope", self.storage_scope or "global")

    @property
    def stated_dtype(self) -> str:
        """The dtype of a variable that has this type."""
        return "handle"


def _all_types(types: Sequence[Any], what: str) -> None:
    wrong = [each for each in types if not isinstance(each, Type)]
    if wrong:
        raise VerifyError(f"{what} types, got {wrong[0]!r}")


@node
class TupleType(Type):
    """A tuple of values."""

    fields: tuple[Type, ...] = children()

    def __post_init__(self) -> None:
        _all_types(self.fields, "a tuple has")

    def __repr__(self) -> str:
        return f"Tuple({', '.join(map(repr, self.fields))})"


@node
class FuncType(Type):
    """A function: what it takes and gives. That of a graph is ``relax.FuncType``."""

    arg_types: tuple[Type, ...] = children()
    ret_type: Type = child()

    def __post_init__(self) -> None:
        _all_types((*self.arg_types, self.ret_type), "a function takes and gives")


@node
class StringType(Type):
    """Text."""


@node
class OpaqueType(Type):
    """A value that only who made it can read."""


@builds
def type_of(expr: Expr) -> Type:
    """Return the type of an expression."""
    if isinstance(expr, StringImm):
        return StringType()
    return PointerType(PrimType("void")) if expr.dtype == "handle" else PrimType(expr.dtype)


def is_prim_expr(value: object) -> bool:
    """Whether a value is an expression that is a number or truth value, or a vector of them."""
    return isinstance(value, Expr) and isinstance(BUILD.type_of(value), PrimType)


def is_prim_var(value: object) -> bool:
    """Whether a value is a variable that is a number or truth value, or a vector of them."""
    return type(value) is Var and is_prim_expr(value)


def _is_equal_or_base(base: Type, derived: Type) -> bool:
    if isinstance(base, TupleType) and isinstance(derived, TupleType):
        same = len(base.fields) == len(derived.fields)
        return same and all(map(_base_check, base.fields, derived.fields))
    return base == derived


_base_check: Callable[[Type, Type], bool] = _is_equal_or_base


def set_base_check(check: Callable[[Type, Type], bool]) -> None:
    """Set how ``is_base_of`` decides; called once by ``relax``, whose extents need arithmetic."""
    global _base_check
    _base_check = check
