"""Helpers that are better, or only there, on NVIDIA GPUs: PTX instructions and CUDA's built-ins.

No header of CUDA's is included, so that NVRTC needs none. A kernel's text holds the helpers that it
calls and no others.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.codegen.c.dialect import SUFFIXES, Dialect, Helper, Maker
from tilewright.codegen.c.helpers import HELPERS, fill, unsigned
from tilewright.ir import dtypes
from tilewright.support.errors import CodegenError

PRELUDE: dict[str, Maker] = {}
"""The makers of helpers by family; see :mod:`codegen.c.helpers`."""


def _helper(*families: str) -> Callable[[Maker], Maker]:
    def register(make: Maker) -> Maker:
        PRELUDE.update(dict.fromkeys(families, make))
        return make

    return register


def _capability(dialect: Dialect) -> int:
    return int(dialect.options["capability"])


# ---- bits


@_helper("bits")
def _bits(dialect: Dialect, element: str) -> Helper:
    builtin = {"float32": "__float_as_uint", "float64": "__double_as_longlong"}[element]
    text = f"$fn $U tw_bits_$s($T x) {{ return {builtin}(x); }}"
    return Helper(fill(dialect, element, text, U=dialect.register(unsigned(element))))


@_helper("from_bits")
def _from_bits(dialect: Dialect, element: str) -> Helper:
    builtin = {"float32": "__uint_as_float", "float64": "__longlong_as_double"}[element]
    text = f"$fn $T tw_from_bits_$s($U x) {{ return {builtin}(x); }}"
    return Helper(fill(dialect, element, text, U=dialect.register(unsigned(element))))


def _count(family: str, narrow: str, wide: str) -> Maker:
    def make(dialect: Dialect, element: str) -> Helper:
        bits = dtypes.bits_of(element)
        call = f"{wide}((long long)a)" if bits == 64 else f"{narrow}((int)a)"
        less = f" - {32 - bits}" if family == "clz" and bits < 32 else ""
        text = f"$fn int tw_{family}_$s($U a) {{ return {call}{less}; }}"
        return Helper(fill(dialect, element, text, U=dialect.register(unsigned(element))))

    return make


PRELUDE["popcount"] = _count("popcount", "__popc", "__popcll")
PRELUDE["clz"] = _count("clz", "__clz", "__clzll")


# ---- least and greatest numbers


def _extremum(family: str) -> Maker:
    shared = HELPERS[family]

    def make(dialect: Dialect, element: str) -> Helper:
        if element != "float32" or _capability(dialect) < 80:
            return shared(dialect, element)
        text = f"""
$fn float tw_{family}_f32(float a, float b) {{
  float made;
  asm("{family}.NaN.f32 %0, %1, %2;" : "=f"(made) : "f"(a), "f"(b));
  return made;
}}"""
        return Helper(fill(dialect, element, text))

    return make


PRELUDE["min"], PRELUDE["max"] = _extremum("min"), _extremum("max")


# ---- short floats


def _asm(name: str, result: str, args: str, body: str, outputs: str, inputs: str) -> str:
    return (
        f"$fn {result} {name}({args}) {{\n  {result} made;\n"
        f'  asm("{body}" : {outputs} : {inputs});\n  return made;\n}}'
    )


@_helper("to")
def _to(dialect: Dialect, element: str) -> Helper:
    """Round to the nearest, halves to even; the hardware's fp8 saturates, which IEEE's doesn't."""
    capability = _capability(dialect)
    if element == "float16" or (element == "bfloat16" and capability >= 80):
        kind = SUFFIXES[element]
        body = f"cvt.rn.{kind}.f32 %0, %1;"
        text = _asm(f"tw_to_{kind}", "unsigned short", "float x", body, '"=h"(made)', '"f"(x)')
        return Helper(fill(dialect, element, text))
    if capability >= 89 and element in ("float8_e4m3fn", "float8_e5m2"):
        kind = SUFFIXES[element]
        # Beyond half a step over the greatest number, which the hardware gives instead.
        limit, over = ("464.0f", "0x7f") if kind == "e4m3" else ("61440.0f", "0x7c")
        test = ">" if kind == "e4m3" else ">="
        text = f"""
$fn unsigned char tw_to_{kind}(float x) {{
  unsigned short made;
  asm("cvt.rn.satfinite.{kind}x2.f32 %0, %1, %2;" : "=h"(made) : "f"(0.0f), "f"(x));
  unsigned int bits = __float_as_uint(x);
  unsigned char sign = bits >> 31 << 7;
  return fabsf(x) {test} {limit} ? sign | {over} : (unsigned char)made;
}}"""
        return Helper(fill(dialect, element, text))
    return HELPERS["to"](dialect, element)


@_helper("from")
def _from(dialect: Dialect, element: str) -> Helper:
    if element == "float16":
        text = _asm(
            "tw_from_f16",
            "float",
            "unsigned short x",
            "cvt.f32.f16 %0, %1;",
            '"=f"(made)',
            '"h"(x)',
        )
        return Helper(fill(dialect, element, text))
    if _capability(dialect) >= 89 and element in ("float8_e4m3fn", "float8_e5m2"):
        kind = SUFFIXES[element]
        text = f"""
$fn float tw_from_{kind}(unsigned char x) {{
  unsigned int halves;
  asm("cvt.rn.f16x2.{kind}x2 %0, %1;" : "=r"(halves) : "h"((unsigned short)x));
  return tw_from_f16((unsigned short)halves);
}}"""
        return Helper(fill(dialect, element, text), (("from", "float16"),))
    return HELPERS["from"](dialect, element)


# ---- pairs of short floats


@_helper("pair_from")
def _pair_from(dialect: Dialect, element: str) -> Helper:
    """Two halves of two 8-bit floats, in one instruction."""
    kind = SUFFIXES[element]
    body = f"cvt.rn.f16x2.{kind}x2 %0, %1;"
    text = _asm(
        f"tw_pair_from_{kind}", "unsigned int", "unsigned short x", body, '"=r"(made)', '"h"(x)'
    )
    return Helper(fill(dialect, element, text))


@_helper("pack")
def _pack(dialect: Dialect, element: str) -> Helper:
    """Two floats in one word, the second argument in its low half."""
    kind = SUFFIXES[element]
    if _capability(dialect) >= 80:
        body = f"cvt.rn.{kind}x2.f32 %0, %1, %2;"
        text = _asm(
            f"tw_pack_{kind}",
            "unsigned int",
            "float high, float low",
            body,
            '"=r"(made)',
            '"f"(high), "f"(low)',
        )
        return Helper(fill(dialect, element, text))
    text = """
$fn unsigned int tw_pack_$s(float high, float low) {
  return (unsigned int)tw_to_$s(high) << 16 | tw_to_$s(low);
}"""
    return Helper(fill(dialect, element, text), (("to", element),))


def _pair(family: str, operands: int) -> Maker:
    """An operation on two short floats at once, each result rounded."""

    def make(dialect: Dialect, element: str) -> Helper:
        kind, name = SUFFIXES[element], family.removesuffix("2")
        args = ", ".join(f"unsigned int {letter}" for letter in "abc"[:operands])
        inputs = ", ".join(f'"r"({letter})' for letter in "abc"[:operands])
        places = ", ".join(f"%{n}" for n in range(1, operands + 1))
        extra = ""
        if name in ("min", "max"):
            operation = f"{name}.NaN"
        elif element == "bfloat16" and name != "fma" and _capability(dialect) < 90:
            # Before sm_90 there is only fma: a + b is a * 1 + b, a * b is a * b - 0.
            operation, (places, extra) = "fma.rn", _AS_FMA[name]
            inputs += f', "r"({extra})'
        else:
            operation = f"{name}.rn"
        body = f"{operation}.{kind}x2 %0, {places};"
        text = _asm(f"tw_{family}_{kind}", "unsigned int", args, body, '"=r"(made)', inputs)
        return Helper(fill(dialect, element, text))

    return make


_AS_FMA = {
    "add": ("%1, %3, %2", "0x3f803f80u"),
    "sub": ("%2, %3, %1", "0xbf80bf80u"),
    "mul": ("%1, %2, %3", "0x80008000u"),
}
for _name in ("add2", "sub2", "mul2", "min2", "max2"):
    PRELUDE[_name] = _pair(_name, 2)
PRELUDE["fma2"] = _pair("fma2", 3)


# ---- atomic updates, which give what was there before


@_helper("atomic_add")
def _atomic_add(dialect: Dialect, element: str) -> Helper:
    if element in ("int32", "uint32", "uint64", "float32", "float64"):
        text = "$fn $T tw_atomic_add_$s($T* place, $T value) { return atomicAdd(place, value); }"
        return Helper(fill(dialect, element, text))
    if element == "int64":
        text = """
$fn $T tw_atomic_add_$s($T* place, $T value) {
  return ($T)atomicAdd(($u64*)place, ($u64)value);
}"""
        return Helper(fill(dialect, element, text))
    least = {"float16": 70, "bfloat16": 90}.get(element)
    if least is not None and _capability(dialect) >= least:
        text = """
$fn float tw_atomic_add_$s(unsigned short* place, float value) {
  unsigned short made;
  asm volatile("atom.add.noftz.$s %0, [%1], %2;"
               : "=h"(made) : "l"(place), "h"(tw_to_$s(value)) : "memory");
  return tw_from_$s(made);
}"""
        return Helper(fill(dialect, element, text), (("from", element), ("to", element)))
    if dtypes.bits_of(element) not in (8, 16):
        raise CodegenError(f"atomic_add of {element} has no code; it takes whole bytes")
    return _by_exchange(dialect, element)


def _by_exchange(dialect: Dialect, element: str) -> Helper:
    """Short elements: the word around one is exchanged until nobody else has changed it."""
    bits = dtypes.bits_of(element)
    short = dtypes.kind_of(element) == "float"
    decode = f"tw_from_{SUFFIXES[element]}" if short else "($T)"
    encode = f"tw_to_{SUFFIXES[element]}" if short else "($M)"
    text = f"""
$fn $T tw_atomic_add_$s($P* place, $T value) {{
  $u64 address = ($u64)place;
  unsigned int* word = (unsigned int*)(address & ~3ull);
  unsigned int shift = (unsigned int)(address & 3) * 8, mask = {(1 << bits) - 1:#x}u << shift;
  unsigned int seen = *(volatile unsigned int*)word, assumed;
  $T before;
  do {{
    assumed = seen;
    before = {decode}(($M)(assumed >> shift));
    unsigned int made = ($M){encode}(before + value);
    seen = atomicCAS(word, assumed, (assumed & ~mask) | made << shift);
  }} while (seen != assumed);
  return before;
}}"""
    if element == "bool":
        raise CodegenError("atomic_add of bool has no meaning")
    needs = (("from", element), ("to", element)) if short else ()
    memory = dialect.memory(element)
    bits_in_word = memory if short else dialect.register(unsigned(element))
    return Helper(fill(dialect, element, text, M=bits_in_word, P=memory), needs)


@_helper("put_nibble_atomically")
def _put_nibble(dialect: Dialect, element: str) -> Helper:
    """Write one half of a byte where another thread may write the other."""
    text = """
$fn void tw_put_nibble_atomically_u4(unsigned char* data, long long place, unsigned int value) {
  unsigned long long address = (unsigned long long)(data + (place >> 1));
  unsigned int* word = (unsigned int*)(address & ~3ull);
  unsigned int shift = (unsigned int)(address & 3) * 8 + (unsigned int)(place & 1) * 4;
  atomicAnd(word, ~(15u << shift));
  atomicOr(word, (value & 15u) << shift);
}"""
    return Helper(fill(dialect, element, text))


# ---- dot products of bytes


def _dot(family: str, a: str, b: str) -> Maker:
    def make(dialect: Dialect, element: str) -> Helper:
        text = f"""
$fn int tw_{family}_i32(unsigned int a, unsigned int b, int total) {{
  int made;
  asm("dp4a.{a}.{b} %0, %1, %2, %3;" : "=r"(made) : "r"(a), "r"(b), "r"(total));
  return made;
}}"""
        return Helper(fill(dialect, "int32", text))

    return make


PRELUDE["dot_ss"] = _dot("dot_ss", "s32", "s32")
PRELUDE["dot_uu"] = _dot("dot_uu", "u32", "u32")
PRELUDE["dot_us"] = _dot("dot_us", "u32", "s32")


# ---- fast math


@_helper("tanh_approx")
def _tanh(dialect: Dialect, element: str) -> Helper:
    text = _asm(
        "tw_tanh_approx_f32", "float", "float x", "tanh.approx.f32 %0, %1;", '"=f"(made)', '"f"(x)'
    )
    return Helper(fill(dialect, element, text))


# ---- asynchronous copies


def _copy_async(size: int) -> Maker:
    def make(dialect: Dialect, element: str) -> Helper:
        cache = "cg" if size == 16 else "ca"
        text = f"""
$fn void tw_copy_async{size}_u8(void* to, const void* from, bool on) {{
  unsigned int place = (unsigned int)__cvta_generic_to_shared(to);
  asm volatile("cp.async.{cache}.shared.global [%0], [%1], {size}, %2;"
               :: "r"(place), "l"(from), "r"(on ? {size} : 0) : "memory");
}}"""
        return Helper(fill(dialect, element, text))

    return make


for _size in (4, 8, 16):
    PRELUDE[f"copy_async{_size}"] = _copy_async(_size)
