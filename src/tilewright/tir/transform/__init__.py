"""Lowering passes: one a file, their order in ``pipeline``."""

from __future__ import annotations

from tilewright.tir.transform.compact_buffer_allocation import CompactBufferAllocation
from tilewright.tir.transform.convert_blocks_to_opaque import ConvertBlocksToOpaque
from tilewright.tir.transform.flatten_buffer import FlattenBuffer
from tilewright.tir.transform.join_lanes import JoinLanes
from tilewright.tir.transform.loop_partition import LoopPartition
from tilewright.tir.transform.lower_init_block import LowerInitBlock
from tilewright.tir.transform.lower_int_div import LowerIntDiv
from tilewright.tir.transform.lower_match_buffer import LowerMatchBuffer
from tilewright.tir.transform.lower_opaque_block import LowerOpaqueBlock
from tilewright.tir.transform.pipeline import block_passes, cpu_pipeline
from tilewright.tir.transform.plan_buffer_allocation import PlanBufferAllocation
from tilewright.tir.transform.promote_accumulators import PromoteAccumulators
from tilewright.tir.transform.simplify import Simplify
from tilewright.tir.transform.unroll_loop import UnrollLoop
from tilewright.tir.transform.vectorize_loop import VectorizeLoop

__all__ = [
    "CompactBufferAllocation",
    "ConvertBlocksToOpaque",
    "FlattenBuffer",
    "JoinLanes",
    "LoopPartition",
    "LowerInitBlock",
    "LowerIntDiv",
    "LowerMatchBuffer",
    "LowerOpaqueBlock",
    "PlanBufferAllocation",
    "PromoteAccumulators",
    "Simplify",
    "UnrollLoop",
    "VectorizeLoop",
    "block_passes",
    "cpu_pipeline",
]
