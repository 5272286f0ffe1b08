"""Analyses of TensorIR: nothing here changes a program."""

from __future__ import annotations

from tilewright.tir.analysis.block_kind import (
    COMPLETE,
    REDUCTION,
    UPDATE,
    block_facts,
    block_kind,
    has_division,
    is_affine_binding,
    is_complete_block,
    is_injective_binding,
    is_output_block,
    is_reduction_block,
    linear_terms,
)
from tilewright.tir.analysis.dependency import (
    RAW,
    WAR,
    WAW,
    Dependency,
    DependencyGraph,
    block_dependencies,
)
from tilewright.tir.analysis.flops import estimate_bytes, estimate_flops
from tilewright.tir.analysis.reduction import Reduction, match_reduction, match_update
from tilewright.tir.analysis.regions import block_access_regions, infer_regions
from tilewright.tir.analysis.verify import verify
