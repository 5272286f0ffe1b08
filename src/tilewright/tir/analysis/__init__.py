"""Analyses of TensorIR: nothing here changes a program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.support.later import imported_later
from tilewright.tir.analysis.accesses import Access, detect_accesses
from tilewright.tir.analysis.block_kind import (
    COMPLETE,
    REDUCTION,
    UPDATE,
    block_facts,
    block_kind,
    check_affine_binding,
    check_complete_block,
    check_dominant_block,
    check_reduction_block,
    has_branch,
    has_division,
    is_affine_binding,
    is_complete_block,
    is_dominant_block,
    is_injective_binding,
    is_output_block,
    is_reduction_block,
    linear_terms,
)
from tilewright.tir.analysis.bounds import OutOfBounds, check_out_of_bounds, verify_in_bounds
from tilewright.tir.analysis.checks import (
    OOBChecker,
    assert_pure_function,
    estimate_tir_flops,
    find_anchor_sblock,
    undefined_vars,
    verify_gpu_code,
    verify_memory,
    verify_ssa,
    verify_well_formed,
)
from tilewright.tir.analysis.code_size import estimate_code_size
from tilewright.tir.analysis.counting import Count, count_instances
from tilewright.tir.analysis.dependency import (
    OPAQUE_DEPENDENCE,
    RAW,
    WAR,
    WAW,
    Dependency,
    DependencyGraph,
    OpaqueDependency,
    block_dependencies,
)
from tilewright.tir.analysis.flops import count_flops, estimate_bytes, estimate_flops
from tilewright.tir.analysis.lca import lca_of_buffer_accesses
from tilewright.tir.analysis.memory import (
    allocated_memory,
    buffer_bytes,
    calculate_allocated_bytes,
)
from tilewright.tir.analysis.purity import (
    SideEffect,
    check_purity,
    is_pure_function,
    side_effect,
)
from tilewright.tir.analysis.reduction import Reduction, match_reduction
from tilewright.tir.analysis.region_cover import (
    Uncovered,
    check_region_cover,
    check_stage_pipeline,
    is_stage_pipeline,
)
from tilewright.tir.analysis.regions import (
    block_access_regions,
    get_block_access_region,
    get_block_read_write_region,
    infer_regions,
)
from tilewright.tir.analysis.traffic import Traffic, estimate_block_traffic, estimate_traffic
from tilewright.tir.analysis.verify import verify
from tilewright.tir.analysis.verify_races import find_race, runs_at_once
from tilewright.tir.analysis.verify_regions import undeclared_accesses
from tilewright.tir.attrs import TRUSTED_REGIONS

if TYPE_CHECKING:
    from tilewright.tir.analysis.update_order import check_updates_commute, updates_commute

# The same under TVM's names, those of today and those before blocks were called sblocks.
detect_buffer_access_lca = lca_of_buffer_accesses
find_anchor_block = find_anchor_sblock
get_sblock_access_region = get_block_access_region
get_sblock_read_write_region = get_block_read_write_region

# Parts that stand on the interpreter, which stands on this package.
_LATER = {
    "check_updates_commute": "tilewright.tir.analysis.update_order",
    "updates_commute": "tilewright.tir.analysis.update_order",
}

__all__ = [
    "Access", "COMPLETE", "Count", "Dependency", "DependencyGraph", "OPAQUE_DEPENDENCE",
    "OOBChecker", "OpaqueDependency", "OutOfBounds", "RAW", "REDUCTION", "Reduction", "SideEffect",
    "TRUSTED_REGIONS", "Traffic", "UPDATE", "Uncovered", "WAR", "WAW", "allocated_memory",
    "block_access_regions", "block_dependencies", "block_facts", "block_kind", "buffer_bytes",
    "calculate_allocated_bytes", "check_affine_binding", "check_complete_block",
    "check_dominant_block", "check_out_of_bounds", "check_purity", "check_reduction_block",
    "check_region_cover", "check_stage_pipeline", "check_updates_commute", "count_flops",
    "count_instances", "detect_accesses", "estimate_block_traffic", "estimate_bytes",
    "estimate_code_size", "estimate_flops", "estimate_traffic", "find_race",
    "get_block_access_region", "get_block_read_write_region", "has_branch", "has_division",
    "infer_regions", "is_affine_binding", "is_complete_block", "is_dominant_block",
    "is_injective_binding", "is_output_block", "is_pure_function", "is_reduction_block",
    "is_stage_pipeline", "lca_of_buffer_accesses", "linear_terms", "match_reduction",
    "assert_pure_function", "detect_buffer_access_lca", "estimate_tir_flops", "find_anchor_block",
    "find_anchor_sblock", "get_sblock_access_region", "get_sblock_read_write_region",
    "runs_at_once", "undefined_vars", "verify_gpu_code", "verify_memory", "verify_ssa",
    "verify_well_formed",
    "side_effect", "undeclared_accesses", "updates_commute", "verify", "verify_in_bounds",
]  # fmt: skip

__getattr__ = imported_later(__name__, _LATER)
