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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.meta_schedule.feature.block import LANES, scratch_vectors
from tilewright.meta_schedule.feature.kernel import candidate_features
from tilewright.meta_schedule.feature.names import FEATURE_NAMES, LOGARITHMS
from tilewright.meta_schedule.feature.numbers import Pool, compiled
from tilewright.meta_schedule.feature.program import FLOP_KINDS, Program, StoreInfo
from tilewright.meta_schedule.feature.tables import MATH_STEPS, Tables
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
        self._table = Tables(program, pool).joined()
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
