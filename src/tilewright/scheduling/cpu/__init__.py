"""Blocks of functions for CPUs: queries about them, and scheduling a single one.

The blocks around a kernel or a contraction are scheduled here: elementwise blocks (``elementwise``,
with ``transpose``, ``gather``, ``cut_axes``, ``joined`` and ``concat``) and reductions
(``reduction``).
"""

from __future__ import annotations

from tilewright.scheduling.blocks import (
    EXPENSIVE,
    SEPARATE,
    Axis,
    are_contiguous,
    are_equal,
    axes_of,
    coefficient_of,
    element_bits,
    exceeds,
    fused_epilogue,
    inline_injective,
    is_costly,
    is_injective,
    leaf_blocks,
    loads_at_times,
    loads_of,
    only_moves,
    size_of,
    stores_of,
    stride_of,
    work_of,
)
from tilewright.scheduling.cpu.elementwise import schedule_injective, stream_if_large
from tilewright.scheduling.cpu.joined import fused_indices
from tilewright.scheduling.cpu.loops import parallelize, vector_extent, vectorize_tile
from tilewright.scheduling.cpu.reduction import column_axis, come_from_afar, schedule_reduction
from tilewright.scheduling.cpu.shared_work import Sharing, sharing_of
from tilewright.scheduling.cpu.siblings import schedule_siblings

__all__ = [
    "Axis",
    "EXPENSIVE",
    "SEPARATE",
    "Sharing",
    "are_contiguous",
    "are_equal",
    "axes_of",
    "coefficient_of",
    "column_axis",
    "come_from_afar",
    "element_bits",
    "exceeds",
    "fused_epilogue",
    "fused_indices",
    "inline_injective",
    "is_costly",
    "is_injective",
    "leaf_blocks",
    "loads_at_times",
    "loads_of",
    "only_moves",
    "parallelize",
    "schedule_injective",
    "schedule_reduction",
    "schedule_siblings",
    "sharing_of",
    "size_of",
    "stores_of",
    "stream_if_large",
    "stride_of",
    "vector_extent",
    "vectorize_tile",
    "work_of",
]
