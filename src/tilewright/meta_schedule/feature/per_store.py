"""Features of stores, for whole populations at once.

For each store statement: operations by kind; lengths of vectorised, parallel and unrolled loops;
for each of its accesses bytes moved, footprints, reuse and strides; arithmetic intensity at ten
points of the loop nest; allocation. The groups are those of Ansor (Zheng et al., OSDI 2020,
appendix B), plus features for CPUs: register tiles, cache traffic, row strides that collide in L1,
and the time that a simple machine model predicts from all this.

There is only one implementation: every quantity is an array over candidates. A concrete schedule is
a population of one, with constant extents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.meta_schedule.feature.numbers import Pool, compiled
from tilewright.meta_schedule.feature.program import (
    FLOP_KINDS,
    Access,
    BufferInfo,
    Program,
    StoreInfo,
)
from tilewright.target import Target

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

MAX_ACCESSES = 5
INTENSITY_POINTS = 10
LINE = 64.0

LOOP_NAMES = (
    "iterations outer_reduction vector_length vector_use lanes parallel_jobs parallel_balance "
    "unroll_steps unrolled loops innermost_extent accumulates_locally tile_vectors "
    "register_pressure overshoot compute_cycles traffic_l1 traffic_l2 traffic_l3 expected_cycles"
).split()
ACCESS_NAMES = (
    "reads writes local bytes unique_bytes lines unique_lines stride contiguous broadcast strided "
    "reuse_count reuse_iterations reuse_bytes tile_elements rows_alive row_collisions traffic_l1 "
    "traffic_l2 bytes_per_reuse"
).split()
FEATURE_NAMES = (
    *(f"flops_{kind}" for kind in FLOP_KINDS),
    *LOOP_NAMES,
    *(f"access{n}_{name}" for n in range(MAX_ACCESSES) for name in ACCESS_NAMES),
    *(f"intensity{n}" for n in range(INTENSITY_POINTS)),
    "allocated_bytes",
    "outer_iterations",
    "total_footprint",
)
"""Names of the entries of a store's feature vector; all but ratios and flags are log2(1 + x)."""

# Copies of a statement that lowering makes for register tiles; what a statement with an expensive
# intrinsic counts as when loops are unrolled.
_TILE_COPIES, _MATH_STEPS = 256.0, 16.0


@dataclass
class Evaluation:
    """Features of a population, and the machine model's predictions."""

    features: Any
    """``[candidates, stores, len(FEATURE_NAMES)]``, float32."""
    cycles: Any
    """Expected cycles of each candidate."""
    valid: Any
    """Whether register tiles fit into the registers, and the code isn't far too large."""
    code: Any
    """About how many instructions each candidate becomes; 0 if that isn't known."""


class FeatureFunction:
    """Computes the features of all candidates of one program structure."""

    def __init__(self, program: Program, target: Target) -> None:
        self.program = program
        self.target = target
        on_gpu = target.kind == "cuda"
        # Nothing is known of a GPU's threads but what a plain processor does: measured times
        # correct that. A thread has 255 registers of 32 bits: half of them are 32 of 128 bits.
        self.costs = Target("c").costs if on_gpu else target.costs
        self.registers = 32 if on_gpu else target.vector_registers
        self.max_instructions = np.inf
        pool = Pool()
        self._extents = [pool.add(loop.extent) for loop in program.loops]
        self._shapes = [[pool.add(size) for size in item.shape] for item in program.buffers]
        self._limits = [
            pool.add(item) for item in (program.parallel, program.vectorize, program.unroll)
        ]
        self._strides = [
            [
                [
                    [
                        (store.loops.index(loop), pool.add(stride))
                        for loop, stride in linear.items()
                        if loop in store.loops
                    ]
                    for linear in access.indices
                ]
                for access in store.accesses
            ]
            for store in program.stores
        ]
        self._instances = [pool.add(store.instances) for store in program.stores]
        self._evaluate = compiled(pool.numbers)
        # A buffer's extents after compaction come from its first writer.
        self._owner: dict[int, tuple[int, int]] = {}
        for number, store in enumerate(program.stores):
            for position, access in enumerate(store.accesses):
                if access.write:
                    self._owner.setdefault(access.buffer.index, (number, position))

    def __call__(self, columns: Sequence[Array], count: int) -> Evaluation:
        """Evaluate ``count`` candidates whose decisions are ``columns``."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return _Pass(self, self._evaluate(columns), count).run()


class _Pass:
    """One evaluation, with the arrays that stores share."""

    def __init__(self, function: FeatureFunction, numbers: list[Any], count: int) -> None:
        self.function = function
        self.program = function.program
        self.target = function.target
        self.numbers = numbers
        self.count = count
        self.every = np.arange(count)
        self.extents = np.empty((len(function._extents), count))
        for row, position in enumerate(function._extents):
            self.extents[row] = numbers[position]
        self.shapes: list[list[Array]] = [
            [self.column(position) for position in shape] for shape in function._shapes
        ]
        parallel, vectorize, unroll = (self.column(n) for n in function._limits)
        self.parallel, self.vectorize, self.unroll = parallel, vectorize, unroll

    def column(self, position: int) -> Array:
        return np.broadcast_to(np.asarray(self.numbers[position], dtype=np.float64), (self.count,))

    def run(self) -> Evaluation:
        stores = self.program.stores
        self.compact()
        out = np.zeros((self.count, len(stores), len(FEATURE_NAMES)), dtype=np.float32)
        cycles, code = np.zeros(self.count), np.zeros(self.count)
        valid = np.ones(self.count, dtype=bool)
        for number, store in enumerate(stores):
            result = _Store(self, number, store)
            result.measure()
            out[:, number, :] = result.row().T
            cycles += result.expected
            valid &= result.fits
            code += result.instructions()
        valid &= code <= self.function.max_instructions
        return Evaluation(out, cycles, valid, code)

    def compact(self) -> None:
        """Shrink intermediate buffers to the region touched during their lifetime."""
        for buffer in self.program.buffers:
            owner = self.function._owner.get(buffer.index)
            if not buffer.intermediate or owner is None or buffer.around is None:
                continue
            number, position = owner
            store = self.program.stores[number]
            depth = len(buffer.around)
            extents = self.extents[list(store.loops)] if store.loops else np.ones((0, self.count))
            made = []
            for dim, terms in enumerate(self.function._strides[number][position]):
                size = np.ones(self.count)
                for row, stride in terms:
                    if row >= depth:
                        size = size + np.abs(self.numbers[stride]) * (extents[row] - 1)
                made.append(np.minimum(size, self.shapes[buffer.index][dim]))
            self.shapes[buffer.index] = made


class _AccessArrays:
    """Arrays of one access; the first axis is the number of enclosing loops (``0 .. loops``)."""

    def __init__(self, run: _Pass, number: int, position: int, access: Access, extents: Array):
        self.access = access
        self.buffer: BufferInfo = access.buffer
        depth, count = extents.shape
        shape = run.shapes[self.buffer.index]
        self.shape = shape
        terms = run.function._strides[number][position]
        self.stride = np.zeros((depth, count))
        self.other = np.zeros((depth, count))
        self.unique = np.ones((depth + 1, count))
        run_length = np.ones((depth + 1, count))
        runs = np.ones((depth + 1, count))
        joined = np.ones((depth + 1, count), dtype=bool)
        self.rows = np.ones((depth + 1, count))
        for dim in range(len(shape) - 1, -1, -1):
            steps = np.zeros((depth, count))
            for row, stride in terms[dim]:
                steps[row] = np.abs(run.numbers[stride])
            last = dim == len(shape) - 1
            if last:
                self.stride = steps
            else:
                self.other = self.other + steps
            size = np.ones((depth + 1, count))
            size[:depth] += np.cumsum((steps * (extents - 1))[::-1], axis=0)[::-1]
            np.minimum(size, shape[dim], out=size)
            self.unique *= size
            if last:
                run_length *= size
            else:
                run_length *= np.where(joined, size, 1.0)
                runs *= np.where(joined, 1.0, size)
                self.rows *= size
            joined &= size >= shape[dim]
        width = self.buffer.bytes
        self.lines = runs * (1.0 + (run_length - 1.0) * (width / LINE))
        self.depends = ((self.stride + self.other) > 0) & (extents > 1)
        # Iterations of loops that an access doesn't depend on find its data still there.
        self.reuse = np.ones((depth + 1, count))
        for level in range(1, depth + 1):
            self.reuse[level] = np.where(
                self.depends[level - 1], 1.0, extents[level - 1] * self.reuse[level - 1]
            )


class _Store:
    """All quantities of one store."""

    def __init__(self, run: _Pass, number: int, store: StoreInfo) -> None:
        self.run = run
        self.store = store
        self.number = number
        self.count = run.count
        loops = list(store.loops)
        self.depth = len(loops)
        self.extents = run.extents[loops] if loops else np.ones((0, self.count))
        self.reduce = np.array([run.program.loops[n].reduce for n in loops], dtype=bool)
        self.outer = np.ones((self.depth + 1, self.count))
        np.cumprod(self.extents, axis=0, out=self.outer[1:])
        self.total = self.outer[self.depth]
        self.accesses = [
            _AccessArrays(run, number, position, access, self.extents)
            for position, access in enumerate(store.accesses[:MAX_ACCESSES])
        ]

    def pick(self, table: Array, level: Any) -> Array:
        """Take a row of ``table`` for each candidate."""
        made: Array = table[level, self.run.every]
        return made

    def measure(self) -> None:
        """Compute everything that features and the machine model share."""
        self._vector()
        self._tile()
        self._parallel()
        self._caches()
        self._time()

    def _vector(self) -> None:
        """Find the innermost loop of extent above one, and whether it is vectorised."""
        run, write = self.run, self.accesses[0]
        bits = write.buffer.bytes * 8
        self.lanes = max(1.0, run.target.vector_bits / bits)
        if not self.depth:
            self.inner = np.zeros(self.count, dtype=np.int64)
            self.inner_extent = self.vector_length = np.ones(self.count)
            self.vectorized = np.zeros(self.count, dtype=bool)
            return
        busy = self.extents > 1
        self.inner = self.depth - 1 - np.argmax(busy[::-1], axis=0)
        self.inner_extent = self.pick(self.extents, self.inner)
        reduces = self.reduce[self.inner]
        contiguous = (self.pick(write.stride, self.inner) == 1) & (
            self.pick(write.other, self.inner) == 0
        )
        self.vectorized = (run.vectorize > 1) & ~reduces & contiguous & (self.inner_extent > 1)
        self.vector_length = np.where(
            self.vectorized, np.minimum(self.inner_extent, np.maximum(run.vectorize, 1)), 1.0
        )

    def _tile(self) -> None:
        """Analyse the register tile: the loops inside the innermost reduction loop."""
        level = np.zeros(self.count, dtype=np.int64)
        for row in range(self.depth):
            if self.reduce[row]:
                level = np.where(self.extents[row] > 1, row + 1, level)
        self.reduces = level > 0
        self.tile = np.where(self.reduces, level, np.minimum(self.inner, self.depth))
        inside = self.total / self.pick(self.outer, self.tile)
        per_row = np.ceil(self.inner_extent / self.lanes)
        # Inside the vectorised loop, the vectors of one row stand for its elements.
        self.per_vector = np.where(self.vectorized, per_row / self.inner_extent, 1.0)
        self.tile_vectors = inside * self.per_vector
        write = self.accesses[0]
        self.local = write.buffer.local
        registers = float(self.run.function.registers)
        if self.local:
            size = np.ones(self.count)
            for extent in write.shape[:-1]:
                size = size * extent
            last = write.shape[-1] if write.shape else np.ones(self.count)
            self.held = size * np.ceil(last / self.lanes)
            self.pressure = (self.held + np.where(self.reduces, per_row + 1.0, 0.0)) / registers
        else:
            self.held = np.zeros(self.count)
            self.pressure = np.zeros(self.count)
        self.fits = self.pressure <= 1.0

    def _parallel(self) -> None:
        """Mirror the postproc: fuse outermost loops up to the limit, but at least one."""
        run = self.run
        jobs = np.ones(self.count)
        going = run.parallel > 1
        for row, loop in enumerate(self.store.loops):
            if self.reduce[row]:
                break
            extent = self.extents[row]
            going = going & ((jobs <= 1) | (jobs * extent <= run.parallel))
            jobs = np.where(going, jobs * extent, jobs)
            if not run.program.loops[loop].chain:
                break
        self.jobs = jobs
        cores = float(run.target.num_cores)
        self.balance = jobs / (np.ceil(jobs / cores) * cores)
        self.speedup = np.where(jobs > 1, jobs / np.ceil(jobs / cores), 1.0)

    def _caches(self) -> None:
        """Estimate the traffic in bytes between cache levels."""
        target = self.run.target
        footprint = np.zeros((self.depth + 1, self.count))
        for item in self.accesses:
            if not item.buffer.local:
                footprint += item.lines * LINE
        self.footprint = footprint
        self.traffic: list[Array] = []
        self.by_access: list[list[Array]] = [[] for _ in self.accesses]
        for size in (target.l1_bytes, target.l2_bytes, target.l3_bytes):
            level = np.minimum((footprint > 0.75 * size).sum(axis=0), self.depth)
            whole = np.zeros(self.count)
            times = self.pick(self.outer, level)
            for number, item in enumerate(self.accesses):
                if item.buffer.local:
                    moved = np.zeros(self.count)
                else:
                    moved = (
                        LINE * self.pick(item.lines, level) * times / self.pick(item.reuse, level)
                    )
                self.by_access[number].append(moved)
                whole = whole + moved
            self.traffic.append(whole)

    def _time(self) -> None:
        known = self.run.function.costs
        costs = {"div": known.vector_division, "math": known.vector_function}
        flops = self.store.flops
        work = sum(max(flops[kind], 0.0) * costs.get(kind, 1.0) for kind in FLOP_KINDS)
        vectors = self.tile_vectors
        memory_ops = np.zeros(self.count)
        for item in self.accesses:
            if item.buffer.local:
                continue
            contiguous, broadcast, _ = self.kind(item)
            elements = self.pick(item.unique, self.tile)
            inside = self.total / self.pick(self.outer, self.tile)
            issued = np.where(contiguous, elements * self.per_vector, elements)
            if not self.local:
                issued = np.where(contiguous | broadcast, vectors, inside)
            memory_ops += issued * (2.0 if item.access.read and item.access.write else 1.0)
        spilled = np.where(self.fits, 0.0, 2.0 * vectors)
        steps = np.maximum(work * vectors, memory_ops + spilled)
        if work > 0:
            steps = np.maximum(steps, np.where(self.reduces, known.multiply_add_latency, 1.0))
        steps = steps + 1.0 / (1.0 + self.run.unroll / np.maximum(vectors, 1.0))
        self.compute = self.pick(self.outer, self.tile) * steps
        rates = (known.l2_bandwidth, known.l3_bandwidth, known.memory_bandwidth)
        memory = sum(traffic / rate for traffic, rate in zip(self.traffic, rates))
        cycles = np.maximum(self.compute, memory) + 0.2 * np.minimum(self.compute, memory)
        self.expected = cycles / self.speedup + np.where(self.jobs > 1, known.launch, 0.0)

    def instructions(self) -> Array:
        """Instructions of all unrolled copies, as ``tir.analysis.code_size`` will count them."""
        math = self.store.flops["math"] > 0
        copies, steps = np.ones(self.count), np.full(self.count, _MATH_STEPS if math else 1.0)
        for row in range(self.depth - 1, -1, -1):
            steps = steps * np.where(self.vectorized & (row == self.inner), 1.0, self.extents[row])
            copies = np.where(steps <= self.run.unroll, steps, copies)
        if math:
            copies = np.maximum(copies / _MATH_STEPS, 1.0)
        if self.local:
            inside = self.total / self.pick(self.outer, self.tile)
            tile = np.where(self.vectorized, inside / self.inner_extent, inside)
            copies = np.where(tile <= _TILE_COPIES, np.maximum(copies, tile), copies)
        registers = np.ceil(self.vector_length / self.lanes)
        moved = np.zeros(self.count)
        for item in self.accesses:
            contiguous, _, strided = self.kind(item)
            moved += np.where(contiguous, registers, 1.0)
            moved += np.where(
                strided & self.vectorized, self.run.function.costs.gather * self.vector_length, 0.0
            )
        flops = sum(max(value, 0.0) for value in self.store.flops.values())
        made: Array = copies * (flops * registers + moved)
        return made

    def kind(self, item: _AccessArrays) -> tuple[Any, Any, Any]:
        """How an access moves along the innermost loop: contiguous, broadcast, strided."""
        if not self.depth:
            flag = np.zeros(self.count, dtype=bool)
            return flag, ~flag, flag
        stride = self.pick(item.stride, self.inner)
        other = self.pick(item.other, self.inner)
        contiguous = (stride == 1) & (other == 0)
        broadcast = (stride == 0) & (other == 0)
        return contiguous, broadcast, ~(contiguous | broadcast)

    # ---- the vector ---------------------------------------------------------------------------
    def row(self) -> Array:
        """Return the features, ``[len(FEATURE_NAMES), candidates]``."""
        log = _log
        rows: list[Any] = [
            log(np.maximum(self.store.flops[kind], 0.0) * self.total) for kind in FLOP_KINDS
        ]
        reduction = np.ones(self.count)
        for row in range(self.depth):
            if self.reduce[row]:
                reduction = reduction * self.extents[row]
        use = self.inner_extent / (np.ceil(self.inner_extent / self.lanes) * self.lanes)
        inside = self.total / self.pick(self.outer, self.tile)
        instances = self.run.column(self.run.function._instances[self.number])
        rows += [
            log(self.total),
            log(reduction),
            log(self.vector_length),
            np.where(self.vectorized, use, 0.0),
            np.full(self.count, self.lanes),
            log(self.jobs),
            self.balance,
            log(self.run.unroll),
            log(np.minimum(inside, np.maximum(self.run.unroll, inside if self.local else 1.0))),
            log((self.extents > 1).sum(axis=0)),
            log(self.inner_extent),
            np.full(self.count, float(self.local)),
            log(self.tile_vectors),
            np.minimum(self.pressure, 8.0),
            np.minimum(self.total / np.maximum(instances, 1.0), 8.0),
            log(self.compute),
            log(self.traffic[0]),
            log(self.traffic[1]),
            log(self.traffic[2]),
            log(self.expected),
        ]
        for number in range(MAX_ACCESSES):
            if number < len(self.accesses):
                rows += self._access_rows(number)
            else:
                rows += [0.0] * len(ACCESS_NAMES)
        rows += self._intensity()
        write = self.accesses[0]
        allocated = np.full(self.count, write.buffer.bytes)
        for extent in write.shape:
            allocated = allocated * extent
        rows += [
            log(allocated),
            log(self.pick(self.outer, self.tile)),
            log(self.footprint[0]),
        ]
        made = np.empty((len(FEATURE_NAMES), self.count))
        for row, value in enumerate(rows):
            made[row] = value
        return made

    def _access_rows(self, number: int) -> list[object]:
        item, log = self.accesses[number], _log
        access, width = item.access, item.buffer.bytes
        contiguous, broadcast, strided = self.kind(item)
        moved = self.total * width
        tile_elements = self.pick(item.unique, self.tile)
        rows = self.pick(item.rows, np.maximum(self.tile - self.reduces, 0))
        # The nearest loop outwards that brings the same data again, and what is touched meanwhile.
        count, iterations, between = self._reuse(item)
        row_bytes = (item.shape[-1] if item.shape else np.ones(self.count)) * width
        collides = (row_bytes % 4096.0 == 0) & (rows > 8)
        stride = self.pick(item.stride, self.inner) if self.depth else np.zeros(self.count)
        return [
            float(access.read),
            float(access.write),
            float(item.buffer.local),
            log(moved),
            log(item.unique[0] * width),
            log(item.lines[self.depth] * self.total),
            log(item.lines[0]),
            log(stride),
            contiguous,
            broadcast,
            strided,
            log(count),
            log(iterations),
            log(between),
            log(tile_elements),
            log(rows),
            np.where(collides, np.log2(rows), 0.0),
            log(self.by_access[number][0]),
            log(self.by_access[number][1]),
            log(moved / count),
        ]

    def _reuse(self, item: _AccessArrays) -> tuple[Array, Array, Array]:
        count = np.ones(self.count)
        iterations = np.zeros(self.count)
        between = np.zeros(self.count)
        open_ = np.ones(self.count, dtype=bool)
        for row in range(self.depth - 1, -1, -1):
            again = open_ & ~item.depends[row] & (self.extents[row] > 1)
            count = np.where(again, self.extents[row], count)
            iterations = np.where(again, self.total / self.outer[row + 1], iterations)
            between = np.where(again, self.footprint[row + 1], between)
            open_ &= ~again
        return count, iterations, between

    def _intensity(self) -> list[Array]:
        """Operations per byte at evenly spaced points of the nest, innermost first."""
        work = sum(max(value, 0.0) for value in self.store.flops.values()) or 1.0
        size = np.log2(self.total[None, :] / self.outer + 1.0)[::-1]
        ratio = _log(work * self.total / self.outer / np.maximum(self.footprint, 1.0))[::-1]
        top = size[-1]
        made = []
        for point in range(INTENSITY_POINTS):
            wanted = top * (point / (INTENSITY_POINTS - 1))
            above = np.minimum((size < wanted).sum(axis=0), self.depth)
            below = np.maximum(above - 1, 0)
            high, low = self.pick(size, above), self.pick(size, below)
            share = np.where(high > low, (wanted - low) / np.maximum(high - low, 1e-9), 0.0)
            share = np.clip(share, 0.0, 1.0)
            made.append(self.pick(ratio, below) * (1.0 - share) + self.pick(ratio, above) * share)
        return made


def _log(value: Any) -> Any:
    return np.log2(1.0 + np.maximum(value, 0.0))
