"""The simplifier: one bottom-up walk that knows what the context knows.

Integer arithmetic goes through canonical polynomials, comparisons through the prover, truth values
and conditional values are simplified under their own conditions, and everything else has its
operands simplified and is then offered to the rule tables. Floating-point expressions are
rewritten only where the result is bit for bit the same. Calls with side effects stay in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any

from tilewright.arith import (
    branches,
    narrow,
    relations,
    rewrite,
    rules_call,
    rules_float,
    rules_logic,
    rules_vector,
    term_pairs,
    text_forms,
    truncation,
)
from tilewright.arith.assumptions import Assumptions
from tilewright.arith.canonical import (
    ARITHMETIC_DTYPES,
    Canonical,
    OpaqueOperand,
    has_effects,
    reads_memory,
)
from tilewright.arith.comparisons import NEGATED, Comparisons
from tilewright.arith.context import Context
from tilewright.arith.cost import WEIGHT, cost, dearer
from tilewright.arith.data import holds_data
from tilewright.arith.polynomial import (
    MAX,
    MIN,
    ConstantTooLarge,
    Poly,
    constant_of,
    poly_add,
    poly_scale,
    poly_sub,
    same_expr,
)
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
    BinaryExpr,
    Broadcast,
    Call,
    Cast,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Ramp,
    Range,
    Select,
    StringImm,
    Sub,
    Var,
    and_,
    compare,
    dtypes,
    is_const,
    not_,
    or_,
    substitute,
)

_ARITHMETIC = frozenset((Add, Sub, Mul, FloorDiv, FloorMod, Min, Max))
_LONG = 50
"""Sums with more terms are not taken apart sum by sum."""


class Simplifier:
    """Simplifies expressions in a context. ``owner`` is what rule conditions see."""

    def __init__(self, context: Context, owner: Any) -> None:
        self.context = context
        self.owner = owner
        self.canonical = Canonical(context)
        self.canonical.simplify_operand = self._operand
        self.comparisons = Comparisons(self.canonical)
        self.assumptions = Assumptions(self.canonical, self.comparisons)

    # ---- walk -------------------------------------------------------------------------------

    def visit(self, expr: Expr) -> Any:
        """Simplify any node."""
        visitor = _VISITORS.get(type(expr))
        if visitor is not None:
            return visitor(self, expr)
        if not isinstance(expr, (Expr, Range)):
            return expr
        return self._generic(expr)

    def _operand(self, expr: Expr) -> Expr:
        """Simplify something that is to be an atom of a polynomial."""
        made: Expr = self.visit(expr)
        return made

    def _generic(self, expr: Expr) -> Any:
        made = expr.map_children(self.visit)
        result = self._rules(made)
        return made if result is None else self.visit(result)

    def _rules(self, expr: Any) -> Expr | None:
        kind = type(expr)
        if kind is Cast:
            return rules_call.fold_cast(expr, self.owner)
        if kind is Call:
            return self._call_rules(expr)
        if kind is Ramp:
            return rules_vector.constant_ramp(expr)
        if isinstance(expr, BinaryExpr):
            if dtypes.is_float(expr.dtype):
                if isinstance(expr.a, Broadcast) or isinstance(expr.b, Broadcast):
                    return rules_vector.apply(expr, self.owner)
                if isinstance(expr.a, FloatImm) and isinstance(expr.b, FloatImm):
                    return _folded_floats(expr)
                made = rules_float.TABLE.apply(expr, self.owner)
                return rules_logic.CHOICES.apply(expr, self.owner) if made is None else made
            if dtypes.lanes_of(expr.dtype) > 1:
                return rules_vector.apply(expr, self.owner)
            if narrow.is_narrow(expr.dtype):
                made = narrow.simplified(expr, self.canonical)
                return rules_logic.CHOICES.apply(expr, self.owner) if made is None else made
        return None

    def _call_rules(self, expr: Any) -> Expr | None:
        if dtypes.lanes_of(expr.dtype) > 1:
            return rules_vector.apply(expr, self.owner)
        if len(expr.args) == 2 and dtypes.is_integer(expr.dtype):
            made = narrow.call_folded(expr)
            if made is not None:
                return made
            if expr.op.name in truncation.NAMES and expr.dtype in ARITHMETIC_DTYPES:
                made = truncation.truncated(expr, self.canonical)
                return None if made is None or same_expr(made, expr) else made
        return rules_call.TABLE.apply(expr, self.owner)

    def _var(self, var: Var) -> Expr:
        if var in self.context.substitutions:
            return self.context.substitutions[var]
        if self.context.rules and var.dtype in ARITHMETIC_DTYPES:
            value = constant_of(self.canonical.poly(var))
            if value is not None:
                return self.from_poly({(): value} if value else {}, var.dtype)
        if var.dtype == "bool" and self.context.conditions:
            known = self.context.conditions.get(var)
            if known is not None:
                return TRUE if known else FALSE
        return var

    # ---- integer arithmetic -----------------------------------------------------------------

    def _arithmetic(self, expr: Expr) -> Expr:
        if expr.dtype not in ARITHMETIC_DTYPES:
            return self._along(expr, self._by_rules)
        try:
            made = self.from_poly(self.finished(self.canonical.poly(expr)), expr.dtype)
        except (OpaqueOperand, ConstantTooLarge):
            return self._by_operands(expr)
        if same_expr(made, expr):
            made = expr
        elif dearer(made, expr):
            made = self._by_operands(expr)
        elif self._repeats(made):
            factored = self._by_operands(expr)
            made = made if cost(made) <= cost(factored) else factored
        chosen = rules_logic.CHOICES.apply(made, self.owner)
        return made if chosen is None else self.visit(chosen)

    @staticmethod
    def _repeats(made: Any) -> bool:
        """Whether a sum has products of something that is work to compute: multiplied out."""
        if type(made) not in (Add, Sub):
            return False
        terms: list[Any] = []
        while type(made) in (Add, Sub):
            terms.append(made.b)
            made = made.a
        terms.append(made)
        if len(terms) > _LONG or not any(type(term) is Mul for term in terms):
            return False
        inside = [
            part
            for term in terms
            for part in ((term.a, term.b) if type(term) is Mul else (term,))
            if WEIGHT.get(type(part), 1)
        ]
        return any(same_expr(a, b) for i, a in enumerate(inside) for b in inside[:i])

    def _by_rules(self, expr: Expr) -> Any:
        result = self._rules(expr)
        return expr if result is None else self.visit(result)

    def _by_operands(self, expr: Any) -> Expr:
        """Simplify the operands alone; of a long sum only its terms."""
        depth, item = 0, expr
        while type(item) in (Add, Sub) and depth < _LONG:
            depth, item = depth + 1, item.a
        if depth == _LONG:
            return self._along(expr, lambda made: made)
        return expr.map_children(self.visit)  # type: ignore[no-any-return]

    def _along(self, expr: Any, finish: Callable[[Any], Any]) -> Expr:
        """Go down a chain such as a + b + c, as deep as it is long, without recursion."""
        spine: list[Any] = []
        dtype = expr.dtype
        while type(expr) in _ARITHMETIC and expr.dtype == dtype:
            spine.append(expr)
            expr = expr.a
        made = self.visit(expr)
        for node in reversed(spine):
            b = self.visit(node.b)
            same = made is node.a and b is node.b
            made = finish(node if same else type(node)(made, b))
        return made  # type: ignore[no-any-return]

    def poly(self, expr: Expr) -> Poly:
        """The raw polynomial of any expression."""
        try:
            return self.canonical.poly(expr)
        except OpaqueOperand:
            # Fresh number: an expression with effects equals nothing, not even itself.
            return {(self.context.table.other(object(), expr),): 1}

    def from_poly_or_none(self, poly: Poly, dtype: str) -> Expr | None:
        """The finished expression; ``None`` where a coefficient is none of the dtype's numbers."""
        try:
            return self.from_poly(self.finished(poly), dtype)
        except ConstantTooLarge:
            return None

    def from_poly(self, a: Poly, dtype: str) -> Expr:
        """Build the expression of a polynomial."""
        return self.context.table.to_expr(a, dtype)

    def finished(self, a: Poly) -> Poly:
        """Put pairs of terms together, and pull terms into minima where they cancel."""
        table = self.context.table
        if len(a) > 1:
            for mono, value in a.items():
                for number in mono:
                    if table.kinds[number] not in (MIN, MAX):
                        continue
                    made = None
                    if number in table.pairing:
                        terms = term_pairs.Terms(self.canonical, a)
                        made = term_pairs.extremes(self.canonical, terms, mono, value, number)
                    if made is None:
                        made = self._absorb(a, number)
                    if made is not None:
                        return self.finished(made)
            return text_forms.written(self.canonical, self.canonical.merged(a))
        for mono, value in a.items():
            if len(mono) > 1 and mono[-1] in table.pairing and table.kinds[mono[-1]] in (MIN, MAX):
                terms = term_pairs.Terms(self.canonical, a)
                made = term_pairs.extremes(self.canonical, terms, mono, value, mono[-1])
                if made is not None:
                    return self.finished(made)
            elif value < 0:
                return text_forms.with_choices_turned(self.canonical, a)
        return self.canonical.merged(a) if self.context.residues else a

    def _absorb(self, a: Poly, number: int) -> Poly | None:
        """``min(x + y, z) - x`` becomes ``min(y, z - x)`` if that makes it smaller."""
        table, value = self.context.table, a.get((number,))
        operands = table.operands[number]
        assert operands is not None
        if value not in (1, -1):
            return None
        parts = {
            mono
            for mono in (*operands[0], *operands[1], ())
            if mono in a
            and mono != (number,)
            and (
                any(operand.get(mono, 0) == -a[mono] * value for operand in operands)
                or (not mono and all(each.keys() <= {()} or () in each for each in operands))
            )
        }
        if not parts or any(number in mono and len(mono) > 1 for mono in a):
            return None
        if table.has_data(a):
            return None  # what moves in there might wrap
        rest = {mono: k * value for mono, k in a.items() if mono != (number,)}
        moved = {mono: k for mono, k in rest.items() if mono in parts}
        inner = [poly_add(operand, moved) for operand in operands]
        before = len(operands[0]) + len(operands[1]) + len(rest)
        after = len(inner[0]) + len(inner[1]) + len(rest) - len(moved)
        if after >= before:
            return None
        kind, dtype = table.kinds[number], table.dtypes[number]
        outer = {mono: k for mono, k in rest.items() if mono not in moved}
        if value == 1:
            return poly_add(self.canonical.minmax(kind, inner[0], inner[1], dtype), outer)
        # -max(a, b) is min(-a, -b), which reads better.
        kind = MIN if kind == MAX else MAX
        left, right = poly_scale(inner[0], -1), poly_scale(inner[1], -1)
        made = self.canonical.minmax(kind, left, right, dtype)
        return poly_add(made, poly_scale(outer, -1))

    # ---- comparisons ------------------------------------------------------------------------

    def _compare(self, expr: Any) -> Expr:
        if expr.a.dtype not in ARITHMETIC_DTYPES:
            made = expr.map_children(self.visit)
            known = self._known(made)
            if known is not None:
                return known
            if is_const(made.a) and is_const(made.b):
                return compare(type(made), made.a, made.b)
            if narrow.is_narrow(made.a.dtype):
                known = narrow.compared(made, self.canonical)
            elif dtypes.lanes_of(made.dtype) > 1:
                known = rules_vector.apply(made, self.owner)
                return made if known is None else self.visit(known)  # type: ignore[no-any-return]
            return made if known is None else known
        try:
            made = self._compare_polys(expr)
        except (OpaqueOperand, ConstantTooLarge):
            return expr.map_children(self.visit)  # type: ignore[no-any-return]
        if same_expr(made, expr):
            return expr  # type: ignore[no-any-return]
        return made

    def _compare_polys(self, expr: Any) -> Expr:
        kind, poly = type(expr), self.canonical.poly
        a, b = poly(expr.a), poly(expr.b)
        if kind in (GT, GE):
            a, b = b, a
            kind = LT if kind is GT else LE
        if kind in (EQ, NE):
            goal = poly_sub(a, b)
            made = self.comparisons.equality(kind, goal, expr.a.dtype)
        else:
            goal = poly_sub(b, a)
            if kind is LT:
                goal = poly_sub(goal, {(): 1})
            made = self.comparisons.ordering(kind, self.canonical.merged(goal), expr.a.dtype)
        if isinstance(made, IntImm):
            return made
        decided = branches.decided(kind, goal, self.comparisons, self.assumptions)
        if decided is not None:
            return TRUE if decided else FALSE
        if dearer(made, expr) or (self.context.table.has_data(a, b) and self._wraps(made)):
            made = expr.map_children(self.visit)
        known = self._known(made)
        return made if known is None else known

    def _wraps(self, comparison: Any) -> bool:
        """Whether a side of a comparison that was turned round may leave its dtype."""
        sides = (self.canonical.ring(side) for side in (comparison.a, comparison.b))
        return not all(self.canonical.fits(side, comparison.a.dtype) for side in sides)

    # ---- truth values -----------------------------------------------------------------------

    def _known(self, condition: Expr) -> Expr | None:
        """Look a boolean expression up among the conditions known here."""
        known = self.context.conditions
        if not known:
            return None
        try:
            value = known.get(self.canonical.key(condition))
        except OpaqueOperand:
            return None
        return None if value is None else (TRUE if value else FALSE)

    def _logic(self, expr: Expr) -> Expr:
        kind = type(expr)
        if expr.dtype != "bool" or has_effects(expr):
            return self._logic_of_operands(expr)
        made = self._simplify_items(kind, relations.operands_of(kind, expr))
        joined = (and_ if kind is And else or_)(*made)
        if same_expr(joined, expr):
            return expr
        if type(joined) is not kind:
            return joined
        result = rules_logic.TABLE.apply(joined, self.owner)
        return joined if result is None else result

    def _logic_of_operands(self, expr: Any) -> Expr:
        """``and`` and ``or`` of masks, or of what has to stay where it is."""
        made = expr.map_children(self.visit)
        if dtypes.lanes_of(expr.dtype) == 1 or has_effects(expr):
            return made  # type: ignore[no-any-return]
        short = rules_vector.joined(made)
        if short is None:
            sides = made.a, made.b
            found = relations.joined(type(expr), sides, self.canonical, self.comparisons)
            short = found[0] if len(found) == 1 else None
        return made if short is None else self.visit(short)  # type: ignore[no-any-return]

    def _simplify_items(self, kind: object, items: Sequence[Expr]) -> list[Expr]:
        """Simplify each operand knowing the others hold (for ``or``: that they don't)."""
        conjunction = kind is And
        stop, skip = (FALSE, TRUE) if conjunction else (TRUE, FALSE)
        kept: list[Expr] = []
        for item in items:
            made = self._knowing(item, kept, conjunction)
            if isinstance(made, IntImm):
                if bool(made.value) != conjunction:
                    return [stop]
                continue
            kept.extend(relations.operands_of(kind, made))
        # Earlier operands may follow from later ones: i < 5 and i < 3. Not from those behind a read
        # of memory, which the earlier ones may keep inside of its buffer.
        index = 0
        while index < len(kept) - 1 and len(kept) <= 8:
            later = takewhile(lambda item: not reads_memory(item), kept[index + 1 :])
            made = self._knowing(kept[index], [*kept[:index], *later], conjunction)
            if isinstance(made, IntImm):
                if bool(made.value) != conjunction:
                    return [stop]
                del kept[index]
            else:
                index += 1
        if len(kept) > 1:
            before = set(map(id, kept))
            kept = [
                item if id(item) in before else self.visit(item)
                for item in relations.joined(kind, kept, self.canonical, self.comparisons)
            ]
            if any(item is stop for item in kept):
                return [stop]
            kept = [item for item in kept if item is not skip]
        return kept or [skip]

    def _knowing(self, item: Expr, others: Sequence[Expr], holds: bool) -> Expr:
        """Simplify one operand, knowing those others that share a variable with it."""
        mine = relations.leaves_of(item)
        related = [other for other in others if not mine.isdisjoint(relations.leaves_of(other))]
        if not related:
            made: Expr = self.visit(item)
            return made
        return self._visit_under(item, related, holds)

    def _visit_under(self, expr: Expr, conditions: Sequence[Expr], holds: bool) -> Expr:
        """Simplify ``expr`` where all conditions hold, or none of them does."""
        saved = self.context.snapshot()
        try:
            for condition in conditions:
                self.assumptions.assume(condition, holds)
            made: Expr = self.visit(expr)
        finally:
            self.context.restore(saved)
        return made

    def _not(self, expr: Any) -> Expr:
        inner = self.visit(expr.a)
        negated = NEGATED.get(type(inner))
        if negated is not None and dtypes.is_integer(dtypes.element_of(inner.a.dtype)):
            return self.visit(negated(inner.a, inner.b))  # type: ignore[no-any-return]
        if negated in (EQ, NE):  # exact on floats too: NaN != NaN is not (NaN == NaN)
            return negated(inner.a, inner.b)  # type: ignore[no-any-return]
        if type(inner) in (And, Or) and inner.dtype == "bool" and not has_effects(inner):
            pushed = (or_ if type(inner) is And else and_)(not_(inner.a), not_(inner.b))
            return self.visit(pushed)  # type: ignore[no-any-return]
        if inner is expr.a:
            return expr  # type: ignore[no-any-return]
        return not_(inner)

    def _select(self, expr: Select) -> Expr:
        return self._conditional(expr, (expr.condition, expr.true_value, expr.false_value))

    def _conditional(self, expr: Any, operands: tuple[Expr, Expr, Expr]) -> Expr:
        if dtypes.lanes_of(operands[0].dtype) > 1 or has_effects(operands[0]):
            made = expr.map_children(self.visit)
            chosen = None if has_effects(expr) else rules_vector.chosen(made)
            return made if chosen is None else chosen
        condition = self.visit(operands[0])
        if isinstance(condition, IntImm):
            chosen = operands[1] if condition.value else operands[2]
            dropped = operands[2] if condition.value else operands[1]
            # A Select evaluates both sides, so effects on the dropped one must stay.
            if type(expr) is Call or not has_effects(dropped):
                return self.visit(chosen)  # type: ignore[no-any-return]
        # It reads memory on both sides too, where the condition does not keep indices inside.
        given = (condition,)
        first, second = (
            self.visit(operand)
            if type(expr) is Select and reads_memory(operand)
            else self._visit_under(operand, given, holds)
            for operand, holds in ((operands[1], True), (operands[2], False))
        )
        made = expr
        if condition is not operands[0] or first is not operands[1] or second is not operands[2]:
            if type(expr) is Select:
                made = Select(condition, first, second)
            else:
                made = Call.of_fields(expr.op, (condition, first, second), expr.dtype)
        if has_effects(made):
            return made  # type: ignore[no-any-return]
        if type(condition) in (EQ, NE) and self._same_where_equal(condition, first, second):
            return second if type(condition) is EQ else first
        result = branches.as_choice(condition, first, second, self.comparisons)
        if result is not None:
            return self.visit(result)  # type: ignore[no-any-return]
        result = rules_logic.TABLE.apply(made, self.owner)
        return made if result is None else result

    def _same_where_equal(self, condition: Any, first: Expr, second: Expr) -> bool:
        """Whether ``Select(x == c, first, second)`` is ``second`` everywhere (``first`` for !=)."""
        equal = type(condition) is EQ
        special, general = (first, second) if equal else (second, first)
        if condition.a.dtype not in ARITHMETIC_DTYPES or not branches.may_stand_alone(general):
            return False
        made = self._visit_under(general, (condition,), equal)
        return same_expr(made, special)

    def _call(self, expr: Any) -> Expr:
        name = expr.op.name
        if name == "if_then_else":
            return self._conditional(expr, expr.args)
        if name in ("likely", "ignore_loop_partition"):
            inner = self.visit(expr.args[0])
            if isinstance(inner, IntImm):
                return inner
            return expr if inner is expr.args[0] else Call.of_fields(expr.op, (inner,), expr.dtype)
        return self._generic(expr)  # type: ignore[no-any-return]

    def _note_data(self, var: Var, value: Expr) -> None:
        """Know that a variable stands for data if its value does."""
        table = self.context.table
        if holds_data(value, table.data_vars):
            table.mark_data(var)
            self.context.changed()

    def _let(self, expr: Any) -> Expr:
        value = self.visit(expr.value)
        if isinstance(value, (IntImm, FloatImm, Var)):
            return self.visit(substitute(expr.body, {expr.var: value}))  # type: ignore[no-any-return]
        saved = self.context.snapshot()
        try:
            if expr.var.dtype in ARITHMETIC_DTYPES and not has_effects(value):
                low, high = self.canonical.bounds.poly(self.canonical.poly(value))
                self.context.limits[self.context.table.var(expr.var)] = (low, high)
                self._note_data(expr.var, value)
            body = self.visit(expr.body)
        finally:
            self.context.restore(saved)
        if value is expr.value and body is expr.body:
            return expr  # type: ignore[no-any-return]
        return Let(expr.var, value, body)


def _folded_floats(expr: Any) -> Expr | None:
    made = rewrite.operation(type(expr), expr.a, expr.b)
    return made if isinstance(made, FloatImm) else None


_VISITORS: dict[type, Callable[[Simplifier, Any], Any]] = {
    **dict.fromkeys((IntImm, FloatImm, StringImm), lambda simplifier, expr: expr),
    Var: Simplifier._var,
    **dict.fromkeys(_ARITHMETIC, Simplifier._arithmetic),
    **dict.fromkeys((EQ, NE, LT, LE, GT, GE), Simplifier._compare),
    And: Simplifier._logic,
    Or: Simplifier._logic,
    Not: Simplifier._not,
    Select: Simplifier._select,
    Call: Simplifier._call,
    Let: Simplifier._let,
}
