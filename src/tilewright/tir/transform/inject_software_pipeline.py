"""Run parts of several iterations of a loop at once: software pipelining.

A loop says by annotations how its body is cut::

    for k in T.serial(16, annotations={"software_pipeline_stage": [0, 0, 1],
                                       "software_pipeline_order": [0, 1, 2]}):
        copy A to shared      # stage 0: runs one iteration ahead
        copy B to shared      # stage 0
        multiply              # stage 1

Statement ``s`` of iteration ``i`` runs at time ``i + stage[s]``; what falls on one time runs in the
given order (without that annotation: in program order). Times before all stages are busy become the
prologue, the last ones the epilogue. Buffers that the body allocates get one version for each
iteration that is under way at once. ``software_pipeline_async_stages`` names stages whose copies
may be in flight while the program goes on: they are wrapped into ``async_scope`` and committed, and
who needs them waits until no more than so many younger groups are under way. The products of a
warpgroup (``ptx_wgmma``) in such a stage are under way for one more iteration: those of the next
one are started before they are waited for. What they read gets one more version, as it may be read
until then; what writes it must follow the products in the order, which puts the barrier that the
products wait at between the last wait for what was read and the next write of it.

``software_pipeline_fuse`` names statements that are serial loops of one extent: where several of
them run at one time, they run as one loop, each of whose iterations does one of each. So what one
waits for (memory, say) comes while others compute::

    for r in T.serial(64, annotations={"software_pipeline_stage": [0, 1],
                                       "software_pipeline_fuse": [0, 1]}):
        for k in range(32): ...     # from memory
        for k in range(32): ...     # to memory

The pass refuses (``LowerError``) what would change the program: an order that runs a statement
before one that it depends on, in the same or the next iteration, and loops as one of which one
needs what another computes at the same time.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence, Set
from dataclasses import dataclass
from itertools import combinations, groupby
from typing import Any

from tilewright.arith import Analyzer, linear_coefficients
from tilewright.ir import (
    TRUE,
    Call,
    Expr,
    IntImm,
    Mutator,
    Range,
    Var,
    and_,
    annotated,
    as_int,
    call,
    const,
    contains,
    expr_equal,
    floormod,
    free_vars,
    maximum,
    pre_order,
    uses_var,
)
from tilewright.support.errors import LowerError
from tilewright.tir.attrs import (
    ASYNC_COMMIT,
    ASYNC_INFLIGHT,
    ASYNC_SCOPE,
    ASYNC_WAIT,
    PIPELINE_ASYNC_STAGES,
    PIPELINE_FUSE,
    PIPELINE_ORDER,
    PIPELINE_STAGE,
)
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.rewrite import renew_definitions
from tilewright.tir.stmt import (
    SERIAL,
    Allocate,
    AttrStmt,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    SeqStmt,
    Stmt,
    seq,
)
from tilewright.tir.transform.base import (
    FunctionTransform,
    StmtMutator,
    function_analyzer,
    inside_loop,
)
from tilewright.tir.transform.effects import EffectTable, memory_read

_KEYS = (PIPELINE_STAGE, PIPELINE_ORDER, PIPELINE_ASYNC_STAGES, PIPELINE_FUSE)

_has_stages = contains(annotated(PIPELINE_STAGE))


class InjectSoftwarePipeline(FunctionTransform):
    """Rewrite loops with pipeline annotations; runs after blocks are gone."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        if not _has_stages(func.body):
            return func
        return func.map_children(_Rewriter(func).visit)


class _Rewriter(StmtMutator):
    def __init__(self, func: PrimFunc) -> None:
        self.analyzer = function_analyzer(func)
        self.effects = EffectTable(func)

    def visit_For(self, node: For) -> Stmt:
        # Outside of it, a loop is not known to have an iteration.
        with inside_loop(self.analyzer, node):
            made: For = self.generic_visit(node)
        if PIPELINE_STAGE not in made.annotations:
            return made
        return Pipeline(made, self.analyzer, self.effects).build()


@dataclass(eq=False)
class Staged:
    """One statement of the body; ``uses`` is what tells the memory that it works on.

    ``started`` is set for a wait: the part whose products it waits for.
    """

    stmt: Stmt
    stage: int
    order: int
    uses: Stmt
    started: Staged | None = None


def _numbers(loop: For, key: str, count: int, default: Sequence[int]) -> list[int]:
    found = loop.annotations.get(key, default)
    numbers = [as_int(item) if isinstance(item, Expr) else item for item in found]
    made = [item for item in numbers if isinstance(item, int) and item >= 0]
    if len(numbers) != count or len(made) != count:
        raise LowerError(
            f"loop {loop.loop_var.name}: annotation {key} is {found!r}; its body has {count} "
            "statements, so it takes that many numbers from 0"
        )
    return made


class Pipeline:
    """A loop with annotations, cut into its parts; ``build`` gives what stands for it."""

    def __init__(self, loop: For, analyzer: Analyzer, effects: EffectTable) -> None:
        self.loop, self.analyzer, self.effects = loop, analyzer, effects
        if loop.kind != SERIAL:
            raise LowerError(f"loop {loop.loop_var.name} is {loop.kind}: only serial ones pipeline")
        self.allocations: list[Allocate] = []
        body = loop.body
        while isinstance(body, Allocate):
            self.allocations.append(body)
            body = body.body
        stmts = body.stmts if isinstance(body, SeqStmt) else (body,)
        stages = _numbers(loop, PIPELINE_STAGE, len(stmts), ())
        order = _numbers(loop, PIPELINE_ORDER, len(stmts), range(len(stmts)))
        if sorted(order) != list(range(len(stmts))):
            raise LowerError(
                f"loop {loop.loop_var.name}: {PIPELINE_ORDER} {order} is no order of "
                f"{len(stmts)} statements"
            )
        self.staged_stmts = [Staged(*item, item[0]) for item in zip(stmts, stages, order)]
        named = loop.annotations.get(PIPELINE_ASYNC_STAGES, ())
        self.async_stages = set(_numbers(loop, PIPELINE_ASYNC_STAGES, len(named), ()))
        self.defer_products()
        self.depth = max(staged.stage for staged in self.staged_stmts)
        for stage in self.async_stages:
            places = sorted(staged.order for staged in self.staged_stmts if staged.stage == stage)
            if not places or places[-1] - places[0] >= len(places):
                raise LowerError(
                    f"loop {loop.loop_var.name}: the statements of asynchronous stage {stage} must "
                    "follow each other in the order, so that they are committed as one group"
                )
        self.fused = self._fused_loops()
        # Whether all stages are surely busy at some time.
        self.full = analyzer.can_prove(loop.extent >= self.depth)
        self.versions: dict[Var, int] = {}

    def defer_products(self) -> None:
        """Wait for products of asynchronous stages in the next iteration, after its own."""
        for staged in list(self.staged_stmts):
            if staged.stage not in self.async_stages or not _has_products(staged.stmt):
                continue
            if [item for item in self.staged_stmts if item.stage == staged.stage] != [staged]:
                raise LowerError(
                    f"loop {self.loop.loop_var.name}: the products of asynchronous stage "
                    f"{staged.stage} are alone in their stage"
                )
            self.async_stages.remove(staged.stage)
            started = _WithoutWaits().visit(staged.stmt)
            staged.stmt = seq(started, Evaluate(call("ptx_wgmma_commit_group")))
            wait = Evaluate(call("ptx_wgmma_wait_group", const(0)))
            order = len(self.staged_stmts)
            self.staged_stmts.append(Staged(wait, staged.stage + 1, order, staged.uses, staged))

    def _fused_loops(self) -> list[Staged]:
        """The parts that run as one loop."""
        named = self.loop.annotations.get(PIPELINE_FUSE, ())
        numbers = _numbers(self.loop, PIPELINE_FUSE, len(named), ())
        if len(set(numbers)) < len(numbers) or any(n >= len(self.staged_stmts) for n in numbers):
            raise self.no_fusion(
                f"{numbers} are not different ones of {len(self.staged_stmts)} statements"
            )
        staged_stmts = [self.staged_stmts[n] for n in numbers]
        places = sorted(staged.order for staged in staged_stmts)
        if staged_stmts and places[-1] - places[0] >= len(staged_stmts):
            raise self.no_fusion("statements that run as one loop must follow each other in order")
        if any(staged.stage in self.async_stages for staged in staged_stmts):
            raise self.no_fusion("asynchronous stages keep their loops")
        for staged in staged_stmts:
            inner, first = staged.stmt, staged_stmts[0].stmt
            if not isinstance(inner, For) or inner.kind != SERIAL:
                raise self.no_fusion("only serial loops run as one")
            bounds = ((inner.min, first.min), (inner.extent, first.extent))  # type: ignore[attr-defined]
            if any(
                not self.analyzer.can_prove_equal(a, b)
                or uses_var(a, {self.loop.loop_var})
                or memory_read(a)
                for a, b in bounds
            ):
                raise self.no_fusion("loops run as one if their extents are the same each time")
        return staged_stmts

    def no_fusion(self, rule: str) -> LowerError:
        """The error for loops that can't run as one."""
        return LowerError(f"loop {self.loop.loop_var.name}: {PIPELINE_FUSE}: {rule}")

    # ---- what may run when --------------------------------------------------------------------

    def touched(self, stmt: Stmt) -> Set[Var]:
        """Memory that a statement reads or writes."""
        return memory_read(stmt) | self.effects.of(stmt).writes

    def conflicts(self, first: Stmt, second: Stmt) -> Set[Var]:
        """What one statement writes and the other uses."""
        writes = self.effects.of(first).writes, self.effects.of(second).writes
        return (writes[0] & self.touched(second)) | (writes[1] & self.touched(first))

    def check_fused(self, own: Container[Var]) -> None:
        """Refuse loops as one if one needs what another computes at the same time."""
        for first, second in combinations(self.fused, 2):
            shared = self.conflicts(first.stmt, second.stmt)
            if any(
                first.stage == second.stage
                or (data not in own and not self.apart(data, first.stmt, second.stmt))
                for data in shared
            ):
                names = ", ".join(sorted(var.name for var in shared))
                raise self.no_fusion(f"{names} would be shared at one time; use other stages")

    def check(self) -> None:
        """Refuse stages and orders that break a dependence; count versions of buffers."""
        name = self.loop.loop_var.name
        own = {item.buffer.data: item.buffer for item in self.allocations}
        for staged in self.staged_stmts:
            if self.effects.of(staged.stmt).opaque and self.depth:
                raise LowerError(
                    f"loop {name}: a statement of the pipeline has effects that are not known; "
                    "calls and barriers can't run in another order"
                )
        for (n, first), (m, second) in combinations(enumerate(self.staged_stmts), 2):
            conflicts = self.conflicts(first.uses, second.uses)
            if not conflicts or second.started is first:
                continue
            if second.started is not None:
                self.check_deferred(first, second.started)
                continue
            if (first.stage, first.order) > (second.stage, second.order):
                raise self.refusal(n, m, conflicts)
            later = (second.stage, second.order) > (first.stage + 1, first.order)
            if later and any(
                data not in own and not self.apart(data, first.uses, second.uses)
                for data in conflicts
            ):
                raise self.refusal(n, m, conflicts, ", in the next iteration,")
        self.check_fused(own)
        for data in own:
            stages = [
                staged.stage for staged in self.staged_stmts if data in self.touched(staged.uses)
            ]
            self.versions[data] = max(stages) - min(stages) + 1 if stages else 1

    def check_deferred(self, other: Staged, products: Staged) -> None:
        """Refuse other uses of the sums, and writes of operands that a barrier doesn't follow."""
        name = self.loop.loop_var.name
        if self.effects.of(products.uses).writes & self.touched(other.uses):
            raise LowerError(
                f"loop {name}: the sums of asynchronous products are used in the loop, where they "
                "are still under way: leave their stage out of the asynchronous ones"
            )
        if self.effects.of(other.uses).writes and other.order < products.order:
            raise LowerError(
                f"loop {name}: what asynchronous products read is written before them: in the "
                "order, it comes after them, and so after the barrier that they wait at"
            )

    def refusal(self, n: int, m: int, conflicts: Iterable[Var], where: str = "") -> LowerError:
        """The error for two statements that the pipeline would put in another order."""
        names = ", ".join(sorted(var.name for var in conflicts))
        return LowerError(
            f"loop {self.loop.loop_var.name}: statements {n} and {m} of the body share {names}; "
            f"the pipeline would run them{where} in another order than the program: choose other "
            "stages, or an order that keeps it"
        )

    def apart(self, data: Var, first: Stmt, second: Stmt) -> bool:
        """Whether different iterations surely touch different elements of a buffer.

        So it is where an index of every access is one and the same function of the loop variable,
        with a factor that is not zero.
        """
        accesses = [
            item
            for stmt in (first, second)
            for item in pre_order(stmt)
            if isinstance(item, (BufferLoad, BufferStore)) and item.buffer.data is data
        ]
        var = self.loop.loop_var
        outside = {staged for stmt in (first, second) for staged in _defined(stmt)}
        for axis in range(min(len(item.indices) for item in accesses)):
            index = accesses[0].indices[axis]
            if not all(expr_equal(item.indices[axis], index) for item in accesses):
                continue
            if not outside.isdisjoint(free_vars(index)) or memory_read(index):
                continue
            linear = linear_coefficients(index, [var], analyzer=self.analyzer)
            if linear is not None and as_int(linear[0]) not in (None, 0):
                return True
        return False

    # ---- what comes out -----------------------------------------------------------------------

    def build(self) -> Stmt:
        """Return prologue, loop and epilogue."""
        self.check()
        loop, depth = self.loop, self.depth
        kept = {k: v for k, v in loop.annotations.items() if k not in _KEYS}
        buffers = {item.buffer: self.versioned(item.buffer) for item in self.allocations}
        dtype = loop.loop_var.dtype
        extent = loop.extent
        times: list[Stmt] = []
        for number in range(depth):
            times.append(self.at(const(number, dtype), buffers))
        steady = Var(loop.loop_var.name, dtype)
        busy = extent - depth if self.full else maximum(extent - depth, const(0, dtype))
        busy = self.analyzer.simplify(busy)
        if as_int(busy) != 0:
            with self.analyzer.constraint(extent > depth):  # where it runs at all
                self.analyzer.bind(steady, Range.from_min_extent(const(0, dtype), extent - depth))
                body = self.at(steady + depth, buffers)
            times.append(For(steady, const(0, dtype), busy, SERIAL, body, None, kept))
        last = extent if self.full else maximum(extent, const(depth, dtype))
        for number in range(depth):
            times.append(self.at(self.analyzer.simplify(last + number), buffers, number))
        made: Stmt = seq(times)
        for item in reversed(self.allocations):
            made = Allocate(buffers[item.buffer], made, item.annotations)
        return made

    def versioned(self, buffer: Buffer) -> Buffer:
        """The buffer that holds all versions of one."""
        count = self.versions[buffer.data]
        if count == 1:
            return buffer
        for item in pre_order(self.loop.body):
            if type(item) is Var and item is buffer.data:
                raise LowerError(
                    f"loop {self.loop.loop_var.name}: {buffer.name} is used through its pointer, "
                    "so it can't get several versions"
                )
        strides = buffer.strides
        if strides:
            strides = (self.analyzer.simplify(strides[0] * buffer.shape[0]), *strides)
        shape = (const(count, buffer.shape[0].dtype if buffer.shape else "int64"), *buffer.shape)
        return buffer.with_fresh_data(shape=shape, strides=strides)

    def at(self, time: Expr, buffers: dict[Buffer, Buffer], drained: int | None = None) -> Stmt:
        """All parts that run at a time, each for the iteration that it then has.

        In the epilogue ``drained`` counts the times since the last iteration has begun.
        """
        chosen = []
        for staged in sorted(self.staged_stmts, key=lambda item: item.order):
            number = self.analyzer.simplify(time - staged.stage)
            condition: Expr = TRUE
            for bound in (number >= 0, number < self.loop.extent):
                if not self.analyzer.can_prove(bound):
                    condition = and_(condition, self.analyzer.simplify(bound))
            if isinstance(condition, IntImm) and not condition.value:
                continue
            chosen.append((staged, number, condition))
        units: list[tuple[int, Stmt]] = []
        loops: list[For] = []
        place = 0
        for staged, number, condition in chosen:
            stmt = self.instance(staged, number, condition, buffers, drained)
            if staged in self.fused and isinstance(stmt, For):  # and not under a condition
                loops.append(stmt)
                if len(loops) > 1:
                    continue
                place = len(units)
            units.append((staged.stage, stmt))
        if loops:
            units[place] = units[place][0], _one_loop(loops)
        stmts: list[Stmt] = []
        for stage, group in groupby(units, key=lambda item: item[0]):
            made = [stmt for _, stmt in group]
            if stage in self.async_stages:
                issued = AttrStmt(None, ASYNC_SCOPE, const(1), seq(made))
                stmts.append(AttrStmt(None, ASYNC_COMMIT, const(stage), issued))
            else:
                stmts.extend(made)
        return seq(stmts)

    def instance(
        self,
        staged: Staged,
        number: Expr,
        condition: Expr,
        buffers: dict[Buffer, Buffer],
        drained: int | None,
    ) -> Stmt:
        """A copy of one part for iteration ``number``, on its versions of the buffers."""
        value = self.analyzer.simplify(self.loop.min + number)
        started = staged.started
        if started and self.full and (drained is None or drained < started.stage):
            # Those of this time are under way, too.
            return Evaluate(call("ptx_wgmma_wait_group", const(1)))
        stmt: Stmt = renew_definitions(staged.stmt, {self.loop.loop_var: value})
        stmt = Versions(buffers, number, self.analyzer).visit(stmt)
        if condition is not TRUE:
            stmt = IfThenElse(condition, stmt)
        for producer in sorted(self.async_stages):
            count = self.in_flight(staged, producer, drained)
            if count is not None:
                stmt = AttrStmt(None, ASYNC_INFLIGHT, const(count), stmt)
                stmt = AttrStmt(None, ASYNC_WAIT, const(producer), stmt)
        return stmt

    def in_flight(self, staged: Staged, stage: int, drained: int | None) -> int | None:
        """How many younger groups of an asynchronous stage may be under way when a part runs.

        The part needs the group of its own iteration; ``None`` if it uses nothing of that stage.
        """
        issued = [item for item in self.staged_stmts if item.stage == stage]
        used = self.touched(staged.stmt)
        if (
            staged.started is not None
            or staged.stage <= stage
            or not any(used & self.touched(item.stmt) for item in issued)
        ):
            return None
        if not self.full:
            return 0
        ahead = staged.stage - stage
        if any(item.order > staged.order for item in issued):
            ahead -= 1  # the group of this time is not yet complete
        if drained is not None:
            ahead = min(ahead, staged.stage - 1 - drained)  # nothing is issued any more
        return max(0, ahead)


def _one_loop(loops: Sequence[For]) -> For:
    """One loop whose iterations do one of each; their extents are the same."""
    first = loops[0]
    bodies = [first.body]
    annotations = dict(first.annotations)
    for loop in loops[1:]:
        bodies.append(renew_definitions(loop.body, {loop.loop_var: first.loop_var}))
        annotations.update(loop.annotations)
    made: For = first.replace(body=seq(bodies), annotations=annotations)
    return made


def _defined(stmt: Stmt) -> set[Any]:
    return {item.loop_var for item in pre_order(stmt) if type(item) is For} | {
        item.var for item in pre_order(stmt) if hasattr(item, "var") and not isinstance(item, Var)
    }


def _has_products(stmt: Stmt) -> bool:
    return any(type(item) is Call and item.op.name == "ptx_wgmma" for item in pre_order(stmt))


class _WithoutWaits(StmtMutator):
    """Leaves out the waits for products, and what makes groups of them."""

    def visit_Evaluate(self, node: Evaluate) -> Stmt:
        name = node.value.op.name if type(node.value) is Call else ""
        if name in ("ptx_wgmma_commit_group", "ptx_wgmma_wait_group"):
            return seq()
        return node


class Versions(Mutator):
    """Chooses the version of each buffer that belongs to an iteration."""

    def __init__(self, buffers: dict[Buffer, Buffer], number: Expr, analyzer: Analyzer) -> None:
        self.buffers = buffers
        self.number, self.analyzer = number, analyzer

    def indices(self, made: Buffer, old: Buffer, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The place of an element in the version of this iteration."""
        slot = floormod(self.number, const(as_int(made.shape[0]), self.number.dtype))  # type: ignore[arg-type]
        return (self.analyzer.simplify(slot), *map(self.visit, indices))

    def visit_BufferLoad(self, node: BufferLoad) -> BufferLoad:
        made = self.buffers.get(node.buffer)
        if made is None or made is node.buffer:
            return self.generic_visit(node)
        return BufferLoad(made, self.indices(made, node.buffer, node.indices))

    def visit_BufferStore(self, node: BufferStore) -> BufferStore:
        made = self.buffers.get(node.buffer)
        if made is None or made is node.buffer:
            return self.generic_visit(node)
        indices = self.indices(made, node.buffer, node.indices)
        return BufferStore(made, self.visit(node.value), indices)
