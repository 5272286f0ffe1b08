"""Facts about this machine's CPU: name, features, cores, caches."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from tilewright.support.errors import TargetError
from tilewright.support.settings import setting
from tilewright.target import cpus

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
_TOLD_BY_KERNEL = frozenset(_PROC_TO_LLVM.values()) | frozenset(
    "sse2 ssse3 popcnt avx avx2 fma f16c bmi2 avx512f avx512bw avx512cd avx512dq avx512vl "
    "sve movbe gfni vaes".split()
)


# Bytes of a last-level cache for each core there is: on two cores of an Emerald Rapids with 260 MiB
# results of 32 MiB are read again from it, those of 64 MiB come from memory.
_LAST_PER_CORE = 24 << 20


@lru_cache(maxsize=1)
def cpu_name() -> str:
    """Return LLVM's name of this CPU (``generic`` if LLVM doesn't know it).

    The setting ``host_cpu`` names another one, whose code this machine runs too.
    """
    import llvmlite.binding as llvm  # heavy, and not needed to import the package

    return setting("host_cpu") or str(llvm.get_host_cpu_name())


@lru_cache(maxsize=64)
def wrong_triple(triple: str) -> str | None:
    """Return LLVM's reason for having no code generator for a triple; ``None`` if it has one."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    try:
        llvm.Target.from_triple(triple)
    except RuntimeError as error:
        return str(error)
    return None


@lru_cache(maxsize=1)
def cpu_features() -> tuple[frozenset[str], frozenset[str]]:
    """Return the features that this CPU has and those it lacks, by LLVM's names.

    Older LLVMs don't detect all features, so the operating system's list is used too. A feature
    missing from that may still exist: only features that LLVM looked for and didn't find count as
    lacking, such as those that a hypervisor hides.

    With the setting ``host_cpu``, the features of that CPU. Raises ``TargetError`` if this one
    lacks any of them.
    """
    import llvmlite.binding as llvm

    told = {_PROC_TO_LLVM.get(flag, flag) for flag in _flags()} & _TOLD_BY_KERNEL
    asked = llvm.get_host_cpu_features()
    has = frozenset(told | {name for name, on in asked.items() if on})
    lacking = frozenset(asked) - has
    named = setting("host_cpu")
    if not named:
        return has, lacking
    table = cpus.table_of("")
    if table is None:
        raise TargetError(f"host_cpu={named}: LLVM's CPUs of this architecture aren't known")
    wanted = table.features_of(named)
    if foreign := sorted(wanted & lacking):
        raise TargetError(f"host_cpu={named}: this machine lacks {', '.join(foreign)}")
    return wanted, frozenset(asked) - wanted


@lru_cache(maxsize=1)
def feature_text() -> str:
    """Return this CPU's features as LLVM takes them, such as ``+avx2,-avx512f``."""
    import llvmlite.binding as llvm

    if not setting("host_cpu"):
        return str(llvm.get_host_cpu_features().flatten())
    has, lacking = cpu_features()
    return ",".join(
        [*(f"+{name}" for name in sorted(has)), *(f"-{name}" for name in sorted(lacking))]
    )


def _flags() -> set[str]:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("flags", "Features"):
                return set(value.split())
    return set()


@lru_cache(maxsize=1)
def core_count() -> int:
    """Return the number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def core_identity(core: int) -> tuple[int, int]:
    """Return what the hardware threads of one core have in common; they count alone if unknown."""
    topology = Path(f"/sys/devices/system/cpu/cpu{core}/topology")
    try:
        package, number = (
            int((topology / name).read_text()) for name in ("physical_package_id", "core_id")
        )
    except (OSError, ValueError):
        return 0, core
    return package, number


@lru_cache(maxsize=1)
def physical_core_count() -> int:
    """Return the number of cores this process may use, hardware threads of one counted once."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len({core_identity(core) for core in os.sched_getaffinity(0)}))
    return core_count()


@lru_cache(maxsize=1)
def cache_sizes() -> dict[str, int]:
    """Return bytes of one core's data caches ``l1``, ``l2``, ``l3``, as far as known.

    A virtual machine with few of a processor's cores is told of its whole last cache, which it
    shares with others: what its cores can count on is less.
    """
    found: dict[str, int] = {}
    if setting("host_cpu"):
        return found  # another CPU has other caches
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
    if "l3" in found:
        found["l3"] = min(found["l3"], _LAST_PER_CORE * (os.cpu_count() or 1))
    return found
