"""TensorIR: buffers, statements, blocks and functions."""

from __future__ import annotations

from tilewright.tir.buffer import Buffer, BufferLoad, BufferRegion, access_dtype, decl_buffer
from tilewright.tir.function import IS_SCHEDULED, PrimFunc
from tilewright.tir.reducer import REDUCERS, CommReducer, make_reducer
from tilewright.tir.rewrite import fresh_name, renew_definitions, replace_buffers
from tilewright.tir.stmt import (
    FOR_KINDS,
    NO_OP,
    OPAQUE,
    PARALLEL,
    REDUCE,
    SERIAL,
    SPATIAL,
    THREAD_BINDING,
    UNROLLED,
    VECTORIZED,
    Allocate,
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    IterVar,
    LetStmt,
    MatchBufferRegion,
    SeqStmt,
    Stmt,
    While,
    is_no_op,
    loop_nest,
    make_root_block,
    seq,
)

# Last, as it prints and parses what stands above; it also tells modules how to print themselves.
from tilewright.tir import script  # isort: skip

__all__ = [name for name in dir() if not name.startswith("_") and name != "annotations"]
