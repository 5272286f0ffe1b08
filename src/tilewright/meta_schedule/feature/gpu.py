"""Features of GPU kernels, for whole populations at once.

A scheduled program with symbolic tiles is walked once. For a population, addresses of the first
warp's threads are evaluated exactly, as arrays ``[candidates, 32]``: how many sectors of global
memory and turns of shared memory each access takes, how much shared memory and how many registers a
block needs, how many blocks run at once. From these follow the roofs of each kernel
(``scheduling.gpu.roofs``), which are the expected time of a candidate, and constraints on arrays:
what a GPU can't run is never built.

Extraction runs before postprocs, so the copies that ``RewriteCooperativeFetch`` will divide among
threads are taken as divided.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.arith import NotEvaluable, evaluate
from tilewright.ir import Expr, ExprLike, Var, const, dtypes, free_vars
from tilewright.meta_schedule.feature.numbers import Num, compiled
from tilewright.meta_schedule.feature.per_store import Evaluation, FeatureFunction
from tilewright.meta_schedule.feature.program import FLOP_KINDS, extract
from tilewright.meta_schedule.schedule_rule.binding import MAX_VTHREADS, WARP_SIZE
from tilewright.meta_schedule.schedule_rule.patterns import is_prepacking
from tilewright.scheduling.gpu import limits_of, roofs
from tilewright.target import Target
from tilewright.tir import Block, BlockRealize, Buffer, BufferLoad, BufferStore, For, PrimFunc
from tilewright.tir.attrs import AUTO_TENSORIZE, COOPERATIVE_FETCH, WARP_EXECUTION
from tilewright.tir.thread_scope import is_block_tag, is_shared, is_vthread

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

GPU_NAMES = (
    "gpu_threads gpu_blocks gpu_waves gpu_occupancy gpu_shared_bytes gpu_registers gpu_steps "
    "gpu_sectors gpu_sector_excess gpu_turns gpu_turn_excess gpu_instructions gpu_tensor_share "
    "gpu_issue gpu_shared gpu_l2 gpu_memory gpu_latency"
).split()
"""The last features of a store on a GPU, after those that every target has; ``log2(1 + x)``."""

_LATENCY_CYCLES = 700.0
"""From a load of global memory to its use, about (Citadel's microbenchmarks: 400 to 1000)."""
_UNROLLED = 512
"""Iterations of innermost loops that a compiler has one after the other, about."""
_SPILLED = 255
"""Registers of a thread; what it keeps beyond is in memory."""
_AXES = ("threadIdx.x", "threadIdx.y", "threadIdx.z")


@dataclass
class _Store:
    """A store of a kernel, with what is around it."""

    kernel: int
    loops: list[For]
    bindings: list[tuple[Var, Expr]]
    uses: dict[Var, set[Var]]
    """The loop variables that each variable of a binding depends on."""
    stmt: BufferStore
    fetch: Expr | None
    """The length of vectors, if the threads of a block share the loop around the store."""
    on_tensor_cores: bool
    flops: Mapping[str, float]


@dataclass
class _Memory:
    """Memory that a kernel allocates: the loops around all of its uses, and a use to measure it."""

    scope: str
    around: list[For]
    store: _Store
    indices: Sequence[Expr]
    is_read: bool


@dataclass
class _Kernels:
    """The stores of a program by kernel, and the memory that kernels allocate."""

    threads: list[dict[str, list[Expr]]] = field(default_factory=list)
    """The extents of the loops of each tag, by kernel."""
    stores: list[_Store] = field(default_factory=list)
    memory: dict[Buffer, _Memory] = field(default_factory=dict)


class GPUFeatureFunction(FeatureFunction):
    """Computes the features of all candidates of one program structure for a GPU."""

    def __init__(self, func: PrimFunc, tiles: Mapping[Var, Num], target: Target) -> None:
        super().__init__(extract(func, dict(tiles)), target)
        self._tiles = list(tiles)
        self._tile_columns = compiled(list(tiles.values()))
        self._kernels = _kernels_of(func, [store.flops for store in self.program.stores])

    def __call__(self, columns: Sequence[Array], count: int) -> Evaluation:
        """Evaluate ``count`` candidates whose decisions are ``columns``."""
        made = super().__call__(columns, count)
        features, seconds, valid = self._population(columns, count).evaluate()
        return Evaluation(
            np.concatenate((made.features, features), axis=2),
            seconds * 1e9,  # the scale doesn't matter, the order does
            valid,
            made.code,
        )

    def runnable(self, columns: Sequence[Array], count: int) -> Array:
        """Return which candidates are within the GPU's limits: ``valid`` without the rest."""
        return self._population(columns, count).runnable()

    def _population(self, columns: Sequence[Array], count: int) -> _Population:
        tiles = {
            var: np.broadcast_to(np.asarray(value), (count,)).astype(np.int64)[:, None]
            for var, value in zip(self._tiles, self._tile_columns(columns))
        }
        return _Population(self._kernels, tiles, count, self.target)


def _kernels_of(func: PrimFunc, flops: Sequence[Mapping[str, float]]) -> _Kernels:
    made, remaining = _Kernels(), iter(flops)

    def walk(node: Any, loops: list[For], bound: _Bound) -> None:
        kind = type(node)
        if kind is For:
            if not loops and node.thread is None and not _holds_threads(node):
                bound = replace(bound, in_kernel=False)
            if not loops:
                made.threads.append({})
            if node.thread is not None:
                made.threads[-1].setdefault(node.thread, []).append(node.extent)
            if WARP_EXECUTION in node.annotations:
                made.threads[-1].setdefault("threadIdx.x", []).append(const(WARP_SIZE))
            uses = {**bound.uses, node.loop_var: {node.loop_var}}
            walk(node.body, [*loops, node], replace(bound, uses=uses))
        elif kind is BlockRealize:
            if is_prepacking(node.block):
                return
            walk(node.block.body, loops, bound.of_block(node.block, node.iter_values))
        elif kind is BufferStore:
            _add_store(made, node, loops, bound, next(remaining))
        else:
            for item in node.child_nodes():
                if not isinstance(item, (Expr, Buffer)):
                    walk(item, loops, bound)

    walk(func.body, [], _Bound())
    return made


@dataclass(frozen=True)
class _Bound:
    """What is known of the variables around a statement, and how it runs."""

    bindings: tuple[tuple[Var, Expr], ...] = ()
    uses: Mapping[Var, set[Var]] = field(default_factory=dict)
    fetch: Expr | None = None
    on_tensor_cores: bool = False
    in_kernel: bool = True

    def of_block(self, block: Block, values: Iterable[Expr]) -> _Bound:
        bindings, uses = list(self.bindings), dict(self.uses)
        for iter_var, value in zip(block.iter_vars, values):
            bindings.append((iter_var.var, value))
            uses[iter_var.var] = {v for x in free_vars(value) for v in uses.get(x, ())}
        fetch = block.annotations.get(COOPERATIVE_FETCH)
        on_tensor_cores = self.on_tensor_cores or AUTO_TENSORIZE in block.annotations
        return _Bound(
            tuple(bindings),
            uses,
            self.fetch if fetch is None else _as_expr(fetch),
            on_tensor_cores,
            self.in_kernel,
        )


def _as_expr(value: ExprLike) -> Expr:
    return value if isinstance(value, Expr) else const(int(value))


def _holds_threads(node: Any) -> bool:
    if type(node) is For and node.thread is not None:
        return True
    below = (item for item in node.child_nodes() if not isinstance(item, (Expr, Buffer)))
    return any(map(_holds_threads, below))


def _add_store(
    made: _Kernels, stmt: BufferStore, loops: list[For], bound: _Bound, flops: Mapping[str, float]
) -> None:
    kernel = len(made.threads) - 1 if loops and bound.in_kernel else -1
    store = _Store(
        kernel, loops, list(bound.bindings), dict(bound.uses), stmt, bound.fetch,
        bound.on_tensor_cores, flops,
    )  # fmt: skip
    made.stores.append(store)
    uses = [(stmt.buffer, stmt.indices, False)]
    uses += [(load.buffer, load.indices, True) for load in _loads(stmt.value)]
    for buffer, indices, is_read in uses:
        if buffer.scope == "global":
            continue
        known = made.memory.get(buffer)
        if known is None:
            made.memory[buffer] = _Memory(buffer.scope, loops, store, indices, is_read)
            continue
        known.around = _common(known.around, loops)
        if is_read and not known.is_read:  # what reads it says better how large it is
            known.store, known.indices, known.is_read = store, indices, True


def _common(a: list[For], b: list[For]) -> list[For]:
    length = 0
    while length < min(len(a), len(b)) and a[length].loop_var is b[length].loop_var:
        length += 1
    return a[:length]


def _loads(node: object) -> list[BufferLoad]:
    if type(node) is BufferLoad:
        return [node]
    if not isinstance(node, Expr):
        return []
    return [load for item in node.child_nodes() for load in _loads(item)]


class _Population:
    """Numbers of candidates; arrays are ``[candidates, lanes]`` or ``[candidates, 1]``."""

    def __init__(
        self, kernels: _Kernels, tiles: Mapping[Var, Array], count: int, target: Target
    ) -> None:
        self.kernels, self.tiles, self.count, self.target = kernels, tiles, count, target
        self.lane = np.arange(target.gpu.warp_size)[None, :]
        self.extents = [
            {tag: self._greatest(sizes) for tag, sizes in found.items()}
            for found in kernels.threads
        ]
        self.threads = [self._product(n, lambda tag: tag in _AXES) for n in self.extents]
        self.blocks = [self._product(n, is_block_tag) for n in self.extents]
        self.shapes = {buffer: self._shape(item) for buffer, item in kernels.memory.items()}
        self.work = [roofs.Work() for _ in self.extents]
        self.steps = [np.ones(count) for _ in self.extents]

    def _number(self, expr: Expr) -> Array:
        """Evaluate an extent; one that isn't known counts as 1."""
        try:
            found = np.asarray(evaluate(expr, self.tiles))
        except NotEvaluable:
            found = np.ones(1, np.int64)
        return np.broadcast_to(found.reshape(-1, 1), (self.count, 1))

    def _greatest(self, sizes: Sequence[Expr]) -> Array:
        found = self._number(sizes[0])
        for size in sizes[1:]:
            found = np.maximum(found, self._number(size))
        return found

    def _product(self, extents: Mapping[str, Array], wanted: Any) -> Array:
        made = np.ones(self.count)
        for tag, extent in extents.items():
            if wanted(tag):
                made = made * extent[:, 0]
        return made

    # ---- memory

    def _shape(self, memory: _Memory) -> list[Array]:
        """The extents of a buffer once it is as large as what is in use at once."""
        store, around = memory.store, {loop.loop_var for loop in memory.around}
        low, high = dict(self.tiles), dict(self.tiles)
        for loop in store.loops:
            tag = loop.thread or ""
            inside = loop.loop_var not in around
            if is_vthread(tag) or tag in _AXES:
                inside = is_shared(memory.scope)
            elif is_block_tag(tag):
                inside = False
            low[loop.loop_var] = np.zeros((1, 1), np.int64)
            last = self._number(loop.extent) - 1
            high[loop.loop_var] = last if inside else low[loop.loop_var]
        shape = []
        for index in memory.indices:
            ends = [self._index(index, store, values) for values in (low, high)]
            known = ends[0] is not None and ends[1] is not None
            size = ends[1] - ends[0] + 1 if known else np.ones((1, 1), np.int64)
            shape.append(np.maximum(np.broadcast_to(size, (self.count, 1)), 1))
        return shape

    def _index(self, index: Expr, store: _Store, values: dict[Var, Array]) -> Any:
        try:
            for var, value in store.bindings:
                values[var] = evaluate(value, values)
            return np.asarray(evaluate(index, values))
        except NotEvaluable:
            return None

    def _bytes(self, kernel: int, *, shared: bool) -> Array:
        """Bytes of a block, or of a thread, which stands for as many as it has virtual threads."""
        total = np.zeros(self.count)
        for buffer, shape in self.shapes.items():
            held = self.kernels.memory[buffer].store.kernel == kernel
            if held and is_shared(buffer.scope) == shared:
                size = prod(n[:, 0] for n in shape) * _bytes_of(buffer)
                # The lanes of a warp share fragments.
                is_fragment = not shared and buffer.scope != "local"
                total = total + (size / self.target.gpu.warp_size if is_fragment else size)
        return total if shared else total * self._product(self.extents[kernel], is_vthread)

    # ---- accesses

    def evaluate(self) -> tuple[Array, Array, Array]:
        """Return features ``[candidates, stores, names]``, seconds, and what a GPU can run."""
        rows = [self._store(store) for store in self.kernels.stores]
        seconds, whole = np.zeros(self.count), []
        for kernel in range(len(self.extents)):
            numbers, time = self._kernel(kernel)
            seconds = seconds + time
            whole.append(numbers)
        names = len(GPU_NAMES)
        features = np.zeros((self.count, len(rows), names), np.float32)
        for place, (store, row) in enumerate(zip(self.kernels.stores, rows)):
            known = whole[store.kernel] if store.kernel >= 0 else {}
            for n, name in enumerate(GPU_NAMES):
                value = row[name] if name in row else known.get(name, 0.0)
                features[:, place, n] = np.log2(1.0 + np.maximum(value, 0.0))
        return features, seconds, self.runnable()

    def runnable(self) -> Array:
        """Return which candidates are within the GPU's limits."""
        limits, good = limits_of(self.target), np.ones(self.count, bool)
        for kernel, extents in enumerate(self.extents):
            launch = self._launch(kernel)
            good &= (launch.threads <= limits.max_threads) & (launch.registers <= _SPILLED)
            good &= launch.shared_bytes <= limits.max_shared_memory
            good &= self._product(extents, is_vthread) <= MAX_VTHREADS
        return good

    def _launch(self, kernel: int) -> roofs.Launch:
        return roofs.Launch(
            self.blocks[kernel],
            self.threads[kernel],
            self._bytes(kernel, shared=True),
            np.ceil(self._bytes(kernel, shared=False) / 4),
        )

    def _kernel(self, kernel: int) -> tuple[dict[str, roofs.Amount], Array]:
        launch, target = self._launch(kernel), self.target
        resident = np.maximum(launch.resident(target), 1)
        waves = launch.blocks / (limits_of(target).processors * resident)
        times = roofs.seconds(self.work[kernel], launch, target)
        clock = float(target.options.get("clock", roofs.LEAST_CLOCK)) * 1e6
        latency = np.ceil(waves) * self.steps[kernel] * _LATENCY_CYCLES / clock
        numbers = {
            "gpu_threads": launch.threads,
            "gpu_blocks": launch.blocks,
            "gpu_waves": waves,
            "gpu_occupancy": resident * launch.threads / target.gpu.threads_per_sm * 100,
            "gpu_shared_bytes": launch.shared_bytes,
            "gpu_registers": launch.registers,
            "gpu_steps": self.steps[kernel],
            **{f"gpu_{name}": time * 1e9 for name, time in times.items()},
            "gpu_latency": latency * 1e9,
        }
        slowest = np.max([np.broadcast_to(n, (self.count,)) for n in times.values()], axis=0)
        return numbers, np.maximum(slowest, latency)

    def _store(self, store: _Store) -> dict[str, Array]:
        """Add a store's work to its kernel, and return its own features."""
        if store.kernel < 0:
            return {}
        work, values = self.work[store.kernel], dict(self.tiles)
        mask, times, warps = self._place(store, values)
        total = np.broadcast_to(times * warps, (self.count, 1))[:, 0] * self.blocks[store.kernel]
        self._operations(store, work, total)
        made: dict[str, Array] = {
            name: np.zeros(self.count)
            for name in ("gpu_sectors", "gpu_turns", "gpu_sector_ideal", "gpu_turn_ideal")
        }
        uses = [(store.stmt.buffer, store.stmt.indices)]
        uses += [(load.buffer, load.indices) for load in _loads(store.stmt.value)]
        for number, (buffer, indices) in enumerate(uses):
            if buffer.scope != "global" and not is_shared(buffer.scope):
                continue
            runs = total / self._reused(store, indices) if number else total
            kind, found, least = self._access(store, buffer, indices, values, mask)
            work.accesses = work.accesses + runs
            if kind == "turn":
                work.turns = work.turns + runs * found
            else:
                work.sectors = work.sectors + runs * found
                far = runs * found
                if number:
                    far = self._far(buffer, far, self.blocks[store.kernel])
                work.l2_sectors = work.l2_sectors + far
                work.moves = work.moves + runs
                work.memory_bytes = work.memory_bytes + self._touched(buffer, runs * found)
            made[f"gpu_{kind}s"] = made[f"gpu_{kind}s"] + runs * found
            made[f"gpu_{kind}_ideal"] = made[f"gpu_{kind}_ideal"] + runs * least
        for kind in ("sector", "turn"):
            ideal = np.maximum(made.pop(f"gpu_{kind}_ideal"), 1.0)
            made[f"gpu_{kind}_excess"] = made[f"gpu_{kind}s"] / ideal
        made["gpu_instructions"] = total
        made["gpu_tensor_share"] = np.full(self.count, float(store.on_tensor_cores))
        return made

    def _place(self, store: _Store, values: dict[Var, Array]) -> tuple[Array, Array, Array]:
        """Give loop variables values for the first warp; return its lanes, times and warps."""
        extents = self.extents[store.kernel]
        mask, times = np.ones((1, 1), bool), np.ones((self.count, 1))
        place, rest = {}, self.lane
        for tag in _AXES:
            extent = extents.get(tag, np.ones((1, 1), np.int64))
            place[tag], rest = rest % extent, rest // extent
        mask = mask & (rest == 0)
        for loop in store.loops:
            tag, extent = loop.thread or "", self._number(loop.extent)
            values[loop.loop_var] = np.zeros((1, 1), np.int64)
            if tag in _AXES:
                values[loop.loop_var] = place[tag]
                mask = mask & (place[tag] < extent)
            elif is_vthread(tag) and store.fetch is not None:
                pass  # virtual threads share what their block fetched
            elif not is_block_tag(tag):
                times = times * extent
        warps = np.ceil(self.threads[store.kernel] / self.target.gpu.warp_size)[:, None]
        if store.fetch is not None and store.loops:
            last, length = store.loops[-1], self._number(store.fetch)
            extent = self._number(last.extent)
            values[last.loop_var] = self.lane * length
            mask = np.ones((1, 1), bool) & (self.lane * length < extent)
            times = times / extent
            steps = times[:, 0]
            self.steps[store.kernel] = np.maximum(self.steps[store.kernel], steps)
            warps = np.ceil(extent / (length * self.target.gpu.warp_size))
        for var, value in store.bindings:
            try:
                values[var] = evaluate(value, values)
            except NotEvaluable:
                continue
        return mask, times, warps

    def _operations(self, store: _Store, work: roofs.Work, total: Array) -> None:
        flops = {kind: max(store.flops.get(kind, 0.0), 0.0) for kind in FLOP_KINDS}
        warp = self.target.gpu.warp_size
        if store.on_tensor_cores:
            # The loops around aren't bound to the lanes of the warp that computes them together.
            work.tensor_flops = work.tensor_flops + total * 2 * flops["mad"]
            return
        fused = flops["mad"] + flops["add"] + flops["mul"]
        work.multiply_adds = work.multiply_adds + total * fused
        work.specials = work.specials + total * (flops["math"] + flops["div"])
        work.others = work.others + total * (flops["compare"] + flops["integer"] + flops["select"])
        work.flops = work.flops + total * (fused + flops["mad"]) * warp

    def _reused(self, store: _Store, indices: Sequence[Expr]) -> Array:
        """How many iterations of innermost, unrolled loops use what was loaded for one."""
        used = {v for index in indices for x in free_vars(index) for v in store.uses.get(x, {x})}
        reach, made = np.ones(self.count), np.ones(self.count)
        for loop in reversed(store.loops):
            if loop.thread is not None:
                break
            extent = self._number(loop.extent)[:, 0]
            reach = reach * extent
            if loop.loop_var not in used:
                made = np.where(reach <= _UNROLLED, made * extent, made)
        return made

    def _access(
        self,
        store: _Store,
        buffer: Buffer,
        indices: Sequence[Expr],
        values: dict[Var, Array],
        mask: Array,
    ) -> tuple[str, Array, Array]:
        """Return what an access is counted in, how many for a warp, and how few could be."""
        shape = self.shapes.get(buffer) or [self._number(extent) for extent in buffer.shape]
        in_shared = is_shared(buffer.scope)
        address, known = np.zeros((1, 1), np.int64), True
        for index, extent in zip(indices, shape):
            try:
                address = address * extent + np.asarray(evaluate(index, values))
            except NotEvaluable:
                known = False
        lanes = (self.count, self.lane.shape[1])
        active = np.broadcast_to(mask, lanes)
        size = _bytes_of(buffer)
        whole = max(1, int(size))
        if store.fetch is not None:
            lengths = np.broadcast_to(self._number(store.fetch), (self.count, 1))[:, 0]
        else:
            lengths = np.ones(self.count, np.int64)
        unit = roofs.BANKS * roofs.BANK_BYTES if in_shared else roofs.SECTOR_BYTES
        ideal = np.ceil(active.sum(axis=1) * lengths * size / unit)
        kind = "turn" if in_shared else "sector"
        if not known:  # by data: each lane somewhere else
            return kind, active.sum(axis=1).astype(float), ideal
        start = (np.broadcast_to(address, lanes) * size).astype(np.int64)
        count = roofs.turns if in_shared else roofs.sectors
        found = np.zeros(self.count)
        for length in np.unique(lengths):
            rows = lengths == length
            found[rows] = count(start[rows], active[rows], whole * int(length))
        return kind, found, ideal

    def _far(self, buffer: Buffer, sectors: Array, blocks: Array) -> Array:
        """The sectors of reads that come from further: each block reads small buffers once."""
        whole = prod(self._number(extent)[:, 0] for extent in buffer.shape) * _bytes_of(buffer)
        once = blocks * np.ceil(whole / roofs.SECTOR_BYTES)
        made: Array = np.where(whole <= roofs.CACHED_BYTES, np.minimum(sectors, once), sectors)
        return made

    def _touched(self, buffer: Buffer, sectors: Array) -> Array:
        whole = prod(self._number(extent)[:, 0] for extent in buffer.shape) * _bytes_of(buffer)
        made: Array = np.minimum(sectors * roofs.SECTOR_BYTES, whole)
        return made


def _bytes_of(buffer: Buffer) -> float:
    return dtypes.bits_of(buffer.dtype) * dtypes.lanes_of(buffer.dtype) / 8
