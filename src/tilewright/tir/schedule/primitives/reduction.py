"""Reductions: separating the initialisation.

``decompose_reduction`` puts a block that only initialises before a loop, so that the block inside
the loop only updates. ``rfactor`` shares its checks on the loops of a reduction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from tilewright.arith import Analyzer, conjuncts
from tilewright.ir import (
    Add,
    Expr,
    IntImm,
    Mul,
    Range,
    Var,
    and_,
    as_int,
    expr_equal,
    free_vars,
    pre_order,
    substitute,
    uses_var,
)
from tilewright.tir import (
    REDUCE,
    THREAD_BINDING,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    SeqStmt,
    Stmt,
    renew_definitions,
    seq,
)
from tilewright.tir.analysis import block_access_regions
from tilewright.tir.analysis.block_kind import is_injective_binding
from tilewright.tir.analysis.regions import same_box, union_box
from tilewright.tir.schedule.handles import BlockRV, LoopRV
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.schedule.legality import check_only_blocks, covers
from tilewright.tir.schedule.primitives._block_checks import check_initialised_together
from tilewright.tir.schedule.primitives._regions import Regions
from tilewright.tir.schedule.primitives._scope import regions_buffers
from tilewright.tir.schedule.state import ScheduleState
from tilewright.tir.walk import child_blocks, loads_of

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule

# ---- decompose_reduction ------------------------------------------------------------------------


@primitive
def decompose_reduction(sch: Schedule, block: BlockRV, loop: LoopRV) -> BlockRV:
    """Split a reduction into a block that initialises, before ``loop``, and one that updates.

    Returns the initialising block; ``block`` is the updating one from then on. Reductions of tuples
    are initialised and updated as a whole.

    Preconditions:
        - the block has an init
        - ``loop`` is around the block, in the same scope
        - between ``loop`` and the block there are only loops, and below ``loop`` only blocks
        - no loop of the reduction is bound to threads, which would no longer combine their results
        - no loop of the reduction is outside ``loop``
        - no loop serves both spatial and reduction axes of the block
        - where several instances are initialised together, none reads or writes elements of another
        - the reduction axes start where their loops start, so that the init runs there
        - the loops inside visit each element of the block's domain at most once
        - other blocks below the loop don't write what the init reads or writes, and use what the
          block writes only after it, in the same iteration
    Before:
        for i, k in T.grid(128, 64):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[vi, vk]
    After ``decompose_reduction("C", i)``:
        for i in T.serial(128):
            with T.block("C_init"):
                vi = T.axis.spatial(128, i)
                C[vi] = T.float32(0)
        for i, k in T.grid(128, 64):
            with T.block("C_update"):
                vi, vk = T.axis.remap("SR", [i, k])
                C[vi] = C[vi] + A[vi, vk]
    """
    state: ScheduleState = sch.state
    realize = state.get_block(block)
    target = state.get_loop(loop)
    old = realize.block
    if old.init is None:
        raise state.error(
            f"block {old.name!r} has no init to take out",
            realize,
            remedy="only a reduction that isn't decomposed yet can be decomposed",
        )
    loops = state.loops_above(realize)
    if target not in loops:
        raise state.error(
            f"loop {target.loop_var.name} is not around block {old.name!r}", realize, target
        )
    check_only_loops_between(state, realize, target)
    check_only_blocks(sch, target, "moving an init")
    inner = loops[loops.index(target) :]
    spatial, reducing = loops_by_kind(state, realize, loops)
    _check_init_may_move(state, realize, loops, inner, reducing)
    check_init_comes_first(state, realize, loops, reducing)
    check_each_once(state, realize, inner)
    _check_others_below(state, realize, target)

    func_name = block.func
    init_name = state.fresh_block_name(func_name, f"{old.name}_init")
    update_name = state.fresh_block_name(func_name, f"{old.name}_update")
    init = _init_nest(state, realize, inner, spatial, init_name)
    analyzer = state.analyzer_at(realize)
    update = old.replace(name=update_name, init=None, reads=_reads_of_update(old, analyzer))
    body = state.rebuilt(
        target, {realize: BlockRealize(realize.iter_values, realize.predicate, update)}
    )
    state.replace(target, seq(init, body))
    state.note_rename(func_name, old.name, update_name)
    return BlockRV(func_name, init_name)


def _check_init_may_move(
    state: ScheduleState,
    realize: BlockRealize,
    loops: Sequence[For],
    inner: Sequence[For],
    reducing: set[Var],
) -> None:
    """Refuse unless an init may run for all iterations of ``inner`` ahead of these loops."""
    target = inner[0]
    for item in loops:
        if item.loop_var in reducing and item.kind == THREAD_BINDING:
            raise state.error(
                f"loop {item.loop_var.name} of the reduction is bound to {item.thread}",
                realize,
                item,
                remedy="a reduction over threads keeps its init; lowering combines the threads",
            )
    for outer in loops[: loops.index(target)]:
        if outer.loop_var in reducing:
            raise state.error(
                f"loop {outer.loop_var.name} of the reduction is outside "
                f"{target.loop_var.name}: the init would run again in each of its iterations",
                realize,
                outer,
                remedy="choose that loop, or reorder it inwards first",
            )
    if any(item.loop_var not in reducing for item in inner):
        check_initialised_together(state, realize)


def _init_nest(
    state: ScheduleState,
    realize: BlockRealize,
    inner: Sequence[For],
    spatial: set[Var],
    name: str,
) -> Stmt:
    """Build loops of their own around a block that runs the init of every element."""
    old = realize.block
    assert old.init is not None
    fresh = {item.loop_var: Var(item.loop_var.name) for item in inner if item.loop_var in spatial}
    kept = [
        (iter_var, substitute(value, fresh))
        for iter_var, value in zip(old.iter_vars, realize.iter_values)
        if iter_var.kind != REDUCE
    ]
    predicate = substitute(_predicate_at_start(state, realize, inner, spatial), fresh)
    init_block = Block(
        tuple(iter_var for iter_var, _ in kept),
        (),
        (),
        name,
        old.init,
        match_buffers=tuple(
            match for match in old.match_buffers if _uses_buffer(old.init, match.buffer)
        ),
        annotations=old.annotations,
    )
    reads, writes = block_access_regions(init_block)
    init_block = renew_definitions(init_block.replace(reads=tuple(reads), writes=tuple(writes)))
    init: Stmt = BlockRealize(tuple(value for _, value in kept), predicate, init_block)
    for item in reversed(inner):
        if item.loop_var in fresh:
            _check_bounds(state, realize, item, inner, fresh)
            pragmas = {k: v for k, v in item.annotations.items() if k.startswith("pragma_")}
            low, extent = substitute(item.min, fresh), substitute(item.extent, fresh)
            init = For(fresh[item.loop_var], low, extent, item.kind, init, item.thread, pragmas)
    return init


def _check_bounds(
    state: ScheduleState,
    realize: BlockRealize,
    loop: For,
    inner: Sequence[For],
    kept: Mapping[Var, Var],
) -> None:
    """Refuse if a loop of the init follows one that the init does not have."""
    dropped = [item for item in inner if item.loop_var not in kept]
    for other in dropped:
        if uses_var(loop.extent, {other.loop_var}) or uses_var(loop.min, {other.loop_var}):
            raise state.error(
                f"the bounds of loop {loop.loop_var.name} depend on loop "
                f"{other.loop_var.name}, which the init does not run over",
                realize,
                loop,
                remedy="decompose before loops are made to depend on each other",
            )


def _reads_of_update(block: Block, analyzer: Analyzer) -> tuple[BufferRegion, ...]:
    """A block's reads without those of its init: what it updates, and the rest."""
    own, updated = _reads_of_body(block), []
    for write in block.writes:
        box = write.region
        for other in own:
            if other.buffer is write.buffer and not same_box(box, other.region):
                box = union_box(box, other.region, analyzer)
        updated.append(write if box is write.region else BufferRegion(write.buffer, box))
    seen = regions_buffers(block.writes)
    return (*updated, *(region for region in own if region.buffer not in seen))


def _reads_of_body(block: Block) -> tuple[BufferRegion, ...]:
    """A block's reads without those of only its init."""
    assert block.init is not None
    loaded = {item.buffer for item in pre_order(block.init) if isinstance(item, BufferLoad)}
    if not loaded:
        return block.reads
    needed = set(regions_buffers(block_access_regions(block.replace(init=None))[0]))
    return tuple(
        region for region in block.reads if region.buffer not in loaded or region.buffer in needed
    )


def _uses_buffer(stmt: Stmt, buffer: Buffer) -> bool:
    return bool(loads_of(stmt, buffer)) or any(item is buffer for item in _stored(stmt))


def _stored(stmt: Stmt) -> list[Buffer]:
    if isinstance(stmt, BufferStore):
        return [stmt.buffer]
    found = []
    for item in stmt.child_nodes():
        if isinstance(item, Stmt):
            found.extend(_stored(item))
    return found


def loops_by_kind(
    state: ScheduleState, realize: BlockRealize, loops: Sequence[For]
) -> tuple[set[Var], set[Var]]:
    """Return loop variables that spatial axes use and those that reduction axes use."""
    known = {loop.loop_var for loop in loops}
    spatial: set[Var] = set()
    reducing: set[Var] = set()
    for iter_var, value in zip(realize.block.iter_vars, realize.iter_values):
        used = reducing if iter_var.kind == REDUCE else spatial
        if type(value) is Var:
            if value in known:
                used.add(value)
        else:
            used.update(var for var in free_vars(value) if var in known)
    both = spatial & reducing
    if both:
        culprit = next(loop for loop in loops if loop.loop_var in both)
        raise state.error(
            f"loop {culprit.loop_var.name} serves both spatial and reduction axes of block "
            f"{realize.block.name!r}",
            realize,
            culprit,
            remedy="do not fuse spatial with reduction loops",
        )
    return spatial, reducing


def check_only_loops_between(state: ScheduleState, realize: BlockRealize, top: For | None) -> None:
    """Refuse branches and other statements around a block, up to ``top`` (or its scope)."""
    for item in state.parents(realize):
        if item is top or type(item) is Block:
            return
        if type(item) not in (For, SeqStmt):
            raise state.error(
                f"block {realize.block.name!r} is inside a {type(item).__name__}, not only in "
                "loops",
                item,
                realize,
            )


def _predicate_at_start(
    state: ScheduleState, realize: BlockRealize, loops: Sequence[For], spatial: set[Var]
) -> Expr:
    """The condition under which the init runs: a block's predicate where its reduction starts.

    Loops that serve no axis run once (``check_each_once``).
    """
    first = {loop.loop_var: loop.min for loop in loops if loop.loop_var not in spatial}
    kept = []
    for condition in conjuncts(realize.predicate):
        if not uses_var(condition, first):
            kept.append(condition)
            continue
        at_start = substitute(condition, first)
        if not state.analyzer_at(realize).can_prove(at_start):
            kept.append(at_start)
    return and_(*kept)


def check_init_comes_first(
    state: ScheduleState, realize: BlockRealize, loops: Sequence[For], reducing: set[Var]
) -> None:
    """Refuse unless the init runs where all loops of the reduction start."""
    first = {loop.loop_var: loop.min for loop in loops if loop.loop_var in reducing}
    for iter_var, value in zip(realize.block.iter_vars, realize.iter_values):
        if iter_var.kind != REDUCE:
            continue
        if type(value) is Var and value in first:
            start = first[value]
        else:
            start = substitute(value, first)
        low = iter_var.dom.min
        if as_int(start) == as_int(low) is not None or expr_equal(start, low):
            continue
        if not state.analyzer_at(realize).can_prove_equal(start, low):
            raise state.error(
                lambda name=iter_var.var.name, start=start, low=low: (  # type: ignore[misc]
                    f"reduction axis {name} of block {realize.block.name!r} starts at `{start!r}`, "
                    f"but the init runs where it is `{low!r}`"
                ),
                realize,
                remedy="bind the axis so that its loops start at the start of its domain",
            )


def _check_others_below(state: ScheduleState, realize: BlockRealize, target: For) -> None:
    """Refuse if the init would move past a block that accesses what it touches."""
    blocks = child_blocks(target)
    if len(blocks) == 1:
        return
    block = realize.block
    assert block.init is not None
    written = set(regions_buffers(block.writes))
    loaded = {item.buffer for item in pre_order(block.init) if isinstance(item, BufferLoad)}
    place = blocks.index(realize)
    for number, other in enumerate(blocks):
        if other is realize:
            continue
        touched = [
            buffer
            for buffer in regions_buffers(other.block.writes)
            if buffer in written or buffer in loaded
        ]
        what = "writes"
        if not touched:
            what = "reads"
            touched = [
                buffer
                for buffer in regions_buffers(other.block.reads)
                if buffer in written
                and (number < place or not covers(state, realize, other, buffer, target))
            ]
        if touched:
            how = "read" if touched[0] in loaded else "overwrite"
            raise state.error(
                f"block {other.block.name!r} below loop {target.loop_var.name} {what} "
                f"{touched[0].name!r}, which the init would {how} "
                "before its time",
                realize,
                other,
                remedy="choose a loop further inside, or move that block away",
            )


def check_each_once(state: ScheduleState, realize: BlockRealize, loops: Sequence[For]) -> None:
    """Refuse unless different iterations of ``loops`` are different instances of the block."""
    if _nested_radix(realize, loops):
        return
    regions = Regions(state, state.func_name_of(realize), ())
    inner = regions.inner_loops(loops)
    if regions.is_injective(regions.axis_values(realize).values(), inner):
        return
    inside = {
        loop.loop_var: Range.from_min_extent(loop.min, loop.extent)
        for loop in loops
        if as_int(loop.extent) != 1
    }
    used = [value for value in realize.iter_values if uses_var(value, set(inside))]
    missing = [var for var in inside if not any(uses_var(value, {var}) for value in used)]
    if not missing and is_injective_binding(
        tuple(used),
        inside,
        realize.predicate,
        analyzer=lambda: state.analyzer_of_instances(realize, around=True),
    ):
        return
    raise state.error(
        f"the loops inside visit an element of block {realize.block.name!r} more than once",
        realize,
        *(loop for loop in loops if loop.loop_var in missing),
        remedy="choose a loop further inside",
    )


def _nested_radix(realize: BlockRealize, loops: Sequence[For]) -> bool:
    """Quick test: each axis is a mixed-radix number of loops that no other axis uses."""
    extents: dict[Var, Expr] = {loop.loop_var: loop.extent for loop in loops}
    seen: set[Var] = set()
    for value in realize.iter_values:
        terms: list[tuple[int, int]] = []
        if type(value) is Var:
            if value in extents:
                if value in seen:
                    return False
                seen.add(value)
            continue
        stack: list[Expr] = [value]
        while stack:
            item = stack.pop()
            if isinstance(item, Add):
                stack.extend((item.a, item.b))
                continue
            factor = 1
            while isinstance(item, Mul) and isinstance(item.b, IntImm):
                factor, item = factor * item.b.value, item.a
            if type(item) is Var:
                if item in extents:
                    extent = as_int(extents[item])
                    if extent is None or item in seen or factor < 1:
                        return False
                    seen.add(item)
                    if extent > 1:
                        terms.append((factor, extent))
            elif uses_var(item, set(extents)):
                return False
        terms.sort()
        for (factor, extent), (following, _) in pairwise(terms):
            if following < factor * extent:
                return False
    return all(var in seen or as_int(extent) == 1 for var, extent in extents.items())
