"""Blocks of functions for GPUs: limits, binding loops, scheduling a single block.

``elementwise`` and ``reduction`` schedule blocks of known form, ``binding`` nests of any other;
``alone`` makes kernels of what isn't in blocks, ``scratch`` places memory that blocks allocate.
``vector_sums`` schedules reductions and matrix-vector products by vectors, ``rows`` chains over the
same rows, ``matrix_form`` and ``simt_tile`` products of matrices; ``grids`` and ``tile_streams``
say which tiles a block computes.
"""

from __future__ import annotations

from tilewright.scheduling.gpu.alone import alone, calls_the_host, run_rest_alone
from tilewright.scheduling.gpu.binding import (
    BLOCKS,
    THREADS,
    attach,
    bind_alone,
    bind_flat,
    bind_nest,
    flat_threads,
    fused,
    is_bound,
)
from tilewright.scheduling.gpu.block import schedule_block, schedule_rest
from tilewright.scheduling.gpu.elementwise import VECTOR_BYTES, schedule_injective
from tilewright.scheduling.gpu.grids import (
    Grid,
    Ranked,
    Sizes,
    Tile,
    grids_by_maps,
    simt_tiles,
    tensor_core_tiles,
    warpgroup_tiles,
)
from tilewright.scheduling.gpu.limits import GPULimits, limits_of
from tilewright.scheduling.gpu.lowering import first_lowered, why_not_lowered
from tilewright.scheduling.gpu.matrix_form import (
    MatrixForm,
    bring_into_form,
    extents_of,
    inline_into,
    matrix_form_of,
)
from tilewright.scheduling.gpu.reduction import (
    ROWS_OF_THREADS,
    Shape,
    bind_shared,
    reads_rows,
    schedule_reduction,
    shapes_of,
)
from tilewright.scheduling.gpu.rows import RowPlan, row_plans, schedule_rows
from tilewright.scheduling.gpu.scratch import place_scratch
from tilewright.scheduling.gpu.shared_sums import part_options, split_sums
from tilewright.scheduling.gpu.simt_tile import SimtTile, rank_tiles, schedule_tiles
from tilewright.scheduling.gpu.tensor_core_tile import (
    AHEAD,
    TensorCoreTile,
    rank_tensor_core_tiles,
    schedule_tensor_core_tiles,
    why_not_tensor_cores,
)
from tilewright.scheduling.gpu.vector_sums import (
    VectorPlan,
    largest_operand,
    schedule_vector_sums,
    vector_plans,
)
from tilewright.scheduling.gpu.warpgroup_tile import (
    ALONE,
    CLUSTERS,
    WarpgroupTile,
    rank_clusters,
    rank_warpgroup_tiles,
    schedule_warpgroup_tiles,
    why_not_warpgroups,
)

__all__ = [
    "Grid",
    "Sizes",
    "Tile",
    "Ranked",
    "simt_tiles",
    "tensor_core_tiles",
    "warpgroup_tiles",
    "ALONE",
    "CLUSTERS",
    "WarpgroupTile",
    "grids_by_maps",
    "rank_clusters",
    "rank_warpgroup_tiles",
    "schedule_warpgroup_tiles",
    "why_not_warpgroups",
    "AHEAD",
    "TensorCoreTile",
    "part_options",
    "rank_tensor_core_tiles",
    "schedule_tensor_core_tiles",
    "split_sums",
    "why_not_tensor_cores",
    "VectorPlan",
    "largest_operand",
    "schedule_vector_sums",
    "vector_plans",
    "schedule_tiles",
    "rank_tiles",
    "SimtTile",
    "matrix_form_of",
    "extents_of",
    "bring_into_form",
    "MatrixForm",
    "schedule_rest",
    "schedule_block",
    "BLOCKS",
    "GPULimits",
    "ROWS_OF_THREADS",
    "RowPlan",
    "Shape",
    "THREADS",
    "VECTOR_BYTES",
    "alone",
    "attach",
    "bind_alone",
    "bind_flat",
    "bind_nest",
    "bind_shared",
    "calls_the_host",
    "first_lowered",
    "flat_threads",
    "fused",
    "inline_into",
    "is_bound",
    "limits_of",
    "place_scratch",
    "reads_rows",
    "row_plans",
    "run_rest_alone",
    "schedule_injective",
    "schedule_reduction",
    "schedule_rows",
    "shapes_of",
    "why_not_lowered",
]
