"""The roofs of a GPU: what memory and processors need at least for the work of warps.

A roofline model (Williams, Waterman and Patterson, CACM 2009) with four roofs: issuing
instructions, shared memory, the level-2 cache and memory. Everything is a number, or an array with
one for each of many candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from tilewright.scheduling.gpu.limits import limits_of
from tilewright.target import Target

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]
    Amount = Union[float, Array]

SECTOR_BYTES = 32
"""What global memory moves at least."""
BANKS, BANK_BYTES = 32, 4
"""Shared memory serves a word of each bank per clock."""
SHARED_BYTES_PER_CLOCK = BANKS * BANK_BYTES
ISSUES_PER_CLOCK = 4
"""Warps that a processor gives an instruction at once, since sm_70."""
SPECIAL_LANES = 16
"""Special functions (exponential, root, reciprocal) that a processor computes per clock."""
MMA_OF_PEAK = {90: 0.63}
"""Share of the tensor cores' rate that ``mma`` of single warps reaches, by compute capability,
where that is not all: on Hopper as measured by Luo et al., *Benchmarking and Dissecting the Nvidia
Hopper GPU Architecture via Microbenchmarking* (2024); ``wgmma`` reaches all of it."""
L2_BYTES_PER_CLOCK = 27.0
"""Bytes per clock and processor from the level-2 cache, as measured with microbenchmarks: 25 (H100)
to 30 (A100), less than its data path of 64."""
CACHED_BYTES = 64 << 10
"""What is no larger and read by all threads of a block stays in the first-level cache, which has
128 to 256 KB with shared memory."""
LEAST_CLOCK, LEAST_BANDWIDTH = 1410, 1555
"""MHz and GB/s for targets that say nothing of them: those of an A100 with 40 GB."""
SYSTEM_SHARED_BYTES = 1024
"""Shared memory that the system takes for each block, since sm_80."""
LEAST_REGISTERS = 32
"""Registers of a thread for addresses and what it computes with, at least."""
OVERLAP_LOSS = 0.25
"""So much of what the parts of a block take together isn't hidden behind the slowest of them."""
ROOFS = ("issue", "shared", "l2", "memory")
GROUP_PROCESSORS = 18
"""Processors of a group, in one of which a cluster runs (NVIDIA's *H100 Tensor Core GPU
Architecture*: 9 pairs in each of 8 groups, of which some are switched off)."""


def rounds_clocks(blocks: int, clocks: Sequence[float], processors: int) -> float:
    """Return the clocks of the processor with the most blocks; ``clocks`` of a block's parts."""
    return -(-blocks // processors) * (max(clocks) + OVERLAP_LOSS * sum(clocks))


def processors_for(cluster: int, processors: int) -> int:
    """Return how many processors clusters of so many blocks can fill, one block on each."""
    return max(1, processors * (GROUP_PROCESSORS // cluster * cluster) // GROUP_PROCESSORS)


def sectors(start: Array, active: Array, size: int) -> Array:
    """Return how many sectors of global memory warps touch.

    ``start`` are addresses in bytes ``[rows, lanes]``, ``active`` says which lanes access ``size``
    bytes there.
    """
    pieces = range(0, size, min(size, SECTOR_BYTES))
    touched = np.concatenate([start + piece for piece in (*pieces, size - 1)], axis=1)
    order = np.sort(np.where(np.tile(active, len(pieces) + 1), touched // SECTOR_BYTES, -1), axis=1)
    made: Array = (_is_first(order) & (order >= 0)).sum(axis=1)
    return made


def turns(start: Array, active: Array, size: int) -> Array:
    """Return how often shared memory must be asked for warps: words of one bank take turns.

    Threads that want the same word get it at once. Wide accesses are served for half a warp (8
    bytes) or a quarter (16 bytes) at a time, and for twice as many threads where each wants the
    same as the neighbour next to it, or as the next but one. Arguments are those of ``sectors``.
    """
    together = max(1, BANKS * BANK_BYTES // max(size, BANK_BYTES))
    if start.shape[1] <= together:
        return _busiest(start, active, size)
    pairs = [(start == _neighbours(start, step)).all(axis=1) for step in (1, 2)]
    merged: Array = pairs[0] | pairs[1]
    total = np.zeros(len(start), np.int64)
    for rows, width in ((~merged, together), (merged, 2 * together)):
        if not rows.any():
            continue
        for begin in range(0, start.shape[1], width):
            part = slice(begin, begin + width)
            total[rows] += _busiest(start[rows, part], active[rows, part], size)
    return total


def _neighbours(start: Array, step: int) -> Array:
    """What each lane's neighbour accesses: the lane whose number differs in one bit."""
    lanes = np.arange(start.shape[1]) ^ step
    made: Array = start[:, np.minimum(lanes, start.shape[1] - 1)]
    return made


def _busiest(start: Array, active: Array, size: int) -> Array:
    """Return how many different words the busiest bank must give."""
    words = [start // BANK_BYTES + n for n in range(max(1, size // BANK_BYTES))]
    wanted = np.tile(active, len(words))
    order = np.sort(np.where(wanted, np.concatenate(words, axis=1), -1), axis=1)
    first = _is_first(order) & (order >= 0)
    busy = np.zeros((len(start), BANKS), np.int64)
    np.add.at(busy, (np.nonzero(first)[0], order[first] % BANKS), 1)
    made: Array = busy.max(axis=1)
    return made


def _is_first(order: Array) -> Array:
    made: Array = np.ones(order.shape, bool)
    made[:, 1:] = order[:, 1:] != order[:, :-1]
    return made


@dataclass
class Work:
    """What a kernel's warps do in the whole grid.

    Instructions are counted once for a warp; ``flops`` and ``tensor_flops`` are operations,
    ``turns`` those of shared memory, ``sectors`` those of global memory, of which ``l2_sectors``
    come from further than the first-level cache. ``moves`` are instructions
    that access the latter, counted for every 4 bytes of a thread, and ``memory_bytes`` what must
    come from or go to memory.
    """

    multiply_adds: Amount = 0.0
    specials: Amount = 0.0
    others: Amount = 0.0
    accesses: Amount = 0.0
    flops: Amount = 0.0
    tensor_flops: Amount = 0.0
    turns: Amount = 0.0
    sectors: Amount = 0.0
    l2_sectors: Amount = 0.0
    moves: Amount = 0.0
    memory_bytes: Amount = 0.0


@dataclass
class Launch:
    """A kernel's grid: blocks, threads of one, its shared bytes, a thread's registers."""

    blocks: Amount
    threads: Amount
    shared_bytes: Amount = 0
    registers: Amount = 0

    def resident(self, target: Target) -> Array:
        """Return how many blocks a processor runs at once; 0 if it can't run one."""
        gpu = target.gpu
        threads = -(-np.maximum(self.threads, 1) // gpu.warp_size) * gpu.warp_size
        registers = np.clip(self.registers, LEAST_REGISTERS, gpu.registers_per_thread)
        found = np.minimum(gpu.blocks_per_sm, gpu.threads_per_sm // threads)
        found = np.minimum(found, gpu.registers_per_sm // (threads * registers))
        held = np.where(self.shared_bytes > 0, self.shared_bytes + SYSTEM_SHARED_BYTES, 1)
        found = np.minimum(found, gpu.shared_per_sm // held)
        return np.where(self.threads <= gpu.max_threads, found, 0)


def seconds(work: Work, launch: Launch, target: Target) -> dict[str, Amount]:
    """Return the least time of each roof, by name (``ROOFS``), in seconds.

    The busiest processor decides, and it has whole blocks.
    """
    gpu, options = target.gpu, target.options
    clock = float(options.get("clock", LEAST_CLOCK)) * 1e6
    bandwidth = float(options.get("bandwidth", LEAST_BANDWIDTH)) * 1e9
    blocks = np.maximum(launch.blocks, 1)
    share = np.ceil(blocks / limits_of(target).processors) / blocks / clock
    instructions = work.multiply_adds + work.specials + work.others + work.accesses
    width = gpu.warp_size
    issue = np.maximum(instructions / ISSUES_PER_CLOCK, work.multiply_adds * width / gpu.fp32_lanes)
    issue = np.maximum(issue, work.specials * width / SPECIAL_LANES)
    issue = np.maximum(issue, work.tensor_flops / gpu.tensor_flops)
    # The first-level cache and shared memory are one memory with one way in.
    shared = work.turns + np.maximum(work.moves, work.sectors / 4)
    return {
        "issue": issue * share,
        "shared": shared * share,
        "l2": work.l2_sectors * SECTOR_BYTES * share / L2_BYTES_PER_CLOCK,
        "memory": work.memory_bytes / bandwidth,
    }
