"""Scans on GPUs: recognised by ``topi``'s definition, replaced by one that threads share.

Sizes are chosen by the length and the number of rows:

- rows that are neighbours in memory element by element, many of them: one thread for each;
- short rows: some lanes of a warp for each;
- long rows: a thread block for each, or several, if rows are few (:mod:`.tiles`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tilewright.ir import as_int
from tilewright.kernels.gpu.lanes import WARP
from tilewright.kernels.gpu.scan.tiles import ScanThreads, ScanTiles
from tilewright.kernels.gpu.sizes import ceil_power, floor_power, known_product
from tilewright.kernels.kernel import Kernel
from tilewright.kernels.problems.scan import Scan, read_scan
from tilewright.scheduling import Choices, NotApplicable, others_after
from tilewright.scheduling.gpu import GPULimits, limits_of
from tilewright.target import Target
from tilewright.tir import Block, PrimFunc, make_root_block
from tilewright.tir.schedule import Schedule

SCAN_TILES = "scan_tiles"

# Elements that a thread folds by itself, and threads of a block.
_ITEMS, _THREADS, _LONG = 4, 128, 256
# Rows of unknown number or length count as that many.
_UNKNOWN = 1024
# Thread blocks that a multiprocessor runs at a time, and tiles of a part of a row, at least.
_BLOCKS_PER_PROCESSOR, _LEAST_TILES = 4, 4


class ScanKernel(Kernel[Scan]):
    """For functions that are a scan, and nothing else."""

    forms: ClassVar = {SCAN_TILES: ScanThreads}

    def recognise(self, func: PrimFunc) -> Scan | NotApplicable:
        """Compare with the definition of the block's name."""
        return read_scan(func)

    def plan(self, problem: Scan, target: Target, choices: Choices) -> ScanThreads:
        """Choose threads by the length of rows, and parts by their number."""
        return choose_threads(problem, limits_of(target), choices)

    def fault(self, problem: Scan, plan: ScanThreads) -> str | None:
        """Say what is wrong with the sizes, if anything is."""
        return plan.fault()

    def build(self, func: PrimFunc, problem: Scan, plan: ScanThreads) -> Block:
        """Write the form."""
        made = ScanTiles(problem, plan)
        return make_root_block(made.build(), made.root_buffers).block

    def schedule(
        self,
        sch: Schedule,
        problem: Scan,
        plan: ScanThreads,
        kept: Sequence[str],
        target: Target,
    ) -> None:
        """Do nothing: blocks and threads are the kernel's own."""


def choose_threads(scan: Scan, limits: GPULimits, choices: Choices) -> ScanThreads:
    """Return the sizes for a scan."""
    most = floor_power(limits.max_threads)
    rows, extent = known_product(scan.rows), as_int(scan.extent)
    many = rows is None or rows >= limits.processors * WARP
    inner = known_product(scan.x.shape[scan.axis + 1 :])
    if inner != 1 and many:
        return ScanThreads(1, _ITEMS, min(_THREADS, most))
    length = _UNKNOWN if extent is None else max(1, extent)
    lanes = min(ceil_power(-(-length // _ITEMS)), _LONG, most)
    options = [n for n in others_after(lanes, (WARP, 64, 128, 256, 512)) if n <= most]
    lanes = choices.choose("scan.lanes", options)
    if lanes <= WARP:
        return ScanThreads(lanes, _ITEMS, max(1, min(_THREADS, most) // lanes))
    return ScanThreads(lanes, _ITEMS, 1, _blocks_per_row(rows, extent, lanes * _ITEMS, limits))


def _blocks_per_row(rows: int | None, extent: int | None, tile: int, limits: GPULimits) -> int:
    """Thread blocks that share a row: several for long rows that are few."""
    if rows is None or not 0 < rows < limits.processors:
        return 1
    wanted = limits.processors * _BLOCKS_PER_PROCESSOR // rows
    return wanted if extent is None else max(1, min(wanted, extent // (tile * _LEAST_TILES)))
