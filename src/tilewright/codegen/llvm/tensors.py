"""Fresh tensors by one native call: what compiled graphs return.

A graph's results are made at every call. Python needs microseconds to make one from NumPy's memory;
this tvm-ffi function takes a fraction of one. Memory comes from the workspace's caches, so that a
result that was dropped becomes one of the next, without page faults, and goes back there when the
last owner, of whatever library, lets it go.

    tw_empty(like, dtype, extent...)    a compact tensor on the CPU, aligned to 64 bytes

``dtype`` is DLPack's, as one number. ``like`` is not looked at: tvm-ffi gives PyTorch's tensors to
those who pass one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from tilewright.codegen.llvm.binder_tables import ANY, ANY_TENSOR_OBJECT, TENSOR
from tilewright.codegen.llvm.builder import Function, exported, external, function, module_text
from tilewright.codegen.llvm.jit import host_triple
from tilewright.codegen.llvm.object_cache import compile_portable
from tilewright.codegen.llvm.values import (
    DOUBLE,
    I8,
    I32,
    I64,
    PTR,
    U64,
    VOID,
    Place,
    Struct,
    Value,
)
from tilewright.codegen.llvm.workspace import WORKSPACE_ALLOC, WORKSPACE_FREE
from tilewright.runtime.dlpack import dlpack_dtype
from tilewright.runtime.ffi import tvm_ffi
from tilewright.runtime.loader import SupportObject, register_support_object, support_addresses

_EMPTY = "__tvm_ffi_tw_empty"
_LINE = 64
#: What no machine has; sizes are added up as floats, which don't wrap.
_MOST_BYTES = float(1 << 56)

#: DLPack's owned tensor. Shape and strides follow it, the elements begin at the next cache line.
MANAGED = Struct("tw.managed", tensor=TENSOR, context=PTR, deleter=PTR)
MANAGED_BYTES = 64

# Weak, as this goes into libraries for machines that may lack tvm-ffi.
_FROM_DLPACK = external(I32, "TVMFFITensorFromDLPack", PTR, I32, I32, PTR, weak=True)
SET_RAISED = external(VOID, "TVMFFIErrorSetRaisedFromCStr", PTR, PTR, weak=True)


@function(VOID, managed=PTR)
def _delete(f: Function, managed: Value) -> None:
    f.call(WORKSPACE_FREE, managed)


def new_tensor(f: Function, size: Value, ndim: Value, extent: Callable[[Value], Value]) -> Value:
    """Take ``size`` bytes that begin with a compact tensor's description, shape and strides.

    ``extent`` gives the extent of an axis. What is unknown here is for the caller to set: data,
    device, dtype and offset. Without memory the function that is written returns -1.
    """
    managed = f.call(WORKSPACE_ALLOC, size.to(U64))
    with f.if_(managed.eq(0)):
        f.call(SET_RAISED, f.string("MemoryError"), f.string("no memory for such a tensor"))
        f.ret(-1)
    shape = managed.at(I8, MANAGED_BYTES).address
    strides = shape.at(I64, ndim).address
    stride = f.variable(I64, 1)
    with f.for_(ndim) as passed:
        i = ndim - 1 - passed
        size_of_axis = extent(i)
        shape.at(I64, i).set(size_of_axis)
        strides.at(I64, i).set(stride)
        stride *= size_of_axis
    owned = managed.at(MANAGED)
    owned["context"].set(0)
    owned["deleter"].set(f.address_of(_delete))
    tensor = owned["tensor"]
    tensor["ndim"].set(ndim.to(I32))
    tensor["shape"].set(shape)
    tensor["strides"].set(strides)
    return managed


def return_tensor(f: Function, managed: Value, given: Place) -> None:
    """Return 0 with the tensor as a tvm-ffi object, which owns it, in ``given``; else -1."""
    with f.if_(f.call(_FROM_DLPACK, managed, 0, 0, given["value"].address).ne(0)):
        f.call(WORKSPACE_FREE, managed)
        f.ret(-1)
    given["type_index"].set(ANY_TENSOR_OBJECT)
    f.ret(0)


def total_bytes(f: Function, dtype: Value, ndim: Value, extent: Callable[[Value], Value]) -> Value:
    """Return how many bytes a compact tensor has; the function that is written may return -1."""
    bits = ((dtype >> 8) & 255) * ((dtype >> 16) & 65535)
    elements, exact = f.variable(I64, 1), f.variable(DOUBLE, 1)
    with f.for_(ndim) as i:
        size = extent(i)
        with f.if_(size < 0):
            f.call(SET_RAISED, f.string("ValueError"), f.string("extents must not be negative"))
            f.ret(-1)
        elements *= size
        exact *= size.convert("sitofp", DOUBLE)
    with f.if_(exact.get() > _MOST_BYTES):
        f.call(SET_RAISED, f.string("MemoryError"), f.string("no memory for such a tensor"))
        f.ret(-1)
    return (elements * bits + 7) >> 3


@exported(_EMPTY, I32, self=PTR, args=PTR, count=I32, result=PTR)
def _empty(f: Function, _: Value, args: Value, count: Value, result: Value) -> None:
    ndim = count.to(I64) - 2
    dtype = args.at(ANY, 1)["value"].get()
    size = total_bytes(f, dtype, ndim, lambda i: args.at(ANY, i + 2)["value"].get())
    begin = (ndim * 16 + (MANAGED_BYTES + _LINE - 1)) & -_LINE
    managed = new_tensor(f, begin + size, ndim, lambda i: args.at(ANY, i + 2)["value"].get())
    tensor = managed.at(MANAGED)["tensor"]
    tensor["data"].set(managed.at(I8, begin).address)
    tensor["device"].set(1)
    tensor["device_id"].set(0)
    tensor["dtype"].set(dtype.to(I32))
    tensor["byte_offset"].set(0)
    made = result.at(ANY)
    made["unused"].set(0)
    return_tensor(f, managed, made)


@cache
def _object(triple: str | None = None) -> bytes:
    return compile_portable(module_text((_empty,)), triple or host_triple())


register_support_object(SupportObject("tensors", (_EMPTY,), _object))


def packed_dtype(dtype: str) -> int:
    """Return a data type as the number that ``tw_empty`` takes."""
    code, bits, lanes = dlpack_dtype(dtype)
    return code | bits << 8 | lanes << 16


@cache
def native_empty() -> tvm_ffi.Function:
    """Return the function ``tw_empty(like, dtype, extent...)``.

    It raises ``ValueError`` for negative extents and ``MemoryError`` for too large ones.
    """
    return tvm_ffi.Function.__from_extern_c__(support_addresses("tensors")[_EMPTY])
