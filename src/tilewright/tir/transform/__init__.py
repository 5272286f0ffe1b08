"""Lowering passes: one a file, their order in ``pipeline``."""

from __future__ import annotations

from tilewright.ir import Pass
from tilewright.support.folder import classes_in
from tilewright.tir.attrs import READ_ONLY
from tilewright.tir.transform.gpu_pipeline import gpu_pipeline
from tilewright.tir.transform.hoist_expression import HoistedConditionals, HoistedLetBindings
from tilewright.tir.transform.make_kernel_abi import KERNEL_ABI, kernel_abi
from tilewright.tir.transform.pipeline import block_passes, cpu_pipeline
from tilewright.tir.transform.split_host_device import CALLING_CONV, launch_extents
from tilewright.tir.transform.storage_rewrite import SharedStorage, StoragePlan, storage_plan

_PASSES = classes_in(__name__, Pass)
globals().update(_PASSES)

__all__ = [
    "CALLING_CONV",
    "HoistedConditionals",
    "HoistedLetBindings",
    "KERNEL_ABI",
    "READ_ONLY",
    "SharedStorage",
    "StoragePlan",
    "block_passes",
    "cpu_pipeline",
    "gpu_pipeline",
    "kernel_abi",
    "launch_extents",
    "storage_plan",
    *_PASSES,
]
