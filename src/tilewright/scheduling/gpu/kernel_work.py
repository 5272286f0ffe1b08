"""The work of a lowered kernel, counted without a device: accesses to memory, and arithmetic.

Each access to memory is evaluated for a few warps: how many 32-byte sectors of global memory it
touches, how often shared memory must be asked (bank conflicts). Loads that the compiler makes once
are counted once: of the same place between two stores, and of a place that innermost loops of few
iterations don't change. Not counted is index arithmetic. ``kernel_bounds`` turns it into times.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.arith import NotEvaluable, evaluate
from tilewright.ir import (
    Add,
    BinaryExpr,
    Broadcast,
    Call,
    Cast,
    CompareExpr,
    Expr,
    Let,
    Mul,
    Ramp,
    Select,
    StringImm,
    Sub,
    Var,
    as_int,
    const,
    dtypes,
    substitute,
    uses_var,
)
from tilewright.scheduling.gpu import roofs
from tilewright.scheduling.gpu.kernel_places import (
    constant_places,
    copies_of_boxes,
    is_unrolled,
    loads,
    read_places,
)
from tilewright.support.errors import LowerError
from tilewright.target import Target
from tilewright.tir import BufferLoad, BufferStore, For, PrimFunc
from tilewright.tir.buffer import Buffer
from tilewright.tir.gpu_ops import GPU_OPS, POINTERS, number_operand, tensor_box, tile_at
from tilewright.tir.lanes import scalarized
from tilewright.tir.stmt import Evaluate, IfThenElse, LetStmt, Stmt, While
from tilewright.tir.thread_scope import is_block_tag, is_shared
from tilewright.tir.transform import launch_extents

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Lanes = NDArray[Any]

_SAMPLES = 8
_TILE_ROWS, _TILE_BYTES = 8, 16  # what ``ldmatrix`` reads at once
_SPECIAL = frozenset(
    "exp exp2 exp10 log log2 log10 log1p expm1 sqrt rsqrt sin cos tan tanh sigmoid erf pow "
    "sinh cosh asin acos atan atan2 asinh acosh atanh fast_exp fast_tanh fast_erf".split()
)
TENSOR_OPERATORS = frozenset(("ptx_mma", "ptx_wgmma", "tvm_mma_sync"))
"""Operators of tensor cores: one of their arguments is a text such as ``m16n8k16``."""
WARPS_OF_GROUP = 4
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_BYTES = frozenset(("int8", "uint8", "e4m3", "e5m2"))


@dataclass(frozen=True)
class MemoryAccess:
    """One access of a kernel: a load or a store of a place in the program."""

    buffer: str
    scope: str
    is_write: bool
    lane_bytes: int
    """Bytes that a thread moves with one instruction."""
    warps: float
    """How often warps run it, in the whole grid."""
    transactions: float
    """On average, for a warp: sectors of global memory, or turns of shared memory."""
    ideal: float
    """The same, if neighbouring threads accessed neighbouring memory."""

    @property
    def excess(self) -> float:
        """How many times more transactions there are than necessary: 1 is perfect."""
        return self.transactions / self.ideal if self.ideal else 1.0


class KernelWork:
    """Walks a kernel with values of its variables for a few warps: arrays ``[samples, lanes]``."""

    def __init__(self, name: str, func: PrimFunc, target: Target, sizes: Mapping[str, int]) -> None:
        self.name, self.func, self.target = name, func, target
        self.gpu = target.gpu
        self.generator = np.random.default_rng(0)
        # Roles of warps differ where one thread copies for all: each warp is a sample, in blocks
        # from all of the grid, as some have a turn more than others. The first block has the most
        # turns, maybe it alone: it isn't one of those that stand for all, but shows the most work.
        self.has_roles = any(True for _ in copies_of_boxes(func.body))
        self.busiest = 1.0  # what a block computes at most, by what it does on average
        self.values: dict[Var, Any] = {}
        for var in (*func.params, *func.symbolic_vars()):
            if var.name in sizes:
                self.values[var] = np.full((1, 1), sizes[var.name])
        extents = {tag: self._number(size, tag) for tag, size in launch_extents(func).items()}
        self.blocks = prod(n for tag, n in extents.items() if is_block_tag(tag))
        self.extents = [extents.get(f"threadIdx.{axis}", 1) for axis in "xyz"]
        self.threads = prod(self.extents)
        self.warps = ceil(self.threads / self.gpu.warp_size)
        stand = np.array([0] * self.has_roles + [1] * _SAMPLES)
        self.weights = np.repeat(stand / stand.mean(), self.warps if self.has_roles else 1)
        self.samples = len(self.weights)
        self.active = self._place_warps()
        self.work = roofs.Work()
        self.accesses: list[MemoryAccess] = []
        self.innermost: list[tuple[Var, Lanes]] = []
        """The unrolled loops around what is looked at, and how often each runs."""
        self.loaded: set[tuple[Buffer, str]] = set()
        self.read = read_places(self.body)

    def _number(self, size: Expr, tag: str) -> int:
        try:
            return int(np.max(evaluate(size, self.values)))
        except NotEvaluable:
            raise LowerError(
                f"{self.name}: the extent of {tag} is {size!r}: give `sizes` for its variables"
            ) from None

    def _place_warps(self) -> Lanes:
        """Draw warps of the grid, the first one first; return which of their lanes are threads."""
        width, count = self.gpu.warp_size, self.warps
        warp = np.concatenate(([0], self.generator.integers(0, count, self.samples - 1)))
        if self.has_roles:
            warp = np.tile(np.arange(count), _SAMPLES + 1)
        thread = warp[:, None] * width + np.arange(width)[None, :]
        place, rest = {}, thread
        for axis, extent in zip("xyz", self.extents):
            place[f"threadIdx.{axis}"] = rest % extent
            rest = rest // extent
        body: Any = self.func.body
        while not (isinstance(body, For) and body.thread is not None):
            body = body.body
        while isinstance(body, For) and body.thread is not None:
            tag = body.thread
            drawn = place.get(tag)
            if drawn is None:
                drawn = self._drawn(self._number(body.extent, tag))
            self.values[body.loop_var] = drawn
            body = body.body
        self.body: Stmt = body
        made: Lanes = thread < self.threads
        return made

    def _drawn(self, extent: int) -> Lanes:
        if self.has_roles:
            # The middles of parts of the grid, in an order of each axis' own.
            spread = (2 * np.arange(_SAMPLES) + 1) * max(extent, 1) // (2 * _SAMPLES)
            places = [0, *self.generator.permutation(spread)]
            return np.repeat(places, self.warps)[:, None]
        values = self.generator.integers(0, max(extent, 1), (self.samples, 1))
        values[0] = 0
        return values

    # ---- statements

    def count(self) -> None:
        """Walk the kernel."""
        if self.blocks and self.threads:
            self.stmt(self.body, self.active, np.ones((self.samples, 1)))

    def stmt(self, node: Any, mask: Lanes, times: Lanes) -> None:
        """Count a statement that the lanes of ``mask`` run ``times``."""
        kind = type(node)
        if kind is For:
            extent = self.known(node.extent)
            trips = np.ones((1, 1)) if extent is None else np.maximum(extent, 0)
            trips = np.max(np.broadcast_to(trips, mask.shape), axis=1, keepdims=True)
            start = self.known(node.min)
            drawn = (self.generator.random((self.samples, 1)) * trips).astype(np.int64)
            drawn[0] = 0
            self.values[node.loop_var] = drawn + (0 if start is None else start)
            around = self.innermost
            unrolled = is_unrolled(node)
            self.innermost = [*around, (node.loop_var, trips)] if unrolled else []
            loaded, self.loaded = self.loaded, self.loaded if unrolled else set()
            self.stmt(node.body, mask & (trips > 0), times * trips)
            self.innermost, self.loaded = around, loaded
        elif kind is IfThenElse:
            self.expr(node.condition, mask, times)
            yes = self._condition(node.condition)
            self.stmt(node.then_case, mask & yes, times)
            if node.else_case is not None:
                self.stmt(node.else_case, mask & ~yes, times)
        elif kind is BufferStore and self._is_dead(node):
            pass
        elif kind is BufferStore:
            self.expr(node.value, mask, times)
            self._access(node.buffer, node.indices, True, mask, times)
            self.loaded = {item for item in self.loaded if item[0].data is not node.buffer.data}
        elif kind is LetStmt:
            self.expr(node.value, mask, times)
            self._define(node.var, node.value)
            self.stmt(node.body, mask, times)
        elif kind is Evaluate:
            self.expr(node.value, mask, times)
            self.loaded.clear()  # a barrier, or something else with an effect
        else:
            if kind is While:
                self.expr(node.condition, mask, times)
            for item in node.child_nodes():
                if isinstance(item, Stmt):
                    self.stmt(item, mask, times)

    def _is_dead(self, store: BufferStore) -> bool:
        """Whether a store to registers sets only what nobody reads: a compiler leaves it out."""
        if store.buffer.scope != "local":
            return False
        read, written = self.read.get(store.buffer.data), constant_places(store.indices)
        return written is not None and read is not None and not (written & read)

    def known(self, value: Expr) -> Lanes | None:
        """Return the values of an expression, of the first lane; ``None`` if it needs data."""
        return self._known_lane(value, 0)

    def _known_lane(self, value: Expr, lane: int) -> Lanes | None:
        if dtypes.lanes_of(value.dtype) > 1:
            number = Var("lane", "int64")
            alone = scalarized(value, number)
            if alone is None:
                return None
            value = substitute(alone, {number: const(lane)})
        try:
            return np.atleast_2d(evaluate(value, self.values))
        except NotEvaluable:
            return None

    def _condition(self, condition: Expr) -> Lanes:
        """Where a condition holds, for any lane; what depends on data is taken to hold."""
        lanes = dtypes.lanes_of(condition.dtype)
        holds = [self._known_lane(condition, lane) for lane in range(lanes)]
        known = [item.astype(bool) for item in holds if item is not None]
        return np.ones((1, 1), bool) if len(known) < lanes else np.logical_or.reduce(known)

    def _define(self, var: Var, value: Expr) -> None:
        known = self.known(value)
        if known is not None:
            self.values[var] = known

    # ---- expressions

    def expr(self, node: Any, mask: Lanes, times: Lanes) -> None:
        """Count what an expression computes and loads."""
        kind = type(node)
        if kind is BufferLoad:
            self._access(node.buffer, node.indices, False, mask, times)
            return
        if kind is Let:
            self.expr(node.value, mask, times)
            self._define(node.var, node.value)
            self.expr(node.body, mask, times)
            return
        name = node.op.name if kind is Call else ""
        if kind is Select or name == "if_then_else":
            condition, yes, no = node.child_nodes()
            self.expr(condition, mask, times)
            holds = self._condition(condition)
            self.expr(yes, mask & holds, times)
            self.expr(no, mask & ~holds, times)
            self._add("others", node.dtype, mask, times)
            return
        if name == "tile_of":
            self._tile(node, mask, times)
        if name in POINTERS:
            return
        if name == "ptx_wgmma":
            self._warpgroup_product(node, mask, times)
            return
        if name == "ptx_cp_async":
            self._copy_ahead(node, mask, times)
            return
        if name == "ptx_cp_async_bulk_tensor":
            self._box(node, mask, times)
            return
        if self._is_index(node):
            return
        below = node.child_nodes()
        if kind in (Add, Sub) and dtypes.is_float(node.dtype):
            product = next((item for item in (node.b, node.a) if type(item) is Mul), None)
            if product is not None:  # one instruction: a multiply-add
                below = [*product.child_nodes(), node.a if product is node.b else node.b]
                self.work.flops += self._count(node.dtype, mask, times, lanes=True)
        for item in below:
            if isinstance(item, Expr):
                self.expr(item, mask, times)
        self._operation(node, kind, name, mask, times)

    def _is_index(self, node: Any) -> bool:
        """Whether an expression is arithmetic of indices: computed from no data."""
        if not isinstance(node, BinaryExpr) or isinstance(node, CompareExpr):
            return False
        return dtypes.is_integer(node.dtype) and self.known(node) is not None

    def _operation(self, node: Any, kind: type, name: str, mask: Lanes, times: Lanes) -> None:
        if name in TENSOR_OPERATORS:
            flops = _tensor_flops(node)
            # The whole warp computes it.
            share = 0.5 if _texts(node) & _BYTES else 1.0  # twice the rate of half floats
            share /= roofs.MMA_OF_PEAK.get(self.gpu.capability, 1.0)
            self.work.tensor_flops += share * flops * self._count("int32", mask, times)
            self.work.flops += flops * self._count("int32", mask, times)
        elif name in _SPECIAL:
            self._add("specials", node.dtype, mask, times)
            self.work.flops += self._count(node.dtype, mask, times, lanes=True)
        elif isinstance(node, BinaryExpr) and not isinstance(node, CompareExpr):
            is_float = dtypes.is_float(node.dtype)
            self._add("multiply_adds" if is_float else "others", node.dtype, mask, times)
            if is_float:
                self.work.flops += self._count(node.dtype, mask, times, lanes=True)
        elif kind is Call or isinstance(node, (CompareExpr, Cast)):
            self._add("others", node.dtype, mask, times)

    def _warpgroup_product(self, node: Call, mask: Lanes, times: Lanes) -> None:
        """Count a product of four warps, which reads both operands at the rate of all banks."""
        count = self._count("int32", mask, times) / WARPS_OF_GROUP
        flops = _tensor_flops(node)
        if self.has_roles:
            active = np.broadcast_to(mask, (self.samples, self.gpu.warp_size)).any(axis=1)
            runs = (active * np.broadcast_to(times, (self.samples, 1))[:, 0]).reshape(
                -1, self.warps
            )
            of_block = runs.sum(axis=1)
            if of_block[1:].any():
                self.busiest = max(self.busiest, float(of_block.max() / of_block[1:].mean()))
        self.work.flops += flops * count
        self.work.tensor_flops += (0.5 if _texts(node) & _BYTES else 1.0) * flops * count
        tiles = [tile_at(item) for item in node.args if _is_tile(item)]
        read = sum(x.rows * x.columns * dtypes.bytes_of(x.along.buffer.dtype) for x in tiles)
        self.work.turns += count * read / roofs.SHARED_BYTES_PER_CLOCK

    def _box(self, node: Call, mask: Lanes, times: Lanes) -> None:
        """Count a copy of a box, which hardware reads in whole sectors and writes to all banks.

        Where several blocks of a cluster get it, it is read once, and written to each.
        """
        buffer = tile_at(node.args[1]).along.buffer
        size = prod(item.box for item in tensor_box(node)) * dtypes.bytes_of(buffer.dtype)
        sectors = size / roofs.SECTOR_BYTES
        count = self._count("int32", mask, times)
        self.accesses.append(
            MemoryAccess(buffer.name, "global", False, 16, count, sectors, sectors)
        )
        sent = self.known(GPU_OPS[node.op.name].named(node)["mask"])
        receivers = 1 if sent is None else max(1, int(np.max(sent)).bit_count())
        self.work.turns += receivers * count * size / (roofs.BANKS * roofs.BANK_BYTES)

    def _copy_ahead(self, node: Call, mask: Lanes, times: Lanes) -> None:
        """Count a copy that passes no registers: one instruction, and one write of shared memory.

        Where it only brings zeros nothing is read.
        """
        operands = GPU_OPS[node.op.name].named(node)
        size = number_operand(operands, "bytes")
        lanes = self.samples, self.gpu.warp_size
        read = mask
        if "source_bytes" in operands:
            read = mask & self._condition(operands["source_bytes"] > 0)
        for name, where in (("source", read), ("target", mask)):
            load = tile_at(operands[name]).along
            first = self._first(load.indices[-1])
            active = np.broadcast_to(where, lanes)
            runs = np.broadcast_to(times, (self.samples, 1))[:, 0] * active.any(axis=1)
            if first is not None and runs.any():
                start = np.broadcast_to(first, lanes) * dtypes.bytes_of(load.buffer.dtype)
                place = start, active, size
                self._transactions(load.buffer, name == "target", place, runs, copied=True)
        self._add("others", "int32", mask, times)

    def _first(self, index: Expr) -> Lanes | None:
        return self.known(index.base if type(index) is Ramp else index)

    def _count(self, dtype: str, mask: Lanes, times: Lanes, *, lanes: bool = False) -> float:
        """How often warps run an instruction of a dtype's lanes; or threads, if ``lanes``."""
        active = np.broadcast_to(mask, (self.samples, self.gpu.warp_size))
        per = active.sum(axis=1) if lanes else active.any(axis=1)
        runs = per * times[:, 0] if times.shape[0] > 1 else per
        mean = float((runs * self.weights).mean())
        return mean * self.warps * self.blocks * dtypes.lanes_of(dtype)

    def _add(self, what: str, dtype: str, mask: Lanes, times: Lanes) -> None:
        count = self._count(dtype, mask, times)
        if dtypes.bits_of(dtype) == 16 and dtypes.lanes_of(dtype) > 1:
            count /= 2  # pairs of half floats
        setattr(self.work, what, getattr(self.work, what) + count)

    # ---- memory

    def _access(
        self,
        buffer: Buffer,
        indices: Sequence[Expr],
        is_write: bool,
        mask: Lanes,
        times: Lanes,
    ) -> None:
        for load in (item for index in indices for item in loads(index)):
            self._access(load.buffer, load.indices, False, mask, times)
        if buffer.scope != "global" and not is_shared(buffer.scope):
            return
        if not is_write:
            key = buffer, repr(indices)
            if key in self.loaded:
                return
            self.loaded.add(key)
            for var, trips in self.innermost:
                if not any(uses_var(index, {var}) for index in indices):
                    times = times / np.maximum(trips, 1)
        size = dtypes.bits_of(buffer.dtype) * dtypes.lanes_of(buffer.dtype) // 8 or 1
        for first, width in self._elements(indices[-1]):
            if first is None:
                continue
            lanes = (self.samples, self.gpu.warp_size)
            start = np.broadcast_to(first, lanes) * size
            active = np.broadcast_to(mask, lanes)
            runs = np.broadcast_to(times, (self.samples, 1))[:, 0] * active.any(axis=1)
            if runs.any():
                self._transactions(buffer, is_write, (start, active, width * size), runs)

    def _tile(self, node: Call, mask: Lanes, times: Lanes) -> None:
        """Add an access of a warp to a tile of shared memory: 8 rows of 16 bytes at a time."""
        down, along = node.args
        if not (isinstance(down, BufferLoad) and isinstance(along, BufferLoad)):
            return
        buffer, rows = down.buffer, down.indices[-1]
        if not is_shared(buffer.scope) or not isinstance(rows, Ramp):
            return
        base, pitch = self.known(rows.base), as_int(rows.stride)
        size = dtypes.bits_of(buffer.dtype) // 8
        if base is None or pitch is None or not size:
            return
        lanes = np.arange(_TILE_ROWS)[None, :]
        start = np.broadcast_to(base[:, :1] + lanes * pitch, (self.samples, _TILE_ROWS)) * size
        parts = rows.lanes * dtypes.lanes_of(along.dtype) * size / (_TILE_ROWS * _TILE_BYTES)
        active = np.broadcast_to(mask, (self.samples, self.gpu.warp_size)).any(axis=1)
        runs = np.broadcast_to(times, (self.samples, 1))[:, 0] * active * parts
        if runs.any():
            place = start, np.ones(start.shape, bool), _TILE_BYTES
            self._transactions(buffer, False, place, runs)

    def _transactions(
        self,
        buffer: Buffer,
        is_write: bool,
        place: tuple[Lanes, Lanes, int],
        runs: Lanes,
        *,
        copied: bool = False,
    ) -> None:
        """Add an access whose samples run a number of times.

        Of what is ``copied`` from memory to memory only the write takes the way into the latter.
        """
        work, (_, active, size) = self.work, place
        runs = runs * self.weights
        if not runs.any():
            return
        in_shared = is_shared(buffer.scope)
        found = (roofs.turns if in_shared else roofs.sectors)(*place)
        unit = roofs.BANKS * roofs.BANK_BYTES if in_shared else roofs.SECTOR_BYTES
        ideal = np.ceil(active.sum(axis=1) * size / unit)
        weight = runs / runs.sum()
        made = MemoryAccess(
            buffer.name,
            buffer.scope,
            is_write,
            size,
            float(runs.mean()) * self.warps * self.blocks,
            float((found * weight).sum()),
            float((ideal * weight).sum()),
        )
        self.accesses.append(made)
        work.accesses += 0 if copied else made.warps
        if in_shared:
            work.turns += made.warps * made.transactions
        elif not copied:
            work.sectors += made.warps * made.transactions
            work.moves += made.warps * max(1.0, size / 4)

    def _elements(self, index: Expr) -> Iterator[tuple[Lanes | None, int]]:
        """Yield the first element and the number of elements of each instruction of an access."""
        if type(index) is Ramp:
            base, step = self.known(index.base), as_int(index.stride)
            if step == 1:
                yield base, index.lanes
                return
            for lane in range(index.lanes):
                yield (None if base is None or step is None else base + lane * step), 1
            return
        if isinstance(index, Broadcast):
            index = index.value
        for lane in range(dtypes.lanes_of(index.dtype)):
            yield self._known_lane(index, lane), 1


def _is_tile(node: Expr) -> bool:
    return type(node) is Call and node.op.name == "tile_of"


def _texts(node: Call) -> set[str]:
    return {item.value for item in node.args if isinstance(item, StringImm)}


def _tensor_flops(node: Call) -> float:
    """Return the operations of a warp: two for each product; 16 by 16 by 16 if no text says."""
    shape = next((found for found in map(_SHAPE.fullmatch, _texts(node)) if found), None)
    return 2.0 * prod(map(int, shape.groups() if shape else (16, 16, 16)))
