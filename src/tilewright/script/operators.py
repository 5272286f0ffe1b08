"""Operators of script: arithmetic, comparisons and conditions, of expressions and Python values.

What stands in the text is built as it stands; :func:`build_arithmetic` says what folds.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from tilewright.ir import (
    EQ,
    FALSE,
    GE,
    GT,
    LE,
    LT,
    NE,
    TRUE,
    Add,
    And,
    Div,
    Expr,
    FloorDiv,
    FloorMod,
    Mul,
    Not,
    Or,
    Sub,
    add,
    as_expr,
    compare,
    const_value,
    div,
    dtypes,
    floordiv,
    floormod,
    if_then_else,
    match_types,
    mul,
    sub,
)
from tilewright.script.bounded import apply_operator, compare_values
from tilewright.script.evaluation import Evaluation, Method
from tilewright.support.errors import TilewrightError

_ARITHMETIC: dict[type, tuple[Any, Callable[[Any, Any], Expr]]] = {
    ast.Add: (Add, add),
    ast.Sub: (Sub, sub),
    ast.Mult: (Mul, mul),
    ast.Div: (Div, div),
    ast.FloorDiv: (FloorDiv, floordiv),
    ast.Mod: (FloorMod, floormod),
}

_PYTHON_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.MatMult: operator.matmul,
}

_COMPARE: dict[type, Any] = {
    ast.Eq: EQ,
    ast.NotEq: NE,
    ast.Lt: LT,
    ast.LtE: LE,
    ast.Gt: GT,
    ast.GtE: GE,
}

_PYTHON_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


def to_value(value: object) -> Any:
    """Turn what stands for an expression (a slice of a buffer) into one; leave the rest alone."""
    if isinstance(value, Expr) or not hasattr(value, "as_expr"):
        return value
    return value.as_expr()


def build_arithmetic(op: type, a: Any, b: Any, *, literal: bool = True) -> Expr:
    """Build the node of a binary operator as it stands; only two constants fold.

    ``literal`` says that a Python number among the operands stands in the text itself.
    """
    kind, fold = _ARITHMETIC[op]
    if not literal and not (isinstance(a, Expr) and isinstance(b, Expr)):
        return fold(a, b)
    a, b = match_types(a, b)
    if const_value(a) is not None and const_value(b) is not None:
        return fold(a, b)
    if op is ast.Div:
        if not dtypes.is_float(dtypes.element_of(a.dtype)):
            return fold(a, b)  # raises, with the reason
    elif op in (ast.Add, ast.Sub):
        if dtypes.is_bool(dtypes.element_of(a.dtype)):
            return fold(a, b)  # a disjunction, or raises, with the reason
    elif op in (ast.FloorDiv, ast.Mod) and (
        const_value(b) == 0 or not dtypes.is_integer(dtypes.element_of(a.dtype))
    ):
        return fold(a, b)  # raises, with the reason
    made: Expr = kind(a, b)
    return made


def build_compare(op: type, a: object, b: object) -> Expr:
    """Build a comparison as it stands."""
    return compare(_COMPARE[op], a, b)


def _is_literal(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant)


class Operators(Evaluation):
    """Evaluates operators."""

    def _binary(self, node: ast.BinOp) -> Any:
        # Chains such as a + b + c are as deep as they are long: go down them without recursion.
        chain = [node]
        while isinstance(chain[-1].left, ast.BinOp):
            chain.append(chain[-1].left)
        value = to_value(self.eval(chain[-1].left))
        literal = _is_literal(chain[-1].left)
        for item in reversed(chain):
            value = self._combine(item, value, literal)
            literal = False
        return value

    def _combine(self, node: ast.BinOp, a: object, literal: bool) -> Any:
        """Apply one operator; ``literal`` says whether the left operand stands in the text."""
        b = to_value(self.eval(node.right))
        op = type(node.op)
        if op in _ARITHMETIC and (isinstance(a, Expr) or isinstance(b, Expr)):
            stands = (isinstance(a, Expr) or literal) and (
                isinstance(b, Expr) or _is_literal(node.right)
            )
            try:
                return build_arithmetic(op, a, b, literal=stands)
            except TilewrightError as error:
                self.fail(node, error.message, error)
        if self.scope.budget is not None:
            return self.guard(
                node, apply_operator, self.scope.budget, op.__name__, _PYTHON_BINARY[op], a, b
            )
        return self.guard(node, _PYTHON_BINARY[op], a, b)

    def _unary(self, node: ast.UnaryOp) -> Any:
        value = to_value(self.eval(node.operand))
        if isinstance(node.op, ast.Not):
            if not isinstance(value, Expr):
                return not value
            self.check_condition(node.operand, value)
            return Not(value)
        if isinstance(node.op, ast.USub):
            return self.guard(node, operator.neg, value)
        if isinstance(node.op, ast.Invert):
            return self.guard(node, operator.invert, value)
        return value

    def check_condition(self, node: ast.expr, value: Any) -> Expr:
        """Refuse what is not a truth value."""
        value = to_value(value)
        if isinstance(value, bool):
            return TRUE if value else FALSE
        if not isinstance(value, Expr) or dtypes.element_of(value.dtype) != "bool":
            found = value.dtype if isinstance(value, Expr) else type(value).__name__
            self.fail(node, f"a condition must be bool, got {found}; compare it with something")
        return value  # type: ignore[no-any-return]

    def _logic(self, node: ast.BoolOp) -> Any:
        conjunction = isinstance(node.op, ast.And)
        kind = And if conjunction else Or
        result: Any = None
        value: Any = None
        for part in node.values:
            value = to_value(self.eval(part))
            if isinstance(value, Expr):
                self.check_condition(part, value)
                result = value if result is None else kind(result, value)
            elif bool(value) is not conjunction:
                # A Python value decides the whole; as in Python, the rest is not evaluated.
                return value if result is None else (FALSE if conjunction else TRUE)
        return value if result is None else result

    def _compare(self, node: ast.Compare) -> Any:
        left = to_value(self.eval(node.left))
        result: Any = None
        for op, right_node in zip(node.ops, node.comparators):
            right = to_value(self.eval(right_node))
            made = self._compare_one(node, type(op), left, right)
            if result is None:
                result = made
            elif isinstance(result, Expr) or isinstance(made, Expr):
                result = And(as_expr(result), as_expr(made))
            else:
                result = result and made
            left = right
        return result

    def _compare_one(self, node: ast.Compare, op: type, a: object, b: object) -> Any:
        if op in _COMPARE and (isinstance(a, Expr) or isinstance(b, Expr)):
            return self.guard(node, build_compare, op, a, b)
        if self.scope.budget is not None:
            return self.guard(
                node, compare_values, self.scope.budget, op.__name__, _PYTHON_COMPARE[op], a, b
            )
        return self.guard(node, _PYTHON_COMPARE[op], a, b)

    def _conditional(self, node: ast.IfExp) -> Any:
        condition = to_value(self.eval(node.test))
        if not isinstance(condition, Expr):
            return self.eval(node.body if condition else node.orelse)
        self.check_condition(node.test, condition)
        return self.guard(
            node, if_then_else, condition, self.eval(node.body), self.eval(node.orelse)
        )

    METHODS: ClassVar[Mapping[type, Method]] = {
        ast.BinOp: _binary,
        ast.UnaryOp: _unary,
        ast.BoolOp: _logic,
        ast.Compare: _compare,
        ast.IfExp: _conditional,
    }
