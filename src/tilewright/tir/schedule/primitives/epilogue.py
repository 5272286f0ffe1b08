"""``fuse_reduction_epilogue``: a step after a reduction is fused into it.

``D = sum(A*B) + bias`` is the sum that starts at ``bias``, so the block of the addition and the
intermediate buffer can be removed. The same holds for any reducer: what the epilogue combines with
the result can be combined with the identity at the start. Other epilogues (ReLU, clipping, scales)
need the final value, so the reduction applies them in its last iteration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright.ir import (
    EQ,
    Expr,
    Var,
    and_,
    compare,
    expr_equal,
    rewrite_top_down,
    substitute,
    uses_var,
)
from tilewright.tir import (
    NO_OP,
    REDUCE,
    SERIAL,
    UNROLLED,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    IfThenElse,
    SeqStmt,
    seq,
)
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
    check_each_once,
    check_only_loops_between,
    loops_by_kind,
)
from tilewright.tir.schedule.state import ScheduleState
from tilewright.tir.stmt import Block
from tilewright.tir.walk import loads_of

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule


_ORDERED = (SERIAL, UNROLLED)


@primitive
def fuse_reduction_epilogue(
    sch: Schedule, reduction_block: BlockRV, epilogue_block: BlockRV
) -> None:
    """Let a reduction start with what its epilogue combines with the result, or end with it.

    The reduction then writes the epilogue's output, and the intermediate buffer is removed. An
    epilogue may combine the result by the reducer of the reduction itself: an addition after a sum,
    a maximum with a bound after a maximum. Then the reduction starts from the other operand instead
    of the identity. That regroups what is combined, as ``rfactor`` does: exact for integers and for
    min and max; for sums and products of floats as exact as real arithmetic, but rounding may
    differ. Others that keep the dtype (ReLU or clipping after a sum, a scale) are applied in the
    last iteration, and the updates keep their order from then on. Several epilogues are fused one
    after the other. Those that change the dtype are refused: ``reverse_compute_at`` moves them
    next to the reduction.

    Preconditions:
        - both blocks are in one scope, the epilogue after the reduction
        - around both blocks there are only loops
        - the reduction is of one value by a registered reducer, with init
        - the reducer is associative and commutative and its identity neutral
        - the epilogue is complete, with one axis for each dimension of the result
        - the epilogue combines the result with another value by the reducer of the reduction, or
          keeps its dtype
        - to be applied in the last iteration, loops of the reduction are serial and independent,
          visit each element once, the last one last, and no condition leaves out some
        - to be applied in the last iteration, the reduction is known not to be empty
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
    update, final = _without_final(reduction.block)
    matched = _check_reduction(state, reduction, update)
    between = matched.targets[0]
    store = _check_epilogue(scope, reduction, epilogue, matched)
    # Axes of the epilogue by those of the reduction, which write the same element.
    load = loads_of(store.value, between)[0]
    axes = dict(zip(load.indices, matched.indices))
    other = None if final is not None else _other_operand(matched, epilogue, store, load)
    if other is None:
        _check_last(state, reduction, epilogue, store, between)
    _check_uses(scope, reduction, epilogue, matched, store.buffer)

    where = tuple(substitute(index, axes) for index in store.indices)
    target = _Target(between, store.buffer, where)
    if other is not None:
        block = target.block(update, _start(matched, substitute(other, axes)), None)
    else:
        value = substitute(store.value, axes)
        block = target.block(update, matched.initial[0], _after(value, between, final))
    body = state.rebuilt(
        scope.block.body,
        {
            reduction: BlockRealize(reduction.iter_values, reduction.predicate, block),
            removal_root(state, epilogue): NO_OP,
        },
    )
    kept = tuple(buffer for buffer in scope.block.alloc_buffers if buffer is not between)
    state.replace(scope.block, scope.block.replace(body=body, alloc_buffers=kept))


def _last(block: Block) -> Expr:
    """The condition that an instance is the last one of its element."""
    ends = (
        compare(EQ, item.var, item.dom.min + item.dom.extent - 1)
        for item in block.iter_vars
        if item.kind == REDUCE
    )
    return and_(*ends)


def _without_final(block: Block) -> tuple[Block, Expr | None]:
    """A reduction without what an epilogue has put into its last iteration, and that value."""
    body = block.body
    if isinstance(body, SeqStmt) and len(body.stmts) == 2:
        update, final = body.stmts
        if (
            isinstance(update, BufferStore)
            and isinstance(final, IfThenElse)
            and final.else_case is None
            and isinstance(final.then_case, BufferStore)
            and final.then_case.buffer is update.buffer
            and all(map(expr_equal, final.then_case.indices, update.indices))
            and expr_equal(final.condition, _last(block))
        ):
            return block.replace(body=update), final.then_case.value
    return block, None


def _after(value: Expr, result: Buffer, final: Expr | None) -> Expr:
    """An epilogue's value, of the value that an earlier epilogue gives."""
    if final is None:
        return value

    def inner(node: Any) -> Any:
        return final if isinstance(node, BufferLoad) and node.buffer is result else None

    made: Expr = rewrite_top_down(value, inner)
    return made


def _check_last(
    state: ScheduleState,
    reduction: BlockRealize,
    epilogue: BlockRealize,
    store: BufferStore,
    between: Buffer,
) -> None:
    """Refuse unless the last iteration can compute the epilogue."""
    if store.buffer.dtype != between.dtype:
        raise state.error(
            lambda: (
                f"block {epilogue.block.name!r} stores `{store.value!r}`, which is "
                f"{between.name!r} in {store.buffer.dtype} instead of {between.dtype}"
            ),
            epilogue,
            remedy="bring it next to the reduction by reverse_compute_at instead: it must see the "
            "final value",
        )
    loops = state.loops_above(reduction)
    _, reducing = loops_by_kind(state, reduction, loops)
    inner = [loop for loop in loops if loop.loop_var in reducing]
    around = {loop.loop_var for loop in loops}
    analyzer = state.analyzer_at(reduction)
    for loop in inner:
        if loop.kind not in _ORDERED or uses_var(loop.min, around) or uses_var(loop.extent, around):
            raise state.error(
                f"loop {loop.loop_var.name} of the reduction is no serial one with its own ends: "
                "there is no last iteration",
                reduction,
                loop,
            )
    if uses_var(reduction.predicate, reducing):
        raise state.error(
            f"a condition leaves out iterations of the reduction of {reduction.block.name!r}",
            reduction,
            remedy="fuse the epilogue before the reduction is split",
        )
    ends = {loop.loop_var: loop.min + loop.extent - 1 for loop in inner}
    plain = state.analyzer(state.func_name_of(reduction))
    for axis, value in zip(reduction.block.iter_vars, reduction.iter_values):
        if axis.kind != REDUCE:
            continue
        if not plain.can_prove(axis.dom.extent >= 1):
            raise state.error(
                f"the reduction axis {axis.var.name} may be empty: there would be no last "
                "iteration to compute the epilogue",
                reduction,
                remedy="bring the epilogue next to the reduction by reverse_compute_at instead",
            )
        end = axis.dom.min + axis.dom.extent - 1
        if not analyzer.can_prove_equal(substitute(value, ends), end):
            raise state.error(
                f"the last iteration is not shown to be the end of axis {axis.var.name}", reduction
            )
    if inner:
        check_each_once(state, reduction, loops[loops.index(inner[0]) :])


def _check_reduction(state: ScheduleState, reduction: BlockRealize, update: Block) -> Reduction:
    matched = match_reduction(update)
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
    scope: Scope, reduction: BlockRealize, epilogue: BlockRealize, matched: Reduction
) -> BufferStore:
    """Refuse unless the epilogue is one store, element by element; return the store."""
    state, block, between = scope.state, epilogue.block, matched.targets[0]
    facts = block_facts(block)
    store = block.body
    if facts.kind != COMPLETE or not isinstance(store, BufferStore) or block.match_buffers:
        raise state.error(
            f"block {block.name!r} is not a complete block of one store"
            + (f": {facts.reason}" if facts.reason else ""),
            epilogue,
        )
    loads = loads_of(store.value, between)
    same_element = bool(loads) and all(
        expr_equal(a, b) for load in loads for a, b in zip(load.indices, loads[0].indices)
    )
    if not same_element or any(loads_of(index, between) for index in store.indices):
        raise state.error(
            f"block {block.name!r} must load one element of {between.name!r}", epilogue
        )
    domains = {item.var: item.dom for item in block.iter_vars}
    indices = loads[0].indices
    analyzer = state.analyzer(scope.func_name)
    own = {item.var: item.dom for item in reduction.block.iter_vars if item.kind != REDUCE}
    same = len(set(indices)) == len(domains) == len(indices) and all(
        isinstance(index, Var)
        and index in domains
        and isinstance(place, Var)
        and place in own
        and expr_equal(domains[index].min, own[place].min)
        and analyzer.can_prove_equal(domains[index].extent, own[place].extent)
        for index, place in zip(indices, matched.indices)
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
    matched: Reduction, epilogue: BlockRealize, store: BufferStore, load: BufferLoad
) -> Expr | None:
    """What the epilogue combines with the result, if it uses the reducer."""
    probe = BufferStore(load.buffer, store.value, load.indices)
    found = match_update(epilogue.block.replace(body=probe))
    if found is None or found.name != matched.name or store.buffer.dtype != load.buffer.dtype:
        return None
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


@dataclass(frozen=True)
class _Target:
    """The place ``new[where]``, which a reduction writes from now on instead of ``old``."""

    old: Buffer
    new: Buffer
    where: tuple[Expr, ...]

    def block(self, block: Block, first: Expr, final: Expr | None) -> Block:
        """Return the reduction's block, starting with ``first`` and ending with ``final``."""
        body = self._moved(block.body)
        if final is not None:
            last = BufferStore(self.new, self._moved(final), self.where)
            body = seq(body, IfThenElse(_last(block), last))
        changed = block.replace(body=body, init=BufferStore(self.new, first, self.where))
        reads, writes = block_access_regions(changed)
        return changed.replace(reads=tuple(reads), writes=tuple(writes))

    def _moved(self, node: Any) -> Any:
        made = node.map_children(self._moved) if not isinstance(node, Buffer) else node
        if isinstance(made, BufferLoad) and made.buffer is self.old:
            return BufferLoad(self.new, self.where)
        if isinstance(made, BufferStore) and made.buffer is self.old:
            return BufferStore(self.new, made.value, self.where)
        return made
