"""Sorting: recognised by ``topi``'s definition, replaced by a kernel chosen by length.

- whole rows: :mod:`.rows`, a network of vector minima and maxima;
- the first few of long rows: :mod:`.top_k`, which reads most elements only once or twice.

Sorts without a kernel (indices of float64 elements) are left to rules.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from tilewright.ir import (
    as_int,
)
from tilewright.kernels.cpu.sort.rows import SortRows, SortTiles, key_bits
from tilewright.kernels.cpu.sort.top_k import TopK, TopKTiles
from tilewright.kernels.kernel import Kernel
from tilewright.kernels.problems.sorting import Sorting, read_sorting
from tilewright.scheduling import Choices, NotApplicable
from tilewright.target import Target
from tilewright.tir import Block, PrimFunc, make_root_block
from tilewright.tir.schedule import Schedule

ROWS, TOP_K = "sort_rows", "top_k"

# Rows that are worth more than sorting them, and how many elements are few.
_LONG_ROW, _MOST_WANTED = 512, 4096
_GROUPS_PER_ELEMENT = 2
# Elements of a row that threads share, if there are fewer rows than threads.
_SHARED_ROW = 1 << 17
_SEGMENT = 4096
# An extent that isn't known counts as that much.
_UNKNOWN = 64


class SortKernel(Kernel[Sorting]):
    """For functions that are a sort, and nothing else."""

    forms: ClassVar = {ROWS: SortTiles, TOP_K: TopKTiles}

    def recognise(self, func: PrimFunc) -> Sorting | NotApplicable:
        """Compare with the definition named by the annotation."""
        return read_sorting(func)

    def plan(
        self, problem: Sorting, target: Target, choices: Choices
    ) -> SortTiles | TopKTiles | NotApplicable:
        """Use top-k where that saves work."""
        return choose_tiles(problem, target)

    def fault(self, problem: Sorting, plan: SortTiles | TopKTiles) -> str | None:
        """Say what is wrong with the sizes, if anything is."""
        return plan.fault(problem)

    def build(self, func: PrimFunc, problem: Sorting, plan: SortTiles | TopKTiles) -> Block:
        """Write the form."""
        made = TopK(problem, plan) if isinstance(plan, TopKTiles) else SortRows(problem, plan)
        return make_root_block(made.build()).block

    def schedule(
        self,
        sch: Schedule,
        problem: Sorting,
        plan: SortTiles | TopKTiles,
        kept: Sequence[str],
        target: Target,
    ) -> None:
        """Run rows in parallel, unless threads share each."""
        loops = sch.get_loops(TOP_K if isinstance(plan, TopKTiles) else ROWS)
        if not loops:
            return
        fused = sch.fuse(*loops)
        shares_rows = isinstance(plan, TopKTiles) or not plan.is_shared
        if shares_rows and target.num_cores > 1 and _work(problem) >= target.costs.parallel_work:
            sch.parallel(fused)


def _work(sorting: Sorting) -> int:
    known = (as_int(extent) for extent in sorting.x.shape)
    return 4 * math.prod(_UNKNOWN if n is None else n for n in known)


# ---- choosing -----------------------------------------------------------------------------------


def choose_tiles(sorting: Sorting, target: Target) -> SortTiles | TopKTiles | NotApplicable:
    """Return the form and its sizes for a sort, or why none applies."""
    few = top_k_tiles(sorting, target)
    if few is not None and few.fault(sorting) is None:
        return few
    tiles = sort_tiles(sorting, target)
    fault = tiles.fault(sorting)
    return tiles if fault is None else NotApplicable(fault)


def sort_tiles(sorting: Sorting, target: Target) -> SortTiles:
    """Tiles of half the registers; smaller ones for short rows. Threads share a few long rows."""
    lanes = target.vector_bits // key_bits(sorting)
    tile = max(lanes, target.vector_registers // 2)
    extent = as_int(sorting.extent)
    while extent is not None and tile > lanes and tile // 2 * lanes >= extent:
        tile //= 2
    rows = [as_int(n) for n in sorting.rows]
    few = None not in rows and math.prod(n or 0 for n in rows) < target.num_cores
    return SortTiles(target.vector_bits, tile, few and extent is not None and extent >= _SHARED_ROW)


def top_k_tiles(sorting: Sorting, target: Target) -> TopKTiles | None:
    """Some groups for each requested element; ``None`` if a sort takes no longer."""
    lanes, count = target.vector_lanes(32), sorting.options.count
    extent = as_int(sorting.extent)
    tile = max(2, lanes // 2)
    if not count or count > _MOST_WANTED or (extent is not None and extent < _LONG_ROW):
        return None
    # They are sorted as 64-bit integers.
    few = tile * lanes // 2
    groups = -(-_GROUPS_PER_ELEMENT * count // few) * few
    if extent is not None and 2 * groups > extent:
        return None
    return TopKTiles(target.vector_bits, tile, groups, max(_SEGMENT, groups))
