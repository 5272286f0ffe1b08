"""Sorting on GPUs: recognised by ``topi``'s definition, replaced by a merge sort.

Rows that fit into shared memory are sorted there; of short ones, a thread block sorts several.
Longer rows are sorted by tiles that are merged (:mod:`.rows`), and so are their first elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tilewright.ir import as_int
from tilewright.kernels.gpu.sizes import ceil_power, floor_power
from tilewright.kernels.gpu.sort.merging import SortThreads
from tilewright.kernels.gpu.sort.rows import SortRows
from tilewright.kernels.kernel import Kernel
from tilewright.kernels.problems.sorting import Sorting, read_sorting
from tilewright.scheduling import Choices, NotApplicable
from tilewright.scheduling.gpu import GPULimits, limits_of
from tilewright.target import Target
from tilewright.tir import Block, PrimFunc, make_root_block
from tilewright.tir.schedule import Schedule

MERGE_SORT = "merge_sort"

# Elements of a thread, if there are enough, and threads of a block.
_ITEMS, _THREADS = 8, 256


class SortKernel(Kernel[Sorting]):
    """For functions that are a sort, and nothing else."""

    forms: ClassVar = {MERGE_SORT: SortThreads}

    def recognise(self, func: PrimFunc) -> Sorting | NotApplicable:
        """Compare with the definition named by the annotation."""
        return read_sorting(func)

    def plan(
        self, problem: Sorting, target: Target, choices: Choices
    ) -> SortThreads | NotApplicable:
        """Choose tiles that fit into shared memory; whole rows, if these fit."""
        return choose_threads(problem, limits_of(target), choices)

    def fault(self, problem: Sorting, plan: SortThreads) -> str | None:
        """Say what is wrong with the sizes, if anything is."""
        extent = as_int(problem.extent)
        if plan.rows > 1 and (extent is None or extent > plan.tile):
            return "a block has several rows only if these are known to be tiles"
        return plan.fault()

    def build(self, func: PrimFunc, problem: Sorting, plan: SortThreads) -> Block:
        """Write the form."""
        made = SortRows(problem, plan)
        return make_root_block(made.build(), made.root_buffers).block

    def schedule(
        self,
        sch: Schedule,
        problem: Sorting,
        plan: SortThreads,
        kept: Sequence[str],
        target: Target,
    ) -> None:
        """Do nothing: blocks and threads are the kernel's own."""


def choose_threads(
    sorting: Sorting, limits: GPULimits, choices: Choices
) -> SortThreads | NotApplicable:
    """Return the sizes for a sort."""
    most = min(_THREADS, floor_power(limits.max_threads))
    extent = as_int(sorting.extent)
    options = [
        sizes
        for threads, items in ((most, _ITEMS), (most, 4), (most, 16), (most // 2 or 1, _ITEMS))
        if (sizes := SortThreads(threads, items)).shared_bytes(sorting) <= limits.max_shared_memory
    ]
    while not options and most > 1:
        most //= 2
        sizes = SortThreads(most, 4)
        options += [sizes] if sizes.shared_bytes(sorting) <= limits.max_shared_memory else []
    if not options:
        return NotApplicable("no tile fits into shared memory")
    if extent is not None and extent <= options[0].tile:
        items = min(options[0].items, max(1, extent))
        threads = ceil_power(-(-extent // items))
        return SortThreads(threads, items, max(1, most // threads // 2))
    return choices.choose("sort.threads", options)
