"""What a GPU allows a kernel, and what fills it."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.target import Target

_PROCESSORS = 108


@dataclass(frozen=True)
class GPULimits:
    """Limits of one kernel launch, and the machine that runs it.

    ``max_threads`` in a block, ``max_shared_memory`` bytes per block, ``warp_size`` threads,
    ``processors`` (streaming multiprocessors), each with at most ``resident_threads``.
    """

    max_threads: int
    max_shared_memory: int
    warp_size: int
    processors: int
    resident_threads: int
    max_blocks_x: int = (1 << 31) - 1
    max_blocks_yz: int = (1 << 16) - 1

    @property
    def threads_to_fill(self) -> int:
        """Threads in flight that keep the memory of the whole GPU busy: half of all that fit."""
        return self.processors * self.resident_threads // 2


def limits_of(target: Target) -> GPULimits:
    """Return the limits of a GPU; a target without a number of processors has an A100's."""
    arch, stated = target.gpu, target.options
    return GPULimits(
        int(stated.get("max-threads", arch.max_threads)),
        target.max_shared_memory,
        int(stated.get("thread-warp-size", arch.warp_size)),
        int(stated.get("num-cores", _PROCESSORS)),
        arch.threads_per_sm,
    )
