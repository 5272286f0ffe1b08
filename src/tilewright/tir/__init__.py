"""TensorIR: buffers, statements, blocks and functions."""

from __future__ import annotations

from tilewright.support.later import imported_later
from tilewright.tir import gpu_ops as _gpu_ops  # registers its operators
from tilewright.tir.buffer import Buffer, BufferLoad, BufferRegion, access_dtype, decl_buffer
from tilewright.tir.function import PrimFunc
from tilewright.tir.index_map_text import AXIS_SEPARATOR
from tilewright.tir.reducer import REDUCERS, CommReducer, make_reducer, register_reducer
from tilewright.tir.rewrite import (
    fresh_name,
    renew_definitions,
    replace_buffers,
    split_size_checks,
)
from tilewright.tir.stmt import (
    FOR_KINDS,
    NO_OP,
    OPAQUE,
    PARALLEL,
    REDUCE,
    SERIAL,
    SPATIAL,
    THREAD_BINDING,
    THREAD_TAGS,
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
from tilewright.tir.attrs import EXCESS_PRECISION, IS_SCHEDULED, PREFETCH_DISTANCE, STREAMING_STORES

__all__ = [
    name
    for name in dir()
    if not name.startswith("_") and name not in ("annotations", "imported_later")
]

# Parts that stand on this package; they come when they are used first.
_LATER = {
    "IndexMap": "tilewright.tir.index_map",
    "Schedule": "tilewright.tir.schedule",
    "TensorIntrin": "tilewright.tir.tensor_intrin",
    "analysis": "tilewright.tir.analysis",
    "schedule": "tilewright.tir.schedule",
}


__getattr__ = imported_later(__name__, _LATER)
