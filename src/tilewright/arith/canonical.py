"""Normalising integer expressions into polynomials over atoms.

``Canonical`` is the arithmetic of ``poly_arithmetic`` with expressions on top. What cannot be taken
apart becomes an atom. ``simplify`` does everything that is not integer arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from tilewright.arith.context import Context
from tilewright.arith.poly_arithmetic import PolyArithmetic
from tilewright.arith.polynomial import (
    MAX,
    MIN,
    ConstantTooLarge,
    Poly,
    poly_add,
    poly_key,
    poly_mul,
    poly_scale,
    poly_sub,
)
from tilewright.ir import (
    EFFECTS,
    Add,
    Call,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Node,
    Sub,
    Var,
    contains,
)
from tilewright.ir.integers import wrap_integer

ARITHMETIC_DTYPES = frozenset(("int64", "int32"))
"""Types whose values are taken as whole numbers; those of data where they fit (``arith.data``)."""

_RING = frozenset((Add, Sub, Mul))


_MOST_TERMS = 2000
_has_effects = contains(EFFECTS)


class OpaqueOperand(Exception):
    """Internal: a subexpression has side effects, so it must not be merged, moved or dropped."""


def has_effects(expr: Expr) -> bool:
    """Whether a call below writes memory or must keep its place."""
    return _has_effects(expr)


def reads_memory(expr: Any) -> bool:
    """Whether evaluating an expression reads elements of buffers."""
    stack = [expr]
    while stack:
        item = stack.pop()
        if getattr(item, "reads_memory", False):
            return True
        stack.extend(item.child_nodes())
    return False


class Canonical(PolyArithmetic):
    """Expressions to polynomials, in a context."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.simplify_operand: Callable[[Expr], Expr] = lambda expr: expr

    def poly(self, expr: Expr) -> Poly:
        """Normalise an integer expression."""
        handler = _HANDLERS.get(type(expr))
        if handler is not None and expr.dtype in ARITHMETIC_DTYPES:
            made = handler(self, expr)
            return self.whole(made, expr) if self.context.table.data else made
        return self._other(expr)

    def ring(self, expr: Expr) -> Poly:
        """An operand of a sum or product: what wraps in between makes no difference."""
        if type(expr) in _RING and expr.dtype in ARITHMETIC_DTYPES:
            return _HANDLERS[type(expr)](self, expr)
        return self.poly(expr)

    def whole(self, made: Poly, expr: Expr) -> Poly:
        """A polynomial of data if its values fit the dtype, else an atom for what is left of it."""
        table = self.context.table
        if not table.has_data(made) or self.fits(made, expr.dtype):
            return made
        reduced = {mono: wrap_integer(value, expr.dtype) for mono, value in made.items()}
        reduced = {mono: value for mono, value in reduced.items() if value}
        if reduced != made:
            return self.whole(reduced, expr)
        try:
            rest = table.to_expr(made, expr.dtype)
        except ConstantTooLarge:
            rest = expr
        return {(table.other(("wrapped", expr.dtype, poly_key(made)), rest),): 1}

    def _int_imm(self, expr: IntImm) -> Poly:
        return {(): expr.value} if expr.value else {}

    def _var(self, var: Var) -> Poly:
        context = self.context
        value = context.values.get(var)
        if value is not None:
            return value
        number = context.table.var(var)
        if context.rules:
            return self.reduced({(number,): 1})
        return {(number,): 1}

    def _sum(self, expr: Any) -> Poly:
        a, b = expr.a, expr.b
        if type(a) not in (Add, Sub) and type(b) not in (Add, Sub):
            return (poly_add if type(expr) is Add else poly_sub)(self.ring(a), self.ring(b))
        # Sums may have thousands of terms: no recursion, and one dictionary for all.
        total: Poly = {}
        stack = [(expr, 1)]
        while stack:
            item, sign = stack.pop()
            kind = type(item)
            if kind in (Add, Sub) and item.dtype in ARITHMETIC_DTYPES:
                stack.append((item.b, sign if kind is Add else -sign))
                stack.append((item.a, sign))
                continue
            if kind is Mul and type(item.b) is IntImm:
                item, sign = item.a, sign * item.b.value
            terms = self._var(item) if type(item) is Var else self.ring(item)
            for mono, value in terms.items():
                value = total.get(mono, 0) + sign * value
                if value:
                    total[mono] = value
                else:
                    total.pop(mono, None)
        return total

    def _mul(self, expr: Any) -> Poly:
        a = self.ring(expr.a)
        if type(expr.b) is IntImm:
            return poly_scale(a, expr.b.value)
        b = self.ring(expr.b)
        table = self.context.table
        if len(a) * len(b) > _MOST_TERMS or (table.products and table.holds_product(a, b)):
            return {(table.product(a, b, expr),): 1}
        made = poly_mul(a, b)
        for mono_a in a:
            for mono_b in b:
                if mono_a and mono_b:
                    table.note_order(mono_a, mono_b)
        return self.reduced(made) if self.context.rules else made

    def _other(self, expr: Expr) -> Poly:
        if type(expr) is Var:
            return {(self.context.table.var(expr),): 1}
        if type(expr) is IntImm:
            return self._int_imm(expr)
        if type(expr) is Call and expr.op.effect in ("update", "opaque"):
            raise OpaqueOperand
        made = self.simplify_operand(expr)
        if type(made) in _HANDLERS and made.dtype in ARITHMETIC_DTYPES:
            return self.poly(made)
        if has_effects(made):
            raise OpaqueOperand
        return self.reduced({(self.context.table.other(self.key(made), made),): 1})

    def key(self, value: Any) -> Hashable:
        """A hashable stand-in, equal for expressions that are equal as arithmetic."""
        kind = type(value)
        if kind is Var:
            return value  # type: ignore[no-any-return]
        if kind is IntImm:
            return (value.dtype, value.value)
        if kind is FloatImm:
            return (value.dtype, repr(value.value))
        if isinstance(value, Node):
            if getattr(kind, "symbol", False) is True:
                return value
            if kind in _HANDLERS and isinstance(value, Expr) and value.dtype in ARITHMETIC_DTYPES:
                return ("poly", value.dtype, frozenset(self.poly(value).items()))
            return (
                kind,
                *(
                    self.key(getattr(value, field.name))
                    for field in value.node_fields
                    if field.role != "derived"
                ),
            )
        if isinstance(value, (tuple, list)):
            return tuple(map(self.key, value))
        if isinstance(value, dict):
            return tuple((name, self.key(item)) for name, item in value.items())
        if isinstance(value, float):
            return repr(value)
        return value  # type: ignore[no-any-return]


# Analyzers are made by the dozen: the table is none of each.
_HANDLERS: dict[type, Callable[[Canonical, Any], Poly]] = {
    IntImm: Canonical._int_imm,
    Var: Canonical._var,
    Add: Canonical._sum,
    Sub: Canonical._sum,
    Mul: Canonical._mul,
    FloorDiv: lambda c, e: c.floordiv(c.poly(e.a), c.poly(e.b), e.dtype),
    FloorMod: lambda c, e: c.floormod(c.poly(e.a), c.poly(e.b), e.dtype),
    Min: lambda c, e: c.minmax(MIN, c.poly(e.a), c.poly(e.b), e.dtype),
    Max: lambda c, e: c.minmax(MAX, c.poly(e.a), c.poly(e.b), e.dtype),
}
