"""Fresh tensors on a GPU by one native call: what compiled graphs return.

    tw_cuda_empty(like, device, dtype, extent...)

If the caller's library has an allocator, as PyTorch has for its tensors, the memory comes from
there: tvm-ffi tells it to functions that get a tensor (``like``) of that library. Otherwise it is
the device's pool, in the order of the caller's stream, to which it goes back in that order.
``dtype`` is DLPack's, as one number.
"""

from __future__ import annotations

from functools import cache

from tilewright.codegen.cuda.driver_calls import DEVICE, device, driver, fail
from tilewright.codegen.cuda.stream import CUDA, current_stream, enter_context, leave_context
from tilewright.codegen.llvm.binder_tables import ANY, ANY_TENSOR_OBJECT, TENSOR
from tilewright.codegen.llvm.builder import Function, exported, external, function
from tilewright.codegen.llvm.messages import new_message, say
from tilewright.codegen.llvm.tensors import (
    MANAGED,
    MANAGED_BYTES,
    SET_RAISED,
    new_tensor,
    return_tensor,
    total_bytes,
)
from tilewright.codegen.llvm.values import I32, I64, PTR, VOID, Place, Struct, Value, array
from tilewright.codegen.llvm.workspace import WORKSPACE_FREE
from tilewright.runtime.ffi import tvm_ffi
from tilewright.runtime.loader import support_addresses

EMPTY = "__tvm_ffi_tw_cuda_empty"
_MOST_AXES = 64

#: Where a tensor's memory is from; it follows the shape and the strides.
_OWNER = Struct("tw.cuda_owner", device=PTR, stream=PTR)
_OWNER_BYTES = 16

_ALLOCATOR = external(PTR, "TVMFFIEnvGetDLPackManagedTensorAllocator", weak=True)
_ALLOCATE = external(I32, "TVMFFIEnvTensorAlloc", TENSOR, PTR, weak=True)


def _owner(tensor: Place) -> Place:
    shape = tensor["shape"].get()
    return shape.at(I64, tensor["ndim"].to(I64) * 2).address.at(_OWNER)


@function(VOID, managed=PTR)
def _delete_on_device(f: Function, managed: Value) -> None:
    """Give the memory back, when what the stream has so far is done."""
    tensor = managed.at(MANAGED)["tensor"]
    owner = _owner(tensor)
    opened = owner["device"].get()
    pushed = enter_context(f, opened)
    with f.if_(opened.at(DEVICE)["pool"].ne(0)):
        driver(f, "cuMemFreeAsync", tensor["data"], owner["stream"])
    with f.else_():
        driver(f, "cuMemFree_v2", tensor["data"])
    leave_context(f, pushed)
    f.call(WORKSPACE_FREE, managed)


@function(I32, args=PTR, ndim=I64, result=PTR)
def _from_library(f: Function, args: Value, ndim: Value, result: Value) -> None:
    """Ask the caller's library for a tensor."""
    with f.if_(ndim > _MOST_AXES):
        f.call(SET_RAISED, f.string("ValueError"), f.string("a tensor has at most 64 axes"))
        f.ret(-1)
    tensor, shape = f.local(TENSOR), f.local(array(_MOST_AXES, I64))
    with f.for_(ndim) as i:
        shape[i].set(args.at(ANY, i + 3)["value"])
    for field in ("data", "strides", "byte_offset"):
        tensor[field].set(0)
    tensor["device"].set(CUDA)
    tensor["device_id"].set(args.at(ANY, 1)["value"].to(I32))
    tensor["dtype"].set(args.at(ANY, 2)["value"].to(I32))
    tensor["ndim"].set(ndim.to(I32))
    tensor["shape"].set(shape.address)
    made = result.at(ANY)
    code = f.call(_ALLOCATE, tensor, made["value"].address)
    made["type_index"].set(ANY_TENSOR_OBJECT)
    f.ret(code)


@function(I32, opened=PTR, managed=PTR, size=I64)
def _take(f: Function, opened: Value, managed: Value, size: Value) -> None:
    """Allocate the elements of a tensor, and say whose they are."""
    tensor, known = managed.at(MANAGED)["tensor"], opened.at(DEVICE)
    owner, asked = _owner(tensor), f.greatest(size, 1)
    stream = current_stream(f, opened)
    owner["device"].set(opened)
    owner["stream"].set(stream)
    pushed, code = enter_context(f, opened), f.variable(I32, 0)
    memory = tensor["data"].address
    with f.if_(known["pool"].ne(0)):
        code.set(driver(f, "cuMemAllocFromPoolAsync", memory, asked, known["pool"], stream))
    with f.else_():
        code.set(driver(f, "cuMemAlloc_v2", memory, asked))
    with f.if_(code.ne(0)):
        m = new_message(f)
        say(f, m, "no memory for a result: %lld bytes on cuda:%lld: ", size, known["number"])
        f.call(fail, m, code.get(), opened)
        leave_context(f, pushed)
        f.call(WORKSPACE_FREE, managed)
        f.ret(-1)
    leave_context(f, pushed)
    f.ret(0)


@exported(EMPTY, I32, self=PTR, args=PTR, count=I32, result=PTR)
def empty(f: Function, _: Value, args: Value, count: Value, result: Value) -> None:
    """Make a compact tensor."""
    ndim = count.to(I64) - 3
    made = result.at(ANY)
    made["unused"].set(0)
    dtype = args.at(ANY, 2)["value"].get()
    size = total_bytes(f, dtype, ndim, lambda i: args.at(ANY, i + 3)["value"].get())
    with f.if_(f.address_of(_ALLOCATOR).ne(0)), f.if_(f.call(_ALLOCATOR).ne(0)):
        f.ret(f.call(_from_library, args, ndim, result))
    opened = f.call(device, f.string("tw_cuda_empty"), args.at(ANY, 1)["value"].get())
    with f.if_(opened.eq(0)):
        f.ret(-1)
    room = ndim * 16 + (MANAGED_BYTES + _OWNER_BYTES)
    managed = new_tensor(f, room, ndim, lambda i: args.at(ANY, i + 3)["value"].get())
    managed.at(MANAGED)["deleter"].set(f.address_of(_delete_on_device))
    tensor = managed.at(MANAGED)["tensor"]
    tensor["device"].set(CUDA)
    tensor["device_id"].set(opened.at(DEVICE)["number"].to(I32))
    tensor["dtype"].set(dtype.to(I32))
    tensor["byte_offset"].set(0)
    with f.if_(f.call(_take, opened, managed, size).ne(0)):
        f.ret(-1)
    return_tensor(f, managed, made)


@cache
def native_cuda_empty() -> tvm_ffi.Function:
    """Return the function ``tw_cuda_empty(like, device, dtype, extent...)``.

    It raises ``ValueError`` for negative extents and ``MemoryError`` for too large ones.
    """
    return tvm_ffi.Function.__from_extern_c__(support_addresses("cuda")[EMPTY])
