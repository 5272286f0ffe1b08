"""Compute equal expressions once: what a statement's segments have in common becomes a ``LetStmt``.

From the outermost statement inwards, each statement is seen as a sequence of segments (the items of
a sequence; condition and branches; bounds and body). An expression that several segments use, with
nothing written in between that it reads, gets a variable just before the first of them. The largest
expressions come first. What only one segment uses is left to that segment, so that values are
computed as late as possible.

An expression is evaluated only where one of its uses is evaluated anyway, or where that costs
little and is proven not to trap.

Not in the default order for CPUs: the emitter for LLVM shares equal values when it writes them, so
that no kernel gained by this pass, and one lost whose loads no longer stood where they are folded.
The pass option ``tir.cse`` puts it in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir import (
    And,
    Call,
    Expr,
    FloatImm,
    IntImm,
    Let,
    Mutator,
    Node,
    Or,
    StringImm,
    Var,
    as_int,
    dtypes,
    not_,
    pre_order,
)
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import (
    BlockRealize,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
    seq,
)
from tilewright.tir.transform.base import FunctionTransform, function_analyzer, inside_loop
from tilewright.tir.transform.effects import (
    EffectTable,
    ExprTable,
    is_pure,
    may_trap,
    memory_read,
)
from tilewright.tir.transform.hoist import defined_below, expr_cost

_LEAVES = (Var, IntImm, FloatImm, StringImm)
#: What may be evaluated although no use of it may be: index arithmetic up to this cost.
_CHEAP = 24


class CommonSubexpressionElimination(FunctionTransform):
    """Share expressions of at least ``min_cost`` (additions count 1, divisions and loads 8)."""

    def __init__(self, min_cost: int = 4) -> None:
        self.min_cost = min_cost

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        return func.map_children(Eliminator(func, self.min_cost).stmt)


CommonSubexprElim = CommonSubexpressionElimination  # TVM's name


@dataclass
class _Uses:
    """How often an expression stands in something, and whether it is evaluated for sure."""

    count: int = 0
    sure: bool = False


@dataclass(eq=False)
class _Segment:
    """One segment of a statement; ``var`` if it is a let that was put in."""

    node: Any
    uses: dict[int, _Uses]
    var: Var | None = None
    replaced: dict[int, Var] = field(default_factory=dict)


class _Occurrences:
    """Counts the candidate expressions of expressions and statements."""

    def __init__(self, table: ExprTable, min_cost: int, integers: bool) -> None:
        self.table = table
        self.min_cost = min_cost
        self.integers = integers  # these alone are candidates
        self.examples: dict[int, Expr] = {}
        self.costs: dict[int, int] = {}  # 0: no candidate
        self._known: dict[Stmt, dict[int, _Uses]] = {}

    def cost(self, number: int, expr: Expr) -> int:
        """The cost of a candidate; zero if an expression is none."""
        found = self.costs.get(number)
        if found is None:
            found = 0
            if (
                expr.dtype != "handle"
                and not (self.integers and dtypes.is_float(expr.dtype))
                and is_pure(expr)
                and not _names(expr)
            ):
                found = expr_cost(expr)
                found = found if found >= self.min_cost else 0
            self.costs[number] = found
            self.examples[number] = expr
        return found

    def of(self, node: Node) -> dict[int, _Uses]:
        """The candidates in an expression or statement."""
        if not isinstance(node, Stmt):
            made: dict[int, _Uses] = {}
            self._expr(node, True, made)
            return made
        found = self._known.get(node)
        if found is None:
            found = {}
            for segment, sure in segments(node):
                for number, uses in self.of(segment).items():
                    total = found.setdefault(number, _Uses())
                    total.count += uses.count
                    total.sure = total.sure or (sure and uses.sure)
            if isinstance(node, IfThenElse) and node.else_case is not None:
                # What both branches evaluate is evaluated.
                yes, no = self.of(node.then_case), self.of(node.else_case)
                for number, uses in yes.items():
                    if uses.sure and number in no and no[number].sure:
                        found[number].sure = True
            self._known[node] = found
        return found

    def _expr(self, expr: Node, sure: bool, found: dict[int, _Uses]) -> None:
        kind = type(expr)
        if kind in _LEAVES or not isinstance(expr, Expr):
            return
        number = self.table.number(expr)
        if self.cost(number, expr):
            uses = found.setdefault(number, _Uses())
            uses.count += 1
            uses.sure = uses.sure or sure
        for position, item in enumerate(expr.child_nodes()):
            first = position == 0
            conditional = kind is And or kind is Or or _is_choice(expr)
            self._expr(item, sure and (first or not conditional), found)


def _is_choice(expr: Expr) -> bool:
    return type(expr) is Call and expr.op.name == "if_then_else"


def _names(expr: Expr) -> bool:
    return any(type(item) is Let for item in pre_order(expr))


def segments(stmt: Any) -> list[tuple[Any, bool]]:
    """What a statement consists of, in the order of evaluation, and whether each surely is."""
    kind = type(stmt)
    if kind is IfThenElse:
        found = [(stmt.condition, True), (stmt.then_case, False)]
        return found if stmt.else_case is None else [*found, (stmt.else_case, False)]
    if kind is For:
        runs = (as_int(stmt.extent) or 0) > 0
        return [(stmt.min, True), (stmt.extent, True), (stmt.body, runs)]
    if kind is While:
        return [(stmt.condition, True), (stmt.body, False)]
    return [(item, True) for item in stmt.child_nodes() if not isinstance(item, Buffer)]


def _reads_first(stmt: Stmt) -> bool:
    """Whether a statement reads all that it needs before it changes anything."""
    if type(stmt) is BufferStore:
        return is_pure(stmt.value) and all(map(is_pure, stmt.indices))
    return type(stmt) is Evaluate and all(is_pure(item) for item in stmt.value.child_nodes())


class Eliminator:
    """Rewrites statements of a function; with ``integers`` floats stay where they are."""

    def __init__(self, func: PrimFunc, min_cost: int, integers: bool = False) -> None:
        self.analyzer: Analyzer = function_analyzer(func)
        self.effects = EffectTable(func)
        self.table = ExprTable()
        self.occurrences = _Occurrences(self.table, min_cost, integers)
        self.made = 0

    def stmt(self, stmt: Stmt) -> Stmt:
        """Rewrite a statement with all below it."""
        if type(stmt) is BlockRealize:
            return stmt  # blocks say what they access: lower them first
        sequence = [_Segment(item, self.occurrences.of(item)) for item, _ in segments(stmt)]
        if self._may_share(stmt):
            self._share(stmt, sequence)
        if not any(segment.var is not None for segment in sequence):
            return self._below(stmt)
        if type(stmt) is SeqStmt:
            return self._rebuilt(sequence)
        replaced: dict[Any, dict[int, Var]] = {}
        for segment in sequence:
            replaced.setdefault(segment.node, {}).update(segment.replaced)
        inner = stmt.map_children(
            lambda item: _Replacer(self.table, replaced.get(item, {})).visit(item)
        )
        lets = [segment for segment in sequence if segment.var is not None]
        return self._with_lets(lets, self._below(inner))

    def _rebuilt(self, sequence: list[_Segment]) -> Stmt:
        """A sequence with its lets, each around all that follows it."""
        rest: list[Stmt] = []
        for segment in reversed(sequence):
            if segment.var is not None:
                rest = [self._with_lets([segment], seq(rest))]
            else:
                made = _Replacer(self.table, segment.replaced).visit(segment.node)
                rest.insert(0, self.stmt(made))
        return seq(rest)

    def _with_lets(self, lets: list[_Segment], body: Stmt) -> Stmt:
        for segment in reversed(lets):
            value = segment.node.map_children(_Replacer(self.table, segment.replaced).visit)
            assert segment.var is not None
            body = LetStmt(segment.var, value, body)
        return body

    def _below(self, stmt: Stmt) -> Stmt:
        """Rewrite the statements inside, knowing what holds there."""
        kind = type(stmt)
        if kind is SeqStmt:
            made = tuple(map(self.stmt, stmt.stmts))  # type: ignore[attr-defined]
            same = all(a is b for a, b in zip(made, stmt.stmts))  # type: ignore[attr-defined]
            return stmt if same else seq(made)
        if kind is IfThenElse:
            return self._branches(stmt)

        def inside(item: object) -> Any:
            return self.stmt(item) if isinstance(item, Stmt) else item

        if kind is For:
            with inside_loop(self.analyzer, stmt):  # type: ignore[arg-type]
                return stmt.map_children(inside)
        return stmt.map_children(inside)

    def _branches(self, stmt: Any) -> Stmt:
        if dtypes.lanes_of(stmt.condition.dtype) > 1:
            then_case = self.stmt(stmt.then_case)
            else_case = None if stmt.else_case is None else self.stmt(stmt.else_case)
        else:
            with self.analyzer.constraint(stmt.condition):
                then_case = self.stmt(stmt.then_case)
            else_case = None
            if stmt.else_case is not None:
                with self.analyzer.constraint(not_(stmt.condition)):
                    else_case = self.stmt(stmt.else_case)
        if then_case is stmt.then_case and else_case is stmt.else_case:
            return stmt  # type: ignore[no-any-return]
        return IfThenElse(stmt.condition, then_case, else_case)

    def _may_share(self, stmt: Stmt) -> bool:
        """Lets around a statement come before its own expressions: those must have no effects."""
        if type(stmt) is SeqStmt or _reads_first(stmt):
            return True
        return all(is_pure(item) for item, _ in segments(stmt) if not isinstance(item, Stmt))

    # ---- choosing

    def _share(self, stmt: Stmt, sequence: list[_Segment]) -> None:
        """Put lets for what segments have in common into the sequence, the costliest first."""
        totals: dict[int, int] = {}
        for segment in sequence:
            for number, uses in segment.uses.items():
                totals[number] = totals.get(number, 0) + uses.count
        numbers = [number for number, count in totals.items() if count > 1]
        if not numbers:
            return
        costs = self.occurrences.costs
        inside = defined_below(stmt)
        for number in sorted(numbers, key=lambda number: -costs[number]):
            expr = self.occurrences.examples[number]
            if any(
                item in inside
                for item in pre_order(expr)
                if type(item) is Var or isinstance(item, Buffer)
            ):
                continue
            for run in self._runs(stmt, sequence, number, memory_read(expr)):
                if self._worthwhile(run, number, expr):
                    self._introduce(sequence, run, number, expr)

    def _runs(
        self, stmt: Stmt, sequence: list[_Segment], number: int, read: set[Var]
    ) -> list[list[_Segment]]:
        """Segments that use an expression, grouped so that it has one value within each group."""
        if type(stmt) is While and self.effects.of(stmt).disturbs(read):
            return []  # the condition is evaluated again and again
        runs: list[list[_Segment]] = []
        run: list[_Segment] = []
        for segment in sequence:
            used = number in segment.uses and segment.uses[number].count > 0
            changed = isinstance(segment.node, Stmt) and self.effects.of(segment.node).disturbs(
                read
            )
            if used and (not changed or _reads_first(segment.node)):
                run.append(segment)
            if changed and run:
                runs.append(run)
                run = []
        if run:
            runs.append(run)
        return runs if type(stmt) is SeqStmt else runs[:1]

    def _worthwhile(self, run: list[_Segment], number: int, expr: Expr) -> bool:
        uses = [segment.uses[number] for segment in run]
        if len(run) == 1 and (isinstance(run[0].node, Stmt) or uses[0].count < 2):
            return False
        if may_trap(expr, self.analyzer):
            return uses[0].sure
        return any(item.sure for item in uses) or (
            self.occurrences.costs[number] <= _CHEAP
            and not any(type(item) in (BufferLoad, Call) for item in pre_order(expr))
        )

    def _introduce(
        self, sequence: list[_Segment], run: list[_Segment], number: int, expr: Expr
    ) -> None:
        var = Var(f"cse{self.made}", expr.dtype)
        self.made += 1
        inner = self.occurrences.of(expr)
        for segment in run:
            count = segment.uses[number].count
            segment.replaced[number] = var
            for below, uses in inner.items():
                known = segment.uses[below]
                segment.uses[below] = _Uses(known.count - count * uses.count, known.sure)
        inner = {key: uses for key, uses in inner.items() if key != number}
        position = next(i for i, segment in enumerate(sequence) if segment is run[0])
        sequence.insert(position, _Segment(expr, inner, var))


class _Replacer(Mutator):
    """Puts variables in place of expressions."""

    def __init__(self, table: ExprTable, variables: dict[int, Var]) -> None:
        self.table = table
        self.variables = variables

    def visit_Expr(self, node: Expr) -> Expr:
        if type(node) in _LEAVES:
            return node
        found = self.variables.get(self.table.number(node))
        return node.map_children(self.visit) if found is None else found

    def visit_Buffer(self, node: Buffer) -> Buffer:
        return node

    def visit_Let(self, node: Let) -> Node:
        return self.visit_Expr(node)
