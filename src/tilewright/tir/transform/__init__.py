"""Lowering passes: one a file, their order in ``pipeline``."""

from __future__ import annotations

from tilewright.ir import Pass
from tilewright.support.folder import classes_in
from tilewright.tir.attrs import READ_ONLY
from tilewright.tir.transform.function_pass import prim_func_pass
from tilewright.tir.transform.gpu_pipeline import gpu_pipeline
from tilewright.tir.transform.hoist_expression import (
    HoistedConditionals,
    HoistedLetBindings,
    HoistExpressionConfig,
    HoistIfThenElseConfig,
)
from tilewright.tir.transform.loop_partition import LoopPartitionConfig
from tilewright.tir.transform.make_kernel_abi import KERNEL_ABI, kernel_abi
from tilewright.tir.transform.pipeline import block_passes, cpu_pipeline
from tilewright.tir.transform.simplify import StmtSimplifyConfig
from tilewright.tir.transform.split_host_device import (
    CALLING_CONV,
    check_cluster,
    cluster_shape,
    launch_extents,
)
from tilewright.tir.transform.storage_rewrite import SharedStorage, StoragePlan, storage_plan
from tilewright.tir.transform.unroll_loop import UnrollLoopConfig

_PASSES = classes_in(__name__, Pass)
globals().update(_PASSES)

__all__ = [
    "CALLING_CONV",
    "HoistExpressionConfig",
    "HoistIfThenElseConfig",
    "HoistedConditionals",
    "HoistedLetBindings",
    "KERNEL_ABI",
    "LoopPartitionConfig",
    "READ_ONLY",
    "SharedStorage",
    "StmtSimplifyConfig",
    "StoragePlan",
    "UnrollLoopConfig",
    "block_passes",
    "check_cluster",
    "cluster_shape",
    "cpu_pipeline",
    "gpu_pipeline",
    "kernel_abi",
    "launch_extents",
    "prim_func_pass",
    "storage_plan",
    *_PASSES,
]
