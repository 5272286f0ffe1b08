"""Graph operators by family; ``relax.op`` is this package. ``nn`` holds those of networks."""

from __future__ import annotations

from tilewright.relax.assertion import assert_op
from tilewright.relax.call_tir import call_dps, call_tir
from tilewright.relax.ops import image, nn
from tilewright.relax.ops.binary import (
    add,
    divide,
    equal,
    floor_divide,
    floor_mod,
    greater,
    greater_equal,
    less,
    less_equal,
    logical_and,
    logical_or,
    maximum,
    minimum,
    mod,
    multiply,
    not_equal,
    power,
    subtract,
)
from tilewright.relax.ops.create import arange, full, full_like, ones, ones_like, zeros, zeros_like
from tilewright.relax.ops.layout import layout_transform
from tilewright.relax.ops.linear import linear, matmul
from tilewright.relax.ops.manipulate import (
    broadcast_to,
    concat,
    expand_dims,
    flatten,
    flip,
    gather_elements,
    permute_dims,
    repeat,
    reshape,
    split,
    squeeze,
    stack,
    strided_slice,
    take,
    tile,
    tril,
    triu,
    where,
)
from tilewright.relax.ops.reduce import (
    all,
    any,
    argmax,
    argmin,
    max,
    mean,
    min,
    prod,
    std,
    sum,
    variance,
)
from tilewright.relax.ops.scan import cumprod, cumsum
from tilewright.relax.ops.sort import argsort, sort, topk
from tilewright.relax.ops.unary import (
    abs,
    acos,
    asin,
    astype,
    atan,
    ceil,
    clip,
    cos,
    cosh,
    erf,
    exp,
    exp2,
    floor,
    isnan,
    log,
    log1p,
    log2,
    logical_not,
    negative,
    reciprocal,
    round,
    rsqrt,
    sigmoid,
    sign,
    sin,
    sinh,
    sqrt,
    square,
    tan,
    tanh,
    trunc,
)
from tilewright.relax.registry import OPERATORS, RelaxOp, get_op, operator

__all__ = [
    "OPERATORS", "RelaxOp", "abs", "acos", "add", "all", "any", "arange", "argmax", "argmin",
    "argsort", "asin", "assert_op", "astype", "atan", "broadcast_to", "call_dps", "call_tir",
    "ceil", "clip", "concat", "cos", "cosh", "cumprod", "cumsum", "divide", "equal", "erf", "exp",
    "exp2", "expand_dims", "flatten", "flip", "floor", "floor_divide", "floor_mod", "full",
    "full_like", "gather_elements", "get_op", "greater", "greater_equal", "image", "isnan",
    "layout_transform", "less", "less_equal", "linear", "log", "log1p", "log2", "logical_and",
    "logical_not", "logical_or", "matmul", "max", "maximum", "mean", "min", "minimum", "mod",
    "multiply",
    "negative", "nn", "not_equal", "ones", "ones_like", "operator", "permute_dims", "power", "prod",
    "reciprocal", "repeat", "reshape", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sort",
    "split", "sqrt", "square", "squeeze", "stack", "std", "strided_slice", "subtract", "sum",
    "take", "tan", "tanh", "tile", "topk", "tril", "triu", "trunc", "variance", "where", "zeros",
    "zeros_like",
]  # fmt: skip
