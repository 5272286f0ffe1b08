"""The order of the lowering passes for GPUs, from scheduled TensorIR to kernels and their host."""

from __future__ import annotations

from tilewright.ir import Pass, Sequential
from tilewright.target import Target
from tilewright.tir.transform.compact_buffer_allocation import CompactBufferAllocation
from tilewright.tir.transform.flatten_buffer import FlattenBuffer
from tilewright.tir.transform.inject_ptx_async_copy import InjectPTXAsyncCopy
from tilewright.tir.transform.inject_virtual_thread import InjectVirtualThread
from tilewright.tir.transform.legalize_float import FloatComputeLegalize, FloatStorageLegalize
from tilewright.tir.transform.lift_thread_binding import LiftThreadBinding
from tilewright.tir.transform.lower_cross_thread_reduction import LowerCrossThreadReduction
from tilewright.tir.transform.lower_thread_allreduce import LowerThreadAllreduce
from tilewright.tir.transform.lower_warp_memory import LowerWarpMemory
from tilewright.tir.transform.make_kernel_abi import MakeKernelABI
from tilewright.tir.transform.merge_shared_allocations import MergeSharedAllocations
from tilewright.tir.transform.pipeline import block_passes
from tilewright.tir.transform.share_index_arithmetic import ShareIndexArithmetic
from tilewright.tir.transform.simplify import Simplify
from tilewright.tir.transform.split_host_device import SplitHostDevice
from tilewright.tir.transform.thread_sync import ThreadSync
from tilewright.tir.transform.unify_thread_binding import UnifyThreadBinding
from tilewright.tir.transform.unroll_loop import UnrollLoop
from tilewright.tir.transform.vectorize_loop import VectorizeLoop

GPU_FLOATS = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Small floats that the code generators for GPUs store, load and convert."""

_ASYNC_COPIES = 80  # the first compute capability that has them
_VECTOR_BITS = 128  # what one thread loads or stores at once


def _has_async_copies(target: Target) -> bool:
    return target.kind == "cuda" and target.gpu.capability >= _ASYNC_COPIES


def gpu_pipeline(target: Target) -> Sequential:
    """Return the lowering passes for a GPU.

    Thread loops come to the top of their kernels before buffers are compacted: from then on an
    allocation says by its scope whether threads share it.
    """
    warp_size = int(target.options.get("thread-warp-size", 64 if target.kind == "hip" else 32))
    # Reads what init says, so it comes before that is lowered.
    passes: list[Pass] = [LowerCrossThreadReduction()]
    for item in block_passes():
        if isinstance(item, CompactBufferAllocation):
            # Lifting takes each tag to be one loop variable.
            passes += [UnifyThreadBinding(), LiftThreadBinding()]
        passes.append(item)
    passes += [
        # Memory of each virtual thread is one more dimension, so buffers are not flat yet.
        InjectVirtualThread(),
        # Needs the kernel's threads on top, and adds shared memory, to be flattened and merged.
        LowerThreadAllreduce(warp_size),
        # Takes lanes' numbers for what they are while buffers have a dimension for them.
        LowerWarpMemory(),
        FlattenBuffer(keep_separators=False),
        FloatComputeLegalize(GPU_FLOATS),
        FloatStorageLegalize(GPU_FLOATS),
        # Tidies up after all of these, for the passes that look for forms of index or body.
        Simplify(),
        VectorizeLoop(vector_bits=_VECTOR_BITS),
        # Places buffers by their sizes in bytes, once they are flat; barriers then order accesses
        # to the same bytes.
        MergeSharedAllocations(),
        *(ThreadSync(scope) for scope in ("shared", "warp", "global")),
        # A barrier in a loop is found once, not in each of its copies.
        UnrollLoop(),
        # Loop variables have become numbers in the copies.
        Simplify(),
        # After the passes that know copies in flight by their attributes.
        InjectPTXAsyncCopy(_has_async_copies(target)),
        # When indices have their last form; a long text takes compilers long.
        ShareIndexArithmetic(),
        # Last, as all passes above look at kernels within their function.
        SplitHostDevice(target),
        # Records parameters, of which kernels have their own only now.
        MakeKernelABI(),
    ]
    return Sequential(passes, name="LowerForGPU")
