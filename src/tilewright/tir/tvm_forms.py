"""Classes under TVM's names that stand for values of ours: kinds of loops, operators as nodes.

An operator such as ``bitwise_and`` is a ``Call`` here. ``tir.BitwiseAnd(a, b)`` builds one, and
``isinstance(expr, tir.BitwiseAnd)`` recognises it; its operands are ``expr.args``, and ``expr.a``
and ``expr.b``.
"""

from __future__ import annotations

from typing import ClassVar

from tilewright.ir import (
    BinaryExpr,
    Call,
    Expr,
    ExprLike,
    Var,
    as_expr,
    call,
    dtypes,
    located,
    set_span,
)
from tilewright.ir import Div as FloatDiv
from tilewright.tir.buffer import Buffer
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


class _Unary(_OfOperator):
    def __call__(cls, a: ExprLike, span: object = None) -> Expr:
        return located(call(cls.operator, as_expr(a)), span)


class _Binary(_OfOperator):
    def __call__(cls, a: ExprLike, b: ExprLike, span: object = None) -> Expr:
        return located(call(cls.operator, *BinaryExpr.as_children(a, b)), span)


class BitwiseAnd(metaclass=_Binary):
    """``bitwise_and(a, b)``."""

    operator: ClassVar[str] = "bitwise_and"
    a: Expr
    b: Expr


class BitwiseOr(metaclass=_Binary):
    """``bitwise_or(a, b)``."""

    operator: ClassVar[str] = "bitwise_or"
    a: Expr
    b: Expr


class BitwiseXor(metaclass=_Binary):
    """``bitwise_xor(a, b)``."""

    operator: ClassVar[str] = "bitwise_xor"
    a: Expr
    b: Expr


class BitwiseNot(metaclass=_Unary):
    """``bitwise_not(a)``."""

    operator: ClassVar[str] = "bitwise_not"
    a: Expr


class LShift(metaclass=_Binary):
    """``shift_left(a, b)``."""

    operator: ClassVar[str] = "shift_left"
    a: Expr
    b: Expr


class RShift(metaclass=_Binary):
    """``shift_right(a, b)``."""

    operator: ClassVar[str] = "shift_right"
    a: Expr
    b: Expr


class Mod(metaclass=_Binary):
    """``truncmod(a, b)``: the rest of a division rounded towards zero."""

    operator: ClassVar[str] = "truncmod"
    a: Expr
    b: Expr


class _Quotient(type):
    def __instancecheck__(cls, instance: object) -> bool:
        of_integers = isinstance(instance, Call) and instance.op.name == "truncdiv"
        return of_integers or isinstance(instance, FloatDiv)

    def __call__(cls, a: ExprLike, b: ExprLike, span: object = None) -> Expr:
        a, b = BinaryExpr.as_children(a, b)
        if dtypes.is_integer(a.dtype):
            return located(call("truncdiv", a, b), span)
        return located(FloatDiv(a, b), span)


class Div(metaclass=_Quotient):
    """A division as C's: the node ``ir.Div`` of floats, ``truncdiv`` of integers."""

    a: Expr
    b: Expr


class _Statement(type):
    """The class of classes that recognise the statement which calls one operator."""

    operator: str

    def __instancecheck__(cls, instance: object) -> bool:
        value = instance.value if type(instance) is Evaluate else None
        return type(value) is Call and value.op.name == cls.operator


class _Exit(_Statement):
    def __call__(cls, span: object = None) -> Stmt:
        return placed(Evaluate(call(cls.operator)), span)


class Break(metaclass=_Exit):
    """The statement that leaves the innermost loop: ``Evaluate`` of ``break_loop()``."""

    operator: ClassVar[str] = "break_loop"


class Continue(metaclass=_Exit):
    """The statement that goes on with the next iteration: ``Evaluate`` of ``continue_loop()``."""

    operator: ClassVar[str] = "continue_loop"


class _Returning(_Statement):
    def __call__(cls, value: ExprLike, span: object = None) -> Stmt:
        return placed(Evaluate(call("ret", as_expr(value), dtype="void")), span)


class Return(metaclass=_Returning):
    """The statement that ends the function: ``Evaluate`` of ``ret(value)``."""

    operator: ClassVar[str] = "ret"


def placed(stmt: Stmt, span: object) -> Stmt:
    """A new statement, with where it comes from."""
    if span is not None:
        set_span(stmt, span)
    return stmt


def break_loop(span: object = None) -> Expr:
    """The call that leaves the innermost loop; :class:`Break` is the statement."""
    return located(call("break_loop"), span)


def continue_loop(span: object = None) -> Expr:
    """The call that goes on with the next iteration; :class:`Continue` is the statement."""
    return located(call("continue_loop"), span)


def is_buffer_var(value: object) -> bool:
    """Whether a value is a buffer, and no other variable."""
    return isinstance(value, Buffer)


def buffer_data(buffer: Buffer) -> Var:
    """The pointer to a buffer's memory."""
    if not isinstance(buffer, Buffer):
        raise TypeError(f"buffer_data takes a buffer, got {buffer!r}")
    return buffer.data


def stmt_seq(*args: Expr | Stmt) -> Stmt:
    """Join statements, and expressions as statements, into one."""
    return seq(*(Evaluate(item) if isinstance(item, Expr) else item for item in args))


def stmt_list(stmt: Stmt) -> list[Stmt]:
    """The statements of a sequence; of another statement, itself."""
    if isinstance(stmt, SeqStmt):
        return list(stmt.stmts)
    return [] if stmt is NO_OP else [stmt]
