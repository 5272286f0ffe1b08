"""The TensorIR dialect: ``from tilewright.script import tir as T``.

Its vocabulary is TVMScript's. ``@T.prim_func`` makes a ``PrimFunc`` of a Python function::

    @T.prim_func
    def matmul(
        A: T.Buffer((128, 128), "float32"),
        B: T.Buffer((128, 128), "float32"),
        C: T.Buffer((128, 128), "float32"),
    ):
        for i, j, k in T.grid(128, 128, 128):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

Intrinsics of the operator table are functions here, looked up by name, as are vector dtypes
(``T.float32x4``).
"""

from __future__ import annotations

import re
from typing import Any

from tilewright.ir import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    OPS,
    Add,
    And,
    Broadcast,
    Cast,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Ramp,
    Select,
    Shuffle,
    StringImm,
    Sub,
    Var,
    dtypes,
    floordiv,
    floormod,
)
from tilewright.ir import Op as Operator
from tilewright.ir import and_ as all
from tilewright.ir import or_ as any
from tilewright.script.allowance import register_constructors, register_price, register_values
from tilewright.support.errors import VerifyError
from tilewright.target import Target
from tilewright.tir.buffer import BufferLoad
from tilewright.tir.calls import (
    dp4a,
    get_active_lane_mask,
    tvm_access_ptr,
    type_annotation,
    vectorcombine,
    vectorhigh,
    vectorlow,
    vscale,
)
from tilewright.tir.index_map import AXIS_SEPARATOR
from tilewright.tir.op import ceildiv
from tilewright.tir.reducer import CommReducer
from tilewright.tir.reduction import Reduce
from tilewright.tir.script import printer as _printer
from tilewright.tir.script.buffer_declarations import (
    alloc_buffer,
    alloc_local,
    alloc_scalar,
    alloc_shared,
    allocate,
    decl_buffer,
    match_buffer,
)
from tilewright.tir.script.buffer_declarations import as_region as region
from tilewright.tir.script.buffer_declarations import buffer_type as Buffer

# Not for text: these speak to the builder that is open.
from tilewright.tir.script.builder_frames import add_to_parent, arg, func_name, func_ret
from tilewright.tir.script.declarations import assert_frame as Assert
from tilewright.tir.script.declarations import (
    attr,
    axis,
    bind,
    block,
    block_attr,
    block_name_suffix_context,
    buffer_store,
    evaluate,
    func_attr,
    grid,
    init,
    meta_var,
    parallel,
    reads,
    serial,
    thread_binding,
    unroll,
    vectorized,
    where,
    writes,
)
from tilewright.tir.script.declarations import else_frame as Else
from tilewright.tir.script.declarations import if_frame as If
from tilewright.tir.script.declarations import let_stmt as LetStmt
from tilewright.tir.script.declarations import seq_stmt as seq
from tilewright.tir.script.declarations import then_frame as Then
from tilewright.tir.script.declarations import while_frame as While
from tilewright.tir.script.frames import Macro, macro
from tilewright.tir.script.functions import comm_reducer, index_map, iter_var
from tilewright.tir.script.intrinsics import (
    call_intrin,
    masked_load,
    masked_store,
    operator_function,
    print_buffer,
    thread_return,
    tvm_storage_sync,
    tvm_thread_allreduce,
    tvm_warp_activemask,
    tvm_warp_shuffle,
    tvm_warp_shuffle_down,
    tvm_warp_shuffle_up,
    tvm_warp_shuffle_xor,
)
from tilewright.tir.script.parser import parse_fragment, prim_func
from tilewright.tir.script.scalars import (
    SHORT_DTYPES,
    Call,
    Let,
    LetAnnotation,
    Ptr,
    ScalarType,
    bfloat16,
    bool,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    float64,
    handle,
    if_then_else,
    infinity,
    int4,
    int8,
    int16,
    int32,
    int64,
    let,
    max,
    min,
    target,
    uint4,
    uint8,
    uint16,
    uint32,
    uint64,
    variable,
    void,
)
from tilewright.tir.script.scalars import cast_to as cast
from tilewright.tir.script.scalars import greatest as max_value
from tilewright.tir.script.scalars import index_range as Range
from tilewright.tir.script.scalars import least as min_value
from tilewright.tir.script.scalars import operator as Op
from tilewright.tir.script.threads import env_thread, launch_thread
from tilewright.tir.stmt import IterVar
from tilewright.tir.tvm_forms import (
    BitwiseAnd,
    BitwiseNot,
    BitwiseOr,
    BitwiseXor,
    Break,
    CallEffectKind,
    Continue,
    Div,
    LShift,
    Mod,
    Return,
    RShift,
)

register_constructors(EQ, GE, GT, LE, LT, NE, Add, And, Broadcast, Cast, Div, FloatImm, FloorDiv)
register_constructors(FloorMod, IntImm, IterVar, Max, Min, Mod, Mul, Not, Or, Ramp, Select, Shuffle)
register_constructors(BitwiseAnd, BitwiseNot, BitwiseOr, BitwiseXor, LShift, RShift, StringImm, Sub)
register_constructors(Break, BufferLoad, CommReducer, Continue, Reduce, Return, Var)
register_values(Operator, Target)
register_price(Target, 100)  # its options are looked up in tables and checked

ALIASES = {
    "AllocBuffer": "alloc_buffer",
    "Bind": "bind",
    "broadcast": "Broadcast",
    "buffer": "Buffer",
    "buffer_decl": "Buffer",
    "buffer_var": "Ptr",
    "call_cpacked": "call_packed",
    "inline": "macro",
    "ptr": "Ptr",
    "var": "variable",
    "ramp": "Ramp",
    "sblock": "block",
    "sblock_alloc_buffer": "alloc_buffer",
    "sblock_attr": "block_attr",
    "tvm_call_cpacked": "call_packed",
    "tvm_call_packed": "call_packed",
}
"""Names of TVM, and those that the same things have here."""

_MADE: dict[str, object] = {}
_NUMBER = re.compile(r"([a-z]+\d*)(x\d+)?")


def _dtype_named(name: str) -> ScalarType | None:
    """The dtype of a name such as ``float32x4`` or ``f32x4``."""
    short = _NUMBER.fullmatch(name)
    if short is not None and short[1] in SHORT_DTYPES:
        name = SHORT_DTYPES[short[1]] + (short[2] or "")
    try:
        dtypes.split_dtype(name)
    except VerifyError:
        return None
    return ScalarType(name)


def __getattr__(name: str) -> Any:
    """Return the function of an intrinsic, or a vector dtype."""
    made = _MADE.get(name)
    if made is not None:
        return made
    if name in OPS:
        made = operator_function(OPS.get(name))
    elif name in ALIASES:
        made = __getattr__(ALIASES[name]) if ALIASES[name] in OPS else globals()[ALIASES[name]]
    elif not name.startswith("_"):
        made = _dtype_named(name)
    if made is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _MADE[name] = made
    return made


def __dir__() -> list[str]:
    return sorted({*__all__, *OPS, *ALIASES, *SHORT_DTYPES})


__all__ = [
    "AXIS_SEPARATOR",
    "Add",
    "And",
    "Assert",
    "BitwiseAnd",
    "BitwiseNot",
    "BitwiseOr",
    "BitwiseXor",
    "Break",
    "Broadcast",
    "Buffer",
    "BufferLoad",
    "Call",
    "CallEffectKind",
    "Cast",
    "CommReducer",
    "Continue",
    "Div",
    "EQ",
    "Else",
    "FloatImm",
    "FloorDiv",
    "FloorMod",
    "GE",
    "GT",
    "If",
    "IntImm",
    "IterVar",
    "LE",
    "LShift",
    "LT",
    "Let",
    "LetStmt",
    "Macro",
    "Max",
    "Min",
    "Mod",
    "Mul",
    "NE",
    "Not",
    "Op",
    "Or",
    "Ptr",
    "RShift",
    "Ramp",
    "Range",
    "Reduce",
    "Return",
    "ScalarType",
    "Select",
    "Shuffle",
    "StringImm",
    "Sub",
    "Then",
    "Var",
    "While",
    "all",
    "alloc_buffer",
    "alloc_local",
    "alloc_scalar",
    "alloc_shared",
    "allocate",
    "any",
    "attr",
    "axis",
    "bfloat16",
    "bind",
    "block",
    "block_attr",
    "bool",
    "buffer_store",
    "call_intrin",
    "cast",
    "ceildiv",
    "comm_reducer",
    "decl_buffer",
    "dp4a",
    "env_thread",
    "evaluate",
    "float16",
    "float32",
    "float64",
    "float8_e4m3fn",
    "float8_e5m2",
    "floordiv",
    "floormod",
    "func_attr",
    "get_active_lane_mask",
    "grid",
    "handle",
    "if_then_else",
    "index_map",
    "infinity",
    "init",
    "int16",
    "int32",
    "int4",
    "int64",
    "int8",
    "iter_var",
    "launch_thread",
    "let",
    "macro",
    "masked_load",
    "masked_store",
    "match_buffer",
    "max",
    "max_value",
    "meta_var",
    "min",
    "min_value",
    "parallel",
    "prim_func",
    "print_buffer",
    "reads",
    "region",
    "seq",
    "serial",
    "target",
    "thread_binding",
    "thread_return",
    "tvm_access_ptr",
    "tvm_storage_sync",
    "tvm_thread_allreduce",
    "tvm_warp_activemask",
    "tvm_warp_shuffle",
    "tvm_warp_shuffle_down",
    "tvm_warp_shuffle_up",
    "tvm_warp_shuffle_xor",
    "type_annotation",
    "uint16",
    "uint32",
    "uint4",
    "uint64",
    "uint8",
    "unroll",
    "vectorcombine",
    "vectorhigh",
    "vectorized",
    "vectorlow",
    "void",
    "vscale",
    "where",
    "writes",
]
