"""Cut loops where a condition inside them changes, so that inner loops run without it.

A tile that doesn't divide an extent leaves a predicate such as ``i0 * 16 + i1 < 125`` in the
innermost loop. For the loops from the outermost inwards, the values of the loop variable for
which the condition holds whatever the inner loops do are found:

- if they are a constant range, the loop is cut into that range, without the condition, and the
  rest;
- if they are the first ones of a serial loop, or of a parallel one of vectors, up to an end that
  is a formula of sizes, the loop is cut there;
- if not (``i0`` is part of a fused loop, threads share the iterations), the loop's body is doubled
  under a test of the range.

Masks of loads cost less than code without them, so they are no reason to cut; loops annotated with
``CUT_MASKS`` are cut there all the same, also where their first and last values overlap.

In the rest the condition stays, or falls away if it is false throughout. Register tiles keep
constant indices in both copies, and are computed whole (``relax_tile_guards``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.arith import Analyzer, conjuncts, int_set, linear_coefficients
from tilewright.ir import (
    FALSE,
    GE,
    GT,
    LE,
    LT,
    TRUE,
    And,
    Call,
    Expr,
    IntImm,
    Node,
    Range,
    Var,
    and_,
    as_int,
    collect,
    const,
    contains,
    defined_symbols,
    definition_fields,
    dtypes,
    expr_equal,
    floordiv,
    if_then_else,
    maximum,
    minimum,
    pass_option,
    pre_order,
    rewrite_top_down,
    uses_var,
)
from tilewright.tir.attr_values import is_flagged
from tilewright.tir.attrs import AUTO_STEP, CUT_MASKS, KEEP_WHOLE
from tilewright.tir.buffer import BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.rewrite import renew_definitions
from tilewright.tir.stmt import (
    NO_OP,
    PARALLEL,
    SERIAL,
    UNROLLED,
    VECTORIZED,
    AttrStmt,
    BufferStore,
    For,
    IfThenElse,
    Stmt,
    is_no_op,
    seq,
)
from tilewright.tir.transform.base import (
    FunctionTransform,
    StmtMutator,
    function_analyzer,
    inside_loop,
)
from tilewright.tir.transform.effects import may_trap, memory_read
from tilewright.tir.transform.relax_tile_guards import relax_tile_guards
from tilewright.tir.transform.simplify import StmtSimplifier

_has_branch = contains(IfThenElse)
#: Heights of a last tile of rows whose number comes with the call, below that of whole tiles;
#: widths of one of columns.
LAST_TILES = (1, 2, 4, 6, 8)
_WIDTHS = (8, 16, 32)
_CUT = (SERIAL, PARALLEL, UNROLLED)


@dataclass(frozen=True)
class LoopPartitionConfig:
    """The pass option ``tir.LoopPartition``: whether loops of constant extent are cut."""

    partition_const_loop: bool = True


_OPTION = pass_option(
    "tir.LoopPartition",
    LoopPartitionConfig,
    LoopPartitionConfig(),
    "Whether `LoopPartition` cuts loops of constant extent.",
)


class LoopPartition(FunctionTransform):
    """Partition loops at conditions of branches; at most ``max_depth`` cuts inside one another.

    The pass option ``tir.LoopPartition``, a ``LoopPartitionConfig``, may exempt constant loops.
    """

    def __init__(self, max_depth: int = 2) -> None:
        self.max_depth = max_depth

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        sizes = set(func.sizes())
        if not _has_branch(func.body) and not sizes and not _cuts_masks(func.body):
            return func
        analyzer = function_analyzer(func)
        partitioner = _Partitioner(analyzer, self.max_depth, sizes)
        made = func.map_children(partitioner.visit)
        if not _has_branch(made.body):
            return made
        return made.replace(body=relax_tile_guards(made.body, analyzer.copy())[0])


def _cuts_masks(body: Stmt) -> bool:
    """Whether some loop is cut where masks change."""
    return any(
        type(item) is For and is_flagged(item.annotations, CUT_MASKS) for item in pre_order(body)
    )


def _rarely(stmt: Stmt) -> Stmt:
    """Mark what seldom runs: unrolling it further would only cost compile time."""

    def strip(node: Node) -> Any:
        if type(node) is For and AUTO_STEP in node.annotations:
            kept = {k: v for k, v in node.annotations.items() if k != AUTO_STEP}
            return node.replace(annotations=kept, body=rewrite_top_down(node.body, strip))
        return node if isinstance(node, Expr) else None

    if is_no_op(stmt):
        return stmt
    return AttrStmt(None, AUTO_STEP, const(0), rewrite_top_down(stmt, strip))


def _stores(stmt: Stmt) -> bool:
    """Whether a statement does more than to compute and to fetch ahead."""
    return any(
        isinstance(item, BufferStore)
        or (isinstance(item, Call) and item.op.effect != "pure" and item.op.name != "prefetch")
        for item in pre_order(stmt)
    )


class _Condition:
    """A comparison inside a loop as ``slack >= 0``, with the loops between."""

    def __init__(self, expr: Expr, slack: Expr, loops: list[For]) -> None:
        self.expr = expr
        self.slack = slack
        self.loops = tuple(loops)
        self.domain = {
            loop.loop_var: Range.from_min_extent(loop.min, loop.extent) for loop in loops
        }

    def ended(self) -> For | None:
        """The unrolled or vectorised loop of a tile that the comparison alone ends early."""
        inside = [loop for loop in self.loops if uses_var(self.slack, {loop.loop_var})]
        if len(inside) != 1:
            return None
        (loop,) = inside
        whole = as_int(loop.min) == 0 and as_int(loop.extent) is not None
        if loop.kind not in (UNROLLED, VECTORIZED) or not whole:
            return None
        linear = linear_coefficients(self.slack, [loop.loop_var])
        return loop if linear is not None and as_int(linear[0]) == -1 else None


def _is_of_vectors(body: Stmt) -> bool:
    loops = (node for node in pre_order(body) if isinstance(node, For))
    return all(loop.kind == VECTORIZED for loop in loops)


class _Partitioner(StmtMutator):
    def __init__(self, analyzer: Analyzer, max_depth: int, sizes: set[Var]) -> None:
        self.analyzer = analyzer
        self.left = max_depth
        self.sizes = sizes  # known only with the call
        self.whole = False  # inside of a loop that stays whole
        self.cut_off = False  # in the last tiles of columns
        self.known: list[Expr] = []  # comparisons that hold in what is visited

    def visit_For(self, node: For) -> Stmt:
        around, self.whole = self.whole, self.whole or is_flagged(node.annotations, KEEP_WHOLE)
        # In a loop that stays whole, the loops of its tile do too.
        inside = around and node.kind == UNROLLED and not is_flagged(node.annotations, CUT_MASKS)
        stays = is_flagged(node.annotations, KEEP_WHOLE) or inside
        made = self._cut(node) if self.left > 0 and node.kind in _CUT and not stays else None
        if made is None:
            with inside_loop(self.analyzer, node):
                made = self.generic_visit(node)
        self.whole = around
        return made

    def _cut(self, loop: For) -> Stmt | None:
        found = _conditions(loop, self.sizes)
        if not found:
            return None
        low, count = as_int(loop.min), as_int(loop.extent)
        whole = None if low is None or count is None else (low, low + count)
        if whole is not None and not _OPTION.value().partition_const_loop:
            return None
        inside = whole  # where the conditions that are cut at hold
        cut: set[int] = set()
        tests: list[tuple[_Condition, Expr]] = []
        for condition, least in self._least_slacks(found):
            factor, rest = _line(least, loop.loop_var)
            if factor and inside is not None:
                inside = _narrowed(inside, factor, rest)
                cut.add(id(condition.expr))
            elif condition.domain and self._harmless(least, loop):
                tests.append((condition, least))
        if cut and whole is not None and inside is not None:
            (low, high), (start, stop) = whole, inside
            if start < stop:
                return None if inside == whole else self._segments(loop, (low, *inside, high), cut)
            # No iteration is without its condition; there may be one where several fail.
            first, last = (max(low, min(high, end)) for end in (stop, start))
            apart = low < first < high or low < last < high
            if apart and is_flagged(loop.annotations, CUT_MASKS):
                return self._segments(loop, (low, first, last, high), set())
        return self._doubled(loop, tests) if tests else None

    def _least_slacks(self, conditions: list[_Condition]) -> Iterator[tuple[_Condition, Expr]]:
        """Conditions with their least slack in the loops between, where that is known."""
        for condition in conditions:
            least = int_set(condition.slack, condition.domain, analyzer=self._fresh()).min
            if isinstance(least, Expr) and not uses_var(least, set(condition.domain)):
                yield condition, least

    def _harmless(self, test: Expr, loop: For) -> bool:
        """Whether a test may be evaluated before what guarded it: it divides by nothing unknown."""
        with inside_loop(self.analyzer, loop):
            return not may_trap(test, self.analyzer)

    def _knows_masks(self, loop: For) -> bool:
        """Whether masks are known in the parts of a loop."""
        return bool(self.sizes) or is_flagged(loop.annotations, CUT_MASKS)

    def _fresh(self) -> Analyzer:
        return self.analyzer.copy()

    def _segments(self, loop: For, ends: tuple[int, int, int, int], known: set[int]) -> Stmt:
        """The loop in up to three segments; the middle one without the conditions."""
        low, start, stop, high = ends
        self.left -= 1
        segments: list[Stmt] = []
        inner = _assume(loop.body, known, self._knows_masks(loop)) if known else loop.body
        for first, last, body in (
            (low, start, loop.body),
            (start, stop, inner),
            (stop, high, loop.body),
        ):
            if first >= last:
                continue
            kind = loop.kind if first == start or loop.kind != PARALLEL else SERIAL
            dtype = loop.loop_var.dtype
            segment = loop.replace(
                min=const(first, dtype), extent=const(last - first, dtype), kind=kind, body=body
            )
            if segments:
                segment = renew_definitions(segment)
            simple = StmtSimplifier(self._fresh()).visit(segment)
            if body is loop.body:
                segments.append(self._remainder(simple))
            else:
                segments.append(self.visit(simple))
        self.left += 1
        return seq(*segments)

    def _remainder(self, stmt: Stmt) -> Stmt:
        """What runs where conditions don't hold throughout: cut no further if tiles are whole."""
        made, whole = relax_tile_guards(stmt, self._fresh(), self.known)
        return _rarely(made if whole and not _cuts_masks(made) else self.visit(made))

    def _last_columns(self, stmt: Stmt) -> Stmt:
        """A remainder of columns: of its tiles of rows, whole ones are apart from the last one.

        Of a result with few columns, it's all there is.
        """
        if self.cut_off:
            return self._remainder(stmt)
        self.cut_off = True
        made = self.visit(stmt)
        self.cut_off = False
        return relax_tile_guards(made, self._fresh(), self.known)[0]

    def _doubled(self, loop: For, tests: list[tuple[_Condition, Expr]]) -> Stmt:
        """The loop with its body twice, one of them for where the conditions hold throughout."""
        end = self._end(loop, tests)
        if end is None:
            with inside_loop(self.analyzer, loop):
                return self._doubled_inside(loop, tests, None)
        # That the loop runs at all needn't hold where the ends of both are computed.
        count = self.analyzer.simplify(end - loop.min)
        left = self.analyzer.simplify(loop.min + loop.extent - end)
        with inside_loop(self.analyzer, loop):
            return self._doubled_inside(loop, tests, (end, count, left))

    def _doubled_inside(
        self,
        loop: For,
        tests: list[tuple[_Condition, Expr]],
        ends: tuple[Expr, Expr, Expr] | None,
    ) -> Stmt:
        """``ends``: where the first of two loops ends, and iterations of both; ``None``: one."""
        self.left -= 1
        full = and_(*(self.analyzer.simplify(least >= 0) for _, least in tests))
        holding = {id(condition.expr) for condition, _ in tests}
        fast = _assume(loop.body, holding, self._knows_masks(loop))
        if isinstance(full, IntImm):
            # Known after all: nothing to test.
            made = loop.replace(body=self.visit(fast if full.value else loop.body))
            self.left += 1
            return made
        before = len(self.known)
        self.known.extend(least >= 0 for _, least in tests)
        fast = self.visit(fast)
        del self.known[before:]
        rest = _without(loop.body, tests, is_flagged(loop.annotations, CUT_MASKS))
        if rest is not loop.body:
            rest = StmtSimplifier(self._fresh()).visit(rest)
        columns = rest is loop.body and _ends_vectors(tests)
        remainder = self._last_columns if columns else self._remainder
        slow = NO_OP if is_no_op(rest) else remainder(renew_definitions(rest))
        if rest is loop.body and not self.cut_off:
            slow = self._smaller_tiles(loop.body, tests, slow)
        self.left += 1
        if ends is None:
            return loop.replace(body=IfThenElse(full, fast, None if is_no_op(slow) else slow))
        end, count, left = ends
        first = loop.replace(extent=count, body=fast)
        if is_no_op(slow):
            return first
        kind = SERIAL if self.analyzer.can_prove(left <= 1) else loop.kind
        return seq(
            first, renew_definitions(loop.replace(min=end, extent=left, kind=kind, body=slow))
        )

    def _end(self, loop: For, tests: list[tuple[_Condition, Expr]]) -> Expr | None:
        """Where the tests of a serial loop stop to hold, if they hold from its start.

        Two loops, one after the other, need no test in each iteration. Of parallel loops that pays
        for iterations of vectors alone: other threads would wait for the rest.
        """
        parallel = loop.kind == PARALLEL and _is_of_vectors(loop.body)
        if (
            (loop.kind != SERIAL and not parallel)
            or memory_read(loop.min)
            or memory_read(loop.extent)
        ):
            return None
        prove = self.analyzer.can_prove
        end: Expr = loop.min + loop.extent
        for _, least in tests:
            linear = linear_coefficients(least, [loop.loop_var])
            factor, rest = (None, least) if linear is None else (as_int(linear[0]), linear[1])
            if factor is None or factor >= 0 or may_trap(rest, self.analyzer):
                return None
            stop = self.analyzer.simplify(floordiv(rest, -factor) + 1)
            if prove(stop <= end):
                end = stop
            elif not prove(end <= stop):
                end = minimum(stop, end)
        return self.analyzer.simplify(end if prove(end >= loop.min) else maximum(end, loop.min))

    def _smaller_tiles(self, body: Stmt, tests: list[tuple[_Condition, Expr]], whole: Stmt) -> Stmt:
        """The last tile of an axis whose size comes with the call: as large as it must be.

        Computed whole, the only tile of a batch of one would cost as much as one of 14 rows.
        """
        ended = [condition.ended() for condition, _ in tests]
        sums_up = any(loop.kind == SERIAL for condition, _ in tests for loop in condition.loops)
        simplify = self.analyzer.simplify
        spare = simplify(tests[0][1])
        if not sums_up or not uses_var(spare, self.sizes):
            return whole
        if any(not expr_equal(simplify(least), spare) for _, least in tests):
            return whole
        if len({None if loop is None else (loop.kind, as_int(loop.extent)) for loop in ended}) > 1:
            return whole
        first = ended[0]
        if first is None:
            return whole
        most, made = as_int(first.extent) or 0, whole
        sizes = LAST_TILES if first.kind == UNROLLED else _WIDTHS
        for size in reversed([size for size in sizes if size < most]):
            known = {
                id(condition.expr): and_(loop.loop_var < size, condition.expr)
                for (condition, _), loop in zip(tests, ended)
                if loop is not None
            }
            remainder = self._remainder if first.kind == UNROLLED else self._last_columns
            smaller = remainder(renew_definitions(_replaced(body, known, True)))
            made = IfThenElse(simplify(spare + most <= size), smaller, made)
        # Tiles of a group of known size may lie beyond the end.
        beyond = simplify(spare + most <= 0)
        if not isinstance(beyond, IntImm):
            none = {id(condition.expr): FALSE for condition, _ in tests}
            if not _stores(StmtSimplifier(self._fresh()).visit(_replaced(body, none, True))):
                made = IfThenElse(simplify(spare + most > 0), made, None)
        return made


def _ends_vectors(tests: list[tuple[_Condition, Expr]]) -> bool:
    """Whether all tests are where vectors end."""
    ended = [condition.ended() for condition, _ in tests]
    return all(loop is not None and loop.kind == VECTORIZED for loop in ended)


def _line(value: Expr, var: Var) -> tuple[int, int]:
    """``factor, rest`` such that a value is ``factor * var + rest``; zeros if it isn't."""
    linear = linear_coefficients(value, [var])
    factor, rest = (None, None) if linear is None else map(as_int, linear)
    return (0, 0) if factor is None or rest is None else (factor, rest)


def _narrowed(ends: tuple[int, int], factor: int, rest: int) -> tuple[int, int]:
    """The part between two ends where ``factor * var + rest >= 0``."""
    start, stop = ends
    if factor < 0:
        return start, min(stop, rest // -factor + 1)
    return max(start, -(rest // factor)), stop


def _conditions(loop: For, sizes: set[Var]) -> list[_Condition]:
    """Comparisons in branches below a loop that depend on its variable.

    Those that choose between values (masks) count if they compare with one of ``sizes``: with a
    constant they cost less than code without them, unless the loop says otherwise. What uses names
    that the loop's body gives to values means nothing before these.
    """
    found: list[_Condition] = []
    loops: list[For] = []
    every = is_flagged(loop.annotations, CUT_MASKS)

    def note(condition: Expr, masks: bool) -> None:
        for part in conjuncts(condition):
            slack = slack_of(part)
            if slack is None or not uses_var(slack, {loop.loop_var}):
                continue
            if not masks or every or uses_var(slack, sizes):
                found.append(_Condition(part, slack, loops))

    def walk(node: Stmt) -> None:
        if isinstance(node, For):
            loops.append(node)
            walk(node.body)
            loops.pop()
            return
        if isinstance(node, IfThenElse):
            note(node.condition, False)
        for item in node.child_nodes():
            if isinstance(item, Stmt):
                walk(item)
            elif (sizes or every) and not (isinstance(node, IfThenElse) and item is node.condition):
                for call in collect(item, Call):
                    if _is_mask(call):
                        note(call.args[0], True)

    walk(loop.body)
    named = _names_in(loop.body) if found else set()
    return [condition for condition in found if not uses_var(condition.slack, named)]


def _names_in(body: Stmt) -> set[Any]:
    """What a statement gives names to, loop variables aside."""
    return {
        symbol
        for item in pre_order(body)
        if type(item) is not For and definition_fields(type(item))
        for symbol in defined_symbols(item)
    }


def _is_mask(node: Node) -> bool:
    return type(node) is Call and node.op.name == "if_then_else"


def slack_of(condition: Any) -> Expr | None:
    """The expression that is at least zero exactly where a comparison holds."""
    kind = type(condition)
    if kind not in (LT, LE, GT, GE) or condition.a.dtype != "int64":
        return None
    if dtypes.lanes_of(condition.dtype) > 1:
        return None
    if any(isinstance(item, BufferLoad) for item in pre_order(condition)):
        return None
    if kind is LT:
        return condition.b - condition.a - 1  # type: ignore[no-any-return]
    if kind is LE:
        return condition.b - condition.a  # type: ignore[no-any-return]
    if kind is GT:
        return condition.a - condition.b - 1  # type: ignore[no-any-return]
    return condition.a - condition.b  # type: ignore[no-any-return]


def _without(body: Stmt, tests: list[tuple[_Condition, Expr]], masks: bool) -> Stmt:
    """Drop branches that don't run where the tests fail: those that all of the tests guard.

    Likewise values of ``masks``.

    The tests are the conditions themselves if no loop between changes these.
    """
    if any(uses_var(condition.slack, {v}) for condition, _ in tests for v in condition.domain):
        return body
    tested = [condition.expr for condition, _ in tests]

    def guarded(condition: Expr) -> bool:
        parts = conjuncts(condition)
        return all(any(expr_equal(part, test) for part in parts) for test in tested)

    def rewrite(node: Any) -> Any:
        if masks and _is_mask(node) and guarded(node.args[0]):
            return rewrite_top_down(node.args[2], rewrite)
        if type(node) is IfThenElse and guarded(node.condition):
            other = NO_OP if node.else_case is None else node.else_case
            return rewrite_top_down(other, rewrite)
        return None if masks or (isinstance(node, Stmt) and _has_branch(node)) else node

    made: Stmt = rewrite_top_down(body, rewrite)
    return made


def _assume(body: Stmt, known: set[int], masks: bool) -> Stmt:
    """Replace conditions (by identity) by true."""
    return _replaced(body, dict.fromkeys(known, TRUE), masks)


def _replaced(body: Stmt, known: Mapping[int, Expr], masks: bool) -> Stmt:
    """Replace conditions of branches (by identity), and of ``masks``."""

    def decided(node: Any) -> Any:
        if id(node) in known:
            return known[id(node)]
        if type(node) is And:
            return and_(rewrite_top_down(node.a, decided), rewrite_top_down(node.b, decided))
        return None

    def rewrite(node: Any) -> Any:
        if type(node) is IfThenElse:
            condition = rewrite_top_down(node.condition, decided)
            then_case = rewrite_top_down(node.then_case, rewrite)
            if isinstance(condition, IntImm) and condition.value:
                return then_case
            other = node.else_case
            if other is not None:
                other = rewrite_top_down(other, rewrite)
            return IfThenElse(condition, then_case, other)
        if masks and _is_mask(node):
            condition, value, other = (
                rewrite_top_down(node.args[0], decided),
                *(rewrite_top_down(item, rewrite) for item in node.args[1:]),
            )
            whole = isinstance(condition, IntImm) and condition.value
            return value if whole else if_then_else(condition, value, other)
        return None if masks or (isinstance(node, Stmt) and _has_branch(node)) else node

    made: Stmt = rewrite_top_down(body, rewrite)
    return made
