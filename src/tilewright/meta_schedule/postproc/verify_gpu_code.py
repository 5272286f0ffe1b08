"""Reject schedules that a GPU can't run: lower them, and look at the kernels."""

from __future__ import annotations

from math import prod
from typing import Any

from tilewright.ir import Call, IRModule, as_int, dtypes, pre_order
from tilewright.meta_schedule.postproc.base import Postproc, Rejected
from tilewright.meta_schedule.schedule_rule.binding import MAX_VTHREADS
from tilewright.scheduling.gpu import limits_of
from tilewright.support.errors import TilewrightError
from tilewright.target import Target
from tilewright.tir import BufferLoad, BufferStore, For, PrimFunc
from tilewright.tir.analysis import allocated_memory
from tilewright.tir.gpu_ops import POINTERS
from tilewright.tir.schedule import Schedule
from tilewright.tir.thread_scope import is_private
from tilewright.tir.transform import CALLING_CONV, gpu_pipeline, launch_extents

_MOST_Z = 64


class VerifyGPUCode(Postproc):
    """Reject what the GPU passes refuse, and kernels beyond the target's limits.

    These are the threads in a block, the bytes of shared memory (options ``-max-threads`` and
    ``-max-shared-memory`` of the target), ``max_vthread`` virtual threads, vectors of
    ``max_vector_bytes``; and no loop may run outside of a kernel.
    """

    name = "verify-gpu-code"

    def __init__(self, *, max_vthread: int = MAX_VTHREADS, max_vector_bytes: int = 16) -> None:
        self.max_vthread = max_vthread
        self.max_vector_bytes = max_vector_bytes
        self.target = Target("cuda")

    def initialize(self, target: Target) -> None:
        """Learn the limits of the GPU."""
        self.target = target

    def apply(self, sch: Schedule) -> Rejected | None:
        """Check the scheduled program, then the lowered one."""
        most = limits_of(self.target).max_threads
        for func_name in sch.state.func_names():
            for extents in _thread_nests(sch.state.func(func_name).body, {}):
                threads = _product(extents, "threadIdx")
                if threads > most:
                    return Rejected(f"a block has {threads} threads, more than {most}")
                virtual = _product(extents, "vthread")
                if virtual > self.max_vthread:
                    return Rejected(f"{virtual} virtual threads, more than {self.max_vthread}")
        try:
            lowered = gpu_pipeline(self.target)(sch.mod)
        except TilewrightError as error:
            return Rejected(f"it can't be lowered: {error.message}")
        return self._check(lowered)

    def _check(self, lowered: IRModule) -> Rejected | None:
        limits = limits_of(self.target)
        for func in lowered.functions.values():
            if not isinstance(func, PrimFunc):
                continue
            if func.attrs.get(CALLING_CONV) != "device_kernel_launch":
                if any(type(node) is BufferStore for node in pre_order(func.body)):
                    return Rejected("a loop runs outside of the GPU's kernels")
                continue
            extents = {tag: as_int(n) or 1 for tag, n in launch_extents(func).items()}
            threads = _product(extents, "threadIdx")
            if threads > limits.max_threads or extents.get("threadIdx.z", 1) > _MOST_Z:
                return Rejected(f"a block has {threads} threads, more than {limits.max_threads}")
            shared = as_int(allocated_memory(func).get("shared", 0))
            if shared is None or shared > limits.max_shared_memory:
                return Rejected(
                    f"{shared} bytes of shared memory, more than {limits.max_shared_memory}"
                )
            widest = _widest(func.body)
            if widest > self.max_vector_bytes:
                return Rejected(f"vectors of {widest} bytes, more than {self.max_vector_bytes}")
        return None


def _thread_nests(node: Any, above: dict[str, int]) -> list[dict[str, int]]:
    """Return the extents of the thread loops around each innermost statement, by tag."""
    if type(node) is For and node.thread is not None:
        extent = max(as_int(node.extent) or 1, above.get(node.thread, 1))
        above = {**above, node.thread: extent}
    below = [item for item in node.child_nodes() if not isinstance(item, BufferLoad)]
    found = [nest for item in below for nest in _thread_nests(item, above)]
    return found or ([above] if type(node) is BufferStore else [])


def _product(extents: dict[str, int], kind: str) -> int:
    return prod(extent for tag, extent in extents.items() if tag.startswith(kind))


def _widest(node: Any) -> int:
    """The bytes of the longest vector that is accessed; an operator's tiles are none."""
    if isinstance(node, Call) and node.op.name in POINTERS:
        return 0
    return max((_vector_bytes(node), *map(_widest, node.child_nodes())))


def _vector_bytes(node: object) -> int:
    """The bytes of one access to memory; registers and fragments have no such limit."""
    if not isinstance(node, (BufferLoad, BufferStore)):
        return 0
    dtype = node.dtype if isinstance(node, BufferLoad) else node.value.dtype
    if is_private(node.buffer.scope) or dtypes.lanes_of(dtype) == 1:
        return 0
    return -(-dtypes.bits_of(dtype) * dtypes.lanes_of(dtype) // 8)
