"""The order of the lowering passes, from scheduled TensorIR to what code generators take."""

from __future__ import annotations

from tilewright.ir import Pass, Sequential
from tilewright.target import Target
from tilewright.tir.transform.align_storage import AlignStorage
from tilewright.tir.transform.compact_buffer_allocation import CompactBufferAllocation
from tilewright.tir.transform.convert_blocks_to_opaque import ConvertBlocksToOpaque
from tilewright.tir.transform.flatten_buffer import FlattenBuffer
from tilewright.tir.transform.join_lanes import JoinLanes
from tilewright.tir.transform.loop_partition import LoopPartition
from tilewright.tir.transform.lower_init_block import LowerInitBlock
from tilewright.tir.transform.lower_int_div import LowerIntDiv
from tilewright.tir.transform.lower_match_buffer import LowerMatchBuffer
from tilewright.tir.transform.lower_opaque_block import LowerOpaqueBlock
from tilewright.tir.transform.plan_buffer_allocation import PlanBufferAllocation
from tilewright.tir.transform.promote_accumulators import PromoteAccumulators
from tilewright.tir.transform.simplify import Simplify
from tilewright.tir.transform.unroll_loop import UnrollLoop
from tilewright.tir.transform.vectorize_loop import VectorizeLoop


def block_passes() -> list[Pass]:
    """Passes that remove blocks; they leave plain loops over multi-dimensional buffers."""
    return [
        LowerInitBlock(),
        PlanBufferAllocation(),
        ConvertBlocksToOpaque(),
        AlignStorage(pointers=True),
        LowerMatchBuffer(),
        CompactBufferAllocation(),
        AlignStorage(),
        LowerOpaqueBlock(),
    ]


def cpu_pipeline(target: Target) -> Sequential:
    """Return the lowering passes for a CPU."""
    return Sequential(
        [
            *block_passes(),
            FlattenBuffer(keep_separators=False),
            Simplify(),
            LoopPartition(),
            VectorizeLoop(target.vector_bits),
            JoinLanes(),
            UnrollLoop(),
            PromoteAccumulators(),
            LowerIntDiv(),
        ],
        name="LowerForCPU",
    )
