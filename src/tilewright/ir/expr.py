"""Scalar and vector expressions: the node classes.

Every expression has a ``dtype`` (see ``ir.dtype``). Python operators on expressions build nodes:
integers and floats next to an expression take its dtype, two dtypes are promoted (wider wins,
float beats integer), and constants fold. ``//`` rounds towards minus infinity and ``%`` matches it,
as in Python; ``/`` is for floating-point numbers only.

``a == b`` on expressions builds an ``EQ`` node. Compare nodes with ``is``, ``structural_equal`` or
``arith.Analyzer.can_prove_equal``. Only ``EQ``/``NE`` may be used as a Python truth value, where
they mean identity (so that ``var in list`` works); any other expression raises an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Union

from tilewright.ir.dtype import (
    INDEX,
    dtype_text,
    integer_limits,
    is_bool,
    lanes_of,
    split_dtype,
    vector_dtype,
)
from tilewright.ir.expr_checks import (
    check_call,
    check_cast,
    check_float_dtype,
    check_int_constant,
    check_name,
    float_constant,
)
from tilewright.ir.node import (
    Node,
    attr,
    child,
    children,
    definition,
    derived,
    node,
    set_span,
)
from tilewright.ir.op import Op
from tilewright.support.errors import VerifyError

ExprLike = Union["Expr", int, float, bool]

_LEAST_INDEX, _MOST_INDEX = integer_limits(INDEX)


class _Builders:
    """The functions that build the expressions of Python operators.

    ``expr_convert`` and ``expr_operators`` import this module, so they register them by ``builds``.
    """

    add: Callable[[ExprLike, ExprLike], Expr]
    sub: Callable[[ExprLike, ExprLike], Expr]
    mul: Callable[[ExprLike, ExprLike], Expr]
    div: Callable[[ExprLike, ExprLike], Expr]
    floordiv: Callable[[ExprLike, ExprLike], Expr]
    floormod: Callable[[ExprLike, ExprLike], Expr]
    neg: Callable[[ExprLike], Expr]
    and_: Callable[..., Expr]
    or_: Callable[..., Expr]
    not_: Callable[[ExprLike], Expr]
    compare: Callable[[Any, Any, Any], Expr]
    call: Callable[..., Expr]
    cast: Callable[[ExprLike, str], Expr]
    as_expr: Callable[..., Expr]
    type_of: Callable[[Expr], Any]
    lanes_number: Callable[[Expr], int]
    lane_count: Callable[[int], Expr]


BUILD = _Builders()
_Function = TypeVar("_Function", bound=Callable[..., Any])


def builds(function: _Function) -> _Function:
    """Register a function in ``BUILD`` under its name."""
    assert function.__name__ in _Builders.__annotations__
    setattr(BUILD, function.__name__, function)
    return function


class Expr(Node):
    """Base of scalar and vector expressions; every one has a ``dtype``."""

    __slots__ = ()
    dtype: str
    reads_memory = False  # whether evaluating such a node touches memory, by its class
    child_class: type[Expr]

    def __add__(self, other: ExprLike) -> Expr:
        return BUILD.add(self, other)

    def __radd__(self, other: ExprLike) -> Expr:
        return BUILD.add(other, self)

    def __sub__(self, other: ExprLike) -> Expr:
        return BUILD.sub(self, other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return BUILD.sub(other, self)

    def __mul__(self, other: ExprLike) -> Expr:
        return BUILD.mul(self, other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return BUILD.mul(other, self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return BUILD.div(self, other)

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return BUILD.div(other, self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return BUILD.floordiv(self, other)

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return BUILD.floordiv(other, self)

    def __mod__(self, other: ExprLike) -> Expr:
        return BUILD.floormod(self, other)

    def __rmod__(self, other: ExprLike) -> Expr:
        return BUILD.floormod(other, self)

    def __neg__(self) -> Expr:
        return BUILD.neg(self)

    def __lshift__(self, other: ExprLike) -> Expr:
        return BUILD.call("shift_left", self, other)

    def __rlshift__(self, other: ExprLike) -> Expr:
        return BUILD.call("shift_left", other, self)

    def __rshift__(self, other: ExprLike) -> Expr:
        return BUILD.call("shift_right", self, other)

    def __rrshift__(self, other: ExprLike) -> Expr:
        return BUILD.call("shift_right", other, self)

    def __and__(self, other: ExprLike) -> Expr:
        truths = _are_truths(self, other)
        return BUILD.and_(self, other) if truths else BUILD.call("bitwise_and", self, other)

    def __rand__(self, other: ExprLike) -> Expr:
        truths = _are_truths(self, other)
        return BUILD.and_(other, self) if truths else BUILD.call("bitwise_and", other, self)

    def __or__(self, other: ExprLike) -> Expr:
        truths = _are_truths(self, other)
        return BUILD.or_(self, other) if truths else BUILD.call("bitwise_or", self, other)

    def __ror__(self, other: ExprLike) -> Expr:
        truths = _are_truths(self, other)
        return BUILD.or_(other, self) if truths else BUILD.call("bitwise_or", other, self)

    def __xor__(self, other: ExprLike) -> Expr:
        return BUILD.call("bitwise_xor", self, other)

    def __rxor__(self, other: ExprLike) -> Expr:
        return BUILD.call("bitwise_xor", other, self)

    def __invert__(self) -> Expr:
        return BUILD.call("bitwise_not", self) if not is_bool(self.dtype) else BUILD.not_(self)

    def __lt__(self, other: ExprLike) -> Expr:
        return BUILD.compare(LT, self, other)

    def __le__(self, other: ExprLike) -> Expr:
        return BUILD.compare(LE, self, other)

    def __gt__(self, other: ExprLike) -> Expr:
        return BUILD.compare(GT, self, other)

    def __ge__(self, other: ExprLike) -> Expr:
        return BUILD.compare(GE, self, other)

    def __eq__(self, other: object) -> Any:
        return BUILD.compare(EQ, self, other) if _is_exprlike(other) else NotImplemented

    def __ne__(self, other: object) -> Any:
        return BUILD.compare(NE, self, other) if _is_exprlike(other) else NotImplemented

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise VerifyError(
            f"the value of `{self!r}` is not known while the program is being built; "
            "use if_then_else, Select, all or any instead of Python's if, and, or"
        )

    @property
    def ty(self) -> Any:
        """The type (``ir.Type``), which follows from ``dtype``: pointers are to anything."""
        return BUILD.type_of(self)

    def expr_ty(self) -> Any:
        """Return the type, which follows from ``dtype``."""
        return BUILD.type_of(self)

    def astype(self, dtype: str, span: object = None) -> Expr:
        """Convert to another dtype."""
        return located(BUILD.cast(self, dtype), span)

    def equal(self, other: ExprLike, span: object = None) -> Expr:
        """``self == other`` as an expression, also where ``other`` is no expression yet."""
        return located(BUILD.compare(EQ, self, other), span)


def _are_truths(*operands: object) -> bool:
    """Whether all expressions among operands are truth values: others' bits are joined."""
    return all(is_bool(item.dtype) for item in operands if isinstance(item, Expr))


Expr.child_class = Expr


def located(expr: Expr, span: object) -> Expr:
    """Note where an expression that was just made stands in source text, if that is known.

    Constants and what a function got from its caller stand for other places too, and keep theirs.
    """
    if span is not None and expr.span is None and not isinstance(expr, (IntImm, Var)):
        set_span(expr, span)
    return expr


def as_exprs(*values: ExprLike) -> tuple[Expr, ...]:
    """Each value as an expression."""
    return tuple(map(BUILD.as_expr, values))


def _is_exprlike(value: object) -> bool:
    return isinstance(value, (Expr, int, float))


@node
class Var(Expr):
    """A scalar variable. It is identified by the object; the name is only for display."""

    name: str = attr()
    dtype: str = attr(default=INDEX)

    init_takes_fields = False

    def __init__(
        self,
        name: str | None = None,
        ty: Any = None,
        span: object = None,
        *,
        dtype: Any = INDEX,
        name_hint: str | None = None,
    ) -> None:
        """Make a variable; ``ty`` and ``dtype`` are the same, and so are the names."""
        if ty is not None:
            dtype = ty
        if type(name) is not str:
            name = name_hint if name is None else name
            check_name(name, "a variable")
        if dtype != INDEX:
            if type(dtype) is not str:
                dtype = dtype_text(dtype)
            split_dtype(dtype)
        self.fill(name, dtype)
        if span is not None:
            set_span(self, span)

    def __repr__(self) -> str:
        return self.name


@node
class IntImm(Expr):
    """An integer or bool constant."""

    value: int = attr()
    dtype: str = attr(default=INDEX)

    init_takes_fields = False

    def __init__(self, dtype: Any, value: int, span: object = None) -> None:
        """Make a constant, which must fit its dtype."""
        # Most are indices.
        if not (dtype == INDEX and type(value) is int and _LEAST_INDEX <= value <= _MOST_INDEX):
            if type(dtype) is not str:
                dtype = dtype_text(dtype)
            check_int_constant(value, dtype)
            value = int(value)
        self.fill(value, dtype)
        if span is not None:
            set_span(self, span)

    def __int__(self) -> int:
        return int(self.value)

    def __bool__(self) -> bool:
        return self.value != 0

    def __repr__(self) -> str:
        return str(self.value) if self.dtype == INDEX else f"{self.dtype}({self.value})"


@node
class FloatImm(Expr):
    """A floating-point constant; its users round the value to ``dtype``."""

    value: float = attr()
    dtype: str = attr(default="float32")

    init_takes_fields = False

    def __init__(self, dtype: Any, value: float, span: object = None) -> None:
        """Make a constant of a scalar floating-point dtype."""
        if dtype != "float32":
            if type(dtype) is not str:
                dtype = dtype_text(dtype)
            check_float_dtype(dtype)
        self.fill(value if type(value) is float else float_constant(value), dtype)
        if span is not None:
            set_span(self, span)

    def __float__(self) -> float:
        return float(self.value)

    def __bool__(self) -> bool:
        return self.value != 0.0

    def __repr__(self) -> str:
        return f"{self.dtype}({self.value!r})"


@node
class StringImm(Expr):
    """A string constant, as an argument of intrinsics."""

    value: str = attr()
    dtype: str = derived()

    def __post_init__(self) -> None:
        if not isinstance(self.value, str):
            raise VerifyError(f"a StringImm holds text, got {self.value!r}")
        object.__setattr__(self, "dtype", "handle")


@node
class Cast(Expr):
    """A conversion: integers wrap, floats round to nearest even, floats to integers truncate.

    A float outside the integer dtype's range saturates, NaN becomes 0.
    """

    value: Expr = child()
    dtype: str = attr()

    init_takes_fields = False

    def __init__(self, dtype: Any, value: ExprLike, span: object = None) -> None:
        """Convert a value, even to the dtype that it has."""
        if type(dtype) is not str:
            dtype = dtype_text(dtype)
        made = value if isinstance(value, Expr) else BUILD.as_expr(value)
        check_cast(made.dtype, dtype)
        self.fill(made, dtype)
        if span is not None:
            set_span(self, span)


class BinaryExpr(Expr):
    """Base of arithmetic on two operands of one dtype."""

    __slots__ = ()
    symbol = "?"
    a: Expr
    b: Expr

    if TYPE_CHECKING:  # the classes of the operators have it from their fields

        def __init__(self, a: ExprLike, b: ExprLike) -> None: ...

    @staticmethod
    def as_children(a: ExprLike, b: ExprLike) -> tuple[Expr, Expr]:
        """Two operands; a number takes the dtype of the other one."""
        if isinstance(a, (int, float)) and not isinstance(b, (int, float)):
            made = BUILD.as_expr(b)
            return BUILD.as_expr(a, made.dtype), made
        made = BUILD.as_expr(a)
        return made, BUILD.as_expr(b, made.dtype)

    def __repr__(self) -> str:
        if self.symbol.isalpha():
            return f"{self.symbol}({self.a!r}, {self.b!r})"
        return f"({self.a!r} {self.symbol} {self.b!r})"


def _binary(
    name: str, symbol: str, doc: str, base: type = BinaryExpr, boolean: bool = False
) -> Any:
    """Declare one binary node class; all of them have the same shape."""

    def bool_dtype(self: Any) -> None:
        object.__setattr__(self, "dtype", vector_dtype("bool", lanes_of(self.a.dtype)))

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
FloorDiv = _binary(
    "FloorDiv", "//", "Integer division rounded towards minus infinity; 0 if ``b`` is."
)
FloorMod = _binary("FloorMod", "%", "The rest of ``a // b``: has the sign of ``b``; 0 if ``b`` is.")
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

    as_children = staticmethod(as_exprs)

    if TYPE_CHECKING:

        def __init__(self, a: ExprLike) -> None: ...


@node
class Select(Expr):
    """``true_value if condition else false_value``; both are evaluated, whichever is chosen."""

    condition: Expr = child()
    true_value: Expr = child()
    false_value: Expr = child()
    dtype: str = derived("true_value")

    def __post_init__(self) -> None:
        if self.condition.dtype != "bool" and not is_bool(self.condition.dtype):
            raise VerifyError(f"a condition must be bool, got {self.condition.dtype}")

    @staticmethod
    def as_children(
        condition: ExprLike, true_value: ExprLike, false_value: ExprLike
    ) -> tuple[Expr, Expr, Expr]:
        """The condition and two values; a number takes the dtype of the other value."""
        return BUILD.as_expr(condition), *BinaryExpr.as_children(true_value, false_value)

    if TYPE_CHECKING:

        def __init__(
            self, condition: ExprLike, true_value: ExprLike, false_value: ExprLike
        ) -> None: ...


_OPERATORS = frozenset(
    """bitwise_and bitwise_not bitwise_or bitwise_xor shift_left shift_right
    truncdiv truncmod""".split()
)


@node
class Call(Expr):
    """A call of an intrinsic operator."""

    op: Op = attr()
    args: tuple[Expr, ...] = children()
    dtype: str = attr()

    init_takes_fields = False

    def __init__(
        self,
        op: Op | str,
        args: Sequence[ExprLike],
        attrs: Mapping[str, Any] | None = None,
        ty_args: Sequence[object] | None = None,
        span: object = None,
        ret_ty: Any = None,
        *,
        dtype: Any = None,
    ) -> None:
        """Call an operator, or that of a name; ``ret_ty`` and ``dtype`` are the same.

        Raises ``VerifyError`` for attributes and arguments that are types: only calls of graphs
        have them.
        """
        if attrs or ty_args:
            raise VerifyError("a call in an expression has no attrs and ty_args; see relax.Call")
        op = Op.get(op) if isinstance(op, str) else op
        made = as_exprs(*args)
        given = dtype if ret_ty is None else ret_ty
        self.fill(
            op, made, BUILD.call(op.name, *made).dtype if given is None else dtype_text(given)
        )
        if span is not None:
            set_span(self, span)

    @property
    def attrs(self) -> None:
        """``None``: only calls of graphs have attributes."""
        return None

    @property
    def ty_args(self) -> tuple[object, ...]:
        """Nothing: only calls of graphs have arguments that are types."""
        return ()

    def __post_init__(self) -> None:
        if type(self.op) is Op and type(self.dtype) is str:
            split_dtype(self.dtype)
        else:
            check_call(self.op, self.dtype)

    @property
    def a(self) -> Expr:
        """The first operand of an operator that is a node of its own in TVM (``BitwiseAnd``)."""
        return self._operand(0)

    @property
    def b(self) -> Expr:
        """The second operand of such an operator."""
        return self._operand(1)

    def _operand(self, place: int) -> Expr:
        if self.op.name not in _OPERATORS or place >= len(self.args):
            raise AttributeError(f"a call of {self.op.name} has `args`, not `{'ab'[place]}`")
        return self.args[place]

    def __repr__(self) -> str:
        return f"{self.op.name}({', '.join(map(repr, self.args))})"


@node
class Let(Expr):
    """``body`` with ``var`` bound to ``value``."""

    var: Var = definition()
    value: Expr = child()
    body: Expr = child()
    dtype: str = derived("body")
