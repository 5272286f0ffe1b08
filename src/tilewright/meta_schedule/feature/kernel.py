"""The machine code that computes features: eight candidates at a time, whatever the program.

One function serves all programs, so it is compiled once on a machine. What differs between programs
is in ``tables``: which numbers (rows of ``[numbers, candidates]``) are the extents
of which loops, the strides of which accesses, and so on. All candidates of a population have the
same loops; where they differ in a place in the nest (the innermost loop that isn't of extent one,
where the register tile begins), each takes the element of its own level.

Arrays over levels have an element for each number of enclosing loops, ``0 .. loops``.
"""

from __future__ import annotations

from tilewright.codegen.llvm.builder import Function, exported, external
from tilewright.codegen.llvm.values import DOUBLE, I32, I64, PTR, VOID, Value
from tilewright.meta_schedule.feature.block import (
    FLOATS,
    INTS,
    LANES,
    POINTERS,
    REALS,
    TRUTHS,
    Access,
    Block,
)
from tilewright.meta_schedule.feature.names import (
    ACCESS_NAMES,
    FEATURE_NAMES,
    INTENSITY_POINTS,
    LINE,
    LOOP_NAMES,
    MAX_ACCESSES,
)
from tilewright.meta_schedule.feature.program import FLOP_KINDS
from tilewright.meta_schedule.feature.tables import (
    COMPACT_FIELDS,
    DIM_FIELDS,
    LOOP_FIELDS,
    MACHINE,
    MATH_STEPS,
    STORE_FIELDS,
    STORE_REALS,
)

# Copies of a statement that lowering makes for register tiles.
_TILE_COPIES = 256.0
# Where footprints of this share of a cache still stay in it.
_FILLED = 0.75

_SCATTER = external(
    VOID, f"llvm.masked.scatter.v{LANES}f32.v{LANES}p0", FLOATS, POINTERS, I32, TRUTHS
)


class _Writer(Block):
    """Writes the function's parts."""

    # ---- once for a block of candidates -------------------------------------------------------
    def begin(self, column: Value) -> None:
        """Take the extents of loops and buffers; shrink buffers to what is in use at once."""
        f, head = self.f, self.head
        self.column = column
        with f.for_(head["loops"]) as loop:
            own = self.fields("loop_table", loop, LOOP_FIELDS)
            self.store(self.extents, loop, self.number(own["extent"]))
        with f.for_(head["shapes"]) as dim:
            self.store(self.shapes, dim, self.number(self.word(head["shape_table"] + dim)))
        with f.for_(head["compacts"]) as item:
            own = self.fields("compact_table", item, COMPACT_FIELDS)
            size = self.variable(1)
            with self.terms(own["begin"], own["end"]) as (loop, step):
                size += step * (self.load(self.extents, loop) - 1)
            whole = self.load(self.shapes, own["slot"])
            self.store(self.shapes, own["slot"], f.least(size.get(), whole))
        self.parallel, self.vectorize, self.unroll = (
            self.number(self.word(head["limits"] + n)) for n in range(3)
        )

    # ---- once for a store ---------------------------------------------------------------------
    def begin_store(self, number: Value) -> None:
        """Take what is known of a store, and the products of its loops' extents."""
        own = self.fields("store_table", number, STORE_FIELDS)
        self.first, self.count = own["access"], own["accesses"]
        self.depth, self.loops = own["depth"], self.head["store_loops"] + own["loops"]
        self.instances = self.number(own["instances"])
        self.store_reals = self.head["buffers"] + len(MACHINE) + number * len(STORE_REALS)
        self.lanes, self.local = self.constant("lanes"), self.constant("local") > 0
        self.store(self.outer, 0, 1)
        with self.f.for_(self.depth) as row:
            loop = self.word(self.loops + row)
            extent = self.load(self.extents, loop)
            reduces = self.fields("loop_table", loop, LOOP_FIELDS)["reduce"]
            self.store(self.own, row, extent)
            self.store(self.reduce, row, self.as_real(self.true(reduces)))
            self.store(self.outer, row + 1, self.load(self.outer, row) * extent)
        # What has no loop is as if in one of extent one.
        self.store(self.own, self.depth, 1)
        self.store(self.reduce, self.depth, 0)
        self.total = self.load(self.outer, self.depth)

    def measure_accesses(self) -> None:
        """Compute what each access touches, by level."""
        f = self.f
        with self.accesses() as item:
            with f.for_(self.depth + 1) as level:
                for array in (item.stride, item.other):
                    self.store(array, level, 0)
                for array in (item.unique, item.rows, self.run, self.runs, self.joined):
                    self.store(array, level, 1)
            with self.down(item.dims) as dim:
                self._dimension(item, dim, dim.eq(item.dims - 1))
            with f.for_(self.depth + 1) as level:
                length = self.load(self.run, level) - 1
                lines = self.load(self.runs, level) * (length * (item.bytes * (1 / LINE)) + 1)
                self.store(item.lines, level, lines)
            self.store(item.reuse, 0, 1)
            with f.for_(self.depth) as row:
                extent = self.load(self.own, row)
                steps = self.load(item.stride, row) + self.load(item.other, row)
                depends = self.choose(extent > 1, self.as_real(steps > 0), 0)
                self.store(item.depends, row, depends)
                # Iterations of loops that an access doesn't depend on find its data still there.
                again = extent * self.load(item.reuse, row)
                self.store(item.reuse, row + 1, self.choose(depends > 0, 1, again))

    def _dimension(self, item: Access, dim: Value, last: Value) -> None:
        """Add one dimension of an access, the innermost first."""
        f = self.f
        own = self.fields("dim_table", item.table + dim, DIM_FIELDS)
        whole = self.load(self.shapes, item.shape + dim)
        with f.for_(self.depth) as row:
            self.store(self.steps, row, 0)
        with self.terms(own["begin"], own["end"]) as (row, step):
            self.store(self.steps, row, step)
        reached = self.variable(1)
        with self.down(self.depth + 1) as level:
            with f.if_(level < self.depth):
                steps = self.load(self.steps, level)
                reached += steps * (self.load(self.own, level) - 1)
                with f.if_(last):
                    self.store(item.stride, level, steps)
                with f.else_():
                    self.store(item.other, level, self.load(item.other, level) + steps)
            size = f.least(reached.get(), whole)
            self.scale(item.unique, level, size)
            joined = self.load(self.joined, level) > 0
            with f.if_(last):
                self.scale(self.run, level, size)
            with f.else_():
                self.scale(self.run, level, self.choose(joined, size, 1))
                self.scale(self.runs, level, self.choose(joined, 1, size))
                self.scale(item.rows, level, size)
            filled = self.choose(size >= whole, 1, 0)
            self.store(self.joined, level, self.choose(joined, filled, 0))

    def vector(self) -> None:
        """Find the innermost loop of extent above one, and whether it is vectorised."""
        f, write = self.f, self.access(self.f.constant(I64, 0))
        inner = f.variable(INTS, f.greatest(self.depth - 1, 0).splat(LANES))
        with f.for_(self.depth) as row:
            busy = self.load(self.own, row) > 1
            inner.set(f.select(busy, row.splat(LANES), inner.get()))
        self.inner = inner.get()
        self.inner_extent = self.pick(self.own, self.inner)
        reduces = self.pick(self.reduce, self.inner) > 0
        contiguous, _, _ = self.kind(write)
        vectorized = self.choose(contiguous & (self.vectorize > 1), self.inner_extent, 1) > 1
        self.vectorized = vectorized & (reduces ^ True)
        length = f.least(self.inner_extent, f.greatest(self.vectorize, 1))
        self.vector_length = self.choose(self.vectorized, length, 1)

    def kind(self, item: Access) -> tuple[Value, Value, Value]:
        """How an access moves along the innermost loop: contiguous, broadcast, strided."""
        stride, other = self.pick(item.stride, self.inner), self.pick(item.other, self.inner)
        none = other.eq(0)
        contiguous, broadcast = stride.eq(1) & none, stride.eq(0) & none
        return contiguous, broadcast, (contiguous | broadcast) ^ True

    def tile(self) -> None:
        """Analyse the register tile: the loops inside the innermost reduction loop."""
        f = self.f
        level = f.variable(INTS, 0)
        with f.for_(self.depth) as row:
            reduces = self.choose(self.load(self.own, row) > 1, self.load(self.reduce, row), 0) > 0
            level.set(f.select(reduces, (row + 1).splat(LANES), level.get()))
        found = level.get()
        self.reduces = found > 0
        self.tile_level = f.select(self.reduces, found, self.inner)
        self.around = self.pick(self.outer, self.tile_level)
        self.inside = self.total / self.around
        per_row = self.ceil(self.inner_extent / self.lanes)
        # Inside the vectorised loop, the vectors of one row stand for its elements.
        self.per_vector = self.choose(self.vectorized, per_row / self.inner_extent, 1)
        self.vectors = self.inside * self.per_vector
        write = self.access(f.constant(I64, 0))
        held, last = self.variable(1), self.variable(1)
        with f.for_(write.dims) as dim:
            held *= last.get()
            last.set(self.load(self.shapes, write.shape + dim))
        registers = held * self.ceil(last / self.lanes)
        used = registers + self.choose(self.reduces, per_row + 1, 0)
        self.pressure = self.choose(self.local, used / self.machine("registers"), 0)
        self.fits = self.pressure <= 1

    def parallel_loops(self) -> None:
        """Mirror the postproc: fuse outermost loops up to the limit, but at least one."""
        f = self.f
        jobs, going = self.variable(1), f.variable(TRUTHS, self.parallel > 1)
        with f.for_(self.depth) as row:
            own = self.fields("loop_table", self.word(self.loops + row), LOOP_FIELDS)
            with f.if_(own["reduce"].ne(0)):
                f.break_()
            more = jobs * self.load(self.own, row)
            going.set(going & ((jobs <= 1) | (more <= self.parallel)))
            jobs.set(self.choose(going.get(), more, jobs.get()))
            with f.if_(own["chain"].eq(0)):
                f.break_()
        self.jobs = jobs.get()
        cores = self.machine("cores")
        turns = self.ceil(self.jobs / cores)
        self.balance = self.jobs / (turns * cores)
        self.speedup = self.choose(self.jobs > 1, self.jobs / turns, 1)

    def caches(self) -> None:
        """Estimate the traffic in bytes between cache levels."""
        f = self.f
        with f.for_(self.depth + 1) as level:
            self.store(self.footprint, level, 0)
        with self.accesses() as item, f.for_(self.depth + 1) as level:
            lines = self.choose(item.local, 0, self.load(item.lines, level) * LINE)
            self.store(self.footprint, level, self.load(self.footprint, level) + lines)
        self.traffic = []
        for number, cache in enumerate(("l1", "l2", "l3")):
            size, fits = self.machine(cache) * _FILLED, f.variable(INTS, 0)
            with f.for_(self.depth) as level:
                beyond = self.load(self.footprint, level) > size
                fits.set(fits + f.select(beyond, 1, 0, INTS))
            level = fits.get()
            times, whole = self.pick(self.outer, level), self.variable(0)
            with self.accesses() as item:
                lines = self.pick(item.lines, level) * LINE
                moved = lines * times / self.pick(item.reuse, level)
                moved = self.choose(item.local, 0, moved)
                self.store(self.moved, item.number * 3 + number, moved)
                whole += moved
            self.traffic.append(whole.get())

    def time(self) -> None:
        """Predict cycles."""
        f, ops = self.f, self.variable(0)
        with self.accesses() as item:
            contiguous, broadcast, _ = self.kind(item)
            elements = self.pick(item.unique, self.tile_level)
            held = self.choose(contiguous, elements * self.per_vector, elements)
            each = self.choose(contiguous | broadcast, self.vectors, self.inside)
            issued = self.choose(self.local, held, each)
            both = self.true(item.reads & item.writes)
            issued = issued * self.choose(both, 2, 1)
            ops += self.choose(item.local, 0, issued)
        spilled = self.choose(self.fits, 0, self.vectors * 2)
        steps = f.greatest(self.constant("work") * self.vectors, ops + spilled)
        least = self.choose(
            self.reduces, self.constant("latency_reducing"), self.constant("latency")
        )
        steps = f.greatest(steps, least)
        steps = steps + 1 / (self.unroll / f.greatest(self.vectors, 1) + 1)
        self.compute = self.around * steps
        memory = self.variable(0)
        for traffic, rate in zip(self.traffic, ("l2_rate", "l3_rate", "memory_rate")):
            memory += traffic / self.machine(rate)
        bound, rest = f.greatest(self.compute, memory), f.least(self.compute, memory.get())
        launch = self.choose(self.jobs > 1, self.machine("launch"), 0)
        self.expected = (bound + rest * 0.2) / self.speedup + launch

    def instructions(self) -> Value:
        """Instructions of all unrolled copies, as ``tir.analysis.code_size`` will count them."""
        f, math = self.f, self.constant("math") > 0
        copies, steps = self.variable(1), self.variable(self.constant("steps"))
        with self.down(self.depth) as row:
            own = self.vectorized & self.inner.eq(row.splat(LANES))
            steps.set(steps * self.choose(own, 1, self.load(self.own, row)))
            copies.set(self.choose(steps <= self.unroll, steps.get(), copies.get()))
        fewer = f.greatest(copies * (1 / MATH_STEPS), 1)
        made = self.choose(math, fewer, copies.get())
        tile = self.choose(self.vectorized, self.inside / self.inner_extent, self.inside)
        tiled = self.choose(tile <= _TILE_COPIES, f.greatest(made, tile), made)
        made = self.choose(self.local, tiled, made)
        registers, moved = self.ceil(self.vector_length / self.lanes), self.variable(0)
        gather = self.machine("gather") * self.vector_length
        with self.accesses() as item:
            contiguous, _, strided = self.kind(item)
            moved += self.choose(contiguous, registers, 1)
            moved += self.choose(strided & self.vectorized, gather, 0)
        return made * (self.constant("operations") * registers + moved)

    # ---- the vector ---------------------------------------------------------------------------
    def features(self) -> None:
        """Write the row of features, before logarithms."""
        f = self.f
        values = [self.constant(f"flops_{kind}") * self.total for kind in FLOP_KINDS]
        reduction, busy = self.variable(1), self.variable(0)
        with f.for_(self.depth) as row:
            extent = self.load(self.own, row)
            reduction *= self.choose(self.load(self.reduce, row) > 0, extent, 1)
            busy += self.as_real(extent > 1)
        per_row = self.ceil(self.inner_extent / self.lanes)
        use = self.inner_extent / (per_row * self.lanes)
        at_least = self.choose(self.local, self.inside, 1)
        instances = f.greatest(self.instances, 1)
        values += [
            self.total,
            reduction.get(),
            self.vector_length,
            self.choose(self.vectorized, use, 0),
            self.lanes,
            self.jobs,
            self.balance,
            self.unroll,
            f.least(self.inside, f.greatest(self.unroll, at_least)),
            busy.get(),
            self.inner_extent,
            self.as_real(self.local),
            self.vectors,
            f.least(self.pressure, 8),
            f.least(self.total / instances, 8),
            self.compute,
            *self.traffic,
            self.expected,
        ]
        assert len(values) == len(FLOP_KINDS) + len(LOOP_NAMES)
        for number, value in enumerate(values):
            self.store(self.row, number, value)
        start, width = len(values), len(ACCESS_NAMES)
        end = start + width * MAX_ACCESSES
        with f.for_(f.constant(I64, end), start) as at:
            self.store(self.row, at, 0)
        with self.accesses() as item:
            for number, value in enumerate(self._access_features(item)):
                self.store(self.row, item.number * width + (start + number), value)
        self._intensity(end)
        write = self.access(f.constant(I64, 0))
        allocated = self.variable(write.bytes)
        with f.for_(write.dims) as dim:
            allocated *= self.load(self.shapes, write.shape + dim)
        last = (allocated.get(), self.around, self.load(self.footprint, 0))
        for number, value in enumerate(last):
            self.store(self.row, end + INTENSITY_POINTS + number, value)

    def _access_features(self, item: Access) -> list[Value]:
        f = self.f
        contiguous, broadcast, strided = self.kind(item)
        moved = self.total * item.bytes
        level = self.tile_level - f.select(self.reduces, 1, 0, INTS)
        rows = self.pick(item.rows, level)
        count, iterations, between = self._reuse(item)
        length = self.variable(1)
        with f.for_(item.dims) as dim:
            length.set(self.load(self.shapes, item.shape + dim))
        pages = length * item.bytes * (1 / 4096.0)
        collides = pages.eq(self.ceil(pages)) & (rows > 8)
        return [
            self.as_real(self.true(item.reads)),
            self.as_real(self.true(item.writes)),
            self.as_real(item.local),
            moved,
            self.load(item.unique, 0) * item.bytes,
            self.load(item.lines, self.depth) * self.total,
            self.load(item.lines, 0),
            self.pick(item.stride, self.inner),
            self.as_real(contiguous),
            self.as_real(broadcast),
            self.as_real(strided),
            count,
            iterations,
            between,
            self.pick(item.unique, self.tile_level),
            rows,
            self.choose(collides, rows - 1, 0),
            self.load(self.moved, item.number * 3),
            self.load(self.moved, item.number * 3 + 1),
            moved / count,
        ]

    def _reuse(self, item: Access) -> tuple[Value, Value, Value]:
        """The nearest loop outwards that brings the same data again, and what is touched then."""
        count, iterations, between = self.variable(1), self.variable(0), self.variable(0)
        looking = self.f.variable(TRUTHS, True)
        with self.down(self.depth) as row:
            extent = self.load(self.own, row)
            again = looking & (self.choose(extent > 1, self.load(item.depends, row), 1) <= 0)
            count.set(self.choose(again, extent, count.get()))
            within = self.total / self.load(self.outer, row + 1)
            iterations.set(self.choose(again, within, iterations.get()))
            touched = self.load(self.footprint, row + 1)
            between.set(self.choose(again, touched, between.get()))
            looking.set(looking & (again ^ True))
        return count.get(), iterations.get(), between.get()

    def _intensity(self, start: int) -> None:
        """Operations per byte at evenly spaced points of the nest, innermost first."""
        f, work = self.f, self.constant("intensity") * self.total
        with f.for_(self.depth + 1) as level:
            outer = self.load(self.outer, level)
            # From the inside out, so that sizes grow.
            at = self.depth - level
            size = self.log(self.total / outer).convert("fpext", REALS)
            touched = f.greatest(self.load(self.footprint, level), 1)
            self.store(self.size, at, size)
            ratio = self.log(work / outer / touched).convert("fpext", REALS)
            self.store(self.ratio, at, ratio)
        top = self.load(self.size, self.depth)
        for point in range(INTENSITY_POINTS):
            wanted = top * (point / (INTENSITY_POINTS - 1))
            place = f.variable(INTS, 0)
            with f.for_(self.depth) as level:
                smaller = self.load(self.size, level) < wanted
                place.set(place + f.select(smaller, 1, 0, INTS))
            above = place.get()
            below = above - f.select(above > 0, 1, 0, INTS)
            high, low = self.pick(self.size, above), self.pick(self.size, below)
            gap = f.greatest(high - low, 1e-9)
            share = self.choose(high > low, (wanted - low) / gap, 0)
            share = f.least(f.greatest(share, 0), 1)
            first, second = self.pick(self.ratio, below), self.pick(self.ratio, above)
            self.store(self.row, start + point, first + (second - first) * share)

    def write_row(self, logarithms: Value, out: Value, store: Value) -> None:
        """Write the features of a store of all candidates of the block."""
        f, width = self.f, len(FEATURE_NAMES)
        stride = self.head["stores"] * width
        rows = (self.lane_numbers + self.column.splat(LANES)) * stride.splat(LANES)
        start = rows + (store * width).splat(LANES)
        with f.for_(f.constant(I64, width)) as feature:
            value = self.load(self.row, feature)
            made = f.variable(FLOATS, value.convert("fptrunc", FLOATS))
            with f.if_(logarithms.at(I32, feature).get().ne(0)):
                made.set(self.log(value))
            at = start + feature.splat(LANES)
            each = f.here(f"getelementptr float, ptr {out.text}, {at.type} {at.text}")
            f.call(_SCATTER, made, Value(f, POINTERS, each), 4, True)


@exported(
    "tw_candidate_features", VOID,
    table=PTR, reals=PTR, logarithms=PTR, numbers=PTR, count=I64, scratch=PTR, out=PTR,
    cycles=PTR, valid=PTR, code=PTR,
)  # fmt: skip
def candidate_features(
    f: Function, table: Value, reals: Value, logarithms: Value, numbers: Value, count: Value,
    scratch: Value, out: Value, cycles: Value, valid: Value, code: Value,
) -> None:  # fmt: skip
    """Compute all of ``Evaluation`` for ``count`` candidates, a multiple of ``LANES``."""
    writer = _Writer(f, table, reals, numbers, count, scratch)
    with f.for_(count // LANES) as block:
        column = block * LANES
        writer.begin(column)
        whole, size = writer.variable(0), writer.variable(0)
        good = f.variable(REALS, 1)
        with f.for_(writer.head["stores"]) as store:
            writer.begin_store(store)
            writer.measure_accesses()
            writer.vector()
            writer.tile()
            writer.parallel_loops()
            writer.caches()
            writer.time()
            writer.features()
            writer.write_row(logarithms, out, store)
            whole += writer.expected
            size += writer.instructions()
            good *= writer.as_real(writer.fits)
        good *= writer.as_real(size <= writer.machine("max_instructions"))
        for array, value in ((cycles, whole), (valid, good), (code, size)):
            array.at(DOUBLE, column).address.at(REALS).set(value.get(), align=8)
