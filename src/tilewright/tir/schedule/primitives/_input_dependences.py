"""Does it matter when a block runs? Inputs that later iterations of a loop change.

A block may be moved only if it reads the same values wherever it runs: its inputs must be final, or
become so in the same iteration of the loops that it shares with their writer.
"""

from __future__ import annotations

from tilewright.ir import free_vars, uses_var
from tilewright.tir import OPAQUE, REDUCE, SPATIAL, BlockRealize, Buffer, For
from tilewright.tir.analysis import COMPLETE, block_facts, is_injective_binding
from tilewright.tir.analysis.block_kind import UPDATE
from tilewright.tir.analysis.footprint import loop_ranges
from tilewright.tir.schedule.legality import covers
from tilewright.tir.schedule.primitives._scope import Scope, regions_buffers


def check_inputs_stable(scope: Scope, realize: BlockRealize) -> None:
    """Refuse if other iterations of a loop around the block change what it reads.

    Such a block can't be moved. Writers that share no loop with it have finished.
    """
    for buffer in regions_buffers(realize.block.reads):
        writers = [item for item in scope.writers(buffer) if item is not realize]
        for writer in writers:
            shared = scope.shared_loops(writer, realize)
            if shared and not _is_stable(scope, writer, realize, buffer, shared, len(writers)):
                raise scope.state.error(
                    f"block {realize.block.name!r} reads {buffer.name}, which block "
                    f"{writer.block.name!r} may change in later iterations of loop "
                    f"{shared[0].loop_var.name}: its value depends on when it runs",
                    realize,
                    writer,
                )


def _is_stable(
    scope: Scope,
    writer: BlockRealize,
    reader: BlockRealize,
    buffer: Buffer,
    shared: list[For],
    count: int,
) -> bool:
    """Whether what ``reader`` reads is final: one iteration of ``shared`` computes it all."""
    if count > 2 or not keeps_values(scope, writer, shared):
        return False
    if count == 2 and block_facts(writer.block).kind == COMPLETE and not _runs_once(writer, shared):
        return False  # The init of a reduction, repeated.
    return _finds_no_older(scope, writer, reader, buffer)


def _finds_no_older(
    scope: Scope, writer: BlockRealize, reader: BlockRealize, buffer: Buffer
) -> bool:
    """Whether what ``reader`` reads in a shared iteration was written in that iteration."""
    # Of a buffer of the scope, what is read has been written: before that, it has no value.
    return not scope.is_visible_outside(buffer) or covers(
        scope.state, writer, reader, buffer, scope.shared_loops(writer, reader)[-1]
    )


def check_not_awaited(scope: Scope, realize: BlockRealize, place: int) -> None:
    """Refuse if a block before the ``place`` reads what the block writes, also in a shared loop.

    A block that moves out of loops writes all at once what it wrote in successive iterations. In a
    buffer of the scope, elements not yet written had no value.
    """
    for buffer in regions_buffers(realize.block.writes):
        for reader in scope.readers(buffer):
            if reader is realize:
                continue
            if scope.position[reader] < place:
                raise scope.state.error(
                    f"block {reader.block.name!r} reads {buffer.name} before block "
                    f"{realize.block.name!r} writes it",
                    realize,
                    reader,
                )
            if (
                scope.is_visible_outside(buffer)
                and (shared := scope.shared_loops(realize, reader))
                and not covers(scope.state, realize, reader, buffer, shared[-1])
            ):
                raise scope.state.error(
                    f"block {reader.block.name!r} may read {buffer.name} in an iteration of loop "
                    f"{shared[-1].loop_var.name} before block {realize.block.name!r} writes it",
                    realize,
                    reader,
                )


def keeps_values(scope: Scope, writer: BlockRealize, loops: list[For]) -> bool:
    """Whether later iterations of ``loops`` don't change what a block computed in one.

    Each instance always reads the same inputs, or runs in only one iteration.
    """
    if not finishes_inside(writer, loops):
        return False
    key = (writer, *loops)
    found = scope.stable.get(key)
    if found is None:
        scope.stable[key] = False  # Of two blocks that feed each other, neither is settled.
        found = scope.stable[key] = all(
            keeps_values(scope, source, shared) and _finds_no_older(scope, source, writer, buffer)
            for buffer in regions_buffers(writer.block.reads)
            for source in scope.writers(buffer)
            if source is not writer
            and (shared := [x for x in scope.shared_loops(source, writer) if x in loops])
        ) or _runs_once_each(scope, writer, loops)
    return found


def _runs_once_each(scope: Scope, realize: BlockRealize, loops: list[For]) -> bool:
    """Whether different iterations of ``loops`` run different instances of a block."""
    return _runs_once(realize, loops) and is_injective_binding(
        realize.iter_values,
        loop_ranges(scope.loops(realize)),
        realize.predicate,
        analyzer=lambda: scope.state.analyzer(scope.func_name),
    )


def finishes_inside(writer: BlockRealize, loops: list[For]) -> bool:
    """Whether each element that a block writes is complete within one iteration of ``loops``."""
    kind = block_facts(writer.block).kind
    if kind == OPAQUE:
        return False
    variables = {loop.loop_var for loop in loops}
    for iter_var, value in zip(writer.block.iter_vars, writer.iter_values):
        if iter_var.kind == REDUCE and uses_var(value, variables):
            return False
    return kind != UPDATE or _runs_once(writer, loops)


def _runs_once(realize: BlockRealize, loops: list[For]) -> bool:
    """Whether each of ``loops`` occurs in a spatial axis of the block."""
    used = {
        var
        for iter_var, value in zip(realize.block.iter_vars, realize.iter_values)
        if iter_var.kind == SPATIAL
        for var in free_vars(value)
    }
    return all(loop.loop_var in used for loop in loops)
