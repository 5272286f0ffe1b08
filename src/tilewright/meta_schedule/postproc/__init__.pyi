"""Made by `tools/package_stubs.py`."""

from tilewright.meta_schedule.postproc.base import POSTPROCS as POSTPROCS
from tilewright.meta_schedule.postproc.base import Postproc as Postproc
from tilewright.meta_schedule.postproc.base import PyPostproc as PyPostproc
from tilewright.meta_schedule.postproc.base import Rejected as Rejected
from tilewright.meta_schedule.postproc.disallow_dynamic_loop import DisallowDynamicLoop as DisallowDynamicLoop
from tilewright.meta_schedule.postproc.rewrite_cooperative_fetch import RewriteCooperativeFetch as RewriteCooperativeFetch
from tilewright.meta_schedule.postproc.rewrite_parallel_vectorize_unroll import RewriteParallelVectorizeUnroll as RewriteParallelVectorizeUnroll
from tilewright.meta_schedule.postproc.rewrite_reduction_block import RewriteReductionBlock as RewriteReductionBlock
from tilewright.meta_schedule.postproc.rewrite_unbound_block import RewriteUnboundBlock as RewriteUnboundBlock
from tilewright.meta_schedule.postproc.verify_code_size import VerifyCodeSize as VerifyCodeSize
from tilewright.meta_schedule.postproc.verify_gpu_code import VerifyGPUCode as VerifyGPUCode
