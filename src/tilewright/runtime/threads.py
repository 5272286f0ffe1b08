"""The number of threads of parallel loops in compiled functions, and their CPUs.

Initially given by the settings ``num_threads`` and ``thread_affinity``. Libraries loaded with
:func:`load_module` have their own pool, which is not affected.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence

from tilewright.runtime.loader import when_loaded
from tilewright.support.errors import RunError
from tilewright.support.settings import setting

_chosen: int = setting("num_threads")
# What was asked for last; the setting is read when the pool is loaded, if nobody asked before.
_affinity: str | tuple[int, ...] | None = None
_addresses: dict[str, int] = {}


def _pool_loaded(addresses: Mapping[str, int]) -> None:
    _addresses.update(addresses)
    _apply()
    asked = setting("thread_affinity") if _affinity is None else _affinity
    if asked != "none":
        set_thread_affinity(asked)


def _apply() -> None:
    if _addresses:
        ctypes.CFUNCTYPE(None, ctypes.c_int32)(_addresses["tw_set_num_threads"])(_chosen)


def set_num_threads(count: int) -> None:
    """Set the number of threads for the whole process; 0 means one per CPU that it may use.

    Raises ``RunError`` for a negative number.
    """
    global _chosen
    if count < 0:
        raise RunError(f"the number of threads must not be negative, got {count}")
    _chosen = count
    _apply()


def num_threads() -> int:
    """Return the number of threads that a parallel loop may use."""
    if _addresses:
        return int(ctypes.CFUNCTYPE(ctypes.c_int32)(_addresses["tw_get_num_threads"])())
    return _chosen or len(os.sched_getaffinity(0))


def set_thread_affinity(cpus: str | Sequence[int]) -> None:
    """Bind the threads of parallel loops to CPUs.

    ``"none"`` lets them run wherever the calling thread may, but, if there are enough CPUs, not on
    the CPU from which it wakes them. ``"cores"`` gives each thread one of the CPUs that the calling
    thread may use, in order; a sequence of numbers, or text such as ``"0,2,4-7"``, names them. The
    calling thread is the first of its loops' threads; it isn't bound itself, but the first CPU is
    reserved for it.

    Raises ``RunError`` if the system refuses.
    """
    global _affinity
    wanted = _cpu_numbers(cpus)
    if _addresses:
        array = (ctypes.c_int32 * max(1, len(wanted)))(*wanted)
        call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32)
        if call(_addresses["tw_set_affinity"])(ctypes.addressof(array), len(wanted)):
            raise RunError(f"the system refuses to bind threads to {cpus!r}")
    _affinity = cpus if isinstance(cpus, str) else tuple(cpus)


def thread_affinity() -> str | tuple[int, ...]:
    """Return the last argument of :func:`set_thread_affinity`, or the setting."""
    found: str | tuple[int, ...] = setting("thread_affinity") if _affinity is None else _affinity
    return found


def _cpu_numbers(cpus: str | Sequence[int]) -> list[int]:
    """Return CPU numbers, checked; none of them for ``"none"``."""
    allowed = sorted(os.sched_getaffinity(0))
    if cpus == "none":
        return []
    if cpus == "cores":
        return allowed
    numbers = _parse_cpus(cpus) if isinstance(cpus, str) else list(cpus)
    refused = [number for number in numbers if number not in allowed]
    if refused or not numbers:
        raise RunError(
            f"thread affinity {cpus!r}: expected 'none', 'cores' or numbers of CPUs that this "
            f"process may use ({', '.join(map(str, allowed))})"
        )
    return numbers


def _parse_cpus(text: str) -> list[int]:
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            return []
        numbers += range(int(first), int(last or first) + 1)
    return numbers


when_loaded("pool", _pool_loaded)
