"""Postprocs: what finishes a schedule after all decisions, or rejects it. One a file."""

from __future__ import annotations

from tilewright.meta_schedule.postproc.base import POSTPROCS, Postproc, Rejected
from tilewright.meta_schedule.postproc.disallow_dynamic_loop import DisallowDynamicLoop
from tilewright.meta_schedule.postproc.rewrite_parallel_vectorize_unroll import (
    RewriteParallelVectorizeUnroll,
)
from tilewright.meta_schedule.postproc.rewrite_reduction_block import RewriteReductionBlock
from tilewright.meta_schedule.postproc.verify_code_size import VerifyCodeSize

__all__ = [
    "POSTPROCS",
    "DisallowDynamicLoop",
    "Postproc",
    "Rejected",
    "RewriteParallelVectorizeUnroll",
    "RewriteReductionBlock",
    "VerifyCodeSize",
]
