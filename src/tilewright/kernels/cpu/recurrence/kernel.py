"""Recurrent layers: some sequences of the batch go through all steps together.

A step multiplies their states by the weight, tile by tile of gates in registers: each vector of the
weight that is read serves all of them. Then the cell is computed by vectors. The state stays in
memory of its own, of which a step's products read all before the cell replaces it.

Of a batch whose size comes with the call, the sequences that are left by whole groups go in smaller
ones, which are code of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from tilewright import te
from tilewright.arith import simplify
from tilewright.ir import Expr, Var, annotated, as_int, cast, const, contains, dtypes, pre_order
from tilewright.kernels.definition import is_definition
from tilewright.kernels.kernel import Kernel
from tilewright.scheduling import Choices, NotApplicable
from tilewright.scheduling.cpu import parallelize
from tilewright.target import Target
from tilewright.tir import (
    OPAQUE,
    REDUCE,
    UNROLLED,
    VECTORIZED,
    Block,
    Buffer,
    LetStmt,
    PrimFunc,
    Stmt,
    decl_buffer,
    make_root_block,
    seq,
)
from tilewright.tir.building import Axis, block, load, store
from tilewright.tir.schedule import Schedule
from tilewright.topi.nn.recurrent import (
    CELLS,
    RECURRENCE,
    SCALARS,
    Cell,
    RecurrenceOptions,
    define_recurrence,
)
from tilewright.topi.utils import sum_dtype

RECURRENCE_ROWS = "recurrence_rows"

# Sequences that go together, and vectors of gates: the sums of all of them are in registers.
_ROWS, _VECTORS = (4, 2, 1), 8
# Steps and sequences of extents that aren't known count as that many.
_UNKNOWN = 64


@dataclass(frozen=True)
class RecurrenceTiles:
    """Sizes: lanes of a vector, sequences that go together, vectors of gates in registers."""

    lanes: int
    rows: int
    vectors: int


@dataclass(frozen=True)
class Recurrence:
    """What is read from a function."""

    x: Buffer
    weight: Buffer
    bias: Buffer
    first: tuple[Buffer, ...]
    results: tuple[Buffer, ...]
    options: RecurrenceOptions

    @property
    def cell(self) -> Cell:
        """The cell."""
        return CELLS[self.options.cell]

    @property
    def hidden(self) -> int:
        """Elements of a state."""
        found = as_int(self.weight.shape[0])
        assert found is not None, "the definition has a constant hidden size"
        return found

    @property
    def batch(self) -> Expr:
        """The number of sequences."""
        return self.first[0].shape[0]

    @property
    def steps(self) -> Expr:
        """The number of steps."""
        return self.x.shape[1 if self.options.batch_first else 0]


class RecurrenceKernel(Kernel[Recurrence]):
    """For functions that are a recurrence, and nothing else."""

    forms: ClassVar = {RECURRENCE_ROWS: RecurrenceTiles}

    def recognise(self, func: PrimFunc) -> Recurrence | NotApplicable:
        """Compare with the definition named by the annotation."""
        return read_recurrence(func)

    def plan(
        self, problem: Recurrence, target: Target, choices: Choices
    ) -> RecurrenceTiles | NotApplicable:
        """Take as many sequences as leave one group for each thread, and fill the registers."""
        lanes = target.vector_lanes(dtypes.bits_of(sum_dtype(problem.x.dtype)))
        batch = as_int(problem.batch)
        if batch is None:
            rows = _ROWS[min(target.num_cores, 2) - 1]  # smaller groups leave more of them to share
        else:
            fit = [rows for rows in _ROWS if batch % rows == 0]
            rows = next((r for r in fit if batch // r >= target.num_cores), fit[0])
        registers = target.vector_registers * 5 // 8 // rows
        vectors = 1 << (max(1, min(_VECTORS, registers)).bit_length() - 1)
        return RecurrenceTiles(lanes, rows, vectors)

    def fault(self, problem: Recurrence, plan: RecurrenceTiles) -> str | None:
        """Say what is wrong with the sizes, if anything is."""
        if min(plan.lanes, plan.rows, plan.vectors) < 1:
            return "lanes, rows and vectors are at least one"
        batch = as_int(problem.batch)
        if batch is not None and batch % plan.rows:
            return f"{problem.batch!r} sequences are not in groups of {plan.rows}"
        return None

    def build(self, func: PrimFunc, problem: Recurrence, plan: RecurrenceTiles) -> Block:
        """Write the form."""
        groups, first = simplify(problem.batch // plan.rows), const(0)
        made = [_Rows(problem, plan).build(groups, first)]
        for rows in _remainder_sizes(problem, plan):
            first = first + groups * plan.rows
            vectors = min(_VECTORS, plan.vectors * plan.rows // rows)
            plan = replace(plan, rows=rows, vectors=vectors)
            groups = simplify((problem.batch - first) // rows)
            made.append(_Rows(problem, plan, _suffix(rows)).build(groups, first))
        return make_root_block(seq(*made)).block

    def schedule(
        self,
        sch: Schedule,
        problem: Recurrence,
        plan: RecurrenceTiles,
        kept: Sequence[str],
        target: Target,
    ) -> None:
        """Share the groups among threads; of each smaller size there is one at most."""
        extents = (*problem.x.shape, problem.weight.shape[0])
        work = math.prod(_UNKNOWN if (n := as_int(item)) is None else n for item in extents)
        parallelize(sch, sch.get_loops(RECURRENCE_ROWS), target, work)


def _remainder_sizes(problem: Recurrence, plan: RecurrenceTiles) -> list[int]:
    """Sizes of the groups that take what whole ones leave of a batch of unknown size."""
    known = as_int(problem.batch) is not None
    return [] if known else [rows for rows in _ROWS if rows < plan.rows]


def _suffix(rows: int) -> str:
    return f"_by_{rows}"


_has_recurrence = contains(annotated(RECURRENCE))


def read_recurrence(func: PrimFunc) -> Recurrence | NotApplicable:
    """Read buffers and options from a function, or say why it is not a recurrence."""
    if not _has_recurrence(func.body):
        return NotApplicable("the function is not one recurrence")
    blocks = [item for item in pre_order(func.body) if isinstance(item, Block)]
    found = [item for item in blocks if RECURRENCE in item.annotations]
    buffers = func.buffers
    options = RecurrenceOptions.from_annotation(found[0].annotations[RECURRENCE])
    states = CELLS[options.cell].states
    if len(blocks) != 2 or len(buffers) != 4 + 2 * states:
        return NotApplicable("the function is more or less than a recurrence")
    written = {region.buffer for region in found[0].writes}
    operands = [item for item in buffers if item not in written]
    results = [item for item in buffers if item in written]
    if len(results) != 1 + states or operands[0].ndim != 3:
        return NotApplicable("it isn't of arguments")

    def define(tensors: Mapping[Buffer, te.Tensor]) -> dict[Buffer, te.Tensor]:
        return dict(zip(results, define_recurrence([tensors[b] for b in operands], options)))

    if not is_definition(func, operands, define):
        return NotApplicable("the function is more or less than a recurrence")
    x, weight, bias, *first = operands
    return Recurrence(x, weight, bias, tuple(first), tuple(results), options)


class _Rows:
    """Builds the form; see the module's docstring."""

    def __init__(self, problem: Recurrence, tiles: RecurrenceTiles, suffix: str = "") -> None:
        self.problem, self.tiles, self.suffix = problem, tiles, suffix
        self.hidden, self.wide = problem.hidden, problem.hidden * problem.cell.gates
        self.inner = sum_dtype(problem.x.dtype)
        rows = tiles.rows
        self.gates = decl_buffer((rows, self.wide), self.inner, "gates")
        self.state = [
            decl_buffer((rows, self.hidden), self.inner, name)
            for name in ("state", "memory")[: problem.cell.states]
        ]

    def build(self, groups: Expr, first: Expr) -> Stmt:
        """So many groups of sequences, from the first of them."""
        alloc, rows = [self.gates, *self.state], self.tiles.rows
        name = f"{RECURRENCE_ROWS}{self.suffix}"

        def sequences(group: Var) -> Stmt:
            return self._group(first + group * rows)

        return block(name, [Axis("group", groups)], sequences, alloc)

    def _group(self, first: Expr) -> Stmt:
        """All steps of some sequences."""
        problem = self.problem

        def start(r: Expr, d: Expr) -> Stmt:
            pairs = zip(self.state, problem.first)
            return seq(*(store(s, self._wide(load(f, first + r, d)), r, d) for s, f in pairs))

        def finish(r: Expr, d: Expr) -> Stmt:
            pairs = zip(self.state, problem.results[1:])
            return seq(
                *(store(out, cast(load(s, r, d), out.dtype), first + r, d) for s, out in pairs)
            )

        def step(number: Var) -> Stmt:
            return seq(
                *self._products(), *self._cells(problem.options.at(number, problem.steps), first)
            )

        return seq(
            *self._by_vectors("start", start),
            block(f"step{self.suffix}", [Axis("step", problem.steps, kind=OPAQUE)], step),
            *self._by_vectors("finish", finish),
        )

    def _by_vectors(self, name: str, body: Callable[[Expr, Expr], Stmt]) -> list[Stmt]:
        """``body(row, element)`` of a state's elements: whole vectors, then the others."""
        lanes = self.tiles.lanes
        whole = self.hidden // lanes
        rows = Axis("r", self.tiles.rows, keep=True)
        made = []
        if whole:
            made.append(
                block(
                    name + self.suffix,
                    [rows, Axis("v", whole, keep=True), Axis("lane", lanes, VECTORIZED)],
                    lambda r, v, lane: body(r, v * lanes + lane),
                )
            )
        if rest := self.hidden - whole * lanes:
            made.append(
                block(
                    f"{name}_rest{self.suffix}",
                    [rows, Axis("lane", rest, VECTORIZED)],
                    lambda r, lane: body(r, whole * lanes + lane),
                )
            )
        return made

    # ---- products -------------------------------------------------------------------------------

    def _products(self) -> list[Stmt]:
        """The products of the states with the weight, tile by tile."""
        width = self.tiles.vectors * self.tiles.lanes
        whole = self.wide // width
        cuts = [(0, width, whole), (whole * width, self.wide - whole * width, 1)]
        return [
            self._tiles(f"{number}{self.suffix}", start, size, count)
            for number, (start, size, count) in enumerate(cuts)
            if size and count
        ]

    def _tiles(self, number: str, start: int, width: int, count: int) -> Stmt:
        """Tiles of one width."""
        bias, weight = self.problem.bias, self.problem.weight
        sums = decl_buffer((self.tiles.rows, width), self.inner, f"sums_{number}", scope="local")
        rows, vector = Axis("r", self.tiles.rows, UNROLLED), Axis("d", width, VECTORIZED)

        def tile(index: Expr) -> Stmt:
            first = start + index * width

            def begin(r: Expr, d: Expr) -> Stmt:
                return store(sums, self._wide(load(bias, first + d)), r, d)

            def multiply(k: Expr, r: Expr, d: Expr) -> Stmt:
                product = load(self.state[0], r, k) * self._wide(load(weight, k, first + d))
                return store(sums, load(sums, r, d) + product, r, d)

            def give(r: Expr, d: Expr) -> Stmt:
                return store(self.gates, load(sums, r, d), r, first + d)

            along = Axis("k", self.hidden, kind=REDUCE, keep=True)
            return seq(
                block(f"sums_start_{number}", [rows, vector], begin),
                block(f"multiply_{number}", [along, rows, vector], multiply),
                block(f"give_{number}", [rows, vector], give),
            )

        return block(f"product_{number}", [Axis("tile", count)], tile, [sums])

    # ---- the cell -------------------------------------------------------------------------------

    def _cells(self, step: Expr, first: Expr) -> list[Stmt]:
        """The new states and outputs."""
        problem = self.problem

        def cell(r: Expr, d: Expr) -> Stmt:
            lets: list[tuple[Var, Expr]] = []

            def share(value: Expr) -> Var:
                lets.append((Var(f"shared_{len(lets)}", value.dtype), value))
                return lets[-1][0]

            at = problem.options.place(step, first + r)
            places = [gate * self.hidden + d for gate in range(problem.cell.gates)]
            made = problem.cell.step(
                replace(SCALARS, share=share),
                [self._wide(load(problem.x, *at, place)) for place in places],
                [load(self.gates, r, place) for place in places],
                [load(state, r, d) for state in self.state],
            )
            # What is rounded goes on rounded.
            output = share(cast(made[0], problem.x.dtype))
            stores = [store(problem.results[0], output, *at, d)]
            stores += [
                store(s, self._wide(v), r, d) for s, v in zip(self.state, (output, *made[1:]))
            ]
            return with_lets(lets, seq(*stores))

        return self._by_vectors("cell", cell)

    def _wide(self, value: Expr) -> Expr:
        return cast(value, dtypes.vector_dtype(self.inner, dtypes.lanes_of(value.dtype)))


def with_lets(lets: Sequence[tuple[Var, Expr]], body: Stmt) -> Stmt:
    """Define variables around a statement."""
    for var, value in reversed(lets):
        body = LetStmt(var, value, body)
    return body
