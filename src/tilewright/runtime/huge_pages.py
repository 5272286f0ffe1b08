"""Memory on huge pages: what each call reads as a whole needs few translations of addresses."""

from __future__ import annotations

import contextlib
import mmap

import numpy as np
from numpy.typing import NDArray

#: Bytes of a huge page (x86-64, and AArch64 with pages of 4 KiB).
HUGE_PAGE = 1 << 21


def huge_bytes(size: int) -> NDArray[np.uint8]:
    """Return ``size`` zeros at the beginning of a huge page, if the system has any to give.

    Memory is taken when it is written. Raises ``MemoryError`` if there are no such addresses.
    """
    whole = -(-size // HUGE_PAGE) * HUGE_PAGE
    try:
        memory = mmap.mmap(-1, whole + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"no memory for {size} bytes of constants: {error}") from None
    with contextlib.suppress(OSError, AttributeError):  # a wish
        memory.madvise(mmap.MADV_HUGEPAGE)
    every = np.frombuffer(memory, np.uint8)
    start = -every.ctypes.data % HUGE_PAGE
    return every[start : start + size]
