"""Loops over time (``te.scan``): recurrent layers, filters, simulations.

They are rewritten first, so that a step is a block with blocks of its own (``step_blocks``)::

    for t in range(steps):             for t in range(steps):
        gates[t + 1, j] = ...              with T.block("step"):    # time = t + 1
        state[t + 1, j] = f(gates)             gates[j] = ...       # of this step only
                                               state_now[j] = f(gates)
                                               state[time, j] = state_now[j]

Within a step no axis depends on the order of the others, so primitives take its blocks as they take
those of a function. What only one step uses has no time. What it makes of a state is collected
first: no block reads and writes the same buffer.

So a step is scheduled like a function: its products in tiles of registers, everything else by
vectors. A matrix that all steps multiply by is laid out once, before the first step, so that
neighbours are neighbouring results: in panels as wide as a tile where a step has several rows. What
comes before and after the steps is scheduled apart, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.dlight.cpu.contraction import (
    MOST_ROWS,
    Panels,
    lay_out,
    rank_plans,
    schedule_packing,
    schedule_plan,
)
from tilewright.dlight.cpu.fallback import schedule_apart
from tilewright.ir import (
    TRUE,
    Expr,
    Var,
    collect,
    const,
    is_const,
    rewrite_bottom_up,
    structural_equal,
    substitute,
    uses_var,
)
from tilewright.scheduling import (
    CPUScheduleRule,
    NotApplicable,
    nests_of,
    over,
    reduction_of,
    warn_of_unscheduled,
)
from tilewright.scheduling.cpu import (
    inline_injective,
    leaf_blocks,
    loads_of,
    stores_of,
    stride_of,
)
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir import (
    OPAQUE,
    REDUCE,
    SERIAL,
    SPATIAL,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IterVar,
    PrimFunc,
    Stmt,
    decl_buffer,
    fresh_name,
    seq,
)
from tilewright.tir.analysis import block_access_regions
from tilewright.tir.schedule import KERNELS, Schedule
from tilewright.tir.schedule.handles import BlockRV
from tilewright.tir.walk import child_blocks

# Rows of a tile where their number comes with the call: few sequences go together, often 2 ** n.
_UNKNOWN_ROWS = 4


class TimeSteps(CPUScheduleRule):
    """Applies to functions with loops over time."""

    def apply_to(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Make a block of each step; schedule what is in it, before and after."""
        if not any(map(step_of, nests_of(sch.mod["main"]))):
            return NotApplicable("there is no loop over time")
        inline_injective(sch)
        matrices = [made for rv in leaf_blocks(sch) if (made := _copied(sch, rv)) is not None]
        before = {rv.name for rv in leaf_blocks(sch)}
        sch.use_kernel("root", STEP_BLOCKS, {})
        steps = [rv.name for rv in leaf_blocks(sch) if rv.name not in before]
        for step in steps:
            inline_injective(sch, step)
        blocks = [rv for scope in ("root", *steps) for rv in leaf_blocks(sch, scope)]
        done = {*steps, *(name for item in matrices for name in _multiply(sch, item, target))}
        rest = [rv for rv in blocks if rv.name not in done]
        warn_of_unscheduled(sch, schedule_apart(sch, rest, target))
        return sch


@dataclass(frozen=True)
class _Matrix:
    """The ``copy`` of a matrix that block ``main`` reads as ``operand``; results are along ``dim``.

    The copy has that dimension last.
    """

    main: str
    copy: str
    operand: BufferLoad
    dim: int

    def columns(self, *items: Any) -> tuple[Any, ...]:
        """Indices, or loops, with the dimension of results last."""
        return (*items[: self.dim], *items[self.dim + 1 :], items[self.dim])


def _copied(sch: Schedule, rv: BlockRV) -> _Matrix | None:
    """Make a block of a step read a copy of a matrix whose neighbours aren't results."""
    block = sch.get(rv)
    if block.init is None or not _is_of_a_step(block) or len(stores_of(block)) != 1:
        return None
    blocks = [sch.get(other) for other in leaf_blocks(sch)]
    written = {region.buffer for b in blocks if _is_of_a_step(b) for region in b.writes}
    for place, region in enumerate(block.reads):
        found = None if region.buffer in written else _across(block, region.buffer)
        if found is not None:
            copy = sch.cache_read(rv, place, "global")
            return _Matrix(rv.name, copy.name, *found)
    return None


def _is_of_a_step(block: Block) -> bool:
    return bool(block.iter_vars) and block.iter_vars[0].kind == OPAQUE


def _across(block: Block, buffer: Buffer) -> tuple[BufferLoad, int] | None:
    """The read of a matrix along the reduction, and its dimension along which results are."""
    (store,), loads = stores_of(block), [x for x in loads_of(block) if x.buffer is buffer]
    steps = [axis.var for axis in block.iter_vars if axis.kind == REDUCE]
    last, time = store.indices[-1], block.iter_vars[0].var
    if len(loads) != 1 or not isinstance(last, Var) or uses_var(loads[0], {time}):
        return None
    if not any(stride_of(loads[0].indices, buffer, var) == 1 for var in steps):
        return None
    dims = [dim for dim, index in enumerate(loads[0].indices[:-1]) if index is last]
    return (loads[0], dims[0]) if len(dims) == 1 else None


def _multiply(sch: Schedule, matrix: _Matrix, target: Target) -> Sequence[str]:
    """Lay out a matrix; return the blocks that are scheduled with it, if it is in panels."""
    attempt = sch.copy()
    try:
        if _in_panels(attempt, matrix, target):
            sch.become(attempt)
            return matrix.main, matrix.copy
    except ScheduleError:
        pass  # in columns, which any tile reads
    copy = sch.get_block(matrix.copy)
    sch.transform_layout(copy, ("write", 0), matrix.columns)
    loops = sch.get_loops(copy)
    sch.reorder(*matrix.columns(*loops))
    return ()


def _in_panels(sch: Schedule, matrix: _Matrix, target: Target) -> bool:
    """Multiply by panels that are as wide as a tile of several rows; return whether it is one."""
    main, copy = sch.get_block(matrix.main), sch.get_block(matrix.copy)
    sch.cache_write(main, 0, "global")  # where the sums are read
    columns = sch.copy()
    columns.transform_layout(copy, ("write", 0), matrix.columns)
    found = reduction_of(columns, main)
    if isinstance(found, NotApplicable):
        return False
    known = all(axis.extent is not None for axis in found.places)
    plans = rank_plans(found, target, most_rows=MOST_ROWS if known else _UNKNOWN_ROWS)
    plan = next((p for p in plans if p.packed is None and not p.padded and p.row is not None), None)
    if plan is None or (plan.vector.extent or 1) % plan.tile.columns:
        return False
    panels = Panels(matrix.dim, plan.tile.columns)
    lay_out(sch, copy, panels)
    schedule_packing(sch, copy, matrix.operand, panels, target)
    schedule_plan(sch, main, plan, target)
    return True


STEP_BLOCKS = "step_blocks"
"""The name that stands in records."""


@KERNELS.decorator(STEP_BLOCKS)
def step_blocks(func: PrimFunc, options: Mapping[str, object]) -> Block | str:
    """The function with a block around each step of its loops over time."""
    if options:
        return f"there is no option {next(iter(options))!r}"
    nests = nests_of(func)
    taken = {item.name for item in collect(func.body, Block)}
    taken |= {item.name for item in (*func.buffers, *func.root.alloc_buffers)}
    made, inside = list(nests), set[Buffer]()
    for place, nest in enumerate(nests):
        step = step_of(nest)
        if step is None:
            continue
        outside = {item.buffer for other in nests if other is not nest for item in _accesses(other)}
        local = set(func.root.alloc_buffers) - outside
        writing = _Step(step, local, taken)
        if fault := writing.fault():
            return fault
        made[place] = writing.build()
        inside |= writing.local
    if all(new is old for new, old in zip(made, nests)):
        return "it has no loop over time"
    kept = tuple(item for item in func.root.alloc_buffers if item not in inside)
    result: Block = func.root.replace(body=seq(*made), alloc_buffers=kept)
    return result


@dataclass(frozen=True)
class TimeStep:
    """A loop over time: the time of a step, by the loop's variable, and the blocks of a step."""

    loop: For
    axis: IterVar
    time: Expr
    blocks: tuple[BlockRealize, ...]


def step_of(nest: Stmt) -> TimeStep | None:
    """Read a loop over time, if this is one: its blocks have the time as their first axis."""
    if not isinstance(nest, For) or nest.kind != SERIAL or nest.annotations:
        return None
    blocks = child_blocks(nest.body)
    if not blocks or any(not item.block.iter_vars for item in blocks):
        return None
    axis, time = blocks[0].block.iter_vars[0], blocks[0].iter_values[0]
    for item in blocks:
        own, *others = item.block.iter_vars
        if own.kind != OPAQUE or any(other.kind == OPAQUE for other in others):
            return None
        if not structural_equal(item.iter_values[0], time) or child_blocks(item.block):
            return None
        if not is_const(item.predicate, True):
            return None
    return TimeStep(nest, axis, time, tuple(blocks))


class _Step:
    """Writes one loop over time; ``local`` are buffers that nothing else accesses."""

    def __init__(self, step: TimeStep, local: set[Buffer], taken: set[str]) -> None:
        self.step, self.taken = step, taken
        self.time = Var(step.axis.var.name, step.axis.var.dtype)
        self.blocks = [self._at_time(item.block) for item in step.blocks]
        accesses = [item for block in self.blocks for item in _accesses(block)]
        self.written = [region.buffer for block in self.blocks for region in block.writes]
        elsewhere = {item.buffer for item in accesses if not self._is_now(item)}
        self.local = {item for item in self.written if item in local and item not in elsewhere}
        self.now = {
            item: decl_buffer(
                item.shape[1:] or (1,), item.dtype, self._name(item), scope=item.scope
            )
            for item in self.written
        }

    def _name(self, buffer: Buffer) -> str:
        return buffer.name if buffer in self.local else fresh_name(f"{buffer.name}_now", self.taken)

    def _at_time(self, block: Block) -> Block:
        made: Block = substitute(block, {block.iter_vars[0].var: self.time})
        return made

    def _is_now(self, access: BufferLoad | BufferStore) -> bool:
        return bool(access.indices) and access.indices[0] is self.time

    def fault(self) -> str | None:
        """Say why a step can't be a block, if it can't."""
        ready: set[Buffer] = set()
        for block in self.blocks:
            name, stores = block.name, collect(block.body, BufferStore)
            if not all(map(self._is_now, stores)):
                return f"block {name!r} writes what is of another time"
            made = {item.buffer for item in stores}
            own = made if block.init is not None else set()
            for load in collect(block, BufferLoad):
                early = load.buffer in self.now and load.buffer not in ready | own
                if early and self._is_now(load):
                    return f"block {name!r} reads {load.buffer.name!r} before it is written"
            if len(made) < len(stores) or made & ready:
                return f"block {name!r} writes a buffer again"
            if not all(self._is_all(block, item) for item in stores):
                return f"block {name!r} writes a part of a step's results"
            ready |= made
        if uses_var(self._body(), {self.step.loop.loop_var}):
            return "loops of a step depend on the time"
        return None

    def _is_all(self, block: Block, store: BufferStore) -> bool:
        """Whether a block writes all elements of this time."""
        extents = {item.var: item.dom.extent for item in block.iter_vars if item.kind == SPATIAL}
        places = store.indices[1:]
        return len(set(places)) == len(places) and all(
            isinstance(place, Var) and place in extents and structural_equal(extents[place], extent)
            for place, extent in zip(places, store.buffer.shape[1:])
        )

    def build(self) -> Stmt:
        """The loop with one block."""
        body = seq(self._body(), *(self._keep(item) for item in self.now if item not in self.local))
        axis = self.step.axis.replace(var=self.time)
        name, alloc = fresh_name("step", self.taken), tuple(self.now.values())
        block = Block((axis,), (), (), name, body, alloc_buffers=alloc)
        reads, writes = block_access_regions(block)
        block = block.replace(reads=tuple(reads), writes=tuple(writes))
        made: Stmt = self.step.loop.replace(body=BlockRealize((self.step.time,), TRUE, block))
        return made

    def _body(self) -> Stmt:
        """The blocks of a step, without its time."""
        made = {
            old.block: BlockRealize(old.iter_values[1:], TRUE, self._without_time(block))
            for old, block in zip(self.step.blocks, self.blocks)
        }

        def renew(stmt: Stmt) -> Stmt:
            if isinstance(stmt, BlockRealize):
                return made[stmt.block]
            renewed: Stmt = stmt.map_children(lambda n: renew(n) if isinstance(n, Stmt) else n)
            return renewed

        return renew(self.step.loop.body)

    def _without_time(self, block: Block) -> Block:
        def renew(node: Any) -> Any:
            access = isinstance(node, (BufferLoad, BufferStore)) and node.buffer in self.now
            if not access or not self._is_now(node):
                return node
            indices = node.indices[1:] or (const(0),)
            return node.replace(buffer=self.now[node.buffer], indices=indices)

        init = None if block.init is None else rewrite_bottom_up(block.init, renew)
        made = block.replace(
            iter_vars=block.iter_vars[1:], body=rewrite_bottom_up(block.body, renew), init=init
        )
        reads, writes = block_access_regions(made)
        return made.replace(reads=tuple(reads), writes=tuple(writes))

    def _keep(self, state: Buffer) -> Stmt:
        """Copy what a step has made of a state to its place."""
        now = self.now[state]

        def copy(*at: Var) -> BufferStore:
            place = at if state.ndim > 1 else ()
            return BufferStore(state, BufferLoad(now, at), (self.time, *place))

        return over(now.shape, copy, fresh_name(f"{state.name}_next", self.taken))


def _accesses(stmt: Stmt) -> list[BufferLoad | BufferStore]:
    return [*collect(stmt, BufferLoad), *collect(stmt, BufferStore)]
