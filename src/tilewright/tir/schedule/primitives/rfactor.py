"""``rfactor``: splitting a reduction into partial ones.

Each iteration of one reduction loop accumulates into an element of its own in a new buffer
(``<block>_rf``), which the old block then combines: the loop becomes spatial and may be
parallelised or vectorised. The block's update must be ``C = combine(C, value)`` of a registered
reducer, whose identity starts the partial results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.arith import conjuncts
from tilewright.ir import (
    Expr,
    Range,
    Var,
    and_,
    as_int,
    const,
    free_vars,
    if_then_else,
    substitute,
    uses_var,
)
from tilewright.tir import (
    REDUCE,
    REDUCERS,
    SERIAL,
    SPATIAL,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    CommReducer,
    For,
    IterVar,
    LetStmt,
    Stmt,
    decl_buffer,
    fresh_name,
    loop_nest,
    renew_definitions,
    seq,
)
from tilewright.tir.analysis import block_access_regions
from tilewright.tir.analysis.reducer_laws import check_reducer
from tilewright.tir.analysis.reduction import Reduction, match_reduction
from tilewright.tir.schedule.handles import BlockRV, LoopRV
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.schedule.primitives._block_checks import check_only_writer
from tilewright.tir.schedule.primitives._scope import Scope, buffer_names, scope_of
from tilewright.tir.schedule.primitives.reduction import (
    check_each_once,
    check_init_comes_first,
    loops_by_kind,
)
from tilewright.tir.schedule.state import ScheduleState

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule


@primitive
def rfactor(sch: Schedule, loop: LoopRV, factor_axis: int = 0) -> BlockRV:
    """Make each iteration of a reduction loop accumulate separately, and combine the results after.

    The new buffer has ``loop`` as dimension ``factor_axis``. Returns the block ``<name>_rf`` that
    computes the partial results; the old block combines them. Tuples are reduced as a whole, into
    one new buffer for each element. The updates are regrouped: that is exact for integers and for
    selections (min, max, argmax); for sums and products of floats rounding may differ.

    Preconditions:
        - there is one block below the loop, and nothing else
        - the block is a reduction with init by a registered reducer
        - the reducer is associative and commutative and its identity neutral
        - the block alone writes its results, at indices given by its spatial axes
        - the block allocates and matches no buffers of its own
        - no loop serves both spatial and reduction axes of the block
        - the loop is part of the reduction
        - all loops of the reduction hold this block alone
        - the loops of the reduction are serial
        - the loop starts at zero, and no extent of the reduction depends on another loop
        - the reduction axes start where their loops start, so that the init runs there
        - the loops visit each element of the block's domain at most once
        - the block's conditions hold where its reduction starts, or don't depend on the reduction
        - conditions that leave out iterations of the loop can be written with the block's axes
        - ``factor_axis`` is a position in the shape of the new buffer
    Before:
        for i, k0, k1 in T.grid(16, 8, 4):
            with T.block("C"):
                vi = T.axis.spatial(16, i)
                vk = T.axis.reduce(32, k0 * 4 + k1)
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[vi, vk]
    After ``rfactor(k1, 0)``:
        for i, k0, k1 in T.grid(16, 8, 4):
            with T.block("C_rf"):
                vk1, vi, vk0 = T.axis.remap("SSR", [k1, i, k0])
                with T.init():
                    C_rf[vk1, vi] = T.float32(0)
                C_rf[vk1, vi] = C_rf[vk1, vi] + A[vi, vk0 * 4 + vk1]
        for i, k1 in T.grid(16, 4):
            with T.block("C"):
                vi, vk1 = T.axis.remap("SR", [i, k1])
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + C_rf[vk1, vi]
    """
    state: ScheduleState = sch.state
    target = state.get_loop(loop)
    realize, chain = _lone_block(state, target)
    scope = scope_of(state, realize)
    matched = _regroupable(scope, realize)
    loops = state.loops_above(realize)
    _, reducing = loops_by_kind(state, realize, loops)
    _check_factorable(state, realize, target, loops, chain, reducing)
    ndim = len(matched.indices)
    if not -(ndim + 1) <= factor_axis <= ndim:
        raise state.error(
            f"factor_axis {factor_axis} is outside [{-(ndim + 1)}, {ndim}]", realize, target
        )
    axis = factor_axis if factor_axis >= 0 else factor_axis + ndim + 1

    func_name = scope.func_name
    names = buffer_names(state, func_name)
    partials = tuple(
        decl_buffer(
            (*buffer.shape[:axis], target.extent, *buffer.shape[axis:]),
            buffer.dtype,
            fresh_name(f"{buffer.name}_rf", names),
            scope=buffer.scope,
        )
        for buffer in matched.targets
    )
    rf_name = state.fresh_block_name(func_name, f"{realize.block.name}_rf")
    parts = _Factoring(state, realize, matched, target, chain, reducing, partials, axis)
    nests = seq(parts.partial_nest(rf_name), parts.final_nest())
    body = state.rebuilt(scope.block.body, {chain[0]: nests})
    made = scope.block.replace(body=body, alloc_buffers=(*scope.block.alloc_buffers, *partials))
    state.replace(scope.block, made)
    return BlockRV(func_name, rf_name)


def _regroupable(scope: Scope, realize: BlockRealize) -> Reduction:
    """Return the reduction of a block; refuse one whose updates can't be regrouped."""
    state, block = scope.state, realize.block
    matched = match_reduction(block)
    if matched is None:
        raise state.error(
            f"block {block.name!r} is not a reduction by a known reducer",
            realize,
            remedy="its update must be written like the combination of a reducer ("
            + ", ".join(REDUCERS)
            + "); add your own with tir.register_reducer",
        )
    broken = check_reducer(matched.reducer)
    if broken:
        raise state.error(
            f"reducer {matched.name!r} can't be regrouped: {broken[0]}",
            realize,
            remedy="let its combination decide ties by something both sides have, as an index",
        )
    if block.match_buffers or block.alloc_buffers:
        raise state.error(
            f"block {block.name!r} has buffers of its own",
            realize,
            remedy="apply rfactor before the block is tensorized or gets local buffers",
        )
    for buffer in matched.targets:
        check_only_writer(scope, realize, buffer)
    reduced = {item.var for item in block.iter_vars if item.kind == REDUCE}
    if any(uses_var(index, reduced) for index in matched.indices):
        raise state.error(
            f"block {block.name!r} chooses the place of its result by a reduction axis",
            realize,
            remedy="index results by spatial axes",
        )
    return matched


def _lone_block(state: ScheduleState, loop: For) -> tuple[BlockRealize, list[For]]:
    """Return the only block under ``loop`` and the loops around both that hold nothing else."""
    current: Stmt = loop
    while type(current) is For:
        current = current.body
    if type(current) is not BlockRealize:
        raise state.error(
            f"loop {loop.loop_var.name} holds more than one block",
            loop,
            remedy="rfactor needs a loop with one reduction block inside and nothing else",
        )
    chain: list[For] = []
    for item in state.parents(current):
        if type(item) is not For:
            break
        chain.append(item)
    chain.reverse()
    return current, chain


def _check_factorable(
    state: ScheduleState,
    realize: BlockRealize,
    target: For,
    loops: Sequence[For],
    chain: Sequence[For],
    reducing: set[Var],
) -> None:
    name = realize.block.name
    if target.loop_var not in reducing:
        raise state.error(
            f"loop {target.loop_var.name} is not part of the reduction of block {name!r}",
            realize,
            target,
            remedy="give a loop that a reduction axis is bound to",
        )
    for item in loops:
        if item.loop_var not in reducing:
            continue
        if item not in chain:
            raise state.error(
                f"loop {item.loop_var.name} of the reduction holds other statements too",
                realize,
                item,
            )
        if item.kind != SERIAL:
            raise state.error(
                f"loop {item.loop_var.name} of the reduction is {item.kind}, not serial",
                realize,
                item,
                remedy="apply rfactor before binding, vectorizing or unrolling",
            )
    inside = {item.loop_var for item in loops}
    for item in loops:
        if (item is target and as_int(item.min) != 0) or (
            item.loop_var in reducing
            and (uses_var(item.extent, inside) or uses_var(item.min, inside))
        ):
            raise state.error(
                f"loop {item.loop_var.name} must start at zero and have an extent that doesn't "
                "depend on other loops",
                item,
            )
    check_init_comes_first(state, realize, loops, reducing)
    first = min(loops.index(item) for item in loops if item.loop_var in reducing)
    check_each_once(state, realize, loops[first:])
    _check_runs_at_start(state, realize, loops, reducing)


def _check_runs_at_start(
    state: ScheduleState, realize: BlockRealize, loops: Sequence[For], reducing: set[Var]
) -> None:
    """Refuse if a condition might skip the init of an element that is updated later."""
    start = {item.loop_var: item.min for item in loops if item.loop_var in reducing}
    for condition in conjuncts(realize.predicate):
        if uses_var(condition, reducing) and not state.analyzer_at(realize).can_prove(
            substitute(condition, start)
        ):
            raise state.error(
                lambda condition=condition: (  # type: ignore[misc]
                    f"the condition `{condition!r}` may not hold where the reduction starts"
                ),
                realize,
                remedy="only conditions that leave out a remainder can be regrouped",
            )


@dataclass(frozen=True)
class _Factoring:
    """A reduction that is split into partial results, one for each iteration of ``target``.

    ``chain`` are the loops that hold the block alone, ``reducing`` those variables among them that
    belong to the reduction. ``partials`` have the loop as dimension ``axis``.
    """

    state: ScheduleState
    realize: BlockRealize
    matched: Reduction
    target: For
    chain: Sequence[For]
    reducing: set[Var]
    partials: tuple[Buffer, ...]
    axis: int

    def partial_nest(self, name: str) -> Stmt:
        """Build the nest that computes one partial result per iteration of the loop."""
        factor = self._factor(SPATIAL)
        iter_vars, values, replaced, inside = self._cut_axes(factor)
        conditions, guards = self._split_predicate()
        as_axes = {**{v: iv.var for iv, v in zip(iter_vars, values) if type(v) is Var}, **inside}
        guard = substitute(and_(*guards), as_axes)
        self._check_guard(guard)
        rhs = tuple(substitute(value, replaced) for value in self.matched.values)
        neutral = self.matched.reducer.identity
        if guards:
            # An element without iterations must still get the neutral element.
            rhs = tuple(if_then_else(guard, value, other) for value, other in zip(rhs, neutral))
        where = self._partial_indices(factor)
        init: Stmt | None = None
        if any(iter_var.kind == REDUCE for iter_var in iter_vars):
            init = _stores(self.partials, where, neutral)
            update = _update(self.matched.reducer, self.partials, where, rhs)
        else:
            update = _stores(self.partials, where, rhs)
        block = self._block(iter_vars, name, update, init)
        nest = loop_nest(self.chain, BlockRealize(tuple(values), and_(*conditions), block))
        return renew_definitions(nest)  # type: ignore[no-any-return]

    def final_nest(self) -> Stmt:
        """Build the nest that combines the partial results into the old buffers."""
        old, matched = self.realize.block, self.matched
        factor = self._factor(REDUCE)
        kept = [
            (iter_var, value)
            for iter_var, value in zip(old.iter_vars, self.realize.iter_values)
            if iter_var.kind != REDUCE
        ]
        iter_vars = [*(iter_var for iter_var, _ in kept), factor]
        values = (*(value for _, value in kept), self.target.loop_var)
        rhs = tuple(BufferLoad(buffer, self._partial_indices(factor)) for buffer in self.partials)
        update = _update(matched.reducer, matched.targets, matched.indices, rhs)
        block = self._block(iter_vars, old.name, update, old.init)
        conditions = conjuncts(self.realize.predicate)
        predicate = and_(*(item for item in conditions if not uses_var(item, self.reducing)))
        loops = [
            item for item in self.chain if item.loop_var not in self.reducing or item is self.target
        ]
        return loop_nest(loops, BlockRealize(values, predicate, block))

    def _factor(self, kind: str) -> IterVar:
        """The axis of a block for the loop that is factored out of the reduction."""
        var = Var(f"v{self.target.loop_var.name}")
        return IterVar(Range.from_min_extent(const(0), self.target.extent), var, kind)

    def _partial_indices(self, factor: IterVar) -> tuple[Expr, ...]:
        """The indices of one partial result."""
        indices = self.matched.indices
        return (*indices[: self.axis], factor.var, *indices[self.axis :])

    def _block(
        self, iter_vars: Sequence[IterVar], name: str, update: Stmt, init: Stmt | None
    ) -> Block:
        annotations = self.realize.block.annotations
        block = Block(tuple(iter_vars), (), (), name, update, init, annotations=annotations)
        reads, writes = block_access_regions(block)
        return block.replace(reads=tuple(reads), writes=tuple(writes))

    def _cut_axes(
        self, factor: IterVar
    ) -> tuple[list[IterVar], list[Expr], dict[Var, Expr], dict[Var, Expr]]:
        """The axes after factoring, the factored loop's first, and their values.

        Also the replacements of the axes that the loop divides, and of loops that became axes.
        """
        target = self.target
        iter_vars = [factor]
        values: list[Expr] = [target.loop_var]
        inside: dict[Var, Expr] = {target.loop_var: factor.var}
        replaced: dict[Var, Expr] = {}
        for iter_var, value in zip(self.realize.block.iter_vars, self.realize.iter_values):
            if iter_var.kind != REDUCE or not uses_var(value, {target.loop_var}):
                iter_vars.append(iter_var)
                values.append(value)
                continue
            # The axis is cut by the loop: its other loops become axes of their own.
            for item in self.chain:
                var = item.loop_var
                if var in self.reducing and var not in inside and uses_var(value, {var}):
                    made = IterVar(
                        Range.from_min_extent(item.min, item.extent), Var(f"v{var.name}"), REDUCE
                    )
                    inside[var] = made.var
                    iter_vars.append(made)
                    values.append(var)
            replaced[iter_var.var] = substitute(value, inside)
        return iter_vars, values, replaced, inside

    def _check_guard(self, guard: Expr) -> None:
        """Refuse a condition inside the block on the loops that its axes are made of."""
        loop_vars = {item.loop_var for item in self.state.loops_above(self.realize)}
        if any(var in loop_vars for var in free_vars(guard)):
            raise self.state.error(
                lambda: (
                    f"some iterations of {self.target.loop_var.name} may have nothing to reduce: "
                    f"the condition `{guard!r}` can't be moved into the block"
                ),
                self.realize,
                self.target,
                remedy="split the reduction without a remainder, or by one loop less",
            )

    def _split_predicate(self) -> tuple[list[Expr], list[Expr]]:
        """Split the predicate into what may stay in it, and what must guard values instead.

        A condition on the reduction may stay if every partial result has its first iteration,
        where its init runs.
        """
        kept: list[Expr] = []
        guards: list[Expr] = []
        first = {
            item.loop_var: item.min
            for item in self.chain
            if item.loop_var in self.reducing and item is not self.target
        }
        for condition in conjuncts(self.realize.predicate):
            if not uses_var(condition, self.reducing) or self.state.analyzer_at(
                self.realize
            ).can_prove(substitute(condition, first)):
                kept.append(condition)
            else:
                guards.append(condition)
        return kept, guards


def _stores(buffers: Sequence[Buffer], where: tuple[Expr, ...], values: Sequence[Expr]) -> Stmt:
    return seq(*(BufferStore(buffer, value, where) for buffer, value in zip(buffers, values)))


def _update(
    reducer: CommReducer,
    buffers: Sequence[Buffer],
    where: tuple[Expr, ...],
    rhs: Sequence[Expr],
) -> Stmt:
    """Build ``buffers[where] = reducer(buffers[where], rhs)``."""
    new = reducer.combine(tuple(BufferLoad(buffer, where) for buffer in buffers), rhs)
    if len(new) == 1:
        return BufferStore(buffers[0], new[0], where)
    # All new values are computed before the first is stored.
    names = [Var(f"v_{buffer.name}", value.dtype) for buffer, value in zip(buffers, new)]
    stmt = _stores(buffers, where, names)
    for var, value in zip(reversed(names), reversed(new)):
        stmt = LetStmt(var, value, stmt)
    return stmt
