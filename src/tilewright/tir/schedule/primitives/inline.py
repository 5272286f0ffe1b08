"""Inlining: putting a block's formula where its result is used, so that the buffer disappears.

``compute_inline`` goes forward: ``B[i] = f(i)`` is substituted for every load of ``B``; the load's
indices replace the block's axes (where the store's indices are not plain axes, they are solved for
the axes first). ``reverse_compute_inline`` goes backward: the consumer ``C[g(i)] = h(B[p(i)])`` is
pulled into the block ``B[u] = f(u)`` that produces ``B``, which then stores
``C[g(q(u))] = h(f(u))`` directly, ``q`` being the inverse of the access ``p``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.arith import Analyzer, conjuncts
from tilewright.arith.polynomial import poly_add
from tilewright.ir import (
    TRUE,
    Call,
    Expr,
    FloorDiv,
    FloorMod,
    Mutator,
    Range,
    Var,
    as_int,
    collect,
    const,
    dtypes,
    free_vars,
    pre_order,
    substitute,
    uses_var,
)
from tilewright.tir import (
    NO_OP,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    LetStmt,
    MatchBufferRegion,
)
from tilewright.tir.analysis import block_access_regions
from tilewright.tir.index_map import solve_indices
from tilewright.tir.schedule.footprint import covers_buffer
from tilewright.tir.schedule.handles import BlockRV
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.schedule.primitives._domain import (
    check_predicate_is_domain,
    check_runs_whole,
    merge_conditions,
)
from tilewright.tir.schedule.primitives._kinds import (
    check_complete,
    check_inputs_final,
    check_not_output,
)
from tilewright.tir.schedule.primitives._regions import Regions
from tilewright.tir.schedule.primitives._scope import (
    Scope,
    loads_of,
    regions_buffers,
    removal_root,
    scope_of,
)
from tilewright.tir.schedule.primitives._settle import check_inputs_settled
from tilewright.tir.schedule.state import ScheduleState


@primitive
def compute_inline(sch: Any, block: BlockRV) -> None:
    """Substitute a block's formula for every use of its result, and drop the block.

    Preconditions:
        - the block is complete: its axes are spatial, it alone writes its output, has no init, and
          doesn't read what it writes
        - what the block writes is allocated in its scope
        - nothing that the block reads is changed after it, nor by other iterations of a loop that
          it shares with the writer
        - the predicate of the block does no more than keep its axes inside their ranges, which
          depend on no loop
        - the block consists of one store of a scalar, whose value has no effects
        - the indices of the store can be solved for the axes of the block
        - others read only elements that the block makes
        - nobody uses the block's output as a vector, through its pointer, or in a tensorized block
        - the block is inside another block, in which it is not the only statement
    Before:
        for i in T.serial(128):
            with T.block("B"):
                vi = T.axis.spatial(128, i)
                B[vi] = A[vi] * T.float32(2)
        for i in T.serial(128):
            with T.block("C"):
                vi = T.axis.spatial(128, i)
                C[vi] = B[vi] + T.float32(1)
    After ``compute_inline(B)``:
        for i in T.serial(128):
            with T.block("C"):
                vi = T.axis.spatial(128, i)
                C[vi] = A[vi] * T.float32(2) + T.float32(1)
    """
    state: ScheduleState = sch.state
    realize = state.get_block(block)
    scope = scope_of(state, realize)
    check_complete(scope, realize)
    check_not_output(scope, realize)
    check_inputs_final(scope, realize)
    check_inputs_settled(scope, realize)
    check_predicate_is_domain(scope, realize)
    store = _single_store(state, realize)
    _check_pure(state, realize, store.value)
    parameters = tuple(Var(f"u{axis}") for axis in range(store.buffer.ndim))
    solved = _solve_axes(state, realize.block, store.indices, parameters)
    if solved is None:
        raise state.error(
            f"the indices of {store.buffer.name} in block {realize.block.name!r} can't be solved "
            "for the block's axes",
            realize,
            remedy="inline before transform_layout, or keep the block",
        )
    _check_all_made(scope, realize, store)
    value = substitute(store.value, solved)
    rest = state.rebuilt(scope.block.body, {removal_root(state, realize): NO_OP})
    inliner = _Inliner(state, realize, store.buffer, parameters, value)
    body = inliner.visit(rest)
    kept = tuple(buffer for buffer in scope.block.alloc_buffers if buffer is not store.buffer)
    state.replace(scope.block, scope.block.replace(body=body, alloc_buffers=kept))


class _Inliner(Mutator):
    """Replaces loads of ``buffer`` by ``value``, whose ``parameters`` become the load's indices."""

    def __init__(
        self,
        state: ScheduleState,
        realize: BlockRealize,
        buffer: Buffer,
        parameters: Sequence[Var],
        value: Expr,
    ) -> None:
        self.state = state
        self.realize = realize
        self.buffer = buffer
        self.parameters = parameters
        self.value = value
        self.divides = any(isinstance(item, (FloorDiv, FloorMod)) for item in pre_order(value))
        self.blocks: list[Block] = []

    def visit_BufferLoad(self, node: BufferLoad) -> Expr:
        indices = tuple(map(self.visit, node.indices))
        if node.buffer is self.buffer:
            if indices and dtypes.lanes_of(indices[-1].dtype) > 1:
                raise self.refuse("is read as a vector")
            value: Expr = substitute(self.value, dict(zip(self.parameters, indices)))
            return self.simplified(value) if self.divides else value
        if all(a is b for a, b in zip(indices, node.indices)):
            return node
        return BufferLoad(node.buffer, indices)

    def simplified(self, value: Expr) -> Expr:
        """Simplify indices: in a chain of reshapes most quotients cancel, and rules see strides."""
        analyzer = self.state.analyzer(self.state.func_name_of(self.realize))
        for block in self.blocks:
            for item in block.iter_vars:
                analyzer.bind(item.var, item.dom)
        return _Indices(analyzer).visit(value)  # type: ignore[no-any-return]

    def visit_Block(self, node: Block) -> Block:
        self.blocks.append(node)
        made = self.in_block(node)
        self.blocks.pop()
        return made

    def in_block(self, node: Block) -> Block:
        """Rewrite a block, and what it declares to read."""
        changes: dict[str, Any] = {}
        body = self.visit(node.body)
        if body is not node.body:
            changes["body"] = body
        if node.init is not None:
            init = self.visit(node.init)
            if init is not node.init:
                changes["init"] = init
        for match in node.match_buffers:
            self.visit(match)
        if not changes:
            # Declared, but not read: perhaps by an init that is a block of its own now.
            kept = tuple(region for region in node.reads if region.buffer is not self.buffer)
            return node if len(kept) == len(node.reads) else node.replace(reads=kept)
        made = node.replace(**changes)
        reads, _ = block_access_regions(made)
        # Where it writes may depend on what was inlined.
        return made.replace(reads=tuple(reads), writes=tuple(map(self.visit, made.writes)))

    def visit_MatchBufferRegion(self, node: MatchBufferRegion) -> MatchBufferRegion:
        if node.source.buffer is self.buffer:
            raise self.refuse("is matched by a tensorized block")
        if any(self.visit(item) is not item for item in node.source.region):
            raise self.refuse("says which part of a buffer a tensorized block matches")
        return node

    def visit_Var(self, node: Var) -> Var:
        if node is self.buffer.data:
            raise self.refuse("is used through its pointer")
        return node

    def refuse(self, reason: str) -> Exception:
        return self.state.error(
            f"{self.buffer.name} {reason}, so block {self.realize.block.name!r} can't be inlined",
            self.realize,
        )


class _Indices(Mutator):
    """Simplifies the indices of loads, nothing else: values stay bit for bit."""

    def __init__(self, analyzer: Analyzer) -> None:
        self.analyzer = analyzer

    def visit_BufferLoad(self, node: BufferLoad) -> Expr:
        indices = (self.visit(index) for index in node.indices)
        return BufferLoad(node.buffer, tuple(map(self.analyzer.simplify, indices)))


@primitive
def reverse_compute_inline(sch: Any, block: BlockRV) -> None:
    """Pull a consumer into the one block that produces its input, and drop the consumer.

    Preconditions:
        - consumer and producer are complete: their axes are spatial, they alone write their output,
          have no init, and don't read what they write
        - the loops around the consumer run all of its domain, under no further condition; the
          ranges of its axes depend on no loop
        - the consumer has a producer in its scope, a single one for what it takes from there
        - what the producer writes is allocated in the scope, and the consumer alone reads it
        - consumer and producer consist of one store of a scalar each, and the value that the
          consumer stores has no effects
        - all else that the consumer reads is there when the producer runs
        - nobody needs what the consumer overwrites, and nobody reads its output before it
        - the consumer reads one element of the producer's output, by indices that can be solved for
          its axes (they permute, split, fuse or crop them)
        - all that the consumer reads has been made by the producer
        - the block is inside another block
    Before:
        for i in T.serial(128):
            with T.block("B"):
                vi = T.axis.spatial(128, i)
                B[vi] = A[vi] * T.float32(2)
        for i in T.serial(128):
            with T.block("C"):
                vi = T.axis.spatial(128, i)
                C[vi] = B[vi] + T.float32(1)
    After ``reverse_compute_inline(C)``:
        for i in T.serial(128):
            with T.block("B"):
                vi = T.axis.spatial(128, i)
                C[vi] = A[vi] * T.float32(2) + T.float32(1)
    """
    state: ScheduleState = sch.state
    consumer = state.get_block(block)
    scope = scope_of(state, consumer)
    check_complete(scope, consumer)
    check_runs_whole(scope, consumer)
    target = _single_store(state, consumer)
    producer = _only_producer(scope, consumer)
    check_complete(scope, producer)
    check_not_output(scope, producer)
    source = _single_store(state, producer)
    if target.buffer is source.buffer:
        raise state.error(f"block {consumer.block.name!r} changes its input in place", consumer)
    others = [item for item in scope.readers(source.buffer) if item is not consumer]
    if others:
        raise state.error(
            f"block {consumer.block.name!r} is not the only consumer of {source.buffer.name}: "
            f"block {others[0].block.name!r} reads it too",
            consumer,
            others[0],
        )
    _check_available_early(scope, consumer, producer)
    _check_pure(state, consumer, target.value)
    access = _one_access(state, consumer, target.value, source.buffer)
    analyzer = state.analyzer(scope.func_name)
    for iter_var in producer.block.iter_vars:
        analyzer.bind(iter_var.var, iter_var.dom)
    _check_reached(scope, consumer, access, producer, source)
    solved = _solve_axes(state, consumer.block, access, source.indices)
    if solved is None:
        raise state.error(
            f"the access to {source.buffer.name} in block {consumer.block.name!r} can't be "
            "inverted: it must permute, split, fuse or crop the block's axes, each used",
            consumer,
            remedy="use reverse_compute_at instead",
        )
    solved = {var: analyzer.simplify(value) for var, value in solved.items()}
    conditions = _domain_conditions(state, consumer, access, source.indices, solved, analyzer)
    store = _Puller(source.buffer, source.value, solved).visit(target)
    made = producer.block.replace(body=store)
    reads, writes = block_access_regions(made)
    made = made.replace(reads=tuple(reads), writes=tuple(writes))
    in_loops = {
        iter_var.var: value
        for iter_var, value in zip(producer.block.iter_vars, producer.iter_values)
    }
    predicate = merge_conditions(
        conjuncts(producer.predicate), [substitute(item, in_loops) for item in conditions]
    )
    body = state.rebuilt(
        scope.block.body,
        {
            removal_root(state, consumer): NO_OP,
            producer: BlockRealize(producer.iter_values, predicate, made),
        },
    )
    kept = tuple(buffer for buffer in scope.block.alloc_buffers if buffer is not source.buffer)
    state.replace(scope.block, scope.block.replace(body=body, alloc_buffers=kept))


class _Puller(Mutator):
    """Rewrites the consumer's store in terms of the producer's axes."""

    def __init__(self, buffer: Buffer, value: Expr, solved: Mapping[Var, Expr]) -> None:
        self.buffer = buffer
        self.value = value
        self.solved = solved

    def visit_BufferLoad(self, node: BufferLoad) -> Expr:
        if node.buffer is self.buffer:
            return self.value
        return self.generic_visit(node)  # type: ignore[no-any-return]

    def visit_Var(self, node: Var) -> Expr:
        return self.solved.get(node, node)


# ---- checks shared by both directions -----------------------------------------------------------


def _single_store(state: ScheduleState, realize: BlockRealize) -> BufferStore:
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
    return substitute(stmt, lets)  # type: ignore[no-any-return]


def _check_pure(state: ScheduleState, realize: BlockRealize, value: Expr) -> None:
    """Refuse to move calls that do more than compute."""
    for item in pre_order(value):
        if isinstance(item, Call) and item.op.effect not in ("pure", "read"):
            raise state.error(
                f"block {realize.block.name!r} calls {item.op.name}, which has effects", realize
            )


def _solve_axes(
    state: ScheduleState, block: Block, indices: Sequence[Expr], outputs: Sequence[Expr]
) -> dict[Var, Expr] | None:
    """Solve ``indices == outputs`` for the axes of ``block``.

    An axis of extent one needs no index. Constant offsets (crops) are moved to the other side.
    """
    domain = {iter_var.var: iter_var.dom for iter_var in block.iter_vars}
    plain: list[Expr] = []
    wanted: list[Expr] = []
    shifted: dict[Var, Range] = {}
    for index, output in zip(indices, outputs):
        offset = _offset_axis(index, domain)
        if offset is not None:
            var, amount = offset
            plain.append(var)
            wanted.append(output - amount)
            shifted[var] = domain[var]
        else:
            plain.append(index)
            wanted.append(output)
    if len(set(map(id, plain))) == len(plain) or not shifted:
        found = solve_indices(plain, domain, wanted)
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


def _only_producer(scope: Scope, consumer: BlockRealize) -> BlockRealize:
    """Return the one producer that can take the consumer in."""
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


def _check_available_early(scope: Scope, consumer: BlockRealize, producer: BlockRealize) -> None:
    """Refuse if the consumer needs, or disturbs, what happens between it and its producer."""
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
    outputs = regions_buffers(consumer.block.writes)
    for buffer in outputs:
        for reader in scope.readers(buffer):
            if reader is not consumer and scope.position[reader] < scope.position[consumer]:
                raise scope.state.error(
                    f"block {reader.block.name!r} reads {buffer.name} before block "
                    f"{consumer.block.name!r} writes it",
                    consumer,
                    reader,
                )
        if scope.state.parent(producer) is not None and _same_nest(scope, producer, buffer):
            raise scope.state.error(
                f"block {producer.block.name!r} reads {buffer.name}, which block "
                f"{consumer.block.name!r} writes",
                consumer,
                producer,
            )


def _same_nest(scope: Scope, producer: BlockRealize, buffer: Buffer) -> bool:
    return producer in scope.readers(buffer)


def _check_reached(
    scope: Scope,
    consumer: BlockRealize,
    access: Sequence[Expr],
    producer: BlockRealize,
    source: BufferStore,
) -> None:
    """Refuse if the consumer has instances that meet no element that the producer makes.

    Such instances (the border of a padding, say) would have no place to run.
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


def _check_all_made(scope: Scope, producer: BlockRealize, store: BufferStore) -> None:
    """Refuse if others may read elements that the block doesn't make.

    Copied to nowhere they do no harm; computed in place they might read what isn't there.
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


def _one_access(
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


def _domain_conditions(
    state: ScheduleState,
    consumer: BlockRealize,
    access: Sequence[Expr],
    outputs: Sequence[Expr],
    solved: Mapping[Var, Expr],
    analyzer: Analyzer,
) -> list[Expr]:
    """Conditions, over the producer's axes, under which the consumer has an instance to run.

    None are needed where the consumer covers all that is produced. An element that the consumer
    would reach by no access at all must be kept out too (``B[0, v]`` of a ``B`` with two rows).
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
