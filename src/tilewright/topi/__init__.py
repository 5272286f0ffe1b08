"""Operator definitions: functions from ``te`` tensors to ``te`` tensors."""

from __future__ import annotations

from math import pi

from tilewright.ir import floordiv, floormod
from tilewright.te import div, extern
from tilewright.te.arithmetic import (
    add,
    broadcast_shape,
    cast,
    divide,
    floor_divide,
    floor_mod,
    multiply,
    negative,
    power,
    subtract,
)
from tilewright.topi import image, nn, testing, vision
from tilewright.topi.broadcast import (
    BINARY,
    atan2,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    broadcast_to,
    copysign,
    equal,
    greater,
    greater_equal,
    hypot,
    left_shift,
    less,
    less_equal,
    log_add_exp,
    logical_and,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    mod,
    nextafter,
    not_equal,
    right_shift,
    trunc_divide,
    where,
)
from tilewright.topi.contraction import tensordot
from tilewright.topi.create import (
    arange,
    const_vector,
    eye,
    full,
    full_like,
    meshgrid,
    one_hot,
    ones,
    shape,
    tensor_size,
    zeros,
)
from tilewright.topi.dynamic_slices import (
    dyn_tile,
    dynamic_strided_slice,
    make_idx,
    strided_set,
    within_index,
)
from tilewright.topi.einsum import einsum
from tilewright.topi.elementwise import (
    UNARY,
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atanh,
    bitwise_not,
    ceil,
    ceil_log2,
    clip,
    cos,
    cosh,
    erf,
    exp,
    exp2,
    exp10,
    expm1,
    floor,
    identity,
    isfinite,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    log10,
    logical_not,
    nan_to_num,
    reciprocal,
    reinterpret,
    round,
    rsqrt,
    sigmoid,
    sign,
    signbit,
    sin,
    sinh,
    sqrt,
    square,
    tan,
    tanh,
    trunc,
)
from tilewright.topi.fast_math import fast_erf, fast_exp, fast_tanh
from tilewright.topi.fixed_point import fixed_point_multiply, fixed_point_multiply_per_axis
from tilewright.topi.following import collapse_sum, elemwise_sum, expand_like
from tilewright.topi.indexing import (
    adv_index,
    gather,
    gather_nd,
    index_tensor,
    slice_scatter,
    take,
    unravel_index,
)
from tilewright.topi.layout import layout_transform
from tilewright.topi.products import matmul
from tilewright.topi.rearrange import (
    as_strided,
    diag_embed,
    diagonal,
    matrix_set_diag,
    reversed_slice,
    roll,
    sliding_window,
)
from tilewright.topi.reduction import (
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
from tilewright.topi.scan import cummax, cummin, cumprod, cumsum, logcumsumexp, scanop
from tilewright.topi.scatter import index_put, scatter_elements, scatter_nd
from tilewright.topi.search import searchsorted
from tilewright.topi.sequences import reverse_sequence, sequence_mask
from tilewright.topi.signal import dft, hamming_window, stft
from tilewright.topi.sort import argsort, sort, topk
from tilewright.topi.sparse import sparse_reshape, sparse_to_dense
from tilewright.topi.special import digamma, erfc, erfinv, lgamma
from tilewright.topi.transform import (
    concatenate,
    expand_dims,
    flatten,
    flip,
    repeat,
    reshape,
    split,
    squeeze,
    stack,
    strided_slice,
    tile,
    transpose,
    tril,
    trilu,
    triu,
)
from tilewright.topi.utils import InvalidShapeError, get_const_tuple

__all__ = [
    "InvalidShapeError",
    "BINARY", "UNARY", "abs", "acos", "acosh", "add", "adv_index", "all", "any", "arange",
    "argmax", "argmin", "argsort", "as_strided", "asin", "asinh", "atan", "atan2", "atanh",
    "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "broadcast_shape",
    "broadcast_to", "cast", "ceil", "ceil_log2", "clip", "collapse_sum", "concatenate",
    "const_vector", "copysign", "cos", "cosh", "cummax", "cummin", "cumprod", "cumsum", "dft",
    "diag_embed", "diagonal", "digamma", "div", "divide", "dyn_tile", "dynamic_strided_slice",
    "einsum", "elemwise_sum", "equal", "erf", "erfc", "erfinv", "exp", "exp10", "exp2",
    "expand_dims", "expand_like", "expm1", "extern", "eye", "fast_erf", "fast_exp", "fast_tanh",
    "fixed_point_multiply", "fixed_point_multiply_per_axis", "flatten", "flip", "floor",
    "floor_divide", "floor_mod", "floordiv", "floormod", "full", "full_like", "gather",
    "gather_nd", "get_const_tuple", "greater", "greater_equal", "hamming_window", "hypot",
    "identity", "image", "index_put", "index_tensor", "isfinite", "isinf", "isnan",
    "layout_transform", "left_shift", "less", "less_equal", "lgamma", "log", "log10", "log1p",
    "log2", "log_add_exp", "logcumsumexp", "logical_and", "logical_not", "logical_or",
    "logical_xor", "make_idx", "matmul", "matrix_set_diag", "max", "maximum", "mean",
    "meshgrid", "min", "minimum", "mod", "multiply", "nan_to_num", "negative", "nextafter",
    "nn", "not_equal", "one_hot", "ones", "pi", "power", "prod", "reciprocal", "reinterpret",
    "repeat", "reshape", "reverse_sequence", "reversed_slice", "right_shift", "roll", "round",
    "rsqrt", "scanop", "scatter_elements", "scatter_nd", "searchsorted", "sequence_mask",
    "shape", "sigmoid", "sign", "signbit", "sin", "sinh", "slice_scatter", "sliding_window",
    "sort", "sparse_reshape", "sparse_to_dense", "split", "sqrt", "square", "squeeze", "stack",
    "std", "stft", "strided_set", "strided_slice", "subtract", "sum", "take", "tan", "tanh",
    "tensor_size", "tensordot", "testing", "tile", "topk", "transpose", "tril", "trilu", "triu",
    "trunc", "trunc_divide", "unravel_index", "variance", "vision", "where", "within_index",
    "zeros",
]  # fmt: skip
