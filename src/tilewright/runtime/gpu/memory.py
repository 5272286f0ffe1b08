"""Memory of GPUs: allocated in the order of a stream, copied, freed with its last owner."""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_uint64, c_void_p
from functools import cache
from typing import Any

import numpy as np

from tilewright.runtime.gpu.driver import ask, call, drop, on_device
from tilewright.runtime.gpu.streams import current_stream

_POOLS_SUPPORTED = 115
_RELEASE_THRESHOLD = 4


class _PoolProperties(ctypes.Structure):
    """``CUmemPoolProps``: pinned memory of a device."""

    _fields_ = (
        ("type", c_int),
        ("handles", c_int),
        ("place", c_int),
        ("device", c_int),
        ("rest", ctypes.c_byte * 72),
    )


@cache
def _pool(index: int) -> int | None:
    """A pool that keeps what was freed for the next allocation; none where there are none."""
    doing = f"making a pool of memory on cuda:{index}"
    if not ask(doing, "cuDeviceGetAttribute", c_int, _POOLS_SUPPORTED, index):
        return None
    properties = _PoolProperties(type=1, place=1, device=index)
    pool = ask(doing, "cuMemPoolCreate", c_void_p, ctypes.addressof(properties))
    most = c_uint64(2**64 - 1)
    call(doing, "cuMemPoolSetAttribute", pool, _RELEASE_THRESHOLD, ctypes.addressof(most))
    return int(pool)


class DeviceMemory:
    """Bytes on a GPU, freed when nobody has them any more.

    They belong to the stream that was current when they were allocated: other streams must wait
    for that before they use them, and must have ended their work with them before they are dropped.
    """

    def __init__(self, size: int, index: int) -> None:
        """Allocate ``size`` bytes on a device.

        Raises ``MemoryError`` if it hasn't so many, ``RunError`` if there is no such device.
        """
        self.index, self.size = index, size
        self.address = 0
        self._stream = current_stream(index)
        doing = f"allocating {size} bytes on cuda:{index}"
        with on_device(index):
            self._pool = _pool(index)
            if self._pool is None:
                self.address = ask(doing, "cuMemAlloc_v2", c_uint64, max(size, 1))
            else:
                place = max(size, 1), self._pool, self._stream
                self.address = ask(doing, "cuMemAllocFromPoolAsync", c_uint64, *place)

    def __del__(self) -> None:
        if self.address and self._pool is None:
            drop(self.index, "cuMemFree_v2", self.address)
        elif self.address:
            drop(self.index, "cuMemFreeAsync", self.address, self._stream)


def upload(array: np.ndarray[Any, Any], address: int, index: int) -> None:
    """Copy a compact array to a device, in the order of the current stream; waits for it."""
    if not array.nbytes:
        return
    stream = current_stream(index)
    doing = f"copying {array.nbytes} bytes to cuda:{index}"
    with on_device(index):
        call(doing, "cuMemcpyHtoDAsync_v2", address, array.ctypes.data, array.nbytes, stream)
        # The caller may change the array at once.
        call(doing, "cuStreamSynchronize", stream)


def download(address: int, array: np.ndarray[Any, Any], index: int) -> None:
    """Copy from a device into a compact array, when the current stream is done."""
    if not array.nbytes:
        return
    stream = current_stream(index)
    doing = f"copying {array.nbytes} bytes from cuda:{index}"
    with on_device(index):
        call(doing, "cuMemcpyDtoHAsync_v2", array.ctypes.data, address, array.nbytes, stream)
        call(doing, "cuStreamSynchronize", stream)


def copy(source: int, target: int, size: int, index: int) -> None:
    """Copy bytes on a device, or from another one to it, in the order of the current stream."""
    if size:
        doing = f"copying {size} bytes on cuda:{index}"
        with on_device(index):
            call(doing, "cuMemcpyDtoDAsync_v2", target, source, size, current_stream(index))
