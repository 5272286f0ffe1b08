"""How many threads parallel loops of compiled functions use.

At first as many as the setting ``num_threads`` says.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping

from tilewright.runtime.loader import when_loaded
from tilewright.support.errors import RunError
from tilewright.support.settings import setting

_chosen: int = setting("num_threads")
_addresses: dict[str, int] = {}


def _pool_loaded(addresses: Mapping[str, int]) -> None:
    _addresses.update(addresses)
    _apply()


def _apply() -> None:
    if _addresses:
        ctypes.CFUNCTYPE(None, ctypes.c_int32)(_addresses["tw_set_num_threads"])(_chosen)


def set_num_threads(count: int) -> None:
    """Set the number of threads for the whole process; 0 means one per CPU that it may use.

    Libraries loaded with :func:`load_module` carry a pool of their own, which this doesn't reach.
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


when_loaded("pool", _pool_loaded)
