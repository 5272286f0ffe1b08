"""Give a pipeline's copies threads of their own: one warpgroup copies, the others compute.

A loop asks for it by ``software_pipeline_specialised`` beside the annotations that
``InjectSoftwarePipeline`` reads, which mean the same here: how many versions buffers have, and
which products are waited for one iteration later. What differs is who does what, and how they know
of each other. The loop

    for k in T.serial(n):  copy A[k], B[k] to S;  multiply S

becomes, with a warpgroup more in the block (``threadIdx.y == consumers``), and for each version
``s`` of ``S`` two barriers in shared memory (``mbarrier``), ``full[s]`` and ``empty[s]``:

    producer, one thread of it:                  consumers:
      for k in range(n):                           for k in range(n):
        wait until empty[k % v]                      wait until full[k % v]
        full[k % v] expects so many bytes            start the products of k
        start the copies of k                        wait for the products of k - 1
                                                     arrive at empty[(k - 1) % v]

So no thread that computes spends registers or instructions on copies, and none waits at a barrier
of the whole block. The rest of the kernel is left to the consumers, under a condition; barriers of
the block stay outside of it, as the producer passes them, too.

Blocks of a cluster (loops on ``clusterCtaIdx``) divide the copies that they would make alike
(``multicast``). A stage is then empty when it is so in all blocks that a block sends to: warps
arrive at the barriers of all blocks that send to theirs. Barriers of the cluster stand where blocks
must know that the others' barriers are there, and that nobody reaches for theirs any more.

A loop around it means that the block goes through tiles in turn (persistent blocks)::

    for turn in range(r):  sums = 0;  for k in range(n): copy, multiply;  write results

Then each role has all of it: the producer without the rest, so that it copies for the next turn
while results are written, the consumers with it. Stages go on being numbered from turn to turn.
What the consumers do besides may use no shared memory, since no barrier is theirs alone.

This is a lowering rather than a kernel written by hand, so that whatever the rule schedules around
the loop (batches, epilogues, layouts) stays as it is, and one schedule has both forms.

What was checked against the PTX ISA, and is not seen on the simulator alone:

- Phases: a wait for parity ``p`` is over when the phase of parity ``p`` is; of a new barrier the
  phase before the first one, of parity 1, counts as over. So the producer's first waits pass.
- ``expect_tx`` counts all bytes of a box, those outside of the tensor (zeros) included; it comes
  before the copies, in the thread that starts them.
- Barriers are shown to copies by ``fence.mbarrier_init`` and ``fence.proxy.async`` before the
  block's barrier. Between products that read a stage and the copy that overwrites it no proxy fence
  is needed: both are of the asynchronous proxy, ordered by wait and arrival.
- A warp knows of its own products only (``wgmma.wait_group``), so each warp arrives; where threads
  read a stage by themselves, each of them.
- ``setmaxnreg`` is run by all warps of a warpgroup, and takes registers that the block has: as many
  as it was launched with, which is the most that its number of threads allows if a kernel says
  ``setmaxnreg`` (tests compile it and look). Where the roles end, all get as many as at the launch:
  code there is compiled for the fewest that any thread may have, and holds the sums (``ptxas``
  fails otherwise). With one consumer the block has enough without.
- The memory of barriers is used for something else later, so they are ended (``mbarrier.inval``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

from tilewright.arith import Analyzer
from tilewright.ir import (
    EQ,
    Call,
    Expr,
    Mutator,
    Node,
    StringImm,
    Var,
    and_,
    annotated,
    as_int,
    call,
    const,
    contains,
    dtypes,
    floordiv,
    floormod,
    free_vars,
    pre_order,
    substitute,
)
from tilewright.support.errors import LowerError
from tilewright.tir.attrs import MEMORY_BARRIERS, PIPELINE_SPECIALISED
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.fragments import WARP_SIZE, WARPGROUP_SIZE
from tilewright.tir.function import PrimFunc
from tilewright.tir.gpu_ops import tensor_box, tile_at
from tilewright.tir.rewrite import renew_definitions
from tilewright.tir.stmt import (
    SERIAL,
    Allocate,
    AttrStmt,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    seq,
)
from tilewright.tir.thread_scope import is_shared
from tilewright.tir.transform.base import (
    FunctionTransform,
    bind_loop,
    function_analyzer,
    inside_loop,
)
from tilewright.tir.transform.effects import EffectTable, memory_read
from tilewright.tir.transform.inject_software_pipeline import Pipeline, Staged, Versions
from tilewright.tir.transform.kernels import map_kernels, thread_nest
from tilewright.tir.transform.multicast import ClusterGrid
from tilewright.tir.walk import statements

COPY = "ptx_cp_async_bulk_tensor"
_asks = contains(annotated(PIPELINE_SPECIALISED))
_REGISTERS, _MOST_REGISTERS, _LEAST = 65536, 240, 40
"""Of a processor; of a thread that takes more (255, less some in multiples of 8); of a producer."""


class SpecialisePipeline(FunctionTransform):
    """Rewrite pipelines that ask for it; runs after blocks are gone, with threads on top."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        if not _asks(func.body):
            return func
        analyzer, effects = function_analyzer(func), EffectTable(func)
        made = map_kernels(func, lambda kernel: _specialised(kernel, analyzer, effects))
        if _asks(made.body):
            raise LowerError(f"{PIPELINE_SPECIALISED} is of loops in kernels, below their threads")
        return made


def registers(consumers: int) -> tuple[int, int, int] | None:
    """Return a producer's, a consumer's and at the launch anybody's registers.

    ``None`` if all have enough anyway.
    """
    if consumers < 2:
        return None
    each = _REGISTERS // ((consumers + 1) * WARPGROUP_SIZE) // 8 * 8
    most = (each * (consumers + 1) - _LEAST) // consumers // 8 * 8
    return _LEAST, min(most, _MOST_REGISTERS), each


class _Threads(NamedTuple):
    """A block's threads before the producer has its own: warpgroups along ``threadIdx.y``."""

    lane: Var
    group: Var
    consumers: int

    @staticmethod
    def of(loops: Sequence[For]) -> _Threads:
        """Those of a kernel; ``LowerError`` if they are no warpgroups."""
        by_tag = {loop.thread: loop for loop in loops}
        lanes, groups = by_tag.get("threadIdx.x"), by_tag.get("threadIdx.y")
        consumers = None if groups is None else as_int(groups.extent)
        if (
            lanes is None or groups is None or consumers is None or "threadIdx.z" in by_tag
            or as_int(lanes.extent) != WARPGROUP_SIZE
        ):  # fmt: skip
            raise LowerError(
                f"{PIPELINE_SPECIALISED}: a block's threads are warpgroups along threadIdx.y, of "
                f"{WARPGROUP_SIZE} threads along threadIdx.x"
            )
        return _Threads(lanes.loop_var, groups.loop_var, consumers)


def _specialised(kernel: For, analyzer: Analyzer, effects: EffectTable) -> Stmt:
    loops, body = thread_nest(kernel)
    found = [
        s for s in statements(body) if type(s) is For and PIPELINE_SPECIALISED in s.annotations
    ]
    if not found:
        return kernel
    if len(found) > 1:
        raise LowerError(f"a kernel has one loop with {PIPELINE_SPECIALISED}, not {len(found)}")
    threads = _Threads.of(loops)
    for loop in loops:
        bind_loop(analyzer, loop)
    grid = ClusterGrid(loops, body, analyzer)
    turns = _turns(body, found[0])
    ends = [end for item in (found[0], turns or found[0]) for end in (item.min, item.extent)]
    if len(grid.axes_alike(*ends)) != len(grid.vars):
        raise LowerError(
            f"loop {found[0].loop_var.name}: blocks of a cluster have different numbers of steps, "
            "and send each other what they copy"
        )
    build = _Roles(found[0], turns, threads, analyzer, effects, grid).build
    body = _for_consumers(body, turns or found[0], threads.group < threads.consumers, build)
    for loop in reversed(loops):
        more = loop.extent + 1 if loop.loop_var is threads.group else loop.extent
        body = loop.replace(extent=analyzer.simplify(more), body=body)
    return body


def _path(stmt: Stmt, loop: For) -> list[Stmt]:
    """What stands around a loop, the outermost first."""
    path: list[Stmt] = []
    while stmt is not loop:
        path.append(stmt)
        stmt = next(
            item
            for item in stmt.child_nodes()
            if isinstance(item, Stmt) and any(own is loop for own in pre_order(item))
        )
    return path


def _turns(body: Stmt, loop: For) -> For | None:
    """The loop around a loop, if there is one."""
    found = [item for item in _path(body, loop) if type(item) is For]
    if not found:
        return None
    turns = found[0]
    if len(found) > 1 or turns.kind != SERIAL or as_int(turns.min) != 0:
        raise LowerError(
            f"{PIPELINE_SPECIALISED}: around the loop on {loop.loop_var.name} is one serial loop "
            f"from 0 at most, got {', '.join(item.loop_var.name for item in found)}"
        )
    for item in _path(turns.body, loop):
        if not isinstance(item, (SeqStmt, Allocate, DeclBuffer, AttrStmt, LetStmt)):
            raise _misplaced(loop, item)
    inside = {item.var for item in _path(turns.body, loop) if type(item) is LetStmt}
    if not {turns.loop_var, *inside}.isdisjoint((*free_vars(loop.min), *free_vars(loop.extent))):
        raise LowerError(
            f"{PIPELINE_SPECIALISED}: the loop on {loop.loop_var.name} has as many steps in each "
            f"turn of that on {turns.loop_var.name}, and begins at the same"
        )
    return turns


def _misplaced(loop: For, around: Stmt) -> LowerError:
    return LowerError(
        f"{PIPELINE_SPECIALISED}: the loop on {loop.loop_var.name} is inside of a "
        f"{type(around).__name__}; all threads of the block run it once, or in turns"
    )


def _for_consumers(stmt: Any, loop: For, condition: Expr, build: Callable[[], Stmt]) -> Stmt:
    """Put all but the loop under a condition."""
    if stmt is loop:
        return build()
    if all(item is not loop for item in statements(stmt)):
        return IfThenElse(condition, stmt)
    if isinstance(stmt, SeqStmt):
        return seq(_for_consumers(item, loop, condition, build) for item in stmt.stmts)
    if isinstance(stmt, (Allocate, DeclBuffer, AttrStmt)):
        made: Stmt = stmt.replace(body=_for_consumers(stmt.body, loop, condition, build))
        return made
    raise _misplaced(loop, stmt)


class _Roles:
    """Builds what stands for the loop."""

    def __init__(
        self,
        loop: For,
        turns: For | None,
        threads: _Threads,
        analyzer: Analyzer,
        effects: EffectTable,
        grid: ClusterGrid,
    ) -> None:
        self.loop, self.turns, self.analyzer, self.grid = loop, turns, analyzer, grid
        self.lane, self.group, self.consumers = threads
        if turns is not None:
            bind_loop(analyzer, turns)
        with inside_loop(analyzer, loop):
            self.pipeline = Pipeline(loop, analyzer, effects)
            self.pipeline.check()
        ordered = sorted(self.pipeline.staged_stmts, key=lambda item: item.order)
        self.copies = [item for item in ordered if _calls(item.stmt)]
        self.work = [item for item in ordered if item not in self.copies and not item.started]
        self.waits = [item for item in ordered if item.started]
        written = {data for item in self.copies for data in effects.of(item.stmt).writes}
        counts = {self.pipeline.versions.get(data, 0) for data in written}
        if len(counts) != 1 or min(counts) < 2 or not self.work:
            raise LowerError(
                f"loop {loop.loop_var.name}: {PIPELINE_SPECIALISED}: the loop copies boxes to "
                "buffers of its own, which have equally many versions, two or more; got "
                f"{sorted(counts)}"
            )
        if any(effects.of(item.stmt).writes - written for item in self.copies):
            raise LowerError(f"loop {loop.loop_var.name}: a producer does nothing but copy")
        (self.stages,) = counts
        calls = [copy for item in self.copies for copy in _calls(item.stmt)]
        self.neighbours = grid.neighbours(calls)
        self.check_rest(effects)
        self.full, self.empty = (
            Buffer(name, (const(self.stages),), "uint64", scope="shared")
            for name in ("full", "empty")
        )

    def check_rest(self, effects: EffectTable) -> None:
        """Refuse what the producer reads but doesn't compute, and what it doesn't wait for.

        In turns consumers use no shared memory besides what is copied, no barrier being there for
        it, and write nothing that the producer reads for later ones.
        """
        turns = self.turns
        ahead: list[Node] = [item.stmt for item in self.copies]
        ahead += [self.loop.min, self.loop.extent]
        if turns is not None:
            ahead += [x.value for x in _path(turns, self.loop) if type(x) is LetStmt]
            ahead.append(turns.extent)
        staged = {item.buffer.data for item in self.pipeline.allocations}
        loads = [x for node in ahead for x in pre_order(node) if type(x) is BufferLoad]
        for load in loads:
            if load.buffer.scope != "global" and not is_shared(load.buffer.scope):
                raise LowerError(
                    f"loop {self.loop.loop_var.name}: {PIPELINE_SPECIALISED}: what is copied can't "
                    f"depend on {load.buffer.name}, which each thread has of its own: the thread "
                    "that copies doesn't compute it"
                )
        if turns is None:
            return
        read = {data for node in ahead for data in memory_read(node)} - staged
        if changed := effects.of(turns).writes & read:
            raise LowerError(
                f"loop {self.loop.loop_var.name}: {PIPELINE_SPECIALISED}: in turns consumers write "
                f"nothing that is copied, or says what is, in later ones, but they write "
                f"{', '.join(sorted(data.name for data in changed))}"
            )
        for item in pre_order(turns):
            if not isinstance(item, (BufferLoad, BufferStore)):
                continue
            if is_shared(item.buffer.scope) and item.buffer.data not in staged:
                raise LowerError(
                    f"loop {self.loop.loop_var.name}: {PIPELINE_SPECIALISED}: in turns consumers "
                    f"use shared memory ({item.buffer.name}) for nothing but what is copied: the "
                    "barrier of the block isn't theirs alone"
                )

    def build(self) -> Stmt:
        """Barriers, the two roles, and the end of the barriers."""
        old = {
            item.buffer: self.pipeline.versioned(item.buffer) for item in self.pipeline.allocations
        }
        self.buffers = old
        first = and_(EQ(self.group, const(0)), EQ(self.lane, const(0)))
        sync: Stmt = Evaluate(call("storage_sync", StringImm("shared"), dtype="void"))
        if self.neighbours:
            names = "ptx_barrier_cluster_arrive", "ptx_barrier_cluster_wait"
            sync = seq(sync, *map(_op, names))
        roles = IfThenElse(EQ(self.group, const(self.consumers)), self.producer(), self.consumer())
        made: Stmt = seq(
            IfThenElse(first, seq(*self.each(self.begin), _op("ptx_fence_barrier_init"))),
            sync,
            AttrStmt(None, MEMORY_BARRIERS, const(1), roles),
            sync,
            IfThenElse(first, seq(*self.each(self.end))),
        )
        for buffer in (self.full, self.empty):
            made = Allocate(buffer, made)
        for item in reversed(self.pipeline.allocations):
            made = Allocate(old[item.buffer], made, item.annotations)
        return made

    def each(self, function: Callable[[Expr], Stmt]) -> list[Stmt]:
        """One loop over the stages."""
        stage = Var("stage", "int64")
        return [For(stage, const(0), const(self.stages), SERIAL, function(stage))]

    def begin(self, stage: Expr) -> Stmt:
        """A stage is full when the thread that copies has said how much comes, and it came."""
        arrivals = self.consumers * WARPGROUP_SIZE
        if self.waits:
            arrivals //= WARP_SIZE
        init = "ptx_init_barrier_thread_count"
        return seq(
            _op(init, _at(self.full, stage), const(1)),
            _op(init, _at(self.empty, stage), const(arrivals * (1 + len(self.neighbours)))),
        )

    def end(self, stage: Expr) -> Stmt:
        """The memory of barriers may become something else."""
        return seq(
            *(_op("ptx_invalidate_barrier", _at(item, stage)) for item in (self.full, self.empty))
        )

    def producer(self) -> Stmt:
        """One thread starts all copies, as soon as there is room."""
        k, number = self.counter()
        stage, parity = self.phase(number)
        arrived = sum(_bytes(item.stmt) for item in self.copies)
        body = seq(
            _op("ptx_wait_barrier", _at(self.empty, stage), const(1) - parity),
            _op("ptx_arrive_barrier_expect_tx", _at(self.full, stage), const(arrived)),
            *(
                _Sends(_at(self.full, stage), self.grid).visit(self.instance(item, k, number))
                for item in self.copies
            ),
        )
        made: Stmt = For(k, const(0, k.dtype), self.loop.extent, SERIAL, body)
        if self.turns is not None:
            for item in reversed([self.turns, *_path(self.turns.body, self.loop)]):
                if isinstance(item, (For, LetStmt)):
                    made = item.replace(body=made)
            made = renew_definitions(made)
        return seq(self.take(0, 0), IfThenElse(EQ(self.lane, const(0)), made), self.take(2, 1))

    def consumer(self) -> Stmt:
        """All warps of the other warpgroups compute what has come."""
        k, number = self.counter()
        stage, parity = self.phase(number)
        arrive = self.arrive(stage)
        one_of_warp = EQ(floormod(self.lane, const(WARP_SIZE)), const(0))
        body = [
            _op("ptx_wait_barrier", _at(self.full, stage), parity),
            *(self.instance(item, k, number) for item in self.work),
        ]
        after: list[Stmt] = []
        if self.waits:
            arrive = self.arrive(self.phase(number - 1)[0])
            arrive = IfThenElse(and_(k >= 1, one_of_warp), arrive)
            body.append(_op("ptx_wgmma_wait_group", const(1)))
            after.append(_op("ptx_wgmma_wait_group", const(0)))
            if self.turns is not None:
                # The next turn's copies wait for the stage of this one's last products, too.
                end = self.number(self.loop.extent - 1)
                some = self.analyzer.simplify(and_(self.loop.extent >= 1, one_of_warp))
                after.append(IfThenElse(some, self.arrive(self.phase(end)[0])))
        body.append(arrive)
        made: Stmt = seq(For(k, const(0, k.dtype), self.loop.extent, SERIAL, seq(*body)), *after)
        if self.turns is not None:
            made = substitute(self.turns, {self.loop: made})
        return seq(self.take(1, 1), made, self.take(2, 0))

    def arrive(self, stage: Expr) -> Stmt:
        """Tell all that send to this block that a stage is empty."""
        barrier = _at(self.empty, stage)
        others = (_op("ptx_arrive_barrier", barrier, number) for number in self.neighbours)
        return seq(_op("ptx_arrive_barrier", barrier), *others)

    def take(self, which: int, increase: int) -> Stmt:
        """Give registers back, or take more: as many as ``registers`` says at a position."""
        counts = registers(self.consumers)
        if counts is None:
            return seq()
        return _op("ptx_setmaxnreg", const(counts[which]), const(increase))

    def counter(self) -> tuple[Var, Expr]:
        """A loop variable, and the number of its step among those of all turns."""
        k = Var(self.loop.loop_var.name, self.loop.loop_var.dtype)
        return k, self.number(k)

    def number(self, k: Expr) -> Expr:
        """The number of a turn's step among all."""
        return k if self.turns is None else self.turns.loop_var * self.loop.extent + k

    def phase(self, number: Expr) -> tuple[Expr, Expr]:
        """A step's stage, and the parity of the stage's phase."""
        stages = const(self.stages, number.dtype)
        return floormod(number, stages), floormod(floordiv(number, stages), const(2, number.dtype))

    def instance(self, staged: Staged, k: Expr, number: Expr) -> Stmt:
        """A part for iteration ``k``, on the versions of the buffers of step ``number``."""
        value = self.analyzer.simplify(self.loop.min + k)
        stmt: Stmt = renew_definitions(staged.stmt, {self.loop.loop_var: value})
        made: Stmt = Versions(self.buffers, number, self.analyzer).visit(stmt)
        return made


class _Sends(Mutator):
    """Names the barrier that copies tell when they have arrived, and the blocks that get them."""

    def __init__(self, barrier: Expr, grid: ClusterGrid) -> None:
        self.barrier, self.grid = barrier, grid

    def visit_Call(self, node: Call) -> Expr:
        if node.op.name != COPY:
            return node
        args = (*node.args[:2], self.barrier, *node.args[3:])
        return self.grid.shared(Call.of_fields(node.op, args, node.dtype))


def _at(buffer: Buffer, index: Expr) -> Expr:
    return call("address_of", BufferLoad(buffer, (index,)))


def _op(name: str, *args: Expr) -> Stmt:
    return Evaluate(call(name, *args))


def _calls(stmt: Node) -> list[Call]:
    return [item for item in pre_order(stmt) if type(item) is Call and item.op.name == COPY]


def _bytes(stmt: Any) -> int:
    """Bytes that the copies of a statement bring: whole boxes, in all iterations."""
    total = 0
    for item in stmt.child_nodes() if isinstance(stmt, Stmt) else ():
        if isinstance(item, Stmt):
            total += _bytes(item)
        else:
            for one in _calls(item):
                dtype = tile_at(one.args[0]).along.buffer.dtype
                total += prod(box.box for box in tensor_box(one)) * dtypes.bytes_of(dtype)
    if isinstance(stmt, For):
        extent = as_int(stmt.extent)
        if extent is None:
            raise LowerError(f"loop {stmt.loop_var.name}: how many boxes it copies isn't known")
        total *= extent
    if isinstance(stmt, IfThenElse) and total:
        raise LowerError("a copy under a condition brings a number of bytes that isn't known")
    return total
