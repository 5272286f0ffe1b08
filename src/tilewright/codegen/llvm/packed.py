"""Calls of global functions from compiled code: of Python, or of any other tvm-ffi library.

    tw_call_packed(name, length, args, count, missing)    0, or -1 with the error set

``args`` are tvm-ffi's values; ``missing`` is the message for a name that nobody registered. Tensors
among them become objects that own no memory, as tvm-ffi exports only objects to other libraries:
what is to outlive the call, the function must copy.
"""

from __future__ import annotations

from functools import cache

from tilewright.codegen.llvm.binder_tables import (
    ANY,
    ANY_TENSOR,
    ANY_TENSOR_OBJECT,
    BYTES,
    TENSOR,
)
from tilewright.codegen.llvm.builder import Function, exported, external, function, module_text
from tilewright.codegen.llvm.jit import host_triple
from tilewright.codegen.llvm.object_cache import compile_portable
from tilewright.codegen.llvm.tensors import (
    MANAGED,
    MANAGED_BYTES,
    SET_RAISED,
    new_tensor,
    return_tensor,
)
from tilewright.codegen.llvm.values import I32, I64, PTR, VOID, Place, Value
from tilewright.runtime.loader import SupportObject, register_support_object

PACKED_SYMBOLS = ("tw_call_packed",)
#: Values with a type index from this one on are objects that whoever gets them owns.
_FIRST_OBJECT = 64

_GET_GLOBAL = external(I32, "TVMFFIFunctionGetGlobal", BYTES, PTR, weak=True)
_CALL = external(I32, "TVMFFIFunctionCall", PTR, PTR, I32, PTR, weak=True)
_DROP = external(I32, "TVMFFIObjectDecRef", PTR, weak=True)


@function(VOID, args=PTR, count=I32)
def _drop_tensors(f: Function, args: Value, count: Value) -> None:
    with f.for_(count) as i:
        given = args.at(ANY, i)
        with f.if_(given["type_index"].eq(ANY_TENSOR_OBJECT)):
            f.call(_DROP, given["value"].seen_as(PTR).get())


@function(I32, given=ANY)
def _own(f: Function, given: Place) -> None:
    """Make a tensor an object: its description is copied, its elements are not."""
    view = given["value"].seen_as(PTR).get().at(TENSOR)
    ndim = view["ndim"].get().to(I64)
    size = ndim * 16 + MANAGED_BYTES
    managed = new_tensor(f, size, ndim, lambda i: view["shape"].get().at(I64, i).get())
    tensor = managed.at(MANAGED)["tensor"]
    for field in ("data", "device", "device_id", "dtype", "byte_offset"):
        tensor[field].set(view[field].get())
    return_tensor(f, managed, given)


@exported("tw_call_packed", I32, name=PTR, length=I64, args=PTR, count=I32, missing=PTR)
def _call_packed(
    f: Function, name: Value, length: Value, args: Value, count: Value, missing: Value
) -> None:
    key = f.local(BYTES)
    key["data"].set(name)
    key["size"].set(length)
    callee = f.variable(PTR, 0)
    failed = f.call(_GET_GLOBAL, key.address, callee.address)
    with f.if_(failed.ne(0)):
        f.ret(-1)
    with f.if_(callee.get().eq(0)):
        f.call(SET_RAISED, f.string("RuntimeError"), missing)
        f.ret(-1)
    code = f.variable(I32, 0)
    with f.for_(count) as i:
        given = args.at(ANY, i)
        with f.if_(given["type_index"].eq(ANY_TENSOR)), f.if_(f.call(_own, given).ne(0)):
            code.set(-1)
            f.break_()
    with f.if_(code.get().eq(0)):
        result = f.local(ANY)
        for field in ("type_index", "unused", "value"):
            result[field].set(0)
        code.set(f.call(_CALL, callee.get(), args, count, result.address))
        with f.if_(code.get().eq(0)), f.if_(result["type_index"].get() >= _FIRST_OBJECT):
            f.call(_DROP, result["value"].seen_as(PTR).get())
    f.call(_drop_tensors, args, count)
    f.call(_DROP, callee.get())
    f.ret(code.get())


@cache
def packed_object(triple: str | None = None) -> bytes:
    """Return the compiled function, for the oldest CPU of the architecture."""
    return compile_portable(module_text((_call_packed,)), triple or host_triple())


register_support_object(SupportObject("packed", PACKED_SYMBOLS, packed_object))
