"""Give every buffer access one index per physical axis.

Buffers become views of the same memory with one dimension, or one per group of dimensions where a
buffer has axis separators. Inside a group the layout is row-major, or follows the buffer's strides;
the parameters' own declarations stay as they are, since they describe the function's arguments.
Memory that has one axis only (a CPU's) stores the groups row-major, one after the other: there
``keep_separators=False`` flattens them all, which is what ``set_axis_separator`` promises.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir import (
    Broadcast,
    Expr,
    Mutator,
    Node,
    Ramp,
    Var,
    add,
    const,
    contains,
    dtypes,
    is_const,
    mul,
)
from tilewright.support.errors import LowerError
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import Allocate, BufferStore, DeclBuffer, Stmt
from tilewright.tir.transform.base import FunctionTransform
from tilewright.tir.transform.lower_match_buffer import buffer_strides, row_major


class FlattenBuffer(FunctionTransform):
    """Flatten all buffers of a function; see the module's text."""

    def __init__(self, keep_separators: bool = True) -> None:
        self.keep_separators = keep_separators

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        rewriter = _Flattener(set(func.buffers), self.keep_separators)
        body: Stmt = rewriter.visit(func.body)
        for buffer in reversed(func.buffers):
            if buffer in rewriter.flat:
                body = DeclBuffer(rewriter.flat[buffer], body)
        return func if body is func.body else func.replace(body=body)


_has_memory = contains(BufferLoad, BufferStore, Allocate, DeclBuffer)


class _Flattener(Mutator):
    def __init__(self, parameters: set[Buffer], keep_separators: bool) -> None:
        self.flat: dict[Buffer, Buffer] = {}
        self.strides: dict[Buffer, list[tuple[range, list[Expr]]]] = {}
        self.parameters = parameters
        self.keep_separators = keep_separators
        self.analyzer = Analyzer()

    def visit(self, node: Node) -> Any:
        """Rewrite a node that allocates or accesses memory."""
        return super().visit(node) if _has_memory(node) else node

    def groups(self, buffer: Buffer) -> list[range]:
        """The dimensions of each physical axis."""
        inner = buffer.axis_separators if self.keep_separators else ()
        starts, ends = (0, *inner), (*inner, buffer.ndim)
        return [range(start, end) for start, end in zip(starts, ends)]

    def flattened(self, buffer: Buffer) -> Buffer:
        """The buffer of the same memory with one dimension per physical axis."""
        made = self.flat.get(buffer)
        if made is None:
            groups = self.groups(buffer)
            made = buffer.replace(
                shape=tuple(self.analyzer.simplify(self.size(buffer, axes)) for axes in groups),
                strides=(),
                elem_offset=None,
                axis_separators=tuple(range(1, len(groups))),
                data=buffer.data,
            )
            self.flat[buffer] = made
        return made

    def size(self, buffer: Buffer, axes: range) -> Expr:
        """Number of elements of one physical axis, from the start of the memory on."""
        size: Expr = const(1)
        for axis in axes:
            if buffer.strides:
                # The last element's position, plus one.
                size = size + (buffer.shape[axis] - 1) * buffer.strides[axis]
            else:
                size = size * buffer.shape[axis]
        offset = self.offset(buffer)
        return size if offset is None else size + offset

    def offset(self, buffer: Buffer) -> Expr | None:
        """Where the buffer starts in its memory, if that is part of its indices."""
        start = buffer.elem_offset
        return None if buffer in self.parameters and type(start) is Var else start

    def indices(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The position of an element in each physical axis."""
        groups = self.strides.get(buffer)
        if groups is None:
            groups = self.strides[buffer] = self.group_strides(buffer)
        made: list[Expr] = []
        for axes, strides in groups:
            here = indices[axes.start : axes.stop]
            lanes = max([dtypes.lanes_of(index.dtype) for index in here], default=1)
            total: Expr = const(0)
            for index, stride in zip(here, strides):
                total = _add_scaled(total, index, stride, lanes)
            offset = self.offset(buffer)
            if offset is not None:
                total = _add_scaled(total, offset, const(1), lanes)
            made.append(total)
        return tuple(made)

    def group_strides(self, buffer: Buffer) -> list[tuple[range, list[Expr]]]:
        """The dimensions of each physical axis, and how far apart their elements are in it."""
        groups = self.groups(buffer)
        if len(groups) == 1:
            return [(groups[0], buffer_strides(buffer))]
        if buffer.strides or buffer.elem_offset is not None:
            raise LowerError(
                f"buffer {buffer.name} has axis separators as well as strides or an offset: "
                "its physical axes are row-major and start at zero"
            )
        return [(axes, row_major(buffer.shape[axes.start : axes.stop])) for axes in groups]

    def visit_BufferLoad(self, node: BufferLoad) -> Expr:
        indices = tuple(map(self.visit, node.indices))
        return BufferLoad(self.flattened(node.buffer), self.indices(node.buffer, indices))

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        indices = tuple(map(self.visit, node.indices))
        made = self.indices(node.buffer, indices)
        return BufferStore(self.flattened(node.buffer), self.visit(node.value), made)

    def visit_Allocate(self, node: Allocate) -> Stmt:
        return node.replace(buffer=self.flattened(node.buffer), body=self.visit(node.body))

    def visit_DeclBuffer(self, node: DeclBuffer) -> Stmt:
        return node.replace(buffer=self.flattened(node.buffer), body=self.visit(node.body))


def _add_scaled(total: Expr, index: Expr, stride: Expr, lanes: int) -> Expr:
    """``total + index * stride``, keeping ramps as ramps."""
    if lanes == 1:
        index = index if is_const(stride, 1) else mul(index, stride)
        return index if is_const(total, 0) else add(total, index)
    if isinstance(index, Ramp):
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
