"""Replace matched buffers by the buffers that they stand for a region of.

An access ``M[i, j]`` becomes ``B[b0 + i, b1 + j]``; variables in the strides and offset of ``M``
get the values that follow from ``B``.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.arith import Analyzer
from tilewright.ir import Expr, Ramp, Range, Var, const, contains, is_const
from tilewright.support.errors import LowerError
from tilewright.tir.buffer import Buffer, BufferLoad, BufferRegion
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import Block, BufferStore, MatchBufferRegion, Stmt
from tilewright.tir.transform.base import FunctionTransform, Replacing


class LowerMatchBuffer(FunctionTransform):
    """Remove ``match_buffers`` from all blocks."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        return func.map_children(_Rewriter().visit) if _has_match(func.body) else func


_has_match = contains(MatchBufferRegion)


def buffer_strides(buffer: Buffer) -> list[Expr]:
    """Strides in elements, one per dimension."""
    return list(buffer.strides) or row_major(buffer.shape)


def row_major(shape: Sequence[Expr]) -> list[Expr]:
    """Strides of elements that lie one after the other."""
    strides: list[Expr] = [const(1)]
    for extent in reversed(shape[1:]):
        strides.append(strides[-1] * extent)
    return strides[::-1] if shape else []


class _Rewriter(Replacing):
    def __init__(self) -> None:
        self.sources: dict[Buffer, MatchBufferRegion] = {}
        self.values: dict[Var, Expr] = {}

    def visit_Block(self, node: Block) -> Block:
        if not node.match_buffers:
            return self.generic_visit(node)
        for match in node.match_buffers:
            # A source that is matched itself has been resolved by visit_BufferRegion.
            match = match.map_children(self.visit)
            self._define(match)
            self.sources[match.buffer] = match
        return node.replace(match_buffers=()).map_children(self.visit)

    def _define(self, match: MatchBufferRegion) -> None:
        """Variables in the matched buffer's strides, offset and pointer follow from the source."""
        buffer, source = match.buffer, match.source.buffer
        region = match.source.region
        if len(region) < buffer.ndim:
            raise LowerError(
                f"matched buffer {buffer.name} has {buffer.ndim} dimensions, "
                f"its source {source.name} has {len(region)}"
            )
        strides = buffer_strides(source)
        for var, axis in match.stride_variables():
            self._stand_for(var, self.visit(strides[axis - buffer.ndim]), buffer)
        offset: Expr = const(0)
        for item, stride in zip(region, strides):
            offset = offset + item.min * stride
        if source.elem_offset is not None:
            offset = offset + source.elem_offset
        if type(buffer.elem_offset) is Var:
            self._stand_for(buffer.elem_offset, self.visit(offset), buffer)
        elif buffer.elem_offset is not None and not is_const(buffer.elem_offset, 0):
            raise LowerError(
                f"matched buffer {buffer.name} has the fixed offset {buffer.elem_offset!r}; "
                "declare it as a variable"
            )
        for extent, item in zip(reversed(buffer.shape), reversed(region)):
            if type(extent) is Var:
                self._stand_for(extent, self.visit(item.extent), buffer)
        self.values[buffer.data] = source.data

    def _stand_for(self, var: Var, value: Expr, buffer: Buffer) -> None:
        known = self.values.get(var)
        if known is not None and not Analyzer().can_prove_equal(known, value):
            raise LowerError(
                f"{var.name!r} of matched buffer {buffer.name} stands for {known!r} and for "
                f"{value!r}, which are not known to be equal; declare a variable for each"
            )
        self.values[var] = value

    def _indices(self, match: MatchBufferRegion, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        region = match.source.region
        skipped = len(region) - len(indices)
        made = [item.min for item in region[:skipped]]
        made += [_moved(index, item.min) for item, index in zip(region[skipped:], indices)]
        return tuple(made)

    def visit_BufferLoad(self, node: BufferLoad) -> Expr:
        made = node.map_children(self.visit)
        match = self.sources.get(node.buffer)
        if match is None:
            return made
        return BufferLoad(match.source.buffer, self._indices(match, made.indices))

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        made = node.map_children(self.visit)
        match = self.sources.get(node.buffer)
        if match is None:
            return made
        return BufferStore(match.source.buffer, made.value, self._indices(match, made.indices))

    def visit_BufferRegion(self, node: BufferRegion) -> BufferRegion:
        made = node.map_children(self.visit)
        match = self.sources.get(node.buffer)
        if match is None:
            return made
        outer = match.source.region
        skipped = len(outer) - len(made.region)
        inner = [
            Range.from_min_extent(item.min + own.min, own.extent)
            for item, own in zip(outer[skipped:], made.region)
        ]
        return BufferRegion(match.source.buffer, (*outer[:skipped], *inner))


def _moved(index: Expr, start: Expr) -> Expr:
    """An index further on; a ramp stays one, so that what it covers can be seen."""
    if isinstance(index, Ramp):
        return Ramp(start + index.base, index.stride, index.lanes)
    return start + index
