"""Arrays that end where memory ends: reading one byte past them kills the process."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def guarded(array: Any) -> np.ndarray:
    """A copy whose last byte is followed by a page that nobody may touch.

    Its address is a multiple of the element's size only.
    """
    page = mmap.PAGESIZE
    pages = -(-array.nbytes // page)
    region = mmap.mmap(-1, (pages + 1) * page)
    whole = np.frombuffer(region, np.uint8)
    fence = whole.ctypes.data + pages * page
    if _libc.mprotect(fence, page, 0):
        raise OSError(ctypes.get_errno(), "mprotect failed")
    start = pages * page - array.nbytes
    made = np.frombuffer(region, array.dtype, array.size, start).reshape(array.shape)
    made[...] = array
    return made
