"""Products with 4-bit weights by dot instructions for bytes.

A decoded weight is a byte from 0 to 15, for which CPUs have instructions that multiply four and add
the products. Activations become fixed-point numbers: within a run of inputs that share a scale,
``x = top * fixed / levels`` where ``top`` is the largest magnitude, and ``fixed`` an integer that
is split into signed bytes (limbs) ``fixed = low + 256 * middle + 65536 * high``. Each limb has its
own product, and the sums are combined at the end of the run. With three limbs a product is as
accurate as in float32: the rounding error is ``2 ** -22`` of the largest activation of the run. Two
hold more than 16-bit floats.

In a word of eight weights the even ones are in the low halves of bytes: one operation decodes four
of them in each lane, two operations the odd ones. Limbs are laid out in this order, so weights only
need panels as wide as a tile. Sums within a run are exact, and zero points cost a subtraction.

The kernel ``int4_dot`` replaces the stages of ``topi.nn.dense_int4`` in a function; the blocks
before and after them stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import ClassVar

from tilewright.ir import (
    Broadcast,
    Expr,
    Shuffle,
    Var,
    call,
    cast,
    const,
    dtypes,
    floordiv,
    floormod,
    if_then_else,
    maximum,
    minimum,
)
from tilewright.kernels.cpu.int4_product.problem import Problem, read_int4
from tilewright.kernels.kernel import Kernel
from tilewright.scheduling import Choices, NotApplicable, block_of, nests_of, over
from tilewright.scheduling.cpu import (
    SEPARATE,
    inline_injective,
    is_injective,
    leaf_blocks,
    parallelize,
    schedule_injective,
    schedule_reduction,
)
from tilewright.script import tir as T
from tilewright.target import Target
from tilewright.tir import (
    Block,
    Buffer,
    BufferStore,
    PrimFunc,
    Stmt,
    decl_buffer,
    fresh_name,
    seq,
)
from tilewright.tir.attrs import LAYOUT_REWRITE, PREFETCH_DISTANCE
from tilewright.tir.building import Axis, block, lanes_from, load, store
from tilewright.tir.op import bitwise_or, bitwise_xor, shift_left, shift_right
from tilewright.tir.schedule import Schedule
from tilewright.tir.script.parser import expand
from tilewright.topi.nn.int4 import ACTIVATION_LEVELS, PER_WORD, SYMMETRIC_ZERO

INT4_DOT = "int4_dot"
#: Blocks of the kernel that other primitives look for.
TILES, FIXED = "int4_tiles", "int4_fixed"

_FLOAT, _SUM, _WORD = "float32", "int32", "uint32"
_LARGEST = 15
_NIBBLES = 0x0F0F0F0F
# Limbs of activations by dtype.
_LIMBS = {"float32": 3, "float16": 2, "bfloat16": 2}
# Registers for masks and a broadcast limb; most vectors of a tile.
_SPARE, _MOST_VECTORS = 3, 8
# Bytes that weights are fetched ahead where each is used once.
_AHEAD = 4096
# Tops below are moved up before they divide.
_TINY, _MOVED = 2.0**-64, 2.0**60


@dataclass(frozen=True)
class Int4Tiles:
    """Rows and columns of the tile of results, lanes of a vector, limbs of an activation."""

    rows: int
    columns: int
    lanes: int
    limbs: int


class Int4ProductKernel(Kernel[Problem]):
    """For functions with one product with 4-bit weights, among any other blocks."""

    forms: ClassVar = {INT4_DOT: Int4Tiles}

    def recognise(self, func: PrimFunc) -> Problem | NotApplicable:
        """Compare stages of the function with those of the definition."""
        return read_int4(func)

    def plan(self, problem: Problem, target: Target, choices: Choices) -> Int4Tiles | NotApplicable:
        """As many rows and vectors as there are registers for."""
        return choose_tiles(problem, target)

    def fault(self, problem: Problem, plan: Int4Tiles) -> str | None:
        """Say what is wrong with the sizes, if anything is."""
        sizes = (plan.rows, plan.columns, plan.lanes, plan.limbs)
        if min(sizes) < 1 or plan.columns % plan.lanes:
            return "sizes are positive, and columns a multiple of lanes"
        if problem.activation_bits and plan.limbs != limbs_of(problem):
            return f"activations of {problem.activation_bits} bits have {limbs_of(problem)} limbs"
        return _misfit(problem, plan)

    def build(self, func: PrimFunc, problem: Problem, plan: Int4Tiles) -> Block:
        """Replace the stages; the blocks before and after them stay."""
        root, nests = func.root, nests_of(func)
        taken = {buffer.name for buffer in (*func.buffers, *root.alloc_buffers)}
        kernel = _Kernel(problem, plan, taken)
        place = next(n for n, nest in enumerate(nests) if nest is problem.stages[0])
        nests[place : place + len(problem.stages)] = kernel.build()
        made = [region.buffer for nest in problem.stages for region in _block(nest).writes]
        kept = [buffer for buffer in root.alloc_buffers if buffer not in made[:-1]]
        return root.replace(body=seq(*nests), alloc_buffers=(*kept, *kernel.buffers))

    def schedule(
        self, sch: Schedule, problem: Problem, plan: Int4Tiles, kept: Sequence[str], target: Target
    ) -> None:
        """Run tiles in parallel; schedule other blocks separately."""
        inline_injective(sch)
        work = problem.rows * problem.depth * problem.columns
        parallelize(sch, sch.get_loops(TILES), target, work)
        parallelize(sch, sch.get_loops(FIXED), target, problem.rows * problem.depth)
        for rv in leaf_blocks(sch):
            if rv.name not in kept:
                continue
            if is_injective(sch, rv):
                schedule_injective(sch, rv, target)
            else:
                schedule_reduction(sch, rv, target)


# ---- choosing -----------------------------------------------------------------------------------


def choose_tiles(problem: Problem, target: Target) -> Int4Tiles | NotApplicable:
    """Return the tile for a problem, or why the kernel is not for it."""
    if not multiplies_bytes(target):
        return NotApplicable("the target has no products of unsigned and signed bytes")
    lanes, limbs = target.vector_lanes(32), limbs_of(problem)
    registers = target.vector_registers - _SPARE

    def most_vectors(rows: int) -> int:
        """Vectors whose sums fit, and next to them words as they are and as they are decoded."""
        return min(_MOST_VECTORS, registers // (rows * limbs + 2))

    least = 2 if problem.rows > 1 else 1
    fitting = [n for n in range(1, problem.rows + 1) if most_vectors(n) >= least]
    rows = max(fitting or [1], key=lambda high: (-(-(-problem.rows // high) * high), high))
    vectors = 1 << (max(1, most_vectors(rows)).bit_length() - 1)
    while vectors > 1 and vectors * lanes >= 2 * problem.columns:
        vectors //= 2
    tiles = Int4Tiles(rows, vectors * lanes, lanes, limbs)
    fault = _misfit(problem, tiles)
    return tiles if fault is None else NotApplicable(fault)


def limbs_of(problem: Problem) -> int:
    """The number of limbs of activations: for full accuracy, or for requested bits."""
    return problem.activation_bits // 8 or _LIMBS[problem.data.dtype]


def multiplies_bytes(target: Target) -> bool:
    """Whether a target has instructions for products of small unsigned and signed bytes."""
    return target.has("ssse3") or target.has("i8mm")


def _misfit(problem: Problem, tiles: Int4Tiles) -> str | None:
    """Return why operands can't be read by tiles without packing them in each call."""
    weights = [problem.packed, problem.scales, problem.zero_points]
    if all(item is None or item in problem.constants for item in weights):
        return None
    if problem.by_output or problem.columns % tiles.columns:
        return "weights that change from call to call lie in another order than tiles"
    return None


# ---- the kernel ---------------------------------------------------------------------------------


def _block(nest: Stmt) -> Block:
    found = block_of(nest)
    assert found is not None
    return found


class _Kernel:
    """Builds the nests of the kernel."""

    def __init__(self, problem: Problem, tiles: Int4Tiles, taken: set[str]) -> None:
        self.problem, self.tiles = problem, tiles
        self.run, self.rows = problem.run, problem.rows
        self.runs = problem.depth // self.run
        self.panels = -(-problem.columns // tiles.columns)
        self.tall = -(-self.rows // tiles.rows)
        self.buffers: list[Buffer] = []
        most = (2**31 - 1) // (_LARGEST * self.run) - 1
        self.levels = min(127 * 256 ** (tiles.limbs - 1), most)
        if problem.activation_bits:
            self.levels = ACTIVATION_LEVELS[problem.activation_bits]

        def buffer(name: str, shape: Sequence[int], dtype: str) -> Buffer:
            made = decl_buffer([const(n) for n in shape], dtype, fresh_name(name, taken))
            self.buffers.append(made)
            return made

        self.limbs = buffer("limbs", (self.rows, self.runs, tiles.limbs, self.run), "int8")
        self.tops = buffer("tops", (self.rows, self.runs), _FLOAT)
        self.sums = buffer("fixed_sums", (self.rows, self.runs), _SUM)
        self.made = buffer("int4_made", (self.panels, self.rows, tiles.columns), _FLOAT)
        self._buffer = buffer
        sizes = (4, 8, tiles.lanes)
        self.run_lanes = max(n for n in sizes if self.run % n == 0 and n <= tiles.lanes)
        self.run_values = decl_buffer((self.run,), _FLOAT, "values")
        self.fixed = decl_buffer((self.run,), _SUM, "fixed")
        dots = (tiles.rows, tiles.limbs, tiles.columns)
        self.dots = decl_buffer(dots, _SUM, "dots", scope="local")
        self.totals = decl_buffer((tiles.rows, tiles.columns), _FLOAT, "totals")

    def build(self) -> list[Stmt]:
        """All nests: packing of the weights, fixed-point activations, tiles, the result."""
        problem = self.problem
        words = problem.depth // PER_WORD
        packing: list[Stmt] = []
        self.words = self._panels(packing, problem.packed, words, self._word, _WORD)
        groups = problem.depth // problem.group
        self.scales = self._panels(packing, problem.scales, groups, self._at(problem.scales))
        self.zeros = None
        if problem.zero_points is not None:
            at = self._at(problem.zero_points)
            self.zeros = self._panels(packing, problem.zero_points, groups, at)
        return [*packing, self._activations(), expand(self.panel_tiles), self._result()]

    # ---- weights

    def _panels(
        self,
        packing: list[Stmt],
        source: Buffer,
        length: int,
        read: Callable[[Expr, Expr], Expr],
        dtype: str | None = None,
    ) -> Callable[[Expr, Expr], Expr]:
        """Add the packing of a constant operand; return how a tile reads a row of its columns."""
        columns = self.tiles.columns
        if source not in self.problem.constants:
            lanes = lanes_from(0, columns)
            return lambda panel, row: read(row, panel * columns + lanes)
        kind = dtype or source.dtype
        panels = self._buffer(f"{source.name}_panels", (self.panels, length, columns), kind)

        def element(panel: Expr, row: Expr, column: Expr) -> Expr:
            place = panel * columns + column
            if self.problem.columns % columns == 0:
                return read(row, place)
            return if_then_else(place < self.problem.columns, read(row, place), const(0, kind))

        def body(panel: Var, row: Var, column: Var) -> Stmt:
            return store(panels, element(panel, row, column), panel, row, column)

        axes = [Axis("panel", self.panels), Axis("row", length), Axis("column", columns)]
        marks = {LAYOUT_REWRITE: True, SEPARATE: 1}
        packing.append(block(panels.name, axes, body, annotations=marks))
        return lambda panel, row: load(panels, panel, row, lanes_from(0, columns))

    def _word(self, row: Expr, column: Expr) -> Expr:
        """A word of eight weights of an output."""
        packed = self.problem.packed
        if not self.problem.by_output:
            return load(packed, row, column)
        made: Expr = cast(load(packed, column, row * 4), _WORD)
        for place in range(1, 4):
            byte = cast(load(packed, column, row * 4 + place), _WORD)
            made = bitwise_or(made, shift_left(byte, const(8 * place, _WORD)))
        return made

    def _at(self, values: Buffer) -> Callable[[Expr, Expr], Expr]:
        """Return a function that reads the value of an output's group."""
        if self.problem.by_output:
            return lambda row, column: load(values, column, row)
        return lambda row, column: load(values, row, column)

    # ---- activations

    def _activations(self) -> Stmt:
        """Turn runs of activations into integers, and split these into limbs."""
        shape = self.problem.data.shape[:-1]
        axes = [Axis(f"m{d}", extent) for d, extent in enumerate(shape)]
        buffers = [self.run_values, self.fixed]
        return block(FIXED, [*axes, Axis("run", self.runs)], self._convert, buffers)

    def _convert(self, *at: Var) -> Stmt:
        *row, run = at
        return expand(self.convert, row, _ravel(row, self.problem.data.shape[:-1]), run)

    @T.macro
    def convert(self, row: Sequence[Expr], place: Expr, run: Expr) -> None:
        """Convert a run to rounded fractions of its largest magnitude, in ``levels`` steps."""
        lanes, size = self.run_lanes, self.run
        # Over a list, loops are written out as the macro is read.
        for start in list(range(0, size, lanes)):
            self.run_values[self._lanes(start)] = self._data(row, run * size + start)
        top = self._top()
        self.tops[place, run] = top
        moved = T.Select(top < _TINY, T.float32(_MOVED), T.float32(1))
        factor = T.float32(self.levels) / T.max(top * moved, T.float32(2.0**-90))
        for start in list(range(0, size, lanes)):
            values = T.meta_var(self.run_values[self._lanes(start)])
            self.fixed[self._lanes(start)] = self._rounded(values * moved * factor)
        self.sums[place, run] = self._sum_of_fixed()
        self._limbs(place, run)

    def _lanes(self, start: int) -> Expr:
        return lanes_from(start, self.run_lanes)

    def _data(self, row: Sequence[Expr], first: Expr) -> Expr:
        found = load(self.problem.data, *row, lanes_from(first, self.run_lanes))
        return cast(found, dtypes.vector_dtype(_FLOAT, self.run_lanes))

    def _rounded(self, value: Expr) -> Expr:
        return cast(call("nearbyint", value), dtypes.vector_dtype(_SUM, self.run_lanes))

    def _run_vectors(self, buffer: Buffer) -> list[Expr]:
        """A run, vector by vector."""
        return [load(buffer, self._lanes(start)) for start in range(0, self.run, self.run_lanes)]

    def _top(self) -> Expr:
        """The largest magnitude; NaN if one is not finite."""
        run_vectors = self._run_vectors(self.run_values)
        zero = const(0.0, dtypes.vector_dtype(_FLOAT, self.run_lanes))
        largest = reduce(maximum, [call("fabs", vector) for vector in run_vectors])
        # Zero, or NaN.
        checked = reduce(add, [vector * zero for vector in run_vectors])
        top: Expr = call("vector_reduce_max", largest, dtype=_FLOAT)
        return top + call("vector_reduce_add", checked, dtype=_FLOAT)

    def _sum_of_fixed(self) -> Expr:
        return call("vector_reduce_add", reduce(add, self._run_vectors(self.fixed)), dtype=_SUM)

    def _limbs(self, place: Expr, run: Expr) -> Stmt:
        """Store signed bytes: of every eight inputs first the even ones, then the odd ones."""
        width = max(self.run_lanes, PER_WORD)
        order = tuple(
            base + 2 * k + odd for base in range(0, width, PER_WORD) for odd in (0, 1)
            for k in range(4)
        )  # fmt: skip
        kind, small = dtypes.vector_dtype(_SUM, width), dtypes.vector_dtype("int8", width)
        # With 128 added to each limb there is nothing to borrow: limbs are bytes.
        biased = const(sum(128 << 8 * limb for limb in range(self.tiles.limbs)), kind)
        stmts: list[Stmt] = []
        for start in range(0, self.run, width):
            number = Shuffle((load(self.fixed, lanes_from(start, width)),), order) + biased
            for limb in range(self.tiles.limbs):
                byte = bitwise_xor(shift_right(number, const(8 * limb, kind)), const(128, kind))
                at = (place, run, const(limb), lanes_from(start, width))
                stmts.append(store(self.limbs, cast(byte, small), *at))
        return seq(*stmts)

    # ---- tiles

    @T.macro
    def panel_tiles(self) -> None:
        """Tiles of rows by columns of a panel, run by run."""
        columns = T.meta_var(lanes_from(0, self.tiles.columns))
        for panel, tall in T.grid(self.panels, self.tall):
            with T.block(TILES):
                vpanel, vtall = T.axis.remap("SS", [panel, tall])
                for buffer in (self.dots, self.totals):
                    T.alloc_buffer(buffer)
                for r in list(range(self.tiles.rows)):
                    self.totals[r, columns] = self._splat(0.0)
                for run in T.serial(self.runs):
                    with T.block("int4_run"):
                        vrun = T.axis.remap("R", [run])
                        self.add_run(vpanel, self._rows(vtall), vrun)
                for r, row in enumerate(self._rows(vtall)):
                    self.made[vpanel, row, columns] = self.totals[r, columns]

    @T.macro
    def add_run(self, panel: Expr, rows: Sequence[Expr], run: Expr) -> None:
        """Add the contribution of a run of inputs to the totals."""
        count, limbs = self.run // PER_WORD, self.tiles.limbs
        columns = T.meta_var(lanes_from(0, self.tiles.columns))
        for r, row in enumerate(rows):
            for limb in list(range(limbs)):
                self.dots[r, limb, columns] = self._start(row, run, limb)
        for j in T.serial(count, annotations=self._ahead()):
            with T.block("int4_dots"):
                vj = T.axis.remap("R", [j])
                words = self.words(panel, run * count + vj)
                even = T.bitwise_and(words, self._mask())
                odd = T.bitwise_and(self._shifted(words), self._mask())
                for half, weights in enumerate((even, odd)):
                    for r, row in enumerate(rows):
                        for limb in list(range(limbs)):
                            at = T.meta_var(lanes_from(vj * PER_WORD + 4 * half, 4))
                            self.dots[r, limb, columns] = T.dot_accumulate(
                                self.dots[r, limb, columns],
                                self._as_bytes(weights),
                                self.limbs[row, run, limb, at],
                            )
        factor = self._factor(panel, run)
        for r, row in enumerate(rows):
            value = T.meta_var(self._joined(r, row, panel, run) * factor * self._top_of(row, run))
            self.totals[r, columns] = self.totals[r, columns] + value

    def _rows(self, tall: Expr) -> list[Expr]:
        """The rows of a tile, clamped to the last one."""
        places = [tall * self.tiles.rows + row for row in range(self.tiles.rows)]
        if self.rows % self.tiles.rows == 0:
            return places
        return [minimum(place, self.rows - 1) for place in places]

    def _splat(self, value: float) -> Expr:
        return const(value, dtypes.vector_dtype(_FLOAT, self.tiles.columns))

    def _start(self, row: Expr, run: Expr, limb: int) -> Expr:
        """The initial value of sums of products: without zero points, the same for all weights."""
        value: Expr = const(0, _SUM)
        if limb == 0 and self.zeros is None:
            value = load(self.sums, row, run) * -SYMMETRIC_ZERO
        return Broadcast(value, self.tiles.columns)

    def _ahead(self) -> dict[str, int]:
        return {PREFETCH_DISTANCE: _AHEAD} if self.tall == 1 else {}

    def _mask(self) -> Expr:
        return const(_NIBBLES, dtypes.vector_dtype(_WORD, self.tiles.columns))

    def _shifted(self, words: Expr) -> Expr:
        return shift_right(words, const(4, words.dtype))

    def _as_bytes(self, words: Expr) -> Expr:
        kind = dtypes.vector_dtype("uint8", 4 * self.tiles.columns)
        return call("reinterpret", words, dtype=kind)

    def _group(self, run: Expr) -> Expr:
        return run if self.run == self.problem.group else run // (self.problem.group // self.run)

    def _factor(self, panel: Expr, run: Expr) -> Expr:
        """The scales of a group of weights, divided by the levels."""
        floats = dtypes.vector_dtype(_FLOAT, self.tiles.columns)
        return cast(self.scales(panel, self._group(run)), floats) * self._splat(1.0 / self.levels)

    def _joined(self, r: int, row: Expr, panel: Expr, run: Expr) -> Expr:
        """The sums of products of a row, with its limbs combined."""
        columns = lanes_from(0, self.tiles.columns)
        ints, floats = (dtypes.vector_dtype(k, self.tiles.columns) for k in (_SUM, _FLOAT))
        made: Expr = load(self.dots, r, 0, columns)
        for limb in range(1, self.tiles.limbs):
            made = made + shift_left(load(self.dots, r, limb, columns), const(8 * limb, ints))
        if self.zeros is not None:
            zero = cast(self.zeros(panel, self._group(run)), ints)
            made = made - zero * Broadcast(load(self.sums, row, run), self.tiles.columns)
        return cast(made, floats)

    def _top_of(self, row: Expr, run: Expr) -> Expr:
        return Broadcast(load(self.tops, row, run), self.tiles.columns)

    # ---- the result

    def _result(self) -> Stmt:
        out, columns = self.problem.out, self.tiles.columns

        def body(*at: Var) -> BufferStore:
            *row, n = at
            place = _ravel(row, out.shape[:-1])
            found = load(self.made, floordiv(n, columns), place, floormod(n, columns))
            return BufferStore(out, found, at)

        return over(out.shape, body, out.name)


def _ravel(row: Sequence[Expr], shape: Sequence[Expr]) -> Expr:
    """The flat index of a row over all leading dimensions."""
    place: Expr = const(0)
    for index, extent in zip(row, shape):
        place = place * extent + index
    return place
