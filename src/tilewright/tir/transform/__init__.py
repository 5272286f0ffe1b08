"""Lowering passes: one a file, their order in ``pipeline``."""

from __future__ import annotations

from tilewright.tir.transform.align_storage import AlignStorage
from tilewright.tir.transform.align_streams import AlignStreams
from tilewright.tir.transform.canonicalize_loop import CanonicalizeLoops
from tilewright.tir.transform.common_subexpr import CommonSubexpressionElimination
from tilewright.tir.transform.compact_buffer_allocation import CompactBufferAllocation
from tilewright.tir.transform.convert_blocks_to_opaque import ConvertBlocksToOpaque
from tilewright.tir.transform.flatten_buffer import FlattenBuffer
from tilewright.tir.transform.gpu_pipeline import gpu_pipeline
from tilewright.tir.transform.guard_accumulation import GuardAccumulation
from tilewright.tir.transform.hoist import HoistInvariants
from tilewright.tir.transform.inject_double_buffer import InjectDoubleBuffer
from tilewright.tir.transform.inject_permuted_layout import InjectPermutedLayout
from tilewright.tir.transform.inject_prefetch import InjectPrefetch
from tilewright.tir.transform.inject_software_pipeline import InjectSoftwarePipeline
from tilewright.tir.transform.inject_virtual_thread import InjectVirtualThread
from tilewright.tir.transform.join_lanes import JoinLanes
from tilewright.tir.transform.legalize_float import FloatComputeLegalize, FloatStorageLegalize
from tilewright.tir.transform.lift_thread_binding import LiftThreadBinding
from tilewright.tir.transform.loop_partition import LoopPartition
from tilewright.tir.transform.lower_auto_copy import LowerAutoCopy
from tilewright.tir.transform.lower_cross_thread_reduction import LowerCrossThreadReduction
from tilewright.tir.transform.lower_init_block import LowerInitBlock
from tilewright.tir.transform.lower_int_div import LowerIntDiv
from tilewright.tir.transform.lower_match_buffer import LowerMatchBuffer
from tilewright.tir.transform.lower_opaque_block import LowerOpaqueBlock
from tilewright.tir.transform.lower_thread_allreduce import LowerThreadAllreduce
from tilewright.tir.transform.make_kernel_abi import (
    KERNEL_ABI,
    READ_ONLY,
    MakeKernelABI,
    kernel_abi,
)
from tilewright.tir.transform.merge_shared_allocations import MergeSharedAllocations
from tilewright.tir.transform.narrow_dtype import NarrowDataType
from tilewright.tir.transform.pipeline import block_passes, cpu_pipeline
from tilewright.tir.transform.plan_buffer_allocation import PlanBufferAllocation
from tilewright.tir.transform.promote_accumulators import PromoteAccumulators
from tilewright.tir.transform.remove_empty_loops import RemoveEmptyLoops
from tilewright.tir.transform.remove_no_op import RemoveNoOp
from tilewright.tir.transform.renormalize_split import RenormalizeSplitPattern
from tilewright.tir.transform.simplify import Simplify
from tilewright.tir.transform.split_host_device import CALLING_CONV, SplitHostDevice, launch_extents
from tilewright.tir.transform.storage_rewrite import (
    SharedStorage,
    StoragePlan,
    StorageRewrite,
    storage_plan,
)
from tilewright.tir.transform.thread_sync import ThreadSync
from tilewright.tir.transform.unify_thread_binding import UnifyThreadBinding
from tilewright.tir.transform.unroll_loop import UnrollLoop
from tilewright.tir.transform.vectorize_loop import VectorizeLoop

__all__ = [
    "CALLING_CONV",
    "KERNEL_ABI",
    "READ_ONLY",
    "MakeKernelABI",
    "kernel_abi",
    "LowerAutoCopy",
    "InjectPrefetch",
    "InjectSoftwarePipeline",
    "InjectPermutedLayout",
    "InjectDoubleBuffer",
    "AlignStorage",
    "AlignStreams",
    "CanonicalizeLoops",
    "CommonSubexpressionElimination",
    "CompactBufferAllocation",
    "ConvertBlocksToOpaque",
    "FlattenBuffer",
    "FloatComputeLegalize",
    "FloatStorageLegalize",
    "GuardAccumulation",
    "HoistInvariants",
    "InjectVirtualThread",
    "JoinLanes",
    "LiftThreadBinding",
    "LoopPartition",
    "LowerCrossThreadReduction",
    "LowerInitBlock",
    "LowerIntDiv",
    "LowerMatchBuffer",
    "LowerOpaqueBlock",
    "LowerThreadAllreduce",
    "MergeSharedAllocations",
    "NarrowDataType",
    "PlanBufferAllocation",
    "PromoteAccumulators",
    "RemoveEmptyLoops",
    "RemoveNoOp",
    "RenormalizeSplitPattern",
    "SharedStorage",
    "Simplify",
    "SplitHostDevice",
    "StoragePlan",
    "StorageRewrite",
    "ThreadSync",
    "UnifyThreadBinding",
    "UnrollLoop",
    "VectorizeLoop",
    "block_passes",
    "cpu_pipeline",
    "gpu_pipeline",
    "launch_extents",
    "storage_plan",
]
