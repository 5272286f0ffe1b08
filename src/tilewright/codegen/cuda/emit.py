"""Lowered kernels to CUDA C++ text."""

from __future__ import annotations

from typing import Any

from tilewright.codegen.c import text as t
from tilewright.codegen.c.kernels import (
    KernelCode,
    KernelInfo,
    KernelParam,
    emit_kernels_text,
    kernels_of,
)
from tilewright.codegen.c.text import Text
from tilewright.codegen.cuda.dialect import dialect_of
from tilewright.codegen.cuda.ptx import FragmentEmitter, declare_fragment, uses_async_proxy
from tilewright.ir import Broadcast, Call, Expr, IRModule, Ramp, as_int, dtypes, is_const
from tilewright.support.errors import CodegenError, LowerError
from tilewright.target import Target
from tilewright.tir import Buffer, BufferLoad, BufferStore, Evaluate
from tilewright.tir.thread_scope import CLUSTER, is_block_tag, is_cluster_tag, is_shared
from tilewright.tir.transform import check_cluster, cluster_shape

__all__ = ["KernelCode", "KernelInfo", "KernelParam", "emit_kernels", "kernels_of"]

_COPY_SIZES = (4, 8, 16)


def emit_kernels(lowered: IRModule, target: Target) -> KernelCode:
    """Write the kernels of a lowered module (``driver.lower(mod, target)``) in CUDA C++.

    The text includes no header and compiles by itself. Raises ``CodegenError`` for what has no
    code, or needs more shared memory than the target has.
    """
    return emit_kernels_text(lowered, dialect_of(target), target, CudaEmitter)


class CudaEmitter(FragmentEmitter):
    """Writes one kernel, with fragments, and copies to shared memory that don't wait."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.async_proxy = uses_async_proxy(self.func)

    def visit_Evaluate(self, node: Evaluate) -> None:
        """Before a barrier, what threads have written is shown to operators that read it."""
        if (
            self.async_proxy
            and getattr(getattr(node.value, "op", None), "name", "") == "storage_sync"
        ):
            self.line('asm volatile("fence.proxy.async.shared::cta;" ::: "memory");')
        super().visit_Evaluate(node)

    def thread_index(self, tag: str) -> str | None:
        """Blocks of a cluster are neighbours in the grid, which counts blocks."""
        index = super().thread_index(tag)
        extent = self.launch.get(f"{CLUSTER}.{tag[-1]}") if is_block_tag(tag) else None
        if index is None or extent is None:
            return index
        return Text(f"({index} {'%' if is_cluster_tag(tag) else '/'} {as_int(extent)})")

    def attributes(self) -> str:
        """The cluster that blocks form, which the launch need not say again."""
        try:
            check_cluster(self.launch, self.target)
        except LowerError as error:
            raise CodegenError(error.message) from error
        shape = cluster_shape(self.launch)
        return f"__cluster_dims__({', '.join(map(str, shape))})" if self.in_clusters else ""

    def private(self, buffer: Buffer) -> None:
        """Declare memory of one thread, or its registers of a warp's fragments."""
        if buffer.scope.startswith("wmma"):
            declare_fragment(self, buffer)
        else:
            super().private(buffer)

    @property
    def _has_async(self) -> bool:
        return int(self.dialect.options["capability"]) >= 80

    def copy_later(self, node: BufferStore) -> bool:
        """Start a copy of 4, 8 or 16 bytes from global to shared memory, if the store is one."""
        if not self._has_async or not is_shared(node.buffer.scope) or self.mask is not None:
            return False
        value, on = node.value, None
        if isinstance(value, Call) and value.op.name == "if_then_else":
            on, value, other = value.args
            zero = other.value if isinstance(other, Broadcast) else other
            if not is_const(zero, 0) or dtypes.lanes_of(on.dtype) > 1:
                return False
        if not isinstance(value, BufferLoad) or value.buffer.scope != "global":
            return False
        size = dtypes.bits_of(value.dtype) * dtypes.lanes_of(value.dtype) // 8
        places = [self._start(*pair, size) for pair in (
            (node.buffer, node.indices), (value.buffer, value.indices)
        )]  # fmt: skip
        if size not in _COPY_SIZES or None in places or value.buffer.dtype != node.buffer.dtype:
            return False
        condition = "true" if on is None else self.scalar(on)
        to, source = (self._at(*place) for place in places if place is not None)
        self.line(f"{self.help(f'copy_async{size}', 'uint8', to, source, condition)};")
        return True

    def _start(
        self, buffer: Buffer, indices: tuple[Expr, ...], size: int
    ) -> tuple[Buffer, Expr] | None:
        """The first of neighbours that lie at a multiple of ``size`` bytes."""
        index = self.flat_index(buffer, indices)
        if isinstance(index, Ramp):
            if as_int(index.stride) != 1:
                return None
            lanes, index = index.lanes, index.base
        else:
            lanes = dtypes.lanes_of(index.dtype)
        if dtypes.lanes_of(index.dtype) > 1 or dtypes.lanes_of(buffer.dtype) > 1:
            return None
        if lanes == 1:
            return (buffer, index) if size == dtypes.bytes_of(buffer.dtype) else None
        return (buffer, index) if self.chunks(buffer, index, lanes) == [(0, lanes)] else None

    def _at(self, buffer: Buffer, index: Expr) -> Text:
        return t.binary(
            "+",
            self.pointer(buffer.data, self.dialect.memory(dtypes.element_of(buffer.dtype))),
            self.scalar(index),
        )

    def commit_copies(self) -> None:
        """Make a group of the copies that were started."""
        if self._has_async:
            self.line('asm volatile("cp.async.commit_group;" ::: "memory");')

    def await_copies(self, count: int) -> None:
        """Wait until at most so many groups of copies are under way."""
        if self._has_async:
            self.line(f'asm volatile("cp.async.wait_group {count};" ::: "memory");')
