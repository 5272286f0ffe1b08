"""A program as the machine code of features reads it: tables of words, and real constants.

Numbers that depend on tiles are rows of a matrix ``[numbers, candidates]``: tables say which row.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np

from tilewright.meta_schedule.feature.names import MAX_ACCESSES
from tilewright.meta_schedule.feature.numbers import Pool
from tilewright.meta_schedule.feature.program import FLOP_KINDS, Program, StoreInfo

HEADER = (
    "stores loops shapes levels limits buffers loop_table shape_table buffer_table compact_table "
    "compacts term_table store_table store_loops access_table dim_table"
).split()
"""The first words: counts, and where the parts begin."""
LOOP_FIELDS = "extent reduce chain".split()
BUFFER_FIELDS = "shape dims local".split()
COMPACT_FIELDS = "slot begin end".split()
TERM_FIELDS = "loop stride".split()
STORE_FIELDS = "loops depth access accesses instances".split()
ACCESS_FIELDS = "buffer read write dims".split()
DIM_FIELDS = "begin end".split()
MACHINE = (
    "l1 l2 l3 l2_rate l3_rate memory_rate registers cores launch gather max_instructions"
).split()
"""The first real constants: the target's. Then come the bytes of each buffer's elements."""
STORE_REALS = (
    "lanes latency_reducing latency work operations intensity math steps local "
    + " ".join(f"flops_{kind}" for kind in FLOP_KINDS)
).split()
"""Real constants of each store."""

MATH_STEPS = 16.0
"""What a statement with an expensive intrinsic counts as when loops are unrolled."""


class Tables:
    """The tables of a program; ``pool`` collects its numbers."""

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
