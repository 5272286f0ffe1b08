"""When may loop iterations be reordered, or run at the same time?

The reasoning is per block, from the regions that blocks declare (see ``analysis.block_kind``):

- Instances of a complete block may run in any order and even twice: each element gets one value.
- Instances of a reduction may be reordered if they are all different (the bindings are injective),
  and their updates commute or those of each element keep their order (``instance_order``).
- What a block reads from another block below the same loop must be written in the same iteration of
  the loop (its reads are covered). Otherwise the iterations depend on each other.
- Running at the same time also needs that no two iterations update the same element: the loop must
  drive spatial iteration variables injectively, unless the buffer is used only below this loop, so
  that every iteration has its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.arith import simplify
from tilewright.ir import (
    Add,
    Expr,
    IntImm,
    Mul,
    Var,
    as_int,
    const,
    expr_equal,
    free_vars,
    is_const,
    pre_order,
    substitute,
    uses_var,
)
from tilewright.tir import (
    OPAQUE,
    REDUCE,
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    BufferLoad,
    BufferRegion,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    Stmt,
    While,
    is_no_op,
)
from tilewright.tir.analysis import (
    COMPLETE,
    REDUCTION,
    UPDATE,
    block_dependencies,
    block_facts,
    is_injective_binding,
    linear_terms,
)
from tilewright.tir.analysis.dependency import (
    RAW,
    WAR,
    WAW,
    Dependency,
    DependencyGraph,
    shared_memory,
)
from tilewright.tir.analysis.footprint import loop_ranges
from tilewright.tir.analysis.update_order import feeds_reduction, threads_combine
from tilewright.tir.schedule.instance_order import check_order_kept
from tilewright.tir.schedule.iterations import apart, covers, guards_domain, rewrites_all
from tilewright.tir.schedule.state import trivially_true
from tilewright.tir.walk import child_blocks, scope_statements

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule
    from tilewright.tir.schedule.state import ScheduleState


def check_only_blocks(
    sch: Schedule, body: Stmt, what: str, written: Iterable[BufferRegion] = ()
) -> None:
    """Refuse statements outside blocks, about which nothing is known.

    Conditions, bounds and bindings outside blocks may read buffers, but none that blocks below
    write (or that is among ``written``).
    """
    blocks = child_blocks(body)
    check_one_name(sch, blocks, what)
    loads: dict[Var, Any] = {}
    for stmt in scope_statements(body):
        kind = type(stmt)
        if kind in (BufferStore, While, AssertStmt) or (kind is Evaluate and not is_no_op(stmt)):
            raise sch.error(
                f"a statement outside blocks is below the loop, so {what} can't be shown to be "
                "safe",
                stmt,
                remedy="wrap it into a block",
            )
        for expr in _outside_blocks(stmt):
            if type(expr) is not Var and type(expr) is not IntImm:
                for node in pre_order(expr):
                    if type(node) is BufferLoad:
                        loads[node.buffer.data] = stmt
    if loads:
        here = (region for realize in blocks for region in realize.block.writes)
        for region in (*written, *here):
            if region.buffer.data in loads:
                raise sch.error(
                    f"{region.buffer.name!r} decides what runs below the loop and is changed "
                    f"there, so {what} can't be shown to be safe",
                    loads[region.buffer.data],
                )


def check_one_name(sch: Schedule, blocks: Sequence[BlockRealize], what: str) -> None:
    """Refuse if blocks of a scope use memory that they change under several names.

    Their declared regions are about each name's elements, not about the shared memory.
    """
    if not blocks:
        return
    around = [item for item in sch.state.parents(blocks[0]) if type(item) is Block]
    for buffer, (other, user) in shared_memory(blocks, reversed(around)).items():
        raise sch.error(
            f"{buffer.name!r} and {other.name!r} are names of the same memory, so {what} can't be "
            "shown to be safe",
            user,
            remedy="use one name for the memory",
        )


def _outside_blocks(stmt: Any) -> Sequence[Expr]:
    """Return the expressions of a statement that no block contains."""
    kind = type(stmt)
    if kind is For:
        return (stmt.min, stmt.extent)
    if kind is BlockRealize:
        return (*stmt.iter_values, stmt.predicate)
    if kind is IfThenElse:
        return (stmt.condition,)
    return (stmt.value,) if kind in (LetStmt, AttrStmt) else ()


def _injective(state: ScheduleState, realize: BlockRealize, loops: list[For]) -> bool:
    return is_injective_binding(
        realize.iter_values,
        loop_ranges(loops),
        realize.predicate,
        analyzer=lambda: state.analyzer_of_instances(realize),
    )


def _refuse_opaque(sch: Schedule, realize: BlockRealize, what: str) -> None:
    facts = block_facts(realize.block)
    if facts.kind == OPAQUE:
        raise sch.error(
            f"block {realize.block.name!r} is neither complete nor a reduction: {facts.reason}; "
            f"so {what} could change the result",
            realize,
        )


# ---- other order ------------------------------------------------------------------------------


def check_reorder(sch: Schedule, chain: list[For], made: list[For]) -> None:
    """Refuse a reordering of a chain of loops if it changes what blocks below compute."""
    first = next(n for n, (old, new) in enumerate(zip(chain, made)) if old is not new)
    moved = chain[first:]
    moved_vars = {loop.loop_var for loop in moved}
    body = chain[-1].body
    what = "another order of the loops"
    check_only_blocks(sch, body, what)
    blocks = child_blocks(body)
    for realize in blocks:
        _refuse_opaque(sch, realize, what)
        if not feeds_reduction(realize, moved_vars):
            continue
        # Loops further out keep their order, so instances of different iterations of these do.
        loops = sch.state.loops_above(realize)
        if not _injective(sch.state, realize, loops[loops.index(moved[0]) :]):
            raise sch.error(
                f"the bindings of reduction block {realize.block.name!r} are not shown to be "
                "injective, so the order of its instances matters",
                realize,
            )
        check_order_kept(sch, realize, moved, made[first:], what)
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
        check_independent_iterations(sch, moved, blocks, what)


def _check_init_first(sch: Schedule, realize: BlockRealize, made: list[For]) -> None:
    """Refuse if the instance with ``init`` may run after others of the same element.

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


def _dependencies(state: ScheduleState, loop: For, blocks: list[BlockRealize]) -> DependencyGraph:
    """The dependencies between the blocks of a scope; in an init, those below the loop only."""
    scope = state.scope_block(loop)
    graph = block_dependencies(scope)
    if all(realize.block.name in graph.children for realize in blocks):
        return graph
    return DependencyGraph(blocks, scope)


def check_independent_iterations(
    sch: Schedule,
    loops: Sequence[For],
    blocks: list[BlockRealize],
    what: str,
    repeated: bool = False,
) -> None:
    """Refuse if an iteration of the nest ``loops`` may use or overwrite another's results.

    If iterations may be ``repeated``, that other iteration may be the same one, run before.
    """
    loop = loops[-1]
    graph = _dependencies(sch.state, loop, blocks)
    below = {realize.block.name: realize for realize in blocks}
    for opaque in graph.opaque:
        if opaque.source in below and opaque.target in below:
            raise sch.error(
                f"block {opaque.target!r} must stay after block {opaque.source!r} in each "
                f"iteration of loop {loop.loop_var.name!r}: {opaque.reason}; {what} could change "
                "the result",
                below[opaque.target],
            )
    for name, realize in below.items():
        for edge in graph.before(name):
            source = below.get(edge.source)
            if source is None or _stays_inside(sch.state, graph, edge, below, loops, repeated):
                continue
            if edge.kind == RAW:
                raise sch.error(
                    f"block {name!r} may read elements of {edge.buffer.name!r} that block "
                    f"{edge.source!r} makes in another iteration of loop "
                    f"{loop.loop_var.name!r}; {what} could change the result",
                    realize,
                    remedy="move the producer out, or compute inside all that is needed",
                )
            uses = "reads" if edge.kind == WAR else "writes"
            raise sch.error(
                f"block {name!r} overwrites {edge.buffer.name!r}, which block "
                f"{edge.source!r} {uses} below the same loop; {what} could change that",
                realize,
            )


def _stays_inside(
    state: ScheduleState,
    graph: DependencyGraph,
    edge: Dependency,
    below: Mapping[str, BlockRealize],
    loops: Sequence[For],
    repeated: bool = False,
) -> bool:
    """Whether a dependency between two blocks below ``loops`` stays within each iteration.

    If iterations may be ``repeated``, an iteration must not see what its first run wrote.
    """
    source, target, buffer, loop = below[edge.source], below[edge.target], edge.buffer, loops[-1]
    made_here = edge.kind == RAW and covers(state, source, target, buffer, loop)
    if edge.kind == WAR:
        # What is overwritten was made in the same iteration too: an init and its update.
        made_here = any(
            e.kind == RAW
            and e.buffer is buffer
            and e.source in below
            and covers(state, below[e.source], source, buffer, loop)
            for e in graph.before(edge.source)
        )
    elif edge.kind == WAW:
        # An init and its update: each iteration starts afresh.
        made_here = (
            any(
                e.kind == RAW and e.buffer is buffer and e.source == edge.source
                for e in graph.before(edge.target)
            )
            and covers(state, source, target, buffer, loop)
            and rewrites_all(state, source, target, buffer, loop)
        )
    if made_here:
        return True
    if repeated and edge.kind == WAR:
        return False
    first = source.block.reads if edge.kind == WAR else source.block.writes
    second = target.block.reads if edge.kind == RAW else target.block.writes
    return apart(state, (source, first, loops), (target, second, loops), buffer)


# ---- at the same time -------------------------------------------------------------------------


def check_simultaneous(sch: Schedule, loop: For, what: str, cooperative: bool = False) -> None:
    """Refuse a loop whose iterations can't run at the same time.

    ``cooperative`` loops (threads of one block) may also split a reduction by a registered reducer:
    they combine their results.
    """
    if is_const(loop.extent, 1):
        return
    state = sch.state
    scope = state.scope_block(loop)
    check_only_blocks(sch, loop.body, what)
    blocks = child_blocks(loop.body)
    graph = _dependencies(state, loop, blocks)
    below = {realize.block.name for realize in blocks}
    variable = {loop.loop_var}
    for realize in blocks:
        _refuse_opaque(sch, realize, what)
        block = realize.block
        if feeds_reduction(realize, variable):
            if cooperative and block_facts(block).kind == REDUCTION:
                if not _begins_with_init(state, realize):
                    raise sch.error(
                        f"the reduction of block {block.name!r} does not begin with the instance "
                        f"that runs init; {what} would combine all of it",
                        realize,
                    )
                if threads_combine(block):
                    continue
                raise sch.error(
                    f"block {block.name!r} is no reduction by a registered reducer, so threads "
                    "can't combine their results",
                    realize,
                    remedy="register its reducer, or choose a spatial loop",
                )
            raise sch.error(
                f"loop {loop.loop_var.name!r} feeds a reduce iteration variable of block "
                f"{block.name!r}; {what} would let iterations update one element at once",
                realize,
                remedy="choose a spatial loop, or make partial results by rfactor",
            )
        kind = block_facts(block).kind
        sole = all(
            below.intersection(graph.writers.get(region.buffer, ())) == {block.name}
            for region in block.writes
        )
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
        check_independent_iterations(sch, [loop], blocks, what)


# ---- once more --------------------------------------------------------------------------------


def check_repeatable(sch: Schedule, loop: For, what: str) -> None:
    """Refuse a loop whose iterations can't run again after others have run.

    An iteration that runs again must leave the same values as the first time.
    """
    state = sch.state
    check_only_blocks(sch, loop.body, what)
    blocks = child_blocks(loop.body)
    graph = _dependencies(state, loop, blocks)
    below = {realize.block.name: realize for realize in blocks}
    outside = {loop.loop_var, *(item.loop_var for item in state.loops_above(loop))}
    for realize in blocks:
        _refuse_opaque(sch, realize, what)
        block = realize.block
        kind = block_facts(block).kind
        if feeds_reduction(realize, {loop.loop_var} if kind == UPDATE else outside):
            raise sch.error(
                f"loop {loop.loop_var.name!r} or a loop around it feeds a reduce iteration "
                f"variable of block {block.name!r}; {what} would add to it more than once",
                realize,
                remedy="choose a spatial loop, and reorder reduce loops to inside of it",
            )
        if kind == REDUCTION and not starts_afresh(state, realize):
            raise sch.error(
                f"it is not shown that each iteration initialises what block {block.name!r} "
                f"reduces; {what} would add to it more than once",
                realize,
            )
        if kind == UPDATE and not all(
            any(
                edge.kind == RAW
                and edge.buffer is region.buffer
                and edge.source in below
                and covers(state, below[edge.source], realize, region.buffer, loop)
                for edge in graph.before(block.name)
            )
            for region in block.writes
        ):
            raise sch.error(
                f"block {block.name!r} updates what was there before; {what} would do that twice",
                realize,
            )
    if len(blocks) > 1:
        check_independent_iterations(sch, [loop], blocks, what, repeated=True)


def starts_afresh(state: ScheduleState, realize: BlockRealize) -> bool:
    """Whether the loops of a reduction begin with the instance that has ``init``."""
    if not trivially_true(realize.predicate) and not guards_domain(state, realize):
        return False
    return _begins_with_init(state, realize)


def _begins_with_init(state: ScheduleState, realize: BlockRealize) -> bool:
    first = {loop.loop_var: loop.min for loop in state.loops_above(realize)}
    for iter_var, value in zip(realize.block.iter_vars, realize.iter_values):
        if iter_var.kind == REDUCE:
            start = simplify(substitute(value, first))
            if not (
                expr_equal(start, iter_var.dom.min) or as_int(start) == as_int(iter_var.dom.min)
            ):
                return False
    return True
