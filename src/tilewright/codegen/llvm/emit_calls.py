"""Intrinsic calls to LLVM IR, one small function each.

Elementary functions that aren't here come from :mod:`codegen.llvm.math`.
"""

from __future__ import annotations

import re

from tilewright.codegen.checks import named_by
from tilewright.codegen.llvm.emit_expr import intrinsic, may_change
from tilewright.codegen.llvm.emit_masked import load_or
from tilewright.codegen.llvm.emit_stmt import FunctionEmitter
from tilewright.codegen.llvm.ffi_abi import NO_VALUE, FunctionSpec
from tilewright.codegen.llvm.guards import loads_scalars, needs_guard
from tilewright.codegen.llvm.types import (
    constant_text,
    global_name,
    intrinsic_suffix,
    memory_type,
    register_type,
    wide_dtype,
)
from tilewright.codegen.llvm.whole import constant_operand, shifted, truncated
from tilewright.ir import (
    Broadcast,
    Call,
    Expr,
    IntImm,
    StringImm,
    Var,
    as_int,
    dtypes,
    expr_equal,
    greatest_of,
    is_const,
    least_of,
)
from tilewright.support.errors import CodegenError
from tilewright.tir import BufferLoad
from tilewright.tir.formulas import FORMULAS, in_simpler_operators

_DIRECT_FLOAT = {
    **{name: name for name in ("sqrt", "floor", "ceil", "trunc", "nearbyint")},
    "round": "nearbyint",
}
_INTRINSIC = re.compile(r"llvm\.[A-Za-z0-9_.]+")
_BITWISE = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}


@intrinsic(*_DIRECT_FLOAT)
def _direct(emitter: FunctionEmitter, call: Call) -> str:
    value = emitter.visit(call.args[0])
    if call.op.operands == "number" and not dtypes.is_float(call.dtype):
        return str(value)  # rounding an integer
    return str(emitter.call_float(_DIRECT_FLOAT[call.op.name], call.dtype, value))


@intrinsic("fabs", "abs")
def _abs(emitter: FunctionEmitter, call: Call) -> str:
    value = emitter.visit(call.args[0])
    kind = dtypes.kind_of(call.dtype)
    if kind == "float":
        return str(emitter.call_float("fabs", call.dtype, value))
    if kind == "uint":
        return str(value)
    type_, suffix = register_type(call.dtype), intrinsic_suffix(call.dtype)
    return str(emitter.pure(f"call {type_} @llvm.abs.{suffix}({type_} {value}, i1 false)", value))


@intrinsic("fma")
def _fma(emitter: FunctionEmitter, call: Call) -> str:
    args = [emitter.visit(arg) for arg in call.args]
    return str(emitter.call_float("fma", call.dtype, *args))


@intrinsic("copysign")
def _copysign(emitter: FunctionEmitter, call: Call) -> str:
    args = [emitter.visit(arg) for arg in call.args]
    return str(emitter.call_float("copysign", call.dtype, *args))


@intrinsic(*FORMULAS)
def _formula(emitter: FunctionEmitter, call: Call) -> str:
    return str(emitter.visit(in_simpler_operators(call)))


@intrinsic("undef")
def _undefined(emitter: FunctionEmitter, call: Call) -> str:
    return constant_text(0, call.dtype)  # a value like any other: LLVM's own spreads


@intrinsic("vscale")
def _vscale(emitter: FunctionEmitter, call: Call) -> str:
    return str(emitter.vscale(call.dtype))


@intrinsic("isnullptr")
def _is_null(emitter: FunctionEmitter, call: Call) -> str:
    pointer = emitter.visit(call.args[0])
    return str(emitter.pure(f"icmp eq ptr {pointer}, null", pointer))


@intrinsic("popcount", "clz")
def _count_bits(emitter: FunctionEmitter, call: Call) -> str:
    value = emitter.visit(call.args[0])
    source = call.args[0].dtype
    type_, suffix = register_type(source), intrinsic_suffix(source)
    if call.op.name == "popcount":
        text = f"call {type_} @llvm.ctpop.{suffix}({type_} {value})"
    else:
        text = f"call {type_} @llvm.ctlz.{suffix}({type_} {value}, i1 false)"
    return str(emitter.convert(emitter.pure(text, value), source, call.dtype))


@intrinsic(*_BITWISE)
def _bitwise(emitter: FunctionEmitter, call: Call) -> str:
    a, b = (emitter.visit(arg) for arg in call.args)
    return str(emitter.pure(f"{_BITWISE[call.op.name]} {register_type(call.dtype)} {a}, {b}", a, b))


@intrinsic("shift_left", "shift_right")
def _shift(emitter: FunctionEmitter, call: Call) -> str:
    a, b = (emitter.visit(arg) for arg in call.args)
    return shifted(emitter, call.op.name, call.dtype, a, b, constant_operand(call.args[1], b))


@intrinsic("bitwise_not")
def _bitwise_not(emitter: FunctionEmitter, call: Call) -> str:
    a = emitter.visit(call.args[0])
    ones = constant_text(1 if dtypes.is_bool(call.dtype) else -1, call.dtype)
    return str(emitter.pure(f"xor {register_type(call.dtype)} {a}, {ones}", a))


@intrinsic("truncdiv", "truncmod", "indexdiv", "indexmod")
def _truncated(emitter: FunctionEmitter, call: Call) -> str:
    a, b = (emitter.visit(arg) for arg in call.args)
    op = "div" if call.op.name.endswith("div") else "rem"
    divisor = constant_operand(call.args[1], b)
    known = call.op.name.startswith("index")
    return truncated(emitter, op, call.dtype, a, b, divisor, known)


@intrinsic("likely", "ignore_loop_partition")
def _likely(emitter: FunctionEmitter, call: Call) -> str:
    return str(emitter.visit(call.args[0]))


@intrinsic("assume")
def _assume(emitter: FunctionEmitter, call: Call) -> str:
    emitter.effect(f"call void @llvm.assume(i1 {emitter.visit(call.args[0])})")
    return "0"


@intrinsic("if_then_else")
def _if_then_else(emitter: FunctionEmitter, call: Call) -> str:
    condition, yes, no = call.args
    lanes = dtypes.lanes_of(condition.dtype)
    if lanes > 1 and (made := _load_or(emitter, call)) is not None:
        return made
    test = emitter.visit(condition)
    guarded = [needs_guard(yes, condition), needs_guard(no, condition)]
    if not any(guarded):
        a, b = emitter.visit(yes), emitter.visit(no)
        return str(emitter.select(test, condition.dtype, a, b, call.dtype))
    if lanes == 1:
        made = emitter.choose(
            test, lambda: emitter.visit(yes), lambda: emitter.visit(no), call.dtype
        )
        return str(made)
    a = emitter.for_lanes(test, lanes, yes) if guarded[0] else emitter.visit(yes)
    b = emitter.for_lanes(emitter.not_(test, lanes), lanes, no) if guarded[1] else emitter.visit(no)
    return str(emitter.select(test, condition.dtype, a, b, call.dtype))


def _load_or(emitter: FunctionEmitter, call: Call) -> str | None:
    """A masked load that brings the other value itself, where that is one constant.

    Conditions inside one another are joined: ``c1 ? (c2 ? A[i] : 0) : 0`` is one load.
    """
    other, tests = call.args[2], []
    value: Expr = call
    while isinstance(value, Call) and value.op.name == "if_then_else":
        if not expr_equal(value.args[2], other):
            return None
        tests.append(value.args[0])
        value = value.args[1]
    if not (isinstance(value, BufferLoad) and isinstance(other, Broadcast)):
        return None
    if not is_const(other.value) or any(t.dtype != tests[0].dtype for t in tests):
        return None
    # What is read where a test fails stands behind that test.
    if any(map(may_change, tests[1:])) or any(map(loads_scalars, value.indices)):
        return None
    return load_or(emitter, value, tests, other)


@intrinsic("reinterpret")
def _reinterpret(emitter: FunctionEmitter, call: Call) -> str:
    source = call.args[0].dtype
    value = emitter.to_memory(emitter.visit(call.args[0]), source)
    a, b = memory_type(source), memory_type(call.dtype)
    if a != b:
        value = emitter.pure(f"bitcast {a} {value} to {b}", value)
    return str(emitter.from_memory(value, call.dtype))


@intrinsic("min_value", "max_value", "infinity")
def _limit(emitter: FunctionEmitter, call: Call) -> str:
    if call.op.name == "infinity":
        return constant_text(float("inf"), call.dtype)
    made = least_of(call.dtype) if call.op.name == "min_value" else greatest_of(call.dtype)
    return str(emitter.visit(made))


@intrinsic("vector_low", "vector_high")
def _half(emitter: FunctionEmitter, call: Call) -> str:
    source = call.args[0].dtype
    lanes = dtypes.lanes_of(source)
    start = 0 if call.op.name == "vector_low" else lanes // 2
    element = register_type(dtypes.element_of(source))
    value = emitter.visit(call.args[0])
    picks = list(range(start, start + lanes // 2))
    if len(picks) == 1:
        return str(
            emitter.pure(f"extractelement <{lanes} x {element}> {value}, i64 {start}", value)
        )
    return str(emitter.shuffle(value, lanes, picks, element))


@intrinsic("vector_combine")
def _combine(emitter: FunctionEmitter, call: Call) -> str:
    element = register_type(dtypes.element_of(call.dtype))
    parts = [(emitter.visit(arg), dtypes.lanes_of(arg.dtype)) for arg in call.args]
    (a, m), (b, n) = parts
    return str(emitter.concat(a, m, b, n, element)[0])


@intrinsic("vector_reduce_add", "vector_reduce_max", "vector_reduce_min")
def _reduce(emitter: FunctionEmitter, call: Call) -> str:
    source = call.args[0].dtype
    value = emitter.visit(call.args[0])
    name = call.op.name.removeprefix("vector_reduce_")
    kind = dtypes.kind_of(source)
    vector, suffix = register_type(source), intrinsic_suffix(source)
    result = register_type(call.dtype)
    if kind == "float" and name == "add":
        start = constant_text(-0.0, call.dtype)
        text = f"call reassoc {result} @llvm.vector.reduce.fadd.{suffix}({result} {start}, "
        return str(emitter.guarded(f"{text}{vector} {value})", value))
    if kind == "float":
        return _float_extremum(emitter, value, source, "ogt" if name == "max" else "olt")
    if name == "add":
        op = "add"
    else:
        op = ("s" if kind == "int" else "u") + name
    text = f"call {result} @llvm.vector.reduce.{op}.{suffix}({vector} {value})"
    return str(emitter.guarded(text, value))


def _float_extremum(emitter: FunctionEmitter, value: str, source: str, test: str) -> str:
    """Halve the vector until one lane is left, by the comparison that scalar code uses.

    LLVM's own reduction also orders the zeros at each level.
    """
    lanes, element = dtypes.lanes_of(source), register_type(dtypes.element_of(source))
    if dtypes.is_scalable(source) or lanes & (lanes - 1):
        kind, suffix = register_type(source), intrinsic_suffix(source)
        name = "fmaximum" if test == "ogt" else "fminimum"
        text = f"call nsz {element} @llvm.vector.reduce.{name}.{suffix}({kind} {value})"
        return str(emitter.guarded(text, value))
    while lanes > 1:
        half = lanes // 2
        low = emitter.shuffle(value, lanes, list(range(half)), element)
        high = emitter.shuffle(value, lanes, list(range(half, lanes)), element)
        part = dtypes.vector_dtype(dtypes.element_of(source), half)
        if half == 1:
            low, high = (
                emitter.guarded(f"extractelement <1 x {element}> {v}, i64 0", v)
                for v in (low, high)
            )
        value, lanes = emitter.float_extremum(test, part, low, high, False), half
    return str(value)


# ---- pointers and foreign code


@intrinsic("address_of")
def _address_of(emitter: FunctionEmitter, call: Call) -> str:
    load = call.args[0]
    if not isinstance(load, BufferLoad):
        raise CodegenError(f"address_of takes a buffer element, got {load!r}")
    index = load.indices[0] if len(load.indices) == 1 else None
    if index is None:
        raise CodegenError(f"address_of needs a flat buffer, got {load!r}; lower the program first")
    base = getattr(index, "base", index)
    return str(emitter.pointer(load.buffer, base))


@intrinsic("misalignment")
def _misalignment(emitter: FunctionEmitter, call: Call) -> str:
    size = as_int(call.args[1])
    if size is None or size <= 0 or size & (size - 1):
        raise CodegenError(f"misalignment(address, n) takes a power of two, got {call!r}")
    pointer = emitter.visit(call.args[0])
    address = emitter.pure(f"ptrtoint ptr {pointer} to i64", pointer)
    return str(emitter.pure(f"and i64 {address}, {size - 1}", address))


@intrinsic("access_ptr")
def _access_ptr(emitter: FunctionEmitter, call: Call) -> str:
    data, offset = call.args[0], call.args[1]
    element = emitter.module.element_of_data.get(data) if isinstance(data, Var) else None
    if element is None:
        raise CodegenError(f"access_ptr takes the data variable of a buffer, got {data!r}")
    pointer, index = emitter.visit(data), emitter.visit(offset)
    text = f"getelementptr {memory_type(element)}, ptr {pointer}, i64 {index}"
    return str(emitter.pure(text, pointer, index))


@intrinsic("constant_data")
def _constant_data(emitter: FunctionEmitter, call: Call) -> str:
    symbol, size = call.args
    if not isinstance(symbol, StringImm) or not isinstance(size, IntImm):
        raise CodegenError("constant_data(symbol, bytes) takes a text and a number")
    return str(emitter.module.constant_pointer(emitter, symbol.value, size.value))


@intrinsic("prefetch")
def _prefetch(emitter: FunctionEmitter, call: Call) -> str:
    pointer = emitter.visit(call.args[0])
    numbers = [arg.value if isinstance(arg, IntImm) else None for arg in call.args[1:]]
    if None in numbers or len(numbers) > 2:
        raise CodegenError("prefetch(address, rw, locality) takes constants for rw and locality")
    rw = numbers[0] if numbers else 0
    locality = numbers[1] if len(numbers) == 2 else 3
    emitter.effect(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 {rw}, i32 {locality}, i32 1)")
    return "0"


@intrinsic("call_llvm_intrin", "call_llvm_pure_intrin")
def _llvm_intrinsic(emitter: FunctionEmitter, call: Call) -> str:
    name, args = named_by(call, "LLVM intrinsic", _INTRINSIC), call.args[1:]
    values = [emitter.visit(arg) for arg in args]
    text = ", ".join(f"{register_type(a.dtype)} {v}" for a, v in zip(args, values))
    full = f"call {register_type(call.dtype)} @{name}({text})"
    if call.op.name == "call_llvm_pure_intrin":
        return str(emitter.guarded(full, *values))
    emitter.forget()
    if call.dtype == "void":
        emitter.effect(full)
        return "0"
    return str(emitter.here(full))


@intrinsic("call_extern", "call_pure_extern")
def _call_extern(emitter: FunctionEmitter, call: Call) -> str:
    name, *args = call.args
    if not isinstance(name, StringImm):
        raise CodegenError(f"{call.op.name} takes the function's name first, got {name!r}")
    values = [
        emitter.to_memory(emitter.visit(arg), arg.dtype)
        if not dtypes.is_bool(arg.dtype)
        else emitter.visit(arg)
        for arg in args
    ]
    kinds = [
        register_type(arg.dtype) if dtypes.is_bool(arg.dtype) else memory_type(arg.dtype)
        for arg in args
    ]
    actual = ", ".join(f"{kind} {value}" for kind, value in zip(kinds, values))
    pure = call.op.name == "call_pure_extern"
    if not pure:
        emitter.forget()
    if emitter.module.emit_launch(emitter, name.value, args, values):
        return "0"
    kernel = emitter.module.kernel_of_call(name.value, kinds, call.dtype)
    if kernel is not None:
        return _call_kernel(emitter, kernel, actual, call.dtype)
    symbol = emitter.module.extern(name.value, register_type(call.dtype), kinds)
    full = f"call {register_type(call.dtype)} {symbol}({actual})"
    if call.dtype == "void":
        emitter.effect(full)
        return "0"
    return str(emitter.guarded(full, *values) if pure else emitter.here(full))


def _call_kernel(emitter: FunctionEmitter, kernel: FunctionSpec, actual: str, dtype: str) -> str:
    """Call a kernel of this module: its value, or 0 if it has none."""
    frame = emitter.module.frame
    wide = wide_dtype(kernel.returns) if kernel.returns else ""
    place = wide and emitter.fresh("returned")
    if place:
        # In the first block: memory of the stack is given back when the caller returns.
        emitter.entry.append(f"  {place} = alloca {register_type(wide)}")
    passed = ", ".join(filter(None, (actual, frame and f"ptr {frame}", place and f"ptr {place}")))
    symbol = global_name(emitter.module.symbol_of(kernel.name))
    code = emitter.here(f"call i32 {symbol}({passed})")
    if not kernel.returns:
        emitter.return_if_failed(code)
        return str(code)
    emitter.return_if_failed(code, but=NO_VALUE)
    if dtype == "void":
        return "0"
    emitter.fail_if(f"icmp eq i32 {code}, {NO_VALUE}", kernel.without_value())
    value = emitter.here(f"load {register_type(wide)}, ptr {place}")
    return str(emitter.convert(value, wide, dtype))


@intrinsic("ret")
def _ret(emitter: FunctionEmitter, call: Call) -> str:
    if emitter.returns:
        emitter.store_returned(call.args[0])
    emitter.return_early("0")
    return "0"


@intrinsic("storage_sync")
def _storage_sync(emitter: FunctionEmitter, call: Call) -> str:
    raise CodegenError(
        "storage_sync is a barrier between GPU threads; the llvm target has none. "
        "Compile for a GPU target, or schedule without thread bindings"
    )
