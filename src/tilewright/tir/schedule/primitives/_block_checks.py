"""Preconditions on the kind of a block, shared by the primitives that move computation.

Each checks one block of a :class:`Scope`: that it is complete, a reduction that adds each term
once, the only writer of a buffer, not an output, or that nothing changes its inputs later.
"""

from __future__ import annotations

from tilewright.arith import simplify
from tilewright.ir import Var, as_int, collect, expr_equal, free_vars, pre_order, substitute
from tilewright.tir import SPATIAL, Block, BlockRealize, Buffer, BufferLoad, BufferStore
from tilewright.tir.analysis import COMPLETE, REDUCTION, block_facts, is_injective_binding
from tilewright.tir.analysis.block_kind import OPAQUE
from tilewright.tir.analysis.footprint import loop_ranges
from tilewright.tir.attrs import TRUSTED_REGIONS
from tilewright.tir.schedule.primitives._scope import Scope, regions_buffers
from tilewright.tir.schedule.state import ScheduleState


def check_only_writer(scope: Scope, realize: BlockRealize, buffer: Buffer) -> None:
    """Refuse if another block of the scope writes ``buffer`` too."""
    others = [writer for writer in scope.writers(buffer) if writer is not realize]
    if others:
        raise scope.state.error(
            lambda: (
                f"block {realize.block.name!r} is not the only writer of {buffer.name}: "
                f"block {others[0].block.name!r} writes it too"
            ),
            realize,
            others[0],
            remedy="apply the primitive before decompose_reduction splits the writer",
        )


def check_complete(scope: Scope, realize: BlockRealize) -> None:
    """Refuse unless the block is *complete*.

    It alone writes its outputs, each element once and for all (spatial axes only), and doesn't
    read what it writes.
    """
    state, block = scope.state, realize.block
    for iter_var in block.iter_vars:
        if iter_var.kind != SPATIAL:
            raise state.error(
                f"block {block.name!r} is not complete: its axis {iter_var.var.name} is "
                f"{iter_var.kind}",
                realize,
                remedy="only blocks whose axes are all spatial can be inlined or cached this way",
            )
    if block.init is not None:
        raise state.error(f"block {block.name!r} is not complete: it has an init", realize)
    reads = set(regions_buffers(block.reads))
    for buffer in regions_buffers(block.writes):
        check_only_writer(scope, realize, buffer)
        if buffer in reads:
            raise state.error(
                f"block {block.name!r} is not complete: it reads {buffer.name}, which it writes",
                realize,
            )


def check_writes_apart(scope: Scope, realize: BlockRealize) -> None:
    """Refuse unless instances of a complete block write different elements, in whatever order."""
    facts = block_facts(realize.block)
    if facts.kind != COMPLETE:
        name = realize.block.name
        raise scope.state.error(f"block {name!r} is not complete: {facts.reason}", realize)


def check_not_output(scope: Scope, realize: BlockRealize) -> None:
    """Refuse if the block writes a buffer that is visible outside the scope."""
    for buffer in regions_buffers(realize.block.writes):
        if scope.is_visible_outside(buffer):
            raise scope.state.error(
                f"block {realize.block.name!r} is an output block: {buffer.name} is visible "
                "outside its scope",
                realize,
                remedy="cache_write it first, and apply the primitive to the block that computes",
            )


def check_inputs_final(scope: Scope, realize: BlockRealize) -> None:
    """Refuse if a later statement changes what the block reads.

    Such a block can't be computed any later than it is.
    """
    place = scope.position[realize]
    for buffer in regions_buffers(realize.block.reads):
        for writer in scope.writers(buffer):
            if scope.position[writer] > place:
                raise scope.state.error(
                    lambda writer=writer, buffer=buffer: (  # type: ignore[misc]
                        f"block {realize.block.name!r} reads {buffer.name}, which block "
                        f"{writer.block.name!r} changes later: it can't be computed after that"
                    ),
                    realize,
                    writer,
                )


def check_movable(scope: Scope, realize: BlockRealize) -> None:
    """Refuse unless a block may be moved: it is complete or a reduction."""
    facts = block_facts(realize.block)
    if facts.kind == REDUCTION:
        check_reduces_once(scope, realize)
    if facts.kind in (COMPLETE, REDUCTION):
        return
    why = facts.reason or "it updates what was there before"
    raise scope.state.error(
        f"block {realize.block.name!r} is neither complete nor a reduction: {why}",
        realize,
        remedy="only a block that makes each element anew, whenever it runs, can be moved",
    )


def check_reduces_once(scope: Scope, realize: BlockRealize) -> None:
    """Refuse unless each element begins with init, and each term is added once.

    New loops will do exactly that, whatever the present loops around the block do.
    """
    loops = scope.loops(realize)
    first = {loop.loop_var: loop.min for loop in loops}
    reduce: set[Var] = set()
    for iter_var, value in zip(realize.block.iter_vars, realize.iter_values):
        if iter_var.kind == SPATIAL:
            continue
        reduce.update(free_vars(value))
        dom = iter_var.dom
        begin = substitute(value, first)
        if not expr_equal(begin, dom.min) and as_int(simplify(begin - dom.min)) != 0:
            raise scope.state.error(
                f"the reduction of block {realize.block.name!r} over {iter_var.var.name} does not "
                "begin with the instance that runs init",
                realize,
            )
    used = {var for value in realize.iter_values for var in free_vars(value)}
    start = next((n for n, loop in enumerate(loops) if loop.loop_var in reduce), len(loops))
    for loop in loops[start:]:
        if loop.loop_var not in used and as_int(loop.extent) != 1:
            raise scope.state.error(
                f"loop {loop.loop_var.name} repeats parts of the reduction of block "
                f"{realize.block.name!r}",
                realize,
                loop,
            )
    # Each iteration of the loops further out begins afresh.
    if start < len(loops) and not is_injective_binding(
        realize.iter_values,
        loop_ranges(loops[start:]),
        realize.predicate,
        analyzer=lambda: scope.state.analyzer(scope.func_name),
    ):
        raise scope.state.error(
            f"block {realize.block.name!r} is not shown to add each part of its reduction once: "
            "its bindings may be the same for different iterations",
            realize,
        )


def check_uses_are_seen(scope: Scope, realize: BlockRealize, buffer: Buffer) -> None:
    """Refuse if a block uses a buffer by its pointer, or elements that it doesn't declare.

    Rewriting of accesses doesn't reach the former; regions don't tell of the latter.
    """
    if any(item is buffer.data for item in pre_order(realize.block)):
        raise scope.state.error(
            f"block {realize.block.name!r} uses {buffer.name} through its pointer", realize
        )
    for block in collect(realize, Block):
        if TRUSTED_REGIONS not in block.annotations:
            continue
        declared = {region.buffer for region in (*block.reads, *block.writes)}
        if buffer not in declared and any(
            isinstance(item, (BufferLoad, BufferStore)) and item.buffer is buffer
            for item in pre_order(block)
        ):
            raise scope.state.error(
                f"block {block.name!r} hides that it uses {buffer.name}",
                block,
                remedy="declare the region with unsafe_annotate_buffer_access",
            )


def check_initialised_together(state: ScheduleState, realize: BlockRealize) -> None:
    """Refuse unless instances of a block with ``init`` may all be initialised before any updates.

    Those that use elements of each other may not.
    """
    facts = block_facts(realize.block)
    if facts.kind == OPAQUE:
        raise state.error(
            f"the instances of block {realize.block.name!r} may not be initialised together: "
            f"{facts.reason}",
            realize,
            remedy="choose the outermost loop of the reduction alone",
        )
