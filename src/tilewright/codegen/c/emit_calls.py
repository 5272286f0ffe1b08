"""Calls of operators to C-like text, one small function each.

Elementary functions of floats come from the dialect's table; what belongs to one dialect alone
(shuffles, instructions) from its ``calls``.
"""

from __future__ import annotations

import re
from typing import Any

from tilewright.codegen.c import text as t
from tilewright.codegen.c.dialect import NARROW
from tilewright.codegen.c.emit_expr import intrinsic
from tilewright.codegen.c.emit_memory import MemoryEmitter
from tilewright.codegen.c.text import Text
from tilewright.codegen.c.vector import Value, Vector
from tilewright.codegen.checks import named_by
from tilewright.ir import Call, IntImm, as_int, const, dtypes, greatest_of, least_of
from tilewright.ir.op import UNARY_FLOAT
from tilewright.support.errors import CodegenError
from tilewright.tir import BufferLoad
from tilewright.tir.formulas import in_simpler_operators

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def values(emitter: MemoryEmitter, call: Call) -> list[Value]:
    """Return the values of all arguments."""
    return [emitter.visit(arg) for arg in call.args]


# ---- functions of floats


@intrinsic(*UNARY_FLOAT, "pow", "atan2", "fmod", "hypot", "copysign", "nextafter")
def _elementary(emitter: MemoryEmitter, call: Call) -> Value:
    element = dtypes.element_of(call.dtype)
    if dtypes.kind_of(element) != "float":
        raise CodegenError(f"{call.op.name} takes floating-point numbers, got {element}; cast them")
    if call.op.name == "nextafter" and element in NARROW:
        return _formula(emitter, call)
    wide = "float64" if element == "float64" else "float32"

    def compute(*args: str) -> str:
        return Text(emitter.rounded(emitter.math(call.op.name, wide, *args), element))

    return emitter.each(call.dtype, compute, *values(emitter, call))


@intrinsic("ldexp", "logaddexp", "q_multiply_shift", "q_multiply_shift_per_axis")
def _formula(emitter: MemoryEmitter, call: Call) -> Value:
    made: Value = emitter.visit(in_simpler_operators(call))
    return made


@intrinsic("undef")
def _undefined(emitter: MemoryEmitter, call: Call) -> Value:
    made: Value = emitter.visit(const(0, call.dtype))
    return made


@intrinsic("isnullptr")
def _is_null(emitter: MemoryEmitter, call: Call) -> Value:
    return t.binary("==", emitter.scalar(call.args[0]), "0")


@intrinsic("floor", "ceil", "trunc", "round", "nearbyint")
def _whole(emitter: MemoryEmitter, call: Call) -> Value:
    element = dtypes.element_of(call.dtype)
    value: Value = emitter.visit(call.args[0])
    if dtypes.kind_of(element) != "float":
        return value
    name = "nearbyint" if call.op.name == "round" else call.op.name
    wide = "float64" if element == "float64" else "float32"
    return emitter.each(call.dtype, lambda x: emitter.math(name, wide, x), value)


@intrinsic("fabs", "abs")
def _abs(emitter: MemoryEmitter, call: Call) -> Value:
    element = dtypes.element_of(call.dtype)
    value: Value = emitter.visit(call.args[0])
    kind = dtypes.kind_of(element)
    if kind == "uint":
        return value
    if kind == "float":
        wide = "float64" if element == "float64" else "float32"
        return emitter.each(call.dtype, lambda x: emitter.math("fabs", wide, x), value)

    def compute(x: str) -> str:
        made = emitter.help("abs", element, x)
        return Text(emitter.help("nibble", element, made)) if dtypes.bits_of(element) == 4 else made

    made = emitter.each(call.dtype, compute, value)
    return made


@intrinsic("isnan", "isinf", "isfinite")
def _is(emitter: MemoryEmitter, call: Call) -> Value:
    element = dtypes.element_of(call.args[0].dtype)
    value = emitter.visit(call.args[0])
    if dtypes.kind_of(element) != "float":
        sure = "true" if call.op.name == "isfinite" else "false"
        return emitter.each(call.dtype, lambda x: Text(sure), value)
    wide = "float64" if element == "float64" else "float32"
    infinity = emitter.number(float("inf"), wide)

    def compute(x: str) -> Text:
        name = emitter.named(x, wide)
        if call.op.name == "isnan":
            return t.binary("!=", name, name)
        size = emitter.math("fabs", wide, name)
        return t.binary("==" if call.op.name == "isinf" else "<", size, infinity)

    made = emitter.each(call.dtype, compute, value)
    return made


@intrinsic("fma")
def _fma(emitter: MemoryEmitter, call: Call) -> Value:
    element = dtypes.element_of(call.dtype)
    args = values(emitter, call)
    packed: Value | None = emitter.packed("fma2", call.dtype, *args)
    if packed is not None and element in NARROW:
        return packed

    def compute(a: str, b: str, c: str) -> str:
        if element not in NARROW:
            return Text(emitter.fma(element, a, b, c))
        # The product of two short floats is exact in double precision, which rounds the sum once
        # more than it should only where it has twice the digits to spare.
        wide = [t.prefix(f"({emitter.dialect.type('double')})", x) for x in (a, b, c)]
        exact = t.binary("+", t.binary("*", wide[0], wide[1]), wide[2])
        return Text(emitter.convert(exact, "float64", element))

    return emitter.each(call.dtype, compute, *args)


# ---- integers


@intrinsic("bitwise_and", "bitwise_or", "bitwise_xor")
def _bitwise(emitter: MemoryEmitter, call: Call) -> Value:
    element = dtypes.element_of(call.dtype)
    name = call.op.name
    made: Value = emitter.each(
        call.dtype, lambda a, b: emitter.bitwise(name, element, a, b), *values(emitter, call)
    )
    return made


@intrinsic("bitwise_not")
def _bitwise_not(emitter: MemoryEmitter, call: Call) -> Value:
    element = dtypes.element_of(call.dtype)
    bits = dtypes.bits_of(element)

    def compute(a: str) -> Text:
        if element == "bool":
            return t.prefix("!", a)
        made = t.prefix("~", a)
        if bits == 4:
            return Text(emitter.help("nibble", element, made))
        return made if bits >= 32 else t.prefix(f"({emitter.dialect.register(element)})", made)

    return emitter.each(call.dtype, compute, emitter.visit(call.args[0]))


@intrinsic("shift_left", "shift_right")
def _shift(emitter: MemoryEmitter, call: Call) -> Value:
    element = dtypes.element_of(call.dtype)
    amount = as_int(
        getattr(call.args[1], "value", call.args[1]) if _is_splat(call) else call.args[1]
    )
    bits, register = dtypes.bits_of(element), emitter.dialect.register(element)
    name = call.op.name

    def compute(a: str, b: str) -> Text:
        if amount is None or not 0 <= amount < bits:
            made = emitter.help(name, element, a, b)
        elif name == "shift_right":
            made = t.binary(">>", t.prefix(f"({register})", a), b)
        else:
            wide = emitter.dialect.register("uint64" if bits == 64 else "uint32")
            made = t.binary("<<", t.prefix(f"({wide})", a), b)
            if bits != 32 or element == "int32":
                made = t.prefix(f"({register})", made)
        return Text(emitter.help("nibble", element, made)) if bits == 4 else made

    return emitter.each(call.dtype, compute, *values(emitter, call))


def _is_splat(call: Call) -> bool:
    return type(call.args[1]).__name__ == "Broadcast"


@intrinsic("truncdiv", "truncmod", "indexdiv", "indexmod")
def _truncated(emitter: MemoryEmitter, call: Call) -> Value:
    element, name = dtypes.element_of(call.dtype), call.op.name
    symbol = "/" if name.endswith("div") else "%"
    family = "trunc_div" if name == "truncdiv" else "trunc_mod"
    divisor = call.args[1]
    number = as_int(divisor.value if type(divisor).__name__ == "Broadcast" else divisor)  # type: ignore[attr-defined]
    plain = name.startswith("index") or (number is not None and number > 0)

    def compute(a: str, b: str) -> Text:
        made = t.binary(symbol, a, b) if plain else emitter.help(family, element, a, b)
        if dtypes.bits_of(element) < 32 and dtypes.bits_of(element) > 4:
            return t.prefix(f"({emitter.dialect.register(element)})", made)
        return Text(emitter.help("nibble", element, made)) if dtypes.bits_of(element) == 4 else made

    return emitter.each(call.dtype, compute, *values(emitter, call))


@intrinsic("popcount", "clz")
def _count_bits(emitter: MemoryEmitter, call: Call) -> Value:
    source, element = (dtypes.element_of(x) for x in (call.args[0].dtype, call.dtype))
    name = call.op.name

    def compute(a: str) -> Text:
        bits = emitter.to_bits(a, source)
        if dtypes.bits_of(source) == 4:
            wide = emitter.help(name, "uint8", bits)
            wide = t.binary("-", wide, "4") if name == "clz" else wide
            return Text(emitter.convert(wide, "int32", element))
        return Text(emitter.convert(emitter.help(name, source, bits), "int32", element))

    return emitter.each(call.dtype, compute, emitter.visit(call.args[0]))


@intrinsic("min_value", "max_value", "infinity")
def _limit(emitter: MemoryEmitter, call: Call) -> Value:
    if call.op.name == "infinity":
        return Text(emitter.number(float("inf"), call.dtype))
    made: Value = emitter.visit(
        least_of(call.dtype) if call.op.name == "min_value" else greatest_of(call.dtype)
    )
    return made


# ---- choices


@intrinsic("likely", "ignore_loop_partition")
def _likely(emitter: MemoryEmitter, call: Call) -> Value:
    made: Value = emitter.visit(call.args[0])
    return made


@intrinsic("assume")
def _assume(emitter: MemoryEmitter, call: Call) -> Value:
    return Text("0")  # the compiler gets no promises that it might take for more than they are


@intrinsic("if_then_else")
def _if_then_else(emitter: MemoryEmitter, call: Call) -> Value:
    condition, yes, no = call.args
    test = emitter.visit(condition)
    if not isinstance(test, Vector):
        made: Value = emitter.evaluated_if(
            test, lambda: emitter.visit(yes), lambda: emitter.visit(no), call.dtype
        )
        return made
    on = [emitter.named(lane, "bool", "on") for lane in test.lanes()]
    off = [t.prefix("!", lane) for lane in on]
    a = emitter.under_mask(on, lambda: emitter.visit(yes))
    b = emitter.under_mask(off, lambda: emitter.visit(no))
    made = emitter.each(call.dtype, emitter.choose, Vector(condition.dtype, on), a, b)
    return made


# ---- bits and lanes


@intrinsic("reinterpret")
def _reinterpret(emitter: MemoryEmitter, call: Call) -> Value:
    source, element = (dtypes.element_of(x) for x in (call.args[0].dtype, call.dtype))
    value = emitter.visit(call.args[0])
    if dtypes.bits_of(source) == dtypes.bits_of(element):

        def compute(x: str) -> Text:
            return Text(emitter.from_bits(emitter.to_bits(x, source), element))

        return emitter.each(call.dtype, compute, value)
    total = dtypes.bits_of(source) * dtypes.lanes_of(call.args[0].dtype)
    if total % 32:
        return _reinterpret_short(emitter, call, value)
    words = (
        emitter.words(value)
        if isinstance(value, Vector) and dtypes.bits_of(source) < 32
        else (_as_words(emitter, value, source))
    )
    return _from_words(emitter, words, call.dtype)


def _as_words(emitter: MemoryEmitter, value: Value, source: str) -> list[str]:
    """Values of 32 or 64 bits as words of 32."""
    lanes = value.lanes() if isinstance(value, Vector) else [value]
    made: list[str] = []
    for lane in lanes:
        bits = emitter.to_bits(lane, source)
        if dtypes.bits_of(source) == 32:
            made.append(emitter.named(bits, "uint32", "word"))
            continue
        both = emitter.named(bits, "uint64", "words")
        word = emitter.dialect.register("uint32")
        made.append(emitter.let(t.prefix(f"({word})", both), "uint32", "word"))
        high = t.prefix(f"({word})", t.binary(">>", both, "32"))
        made.append(emitter.let(high, "uint32", "word"))
    return made


def _from_words(emitter: MemoryEmitter, words: list[str], dtype: str) -> Value:
    element, lanes = dtypes.split_dtype(dtype)
    bits = dtypes.bits_of(element)
    if bits < 32:
        return emitter.from_words(words, dtype)
    if bits == 32:
        parts = [emitter.from_bits(word, element) for word in words]
    else:
        wide = emitter.dialect.register("uint64")
        parts = [
            emitter.from_bits(
                t.binary(
                    "|",
                    t.prefix(f"({wide})", low),
                    t.binary("<<", t.prefix(f"({wide})", high), "32"),
                ),
                element,
            )
            for low, high in zip(words[::2], words[1::2])
        ]
    return Text(parts[0]) if lanes == 1 else Vector(dtype, parts)


def _reinterpret_short(emitter: MemoryEmitter, call: Call, value: Value) -> Value:
    """Bits of less than a word: 8 or 16 of them, or 24."""
    source = dtypes.element_of(call.args[0].dtype)
    if isinstance(value, Vector):
        (word,) = emitter.words(value)
    else:
        bits = t.prefix(f"({emitter.dialect.register('uint32')})", emitter.to_bits(value, source))
        word = emitter.named(bits, "uint32", "word")
    made = emitter.from_words([word], call.dtype)
    return Text(made.lane(0)) if len(made) == 1 else made


@intrinsic("vector_low", "vector_high")
def _half(emitter: MemoryEmitter, call: Call) -> Value:
    value = emitter.visit(call.args[0])
    count = dtypes.lanes_of(call.dtype)
    start = 0 if call.op.name == "vector_low" else count
    element = dtypes.element_of(call.dtype)
    per = max(1, 32 // dtypes.bits_of(element))
    if value.words is not None and count % per == 0:
        words = value.words[start // per : (start + count) // per]
        return emitter.from_words(words, call.dtype)
    lanes = value.lanes()[start : start + count]
    return Text(lanes[0]) if count == 1 else Vector(call.dtype, lanes)


@intrinsic("vector_combine")
def _combine(emitter: MemoryEmitter, call: Call) -> Value:
    parts = values(emitter, call)
    if all(isinstance(part, Vector) and part.words is not None for part in parts):
        element = dtypes.element_of(call.dtype)
        if all(len(part) * dtypes.bits_of(element) % 32 == 0 for part in parts):
            words = [word for part in parts for word in part.words]  # type: ignore[union-attr]
            return emitter.from_words(words, call.dtype)
    lanes = [
        lane for part in parts for lane in (part.lanes() if isinstance(part, Vector) else [part])
    ]
    return Vector(call.dtype, lanes)


@intrinsic("vector_reduce_add", "vector_reduce_max", "vector_reduce_min")
def _reduce(emitter: MemoryEmitter, call: Call) -> Value:
    element, name = dtypes.element_of(call.dtype), call.op.name.removeprefix("vector_reduce_")
    value = emitter.visit(call.args[0])
    lanes = value.lanes() if isinstance(value, Vector) else [value]
    wide = "float32" if element in NARROW else element

    def join(a: str, b: str) -> Text:
        if name == "add":
            return Text(emitter.arithmetic("Add", wide, a, b, True))
        return Text(emitter.extremum(name, element, a, b))

    while len(lanes) > 1:  # by halves, so that sums don't wait for each other
        half = len(lanes) // 2
        joined = [emitter.let(join(lanes[n], lanes[n + half]), wide, "sum") for n in range(half)]
        lanes = [*joined, *lanes[2 * half :]]
    return Text(emitter.rounded(lanes[0], element))


@intrinsic("dot_accumulate")
def _dot_accumulate(emitter: MemoryEmitter, call: Call) -> Value:
    """Multiply neighbours and add them, one lane of the total after the other."""
    total, a, b = call.args
    element, count = dtypes.split_dtype(call.dtype)
    kinds = [dtypes.element_of(arg.dtype) for arg in (a, b)]
    per = 32 // dtypes.bits_of(kinds[0])
    start = emitter.visit(total)
    operands = [emitter.visit(arg) for arg in (a, b)]
    lanes: list[str] = []
    for number in range(count):
        own = start.lane(number) if isinstance(start, Vector) else start
        places = [
            range(number * per, number * per + per) if len(value) > per else range(per)
            for value in operands
        ]
        lanes.append(_dot(emitter, element, own, operands, places))
    return Text(lanes[0]) if count == 1 else Vector(call.dtype, lanes)


def _dot(
    emitter: MemoryEmitter,
    element: str,
    own: str,
    operands: list[Vector],
    places: list[range],
) -> str:
    if dtypes.kind_of(element) == "float":
        made = own
        for x, y in zip(*places):
            made = emitter.fma("float32", operands[0].lane(x), operands[1].lane(y), made)
        return made
    terms = [
        t.binary(
            "*", t.prefix("(int)", operands[0].lane(x)), t.prefix("(int)", operands[1].lane(y))
        )
        for x, y in zip(*places)
    ]
    made = own
    for term in terms:
        made = emitter.arithmetic("Add", element, made, term, True)
    return made


# ---- pointers and foreign code


@intrinsic("address_of")
def _address_of(emitter: MemoryEmitter, call: Call) -> Value:
    load = call.args[0]
    if not isinstance(load, BufferLoad):
        raise CodegenError(f"address_of takes a buffer element, got {load!r}")
    return Text(emitter.address(load))


@intrinsic("access_ptr")
def _access_ptr(emitter: MemoryEmitter, call: Call) -> Value:
    data, offset = call.args[0], call.args[1]
    found = [(kind, name) for (var, kind), name in emitter.pointers.items() if var is data]
    if not found:
        raise CodegenError(f"access_ptr takes the data variable of a buffer, got {data!r}")
    index = emitter.scalar(offset)
    return t.binary("+", found[0][1], index) if index != "0" else Text(found[0][1])


@intrinsic("misalignment")
def _misalignment(emitter: MemoryEmitter, call: Call) -> Value:
    size = as_int(call.args[1])
    if size is None or size <= 0 or size & (size - 1):
        raise CodegenError(f"misalignment(address, n) takes a power of two, got {call!r}")
    address = t.prefix(f"({emitter.dialect.register('uint64')})", emitter.scalar(call.args[0]))
    made = t.binary("&", address, str(size - 1))
    return t.prefix(f"({emitter.dialect.register(dtypes.element_of(call.dtype))})", made)


@intrinsic("prefetch")
def _prefetch(emitter: MemoryEmitter, call: Call) -> Value:
    return Text("0")  # a hint


@intrinsic("atomic_add")
def _atomic_add(emitter: MemoryEmitter, call: Call) -> Value:
    address, value = call.args
    if not (isinstance(address, Call) and address.op.name == "address_of"):
        raise CodegenError(f"atomic_add takes address_of(buffer[...]), got {address!r}")
    load: Any = address.args[0]
    element = dtypes.element_of(load.buffer.dtype)
    pointer = emitter.address(load)
    text = emitter.help("atomic_add", element, pointer, emitter.scalar(value))
    return Text(emitter.let(text, element, "before"))


@intrinsic("call_extern", "call_pure_extern")
def _call_extern(emitter: MemoryEmitter, call: Call) -> Value:
    name, args = named_by(call, "function", _IDENTIFIER), call.args[1:]
    if dtypes.lanes_of(call.dtype) > 1:
        raise CodegenError(f"{call.op.name} of {call.dtype}: functions give scalars")
    texts = [
        emitter.scalar(arg) if not isinstance(arg, IntImm) else emitter.visit(arg) for arg in args
    ]
    made = Text(f"{name}({', '.join(texts)})")
    if call.dtype == "void" or call.op.name == "call_pure_extern":
        return made
    return Text(emitter.let(made, dtypes.element_of(call.dtype), "result"))


@intrinsic("call_llvm_intrin", "call_llvm_pure_intrin")
def _llvm_intrinsic(emitter: MemoryEmitter, call: Call) -> Value:
    raise CodegenError(
        f"{call.op.name} names an intrinsic of LLVM, which the {emitter.dialect.name} code "
        "generator doesn't have; call_extern calls a function of the target's"
    )


@intrinsic("constant_data", "call_packed", "packed_tensor")
def _host_only(emitter: MemoryEmitter, call: Call) -> Value:
    raise CodegenError(
        f"{call.op.name} is for functions of the host; a kernel gets what it needs as an argument"
    )


@intrinsic("ret")
def _ret(emitter: MemoryEmitter, call: Call) -> Value:
    if as_int(call.args[0]) != 0:
        raise CodegenError(
            f"a kernel returns nothing: only ret(0) has code, got ret({call.args[0]!r})"
        )
    emitter.line(emitter.dialect.options.get("return", "return;"))
    return Text("0")


@intrinsic("storage_sync")
def _storage_sync(emitter: MemoryEmitter, call: Call) -> Value:
    scope = getattr(call.args[0], "value", None)
    text = emitter.dialect.barriers.get(scope or "")
    if text is None:
        raise CodegenError(
            f"{emitter.dialect.name} has no barrier of scope {scope!r}; it has: "
            f"{', '.join(emitter.dialect.barriers) or 'none'}"
        )
    emitter.line(text)
    return Text("0")
