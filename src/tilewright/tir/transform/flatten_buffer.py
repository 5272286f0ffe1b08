"""Give every buffer access one index.

Buffers become one-dimensional views of the same memory. Physical layout is row-major, or follows
the buffer's strides; the parameters' own declarations stay as they are, since they describe the
function's arguments.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir import (
    Broadcast,
    Expr,
    Mutator,
    Ramp,
    Var,
    const,
    dtypes,
    is_const,
)
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import Allocate, BufferStore, DeclBuffer, Stmt
from tilewright.tir.transform.base import FunctionTransform
from tilewright.tir.transform.lower_match_buffer import buffer_strides


class FlattenBuffer(FunctionTransform):
    """Flatten all buffers of a function."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        rewriter = _Flattener(set(func.buffers))
        body: Stmt = rewriter.visit(func.body)
        for buffer in reversed(func.buffers):
            if buffer in rewriter.flat:
                body = DeclBuffer(rewriter.flat[buffer], body)
        return func if body is func.body else func.replace(body=body)


class _Flattener(Mutator):
    def __init__(self, parameters: set[Buffer]) -> None:
        self.flat: dict[Buffer, Buffer] = {}
        self.parameters = parameters
        self.analyzer = Analyzer()

    def flattened(self, buffer: Buffer) -> Buffer:
        """The one-dimensional buffer of the same memory."""
        made = self.flat.get(buffer)
        if made is None:
            if buffer.strides and buffer.shape:
                # The last element's position, plus one.
                size: Expr = const(1)
                for extent, stride in zip(buffer.shape, buffer.strides):
                    size = size + (extent - 1) * stride
            else:
                size = const(1)
                for extent in buffer.shape:
                    size = size * extent
            made = buffer.replace(
                shape=(self.analyzer.simplify(size),),
                strides=(),
                elem_offset=None,
                axis_separators=(),
                data=buffer.data,
            )
            self.flat[buffer] = made
        return made

    def index(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
        """The position of an element in the flat buffer."""
        lanes = max((dtypes.lanes_of(index.dtype) for index in indices), default=1)
        total: Expr = const(0)
        for index, stride in zip(indices, buffer_strides(buffer)):
            total = _add_scaled(total, index, stride, lanes)
        offset = buffer.elem_offset
        if offset is not None and not (buffer in self.parameters and type(offset) is Var):
            total = _add_scaled(total, offset, const(1), lanes)
        return total

    def visit_BufferLoad(self, node: BufferLoad) -> Any:
        indices = tuple(map(self.visit, node.indices))
        return BufferLoad(self.flattened(node.buffer), (self.index(node.buffer, indices),))

    def visit_BufferStore(self, node: BufferStore) -> Any:
        indices = tuple(map(self.visit, node.indices))
        index = self.index(node.buffer, indices)
        return BufferStore(self.flattened(node.buffer), self.visit(node.value), (index,))

    def visit_Allocate(self, node: Allocate) -> Any:
        return node.replace(buffer=self.flattened(node.buffer), body=self.visit(node.body))

    def visit_DeclBuffer(self, node: DeclBuffer) -> Any:
        return node.replace(buffer=self.flattened(node.buffer), body=self.visit(node.body))


def _add_scaled(total: Expr, index: Expr, stride: Expr, lanes: int) -> Expr:
    """``total + index * stride``, keeping ramps as ramps."""
    if lanes > 1 and isinstance(index, Ramp):
        index = Ramp(index.base * stride, index.stride * stride, index.lanes)
    elif isinstance(index, Broadcast):
        index = index.value * stride
    else:
        index = index * (Broadcast(stride, lanes) if _is_vector(index) else stride)
    if is_const(total, 0):
        return index
    if isinstance(total, Ramp) and not _is_vector(index):
        return Ramp(total.base + index, total.stride, total.lanes)
    if isinstance(index, Ramp) and not _is_vector(total):
        return Ramp(total + index.base, index.stride, index.lanes)
    if isinstance(total, Ramp) and isinstance(index, Ramp):
        return Ramp(total.base + index.base, total.stride + index.stride, total.lanes)
    return total + index


def _is_vector(expr: Expr) -> bool:
    return dtypes.lanes_of(expr.dtype) > 1
