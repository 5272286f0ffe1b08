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

from typing import Any

from tilewright.ir import OPS, ceildiv, dtypes, floordiv, floormod
from tilewright.ir import IntImm as IntImm
from tilewright.ir import Op as Operator
from tilewright.ir import StringImm as StringImm
from tilewright.ir import and_ as all
from tilewright.ir import or_ as any
from tilewright.script.allowance import register_constructors, register_price, register_values
from tilewright.support.errors import VerifyError
from tilewright.target import Target
from tilewright.tir.index_map import AXIS_SEPARATOR
from tilewright.tir.script import printer as _printer
from tilewright.tir.script.buffer_declarations import (
    alloc_buffer,
    allocate,
    decl_buffer,
    match_buffer,
)
from tilewright.tir.script.buffer_declarations import as_region as region
from tilewright.tir.script.buffer_declarations import buffer_type as Buffer
from tilewright.tir.script.declarations import (
    attr,
    axis,
    block,
    block_attr,
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
from tilewright.tir.script.declarations import let_stmt as LetStmt
from tilewright.tir.script.declarations import seq_stmt as seq
from tilewright.tir.script.frames import Macro, macro
from tilewright.tir.script.functions import comm_reducer, index_map, iter_var
from tilewright.tir.script.parser import parse_fragment, prim_func
from tilewright.tir.script.scalars import (
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
    FloorDiv,
    FloorMod,
    Let,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Ramp,
    ScalarType,
    Select,
    Shuffle,
    Sub,
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
    operator_function,
    target,
    uint4,
    uint8,
    uint16,
    uint32,
    uint64,
    void,
)
from tilewright.tir.script.scalars import cast_to as cast
from tilewright.tir.script.scalars import greatest as max_value
from tilewright.tir.script.scalars import index_range as Range
from tilewright.tir.script.scalars import least as min_value
from tilewright.tir.script.scalars import operator as Op
from tilewright.tir.script.scalars import symbol as Var

register_constructors(IntImm, StringImm)
register_values(Operator, Target)
register_price(Target, 100)  # its options are looked up in tables and checked

_MADE: dict[str, object] = {}


def __getattr__(name: str) -> Any:
    """Return the function of an intrinsic, or a vector dtype."""
    made = _MADE.get(name)
    if made is not None:
        return made
    if name in OPS:
        made = operator_function(OPS.get(name))
    elif not name.startswith("_"):
        try:
            dtypes.split_dtype(name)
            made = ScalarType(name)
        except VerifyError:
            made = None
    if made is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _MADE[name] = made
    return made


def __dir__() -> list[str]:
    return sorted({*__all__, *OPS})


__all__ = [
    "AXIS_SEPARATOR",
    "Add",
    "And",
    "Broadcast",
    "Buffer",
    "Call",
    "Cast",
    "Div",
    "EQ",
    "FloorDiv",
    "FloorMod",
    "GE",
    "GT",
    "IntImm",
    "LE",
    "LT",
    "Let",
    "LetStmt",
    "Macro",
    "Max",
    "Min",
    "Mul",
    "NE",
    "Not",
    "Op",
    "Or",
    "Ramp",
    "Range",
    "ScalarType",
    "Select",
    "Shuffle",
    "StringImm",
    "Sub",
    "Var",
    "all",
    "alloc_buffer",
    "allocate",
    "any",
    "attr",
    "axis",
    "bfloat16",
    "block",
    "block_attr",
    "bool",
    "cast",
    "ceildiv",
    "comm_reducer",
    "decl_buffer",
    "evaluate",
    "float16",
    "float32",
    "float64",
    "float8_e4m3fn",
    "float8_e5m2",
    "floordiv",
    "floormod",
    "func_attr",
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
    "let",
    "macro",
    "match_buffer",
    "max",
    "max_value",
    "meta_var",
    "min",
    "min_value",
    "parallel",
    "prim_func",
    "reads",
    "region",
    "seq",
    "serial",
    "target",
    "thread_binding",
    "uint16",
    "uint32",
    "uint4",
    "uint64",
    "uint8",
    "unroll",
    "vectorized",
    "void",
    "where",
    "writes",
]
