"""TensorIR: buffers, statements, blocks and functions."""

from __future__ import annotations

from tilewright.ir import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Broadcast,
    Call,
    Cast,
    Div,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Ramp,
    Range,
    Select,
    Shuffle,
    StringImm,
    Sub,
    Var,
)
from tilewright.support.later import imported_later
from tilewright.tir import gpu_ops as _gpu_ops  # registers its operators
from tilewright.tir.buffer import Buffer, BufferLoad, BufferRegion, access_dtype, decl_buffer
from tilewright.tir.calls import (
    address_of,
    assume,
    call_extern,
    call_intrin,
    call_llvm_intrin,
    call_llvm_pure_intrin,
    call_packed,
    call_pure_extern,
    dp4a,
    get_active_lane_mask,
    get_vscale_expr,
    reinterpret,
    trace,
    tvm_access_ptr,
    type_annotation,
    undef,
    vectorcombine,
    vectorhigh,
    vectorlow,
    vscale,
)
from tilewright.tir.function import PrimFunc
from tilewright.tir.index_map_text import AXIS_SEPARATOR
from tilewright.tir.op import (
    abs,
    acos,
    acosh,
    all,
    any,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    ceil,
    ceildiv,
    clz,
    const,
    convert,
    copysign,
    cos,
    cosh,
    div,
    erf,
    exp,
    exp2,
    exp10,
    expm1,
    fabs,
    floor,
    floordiv,
    floormod,
    fma,
    fmod,
    gelu,
    gelu_tanh,
    hypot,
    if_then_else,
    indexdiv,
    indexmod,
    infinity,
    isfinite,
    isinf,
    isnan,
    isnullptr,
    ldexp,
    likely,
    log,
    log1p,
    log2,
    log10,
    logaddexp,
    max_value,
    min_value,
    nearbyint,
    nextafter,
    popcount,
    pow,
    power,
    q_multiply_shift,
    q_multiply_shift_per_axis,
    round,
    rsqrt,
    shift_left,
    shift_right,
    sigmoid,
    silu,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    trunc,
    truncdiv,
    truncmod,
)
from tilewright.tir.reducer import REDUCERS, CommReducer, make_reducer, register_reducer
from tilewright.tir.reduction import (
    Reduce,
    all_of,
    any_of,
    argmax,
    argmax_last,
    argmin,
    argmin_last,
    comm_reducer,
    max,
    min,
    prod,
    reducer,
    sum,
)
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
    THREAD_INDEX,
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
from tilewright.tir.tvm_forms import (
    BitwiseAnd,
    BitwiseNot,
    BitwiseOr,
    BitwiseXor,
    BufferAccessKind,
    CallEffectKind,
    ForKind,
    LShift,
    Mod,
    RShift,
    stmt_list,
    stmt_seq,
)

# Last, as it prints and parses what stands above; it also tells modules how to print themselves.
from tilewright.tir import script  # isort: skip
from tilewright.tir.attrs import EXCESS_PRECISION, IS_SCHEDULED, PREFETCH_DISTANCE, STREAMING_STORES

# Further names that TVM's users know.
PrimExpr = Expr
SizeVar = Var
SBlock = Block
SBlockRealize = BlockRealize

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
    "transform": "tilewright.tir.transform",
}


__getattr__ = imported_later(__name__, _LATER)
