"""Arrays between pages that nobody may touch: an access outside ends the process.

Measuring checks candidates on them (``meta_schedule/runner``), and tests do.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

#: Bytes of address space before and behind an array that can't be accessed: they hold no memory.
FENCE = 1 << 20

_PATTERN = 0xA5
_FORBIDDEN = 0


@cache
def _mprotect() -> Any:
    function = ctypes.CDLL(None, use_errno=True).mprotect
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return function


def _protect(address: int, size: int, protection: int) -> None:
    if size and _mprotect()(address, size, protection):
        raise OSError(ctypes.get_errno(), "mprotect failed")


class GuardedArray:
    """Memory for one array between two fences; ``array`` is all of it that may be used.

    The array ends where the fence behind it begins or, ``from_start``, begins where the one before
    it ends; ``alignment`` keeps it that far from the fence behind that its address is a multiple.
    What is left of its pages holds a pattern, so that ``overrun`` tells whether it was written.
    """

    def __init__(
        self,
        shape: Sequence[int],
        dtype: Any,
        *,
        from_start: bool = False,
        alignment: int = 1,
    ) -> None:
        kind = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        self._inside = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        region = mmap.mmap(
            -1, self._inside + 2 * FENCE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        )  # the array keeps it
        whole = np.frombuffer(region, np.uint8)
        self._address = whole.ctypes.data + FENCE
        _protect(self._address - FENCE, FENCE, _FORBIDDEN)
        _protect(self._address + self._inside, FENCE, _FORBIDDEN)
        start = 0 if from_start else (self._inside - size) // alignment * alignment
        inside = whole[FENCE : FENCE + self._inside]
        self._rests = inside[:start], inside[start + size :]
        for rest in self._rests:
            rest[...] = _PATTERN
        self.array: np.ndarray[Any, Any] = inside[start : start + size].view(kind).reshape(shape)

    def overrun(self) -> bool:
        """Whether the pattern around the array was written since the last question."""
        changed = [rest for rest in self._rests if not (rest == _PATTERN).all()]
        for rest in changed:
            rest[...] = _PATTERN
        return bool(changed)

    def set_writable(self, writable: bool) -> None:
        """Let writes to the array pass, or end the process."""
        _protect(self._address, self._inside, mmap.PROT_READ | (mmap.PROT_WRITE * writable))


def guarded(array: Any) -> np.ndarray[Any, Any]:
    """Return a copy that ends where memory ends: reading one byte past it kills the process.

    Its address is a multiple of the element's size only.
    """
    made = GuardedArray(array.shape, array.dtype).array
    made[...] = array
    return made
