"""Facts about this machine's CPU: name, features, cores, caches."""

from __future__ import annotations

import os
import platform
from functools import lru_cache
from pathlib import Path

# What LLVM's CPU names imply, for targets that are not this machine. Only features that the
# code generator asks about need to be here.
_X86_V2 = frozenset("sse4.2 popcnt".split())
_X86_V3 = _X86_V2 | frozenset("avx avx2 fma f16c bmi bmi2".split())
_X86_V4 = _X86_V3 | frozenset("avx512f avx512bw avx512cd avx512dq avx512vl".split())
_VNNI = _X86_V4 | {"avx512vnni"}
_CPU_FEATURES = {
    "x86-64": frozenset({"sse2"}),
    "x86-64-v2": _X86_V2,
    "x86-64-v3": _X86_V3,
    "x86-64-v4": _X86_V4,
    "haswell": _X86_V3,
    "broadwell": _X86_V3,
    "skylake": _X86_V3,
    "znver1": _X86_V3,
    "znver2": _X86_V3,
    "znver3": _X86_V3,
    "alderlake": _X86_V3 | {"avxvnni"},
    "skylake-avx512": _X86_V4,
    "cascadelake": _VNNI,
    "icelake-server": _VNNI,
    "sapphirerapids": _VNNI | {"avx512bf16", "amx-tile", "amx-int8", "amx-bf16"},
    "znver4": _VNNI | {"avx512bf16"},
    "znver5": _VNNI | {"avx512bf16", "avxvnni"},
    "apple-m1": frozenset({"neon", "fullfp16", "dotprod"}),
    "neoverse-n1": frozenset({"neon", "fullfp16", "dotprod"}),
    "neoverse-v1": frozenset({"neon", "sve", "fullfp16", "dotprod", "bf16", "i8mm"}),
    "a64fx": frozenset({"neon", "sve", "fullfp16"}),
    "neoverse-v2": frozenset({"neon", "sve", "sve2", "fullfp16", "dotprod", "bf16", "i8mm"}),
}

# Lengths of SVE registers that are not the least, 128 bits. Code for one length runs on no other.
_SVE_BITS = {"neoverse-v1": 256, "neoverse-512tvb": 256, "a64fx": 512}

# Names that /proc/cpuinfo uses differ from LLVM's.
_PROC_TO_LLVM = {
    "sse4_1": "sse4.1",
    "sse4_2": "sse4.2",
    "avx512_vnni": "avx512vnni",
    "avx512_bf16": "avx512bf16",
    "avx512_fp16": "avx512fp16",
    "avx512_vbmi2": "avx512vbmi2",
    "avx512_bitalg": "avx512bitalg",
    "avx512_vpopcntdq": "avx512vpopcntdq",
    "avx512ifma": "avx512ifma",
    "avx512vbmi": "avx512vbmi",
    "avx_vnni": "avxvnni",
    "bmi1": "bmi",
    "amx_tile": "amx-tile",
    "amx_int8": "amx-int8",
    "amx_bf16": "amx-bf16",
    "abm": "lzcnt",
    "asimd": "neon",
    "asimdhp": "fullfp16",
    "asimddp": "dotprod",
    "sve2": "sve2",
    "i8mm": "i8mm",
    "bf16": "bf16",
}
_KEEP = frozenset(
    "sse2 sse3 ssse3 popcnt avx avx2 fma f16c bmi2 avx512f avx512bw avx512cd avx512dq avx512vl "
    "sve sve2 movbe gfni vaes".split()
)


@lru_cache(maxsize=1)
def cpu_name() -> str:
    """Return LLVM's name of this CPU (``generic`` where LLVM doesn't know)."""
    import llvmlite.binding as llvm  # heavy, and not needed to import the package

    return str(llvm.get_host_cpu_name())


@lru_cache(maxsize=1)
def cpu_features() -> frozenset[str]:
    """Return the features of this CPU that code may use, by LLVM's names."""
    flags: set[str] = set()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("flags", "Features"):
                flags = set(value.split())
                break
    named = {
        _PROC_TO_LLVM.get(flag, flag) for flag in flags if flag in _PROC_TO_LLVM or flag in _KEEP
    }
    if named:
        return frozenset(named)
    import llvmlite.binding as llvm  # only where the kernel doesn't tell

    return frozenset(name for name, on in llvm.get_host_cpu_features().items() if on)


def features_of_cpu(name: str, triple: str = "") -> frozenset[str]:
    """Return the features that an LLVM CPU name implies, as far as we know it."""
    known = _CPU_FEATURES.get(name)
    if known is not None:
        return known
    if triple.startswith(("aarch64", "arm64")) or platform.machine() in ("aarch64", "arm64"):
        return frozenset({"neon"})
    return frozenset({"sse2"})


def sve_vector_bits(name: str) -> int:
    """Return the length of a CPU's SVE registers, 128 bits where it isn't known."""
    return _SVE_BITS.get(name, 128)


@lru_cache(maxsize=1)
def core_count() -> int:
    """Return the number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


@lru_cache(maxsize=1)
def cache_sizes() -> dict[str, int]:
    """Return bytes of one core's data caches ``l1``, ``l2``, ``l3``, where the system tells."""
    found: dict[str, int] = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            kind = (index / "type").read_text().strip()
            level = (index / "level").read_text().strip()
            size = (index / "size").read_text().strip()
        except OSError:
            continue
        if kind != "Instruction" and size[:-1].isdigit():
            unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(size[-1], 1)
            found[f"l{level}"] = int(size[:-1]) * unit
    return found
