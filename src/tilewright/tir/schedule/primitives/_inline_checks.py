"""Checks before inlining: one pure store, indices that can be solved, elements all computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.arith import Analyzer
from tilewright.arith.polynomial import poly_add
from tilewright.ir import (
    TRUE,
    Call,
    Expr,
    Range,
    Var,
    as_int,
    collect,
    const,
    dtypes,
    free_vars,
    substitute,
    uses_var,
)
from tilewright.tir import (
    Block,
    BlockRealize,
    Buffer,
    BufferStore,
    LetStmt,
)
from tilewright.tir.analysis.footprint import covers_buffer
from tilewright.tir.analysis.reduction import too_long
from tilewright.tir.index_map_solve import solve_indices
from tilewright.tir.schedule.primitives._input_dependences import check_not_awaited
from tilewright.tir.schedule.primitives._regions import Regions
from tilewright.tir.schedule.primitives._scope import Scope, regions_buffers
from tilewright.tir.schedule.state import ScheduleState
from tilewright.tir.walk import loads_of


def single_store(state: ScheduleState, realize: BlockRealize) -> BufferStore:
    """Return the one store that a block consists of; scalar ``let``s before it are substituted."""
    stmt = realize.block.body
    lets: dict[Var, Expr] = {}
    while isinstance(stmt, LetStmt):
        lets[stmt.var] = substitute(stmt.value, lets)
        stmt = stmt.body
    if not isinstance(stmt, BufferStore) or realize.block.match_buffers:
        raise state.error(
            f"block {realize.block.name!r} is more than one store: its body is a "
            f"{type(stmt).__name__}",
            realize,
            remedy="only a block of the form `B[…] = value` can be inlined",
        )
    if stmt.indices and dtypes.lanes_of(stmt.indices[-1].dtype) > 1:
        raise state.error(f"block {realize.block.name!r} stores a vector", realize)
    spelled_out = substitute(stmt, lets)
    if lets and too_long(spelled_out):
        raise state.error(
            f"block {realize.block.name!r} is too long without the names it gives to values",
            realize,
        )
    return spelled_out


def check_pure(state: ScheduleState, realize: BlockRealize, value: Expr) -> None:
    """Refuse to move calls with side effects."""
    for item in collect(value, Call):
        if item.op.effect not in ("pure", "read"):
            raise state.error(
                f"block {realize.block.name!r} calls {item.op.name}, which has effects", realize
            )


def solve_axes(
    state: ScheduleState, block: Block, indices: Sequence[Expr], outputs: Sequence[Expr]
) -> dict[Var, Expr] | None:
    """Solve ``indices == outputs`` for the axes of ``block``.

    An axis of extent one needs no index. Constant offsets (crops) are moved to the other side.
    """
    domain = {iter_var.var: iter_var.dom for iter_var in block.iter_vars}
    unshifted: list[Expr] = []
    wanted: list[Expr] = []
    shifted: dict[Var, Range] = {}
    for index, output in zip(indices, outputs):
        offset = _offset_axis(index, domain)
        if offset is not None:
            var, amount = offset
            unshifted.append(var)
            wanted.append(output - amount)
            shifted[var] = domain[var]
        else:
            unshifted.append(index)
            wanted.append(output)
    if len(set(map(id, unshifted))) == len(unshifted) or not shifted:
        found = solve_indices(unshifted, domain, wanted)
        if found is not None:
            return found
    return solve_indices(indices, domain, outputs)


def _offset_axis(index: Expr, domain: Mapping[Var, Range]) -> tuple[Var, Expr] | None:
    """Recognise ``axis + constant`` and ``axis - constant``."""
    name = type(index).__name__
    if name not in ("Add", "Sub"):
        return None
    a, b = index.a, index.b  # type: ignore[attr-defined]
    if name == "Add" and a not in domain and b in domain:
        a, b = b, a
    if type(a) is not Var or a not in domain or uses_var(b, set(domain)):
        return None
    return a, (b if name == "Add" else -b)


def only_producer(scope: Scope, consumer: BlockRealize) -> BlockRealize:
    """Return the single producer into which the consumer can be inlined."""
    candidates = []
    for buffer in regions_buffers(consumer.block.reads):
        writers = [item for item in scope.writers(buffer) if item is not consumer]
        if writers and not scope.is_visible_outside(buffer):
            candidates.append(writers)
    if not candidates:
        raise scope.state.error(
            f"block {consumer.block.name!r} has no producer in its scope", consumer
        )
    # With several producers, the last one to run is the one that has all other inputs ready.
    last = max(candidates, key=lambda writers: scope.position[writers[-1]])
    if len(last) > 1:
        raise scope.state.error(
            f"what block {consumer.block.name!r} reads is written by several blocks: "
            + ", ".join(repr(item.block.name) for item in last),
            consumer,
            *last,
            remedy="inline before decompose_reduction",
        )
    return last[0]


def check_available_early(scope: Scope, consumer: BlockRealize, producer: BlockRealize) -> None:
    """Refuse if the consumer reads or changes what blocks between it and the producer use."""
    place = scope.position[producer]
    for buffer in regions_buffers(consumer.block.reads):
        for writer in scope.writers(buffer):
            if writer is not producer and scope.position[writer] > place:
                raise scope.state.error(
                    f"block {consumer.block.name!r} also reads {buffer.name}, which block "
                    f"{writer.block.name!r} writes only after its producer "
                    f"{producer.block.name!r} has run",
                    consumer,
                    writer,
                )
            shared = [] if writer is producer else scope.shared_loops(writer, producer)
            if shared and shared[-1] not in scope.loops(consumer):
                raise scope.state.error(
                    f"block {consumer.block.name!r} also reads {buffer.name}, which block "
                    f"{writer.block.name!r} makes in the same loop {shared[-1].loop_var.name} as "
                    f"its producer {producer.block.name!r}: not all of it may be there yet",
                    consumer,
                    writer,
                )
    check_not_awaited(scope, consumer, scope.position[consumer])
    for buffer in regions_buffers(consumer.block.writes):
        if scope.state.parent(producer) is not None and _same_nest(scope, producer, buffer):
            raise scope.state.error(
                f"block {producer.block.name!r} reads {buffer.name}, which block "
                f"{consumer.block.name!r} writes",
                consumer,
                producer,
            )


def _same_nest(scope: Scope, producer: BlockRealize, buffer: Buffer) -> bool:
    return producer in scope.readers(buffer)


def check_reached(
    scope: Scope,
    consumer: BlockRealize,
    access: Sequence[Expr],
    producer: BlockRealize,
    source: BufferStore,
) -> None:
    """Refuse if instances of the consumer read no element that the producer computes.

    Such instances (the border of a padding, say) would have nowhere to run.
    """
    regions = Regions(scope.state, scope.func_name, ())
    regions.add_block_axes(scope.block)
    wanted_axes = regions.inner_vars({item.var: item.dom for item in consumer.block.iter_vars})
    made_axes = regions.inner_vars({item.var: item.dom for item in producer.block.iter_vars})
    for index, target in zip(access, source.indices):
        wanted = regions.relax_expr(index, const(1), {}, wanted_axes)
        made = regions.relax_expr(target, const(1), {}, made_axes)
        if _within(regions, wanted, made):
            continue
        raise scope.state.error(
            f"`{index!r}` may be outside of what block {producer.block.name!r} makes: some "
            f"instances of block {consumer.block.name!r} would not run",
            consumer,
            producer,
            remedy="compute_inline the producer instead",
        )


def check_all_made(scope: Scope, producer: BlockRealize, store: BufferStore) -> None:
    """Refuse if others may read elements that the block doesn't compute.

    Unused copies of such elements are harmless; computing them might read out of bounds.
    """
    if covers_buffer(producer, store.buffer):
        return
    regions = Regions(scope.state, scope.func_name, ())
    regions.add_block_axes(scope.block)
    made_axes = regions.inner_vars({item.var: item.dom for item in producer.block.iter_vars})
    for reader in scope.readers(store.buffer):
        read_axes = regions.inner_vars({item.var: item.dom for item in reader.block.iter_vars})
        for region in reader.block.reads:
            if region.buffer is not store.buffer:
                continue
            for axis, (part, target) in enumerate(zip(region.region, store.indices)):
                wanted = regions.relax_expr(part.min, part.extent, {}, read_axes)
                made = regions.relax_expr(target, const(1), {}, made_axes)
                if not _within(regions, wanted, made):
                    raise scope.state.error(
                        f"block {reader.block.name!r} may read elements of {store.buffer.name} "
                        f"that block {producer.block.name!r} doesn't make, along axis {axis}",
                        reader,
                        producer,
                        remedy="keep the block",
                    )


def _within(regions: Regions, inner: Any, outer: Any) -> bool:
    """Whether one range surely lies inside another; ranges may be unknown (``None``)."""
    if inner is None or outer is None:
        return False
    ends = poly_add(outer.min, outer.extent), poly_add(inner.min, inner.extent)
    return regions.surely_at_least(inner.min, outer.min) and regions.surely_at_least(*ends)


def one_access(
    state: ScheduleState, consumer: BlockRealize, value: Expr, buffer: Buffer
) -> tuple[Expr, ...]:
    """Return the indices by which the consumer reads ``buffer``, the same in all loads."""
    loads = loads_of(value, buffer)
    if not loads or any(item is buffer.data for item in collect(consumer.block.body, Var)):
        raise state.error(
            f"block {consumer.block.name!r} doesn't read {buffer.name} by its elements", consumer
        )
    first = loads[0].indices
    own = {iter_var.var for iter_var in consumer.block.iter_vars}
    own.update(state.func(state.func_name_of(consumer)).symbolic_vars())
    for var in (var for index in first for var in free_vars(index) if var not in own):
        raise state.error(
            f"block {consumer.block.name!r} reads a part of {buffer.name} that {var.name} of a "
            "block around it chooses",
            consumer,
            remedy="use reverse_compute_at, or compute_inline the producer",
        )
    analyzer: Analyzer | None = None
    for load in loads[1:]:
        for a, b in zip(first, load.indices):
            if a is b:
                continue
            analyzer = analyzer or state.analyzer_at(consumer.block)
            if not analyzer.can_prove_equal(a, b):
                raise state.error(
                    f"block {consumer.block.name!r} reads several elements of {buffer.name}: "
                    f"{loads[0]!r} and {load!r}",
                    consumer,
                    remedy="use reverse_compute_at, or compute_inline the producer",
                )
    return first


def domain_conditions(
    state: ScheduleState,
    consumer: BlockRealize,
    access: Sequence[Expr],
    outputs: Sequence[Expr],
    solved: Mapping[Var, Expr],
    analyzer: Analyzer,
) -> list[Expr]:
    """Conditions, over the producer's axes, under which the consumer has an instance to run.

    None are needed where the consumer covers everything that is produced. Elements that the
    consumer never accesses must be excluded too (``B[0, v]`` of a ``B`` with two rows).
    """
    conditions: list[Expr] = []
    for iter_var in consumer.block.iter_vars:
        dom, value = iter_var.dom, solved[iter_var.var]
        for condition in (value >= dom.min, value < dom.min + dom.extent):
            if not _surely(condition, analyzer):
                conditions.append(condition)
    for index, output in zip(access, outputs):
        if type(index) is Var:
            continue
        reached = analyzer.simplify(substitute(index, solved))
        if not analyzer.can_prove_equal(reached, output):
            conditions.append(reached == output)
    return conditions


def _surely(condition: Expr, analyzer: Analyzer) -> bool:
    if condition is TRUE or as_int(condition):
        return True
    return analyzer.can_prove(condition)
