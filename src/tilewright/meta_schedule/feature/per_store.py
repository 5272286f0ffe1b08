"""Features of stores, for whole populations at once.

For each store statement: operations by kind; lengths of vectorised, parallel and unrolled loops;
for each of its accesses bytes moved, footprints, reuse and strides; arithmetic intensity at ten
points of the loop nest; allocation. The groups are those of Ansor (Zheng et al., OSDI 2020,
appendix B), plus features for CPUs: register tiles, cache traffic, row strides that collide in L1,
and the time that a simple machine model predicts from all this.

There is only one implementation: every quantity is an array over candidates, computed by machine
code (``kernel``) from a table of the program. A concrete schedule is a population of one, with
constant extents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.meta_schedule.feature.kernel import (
    HEADER,
    LANES,
    MATH_STEPS,
    candidate_features,
    scratch_vectors,
)
from tilewright.meta_schedule.feature.names import FEATURE_NAMES, LOGARITHMS, MAX_ACCESSES
from tilewright.meta_schedule.feature.numbers import Pool, compiled
from tilewright.meta_schedule.feature.program import FLOP_KINDS, Program, StoreInfo
from tilewright.meta_schedule.machine_code import compiled as machine_code
from tilewright.target import Target

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


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
        self._table = _Tables(program, pool).joined()
        self._numbers = len(pool.numbers)
        self._evaluate = compiled(pool.numbers)
        self._room = scratch_vectors(self._table.tolist())

    def __call__(self, columns: Sequence[Array], count: int) -> Evaluation:
        """Evaluate ``count`` candidates whose decisions are ``columns``."""
        padded = -(-count // LANES) * LANES
        numbers = np.ones((self._numbers, padded))
        with np.errstate(divide="ignore", invalid="ignore"):
            for row, number in enumerate(self._evaluate(columns)):
                numbers[row, :count] = number
        features = np.empty((padded, len(self.program.stores), len(FEATURE_NAMES)), np.float32)
        cycles, valid, code = np.empty((3, padded))
        _features()(
            self._table,
            self._reals(),
            np.array(LOGARITHMS, dtype=np.int32),
            numbers,
            padded,
            np.empty(self._room * LANES),
            features,
            cycles,
            valid,
            code,
        )
        return Evaluation(features[:count], cycles[:count], valid[:count] > 0, code[:count])

    def _reals(self) -> Array:
        """Return the constants that ``kernel`` wants: the target's, each buffer's, each store's."""
        known, target = self.costs, self.target
        machine = (
            target.l1_bytes, target.l2_bytes, target.l3_bytes,
            known.l2_bandwidth, known.l3_bandwidth, known.memory_bandwidth,
            self.registers, target.num_cores, known.launch, known.gather, self.max_instructions,
        )  # fmt: skip
        buffers = (item.bytes for item in self.program.buffers)
        stores = chain.from_iterable(map(self._store_reals, self.program.stores))
        return np.array([*machine, *buffers, *stores], dtype=np.float64)

    def _store_reals(self, store: StoreInfo) -> list[float]:
        known, written = self.costs, store.accesses[0].buffer
        flops = {kind: max(store.flops[kind], 0.0) for kind in FLOP_KINDS}
        costs = {"div": known.vector_division, "math": known.vector_function}
        work = sum(number * costs.get(kind, 1.0) for kind, number in flops.items())
        operations, math = sum(flops.values()), flops["math"] > 0
        return [
            max(1.0, self.target.vector_bits / (written.bytes * 8)),
            known.multiply_add_latency if work > 0 else 0.0,
            1.0 if work > 0 else 0.0,
            work,
            operations,
            operations or 1.0,
            float(math),
            MATH_STEPS if math else 1.0,
            float(written.local),
            *flops.values(),
        ]


@cache
def _features() -> Callable[..., None]:
    return machine_code(candidate_features)


class _Tables:
    """A program as ``kernel`` reads it: a header, and tables of words."""

    def __init__(self, program: Program, pool: Pool) -> None:
        self.program, self.pool = program, pool
        self.terms: list[int] = []
        self.dims: list[int] = []
        self.buffer_dims: list[int] = []
        """Where the dimensions of each buffer begin."""
        shapes: list[int] = []
        for buffer in program.buffers:
            self.buffer_dims.append(len(shapes))
            shapes += [pool.add(size) for size in buffer.shape]
        self.shapes = shapes
        self.loops = [
            word
            for loop in program.loops
            for word in (pool.add(loop.extent), int(loop.reduce), int(loop.chain))
        ]
        self.stores: list[int] = []
        self.store_loops: list[int] = []
        self.accesses: list[int] = []
        for store in program.stores:
            self._store(store)
        self.compacts = [word for item in self._compacted() for word in item]

    def _store(self, store: StoreInfo) -> None:
        accesses = store.accesses[:MAX_ACCESSES]
        instances = self.pool.add(store.instances)
        first = len(self.accesses) // 4
        self.stores += [
            len(self.store_loops), len(store.loops), first, len(accesses), instances
        ]  # fmt: skip
        self.store_loops += store.loops
        for access in accesses:
            dims = len(self.dims) // 2
            for linear in access.indices:
                self.dims += self._terms(
                    (store.loops.index(loop), self.pool.add(stride))
                    for loop, stride in linear.items()
                    if loop in store.loops
                )
            self.accesses += [access.buffer.index, int(access.read), int(access.write), dims]

    def _terms(self, terms: Iterable[tuple[int, int]]) -> tuple[int, int]:
        """Keep terms of an index; return where they begin and end."""
        begin = len(self.terms) // 2
        self.terms += chain.from_iterable(terms)
        return begin, len(self.terms) // 2

    def _compacted(self) -> Iterable[tuple[int, int, int]]:
        """The dimensions of intermediate buffers, which shrink to what is in use at once.

        Their extents then come from their first writer, and the loops that are not around all uses.
        """
        done = set()
        for store in self.program.stores:
            for access in store.accesses:
                buffer = access.buffer
                if not access.write or buffer.index in done:
                    continue
                done.add(buffer.index)
                if not buffer.intermediate or buffer.around is None:
                    continue
                inside = store.loops[len(buffer.around) :]
                for dim, linear in enumerate(access.indices):
                    terms = (
                        (loop, self.pool.add(stride))
                        for loop, stride in linear.items()
                        if loop in inside
                    )
                    yield self.buffer_dims[buffer.index] + dim, *self._terms(terms)

    def joined(self) -> Any:
        """Return all as one array of int32."""
        program = self.program
        buffers = [
            word
            for item, start in zip(program.buffers, self.buffer_dims)
            for word in (start, len(item.shape), int(item.local))
        ]
        limits = [self.pool.add(x) for x in (program.parallel, program.vectorize, program.unroll)]
        parts = {
            "limits": limits,
            "loop_table": self.loops,
            "shape_table": self.shapes,
            "buffer_table": buffers,
            "compact_table": self.compacts,
            "term_table": self.terms,
            "store_table": self.stores,
            "store_loops": self.store_loops,
            "access_table": self.accesses,
            "dim_table": self.dims,
        }
        counts = {
            "stores": len(program.stores),
            "loops": len(program.loops),
            "shapes": len(self.shapes),
            "levels": 1 + max((len(store.loops) for store in program.stores), default=0),
            "buffers": len(program.buffers),
            "compacts": len(self.compacts) // 3,
        }
        starts, words = dict(counts), list[int]()
        for name, part in parts.items():
            starts[name] = len(HEADER) + len(words)
            words += part
        return np.array([*(starts[name] for name in HEADER), *words], dtype=np.int32)
