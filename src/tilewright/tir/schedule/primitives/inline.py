"""Inlining: substituting a block's formula where its result is used; the buffer disappears.

``compute_inline`` goes forward: ``B[i] = f(i)`` is substituted for every load of ``B``; the load's
indices replace the block's axes (where the store's indices are not single axes, they are solved for
the axes first). ``reverse_compute_inline`` goes backward: the consumer ``C[g(i)] = h(B[p(i)])`` is
pulled into the block ``B[u] = f(u)`` that produces ``B``, which then stores
``C[g(q(u))] = h(f(u))`` directly, ``q`` being the inverse of the access ``p``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.arith import Analyzer, conjuncts
from tilewright.ir import (
    BinaryExpr,
    Call,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Mutator,
    Var,
    dtypes,
    pre_order,
    substitute,
)
from tilewright.tir import (
    NO_OP,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    MatchBufferRegion,
    renew_definitions,
)
from tilewright.tir.analysis import block_access_regions
from tilewright.tir.schedule.handles import BlockRV
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.schedule.primitives._block_checks import (
    check_complete,
    check_inputs_final,
    check_not_output,
    check_writes_apart,
)
from tilewright.tir.schedule.primitives._domain import (
    check_predicate_is_domain,
    check_runs_whole,
    merge_conditions,
)
from tilewright.tir.schedule.primitives._inline_checks import (
    check_all_made,
    check_available_early,
    check_pure,
    check_reached,
    domain_conditions,
    one_access,
    only_producer,
    single_store,
    solve_axes,
)
from tilewright.tir.schedule.primitives._input_dependences import check_inputs_stable
from tilewright.tir.schedule.primitives._scope import Scope, removal_root, scope_of
from tilewright.tir.schedule.state import ScheduleState
from tilewright.tir.walk import mentions

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule


@primitive
def compute_inline(sch: Schedule, block: BlockRV) -> None:
    """Substitute a block's formula for every use of its result, and remove the block.

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
    check_inputs_stable(scope, realize)
    check_predicate_is_domain(scope, realize)
    store = single_store(state, realize)
    check_pure(state, realize, store.value)
    parameters = tuple(Var(f"u{axis}") for axis in range(store.buffer.ndim))
    solved = solve_axes(state, realize.block, store.indices, parameters)
    if solved is None:
        raise state.error(
            f"the indices of {store.buffer.name} in block {realize.block.name!r} can't be solved "
            "for the block's axes",
            realize,
            remedy="inline before transform_layout, or keep the block",
        )
    check_all_made(scope, realize, store)
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

    def visit_BufferStore(self, node: BufferStore) -> BufferStore:
        return self.generic_visit(node) if mentions(node, self.buffer) else node

    def visit_BufferLoad(self, node: BufferLoad) -> Expr:
        indices = tuple(map(self.visit, node.indices))
        if node.buffer is self.buffer:
            if indices and dtypes.lanes_of(indices[-1].dtype) > 1:
                raise self.refuse("is read as a vector")
            value: Expr = substitute(self.value, dict(zip(self.parameters, indices)))
            value = renew_definitions(value)  # a value with lets may be read in several places
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
        """Rewrite a block and its declared reads."""
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

    def visit_Call(self, node: Call) -> Expr:
        if node.op.name in ("address_of", "access_ptr", "tile_of") and any(
            getattr(item, "buffer", None) is self.buffer for item in node.args
        ):
            raise self.refuse("is used through its pointer")
        return self.generic_visit(node)

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
    """Simplifies only the indices of loads: values are bitwise unchanged."""

    def __init__(self, analyzer: Analyzer) -> None:
        self.analyzer = analyzer
        # Loads side by side, as those of a formula of Winograd's, have most indices in common.
        self.known: dict[object, Expr] = {}

    def visit_BufferLoad(self, node: BufferLoad) -> Expr:
        return BufferLoad(node.buffer, tuple(self.simplified(self.visit(i)) for i in node.indices))

    def simplified(self, index: Expr) -> Expr:
        key = _key(index)
        made = self.known.get(key)
        if made is None:
            made = self.known[key] = self.analyzer.simplify(index)
        return made


def _key(expr: Expr) -> object:
    """A key that arithmetic on the same variables and numbers has in common; else the node."""
    if isinstance(expr, BinaryExpr):
        return type(expr), _key(expr.a), _key(expr.b)
    return (expr.value, expr.dtype) if type(expr) is IntImm else expr


@primitive
def reverse_compute_inline(sch: Schedule, block: BlockRV) -> None:
    """Pull a consumer into the block that produces its input, and remove the consumer.

    Preconditions:
        - consumer and producer are complete: their axes are spatial, they alone write their output,
          have no init, and don't read what they write; instances of the consumer write different
          elements
        - the loops around the consumer run all of its domain, under no further condition; the
          ranges of its axes depend on no loop
        - the consumer has a producer in its scope, and only one
        - what the producer writes is allocated in the scope, and the consumer alone reads it
        - consumer and producer consist of one store of a scalar each, and the value that the
          consumer stores has no effects
        - all else that the consumer reads is available when the producer runs
        - nobody needs what the consumer overwrites, or reads its output before it (if that is an
          argument, not even in another iteration of a shared loop)
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
    check_writes_apart(scope, consumer)
    check_runs_whole(scope, consumer)
    target = single_store(state, consumer)
    producer = only_producer(scope, consumer)
    check_complete(scope, producer)
    check_not_output(scope, producer)
    source = single_store(state, producer)
    _check_sole_consumer(scope, consumer, target, source)
    check_available_early(scope, consumer, producer)
    check_pure(state, consumer, target.value)
    access = one_access(state, consumer, target.value, source.buffer)
    analyzer = state.analyzer(scope.func_name)
    for iter_var in producer.block.iter_vars:
        analyzer.bind(iter_var.var, iter_var.dom)
    check_reached(scope, consumer, access, producer, source)
    solved = solve_axes(state, consumer.block, access, source.indices)
    if solved is None:
        raise state.error(
            f"the access to {source.buffer.name} in block {consumer.block.name!r} can't be "
            "inverted: it must permute, split, fuse or crop the block's axes, each used",
            consumer,
            remedy="use reverse_compute_at instead",
        )
    solved = {var: analyzer.simplify(value) for var, value in solved.items()}
    conditions = domain_conditions(state, consumer, access, source.indices, solved, analyzer)
    store = _Puller(source.buffer, source.value, solved).visit(target)
    _replace_both(scope, consumer, producer, source.buffer, store, conditions)


def _check_sole_consumer(
    scope: Scope, consumer: BlockRealize, target: BufferStore, source: BufferStore
) -> None:
    """Refuse unless the consumer alone reads what the producer stores, and doesn't change that."""
    if target.buffer is source.buffer:
        raise scope.state.error(
            f"block {consumer.block.name!r} changes its input in place", consumer
        )
    others = [item for item in scope.readers(source.buffer) if item is not consumer]
    if others:
        raise scope.state.error(
            f"block {consumer.block.name!r} is not the only consumer of {source.buffer.name}: "
            f"block {others[0].block.name!r} reads it too",
            consumer,
            others[0],
        )


def _replace_both(
    scope: Scope,
    consumer: BlockRealize,
    producer: BlockRealize,
    gone: Buffer,
    store: BufferStore,
    conditions: Iterable[Expr],
) -> None:
    """Make the producer do ``store`` where ``conditions`` hold; remove consumer and buffer."""
    state = scope.state
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
    kept = tuple(buffer for buffer in scope.block.alloc_buffers if buffer is not gone)
    state.replace(scope.block, scope.block.replace(body=body, alloc_buffers=kept))


class _Puller(Mutator):
    """Rewrites the consumer's store in terms of the producer's axes."""

    def __init__(self, buffer: Buffer, value: Expr, solved: Mapping[Var, Expr]) -> None:
        self.buffer = buffer
        self.value = value
        self.solved = solved

    def visit_BufferLoad(self, node: BufferLoad) -> Expr:
        if node.buffer is self.buffer:
            return renew_definitions(self.value)  # type: ignore[no-any-return]
        return self.generic_visit(node)

    def visit_Var(self, node: Var) -> Expr:
        return self.solved.get(node, node)
