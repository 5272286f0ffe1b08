"""``call_packed`` to LLVM IR: a call of a global function, with values on the stack."""

from __future__ import annotations

from tilewright.codegen.llvm.binder_tables import (
    ANY_BOOL,
    ANY_FLOAT,
    ANY_INT,
    ANY_POINTER,
    ANY_TENSOR,
)
from tilewright.codegen.llvm.emit_expr import intrinsic
from tilewright.codegen.llvm.emit_stmt import FunctionEmitter
from tilewright.ir import Call, Expr, StringImm, cast, dtypes
from tilewright.runtime.device import DEVICE_TYPES
from tilewright.runtime.dlpack import dlpack_dtype
from tilewright.support.errors import CodegenError

ANY_TEXT = 8
_VALUE = "{ i32, i32, i64 }"
_TENSOR = "{ ptr, i32, i32, i32, i32, ptr, ptr, i64 }"


@intrinsic("call_packed")
def _call_packed(emitter: FunctionEmitter, call: Call) -> str:
    name, *args = call.args
    if not isinstance(name, StringImm):
        raise CodegenError(f"call_packed takes the function's name first, got {name!r}")
    emitter.forget()
    values = _stack(emitter, f"[{max(len(args), 1)} x {_VALUE}]")
    for number, arg in enumerate(args):
        kind, element, value = _value(emitter, arg)
        _store(emitter, values, f"{_VALUE}, ptr {values}, i64 {number}, i32 0", f"i32 {kind}")
        _store(emitter, values, f"{_VALUE}, ptr {values}, i64 {number}, i32 1", "i32 0")
        place = f"{_VALUE}, ptr {values}, i64 {number}, i32 2"
        _store(emitter, values, place, f"{element} {value}")
    text = emitter.module.string(name.value)
    length = len(name.value.encode())
    missing = emitter.module.string(
        f"there is no global function {name.value!r}: register it with "
        "tilewright.register_global_func"
    )
    emitter.module.declare("declare i32 @tw_call_packed(ptr, i64, ptr, i32, ptr)")
    code = emitter.here(
        f"call i32 @tw_call_packed(ptr {text}, i64 {length}, ptr {values}, i32 {len(args)}, "
        f"ptr {missing})"
    )
    emitter.return_if_failed(code)
    return str(code)


@intrinsic("packed_tensor")
def _packed_tensor(emitter: FunctionEmitter, call: Call) -> str:
    raise CodegenError("packed_tensor(...) is an argument of call_packed, and nothing else")


def _value(emitter: FunctionEmitter, arg: Expr) -> tuple[int, str, str]:
    """tvm-ffi's kind of a value, and the value with its LLVM type."""
    if isinstance(arg, StringImm):
        return ANY_TEXT, "ptr", emitter.module.string(arg.value)
    if isinstance(arg, Call) and arg.op.name == "packed_tensor":
        return ANY_TENSOR, "ptr", _tensor(emitter, arg)
    if arg.dtype == "handle":
        return ANY_POINTER, "ptr", emitter.visit(arg)
    if dtypes.lanes_of(arg.dtype) != 1:
        raise CodegenError(f"call_packed takes scalars, got {arg!r} of {arg.dtype}")
    if dtypes.is_float(arg.dtype):
        return ANY_FLOAT, "double", emitter.visit(cast(arg, "float64"))
    kind = ANY_BOOL if dtypes.is_bool(arg.dtype) else ANY_INT
    return kind, "i64", emitter.visit(cast(arg, "int64"))


def _tensor(emitter: FunctionEmitter, call: Call) -> str:
    """A compact tensor, which is described on the stack."""
    data, dtype, *shape = call.args
    if not isinstance(dtype, StringImm):
        raise CodegenError("packed_tensor(pointer, dtype, *shape) takes the dtype as a text")
    code, bits, lanes = dlpack_dtype(dtype.value)
    extents = _stack(emitter, f"[{max(len(shape), 1)} x i64]")
    for axis, extent in enumerate(shape):
        value = emitter.visit(cast(extent, "int64"))
        _store(emitter, extents, f"i64, ptr {extents}, i64 {axis}", f"i64 {value}")
    tensor = _stack(emitter, _TENSOR)
    fields = (
        f"ptr {emitter.visit(data)}", f"i32 {DEVICE_TYPES[emitter.module.device]}",
        f"i32 {emitter.module.device_number(emitter)}", f"i32 {len(shape)}",
        f"i32 {code | bits << 8 | lanes << 16}", f"ptr {extents}", "ptr null", "i64 0",
    )  # fmt: skip
    for number, field in enumerate(fields):
        _store(emitter, tensor, f"{_TENSOR}, ptr {tensor}, i64 0, i32 {number}", field)
    return tensor


def _stack(emitter: FunctionEmitter, kind: str) -> str:
    """Memory of the stack, in the first block."""
    pointer: str = emitter.fresh("packed")
    emitter.entry.append(f"  {pointer} = alloca {kind}, align 16")
    return pointer


def _store(emitter: FunctionEmitter, base: str, place: str, value: str) -> None:
    pointer = emitter.here(f"getelementptr {place}")
    emitter.effect(f"store {value}, ptr {pointer}")
