"""The design space as arrays: the decisions of a sketch as columns of options.

A ``Variant`` is a sketch whose structural choices (compute locations) are fixed. The other
decisions are ``Column``s: a tile has an option for each way to factor its loop, a categorical
choice one for each candidate. A candidate is a row of option numbers. The variant is replayed once
with symbolic tiles, so that features of any number of rows are array arithmetic; if a primitive
refuses symbolic tiles, features come from replaying each candidate (``fallback``).
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir import IRModule, Var, as_int, const, dtypes, free_vars, uses_var
from tilewright.meta_schedule.column import Column
from tilewright.meta_schedule.feature import (
    Evaluation,
    FeatureFunction,
    GPUFeatureFunction,
    feature_function,
    names_of,
)
from tilewright.meta_schedule.feature.numbers import Num
from tilewright.meta_schedule.postproc.rewrite_parallel_vectorize_unroll import vector_loop
from tilewright.meta_schedule.search_strategy.tile_options import (
    count_covering,
    count_tiles,
    covering_options,
    tile_options,
)
from tilewright.scheduling.gpu import limits_of
from tilewright.support.collector import few_collections
from tilewright.support.errors import ScheduleError, TilewrightError, TuneError
from tilewright.target import Target
from tilewright.tir import REDUCE
from tilewright.tir.attrs import PARALLEL_KEY, UNROLL_KEY
from tilewright.tir.schedule import BlockRV, ExprRV, Instruction, Schedule, Trace
from tilewright.tir.schedule.handles import RV_TYPES
from tilewright.tir.schedule.sampling import count_factorizations, divisors
from tilewright.tir.schedule.state import SymbolicTile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.int64]

logger = logging.getLogger("tilewright.meta_schedule")

TILES = ("sample_perfect_tile", "sample_partitioned_tile", "sample_tile")
MAX_LOCATIONS = 3
"""Compute locations tried for each block."""
_BEGUN = 12
"""Schedules of a sketch that are kept, decided in part, besides the one before all decisions."""
MAX_FORKS = 8
"""Combinations of compute locations tried for each sketch."""
_TIGHTER = 0.7
"""By how much at most the limit of code comes down for one candidate that was too large."""
_REDRAWS = 24
"""How often candidates that a GPU has not enough threads or memory for are drawn again."""
MAX_LOOPS = 18
"""How far inside compute locations are looked for."""


def covered_extents(mod: IRModule, trace: Trace) -> dict[int, int]:
    """Return the extents of the ``sample_tile`` instructions, by position of the instruction."""
    positions = {inst: n for n, inst in enumerate(trace.insts) if inst.name == "sample_tile"}
    if not positions:
        return {}
    sch = Schedule(mod, record=False)
    found: dict[int, int] = {}

    def look(inst: Instruction, args: Sequence[Any], decision: Any) -> Any:
        if inst in positions:
            found[positions[inst]] = as_int(sch.get(args[0]).extent) or 1
        return decision

    trace.apply_to_schedule(sch, decision_provider=look)
    return found


def make_columns(
    trace: Trace,
    multiples: Mapping[int, int] | None = None,
    covered: Mapping[int, int] | None = None,
) -> list[Column]:
    """Describe the open decisions of a trace; ``multiples`` by instruction restricts tiles.

    ``covered`` has what the trace doesn't show: the extents of tiles that need not divide.
    """
    uses: dict[Any, str] = dict.fromkeys(_thread_factors(trace), "thread")
    for inst in trace.insts:
        if inst.name == "annotate":
            key, value = inst.args[1], inst.args[2]
            if type(value) is ExprRV:
                uses[value] = {PARALLEL_KEY: "parallel", UNROLL_KEY: "unroll"}.get(key, "choice")
    columns = []
    for position, inst in enumerate(trace.insts):
        args = inst.arguments
        if inst.name == "sample_perfect_tile":
            extent = prod(inst.decision)
            limits = int(args["n"]), int(args["max_innermost_factor"])
            multiple = (multiples or {}).get(position, 1)
            options = tile_options(extent, *limits, multiple)
            total = count_tiles(extent, *limits, multiple)
            columns.append(Column(position, "tile", options, extent=extent, total=total))
        elif inst.name == "sample_tile":
            extent = (covered or {})[position]
            limits = int(args["n"]), int(args["max_innermost_factor"])
            options = covering_options(extent, *limits)
            total = count_covering(extent, *limits)
            columns.append(Column(position, "tile", options, extent=extent, total=total))
        elif inst.name == "sample_partitioned_tile":
            extent = prod(inst.decision)
            n, start, inner = (int(args[x]) for x in ("n", "partition_pos", "innerpart_factor"))
            options = tile_options(extent, n, 0)
            options = options[np.prod(options[:, start:], axis=1) % inner == 0]
            total = sum(
                count_factorizations(extent // d, start) * count_factorizations(d, n - start)
                for d in divisors(extent)
                if d % inner == 0
            )
            columns.append(Column(position, "tile", options, extent=extent, total=total))
        elif inst.name == "sample_categorical":
            probs = np.array([float(p) for p in args["probs"]])
            options = np.arange(len(probs), dtype=np.int64)[:, None]
            use = uses.get(inst.outputs[0], "choice")
            columns.append(Column(position, use, options, probs / probs.sum()))
    return columns


def _thread_factors(trace: Trace) -> list[ExprRV]:
    """Return the factors of splits whose loops are bound to threads."""
    factors: dict[Any, Any] = {}
    found = []
    for inst in trace.insts:
        if inst.name == "split":
            factors.update(zip(inst.outputs, inst.args[1]))
        elif inst.name == "bind" and str(inst.args[1]).startswith("threadIdx"):
            factor = factors.get(inst.args[0])
            if type(factor) is ExprRV:
                found.append(factor)
    return found


class ThreadCount:
    """How many threads of a GPU the kernels of a sketch have, as products of tile factors."""

    def __init__(self, trace: Trace, columns: Sequence[Column], max_threads: int) -> None:
        self.max_threads = max_threads
        place = {column.position: n for n, column in enumerate(columns)}
        values: dict[Any, tuple[int, int]] = {}
        loops: dict[Any, list[tuple[int, int]]] = {}
        self.products: list[list[tuple[int, int]]] = []
        """For each loop bound to threads, the column and factor of each of its parts."""
        for position, inst in enumerate(trace.insts):
            if inst.name in TILES and position in place:
                values.update((rv, (place[position], n)) for n, rv in enumerate(inst.outputs))
            elif inst.name == "split":
                for loop, factor in zip(inst.outputs, inst.args[1]):
                    loops[loop] = [values[factor]] if factor in values else []
            elif inst.name == "fuse":
                parts = [loops.get(loop, []) for loop in inst.args[0]]
                loops[inst.outputs[0]] = [item for part in parts for item in part]
            elif inst.name == "bind" and str(inst.args[1]).startswith("threadIdx"):
                self.products += [loops[inst.args[0]]] if loops.get(inst.args[0]) else []

    def fits(self, columns: Sequence[Column], rows: Rows) -> Any:
        """Return for each candidate whether its blocks have no more threads than allowed."""
        good = np.ones(len(rows), dtype=bool)
        for product in self.products:
            count = np.ones(len(rows), dtype=np.int64)
            for column, factor in product:
                count *= columns[column].options[rows[:, column], factor]
            good &= count <= self.max_threads
        return good


def open_shape(trace: Trace) -> str:
    """Return a text that is equal for traces that differ only in their open decisions."""
    entries = trace.as_json()
    for entry, inst in zip(entries, trace.insts):
        if inst.primitive.samples and inst.name != "sample_compute_location":
            del entry[3:]
    return repr(entries)


class Variant:
    """A sketch with fixed structure; see the module's docstring."""

    def __init__(
        self,
        mod: IRModule,
        trace: Trace,
        family: int,
        target: Target,
        sizes: Mapping[Var, int] | None = None,
    ) -> None:
        self.mod = mod
        self.trace = trace
        self.family = family
        self.target = target
        self.sizes = dict(sizes or {})
        """What symbolic sizes are taken to be."""
        self.shape = open_shape(trace)
        self.covered = covered_extents(mod, trace)
        self.columns = make_columns(trace, None, self.covered)
        most = limits_of(target).max_threads if target.kind == "cuda" else 0
        self.threads = ThreadCount(trace, self.columns, most)
        self.max_code = np.inf
        self._begun: dict[tuple[int, ...], tuple[int, Schedule, dict[Any, Any]]] = {}
        self.function: FeatureFunction | None = None
        self.fallback_reason: str | None = None
        try:
            self.function = self._symbolic()
        except TilewrightError as error:
            self.fallback_reason = error.message
            logger.info("a sketch resists symbolic replay: %s", error.summary)

    @property
    def size(self) -> int:
        """Number of candidates, those counted that ``columns`` represent by a sample."""
        return prod(column.total for column in self.columns)

    @property
    def is_sampled(self) -> bool:
        """Whether there are candidates that no row stands for."""
        return any(column.total > len(column.options) for column in self.columns)

    # ---- symbolic replay ----------------------------------------------------------------------
    def _symbolic(self) -> FeatureFunction:
        sch = Schedule(self.mod, symbolic=True, record=False)
        tiles: dict[Var, Num] = {**self.sizes}
        by_position = {column.position: n for n, column in enumerate(self.columns)}
        handles: dict[object, object] = {}
        vector_positions: dict[Var, int] = {}
        for position, inst in enumerate(self.trace.insts):
            number = by_position.get(position)
            args = mapped(inst.args, handles)
            if number is not None and inst.name in TILES:
                result = inst.primitive.run(sch, args, None)
                for factor_index, rv in enumerate(result):
                    tiles[rv.value] = f"v[{number}][:,{factor_index}]"
                if inst.name == "sample_perfect_tile":
                    vector_positions[result[-1].value] = position
            elif inst.name == "sample_categorical" and number is not None:
                var = Var(f"c{number}")
                tiles[var] = f"v[{number}][:,0]"
                if min(inst.arguments["candidates"]) >= 1:
                    sch.state.symbolic.append(SymbolicTile((var,), const(1), 0, exact=False))
                result = ExprRV(var)
            elif inst.primitive.samples and inst.name != "sample_compute_location":
                raise TuneError(f"{inst.name} has no symbolic form")
            else:
                result = inst.primitive.run(sch, args, inst.decision)
            record_outputs(inst, result, handles)
        func = sch.mod.functions[sch.working_func]
        self._limit_vectors(sch, vector_positions)
        # Schedulable, so a PrimFunc.
        return feature_function(func, self.target, tiles)  # type: ignore[arg-type]

    def limit_code(self, instructions: float) -> None:
        """Make candidates with much more code invalid, so that none is replayed in vain."""
        self.max_code = instructions
        if self.function is not None:
            self.function.max_instructions = instructions

    def learn_too_large(self, code: float) -> None:
        """Learn that a candidate with this estimated code size was too large.

        Others of this estimate most likely are too, but one wrong estimate must not rule out all.
        """
        self.limit_code(max(0.99 * code, _TIGHTER * self.max_code))

    def _limit_vectors(self, sch: Schedule, positions: Mapping[Var, int]) -> None:
        """Restrict factors of vector loops to whole vectors, where the extent allows."""
        multiples: dict[int, int] = {}
        for realize in sch.state.index(sch.working_func).blocks.values():
            loops = sch.state.loops_above(realize)
            place = vector_loop(realize, loops) if loops else None
            if place is None or realize.block.init is None:
                continue
            position = positions.get(loops[place].extent)  # type: ignore[call-overload]
            if position is not None:
                bits = dtypes.bits_of(realize.block.writes[0].buffer.dtype)
                multiples[position] = self.target.vector_bits // bits
        if multiples:
            self.columns = make_columns(self.trace, multiples, self.covered)

    # ---- populations --------------------------------------------------------------------------
    def draw(self, count: int, rng: np.random.Generator) -> Rows:
        """Draw candidates at random, if possible those that a GPU has threads enough for."""
        if not self.columns:
            return np.zeros((count, 0), dtype=np.int64)

        def drawn(number: int) -> Rows:
            return np.stack([column.draw(number, rng) for column in self.columns], axis=1)

        rows = drawn(count)
        if not self.threads.products:
            return rows
        wrong = np.arange(count)
        for _ in range(_REDRAWS):
            wrong = wrong[~self._fit_the_gpu(rows[wrong])]
            if not len(wrong):
                break
            rows[wrong] = drawn(len(wrong))
        return rows

    def _fit_the_gpu(self, rows: Rows) -> Any:
        """Whether candidates have no more threads, registers and shared memory than there are."""
        good = self.threads.fits(self.columns, rows)
        if isinstance(self.function, GPUFeatureFunction):
            good &= self.function.runnable(self.values(rows), len(rows))
        return good

    def values(self, rows: Rows) -> list[Any]:
        """Return, per column, the numbers of the options."""
        made = []
        for n, column in enumerate(self.columns):
            options: Any = column.options
            if column.use != "tile":
                chosen = self.trace.insts[column.position].arguments["candidates"]
                options = np.array(chosen, dtype=np.float64)[options[:, :1]]
            made.append(options[rows[:, n]].astype(np.float64))
        return made

    def evaluate(self, rows: Rows) -> Evaluation:
        """Compute features, expected cycles and validity of candidates."""
        if self.function is None:
            return self._replayed(rows)
        made = self.function(self.values(rows), len(rows))
        if not self.threads.products:
            return made
        fits = self.threads.fits(self.columns, rows)
        return Evaluation(made.features, made.cycles, made.valid & fits, made.code)

    def _replayed(self, rows: Rows) -> Evaluation:
        """Features of candidates that must be replayed one by one."""
        found: list[Evaluation | None] = []
        for row, fits in zip(rows, self.threads.fits(self.columns, rows)):
            if not fits:
                found.append(None)
                continue
            try:
                sch = self.replay(row)
                func = sch.mod.functions[sch.working_func]
                function = feature_function(func, self.target, self.sizes)  # type: ignore[arg-type]
                found.append(function([], 1))
            except (ScheduleError, TuneError):
                found.append(None)  # Not valid; counted when somebody tries to measure it.
        width = next((item.features.shape[1:] for item in found if item is not None), None)
        width = width or (1, len(names_of(self.target)))
        stores = max((item.features.shape[1] for item in found if item is not None), default=1)
        features = np.zeros((len(rows), stores, width[1]), dtype=np.float32)
        cycles = np.full(len(rows), np.inf)
        valid = np.zeros(len(rows), dtype=bool)
        for n, item in enumerate(found):
            if item is not None:
                features[n, : item.features.shape[1]] = item.features[0]
                cycles[n], valid[n] = item.cycles[0], item.valid[0]
        return Evaluation(features, cycles, valid, np.zeros(len(rows)))

    # ---- candidates as schedules --------------------------------------------------------------
    def decisions(self, row: Sequence[int]) -> dict[int, object]:
        """Return the decision of each sampling instruction, by position."""
        return {
            column.position: column.decision(int(option))
            for column, option in zip(self.columns, row)
        }

    def replay(self, row: Sequence[int]) -> Schedule:
        """Replay the sketch with a candidate's decisions; no postprocs.

        It goes on from a copy of the last one that was decided alike up to there.
        """
        chosen = self.decisions(row)
        done = len(self.columns)
        while done and tuple(row[:done]) not in self._begun:
            done -= 1
        start, sch, handles = self._begun.get(tuple(row[:done]), (0, None, {}))
        sch, handles = Schedule(self.mod, seed=0) if sch is None else sch.copy(), dict(handles)
        ends = {column.position: n for n, column in enumerate(self.columns)}
        for position, inst in enumerate(self.trace.insts[start:], start):
            if position in ends and position > start:
                self._keep(tuple(row[: ends[position]]), position, sch, handles)
            decision = chosen.get(position, inst.decision)
            result = inst.primitive.run(sch, mapped(inst.args, handles), decision)
            record_outputs(inst, result, handles)
        return sch

    def forget_replays(self) -> None:
        """Drop what ``replay`` goes on from: it serves candidates of one batch."""
        self._begun.clear()

    def _keep(
        self, decided: tuple[int, ...], position: int, sch: Schedule, handles: Mapping[Any, Any]
    ) -> None:
        """Keep a copy of a schedule before the instruction at ``position``."""
        if len(self._begun) > _BEGUN:
            del self._begun[next(key for key in self._begun if key)]
        self._begun[decided] = position, sch.copy(), dict(handles)

    def row_of(self, trace: Trace) -> Rows | None:
        """Return the candidate of a trace (without postprocs) of the same shape."""
        insts = trace.insts
        row = [column.option_of(insts[column.position].decision) for column in self.columns]
        return None if any(option < 0 for option in row) else np.array(row, dtype=np.int64)


def make_variants(
    mod: IRModule,
    sketches: Sequence[Schedule],
    target: Target,
    sizes: Mapping[Var, int] | None = None,
) -> list[Variant]:
    """Turn sketches into variants: one for each combination of compute locations that works.

    ``sizes`` are what symbolic ones are taken to be when candidates are rated.
    """
    made: list[Variant] = []
    shapes: set[str] = set()
    for family, sketch in enumerate(sketches):
        for trace in _located(mod, sketch.trace.simplified(remove_postproc=True)):
            shape = open_shape(trace)
            if shape not in shapes:
                shapes.add(shape)
                made.append(Variant(mod, trace, family, target, sizes))
    return made


def _located(mod: IRModule, trace: Trace) -> list[Trace]:
    """Fork a trace by compute location, one sampling at a time."""
    done = [trace]
    places = [n for n, inst in enumerate(trace.insts) if inst.name == "sample_compute_location"]
    for place in places:
        forks = [_locations(mod, item, place) for item in done[:MAX_FORKS]]
        # Those of all that was found so far, the first of each first.
        rounds = itertools.zip_longest(*forks)
        done = [fork for group in rounds for fork in group if fork is not None]
    return done[:MAX_FORKS]


def _locations(mod: IRModule, trace: Trace, place: int) -> list[Trace]:
    """Fork a trace by one compute location: where the block is, and some loops of its consumers.

    Useful locations are just outside a loop that the block's data doesn't depend on. Inside a
    reduction, or inline in one, it would be recomputed at each step; such locations are used only
    if there are no others.
    """
    stay: list[Trace] = []
    inside: list[tuple[bool, Trace]] = []
    repeated: list[Trace] = []
    start, handles = Schedule(mod, record=False), dict[Any, Any]()
    _replay(start, trace.insts[:place], handles)
    block = handles[trace.insts[place].args[0]]

    def located(decision: int) -> tuple[Schedule, Trace] | None:
        insts = list(trace.insts)
        insts[place] = insts[place].with_decision(decision)
        sch = start.copy()
        try:
            _replay(sch, insts[place:], dict(handles))
        except TilewrightError:
            return None
        return sch, Trace(insts)

    for decision in range(-1, MAX_LOOPS):
        made = located(decision)
        if made is None:
            continue
        sch, fork = made
        if decision == -1:
            stay.append(fork)
        elif _in_reduction(sch, block):
            repeated.append(fork)
        else:
            inside.append((_follows_location(sch, block), fork))
    following = [*(follows for follows, _ in inside[1:]), False]
    ends = [fork for (follows, fork), next_ in zip(inside, following) if follows and not next_]
    if stay or ends:
        return [*stay, *ends][:MAX_LOCATIONS]
    inline = located(-2)
    if inline is not None:
        repeated.insert(0, inline[1])
    return repeated[:MAX_LOCATIONS] or [trace]


def _replay(sch: Schedule, insts: Sequence[Instruction], handles: dict[object, object]) -> None:
    """Run instructions on a schedule; ``handles`` maps recorded handles to its own."""
    with few_collections():
        for inst in insts:
            made = inst.primitive.run(sch, mapped(inst.args, handles), inst.decision)
            record_outputs(inst, made, handles)


def _in_reduction(sch: Schedule, block: BlockRV) -> bool:
    """Whether a loop around a block is a reduction loop."""
    blocks = sch.state.index(block.func).blocks
    around = {loop.loop_var for loop in sch.state.loops_above(blocks[block.name])}
    return any(
        iter_var.kind == REDUCE and uses_var(value, around)
        for realize in blocks.values()
        for iter_var, value in zip(realize.block.iter_vars, realize.iter_values)
    )


def _follows_location(sch: Schedule, block: BlockRV) -> bool:
    """Whether consumers read different data of a block in each step of the loop it was moved to."""
    blocks = sch.state.index(block.func).blocks
    own = blocks[block.name]
    loops = sch.state.loops_above(own)
    written = {region.buffer for region in own.block.writes}
    for realize in blocks.values():
        read = [region for region in realize.block.reads if region.buffer in written]
        if realize is own or not read or not realize.block.iter_vars:
            continue
        shared = [loop for loop in sch.state.loops_above(realize) if loop in loops]
        indices = [item.min for region in read for item in region.region]
        used = {var for index in indices for var in free_vars(index)}
        return bool(shared) and any(
            iter_var.var in used
            and as_int(iter_var.dom.extent) != 1
            and uses_var(value, {shared[-1].loop_var})
            for iter_var, value in zip(realize.block.iter_vars, realize.iter_values)
        )
    return False


def first_of_equals(rows: Rows) -> Rows:
    """Return where each of the different rows comes first, in the order of the rows' numbers."""
    radix = rows.max(axis=0, initial=0).astype(object) + 1
    places = [int(prod(radix[n + 1 :])) for n in range(len(radix))]
    if prod(radix) >= 2**62 or not places or rows.min(initial=0) < 0:
        return np.unique(rows, axis=0, return_index=True)[1]
    # As single numbers they are sorted in a fraction of the time.
    return np.unique(rows @ np.array(places, dtype=np.int64), return_index=True)[1]


def mapped(value: Any, handles: Mapping[Any, Any]) -> Any:
    """Replace recorded handles by those of a replay."""
    kind = type(value)
    if kind in RV_TYPES:
        return handles[value]
    if kind is tuple:
        return tuple([mapped(item, handles) for item in value])
    if kind is list:
        return [mapped(item, handles) for item in value]
    if kind is dict:
        return {key: mapped(item, handles) for key, item in value.items()}
    return value


def record_outputs(inst: Instruction, result: Any, handles: dict[Any, Any]) -> None:
    """Remember which handles a replayed instruction returned.

    Raises ``ScheduleError`` if their number differs.
    """
    if inst.outputs:
        given = result if type(result) in (list, tuple) else (result,)
        if len(given) != len(inst.outputs):
            raise ScheduleError(
                f"{inst.name} gives {len(given)} results here, {len(inst.outputs)} were recorded"
            )
        handles.update(zip(inst.outputs, given))
