"""Shared by kernels for GPUs: arithmetic on sizes."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tilewright.ir import Expr, as_int

MOST_THREADS = 1024
"""Threads of a block on any GPU that there is."""


def floor_power(number: int) -> int:
    """The largest power of two up to a number from 1 on."""
    return 1 << (number.bit_length() - 1)


def ceil_power(number: int) -> int:
    """The smallest power of two from a number on."""
    return 1 << max(0, number - 1).bit_length()


def is_power(number: int) -> bool:
    """Whether a number is a power of two."""
    return number > 0 and not number & (number - 1)


def known_product(extents: Iterable[Expr]) -> int | None:
    """The product of extents, if all are known."""
    known = [as_int(extent) for extent in extents]
    return None if None in known else math.prod(n or 0 for n in known)
