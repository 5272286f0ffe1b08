"""Tensor expressions: compute definitions without schedules."""

from __future__ import annotations

from tilewright.ir import (
    Select,
    maximum,
    minimum,
    select,
)
from tilewright.te import arithmetic as _arithmetic  # gives tensors their operators
from tilewright.te.create_prim_func import conditions_of, create_prim_func
from tilewright.te.extern import ExternOp, extern, extern_primfunc
from tilewright.te.requirements import require, require_equal, with_conditions
from tilewright.te.scan import ScanOp, scan
from tilewright.te.tag import TagScope, tag_scope
from tilewright.te.tensor import (
    ComputeOp,
    Operation,
    PlaceholderOp,
    ProducerLoad,
    Tensor,
    TensorSlice,
    compute,
    placeholder,
    reduce_axis,
    size_var,
    thread_axis,
    var,
)
from tilewright.tir import (
    CommReducer,
    Reduce,
    abs,
    acos,
    acosh,
    all,
    all_of,
    any,
    any_of,
    argmax,
    argmax_last,
    argmin,
    argmin_last,
    asin,
    asinh,
    atan,
    atanh,
    ceil,
    comm_reducer,
    const,
    cos,
    cosh,
    div,
    erf,
    exp,
    floor,
    floordiv,
    floormod,
    fmod,
    if_then_else,
    indexdiv,
    indexmod,
    isfinite,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    log10,
    logaddexp,
    max,
    max_value,
    min,
    min_value,
    nearbyint,
    popcount,
    pow,
    power,
    prod,
    reducer,
    round,
    rsqrt,
    sigmoid,
    sin,
    sinh,
    sqrt,
    sum,
    tan,
    tanh,
    trace,
    trunc,
    truncdiv,
    truncmod,
)
from tilewright.tir.index_map_text import AXIS_SEPARATOR
from tilewright.tir.reduction import bitwise_and, bitwise_or, bitwise_xor

__all__ = [name for name in dir() if not name.startswith("_") and name != "annotations"]
