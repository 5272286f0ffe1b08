"""Classes under TVM's names that stand for values of ours: kinds of loops, operators as nodes.

An operator such as ``bitwise_and`` is a ``Call`` here. ``tir.BitwiseAnd(a, b)`` builds one, and
``isinstance(expr, tir.BitwiseAnd)`` recognises it; its operands are ``expr.args``.
"""

from __future__ import annotations

from typing import Any, ClassVar

from tilewright.ir import Call, Expr, call, located
from tilewright.tir.stmt import (
    NO_OP,
    PARALLEL,
    SERIAL,
    THREAD_BINDING,
    UNROLLED,
    VECTORIZED,
    Evaluate,
    SeqStmt,
    Stmt,
    seq,
)


class ForKind:
    """The kinds of loops: ``loop.kind == ForKind.SERIAL``."""

    SERIAL = SERIAL
    PARALLEL = PARALLEL
    VECTORIZED = VECTORIZED
    UNROLLED = UNROLLED
    THREAD_BINDING = THREAD_BINDING


class CallEffectKind:
    """What an operator does, as its entry in the table says: ``call.op.effect``."""

    Pure = "pure"
    ReadState = "read"
    UpdateState = "update"
    Opaque = "opaque"
    ExprAnnotation = "pure"


class BufferAccessKind:
    """Masks of accesses: ``buffer.access_ptr(BufferAccessKind.READ)``."""

    READ = 1
    WRITE = 2


class _OfOperator(type):
    """The class of classes that recognise calls of one operator."""

    operator: str

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Call) and instance.op.name == cls.operator

    def __call__(cls, *args: Any, span: object = None) -> Expr:
        return located(call(cls.operator, *args), span)


class BitwiseAnd(metaclass=_OfOperator):
    """``bitwise_and(a, b)``."""

    operator: ClassVar[str] = "bitwise_and"


class BitwiseOr(metaclass=_OfOperator):
    """``bitwise_or(a, b)``."""

    operator: ClassVar[str] = "bitwise_or"


class BitwiseXor(metaclass=_OfOperator):
    """``bitwise_xor(a, b)``."""

    operator: ClassVar[str] = "bitwise_xor"


class BitwiseNot(metaclass=_OfOperator):
    """``bitwise_not(a)``."""

    operator: ClassVar[str] = "bitwise_not"


class LShift(metaclass=_OfOperator):
    """``shift_left(a, b)``."""

    operator: ClassVar[str] = "shift_left"


class RShift(metaclass=_OfOperator):
    """``shift_right(a, b)``."""

    operator: ClassVar[str] = "shift_right"


class Mod(metaclass=_OfOperator):
    """``truncmod(a, b)``: the rest of a division rounded towards zero."""

    operator: ClassVar[str] = "truncmod"


def stmt_seq(*args: Expr | Stmt) -> Stmt:
    """Join statements, and expressions as statements, into one."""
    return seq(*(Evaluate(item) if isinstance(item, Expr) else item for item in args))


def stmt_list(stmt: Stmt) -> list[Stmt]:
    """The statements of a sequence; of another statement, itself."""
    if isinstance(stmt, SeqStmt):
        return list(stmt.stmts)
    return [] if stmt is NO_OP else [stmt]
