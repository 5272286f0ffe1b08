"""Tensor expressions: compute definitions without schedules."""

from __future__ import annotations

from tilewright.ir import (
    Select,
    const,
    if_then_else,
    max_value,
    maximum,
    min_value,
    minimum,
    select,
)
from tilewright.te.create_prim_func import conditions_of, create_prim_func
from tilewright.te.extern import ExternOp, extern
from tilewright.te.reduction import (
    all_of,
    any_of,
    argmax,
    argmax_last,
    argmin,
    argmin_last,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    comm_reducer,
    max,
    min,
    prod,
    reducer,
    sum,
)
from tilewright.te.requirements import require, require_equal, with_conditions
from tilewright.te.tensor import (
    ComputeOp,
    Operation,
    PlaceholderOp,
    ProducerLoad,
    Reduce,
    Tensor,
    compute,
    placeholder,
    reduce_axis,
    size_var,
    var,
)
from tilewright.tir.index_map_text import AXIS_SEPARATOR
from tilewright.tir.op import (
    abs,
    all,
    any,
    ceil,
    cos,
    erf,
    exp,
    floor,
    log,
    log1p,
    nearbyint,
    pow,
    power,
    round,
    rsqrt,
    sigmoid,
    sin,
    sqrt,
    tan,
    tanh,
    trunc,
)

__all__ = [
    "AXIS_SEPARATOR", "ComputeOp", "ExternOp", "Operation", "PlaceholderOp", "ProducerLoad",
    "Reduce", "Select", "Tensor", "abs", "all", "all_of", "any", "any_of", "argmax", "argmax_last",
    "argmin", "argmin_last", "bitwise_and", "bitwise_or", "bitwise_xor", "ceil", "comm_reducer",
    "compute", "conditions_of", "const", "cos", "create_prim_func", "erf", "exp", "extern", "floor",
    "if_then_else", "log", "log1p", "max", "max_value", "maximum", "min", "min_value", "minimum",
    "nearbyint", "placeholder", "pow", "power", "prod", "reduce_axis", "reducer", "require",
    "require_equal", "round", "rsqrt", "select", "sigmoid", "sin", "size_var", "sqrt", "sum", "tan",
    "tanh", "trunc", "var", "with_conditions",
]  # fmt: skip
