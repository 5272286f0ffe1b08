"""Give each lane its own part of a warp's memory: registers instead of an array for 32 threads.

Of a buffer of scope ``warp`` one dimension is that of the lanes: it has 32 elements, and every
access has the lane's number there. Without that dimension the buffer is memory of one thread
(scope ``local``)::

    W = T.alloc_buffer((4, 32, 8), "float16", scope="warp")      W = ... (4, 8), scope="local"
    W[i, tx, j]                                              ->  W[i, j]

Memory of scope ``warpgroup``, of 128 threads, is lowered alike. Buffers that lanes of a warp read
from each other stay as they are; for those of a warpgroup that is an error. Runs on kernels whose
thread loops are at the top, before buffers are flat.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir import (
    Expr,
    Mutator,
    Range,
    Var,
    as_int,
    const,
    floormod,
    pre_order,
    substitute,
    uses_var,
)
from tilewright.support.errors import LowerError
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.fragments import WARP_SIZE, WARPGROUP_SIZE
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import Allocate, Block, BufferStore, For, Stmt
from tilewright.tir.transform.base import FunctionTransform, bind_loop, function_analyzer
from tilewright.tir.transform.kernels import map_kernels, thread_nest
from tilewright.tir.walk import statements

_ROWS, _ROW = 8, 4
"""Rows that a warp has of a fragment, and threads of one: all layouts go by these."""
SIZES = {"warp": WARP_SIZE, "warpgroup": WARPGROUP_SIZE}


class LowerWarpMemory(FunctionTransform):
    """Turn memory of scope ``warp`` into memory of scope ``local`` where each lane uses its own."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        if not any(
            isinstance(item, Buffer) and item.scope in SIZES for item in pre_order(func.body)
        ):
            return func
        return map_kernels(func, lambda kernel: _lowered(kernel, function_analyzer(func)))


def _lowered(kernel: For, analyzer: Analyzer) -> Stmt:
    loops, body = thread_nest(kernel)
    lanes = next((loop for loop in loops if loop.thread == "threadIdx.x"), None)
    if lanes is None:
        return kernel
    for loop in loops:
        analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent), override=True)
    dtype = lanes.loop_var.dtype
    numbers = {
        scope: analyzer.simplify(floormod(lanes.loop_var, const(size, dtype)))
        for scope, size in SIZES.items()
    }
    for item in statements(body):
        if type(item) is For and as_int(item.extent) is not None:
            bind_loop(analyzer, item)
    places = _Places(lanes, analyzer)
    dimensions = _lane_dimensions(
        body,
        lambda index, scope: (
            analyzer.can_prove_equal(index, numbers[scope])
            or analyzer.can_prove_equal(*map(places.apart, (index, numbers[scope])))
        ),
    )
    if not dimensions:
        return kernel
    made: Stmt = _Rewriter(dimensions, places).visit(body)
    for loop in reversed(loops):
        made = loop.replace(body=made)
    return made


class _Places:
    """The number of a thread as those of its warp, its row of a fragment and its place in that.

    Indices of layouts are quotients of sums of such numbers, which say less of the whole one.
    """

    def __init__(self, lanes: For, analyzer: Analyzer) -> None:
        self.analyzer, var = analyzer, lanes.loop_var
        warps = -(-(as_int(lanes.extent) or WARP_SIZE) // WARP_SIZE)
        warp, row, place = (Var(name, var.dtype) for name in ("warp", "row", "place"))
        for part, extent in ((warp, warps), (row, _ROWS), (place, _ROW)):
            analyzer.bind(part, Range(0, extent))
        self.number = {var: warp * WARP_SIZE + row * _ROW + place}
        self.parts = {warp, row, place}

    def apart(self, index: Expr) -> Expr:
        """An index by the parts of the thread's number."""
        return self.analyzer.simplify(substitute(index, self.number))

    def element(self, index: Expr) -> Expr:
        """An index that says, where it can, that all threads have the same."""
        made = self.apart(index)
        return index if uses_var(made, self.parts) else made


def _lane_dimensions(body: Stmt, is_lane: Callable[[Expr, str], bool]) -> dict[Buffer, int]:
    """The lanes' dimension of each buffer that has one."""
    allocated: list[Buffer] = []
    for item in pre_order(body):
        if type(item) is Allocate:
            allocated.append(item.buffer)
        elif type(item) is Block:
            allocated += item.alloc_buffers
    found: dict[Buffer, set[int]] = {
        buffer: {
            axis
            for axis, extent in enumerate(buffer.shape)
            if as_int(extent) == SIZES[buffer.scope]
        }
        for buffer in allocated
        if buffer.scope in SIZES and not buffer.strides
    }
    data = {buffer.data: buffer for buffer in found}
    for item in pre_order(body):
        if isinstance(item, (BufferLoad, BufferStore)):
            axes = found.get(item.buffer)
            if axes is None:
                found.pop(data.get(item.buffer.data), None)  # type: ignore[arg-type]
            else:
                scope = item.buffer.scope
                axes -= {axis for axis in axes if not is_lane(item.indices[axis], scope)}
    for buffer in allocated:
        if buffer.scope == "warpgroup" and not found.get(buffer):
            raise LowerError(
                f"{buffer.name!r} of scope 'warpgroup' has no dimension of {WARPGROUP_SIZE} that "
                "every thread accesses at its own number only"
            )
    return {buffer: min(axes) for buffer, axes in found.items() if axes}


class _Rewriter(Mutator):
    def __init__(self, dimensions: dict[Buffer, int], places: _Places) -> None:
        self.dimensions, self.places = dimensions, places
        self.made: dict[Buffer, Buffer] = {}

    def changed(self, buffer: Buffer) -> Buffer:
        axis = self.dimensions.get(buffer)
        if axis is None:
            return buffer
        if buffer not in self.made:
            shape = (*buffer.shape[:axis], *buffer.shape[axis + 1 :]) or (const(1),)
            self.made[buffer] = buffer.replace(shape=shape, scope="local")
        return self.made[buffer]

    def indices(self, node: BufferLoad | BufferStore) -> tuple[Expr, ...]:
        indices = tuple(map(self.visit, node.indices))
        axis = self.dimensions.get(node.buffer)
        if axis is None:
            return indices
        rest = (*indices[:axis], *indices[axis + 1 :]) or (const(0),)
        return tuple(map(self.places.element, rest))

    def visit_BufferLoad(self, node: BufferLoad) -> Any:
        return BufferLoad(self.changed(node.buffer), self.indices(node))

    def visit_BufferStore(self, node: BufferStore) -> Any:
        return BufferStore(self.changed(node.buffer), self.visit(node.value), self.indices(node))

    def visit_Allocate(self, node: Allocate) -> Any:
        return node.replace(buffer=self.changed(node.buffer), body=self.visit(node.body))

    def visit_Block(self, node: Block) -> Any:
        made: Block = self.generic_visit(node)
        return made.replace(alloc_buffers=tuple(map(self.changed, node.alloc_buffers)))
