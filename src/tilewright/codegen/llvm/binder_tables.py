"""What the argument binder reads: tables that describe a function, and tvm-ffi's values.

:mod:`ffi_abi` writes the tables of a function as constants, :mod:`binder` compares arguments with
them, :mod:`binder_messages` tells what is wrong.
"""

from __future__ import annotations

from tilewright.codegen.llvm.builder import (
    Callee,
    external,
)
from tilewright.codegen.llvm.values import (
    I32,
    I64,
    PTR,
    U32,
    Struct,
    array,
)

# Kinds of arguments.
TENSOR_KIND, INT_KIND, UINT_KIND, FLOAT_KIND, BOOL_KIND = range(5)

# What an extent must be: a value, the first occurrence of a symbol, one that must agree with the
# first, or anything.
IS_VALUE, IS_DEFINED, IS_COMPARED, IS_ANY = range(4)

#: ``device_slot``: where the number of the device goes that all tensors are on; -1: not asked.
TABLE = Struct(
    "tw.table", name=PTR, arguments=PTR, symbols=PTR, signature=PTR, count=I32, device_slot=I32
)
#: Extents and strides are arrays of EXTENT; no strides: compact ones.
ARGUMENT = Struct(
    "tw.argument",
    name=PTR,
    extents=PTR,
    strides=PTR,
    shape_text=PTR,
    strides_text=PTR,
    dtype_text=PTR,
    kind=U32,
    ndim=I32,
    dtype=U32,
    device=U32,
    alignment=U32,
    slot=U32,
    rule=U32,
    symbol=U32,
)
EXTENT = Struct("tw.extent", rule=U32, symbol=U32, value=I64)
#: A symbol belongs to the argument that defines it.
SYMBOL = Struct("tw.symbol", name=PTR, argument_name=PTR, slot=U32, argument=U32)

#: A result that must lie apart from all arguments before it; ``place``: it may lie where that one
#: does, itself: none.
RESULT = Struct("tw.result", argument=I32, place=I32)

# tvm-ffi's values, and DLPack's tensor, whose data type is looked at as one number.
ANY = Struct("tw.any", type_index=U32, unused=U32, value=I64)
TENSOR = Struct(
    "tw.tensor",
    data=PTR,
    device=U32,
    device_id=U32,
    ndim=I32,
    dtype=U32,
    shape=PTR,
    strides=PTR,
    byte_offset=I64,
)
TENSOR_OBJECT = Struct("tw.tensor_object", header=array(3, I64), tensor=TENSOR)
BYTES = Struct("tw.bytes", data=PTR, size=I64)

#: tvm-ffi's type indices of what a function takes.
ANY_INT, ANY_BOOL, ANY_FLOAT, ANY_POINTER, ANY_TENSOR, ANY_TENSOR_OBJECT = 1, 2, 3, 4, 7, 70

# The binder's functions, as wrappers call them.
BIND: Callee = external(I32, "tw_bind", TABLE, PTR, I32, PTR)
CHECK_RESULTS: Callee = external(I32, "tw_check_results", TABLE, PTR, PTR, I32)
FAIL_CODE: Callee = external(I32, "tw_fail_code", PTR, I32)
FAIL_WIDE: Callee = external(I32, "tw_fail_wide", PTR)
RETURN_TEXT: Callee = external(I32, "tw_return_text", PTR, I64, PTR)
