"""Drop branches whose sides are equal by what the program states of elements of buffers.

A function that pads its input, and one that computes with the padded tensor, each ask which
elements are real. If zeros stay zeros, the second needn't:

    for i in range(16):                                for i in range(16):
        T.assume(i < 14 or A[i] == 0.0)                    T.assume(i < 14 or A[i] == 0.0)
    for i in range(16):                          ──>   for i in range(16):
        B[i] = if_then_else(i < 14, A[i] * 2, 0)           B[i] = A[i] * 2
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir import (
    EQ,
    TRUE,
    Call,
    Expr,
    Mutator,
    Or,
    Range,
    Select,
    Var,
    and_,
    expr_equal,
    free_vars,
    not_,
    or_,
    pre_order,
    rewrite_bottom_up,
    substitute,
)
from tilewright.tir.attrs import NO_ALIAS
from tilewright.tir.buffer import BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import (
    Block,
    BlockRealize,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    MatchBufferRegion,
    SeqStmt,
    Stmt,
    seq,
)
from tilewright.tir.transform.base import (
    FunctionTransform,
    function_analyzer,
    inside_loop,
    visit_branches,
)
from tilewright.tir.transform.effects import is_pure, may_trap
from tilewright.tir.transform.remove_assume import is_assumption


class UseAssumeToReduceBranches(FunctionTransform):
    """Replace ``if_then_else`` and ``Select`` by a side that equals the other one by assumptions.

    Statements ``T.assume(unless or A[i, j] == value)``, alone in a nest of loops over ``i`` and
    ``j``, hold for all of them until ``A`` is written. The side that stays must be harmless where
    the condition doesn't hold. Zeros of either sign count as equal.
    """

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        if not any(is_assumption(item) for item in pre_order(func.body) if isinstance(item, Stmt)):
            return func
        return func.map_children(_Reducer(func).visit)


@dataclass(frozen=True)
class _Fact:
    """``load == value`` for all indices in a domain, unless a condition on them holds."""

    load: BufferLoad
    domain: Mapping[Var, Range]
    unless: Expr
    value: Expr


@dataclass(frozen=True)
class _Nest:
    """A nest of loops or axes around one statement: their ranges, and the loops' extents."""

    stmt: Evaluate
    domain: Mapping[Var, Range]
    loops: Mapping[Var, Expr]  # the loop of a variable or of an axis, by its extent


def _nest_of(stmt: Stmt) -> _Nest | None:
    """The nest of loops around a single evaluation."""
    domain: dict[Var, Range] = {}
    loops: dict[Var, Expr] = {}
    while not isinstance(stmt, Evaluate):
        if type(stmt) is For:
            domain[stmt.loop_var] = Range.from_min_extent(stmt.min, stmt.extent)
            loops[stmt.loop_var] = stmt.extent
            stmt = stmt.body
        elif type(stmt) is BlockRealize and stmt.block.init is None and stmt.predicate is TRUE:
            axes = _whole_axes(stmt, domain)
            if axes is None:
                return None
            # A loop that no axis runs over stays: it may be empty.
            left = {var: extent for var, extent in loops.items() if var not in stmt.iter_values}
            loops = {**left, **{var: axis.extent for var, axis in axes.items()}}
            domain, stmt = axes, stmt.block.body
        else:
            return None
    return _Nest(stmt, domain, loops)


def _fact_of(stmt: Stmt, analyzer: Analyzer) -> _Fact | None:
    """What a nest of loops around a single assumption says."""
    nest = _nest_of(stmt)
    if nest is None or not is_assumption(nest.stmt):
        return None
    parts = list(_disjuncts(nest.stmt.value.args[0]))  # type: ignore[attr-defined]
    for part in parts:
        for load, value in ((part.a, part.b), (part.b, part.a)) if type(part) is EQ else ():
            rest = or_(*(item for item in parts if item is not part))
            if type(load) is BufferLoad and _says_of_each(nest, load, rest, value, analyzer):
                named = _indices_in(nest.domain, load)
                return _Fact(load, {var: nest.domain[var] for var in named}, rest, value)
    return None


def _indices_in(domain: Mapping[Var, Range], load: BufferLoad) -> list[Var]:
    return [index for index in load.indices if isinstance(index, Var) and index in domain]


def _says_of_each(
    nest: _Nest, load: BufferLoad, unless: Expr, value: Expr, analyzer: Analyzer
) -> bool:
    """Whether an equality is of one element for each iteration of the loops over its indices."""
    named = set(_indices_in(nest.domain, load))
    if not named or len(named) != len(load.indices):
        return False
    used = {var for expr in (unless, value) for var in free_vars(expr)}
    if not used & set(nest.domain) <= named:
        return False
    given = (unless, value, *nest.domain.values())
    if any(type(item) is BufferLoad for node in given for item in pre_order(node)):
        return False
    # A loop over something else says nothing if it is empty.
    others = (extent for var, extent in nest.loops.items() if var not in named)
    return all(analyzer.can_prove(extent >= 1) for extent in others)


def _whole_axes(realize: BlockRealize, loops: Mapping[Var, Range]) -> dict[Var, Range] | None:
    """The axes of a block, if each is one whole loop of its own."""
    values = realize.iter_values
    if len(set(values)) != len(values):
        return None
    found: dict[Var, Range] = {}
    for axis, value in zip(realize.block.iter_vars, values):
        loop = loops.get(value) if type(value) is Var else None
        if loop is None or not (
            expr_equal(loop.min, axis.dom.min) and expr_equal(loop.extent, axis.dom.extent)
        ):
            return None
        found[axis.var] = axis.dom
    return found


def _disjuncts(condition: Expr) -> Iterator[Any]:
    if isinstance(condition, Or):
        yield from _disjuncts(condition.a)
        yield from _disjuncts(condition.b)
    else:
        yield condition


class _Reducer(Mutator):
    def __init__(self, func: PrimFunc) -> None:
        self.analyzer = function_analyzer(func)
        self.may_alias = not func.attrs.get(NO_ALIAS, True)
        self.facts: list[_Fact] = []

    # ---- what holds where

    def visit_SeqStmt(self, node: SeqStmt) -> Stmt:
        with self._facts_inside():
            made = []
            for item in node.stmts:
                self._forget(item)
                made.append(self.visit(item))
                fact = _fact_of(item, self.analyzer)
                if fact is not None:
                    self.facts = [*self.facts, fact]
        return node if all(a is b for a, b in zip(made, node.stmts)) else seq(made)

    def _forget(self, stmt: Stmt) -> None:
        """Drop the facts that a statement may make untrue."""
        if not self.facts:
            return
        written: set[Var] = set()
        for item in pre_order(stmt):
            calls = type(item) is Call and item.op.effect not in ("pure", "read")
            if isinstance(item, MatchBufferRegion) or (
                calls and item.op.name not in ("assume", "prefetch")  # type: ignore[attr-defined]
            ):
                self.facts = []
                return
            if isinstance(item, BufferStore):
                written.add(item.buffer.data)
        if written and self.may_alias:
            self.facts = []
        self.facts = [fact for fact in self.facts if fact.load.buffer.data not in written]

    @contextmanager
    def _facts_inside(self) -> Iterator[None]:
        before = self.facts
        yield
        self.facts = before

    def visit_For(self, node: For) -> Stmt:
        with inside_loop(self.analyzer, node):
            body = self.visit(node.body)
        return node if body is node.body else node.replace(body=body)

    def visit_Block(self, node: Block) -> Block:
        with self.analyzer.constraint(TRUE):
            for axis in node.iter_vars:
                self.analyzer.bind(axis.var, axis.dom, override=True)
            body = self.visit(node.body)
        return node if body is node.body else node.replace(body=body)

    def visit_IfThenElse(self, node: IfThenElse) -> Stmt:
        then_case, else_case = visit_branches(self, self.analyzer, node)
        if then_case is node.then_case and else_case is node.else_case:
            return node
        return node.replace(then_case=then_case, else_case=else_case)

    # ---- choices

    def visit_Call(self, node: Call) -> Any:
        made = node.map_children(self.visit)
        if made.op.name != "if_then_else" or not self.facts:
            return made
        return self._chosen(made, *made.args)

    def visit_Select(self, node: Select) -> Any:
        made = node.map_children(self.visit)
        if not self.facts:
            return made
        return self._chosen(made, made.condition, made.true_value, made.false_value)

    def _chosen(self, node: Expr, condition: Expr, first: Expr, second: Expr) -> Expr:
        """A choice, or the side that equals the other where that one would be taken."""
        for when, kept, other in (
            (not_(condition), first, second),
            (condition, second, first),
        ):
            if is_pure(kept) and not may_trap(kept, self.analyzer):
                with self.analyzer.constraint(when):
                    if self._equal(self._known(kept), other):
                        return kept
        return node

    def _equal(self, a: Expr, b: Expr) -> bool:
        a, b = self.analyzer.simplify(a), self.analyzer.simplify(b)
        return expr_equal(a, b)

    def _known(self, expr: Expr) -> Expr:
        """An expression with the values of elements that are known."""

        def value(item: object) -> Any:
            found = self._value(item) if type(item) is BufferLoad else None
            return item if found is None else found

        made: Expr = rewrite_bottom_up(expr, value)
        return made

    def _value(self, load: BufferLoad) -> Expr | None:
        for fact in self.facts:
            if fact.load.buffer is not load.buffer:
                continue
            where = dict(zip(fact.load.indices, load.indices))
            inside = and_(
                *(part for v, d in fact.domain.items() for part in _within(where[v], d)),
                not_(substitute(fact.unless, where)),
            )
            if self.analyzer.can_prove(inside):
                return substitute(fact.value, where)
        return None


def _within(index: Expr, domain: Range) -> tuple[Expr, Expr]:
    return index >= domain.min, index < domain.min + domain.extent
