"""Reductions: taking the initialisation out, and splitting a reduction into partial ones.

``decompose_reduction`` puts a block that only initialises in front of a loop, so that the block
inside the loop only updates. ``rfactor`` lets each iteration of one reduction loop accumulate into
an element of its own in a new buffer (``<block>_rf``), which the old block then combines: the loop
becomes spatial and may be parallelised or vectorised. Both rest on the block's update being
``C = combine(C, value)`` of a registered reducer, whose identity starts the partial results.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from tilewright.arith import detect_iter_map
from tilewright.ir import (
    Add,
    Expr,
    IntImm,
    Mul,
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
from tilewright.tir.analysis.reduction import Reduction, match_reduction
from tilewright.tir.schedule.handles import BlockRV, LoopRV
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.schedule.primitives._regions import Regions
from tilewright.tir.schedule.primitives._scope import (
    buffer_names,
    check_only_writer,
    conjuncts,
    loads_of,
    regions_buffers,
    scope_of,
)
from tilewright.tir.schedule.state import ScheduleState

# ---- decompose_reduction ------------------------------------------------------------------------


@primitive
def decompose_reduction(sch: Any, block: BlockRV, loop: LoopRV) -> BlockRV:
    """Split a reduction into a block that initialises, before ``loop``, and one that updates.

    Returns the initialising block; ``block`` is the updating one from then on.

    Before:
        for i, k in T.grid(128, 64):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[vi, vk]
    After:
        for i in T.serial(128):
            with T.block("C_init"):
                vi = T.axis.spatial(128, i)
                C[vi] = T.float32(0)
            for k in T.serial(64):
                with T.block("C_update"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    C[vi] = C[vi] + A[vi, vk]

    Raises ``ScheduleError`` if the block has no init, if a loop outside ``loop`` belongs to the
    reduction, or if the loops inside visit an element more than once.
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
    scope = scope_of(state, realize)
    loops = state.loops_above(realize)
    if target not in loops:
        raise state.error(
            f"loop {target.loop_var.name} is not around block {old.name!r}", realize, target
        )
    place = loops.index(target)
    spatial, reducing = _loops_by_kind(state, realize, loops)
    for outer in loops[:place]:
        if outer.loop_var in reducing:
            raise state.error(
                f"loop {outer.loop_var.name} of the reduction is outside "
                f"{target.loop_var.name}: the init would run again in each of its iterations",
                realize,
                outer,
                remedy="choose that loop, or reorder it inwards first",
            )
    inner = loops[place:]
    _check_each_once(state, realize, inner)

    func_name = scope.func_name
    init_name = state.fresh_block_name(func_name, f"{old.name}_init")
    update_name = state.fresh_block_name(func_name, f"{old.name}_update")
    fresh = {item.loop_var: Var(item.loop_var.name) for item in inner if item.loop_var in spatial}
    kept = [
        (iter_var, substitute(value, fresh))
        for iter_var, value in zip(old.iter_vars, realize.iter_values)
        if iter_var.kind != REDUCE
    ]
    predicate = substitute(_spatial_predicate(state, realize, reducing), fresh)
    init_block = Block(
        tuple(iter_var for iter_var, _ in kept),
        (),
        (),
        init_name,
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
            pragmas = {k: v for k, v in item.annotations.items() if k.startswith("pragma_")}
            init = For(
                fresh[item.loop_var], item.min, item.extent, item.kind, init, item.thread, pragmas
            )
    seen = regions_buffers(old.writes)
    reads_now = (*old.writes, *(region for region in old.reads if region.buffer not in seen))
    update = old.replace(name=update_name, init=None, reads=reads_now)
    body = state.rebuilt(
        target, {realize: BlockRealize(realize.iter_values, realize.predicate, update)}
    )
    state.replace(target, seq(init, body))
    state.note_rename(func_name, old.name, update_name)
    return BlockRV(func_name, init_name)


def _uses_buffer(stmt: Stmt, buffer: Buffer) -> bool:
    return bool(loads_of(stmt, buffer)) or any(item is buffer for item in _stored(stmt))


def _stored(stmt: Any) -> list[Buffer]:
    if isinstance(stmt, BufferStore):
        return [stmt.buffer]
    found = []
    for item in stmt.child_nodes():
        if isinstance(item, Stmt):
            found.extend(_stored(item))
    return found


def _loops_by_kind(
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


def _spatial_predicate(state: ScheduleState, realize: BlockRealize, reducing: set[Var]) -> Expr:
    """The part of a predicate that doesn't depend on the reduction."""
    kept = []
    for condition in conjuncts(realize.predicate):
        used = free_vars(condition)
        if not any(var in reducing for var in used):
            kept.append(condition)
            continue
        spatial = {
            var
            for iter_var, value in zip(realize.block.iter_vars, realize.iter_values)
            if iter_var.kind != REDUCE
            for var in free_vars(value)
        }
        if any(var in spatial for var in used):
            raise state.error(
                lambda condition=condition: (  # type: ignore[misc]
                    f"the condition `{condition!r}` ties spatial to reduction loops"
                ),
                realize,
            )
    return and_(*kept)


def _check_each_once(state: ScheduleState, realize: BlockRealize, loops: Sequence[For]) -> None:
    """Refuse unless different iterations of ``loops`` are different instances of the block."""
    if _nested_radix(realize, loops):
        return
    regions = Regions(state, state.func_name_of(realize), ())
    inner = regions.inner_loops(loops)
    if regions.is_injective(regions.axis_values(realize).values(), inner):
        return
    inside = {
        loop.loop_var: Range(loop.min, loop.extent) for loop in loops if as_int(loop.extent) != 1
    }
    used = [value for value in realize.iter_values if uses_var(value, set(inside))]
    missing = [var for var in inside if not any(uses_var(value, {var}) for value in used)]
    if not missing:
        analyzer = state.analyzer_at(realize)
        result = detect_iter_map(used, inside, realize.predicate, analyzer=analyzer)
        if result.injective:
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
                stack.extend((item.a, item.b))  # type: ignore[attr-defined]
                continue
            factor = 1
            while isinstance(item, Mul) and isinstance(item.b, IntImm):  # type: ignore[attr-defined]
                factor, item = factor * item.b.value, item.a  # type: ignore[attr-defined]
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


# ---- rfactor ------------------------------------------------------------------------------------


@primitive
def rfactor(sch: Any, loop: LoopRV, factor_axis: int = 0) -> BlockRV:
    """Let each iteration of a reduction loop accumulate by itself; combine the results after.

    The new buffer has ``loop`` as dimension ``factor_axis``. Returns the block ``<name>_rf`` that
    computes the partial results; the old block combines them.

    Before:
        for i, k0, k1 in T.grid(16, 8, 4):
            with T.block("C"):
                vi = T.axis.spatial(16, i)
                vk = T.axis.reduce(32, k0 * 4 + k1)
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[vi, vk]
    After:
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

    Raises ``ScheduleError`` unless one reduction block of a registered reducer is alone under the
    loop and all loops of its reduction. Rounding may differ: the order of the sum changes.
    """
    state: ScheduleState = sch.state
    target = state.get_loop(loop)
    realize, chain = _lone_block(state, target)
    old = realize.block
    scope = scope_of(state, realize)
    matched = match_reduction(old)
    if matched is None:
        raise state.error(
            f"block {old.name!r} is not a reduction by a known reducer",
            realize,
            remedy="its init and update must follow one of REDUCERS ("
            + ", ".join(REDUCERS)
            + "); register your own there",
        )
    for buffer in matched.targets:
        check_only_writer(scope, realize, buffer)
    loops = state.loops_above(realize)
    _, reducing = _loops_by_kind(state, realize, loops)
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
    rf_name = state.fresh_block_name(func_name, f"{old.name}_rf")
    outermost = chain[0]
    partial = _partial_nest(
        state, realize, matched, target, chain, reducing, partials, axis, rf_name
    )
    final = _final_nest(state, realize, matched, target, chain, reducing, partials, axis)
    body = state.rebuilt(scope.block.body, {outermost: seq(partial, final)})
    made = scope.block.replace(body=body, alloc_buffers=(*scope.block.alloc_buffers, *partials))
    state.replace(scope.block, made)
    return BlockRV(func_name, rf_name)


def _lone_block(state: ScheduleState, loop: For) -> tuple[BlockRealize, list[For]]:
    """Return the only block under ``loop`` and the loops around both that hold nothing else."""
    current: Any = loop
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
    if as_int(target.min) != 0 or uses_var(target.extent, inside):
        raise state.error(
            f"loop {target.loop_var.name} must start at zero and have an extent that doesn't "
            "depend on other loops",
            target,
        )


def _partial_nest(
    state: ScheduleState,
    realize: BlockRealize,
    matched: Reduction,
    target: For,
    chain: Sequence[For],
    reducing: set[Var],
    partials: tuple[Buffer, ...],
    axis: int,
    name: str,
) -> Stmt:
    """Build the nest that computes one partial result per iteration of ``target``."""
    old = realize.block
    factor = IterVar(Var(f"v{target.loop_var.name}"), Range(const(0), target.extent), SPATIAL)
    iter_vars = [factor]
    values: list[Expr] = [target.loop_var]
    inside: dict[Var, Expr] = {target.loop_var: factor.var}
    replaced: dict[Var, Expr] = {}
    for iter_var, value in zip(old.iter_vars, realize.iter_values):
        if iter_var.kind != REDUCE or not uses_var(value, {target.loop_var}):
            iter_vars.append(iter_var)
            values.append(value)
            continue
        # The axis is cut by the loop: its other loops become axes of their own.
        for item in chain:
            var = item.loop_var
            if var in reducing and var not in inside and uses_var(value, {var}):
                made = IterVar(Var(f"v{var.name}"), Range(item.min, item.extent), REDUCE)
                inside[var] = made.var
                iter_vars.append(made)
                values.append(var)
        replaced[iter_var.var] = substitute(value, inside)
    conditions, guards = _split_predicate(state, realize, target, chain, reducing)
    as_axes = {**{v: iv.var for iv, v in zip(iter_vars, values) if type(v) is Var}, **inside}
    # Inside the block a condition may use axes only, not the loops they are made of.
    loop_vars = {item.loop_var for item in state.loops_above(realize)}
    guard = substitute(and_(*guards), as_axes)
    if any(var in loop_vars for var in free_vars(guard)):
        raise state.error(
            lambda: (
                f"some iterations of {target.loop_var.name} may have nothing to reduce: the "
                f"condition `{guard!r}` can't be moved into the block"
            ),
            realize,
            target,
            remedy="split the reduction without a remainder, or by one loop less",
        )
    rhs = tuple(substitute(value, replaced) for value in matched.values)
    if guards:
        # An element without iterations must still get the neutral element.
        neutral = matched.reducer.identity
        rhs = tuple(if_then_else(guard, value, other) for value, other in zip(rhs, neutral))
    where = (*matched.indices[:axis], factor.var, *matched.indices[axis:])
    init: Stmt | None = None
    if any(iter_var.kind == REDUCE for iter_var in iter_vars):
        init = seq(
            *(BufferStore(b, value, where) for b, value in zip(partials, matched.reducer.identity))
        )
        update = _update(matched.reducer, partials, where, rhs)
    else:
        update = seq(*(BufferStore(buffer, value, where) for buffer, value in zip(partials, rhs)))
    block = Block(tuple(iter_vars), (), (), name, update, init, annotations=old.annotations)
    reads, writes = block_access_regions(block)
    block = block.replace(reads=tuple(reads), writes=tuple(writes))
    nest = loop_nest(chain, BlockRealize(tuple(values), and_(*conditions), block))
    return renew_definitions(nest)  # type: ignore[no-any-return]


def _split_predicate(
    state: ScheduleState,
    realize: BlockRealize,
    target: For,
    chain: Sequence[For],
    reducing: set[Var],
) -> tuple[list[Expr], list[Expr]]:
    """Split the predicate into what may stay one, and what must guard values instead.

    A condition on the reduction may stay if every partial result has its first iteration, where
    its init runs.
    """
    kept: list[Expr] = []
    guards: list[Expr] = []
    first = {
        item.loop_var: item.min
        for item in chain
        if item.loop_var in reducing and item is not target
    }
    for condition in conjuncts(realize.predicate):
        if not uses_var(condition, reducing) or state.analyzer_at(realize).can_prove(
            substitute(condition, first)
        ):
            kept.append(condition)
        else:
            guards.append(condition)
    return kept, guards


def _final_nest(
    state: ScheduleState,
    realize: BlockRealize,
    matched: Reduction,
    target: For,
    chain: Sequence[For],
    reducing: set[Var],
    partials: tuple[Buffer, ...],
    axis: int,
) -> Stmt:
    """Build the nest that combines the partial results into the old buffers."""
    old = realize.block
    factor = IterVar(Var(f"v{target.loop_var.name}"), Range(const(0), target.extent), REDUCE)
    kept = [
        (iter_var, value)
        for iter_var, value in zip(old.iter_vars, realize.iter_values)
        if iter_var.kind != REDUCE
    ]
    iter_vars = (*(iter_var for iter_var, _ in kept), factor)
    values = (*(value for _, value in kept), target.loop_var)
    where = (*matched.indices[:axis], factor.var, *matched.indices[axis:])
    rhs = tuple(BufferLoad(buffer, where) for buffer in partials)
    update = _update(matched.reducer, matched.targets, matched.indices, rhs)
    block = Block(iter_vars, (), (), old.name, update, old.init, annotations=old.annotations)
    reads, writes = block_access_regions(block)
    block = block.replace(reads=tuple(reads), writes=tuple(writes))
    predicate = and_(
        *(item for item in conjuncts(realize.predicate) if not uses_var(item, reducing))
    )
    loops = [item for item in chain if item.loop_var not in reducing or item is target]
    return loop_nest(loops, BlockRealize(values, predicate, block))


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
    stmt = seq(*(BufferStore(buffer, var, where) for buffer, var in zip(buffers, names)))
    for var, value in zip(reversed(names), reversed(new)):
        stmt = LetStmt(var, value, stmt)
    return stmt


__all__ = ["Reduction", "decompose_reduction", "match_reduction", "rfactor"]
