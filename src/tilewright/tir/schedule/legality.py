"""When may the iterations of loops change their order, or run at the same time?

The reasoning is by block, from what blocks declare (see ``analysis.block_kind``):

- Instances of a complete block may run in any order and even twice: an element has one value.
- Instances of a reduction may be reordered if they are all different (the bindings are injective).
- A block that uses what another block below the same loop makes must find all of it made in the
  same iteration of the loop (its reads are covered). Otherwise the iterations depend on each other.
- Running at the same time also needs that no two iterations update the same element: the loop must
  choose spatial iteration variables injectively, unless the buffer is used below this loop only, so
  that every iteration has one of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.arith import Analyzer, detect_iter_map, simplify
from tilewright.ir import (
    LT,
    TRUE,
    Add,
    And,
    Expr,
    IntImm,
    Mul,
    Range,
    Var,
    add,
    as_int,
    const,
    expr_equal,
    free_vars,
    is_const,
    maximum,
    minimum,
    substitute,
    uses_var,
)
from tilewright.tir import (
    OPAQUE,
    REDUCE,
    Block,
    BlockRealize,
    Buffer,
    BufferRegion,
    BufferStore,
    Evaluate,
    For,
    While,
    is_no_op,
)
from tilewright.tir.analysis import (
    COMPLETE,
    REDUCTION,
    block_dependencies,
    block_facts,
    is_injective_binding,
    linear_terms,
)
from tilewright.tir.analysis.dependency import RAW, WAR
from tilewright.tir.analysis.regions import relax
from tilewright.tir.schedule.state import child_blocks, statements, trivially_true

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule
    from tilewright.tir.schedule.state import ScheduleState


def check_only_blocks(sch: Schedule, body: Any, what: str) -> None:
    """Refuse statements outside blocks, about which nothing is known."""
    for stmt in statements(body):
        if isinstance(stmt, (BufferStore, While)) or (
            type(stmt) is Evaluate and not is_no_op(stmt)
        ):
            raise sch.error(
                f"a statement outside blocks is below the loop, so {what} can't be shown to be "
                "safe",
                stmt,
                remedy="wrap it into a block",
            )


def _loop_ranges(loops: list[For]) -> dict[Var, Range]:
    return {loop.loop_var: Range(loop.min, loop.extent) for loop in loops}


def _injective(state: ScheduleState, realize: BlockRealize, loops: list[For]) -> bool:
    return is_injective_binding(
        realize.iter_values,
        _loop_ranges(loops),
        realize.predicate,
        analyzer=lambda: state.analyzer(state.func_name_of(realize)),
    )


def _refuse_opaque(sch: Schedule, realize: BlockRealize, what: str) -> None:
    facts = block_facts(realize.block)
    if facts.kind == OPAQUE:
        raise sch.error(
            f"block {realize.block.name!r} is neither complete nor a reduction: {facts.reason}; "
            f"so {what} could change the result",
            realize,
        )


def _feeds_reduction(realize: BlockRealize, variables: set[Var]) -> bool:
    return any(
        iter_var.kind == REDUCE and type(value) is not IntImm and uses_var(value, variables)
        for iter_var, value in zip(realize.block.iter_vars, realize.iter_values)
    )


# ---- other order ------------------------------------------------------------------------------


def check_reorder(sch: Schedule, chain: list[For], made: list[For]) -> None:
    """Refuse another order of a chain of loops if that changes what blocks below compute."""
    first = next(n for n, (old, new) in enumerate(zip(chain, made)) if old is not new)
    moved = chain[first:]
    moved_vars = {loop.loop_var for loop in moved}
    body = chain[-1].body
    what = "another order of the loops"
    check_only_blocks(sch, body, what)
    blocks = child_blocks(body)
    for realize in blocks:
        _refuse_opaque(sch, realize, what)
        if not _feeds_reduction(realize, moved_vars):
            continue
        loops = sch.state.loops_above(realize)
        if not _injective(sch.state, realize, loops):
            raise sch.error(
                f"the bindings of reduction block {realize.block.name!r} are not shown to be "
                "injective, so the order of its instances matters",
                realize,
            )
        if block_facts(realize.block).kind == REDUCTION:
            _check_init_first(sch, realize, made)
            used = {var for value in realize.iter_values for var in free_vars(value)}
            for loop in moved:
                if loop.loop_var not in used and not is_const(loop.extent, 1):
                    raise sch.error(
                        f"reduction block {realize.block.name!r} is repeated by loop "
                        f"{loop.loop_var.name!r}, which its bindings don't use",
                        loop,
                    )
        for other in blocks:
            if other is not realize and _share(realize.block, other.block):
                raise sch.error(
                    f"block {other.block.name!r} shares a buffer with reduction block "
                    f"{realize.block.name!r}, whose reduction runs over the loops to reorder",
                    other,
                    remedy="decompose or move the blocks apart first",
                )
    if len(blocks) > 1:
        check_independent_iterations(sch, chain[-1], blocks, what)


def _check_init_first(sch: Schedule, realize: BlockRealize, made: list[For]) -> None:
    """Refuse if an instance with ``init`` may come after others of the same element.

    The instance with all reduce iteration variables at their start is the first one of an element
    in any order of the loops, if these variables have loops of their own and start where those do.
    If loops feed spatial and reduce variables at once, their order must stay.
    """
    spatial: set[Var] = set()
    reduce: dict[Var, None] = {}
    for iter_var, value in zip(realize.block.iter_vars, realize.iter_values):
        if iter_var.kind != REDUCE:
            spatial.update(free_vars(value))
            continue
        used = free_vars(value)
        reduce.update(dict.fromkeys(used))
        start: Expr = const(0, value.dtype)
        if not _is_zero_at_start(value, set(used)):
            start = simplify(substitute(value, {var: const(0, var.dtype) for var in used}))
        linear = linear_terms(value)
        if not (
            expr_equal(start, iter_var.dom.min) or as_int(start) == as_int(iter_var.dom.min)
        ) or (linear is not None and any(factor < 0 for factor in linear[0].values())):
            raise sch.error(
                f"the reduction of block {realize.block.name!r} over {iter_var.var.name!r} does "
                "not start where its loops start, so its order matters",
                realize,
            )
    if any(var in spatial for var in reduce):
        involved = [loop.loop_var for loop in made if loop.loop_var in reduce]
        above = [loop.loop_var for loop in sch.state.loops_above(realize)]
        if involved != [var for var in above if var in reduce and var in involved]:
            raise sch.error(
                f"loops feed spatial and reduce iteration variables of block "
                f"{realize.block.name!r} at once; init would not come first in another order",
                realize,
                remedy="don't fuse spatial with reduce loops",
            )


def _is_zero_at_start(value: Any, variables: set[Var]) -> bool:
    """Whether a sum of products is evidently zero where all ``variables`` are zero."""
    kind = type(value)
    if kind is Var:
        return value in variables
    if kind is Add:
        return _is_zero_at_start(value.a, variables) and _is_zero_at_start(value.b, variables)
    if kind is Mul:
        return _is_zero_at_start(value.a, variables) or _is_zero_at_start(value.b, variables)
    return kind is IntImm and value.value == 0


def _share(a: Block, b: Block) -> bool:
    written = {region.buffer for region in a.writes}
    used = {region.buffer for region in (*b.reads, *b.writes)}
    other_written = {region.buffer for region in b.writes}
    return bool(written & used) or any(region.buffer in other_written for region in a.reads)


def check_independent_iterations(
    sch: Schedule, loop: For, blocks: list[BlockRealize], what: str
) -> None:
    """Refuse if an iteration of ``loop`` may use what another iteration made."""
    scope = sch.state.scope_block(loop)
    graph = block_dependencies(scope)
    below = {realize.block.name: realize for realize in blocks}
    for name, realize in below.items():
        for edge in graph.before(name):
            if edge.source not in below:
                continue
            source = below[edge.source]
            if edge.kind == WAR:
                if len(graph.writers[edge.buffer]) == 1 or not _raw_between(graph, edge):
                    raise sch.error(
                        f"block {name!r} overwrites {edge.buffer.name!r}, which block "
                        f"{edge.source!r} reads below the same loop; {what} could change that",
                        realize,
                    )
            elif edge.kind == RAW and not covers(sch.state, source, realize, edge.buffer, loop):
                raise sch.error(
                    f"block {name!r} may read elements of {edge.buffer.name!r} that block "
                    f"{edge.source!r} makes in another iteration of loop "
                    f"{loop.loop_var.name!r}; {what} could change the result",
                    realize,
                    remedy="move the producer out, or compute inside all that is needed",
                )


def _raw_between(graph: Any, edge: Any) -> bool:
    """Whether the overwritten value was made before in this scope (an init and its update)."""
    return any(e.kind == RAW and e.buffer is edge.buffer for e in graph.before(edge.source))


def _guards_domain(state: ScheduleState, realize: BlockRealize) -> bool:
    """Whether a predicate only keeps iteration values inside their domains."""
    parts, stack = [], [realize.predicate]
    while stack:
        item: Any = stack.pop()
        if type(item) is And:
            stack += [item.a, item.b]
        else:
            parts.append(item)
    pairs = list(zip(realize.block.iter_vars, realize.iter_values))
    known: Analyzer | None = None
    for part in parts:
        if type(part) is not LT:
            return False
        if any(
            expr_equal(part.a, value)
            and (
                part.b is iter_var.dom.extent
                or expr_equal(part.b, iter_var.dom.extent)
                or as_int(part.b) == as_int(iter_var.dom.extent) is not None
            )
            for iter_var, value in pairs
        ):
            continue
        if known is None:
            known = state.analyzer_at(realize)
        room = part.b - part.a
        if not any(
            known.can_prove_ge(room - (item.dom.min + item.dom.extent - value), 0)
            for item, value in pairs
        ):
            return False
    return True


def _covers_buffer(realize: BlockRealize, buffer: Buffer) -> bool:
    """Whether the whole domain of a block writes its whole buffer, one element per instance."""
    domains = {item.var: item.dom for item in realize.block.iter_vars}
    for region in realize.block.writes:
        if region.buffer is buffer:
            return all(
                type(item.min) is Var
                and item.min in domains
                and is_const(item.extent, 1)
                and expr_equal(domains[item.min].extent, extent)
                for item, extent in zip(region.region, buffer.shape)
            )
    return False


def _loops_between(state: ScheduleState, stmt: Any, above: For) -> list[For]:
    loops = state.loops_above(stmt)
    return loops[loops.index(above) + 1 :]


class _InnerTerms:
    """A value as ``rest + sum(factor * loop)`` over the loops inside, with constant factors."""

    __slots__ = ("rest", "terms")

    def __init__(self, value: Expr, inner: dict[Var, For]) -> None:
        self.terms: list[tuple[int, int]] | None = []
        rest: list[Expr] = []
        stack: list[Any] = [value]
        while stack:
            item = stack.pop()
            if type(item) is Add:
                stack += [item.b, item.a]
                continue
            factor = 1
            var = item
            if type(item) is Mul and type(item.b) is IntImm:
                var, factor = item.a, item.b.value
            loop = inner.get(var) if type(var) is Var else None
            if loop is None:
                if not isinstance(item, (Var, IntImm)) and uses_var(item, inner):
                    self.terms = None
                    return
                rest.append(item)
            elif type(loop.extent) is IntImm and is_const(loop.min, 0) and factor > 0:
                self.terms.append((factor, loop.extent.value))
            else:
                self.terms = None
                return
        total: Expr = const(0)
        for item in rest:
            total = add(total, item)
        self.rest = total

    def dense(self) -> bool:
        """Whether the loops give all integers from 0 to the greatest."""
        reach = 1
        for factor, extent in sorted(self.terms or ()):
            if factor > reach:
                return False
            reach += factor * (extent - 1)
        return True

    def span(self) -> int:
        """How many integers there are from the least to the greatest."""
        return 1 + sum(factor * (extent - 1) for factor, extent in self.terms or ())


def _region_below(
    ranges: tuple[Range, ...],
    realize: BlockRealize,
    loops: list[For],
    buffer: Buffer,
    guard: Expr,
    analyzer: Callable[[], Analyzer],
) -> list[Range]:
    """A block's region in terms of the loops above ``loops``."""
    mapping = {
        iter_var.var: value for iter_var, value in zip(realize.block.iter_vars, realize.iter_values)
    }
    made = [Range(substitute(r.min, mapping), substitute(r.extent, mapping)) for r in ranges]
    if not loops:
        return made
    inner = {loop.loop_var: loop for loop in loops}
    quick = []
    for item in made:
        terms = _InnerTerms(item.min, inner)
        if terms.terms is None or type(item.extent) is not IntImm:
            return relax(made, _loop_ranges(loops), guard, buffer, analyzer())
        quick.append(Range(terms.rest, const(terms.span() + item.extent.value - 1)))
    return quick


def _writes_densely(region: BufferRegion) -> bool:
    """Whether a dense box of instances writes a dense box of elements."""
    seen: set[Var] = set()
    for item in region.region:
        used = free_vars(item.min)
        if not used:
            continue
        low: Any = item.min
        stride: Expr = const(1)
        if type(low) is Add and not free_vars(low.b):
            low = low.a
        if type(low) is Mul:
            low, stride = low.a, low.b
        if type(low) is not Var or low in seen or not expr_equal(stride, item.extent):
            return False
        seen.add(low)
    return True


def covers(
    state: ScheduleState, source: BlockRealize, target: BlockRealize, buffer: Buffer, loop: For
) -> bool:
    """Whether each iteration of ``loop`` makes all of ``buffer`` that it uses.

    That is: ``source`` writes, in the same iteration, whatever ``target`` reads.
    """
    if not trivially_true(source.predicate) and not (
        _guards_domain(state, source) and _covers_buffer(source, buffer)
    ):
        return False
    regions = [region for region in source.block.writes if region.buffer is buffer]
    if len(regions) != 1 or not _writes_densely(regions[0]):
        return False
    made: list[Analyzer] = []

    def analyzer() -> Analyzer:
        if not made:
            made.append(state.analyzer_at(loop))
            made[0].bind(loop.loop_var, Range(loop.min, loop.extent))
        return made[0]

    source_loops = _loops_between(state, source, loop)
    target_loops = _loops_between(state, target, loop)
    if not fills_box(source.iter_values, source_loops, analyzer):
        return False
    written = _region_below(regions[0].region, source, source_loops, buffer, TRUE, analyzer)
    return all(
        _inside(
            _region_below(r.region, target, target_loops, buffer, target.predicate, analyzer),
            written,
            buffer,
            analyzer,
        )
        for r in target.block.reads
        if r.buffer is buffer
    )


def fills_box(values: Sequence[Expr], loops: list[For], analyzer: Callable[[], Analyzer]) -> bool:
    """Whether the values that the loops give fill a box without holes."""
    inner = {loop.loop_var: loop for loop in loops}
    taken: set[Var] = set()
    for value in values:
        here = {var for var in free_vars(value) if var in inner}
        if here & taken:
            return False  # A loop in two values runs along a diagonal.
        taken |= here
        if not here:
            continue
        terms = _InnerTerms(value, inner)
        if terms.terms is not None:
            if not terms.dense():
                return False
            continue
        sizes = {var for loop in loops for var in free_vars(loop.extent)}
        outside = {
            var: const(0) for var in free_vars(value) if var not in inner and var not in sizes
        }
        found = detect_iter_map(
            [substitute(value, outside)],
            _loop_ranges([inner[var] for var in here]),
            TRUE,
            require_bijective=True,
            analyzer=analyzer(),
        )
        if found.errors:
            return False
    return True


def _inside(
    box: list[Range], around: list[Range], buffer: Buffer, analyzer: Callable[[], Analyzer]
) -> bool:
    for inner, outer, extent in zip(box, around, buffer.shape):
        if expr_equal(inner.min, outer.min) and expr_equal(inner.extent, outer.extent):
            continue
        known = analyzer()
        low, high = inner.min, add(inner.min, inner.extent)
        outer_high = add(outer.min, outer.extent)
        if not (known.can_prove(low >= outer.min) or known.can_prove(maximum(low, 0) >= outer.min)):
            return False
        if not (
            known.can_prove(high <= outer_high)
            or known.can_prove(minimum(high, extent) <= outer_high)
        ):
            return False
    return True


# ---- at the same time -------------------------------------------------------------------------


def check_simultaneous(sch: Schedule, loop: For, what: str, cooperative: bool = False) -> None:
    """Refuse a loop whose iterations can't run at the same time.

    ``cooperative`` loops (threads of one block) may also split a reduction: they combine their
    results.
    """
    if is_const(loop.extent, 1):
        return
    state = sch.state
    scope = state.scope_block(loop)
    check_only_blocks(sch, loop.body, what)
    blocks = child_blocks(loop.body)
    graph = block_dependencies(scope)
    below = {realize.block.name for realize in blocks}
    variable = {loop.loop_var}
    for realize in blocks:
        _refuse_opaque(sch, realize, what)
        block = realize.block
        if _feeds_reduction(realize, variable):
            if cooperative and block_facts(block).kind == REDUCTION:
                continue
            raise sch.error(
                f"loop {loop.loop_var.name!r} feeds a reduce iteration variable of block "
                f"{block.name!r}; {what} would let iterations update one element at once",
                realize,
                remedy="choose a spatial loop, or make partial results by rfactor",
            )
        kind = block_facts(block).kind
        sole = all(graph.writers.get(region.buffer) == [block.name] for region in block.writes)
        if kind == COMPLETE and sole:
            continue
        if any(uses_var(value, variable) for value in realize.iter_values) and _injective(
            state, realize, state.loops_above(realize)
        ):
            continue
        for region in block.writes:
            users = {*graph.writers.get(region.buffer, ()), *graph.readers.get(region.buffer, ())}
            if region.buffer not in scope.alloc_buffers or not users <= below:
                raise sch.error(
                    f"iterations of loop {loop.loop_var.name!r} may update the same elements of "
                    f"{region.buffer.name!r} in block {block.name!r}; {what} would be a race",
                    realize,
                )
    if len(blocks) > 1:
        check_independent_iterations(sch, loop, blocks, what)
