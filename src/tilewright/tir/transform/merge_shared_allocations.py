"""Put all shared memory of a kernel into one arena; what is not alive together shares bytes.

Offsets are found first-fit, the largest buffers first, among those whose live ranges overlap.
Buffers of symbolic size follow one after the other. Runs after ``FlattenBuffer`` and before
``ThreadSync``, which orders the accesses of buffers that follow each other in the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir import (
    Broadcast,
    Call,
    Expr,
    IntImm,
    Mutator,
    Ramp,
    Var,
    as_int,
    ceildiv,
    const,
    dtypes,
    pre_order,
)
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.gpu_ops import SWIZZLE_PERIOD, WARPGROUP_OPS, memory_uses
from tilewright.tir.stmt import Allocate, BufferStore, DeclBuffer, For, Stmt, While
from tilewright.tir.transform.base import FunctionTransform, function_analyzer
from tilewright.tir.transform.kernels import map_kernels, thread_nest


class MergeSharedAllocations(FunctionTransform):
    """Make one allocation of scope ``shared`` per kernel."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        analyzer = function_analyzer(func)
        return map_kernels(func, lambda kernel: _merged(kernel, analyzer))


MergeSharedMemoryAllocations = MergeSharedAllocations  # TVM's name


def _merged(kernel: For, analyzer: Analyzer) -> Stmt:
    buffers = _mergeable(kernel)
    if len(buffers) < 2:
        return kernel
    loops, body = thread_nest(kernel)
    ranges = _Lifetimes(set(buffers)).of(body)
    alignments = _alignments(buffers, body)
    offsets, size = _planned(buffers, ranges, analyzer, alignments)
    alignment = max(alignments.values())
    arena = Buffer("shared_arena", (size,), "uint8", scope="shared", alignment=alignment)
    rewriter = _Rewriter(arena, offsets)
    body = rewriter.visit(body)
    for view in rewriter.views.values():
        body = DeclBuffer(view, body)
    body = Allocate(arena, body)
    for loop in reversed(loops):
        body = loop.replace(body=body)
    return body


def _alignments(buffers: list[Buffer], body: Stmt) -> dict[Buffer, int]:
    """Bytes that buffers are aligned to: operands of wgmma, and boxes, to where rows repeat."""
    products = {
        use.tile.along.buffer.data
        for item in pre_order(body)
        if type(item) is Call
        and (item.op.name in WARPGROUP_OPS or item.op.name == "ptx_cp_async_bulk_tensor")
        for use in memory_uses(item)
        if not use.atomic
    }
    return {
        buffer: max(buffer.alignment, SWIZZLE_PERIOD if buffer.data in products else 1)
        for buffer in buffers
    }


def _mergeable(kernel: For) -> list[Buffer]:
    """Flat shared buffers of whole bytes that are used by their elements only."""
    found: dict[Var, Buffer] = {}
    taken: set[Var] = set()
    for item in pre_order(kernel):
        if type(item) is Allocate and item.buffer.scope == "shared":
            buffer = item.buffer
            if buffer.ndim == 1 and not buffer.strides and dtypes.bits_of(buffer.dtype) >= 8:
                found[buffer.data] = buffer
        elif type(item) is DeclBuffer:
            taken.add(item.buffer.data)
        elif type(item) is Var:
            taken.add(item)
    return [buffer for data, buffer in found.items() if data not in taken]


@dataclass
class _Range:
    first: int
    last: int

    def meets(self, other: _Range) -> bool:
        return self.first <= other.last and other.first <= self.last


class _Lifetimes:
    """From the first to the last use of each buffer, in the order of the program.

    A buffer that lives around a loop and is used inside is alive in all of the loop.
    """

    def __init__(self, buffers: set[Buffer]) -> None:
        self.buffers = buffers
        self.ranges: dict[Buffer, _Range] = {}
        self.time = 0

    def of(self, body: Stmt) -> dict[Buffer, _Range]:
        self.walk(body)
        return self.ranges

    def walk(self, node: Any) -> None:
        if isinstance(node, (BufferLoad, BufferStore)) and node.buffer in self.buffers:
            self.use(node.buffer, self.time, self.time)
        loop = isinstance(node, (For, While))
        start = self.time
        before = {buffer: (r.first, r.last) for buffer, r in self.ranges.items()} if loop else {}
        for item in node.child_nodes():
            if not isinstance(item, Expr):
                self.time += 1
            if type(item) is not Buffer:
                self.walk(item)
        if loop:
            inner = {item.buffer for item in pre_order(node) if type(item) is Allocate}
            for buffer, r in self.ranges.items():
                if before.get(buffer) != (r.first, r.last) and buffer not in inner:
                    self.use(buffer, start, self.time)

    def use(self, buffer: Buffer, first: int, last: int) -> None:
        known = self.ranges.setdefault(buffer, _Range(first, last))
        known.first, known.last = min(known.first, first), max(known.last, last)


def _planned(
    buffers: list[Buffer],
    ranges: dict[Buffer, _Range],
    analyzer: Analyzer,
    alignments: dict[Buffer, int],
) -> tuple[dict[Buffer, Expr], Expr]:
    """Offsets in bytes, and the size of the whole."""
    offsets: dict[Buffer, Expr] = {}
    placed: list[tuple[int, int, _Range]] = []
    static = [buffer for buffer in buffers if as_int(buffer.shape[0]) is not None]
    total = 0
    for buffer in sorted(static, key=lambda item: -_bytes(item)):
        # What is never used needs no room.
        alive = ranges.get(buffer)
        start, size = 0, _bytes(buffer)
        if alive is not None:
            start = _first_fit(size, alignments[buffer], alive, placed)
            placed.append((start, start + size, alive))
            total = max(total, start + size)
        offsets[buffer] = const(start)
    largest = max(alignments.values())
    end: Expr = const(_aligned(total, largest))
    for buffer in buffers:
        if buffer not in offsets:
            offsets[buffer] = end
            size_of = buffer.shape[0] * dtypes.bytes_of(buffer.dtype)
            end = analyzer.simplify(end + ceildiv(size_of, largest) * largest)
    return offsets, end


def _bytes(buffer: Buffer) -> int:
    return int(as_int(buffer.shape[0]) or 0) * dtypes.bytes_of(buffer.dtype)


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def _first_fit(
    size: int, alignment: int, alive: _Range, placed: list[tuple[int, int, _Range]]
) -> int:
    start = 0
    for low, high, other in sorted(placed, key=lambda item: item[0]):
        if other.meets(alive) and low < start + size and start < high:
            start = _aligned(high, alignment)
    return start


class _Rewriter(Mutator):
    """Replaces accesses by accesses to views of the arena, one per dtype."""

    def __init__(self, arena: Buffer, offsets: dict[Buffer, Expr]) -> None:
        self.arena, self.offsets = arena, offsets
        self.views: dict[str, Buffer] = {}

    def place(self, buffer: Buffer, index: Expr) -> tuple[Buffer, tuple[Expr]]:
        dtype = buffer.dtype
        width = dtypes.bytes_of(dtype)
        view = self.views.get(dtype)
        if view is None:
            view = Buffer(
                f"shared_{dtype}", (self.arena.shape[0] // width,), dtype, scope="shared",
                alignment=self.arena.alignment, data=self.arena.data,
            )  # fmt: skip
            self.views[dtype] = view
        offset = self.offsets[buffer]
        moved = const(offset.value // width) if isinstance(offset, IntImm) else offset // width
        if isinstance(index, Ramp):
            return view, (Ramp(index.base + moved, index.stride, index.lanes),)
        lanes = dtypes.lanes_of(index.dtype)
        return view, (index + (Broadcast(moved, lanes) if lanes > 1 else moved),)

    def visit_Allocate(self, node: Allocate) -> Stmt:
        return self.visit(node.body) if node.buffer in self.offsets else self.generic_visit(node)

    def visit_BufferLoad(self, node: BufferLoad) -> BufferLoad:
        made = self.generic_visit(node)
        if node.buffer not in self.offsets:
            return made
        return BufferLoad(*self.place(node.buffer, made.indices[0]))

    def visit_BufferStore(self, node: BufferStore) -> BufferStore:
        made = self.generic_visit(node)
        if node.buffer not in self.offsets:
            return made
        view, indices = self.place(node.buffer, made.indices[0])
        return BufferStore(view, made.value, indices)
