"""What the rules for CPUs share, under one name."""

from __future__ import annotations

from tilewright.dlight.cpu.blocks import (
    PARALLEL_WORK,
    Axis,
    axes_of,
    can_vectorize,
    element_bits,
    has_branch,
    inline_injective,
    is_costly,
    is_injective,
    leaf_blocks,
    loads_of,
    parallelize,
    reads_along,
    stores_of,
    stride_of,
    vector_extent,
    work_of,
)
from tilewright.dlight.cpu.elementwise import schedule_injective
from tilewright.dlight.cpu.reduction import schedule_reduction

__all__ = [
    "PARALLEL_WORK",
    "Axis",
    "axes_of",
    "can_vectorize",
    "element_bits",
    "has_branch",
    "inline_injective",
    "is_costly",
    "is_injective",
    "leaf_blocks",
    "loads_of",
    "parallelize",
    "reads_along",
    "schedule_injective",
    "schedule_reduction",
    "stores_of",
    "stride_of",
    "vector_extent",
    "work_of",
]
