"""``fuse_reduction_epilogue``: a step after a reduction is fused into it.

``D = sum(A*B) + bias`` is the sum that starts at ``bias``, so the block of the addition and the
intermediate buffer can be removed. The same holds for any reducer: what the epilogue combines with
the result can be combined with the identity at the start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.ir import Expr, Var, expr_equal, substitute
from tilewright.tir import NO_OP, REDUCE, BlockRealize, Buffer, BufferLoad, BufferStore
from tilewright.tir.analysis import COMPLETE, block_access_regions, block_facts
from tilewright.tir.analysis.reducer_laws import check_reducer
from tilewright.tir.analysis.reduction import Reduction, match_reduction, match_update
from tilewright.tir.schedule.handles import BlockRV
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.schedule.legality import covers
from tilewright.tir.schedule.primitives._block_checks import check_only_writer
from tilewright.tir.schedule.primitives._domain import is_whole
from tilewright.tir.schedule.primitives._scope import Scope, regions_buffers, removal_root, scope_of
from tilewright.tir.schedule.primitives.reduction import (
    check_only_loops_between,
    loops_by_kind,
)
from tilewright.tir.schedule.state import ScheduleState
from tilewright.tir.stmt import Block
from tilewright.tir.walk import loads_of

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule


@primitive
def fuse_reduction_epilogue(
    sch: Schedule, reduction_block: BlockRV, epilogue_block: BlockRV
) -> None:
    """Let a reduction start with what its epilogue combines with the result.

    The epilogue must combine the result by the reducer of the reduction itself: an addition after a
    sum, a maximum with a bound after a maximum. The reduction then writes the epilogue's output,
    starting from the other operand instead of the identity, and the intermediate buffer is removed.
    That regroups what is combined, as ``rfactor`` does: exact for integers and for min and max; for
    sums and products of floats as exact as real arithmetic, but rounding may differ. Epilogues that
    must see the final value (ReLU or clipping after a sum, a cast, a scale) are refused:
    ``reverse_compute_at`` moves them next to the reduction.

    Preconditions:
        - both blocks are in one scope, the epilogue after the reduction
        - around both blocks there are only loops
        - the reduction is of one value by a registered reducer, with init
        - the reducer is associative and commutative and its identity neutral
        - the epilogue is complete, with one axis for each dimension of the result
        - the epilogue combines the result with another value by the reducer of the reduction
        - the result is of use to the epilogue only, and not visible outside the scope
        - the epilogue runs for all elements that the reduction computes, when they are final
        - what else the epilogue reads is there before the reduction starts
        - nothing uses the epilogue's output before the epilogue
    Before:
        for i, k in T.grid(16, 32):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[vi, vk]
        for i in range(16):
            with T.block("D"):
                vi = T.axis.spatial(16, i)
                D[vi] = C[vi] + bias[vi]
    After ``fuse_reduction_epilogue("C", "D")``:
        for i, k in T.grid(16, 32):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    D[vi] = bias[vi]
                D[vi] = D[vi] + A[vi, vk]
    """
    state: ScheduleState = sch.state
    reduction = state.get_block(reduction_block)
    epilogue = state.get_block(epilogue_block)
    scope = scope_of(state, reduction)
    if epilogue not in scope.position or scope.position[epilogue] < scope.position[reduction]:
        raise state.error(
            f"block {epilogue.block.name!r} does not come after {reduction.block.name!r} in the "
            "same scope",
            reduction,
            epilogue,
        )
    for realize in (reduction, epilogue):
        check_only_loops_between(state, realize, None)
    matched = _check_reduction(state, reduction)
    between = matched.targets[0]
    store = _check_epilogue(scope, reduction, epilogue, between)
    # Axes of the epilogue by those of the reduction, which write the same element.
    load = loads_of(store.value, between)[0]
    axes = dict(zip(load.indices, matched.indices))
    other = _other_operand(state, matched, epilogue, store, load)
    _check_uses(scope, reduction, epilogue, matched, store.buffer)

    where = tuple(substitute(index, axes) for index in store.indices)
    first = _start(matched, substitute(other, axes))
    block = _retargeted(reduction, between, store.buffer, where, first)
    body = state.rebuilt(
        scope.block.body,
        {
            reduction: BlockRealize(reduction.iter_values, reduction.predicate, block),
            removal_root(state, epilogue): NO_OP,
        },
    )
    kept = tuple(buffer for buffer in scope.block.alloc_buffers if buffer is not between)
    state.replace(scope.block, scope.block.replace(body=body, alloc_buffers=kept))


def _check_reduction(state: ScheduleState, reduction: BlockRealize) -> Reduction:
    matched = match_reduction(reduction.block)
    if matched is None or len(matched.targets) != 1:
        raise state.error(
            f"block {reduction.block.name!r} is not a reduction of one value by a registered "
            "reducer, with init",
            reduction,
            remedy="fuse the epilogue before decompose_reduction",
        )
    broken = check_reducer(matched.reducer)
    if broken:
        raise state.error(f"reducer {matched.name!r} can't be regrouped: {broken[0]}", reduction)
    return matched


def _check_epilogue(
    scope: Scope, reduction: BlockRealize, epilogue: BlockRealize, between: Buffer
) -> BufferStore:
    """Refuse unless the epilogue is one store, element by element; return the store."""
    state, block = scope.state, epilogue.block
    facts = block_facts(block)
    store = block.body
    if facts.kind != COMPLETE or not isinstance(store, BufferStore) or block.match_buffers:
        raise state.error(
            f"block {block.name!r} is not a complete block of one store"
            + (f": {facts.reason}" if facts.reason else ""),
            epilogue,
        )
    loads = loads_of(store.value, between)
    if len(loads) != 1 or any(loads_of(index, between) for index in store.indices):
        raise state.error(
            f"block {block.name!r} must load {between.name!r} exactly once",
            epilogue,
            remedy="only `result combined with another value` can start a reduction",
        )
    domains = {item.var: item.dom for item in block.iter_vars}
    indices = loads[0].indices
    analyzer = state.analyzer(scope.func_name)
    targets = match_update(reduction.block)
    assert targets is not None
    own = {item.var: item.dom for item in reduction.block.iter_vars if item.kind != REDUCE}
    same = len(set(indices)) == len(domains) == len(indices) and all(
        isinstance(index, Var)
        and index in domains
        and isinstance(place, Var)
        and place in own
        and expr_equal(domains[index].min, own[place].min)
        and analyzer.can_prove_equal(domains[index].extent, own[place].extent)
        for index, place in zip(indices, targets.indices)
    )
    if not same or len(own) != len(domains):
        raise state.error(
            f"block {block.name!r} does not have one axis for each dimension of {between.name!r}, "
            "with the reduction's domain",
            epilogue,
            reduction,
        )
    return store


def _other_operand(
    state: ScheduleState,
    matched: Reduction,
    epilogue: BlockRealize,
    store: BufferStore,
    load: BufferLoad,
) -> Expr:
    """The operand that the epilogue combines with the result, if it uses the reducer."""
    probe = BufferStore(load.buffer, store.value, load.indices)
    found = match_update(epilogue.block.replace(body=probe))
    if found is None or found.name != matched.name or store.buffer.dtype != load.buffer.dtype:
        raise state.error(
            lambda: (
                f"block {epilogue.block.name!r} stores `{store.value!r}`, which is not "
                f"{load.buffer.name!r} combined with another value by {matched.name!r}"
            ),
            epilogue,
            remedy="bring it next to the reduction by reverse_compute_at instead: it must see the "
            "final value",
        )
    return found.values[0]


def _check_uses(
    scope: Scope,
    reduction: BlockRealize,
    epilogue: BlockRealize,
    matched: Reduction,
    output: Buffer,
) -> None:
    state, between = scope.state, matched.targets[0]
    check_only_writer(scope, reduction, between)
    users = [item for item in scope.readers(between) if item not in (epilogue, reduction)]
    if users or scope.is_visible_outside(between):
        what = f"block {users[0].block.name!r} reads it too" if users else "it outlives the scope"
        raise state.error(
            f"{between.name!r} is not only for block {epilogue.block.name!r}: {what}",
            epilogue,
            *users[:1],
        )
    _check_final(scope, reduction, epilogue, between)
    loops = state.loops_above(reduction)
    outermost = loops[0] if loops else None
    for buffer in regions_buffers(epilogue.block.reads):
        for writer in scope.writers(buffer) if buffer is not between else ():
            shares = outermost is not None and outermost in state.loops_above(writer)
            if shares or scope.position[writer] > scope.position[reduction]:
                raise state.error(
                    f"block {writer.block.name!r} writes {buffer.name!r}, which the reduction "
                    "would read when it starts",
                    epilogue,
                    writer,
                    remedy="compute it in loops of its own before the reduction",
                )
    for user in (*scope.readers(output), *scope.writers(output)):
        if user is not epilogue and scope.position[user] < scope.position[epilogue]:
            raise state.error(
                f"block {user.block.name!r} uses {output.name!r} before the epilogue writes it",
                epilogue,
                user,
            )
    check_only_writer(scope, epilogue, output)


def _check_final(
    scope: Scope, reduction: BlockRealize, epilogue: BlockRealize, between: Buffer
) -> None:
    """Refuse unless each block covers its domain, and results are final where they are used."""
    state = scope.state
    for realize in (reduction, epilogue):
        if not is_whole(scope, realize):
            raise state.error(
                f"block {realize.block.name!r} is not shown to run its whole domain", realize
            )
    loops = state.loops_above(reduction)
    shared = [loop for loop in state.loops_above(epilogue) if loop in loops]
    _, reducing = loops_by_kind(state, reduction, loops)
    partial = [loop for loop in shared if loop.loop_var in reducing]
    if partial or (shared and not covers(state, reduction, epilogue, between, shared[-1])):
        raise state.error(
            f"block {epilogue.block.name!r} may see results of {reduction.block.name!r} that are "
            "not final",
            epilogue,
            *partial[:1],
        )


def _start(matched: Reduction, other: Expr) -> Expr:
    """The new start of the reduction: ``other`` combined with the value of its init."""
    initial, identity = matched.initial[0], matched.reducer.identity[0]
    if expr_equal(initial, identity):
        return other
    return matched.reducer.combine((initial,), (other,))[0]


def _retargeted(
    reduction: BlockRealize, old: Buffer, new: Buffer, where: tuple[Expr, ...], first: Expr
) -> Block:
    """Return the reduction's block, writing ``new[where]`` and starting with ``first``."""
    block = reduction.block

    def go(node: Any) -> Any:
        made = node.map_children(go) if not isinstance(node, Buffer) else node
        if isinstance(made, BufferLoad) and made.buffer is old:
            return BufferLoad(new, where)
        if isinstance(made, BufferStore) and made.buffer is old:
            return BufferStore(new, made.value, where)
        return made

    changed = block.replace(body=go(block.body), init=BufferStore(new, first, where))
    reads, writes = block_access_regions(changed)
    return changed.replace(reads=tuple(reads), writes=tuple(writes))
