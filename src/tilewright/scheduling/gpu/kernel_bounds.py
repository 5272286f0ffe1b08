"""What a GPU kernel can't be faster than: bounds read off the lowered kernel, without a device.

The accesses and the arithmetic of a kernel (``kernel_work``), with the number of times that they
run, give the times of the GPU's ``roofs``. Not counted: index arithmetic, waiting for results
(latency), and reads of large buffers that the first-level cache serves, which count as if the
level-2 cache did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from tilewright.ir import IRModule, as_int, dtypes
from tilewright.scheduling.gpu import roofs
from tilewright.scheduling.gpu.kernel_work import KernelWork, MemoryAccess
from tilewright.scheduling.gpu.limits import limits_of
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.analysis import allocated_memory
from tilewright.tir.thread_scope import is_shared
from tilewright.tir.transform import CALLING_CONV


@dataclass(frozen=True)
class KernelBound:
    """Bounds of one kernel; times are in seconds."""

    symbol: str
    blocks: int
    threads: int
    shared_bytes: int
    registers: int
    """32-bit registers of a thread that its own arrays need; the compiler takes more."""
    blocks_per_processor: int
    occupancy: float
    """Threads that run at once, of those that a processor could have."""
    waves: float
    """How many times the grid fills the GPU."""
    flops: float
    accesses: tuple[MemoryAccess, ...]
    issue: float
    shared: float
    l2: float
    memory: float

    @property
    def seconds(self) -> float:
        """The largest bound."""
        return max(self.issue, self.shared, self.l2, self.memory)

    @property
    def limiter(self) -> str:
        """What that bound is of: ``issue``, ``shared``, ``l2`` or ``memory``."""
        bounds: dict[str, float] = {name: getattr(self, name) for name in roofs.ROOFS}
        return max(bounds, key=lambda name: bounds[name])

    def worst(self, *, shared: bool) -> float:
        """Return the greatest excess of the accesses to shared, or to global memory."""
        found = [item for item in self.accesses if is_shared(item.scope) == shared]
        return max((item.excess for item in found), default=1.0)


def kernel_bounds(
    lowered: IRModule, target: Target, sizes: Mapping[str, int] | None = None
) -> list[KernelBound]:
    """Return the bounds of the kernels of a module that ``tir.transform.gpu_pipeline`` lowered.

    ``sizes`` are the values of symbolic extents and scalars, by name. Raises ``LowerError`` if one
    that the launch depends on is missing.
    """
    return [
        _bound_of(KernelWork(name, func, target, sizes or {}))
        for name, func in lowered.functions.items()
        if isinstance(func, PrimFunc) and func.attrs.get(CALLING_CONV) == "device_kernel_launch"
    ]


def _bound_of(kernel: KernelWork) -> KernelBound:
    kernel.count()
    gpu, target, work = kernel.gpu, kernel.target, kernel.work
    needs = {scope: as_int(size) or 0 for scope, size in allocated_memory(kernel.func).items()}
    shared_bytes = sum(size for scope, size in needs.items() if is_shared(scope))
    held = {scope: size for scope, size in needs.items() if not is_shared(scope)}
    held.pop("global", None)
    # The lanes of a warp share fragments.
    bytes_each = sum(n if s == "local" else -(-n // gpu.warp_size) for s, n in held.items())
    registers = -(-bytes_each // 4)
    launch = roofs.Launch(kernel.blocks, kernel.threads, shared_bytes, registers)
    resident = int(launch.resident(target))
    work.l2_sectors, work.memory_bytes = _far_traffic(kernel)
    return KernelBound(
        kernel.name,
        kernel.blocks,
        kernel.threads,
        shared_bytes,
        registers,
        resident,
        resident * kernel.threads / gpu.threads_per_sm,
        kernel.blocks / (limits_of(target).processors * resident) if resident else 0.0,
        float(work.flops),
        tuple(kernel.accesses),
        **{
            name: float(time) * (1.0 if name == "memory" else kernel.busiest)
            for name, time in roofs.seconds(work, launch, target).items()
        },
    )


def _far_traffic(kernel: KernelWork) -> tuple[float, float]:
    """Return the sectors that come from the level-2 cache, and the bytes that come from memory.

    Each block gets a small buffer once from the cache, and the GPU each buffer once from memory.
    """
    sizes = {}
    for buffer in kernel.func.buffer_map.values():
        extents = [kernel.known(extent) for extent in buffer.shape]
        elements = prod(1 if n is None else int(np.max(n)) for n in extents)
        sizes[buffer.name] = elements * dtypes.bits_of(buffer.dtype) / 8
    touched: dict[tuple[str, bool], float] = {}
    for item in kernel.accesses:
        if item.scope == "global":
            key = item.buffer, item.is_write
            touched[key] = touched.get(key, 0.0) + item.warps * item.transactions
    sectors = memory = 0.0
    for (name, is_write), count in touched.items():
        size = sizes.get(name, np.inf)
        memory += min(count * roofs.SECTOR_BYTES, size)
        if not is_write and size <= roofs.CACHED_BYTES:
            count = min(count, kernel.blocks * np.ceil(size / roofs.SECTOR_BYTES))
        sectors += count
    return float(sectors), float(memory)
