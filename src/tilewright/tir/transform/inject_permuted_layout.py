"""Permute columns of shared-memory tiles, so that neighbouring rows lie in different banks.

A block that fills a tile in shared memory and has the annotation ``permuted_layout`` asks for it.
Rows are cut into chunks of so many elements as the annotation says (1 or true: 16 bytes); chunk
``c`` of row ``r`` moves to place ``c ^ (r // l % n)``, where ``n`` is the largest power of two that
divides the number of chunks, at most 8, and ``l`` the number of rows that share the 128 bytes of
all banks. The map is its own inverse within a row, so all accesses of the buffer are rewritten by
one formula; reads of whole columns then meet no bank twice. (Known as XOR swizzling, from CUTLASS
and the use of ``ldmatrix``.) Where a thread reads several neighbouring rows one after the other,
its neighbours read rows so far apart: ``permuted_rows`` says how many, and ``l`` is no less.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir import (
    Call,
    Expr,
    Mutator,
    Ramp,
    Range,
    Var,
    annotated,
    as_int,
    call,
    const,
    contains,
    dtypes,
    floordiv,
    floormod,
    pre_order,
)
from tilewright.support.errors import LowerError
from tilewright.tir.attrs import PERMUTED_LAYOUT, PERMUTED_ROWS
from tilewright.tir.buffer import Buffer, BufferLoad, BufferRegion
from tilewright.tir.function import PrimFunc
from tilewright.tir.gpu_ops import WARPGROUP_OPS, memory_uses
from tilewright.tir.stmt import Block, BufferStore, For, Stmt
from tilewright.tir.thread_scope import is_shared
from tilewright.tir.transform.base import FunctionTransform, bind_loop, function_analyzer
from tilewright.tir.walk import statements

_has_annotation = contains(annotated(PERMUTED_LAYOUT))
_CHUNK_BYTES = 16
_MOST = 8  # eight chunks of 16 bytes are the 128 bytes that all banks give at once


class InjectPermutedLayout(FunctionTransform):
    """Rewrite all accesses of the buffers concerned; runs while there are blocks."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        if not _has_annotation(func.body):
            return func
        # Regions may still name the buffer as it was before compaction: the pointer is the same.
        wanted = {
            region.buffer.data: block
            for block in statements(func)
            if isinstance(block, Block) and block.annotations.get(PERMUTED_LAYOUT)
            for region in block.writes
            if is_shared(region.buffer.scope)
        }
        if not wanted:
            return func
        for item in pre_order(func):
            if item in wanted:
                raise LowerError(
                    f"{item!r} is used through its pointer, which a permuted layout can't follow"
                )
        return func.map_children(_Rewriter(wanted, function_analyzer(func)).visit)


def _chunks(block: Block, buffer: Buffer) -> tuple[int, int]:
    """Return elements of a chunk, and how many chunks are permuted among each other."""
    asked = block.annotations[PERMUTED_LAYOUT]
    asked = getattr(asked, "value", asked)
    size = asked if isinstance(asked, int) and asked > 1 else 0
    size = size or _CHUNK_BYTES // dtypes.bytes_of(buffer.dtype)
    columns = as_int(buffer.shape[-1]) if buffer.ndim > 1 else None
    if columns is None or columns % size or (columns // size) % 2:
        raise LowerError(
            f"block {block.name!r}: {buffer!r} can't be permuted: it takes two or more dimensions, "
            f"the last a known, even number of chunks of {size} elements"
        )
    count = columns // size
    return size, min(_MOST, count & -count)


def _rows_alike(block: Block, buffer: Buffer, size: int) -> int:
    """Return how many neighbouring rows are permuted in the same way."""
    asked = block.annotations.get(PERMUTED_ROWS, 1)
    asked = int(getattr(asked, "value", asked))
    if asked < 1:
        raise LowerError(f"block {block.name!r}: {PERMUTED_ROWS} is at least 1, got {asked}")
    return max(asked, _MOST // ((as_int(buffer.shape[-1]) or size) // size))


def _chunk_of_hardware(block: Block | None, buffer: Buffer) -> int:
    """Return the bytes of a buffer's chunks if it is permuted as hardware knows it, else 0."""
    if block is None or PERMUTED_ROWS in block.annotations:
        return 0
    return _chunks(block, buffer)[0] * dtypes.bytes_of(buffer.dtype)


class _Rewriter(Mutator):
    def __init__(self, wanted: dict[Var, Block], analyzer: Analyzer) -> None:
        self.wanted, self.analyzer = wanted, analyzer

    def visit_For(self, node: For) -> For:
        bind_loop(self.analyzer, node)
        return self.generic_visit(node)

    def indices(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        made = tuple(map(self.visit, indices))
        block = self.wanted.get(buffer.data)
        if block is None:
            return made
        size, count = _chunks(block, buffer)
        column = made[-1]
        if isinstance(column, Ramp):
            return self.ramp(buffer, made, size)
        if any(dtypes.lanes_of(index.dtype) > 1 for index in made):
            raise LowerError(
                f"{buffer.name} is accessed by a tile of several rows, which lie in no order once "
                "its columns are permuted: use operators that take the address of each row "
                "(ptx_ldmatrix), or leave the annotation away"
            )
        chunk = floordiv(column, const(size, column.dtype))
        alike = _rows_alike(block, buffer, size)
        row = floordiv(made[-2], const(alike, column.dtype))
        row = floormod(row, const(count, column.dtype))
        moved = call("bitwise_xor", self.analyzer.simplify(chunk), self.analyzer.simplify(row))
        inside = self.analyzer.simplify(floormod(column, const(size, column.dtype)))
        return (*made[:-1], moved * size + inside)

    def ramp(self, buffer: Buffer, indices: tuple[Expr, ...], size: int) -> tuple[Expr, ...]:
        """Neighbours within one chunk stay neighbours."""
        column: Any = indices[-1]
        inside = self.analyzer.simplify(floormod(column.base, const(size, column.base.dtype)))
        last = self.analyzer.const_int_bound(inside).max
        if as_int(column.stride) != 1 or last + column.lanes > size:
            raise LowerError(
                f"{buffer.name} is accessed by {column!r}, which is not shown to stay within one "
                f"of the chunks of {size} elements that are permuted"
            )
        *rest, base = self.indices(buffer, (*indices[:-1], column.base))
        return (*rest, Ramp(base, column.stride, column.lanes))

    def visit_Call(self, node: Call) -> Expr:
        """``wgmma`` and copies of boxes name rows and columns as if nothing was permuted.

        They have an operand that says what is.
        """
        if node.op.name == "ptx_cp_async_bulk_tensor":
            return self.tensor_copy(node)
        if node.op.name not in WARPGROUP_OPS:
            made: Expr = self.generic_visit(node)
            return made
        rows = set()
        for use in memory_uses(node):
            buffer = use.tile.along.buffer
            if not is_shared(buffer.scope):
                continue
            block = self.wanted.get(buffer.data)
            size = dtypes.bytes_of(buffer.dtype)
            chunk = _chunk_of_hardware(block, buffer)
            rows.add((as_int(buffer.shape[-1]) or 0) * size if chunk == _CHUNK_BYTES else 0)
        if len(rows) != 1 or not rows <= {32, 64, 128}:
            raise LowerError(
                f"{node.op.name} takes two tiles with rows of 32, 64 or 128 bytes, both permuted "
                f"by chunks of {_CHUNK_BYTES} bytes; got rows of {sorted(rows)} bytes (0: not "
                "permuted so): annotate the copies of both with permuted_layout"
            )
        return Call.of_fields(node.op, (*node.args[:-1], const(rows.pop())), node.dtype)

    def tensor_copy(self, node: Call) -> Expr:
        target, source, barrier, _, *rest = node.args
        (buffer,) = {use.tile.along.buffer for use in memory_uses(node) if use.pointer is target}
        block, row = self.wanted.get(buffer.data), 0
        if block is not None:
            row = (as_int(buffer.shape[-1]) or 0) * dtypes.bytes_of(buffer.dtype)
            chunk = _chunk_of_hardware(block, buffer)
            if chunk != _CHUNK_BYTES or row not in (32, 64, 128):
                raise LowerError(
                    f"{node.op.name} permutes rows of 32, 64 or 128 bytes by chunks of "
                    f"{_CHUNK_BYTES} bytes; those of {buffer.name} are {row} bytes, by {chunk}"
                )
        places = map(self.visit, (source, barrier))
        return Call.of_fields(
            node.op, (target, *places, const(row), *map(self.visit, rest)), node.dtype
        )

    def visit_BufferLoad(self, node: BufferLoad) -> Expr:
        return BufferLoad(node.buffer, self.indices(node.buffer, node.indices))

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        indices = self.indices(node.buffer, node.indices)
        return BufferStore(node.buffer, self.visit(node.value), indices)

    def visit_BufferRegion(self, node: BufferRegion) -> BufferRegion:
        # Regions of a permuted buffer are no boxes any more: whole rows stand for them.
        if node.buffer.data not in self.wanted:
            return node
        extent = node.buffer.shape[-1]
        return node.replace(
            region=(*node.region[:-1], Range.from_min_extent(const(0, extent.dtype), extent))
        )

    def visit_Block(self, node: Block) -> Stmt:
        made: Block = self.generic_visit(node)
        asked = (PERMUTED_LAYOUT, PERMUTED_ROWS)
        rest = {k: v for k, v in made.annotations.items() if k not in asked}
        return made.replace(annotations=rest)
