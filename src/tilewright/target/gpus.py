"""GPUs by name, and what their architectures can do: tables behind ``cuda`` targets.

Limits of an architecture are those of the compute capability in NVIDIA's *CUDA C++ Programming
Guide*; numbers of a model (processors, cache, bandwidth, clock, memory) those of its data sheet,
with the boost clock at which the sheet's peak rates are stated.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Protocol

from tilewright.support.errors import TargetError
from tilewright.support.registry import near_matches

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class GPUArch:
    """What all GPUs of an architecture have.

    ``shared_per_block`` is what a kernel may ask for beyond the 48 KB that need no asking, in
    bytes; ``tensor_cores`` is their generation; ``fp32_lanes`` are multiply-adds of float32 and
    ``tensor_flops`` operations on float16 that a processor does per clock.
    ``cluster_blocks`` are blocks that may run together and access each other's shared memory, at
    most; 1 if there are no clusters.
    """

    capability: int
    threads_per_sm: int
    blocks_per_sm: int
    shared_per_sm: int
    shared_per_block: int
    tensor_cores: int
    fp32_lanes: int
    tensor_flops: int

    warp_size: int = 32
    max_threads: int = 1024
    registers_per_sm: int = 65536
    registers_per_thread: int = 255
    cluster_blocks: int = 1


GENERIC = GPUArch(0, 1024, 16, 64 * KIB, 32 * KIB, 0, 64, 0)
"""What is taken of GPUs of other makers, unless a target says otherwise."""

_ROWS = (
    (70, 2048, 32, 96, 96, 1, 64, 1024),
    (75, 1024, 16, 64, 64, 2, 64, 1024),
    (80, 2048, 32, 164, 163, 3, 64, 2048),
    (86, 1536, 16, 100, 99, 3, 128, 1024),
    (87, 1536, 16, 164, 163, 3, 128, 1024),
    (89, 1536, 24, 100, 99, 4, 128, 1024),
    (90, 2048, 32, 228, 227, 4, 128, 4096),
    (100, 2048, 32, 228, 227, 5, 128, 8192),
    (103, 2048, 32, 228, 227, 5, 128, 8192),
    (120, 1536, 24, 100, 99, 5, 128, 1024),
)
_CLUSTER_BLOCKS = {90: 16, 100: 16, 103: 16, 120: 8}
PORTABLE_CLUSTER = 8
"""Blocks that a cluster may have on all GPUs with clusters; of more, a launch must be told."""
ARCHITECTURES: dict[int, GPUArch] = {
    row[0]: GPUArch(
        row[0],
        row[1],
        row[2],
        row[3] * KIB,
        row[4] * KIB,
        *row[5:],
        cluster_blocks=_CLUSTER_BLOCKS.get(row[0], 1),
    )
    for row in _ROWS
}
"""By compute capability: 86 is 8.6."""

DEFAULT_ARCH = "sm_80"
"""The architecture of a ``cuda`` target that names none."""
STATIC_SHARED_BYTES = 48 * KIB
"""Shared memory that a kernel has without asking for more, on any GPU."""

_ARCH = re.compile(r"sm_(\d+)([af]?)")


def arch_of(name: str) -> GPUArch:
    """Return what an architecture (``sm_80``, ``sm_90a``) has.

    Raises ``TargetError`` for a name that is none, and for one that is not in the table.
    """
    match = _ARCH.fullmatch(name)
    known = [f"sm_{capability}" for capability in ARCHITECTURES]
    if match is None or int(match[1]) not in ARCHITECTURES:
        raise TargetError(f"unknown GPU architecture {name!r}; {near_matches(name, known)}")
    return ARCHITECTURES[int(match[1])]


@dataclass(frozen=True)
class GPUModel:
    """A model: processors, bytes of level-2 cache, GB/s and GB of memory, boost clock in MHz."""

    arch: str
    processors: int
    l2_bytes: int
    bandwidth: int
    memory: int
    clock: int


def _model(arch: str, sms: int, l2_mib: float, bandwidth: int, memory: int, clock: int) -> GPUModel:
    return GPUModel(arch, sms, int(l2_mib * MIB), bandwidth, memory, clock)


GPUS: dict[str, GPUModel] = {
    "nvidia/tesla-v100": _model("sm_70", 80, 6, 900, 16, 1530),
    "nvidia/tesla-t4": _model("sm_75", 40, 4, 320, 16, 1590),
    "nvidia/geforce-rtx-2080-ti": _model("sm_75", 68, 5.5, 616, 11, 1545),
    "nvidia/nvidia-a100": _model("sm_80", 108, 40, 2039, 80, 1410),
    "nvidia/nvidia-a100-40gb": _model("sm_80", 108, 40, 1555, 40, 1410),
    "nvidia/nvidia-a30": _model("sm_80", 56, 24, 933, 24, 1440),
    "nvidia/nvidia-a10": _model("sm_86", 72, 6, 600, 24, 1695),
    "nvidia/nvidia-a40": _model("sm_86", 84, 6, 696, 48, 1740),
    "nvidia/rtx-a6000": _model("sm_86", 84, 6, 768, 48, 1800),
    "nvidia/geforce-rtx-3080": _model("sm_86", 68, 5, 760, 10, 1710),
    "nvidia/geforce-rtx-3090": _model("sm_86", 82, 6, 936, 24, 1695),
    "nvidia/jetson-agx-orin-64gb": _model("sm_87", 16, 4, 204, 64, 1300),
    "nvidia/nvidia-l4": _model("sm_89", 58, 48, 300, 24, 2040),
    "nvidia/nvidia-l40s": _model("sm_89", 142, 96, 864, 48, 2520),
    "nvidia/geforce-rtx-4080": _model("sm_89", 76, 64, 716, 16, 2505),
    "nvidia/geforce-rtx-4090": _model("sm_89", 128, 72, 1008, 24, 2520),
    "nvidia/nvidia-h100": _model("sm_90a", 132, 50, 3350, 80, 1830),
    "nvidia/nvidia-h100-pcie": _model("sm_90a", 114, 50, 2000, 80, 1755),
    "nvidia/nvidia-h200": _model("sm_90a", 132, 50, 4800, 141, 1830),
    "nvidia/nvidia-gh200": _model("sm_90a", 132, 50, 4900, 144, 1830),
    "nvidia/nvidia-b200": _model("sm_100a", 148, 126, 8000, 192, 1850),
    "nvidia/geforce-rtx-5090": _model("sm_120a", 170, 96, 1792, 32, 2407),
}
"""By tag, as TVM writes them."""
ALIASES = {
    "v100": "nvidia/tesla-v100",
    "t4": "nvidia/tesla-t4",
    "nvidia-t4": "nvidia/tesla-t4",
    "orin": "nvidia/jetson-agx-orin-64gb",
    "jetson-agx-orin": "nvidia/jetson-agx-orin-64gb",
    **{
        short: tag
        for tag in GPUS
        for name in (tag.partition("/")[2],)
        for short in {name, name.removeprefix("nvidia-"), name.removeprefix("geforce-")}
    },
}
"""Shorter names of the tags: ``h200``, ``rtx-4090``."""


def tag_of(name: str) -> str | None:
    """Return the tag that a text names: a tag, or a shorter name with or without ``nvidia/``."""
    if name in GPUS:
        return name
    return ALIASES.get(name.removeprefix("nvidia/"))


def is_tag(name: str) -> bool:
    """Whether a text is meant as the tag of a GPU."""
    return name.startswith("nvidia/") or tag_of(name) is not None


def options_of(tag: str) -> dict[str, Any]:
    """Return the target options of a GPU by its tag; raise ``TargetError`` for an unknown one."""
    name = tag_of(tag)
    if name is None:
        raise TargetError(f"unknown GPU {tag!r}; {near_matches(tag, list(GPUS))}")
    model = GPUS[name]
    arch = arch_of(model.arch)
    return {
        "model": name,
        "arch": model.arch,
        "num-cores": model.processors,
        "max-threads": arch.max_threads,
        "max-shared-memory": arch.shared_per_block,
        "thread-warp-size": arch.warp_size,
        "l2": model.l2_bytes,
        "bandwidth": model.bandwidth,
        "memory": model.memory,
        "clock": model.clock,
    }


class Asked(Protocol):
    """A device that says what it is: see ``runtime.Device``."""

    device_name: str
    compute_version: str
    max_threads_per_block: int
    max_shared_memory_per_block: int
    warp_size: int
    registers_per_block: int
    multi_processor_count: int
    l2_cache_size_bytes: int
    memory_bandwidth: int
    total_global_memory: int
    max_clock_rate: int


def options_of_device(device: Asked) -> dict[str, Any]:
    """Return the target options of a GPU that is here, as its driver tells them.

    Code is for its architecture alone (``sm_90a``), where that has instructions of its own.
    """
    capability = int(device.compute_version.replace(".", ""))
    options = {
        "arch": f"sm_{capability}{'a' if capability >= 90 else ''}",
        "max-threads": device.max_threads_per_block,
        "max-shared-memory": device.max_shared_memory_per_block,
        "thread-warp-size": device.warp_size,
        "registers": device.registers_per_block,
        "num-cores": device.multi_processor_count,
        "l2": device.l2_cache_size_bytes,
        "bandwidth": device.memory_bandwidth // 10**9,
        "memory": device.total_global_memory // 10**9,
        "clock": device.max_clock_rate // 1000,
    }
    model = model_named(device.device_name)
    return {"model": model, **options} if model else options


def model_named(name: str) -> str | None:
    """Return the tag of a GPU by its maker's name: "NVIDIA H100 80GB HBM3" is an H100."""
    words = re.sub(r"[^a-z0-9]+", "-", name.lower())
    found = [
        tag
        for tag in GPUS
        for short in (tag.partition("/")[2],)
        if f"-{words}-".startswith((f"-{short}-", f"-nvidia-{short}-"))
    ]
    return max(found, key=len, default=None)
