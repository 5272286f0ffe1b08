"""Copies of a loop's body, one per iteration, with the values of its variables folded in."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from tilewright.ir import (
    DEFINITIONS,
    EQ,
    FALSE,
    GE,
    GT,
    INDEX,
    LE,
    LT,
    NE,
    TRUE,
    Add,
    And,
    BinaryExpr,
    Broadcast,
    Call,
    CompareExpr,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Mul,
    Node,
    Ramp,
    Select,
    Sub,
    Var,
    add,
    and_,
    as_int,
    const,
    contains,
    defined_symbols,
    floordiv,
    floormod,
    is_const,
    mul,
    pre_order,
    sub,
)
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.rewrite import Renewer
from tilewright.tir.stmt import (
    NO_OP,
    BufferStore,
    For,
    IfThenElse,
    Stmt,
    seq,
)
from tilewright.tir.transform.base import SeqMutator
from tilewright.tir.transform.fold_conditions import Bounds, decided

_has_definitions = contains(DEFINITIONS)


def unrolled(loops: Sequence[For], body: Stmt, ranges: Mapping[Var, Bounds] | None = None) -> Stmt:
    """Return the copies of the body of a nest of loops, one per iteration.

    ``ranges`` are those of loops around, which decide conditions.
    """
    copier = _Copier([loop.loop_var for loop in loops], body, ranges or {})
    turns = product(*[enumerate(_turns(loop)) for loop in loops])
    return seq([copier.copy(*zip(*turn)) for turn in turns])


def _turns(loop: For) -> list[Expr]:
    """The values of the variable of a loop of constant length."""
    start, extent = as_int(loop.min), as_int(loop.extent) or 0
    if start is None:
        return [loop.min + number for number in range(extent)]
    return list(map(const, range(start, start + extent)))


#: An index that is linear in some variables: what doesn't depend on them (zero, or without a number
#: at its end), a number, and the factors of the variables.
_Linear = tuple[Expr, int, dict[Var, int]]
_ZERO = const(0)


class _Copier(SeqMutator, Renewer):
    """Puts values in place of variables and folds the constants that arise.

    Each copy but the first has definitions of its own. A node is made once for all copies in which
    its own variables have the same values: in a tile of 12 x 4 most expressions depend on the row
    or on the column. A sum of multiples of the variables and something else becomes that other
    thing, which all copies share, plus a number.
    """

    def __init__(self, variables: Sequence[Var], body: Stmt, ranges: Mapping[Var, Bounds]) -> None:
        super().__init__({}, body)
        self.variables = variables
        self.ranges = dict(ranges)
        self._copies = 0
        # For each node that uses variables, a bit for each of them; one more if it depends on what
        # the body defines, or defines it.
        self._uses: dict[Node, int] = {}
        self._free: set[Node] = set()  # nodes without any
        # What was made of nodes: by the variables that they use and their values, and those of the
        # copy at hand.
        self._made: dict[tuple[int, tuple[int, ...]], dict[Node, Any]] = {}
        self._present: dict[int, dict[Node, Any]] = {}
        self._bits: dict[object, int] = {var: 1 << place for place, var in enumerate(variables)}
        self._own = 1 << len(variables)
        if _has_definitions(body):
            self._note_definitions(body)
        self._note_uses(body)
        # The bits of each set of variables, and their places.
        self._masks = [
            (bits, [place for place in range(len(variables) + 1) if bits >> place & 1])
            for bits in {*self._bits.values(), *self._uses.values()}
        ]
        self._numeric: dict[Var, int] = {}  # values, if all of them are numbers
        self._shared: dict[Node, _Linear | None] = {}

    def _note_definitions(self, body: Stmt) -> None:
        for item in pre_order(body, _has_definitions):
            for symbol in () if isinstance(item, Buffer) else defined_symbols(item):
                self._bits[symbol] = self._bits[item] = self._own
                if isinstance(symbol, Buffer):
                    self._bits[symbol.data] = self._own

    def _note_uses(self, node: Node) -> int:
        """Fill the table of uses."""
        known, free = self._uses, self._free
        used = self._bits.get(node, 0)
        for item in node.child_nodes():
            found = known.get(item)
            if found is not None:
                used |= found
            elif item not in free:
                used |= self._note_uses(item)
        if used:
            known[node] = used
        else:
            free.add(node)
        return used

    def copy(self, numbers: Sequence[int], values: Sequence[Expr]) -> Any:
        """Return the copy of one iteration; ``numbers`` tells iterations apart."""
        numeric = [value.value for value in values if isinstance(value, IntImm)]
        whole = len(numeric) == len(values)
        self._numeric = dict(zip(self.variables, numeric)) if whole else {}
        numbers = *numbers, self._copies
        for bits, places in self._masks:
            key = bits, tuple([numbers[place] for place in places])
            made = self._made.get(key)
            if made is None:
                made = self._made[key] = {}
            self._present[bits] = made
        for var, value in zip(self.variables, values):
            self._present[self._bits[var]][var] = value
        self.mapping = self._present.get(self._own, {})
        copied = self.visit(self.root)
        self._copies += 1
        return copied

    def define(self, symbol: Any) -> Any:
        """Return what a copy has in place of a variable or buffer that the body defines."""
        if not self._copies:
            return symbol
        made = super().define(symbol)
        if symbol in self.ranges:
            self.ranges[made] = self.ranges[symbol]
        return made

    def visit(self, node: Expr | Node | Stmt) -> Any:
        """Rewrite a node, or take what was made of it before."""
        used = self._uses.get(node)
        if used is None:
            return node
        present = self._present[used]
        made = present.get(node)
        if made is None:
            if used != self._own:
                kind = type(node)
                made = (self._table.get(kind) or self._find(kind))(self, node)
            elif self._copies:
                made = self.generic_visit(node)  # only the symbols change
            else:
                made = node
            present[node] = made
        return made

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        visit = self.visit
        buffer = self.mapping.get(node.buffer, node.buffer)
        return BufferStore(buffer, visit(node.value), tuple(map(visit, node.indices)))

    def visit_BufferLoad(self, node: BufferLoad) -> Expr:
        visit = self.visit
        buffer = self.mapping.get(node.buffer, node.buffer)
        return BufferLoad(buffer, tuple(map(visit, node.indices)))

    def visit_Ramp(self, node: Ramp) -> Expr:
        return Ramp(self.visit(node.base), self.visit(node.stride), node.lanes)

    def _sum(self, node: Any) -> Any:
        """An index that is a sum: what it is without the variables, plus a number."""
        if node.dtype != INDEX or not self._numeric:
            return self.visit_BinaryExpr(node)
        found = self._shared[node] if node in self._shared else self._apart(node)
        if found is None:
            return self.visit_BinaryExpr(node)
        rest, number, factors = found
        for var, factor in factors.items():
            number += factor * self._numeric[var]
        if type(rest) is IntImm:
            return const(number)
        rest = self.visit(rest)
        return Add(rest, const(number)) if number else rest

    visit_Add = visit_Sub = visit_Mul = _sum

    def _apart(self, node: Any) -> _Linear | None:
        """What an expression is without the variables, if it is linear in them."""
        if self._uses.get(node, self._own) == self._own:
            if type(node) is IntImm:
                return _ZERO, node.value, {}
            if type(node) is Add and type(node.b) is IntImm:
                return node.a, node.b.value, {}
            return node, 0, {}
        if node in self._shared:
            return self._shared[node]
        made = None
        if type(node) is Var:
            made = _ZERO, 0, {node: 1}
        elif type(node) in (Add, Sub, Mul):
            a, b = self._apart(node.a), self._apart(node.b)
            if a is not None and b is not None:
                made = _combined(type(node), a, b)
                if made is not None:
                    self._note_uses(made[0])
        self._shared[node] = made
        return made

    def visit_BinaryExpr(self, node: BinaryExpr) -> Expr:
        a, b = self.visit(node.a), self.visit(node.b)
        if a is node.a and b is node.b:
            return node
        build = type(node)
        if (is_const(a) or is_const(b) or a is b) and a.dtype == b.dtype:
            build = _FOLD.get(build, build)
        return build(a, b)

    def visit_CompareExpr(self, node: CompareExpr) -> Any:
        a, b = self.visit(node.a), self.visit(node.b)
        if a is node.a and b is node.b:
            return node
        if type(a) is IntImm and type(b) is IntImm and type(node) in _COMPARE:
            return TRUE if _COMPARE[type(node)](a.value, b.value) else FALSE
        made = type(node)(a, b)
        known = decided(made, self.ranges)
        if known is not None:
            return known
        if type(node) is And:
            if a.dtype == "bool":
                return and_(a, b)
            for first, second in ((a, b), (b, a)):
                value = _known_lanes(first)
                if value is not None:
                    return second if value else first
        return made

    def visit_Call(self, node: Call) -> Any:
        made = self.generic_visit(node)
        if made.op.name == "if_then_else":
            known = _known_lanes(made.args[0])
            if known is not None:
                return made.args[1] if known else made.args[2]
        return made

    def visit_Select(self, node: Select) -> Any:
        condition = self.visit(node.condition)
        if isinstance(condition, IntImm):
            return self.visit(node.true_value if condition.value else node.false_value)
        return self.generic_visit(node)

    def visit_IfThenElse(self, node: IfThenElse) -> Any:
        condition = self.visit(node.condition)
        if not isinstance(condition, IntImm):
            return self.generic_visit(node)
        if condition.value:
            return self.visit(node.then_case)
        return NO_OP if node.else_case is None else self.visit(node.else_case)


def _combined(kind: object, a: _Linear, b: _Linear) -> _Linear | None:
    """Sum, difference or product of two linear expressions."""
    if kind is Mul:
        if b[2] or type(b[0]) is not IntImm:
            a, b = b, a
        if b[2] or type(b[0]) is not IntImm:
            return None
        by = b[1]
        rest = _ZERO if a[0] is _ZERO else a[0] * by
        return rest, a[1] * by, {var: factor * by for var, factor in a[2].items()}
    sign = 1 if kind is Add else -1
    factors = dict(a[2])
    for var, factor in b[2].items():
        factors[var] = factors.get(var, 0) + sign * factor
    if a[0] is _ZERO and sign > 0:
        rest = b[0]
    elif b[0] is _ZERO:
        rest = a[0]
    else:
        rest = add(a[0], b[0]) if sign > 0 else sub(a[0], b[0])
    return rest, a[1] + sign * b[1], factors


def _known_lanes(condition: Expr) -> int | None:
    """The value of a condition that is the same constant in all lanes."""
    value = condition.value if isinstance(condition, Broadcast) else condition
    return value.value if isinstance(value, IntImm) else None


_COMPARE: dict[Any, Any] = {
    LT: operator.lt,
    LE: operator.le,
    GT: operator.gt,
    GE: operator.ge,
    EQ: operator.eq,
    NE: operator.ne,
}
_FOLD: dict[Any, Any] = {Add: add, Sub: sub, Mul: mul, FloorDiv: floordiv, FloorMod: floormod}
