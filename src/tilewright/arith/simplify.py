"""The simplifier: one bottom-up walk that knows what the context knows.

Integer arithmetic goes through canonical polynomials, comparisons through the prover, truth values
and conditional values are simplified under their own conditions, and everything else has its
operands simplified and is then offered to the rule tables. Floating-point expressions are
rewritten only where the result is bit for bit the same. Calls with side effects stay in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd
from typing import Any

from tilewright.arith import rules_call, rules_float, rules_logic, rules_vector
from tilewright.arith.canonical import ARITHMETIC_DTYPES, Canonical, OpaqueOperand, has_effects
from tilewright.arith.context import Context
from tilewright.arith.polynomial import (
    DIV,
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
from tilewright.arith.rewrite import match
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
    CompareExpr,
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
    Range,
    Select,
    StringImm,
    Sub,
    Var,
    and_,
    dtypes,
    not_,
    or_,
    substitute,
)

_WEIGHT = {Var: 0, IntImm: 0, FloatImm: 0, FloorDiv: 4, FloorMod: 4, Min: 2, Max: 2}
_ARITHMETIC = frozenset((Add, Sub, Mul, FloorDiv, FloorMod, Min, Max))
_LONG = 50
"""Sums with more terms are not taken apart sum by sum."""
_NEGATED = {LT: GE, LE: GT, GT: LE, GE: LT, EQ: NE, NE: EQ}
_KNOWN = frozenset(
    (*_WEIGHT, *_NEGATED, Add, Sub, Mul, And, Or, Not, Select, Cast, Broadcast, StringImm)
)


def cost(expr: Any) -> int:
    """A measure of how much work an expression is; the simplifier never makes it grow."""
    total = 0
    stack = [expr]
    while stack:
        item = stack.pop()
        weight = _WEIGHT.get(type(item), 1)
        if weight:
            total += weight
            stack.extend(item.child_nodes())
    return total


def reads_memory(expr: Any) -> bool:
    """Whether the value may change when memory is written."""
    stack = [expr]
    while stack:
        item = stack.pop()
        kind = type(item)
        if kind not in _KNOWN and not (kind is Call and item.op.effect == "pure"):
            return True
        stack.extend(item.child_nodes())
    return False


class Simplifier:
    """Simplifies expressions in a context. ``owner`` is what rule conditions see."""

    def __init__(self, context: Context, owner: Any) -> None:
        self.context = context
        self.owner = owner
        self.canonical = Canonical(context)
        self.canonical.simplify_operand = self._operand
        self.prover = self.canonical.prover
        self.bounds = self.canonical.bounds

    # ---- walk -------------------------------------------------------------------------------

    def visit(self, expr: Any) -> Any:
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

    def _generic(self, expr: Any) -> Any:
        made = expr.map_children(self.visit)
        result = self._rules(made)
        return made if result is None else self.visit(result)

    def _rules(self, expr: Any) -> Expr | None:
        kind = type(expr)
        if kind is Cast:
            return rules_call.fold_cast(expr)
        if kind is Call:
            return rules_call.TABLE.apply(expr, self.owner)
        if isinstance(expr, BinaryExpr):
            if dtypes.is_float(expr.dtype):
                if isinstance(expr.a, Broadcast) or isinstance(expr.b, Broadcast):
                    return None
                return rules_float.TABLE.apply(expr, self.owner)
            if not isinstance(expr, CompareExpr):
                return rules_vector.apply(expr, match)
        return None

    def _var(self, var: Var) -> Expr:
        if var in self.context.substitutions:
            return self.context.substitutions[var]
        if self.context.rules and var.dtype in ARITHMETIC_DTYPES:
            value = constant_of(self.canonical.poly(var))
            if value is not None:
                return self.canonical.context.table.to_expr({(): value} if value else {}, var.dtype)
        if var.dtype == "bool" and self.context.conditions:
            known = self.context.conditions.get(var)
            if known is not None:
                return TRUE if known else FALSE
        return var

    # ---- integer arithmetic -----------------------------------------------------------------

    def _arithmetic(self, expr: Any) -> Expr:
        if expr.dtype not in ARITHMETIC_DTYPES:
            return self._along(expr, self._settled)
        try:
            made = self.from_poly(self.finished(self.canonical.poly(expr)), expr.dtype)
        except (OpaqueOperand, ConstantTooLarge):
            return self._by_operands(expr)
        if same_expr(made, expr):
            return expr  # type: ignore[no-any-return]
        if cost(made) > cost(expr):
            made = self._by_operands(expr)
        return made

    def _settled(self, expr: Any) -> Any:
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

    def from_poly(self, a: Poly, dtype: str) -> Expr:
        """Build the expression of a polynomial."""
        return self.context.table.to_expr(a, dtype)

    def finished(self, a: Poly) -> Poly:
        """Merge division with remainder, and pull terms into minima where they cancel."""
        kinds = self.context.table.kinds
        if len(a) > 1:
            for mono in a:
                for number in mono:
                    if kinds[number] in (MIN, MAX):
                        made = self._absorb(a, number)
                        if made is not None:
                            return self.finished(made)
        elif not self.context.residues:
            return a
        return self.canonical.merged(a)

    def _absorb(self, a: Poly, number: int) -> Poly | None:
        """``min(x + y, z) - x`` becomes ``min(y, z - x)`` if that makes it smaller."""
        value = a.get((number,))
        if value not in (1, -1) or any(number in mono and len(mono) > 1 for mono in a):
            return None
        table = self.context.table
        parts = table.parts[number]
        assert parts is not None
        rest = {mono: k * value for mono, k in a.items() if mono != (number,)}
        moved = {
            mono: k
            for mono, k in rest.items()
            if any(part.get(mono, 0) == -k for part in parts)
            or (not mono and all(part.keys() <= {()} or () in part for part in parts))
        }
        if not moved:
            return None
        inner = [poly_add(part, moved) for part in parts]
        before = len(parts[0]) + len(parts[1]) + len(rest)
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
            return _folded(made)
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
            made = self._equality(kind, poly_sub(a, b), expr.a.dtype)
        else:
            goal = poly_sub(b, a)
            if kind is LT:
                goal = poly_sub(goal, {(): 1})
            made = self._ordering(kind, self.canonical.merged(goal), expr.a.dtype)
        if isinstance(made, IntImm):
            return made
        if cost(made) > cost(expr):
            made = expr.map_children(self.visit)
        known = self._known(made)
        return made if known is None else known

    def reduced_goal(self, goal: Poly) -> Poly:
        """Return an equivalent ``goal >= 0`` with fewer terms or smaller coefficients."""
        for _ in range(8):
            smaller = self._reduce_once(goal)
            if smaller is None:
                return goal
            goal = smaller
        return goal

    def _reduce_once(self, goal: Poly) -> Poly | None:
        constant = goal.get((), 0)
        terms = [(mono, value) for mono, value in goal.items() if mono]
        common = 0
        for _, value in terms:
            common = gcd(common, value)
        if common > 1:
            return _with_constant({m: v // common for m, v in terms}, constant // common)
        if len(terms) == 1:
            return self._undivided(terms[0][0], terms[0][1], constant)
        # g*high + low >= 0 with low in [m*g, (m+1)*g) is high + m >= 0.
        for factor in sorted({abs(v) for _, v in terms if abs(v) > 1}, reverse=True):
            high = {m: v // factor for m, v in terms if v % factor == 0}
            low = {m: v for m, v in terms if v % factor}
            if not low or not high:
                continue
            low = _with_constant(low, constant % factor)
            bottom, top = self.bounds.poly(low)
            if bottom == float("-inf") or top == float("inf"):
                continue
            if bottom // factor == top // factor:
                return _with_constant(high, constant // factor + bottom // factor)
        return None

    def _undivided(self, mono: tuple[int, ...], value: int, constant: int) -> Poly | None:
        """``k - x//c >= 0`` is ``(k+1)*c - 1 - x >= 0``; ``x//c + k >= 0`` is ``x + k*c >= 0``."""
        table = self.context.table
        if len(mono) != 1 or table.kinds[mono[0]] != DIV:
            return None
        parts = table.parts[mono[0]]
        assert parts is not None
        by = constant_of(parts[1])
        if by is None or by <= 0:
            return None
        if value > 0:
            return poly_add(parts[0], {(): constant * by} if constant else {})
        return poly_sub({(): (constant + 1) * by - 1}, parts[0])

    def _ordering(self, kind: Any, goal: Poly, dtype: str) -> Expr:
        if self.prover.nonneg(goal):
            return TRUE
        if self.prover.nonneg(poly_sub({(): -1}, goal)):
            return FALSE
        goal = self.reduced_goal(goal)
        constant = goal.get((), 0)
        above = {m: v for m, v in goal.items() if m and v > 0}
        below = {m: -v for m, v in goal.items() if m and v < 0}
        build = self.from_poly
        if not below:
            return LE(build({(): -constant}, dtype), build(above, dtype))  # type: ignore[no-any-return]
        if not above:
            return LT(build(below, dtype), build({(): constant + 1}, dtype))  # type: ignore[no-any-return]
        if kind is LT or constant == -1:
            kind, constant = LT, constant + 1
        if constant > 0:
            above = _with_constant(above, constant)
        elif constant < 0:
            below = _with_constant(below, -constant)
        return kind(build(below, dtype), build(above, dtype))  # type: ignore[no-any-return]

    def equal_zero(self, difference: Poly) -> bool | None:
        """Whether a polynomial is zero: ``True``, ``False`` or unknown."""
        difference = self.canonical.merged(difference)
        if not difference:
            return True
        low, high = self.bounds.poly(difference)
        if low > 0 or high < 0:
            return False
        if low == high == 0:
            return True
        coeff, base = self.canonical.modular.poly(difference)
        if base % coeff if coeff else base:
            return False
        expanded = self.canonical.expanded(difference)
        if not expanded:
            return True
        if constant_of(expanded) is not None:
            return False
        minus = poly_scale(difference, -1)
        if self.prover.positive(difference) or self.prover.positive(minus):
            return False
        if self.prover.nonneg(difference) and self.prover.nonneg(minus):
            return True
        return None

    def _equality(self, kind: Any, difference: Poly, dtype: str) -> Expr:
        difference = self.canonical.merged(difference)
        known = self.equal_zero(difference)
        if known is not None:
            return TRUE if known == (kind is EQ) else FALSE
        constant = difference.get((), 0)
        terms = {m: v for m, v in difference.items() if m}
        common = 0
        for value in terms.values():
            common = gcd(common, value)
        if constant % common:
            return FALSE if kind is EQ else TRUE
        sign = 1 if next(iter(terms.values())) > 0 else -1
        constant = sign * constant // common
        left = {m: sign * v // common for m, v in terms.items() if sign * v > 0}
        right = {m: -sign * v // common for m, v in terms.items() if sign * v < 0}
        if constant > 0 and right:
            left = _with_constant(left, constant)
        elif constant:
            right = _with_constant(right, -constant)
        return kind(self.from_poly(left, dtype), self.from_poly(right, dtype))  # type: ignore[no-any-return]

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

    def _logic(self, expr: Any) -> Expr:
        kind = type(expr)
        if expr.dtype != "bool" or has_effects(expr):
            return expr.map_children(self.visit)  # type: ignore[no-any-return]
        items: list[Expr] = []
        _flatten(kind, expr, items)
        made = self._simplify_items(kind, items)
        joined = (and_ if kind is And else or_)(*made)
        if same_expr(joined, expr):
            return expr  # type: ignore[no-any-return]
        if type(joined) is not kind:
            return joined
        result = rules_logic.TABLE.apply(joined, self.owner)
        return joined if result is None else result

    def _simplify_items(self, kind: Any, items: Sequence[Expr]) -> list[Expr]:
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
            inner: list[Expr] = []
            _flatten(kind, made, inner)
            kept.extend(inner)
        # Earlier operands may follow from later ones: i < 5 and i < 3.
        index = 0
        while index < len(kept) - 1 and len(kept) <= 8:
            made = self._knowing(kept[index], kept[:index] + kept[index + 1 :], conjunction)
            if isinstance(made, IntImm):
                if bool(made.value) != conjunction:
                    return [stop]
                del kept[index]
            else:
                index += 1
        return kept or [skip]

    def _knowing(self, item: Expr, others: Sequence[Expr], holds: bool) -> Expr:
        """Simplify one operand, knowing those others that share a variable with it."""
        mine = _variables(item)
        related = [other for other in others if not mine.isdisjoint(_variables(other))]
        if not related:
            made: Expr = self.visit(item)
            return made
        saved = self.context.snapshot()
        try:
            for other in related:
                self.assume(other, holds)
            made = self.visit(item)
        finally:
            self.context.restore(saved)
        return made

    def _not(self, expr: Any) -> Expr:
        inner = self.visit(expr.a)
        negated = _NEGATED.get(type(inner))
        if negated is not None and inner.a.dtype in ARITHMETIC_DTYPES:
            return self.visit(negated(inner.a, inner.b))  # type: ignore[no-any-return]
        if negated in (EQ, NE):  # exact on floats too: NaN != NaN is not (NaN == NaN)
            return negated(inner.a, inner.b)  # type: ignore[no-any-return]
        if type(inner) in (And, Or) and inner.dtype == "bool" and not has_effects(inner):
            pushed = (or_ if type(inner) is And else and_)(not_(inner.a), not_(inner.b))
            return self.visit(pushed)  # type: ignore[no-any-return]
        if inner is expr.a:
            return expr  # type: ignore[no-any-return]
        return not_(inner)

    def _branches(self, condition: Expr, first: Expr, second: Expr) -> tuple[Expr, Expr]:
        saved = self.context.snapshot()
        try:
            self.assume(condition, True)
            first = self.visit(first)
        finally:
            self.context.restore(saved)
        saved = self.context.snapshot()
        try:
            self.assume(condition, False)
            second = self.visit(second)
        finally:
            self.context.restore(saved)
        return first, second

    def _select(self, expr: Any) -> Expr:
        return self._conditional(expr, (expr.condition, expr.true_value, expr.false_value))

    def _conditional(self, expr: Any, parts: tuple[Expr, Expr, Expr]) -> Expr:
        if dtypes.lanes_of(parts[0].dtype) > 1 or has_effects(parts[0]):
            return expr.map_children(self.visit)  # type: ignore[no-any-return]
        condition = self.visit(parts[0])
        if isinstance(condition, IntImm):
            chosen = parts[1] if condition.value else parts[2]
            dropped = parts[2] if condition.value else parts[1]
            # A Select evaluates both sides, so effects on the dropped one must stay.
            if type(expr) is Call or not has_effects(dropped):
                return self.visit(chosen)  # type: ignore[no-any-return]
        first, second = self._branches(condition, parts[1], parts[2])
        made = expr
        if condition is not parts[0] or first is not parts[1] or second is not parts[2]:
            if type(expr) is Select:
                made = Select(condition, first, second)
            else:
                made = Call(expr.op, (condition, first, second), expr.dtype)
        if has_effects(made):
            return made  # type: ignore[no-any-return]
        result = rules_logic.TABLE.apply(made, self.owner)
        return made if result is None else result  # type: ignore[no-any-return]

    def _call(self, expr: Any) -> Expr:
        name = expr.op.name
        if name == "if_then_else":
            return self._conditional(expr, expr.args)
        if name == "likely":
            inner = self.visit(expr.args[0])
            if isinstance(inner, IntImm):
                return inner
            return expr if inner is expr.args[0] else Call(expr.op, (inner,), expr.dtype)  # type: ignore[no-any-return]
        return self._generic(expr)  # type: ignore[no-any-return]

    def _let(self, expr: Any) -> Expr:
        value = self.visit(expr.value)
        if isinstance(value, (IntImm, FloatImm, Var)):
            return self.visit(substitute(expr.body, {expr.var: value}))  # type: ignore[no-any-return]
        saved = self.context.snapshot()
        try:
            if expr.var.dtype in ARITHMETIC_DTYPES and not has_effects(value):
                low, high = self.bounds.poly(self.canonical.poly(value))
                self.context.limits[self.context.table.var(expr.var)] = (low, high)
            body = self.visit(expr.body)
        finally:
            self.context.restore(saved)
        if value is expr.value and body is expr.body:
            return expr  # type: ignore[no-any-return]
        return Let(expr.var, value, body)

    # ---- learning ---------------------------------------------------------------------------

    def assume(self, condition: Any, holds: bool = True) -> None:
        """Add a condition (or its negation) to the context. What reads memory is left out."""
        kind = type(condition)
        if kind is Not:
            self.assume(condition.a, not holds)
        elif kind is Call and condition.op.name == "likely":
            self.assume(condition.args[0], holds)
        elif kind is (And if holds else Or) and condition.dtype == "bool":
            self.assume(condition.a, holds)
            self.assume(condition.b, holds)
        elif condition.dtype != "bool" or reads_memory(condition):
            return
        elif kind in _NEGATED and condition.a.dtype in ARITHMETIC_DTYPES:
            self._assume_comparison(kind if holds else _NEGATED[kind], condition.a, condition.b)
        else:
            try:
                self.context.conditions[self.canonical.key(condition)] = holds
            except OpaqueOperand:
                return
            self.context.changed()

    def _assume_comparison(self, kind: Any, left: Expr, right: Expr) -> None:
        a, b = self.canonical.poly(left), self.canonical.poly(right)
        if kind in (GT, GE):
            a, b, kind = b, a, (LT if kind is GT else LE)
        difference = self.canonical.merged(poly_sub(b, a))
        if kind is LT:
            self.assume_nonneg(poly_sub(difference, {(): 1}))
        elif kind is LE:
            self.assume_nonneg(difference)
        elif kind is EQ:
            self._assume_equal(difference)
        else:
            low, high = self.bounds.poly(difference)
            if low == 0:
                self.assume_nonneg(poly_sub(difference, {(): 1}))
            elif high == 0:
                self.assume_nonneg(poly_sub({(): -1}, difference))
            made: Any = self._equality(NE, difference, left.dtype)
            if type(made) is NE:
                self.context.conditions[self.canonical.key(made)] = True
                self.context.conditions[self.canonical.key(EQ(made.a, made.b))] = False
        self.context.changed()

    def assume_nonneg(self, goal: Poly) -> None:
        """Learn that ``goal >= 0``."""
        self._learn(goal)
        reduced = self.reduced_goal(goal)
        if reduced != goal:
            self._learn(reduced)

    def _learn(self, goal: Poly) -> None:
        context = self.context
        form = {mono: value for mono, value in goal.items() if mono}
        if not form:
            return
        least = -goal.get((), 0)
        infinity = float("inf")
        if len(form) == 1:
            ((mono, value),) = form.items()
            if len(mono) == 1:
                old = context.limits.get(mono[0], (-infinity, infinity))
                if value > 0:
                    context.limits[mono[0]] = (max(old[0], -(-least // value)), old[1])
                else:
                    context.limits[mono[0]] = (old[0], min(old[1], least // value))
                context.changed()
                return
        key = frozenset(form.items())
        old = context.poly_limits.get(key, (-infinity, infinity))
        low, high = max(old[0], least), old[1]
        context.poly_limits[key] = (low, high)
        context.poly_limits[frozenset(poly_scale(form, -1).items())] = (-high, -low)
        if goal not in context.facts:
            context.facts.append(goal)
        context.changed()

    def _assume_equal(self, difference: Poly) -> None:
        terms = [(mono, value) for mono, value in difference.items() if mono]
        constant = difference.get((), 0)
        context = self.context
        if len(terms) == 1 and constant % terms[0][1] == 0:
            mono, value = terms[0]
            context.rules[mono] = {(): -constant // value} if constant else {}
            self._learn_residue(mono, -constant // value)
        self.assume_nonneg(difference)
        self.assume_nonneg(poly_scale(difference, -1))

    def _learn_residue(self, mono: tuple[int, ...], value: int) -> None:
        """From ``x % c == r``: x leaves r modulo c."""
        table = self.context.table
        parts = table.parts[mono[0]] if len(mono) == 1 else None
        if parts is None or table.kinds[mono[0]] == DIV or table.kinds[mono[0]] in (MIN, MAX):
            return
        by = constant_of(parts[1])
        if by and len(parts[0]) == 1:
            ((inner, coefficient),) = parts[0].items()
            if coefficient == 1 and len(inner) == 1 and 0 <= value < by:
                self.context.residues[inner[0]] = (by, value)


def _variables(expr: Any) -> set[Any]:
    """Variables (and buffers) that appear."""
    found = set()
    stack = [expr]
    while stack:
        item = stack.pop()
        below = item.child_nodes()
        if below:
            stack.extend(below)
        elif type(item) is not IntImm:
            found.add(item)
    return found


def _with_constant(terms: Poly, constant: int) -> Poly:
    return {**terms, (): constant} if constant else terms


def _flatten(kind: Any, expr: Any, out: list[Expr]) -> None:
    stack = [expr]
    while stack:
        item = stack.pop()
        if type(item) is kind and item.dtype == "bool":
            stack += [item.b, item.a]
        else:
            out.append(item)


def _folded(expr: Any) -> Expr:
    """Fold a comparison of constants that are not index integers."""
    a, b = expr.a, expr.b
    if isinstance(a, (IntImm, FloatImm)) and isinstance(b, (IntImm, FloatImm)):
        holds = {
            EQ: a.value == b.value,
            NE: a.value != b.value,
            LT: a.value < b.value,
            LE: a.value <= b.value,
            GT: a.value > b.value,
            GE: a.value >= b.value,
        }
        return TRUE if holds[type(expr)] else FALSE
    return expr  # type: ignore[no-any-return]


def _constant(simplifier: Simplifier, expr: Any) -> Any:
    return expr


_VISITORS: dict[type, Callable[[Simplifier, Any], Any]] = {
    **dict.fromkeys((IntImm, FloatImm, StringImm), _constant),
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
