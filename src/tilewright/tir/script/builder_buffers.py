"""Buffers in TensorIR that frames build: allocated, viewed, matched with parameters or regions."""

from __future__ import annotations

from typing import Any

from tilewright.script.ir_builder import IRBuilder
from tilewright.support.errors import VerifyError
from tilewright.tir.buffer import Buffer, BufferRegion
from tilewright.tir.script import buffer_declarations as buffers
from tilewright.tir.script.builder_frames import BlockStmtFrame, block_frame, emit, function_frame
from tilewright.tir.script.frames import Rest, set_name
from tilewright.tir.script.scalars import DTypeLike
from tilewright.tir.stmt import Allocate, DeclBuffer, MatchBufferRegion


def alloc_buffer(shape: Any, dtype: DTypeLike = "float32", *given: Any, **layout: Any) -> Buffer:
    """Declare a buffer of the enclosing block, or of the function."""
    made = buffers.alloc_buffer(shape, dtype, *given, **layout)
    if isinstance(made, buffers.AllocateDecl):
        return _allocate(made)
    set_name(made.buffer, made.buffer.name or "buffer")
    inner = IRBuilder.current().find_frame(BlockStmtFrame)
    (function_frame().block if inner is None else inner.block).allocations.append(made.buffer)
    buffer: Buffer = made.buffer
    return buffer


def _allocate(made: buffers.AllocateDecl) -> Buffer:
    set_name(made.buffer, "buffer")
    emit(Rest(lambda body: Allocate(made.buffer, body, made.annotations)))
    return made.buffer


def allocate(extents: Any, dtype: DTypeLike = "float32", *given: Any, **named: Any) -> Buffer:
    """Allocate memory for the rest of the frame."""
    return _allocate(buffers.allocate(extents, dtype, *given, **named))


def decl_buffer(shape: Any, dtype: DTypeLike = "float32", *given: Any, **layout: Any) -> Buffer:
    """Declare a view of memory for the rest of the frame; without ``data``, memory of its own."""
    made = buffers.decl_buffer(shape, dtype, *given, **layout)
    if isinstance(made, buffers.AllocateDecl):
        return _allocate(made)
    view: Buffer = made.buffer
    set_name(view, "view")
    emit(Rest(lambda body: DeclBuffer(view, body)))
    return view


def match_buffer(param: Any, shape: Any = None, *given: Any, **layout: Any) -> Buffer:
    """Give a handle parameter its buffer, or a region of a buffer a name inside a block."""
    made = buffers.match_buffer(param, shape, *given, **layout)
    set_name(made.buffer, "matched")
    if isinstance(made.source, BufferRegion):
        match = MatchBufferRegion(made.buffer, made.source)
        wrong = match.mismatch()
        if wrong is not None:
            raise VerifyError(wrong)
        block_frame().matches.append(match)
        return made.buffer
    frame = function_frame()
    if made.source not in set(frame.params) or made.source in frame.buffer_map:
        raise VerifyError("match_buffer takes a handle parameter without a buffer, or a region")
    frame.buffer_map[made.source] = made.buffer
    return made.buffer


sblock_alloc_buffer = alloc_buffer


__all__ = ["alloc_buffer", "allocate", "decl_buffer", "match_buffer", "sblock_alloc_buffer"]
