"""Helper functions of generated code that are the same in every C-like language.

A helper is a family (``floor_div``) and an element type. Its text is written in the dialect's own
types; a dialect may have a better one, or one that its instructions do (``Dialect.helpers``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from string import Template

from tilewright.codegen.c.dialect import SUFFIXES, Dialect, Helper, Maker
from tilewright.ir import dtypes
from tilewright.ir.float_formats import FLOAT_FORMATS, IEEE
from tilewright.support.errors import CodegenError

_CALLED = re.compile(r"\btw_\w+")
HELPERS: dict[str, Maker] = {}
"""The makers of helpers by family."""


def helper(*families: str) -> Callable[[Maker], Maker]:
    """Register the maker of helpers."""

    def register(make: Maker) -> Maker:
        HELPERS.update(dict.fromkeys(families, make))
        return make

    return register


def helper_symbol(family: str, element: str) -> str:
    """Return the name of a helper."""
    return f"tw_{family}_{SUFFIXES[element]}"


def used_helpers(wanted: Iterable[tuple[str, str]], texts: Iterable[str]) -> list[tuple[str, str]]:
    """Return the helpers that are called in texts, of those that were asked for."""
    called = {name for text in texts for name in _CALLED.findall(text)}
    return [key for key in wanted if helper_symbol(*key) in called]


def helper_texts(dialect: Dialect, wanted: Iterable[tuple[str, str]]) -> list[str]:
    """Return the texts of helpers and of all that they call, each after what it calls."""
    texts: dict[tuple[str, str], str] = {}

    def add(key: tuple[str, str]) -> None:
        if key in texts:
            return
        family, element = key
        make = dialect.helpers.get(family) or HELPERS.get(family)
        if make is None:
            raise CodegenError(f"the {dialect.name} code generator has no helper {family!r}")
        made = make(dialect, element)
        for needed in made.needs:
            add(needed)
        texts[key] = made.text

    for key in wanted:
        add(key)
    return list(texts.values())


def fill(dialect: Dialect, element: str, text: str, **more: str) -> str:
    """Fill in a helper's text: ``$fn`` its qualifiers, ``$T`` the element's type, ``$name_family``.

    ``$i32`` … are types, ``$s`` the suffix of names of the element's helpers.
    """
    kinds = {
        name: dialect.type(f"{sign}int{bits}_t")
        for sign, letter in (("", "i"), ("u", "u"))
        for bits in (8, 16, 32, 64)
        for name in (f"{letter}{bits}",)
    }
    own = {"fn": dialect.function, "T": dialect.register(element), "s": SUFFIXES[element]}
    return Template(text.strip()).substitute(
        kinds | own | {"bool": dialect.type("bool"), "LL": dialect.long_suffix} | more
    )


def unsigned(element: str) -> str:
    """Return the unsigned integer type of an element's width."""
    return f"uint{dtypes.bits_of(element)}"


# ---- integers


def _of_naturals(dialect: Dialect, element: str, name: str, operator: str) -> Helper:
    text = f"$fn $T tw_{name}_$s($T a, $T b) {{ return b == 0 ? 0 : a {operator} b; }}"
    return Helper(fill(dialect, element, text))


@helper("floor_div")
def _floor_div(dialect: Dialect, element: str) -> Helper:
    """Quotient rounded down; 0 for a divisor of 0; the minimum by -1 is the minimum."""
    if dtypes.kind_of(element) == "uint":
        return _of_naturals(dialect, element, "floor_div", "/")
    text = """
$fn $T tw_floor_div_$s($T a, $T b) {
  if (b == 0) return 0;
  if (b == -1) return ($T)(0 - ($U)a);
  $T quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0));
}"""
    return Helper(fill(dialect, element, text, U=dialect.register(_wide_unsigned(element))))


@helper("floor_mod")
def _floor_mod(dialect: Dialect, element: str) -> Helper:
    if dtypes.kind_of(element) == "uint":
        return _of_naturals(dialect, element, "floor_mod", "%")
    text = """
$fn $T tw_floor_mod_$s($T a, $T b) {
  if (b == 0 || b == -1) return 0;
  $T rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}"""
    return Helper(fill(dialect, element, text))


@helper("trunc_div")
def _trunc_div(dialect: Dialect, element: str) -> Helper:
    if dtypes.kind_of(element) == "uint":
        return Helper(
            fill(
                dialect,
                element,
                "$fn $T tw_trunc_div_$s($T a, $T b) { return b == 0 ? 0 : a / b; }",
            )
        )
    text = """
$fn $T tw_trunc_div_$s($T a, $T b) {
  return b == 0 ? 0 : b == -1 ? ($T)(0 - ($U)a) : a / b;
}"""
    return Helper(fill(dialect, element, text, U=dialect.register(_wide_unsigned(element))))


@helper("trunc_mod")
def _trunc_mod(dialect: Dialect, element: str) -> Helper:
    also = "" if dtypes.kind_of(element) == "uint" else " || b == -1"
    text = f"$fn $T tw_trunc_mod_$s($T a, $T b) {{ return b == 0{also} ? 0 : a % b; }}"
    return Helper(fill(dialect, element, text))


def _wide_unsigned(element: str) -> str:
    """The unsigned type in which sums and products of an integer type wrap."""
    return "uint64" if dtypes.bits_of(element) == 64 else "uint32"


@helper("shift_left")
def _shift_left(dialect: Dialect, element: str) -> Helper:
    """Shift; an amount outside of the width moves all bits out."""
    negative = "" if dtypes.kind_of(element) == "uint" else "b < 0 || "
    text = f"""
$fn $T tw_shift_left_$s($T a, $T b) {{
  return {negative}b >= $bits ? 0 : ($T)(($U)a << b);
}}"""
    return Helper(
        fill(
            dialect,
            element,
            text,
            U=dialect.register(_wide_unsigned(element)),
            bits=str(dtypes.bits_of(element)),
        )
    )


@helper("shift_right")
def _shift_right(dialect: Dialect, element: str) -> Helper:
    bits = dtypes.bits_of(element)
    if dtypes.kind_of(element) == "uint":
        text = "$fn $T tw_shift_right_$s($T a, $T b) { return b >= $bits ? 0 : a >> b; }"
    else:
        text = """
$fn $T tw_shift_right_$s($T a, $T b) { return a >> (b < 0 || b >= $bits ? $most : b); }"""
    return Helper(fill(dialect, element, text, bits=str(bits), most=str(bits - 1)))


def _extremum(family: str, symbol: str) -> Maker:
    def make(dialect: Dialect, element: str) -> Helper:
        # NaN if either is NaN; the first of equals.
        nan = " || b != b" if dtypes.is_float(element) else ""
        text = f"$fn $T tw_{family}_$s($T a, $T b) {{ return b {symbol} a{nan} ? b : a; }}"
        return Helper(fill(dialect, element, text))

    return make


HELPERS["min"], HELPERS["max"] = _extremum("min", "<"), _extremum("max", ">")


@helper("abs")
def _abs(dialect: Dialect, element: str) -> Helper:
    text = "$fn $T tw_abs_$s($T a) { return a < 0 ? ($T)(0 - ($U)a) : a; }"
    return Helper(fill(dialect, element, text, U=dialect.register(_wide_unsigned(element))))


@helper("popcount")
def _popcount(dialect: Dialect, element: str) -> Helper:
    text = """
$fn $i32 tw_popcount_$s($U a) {
  $i32 count = 0;
  for (; a != 0; a &= a - 1) ++count;
  return count;
}"""
    return Helper(fill(dialect, element, text, U=dialect.register(unsigned(element))))


@helper("clz")
def _clz(dialect: Dialect, element: str) -> Helper:
    text = """
$fn $i32 tw_clz_$s($U a) {
  $i32 count = $bits;
  for (; a != 0; a >>= 1) --count;
  return count;
}"""
    return Helper(
        fill(
            dialect,
            element,
            text,
            bits=str(dtypes.bits_of(element)),
            U=dialect.register(unsigned(element)),
        )
    )


# ---- bits of floats


@helper("bits")
def _bits(dialect: Dialect, element: str) -> Helper:
    """The bits of a float as an integer."""
    return _reinterpreted(dialect, element, "$fn $U tw_bits_$s($T x)", "number", "bits")


@helper("from_bits")
def _from_bits(dialect: Dialect, element: str) -> Helper:
    return _reinterpreted(dialect, element, "$fn $T tw_from_bits_$s($U x)", "bits", "number")


def _reinterpreted(dialect: Dialect, element: str, head: str, given: str, wanted: str) -> Helper:
    text = f"""
{head} {{
  union {{ $T number; $U bits; }} both;
  both.{given} = x;
  return both.{wanted};
}}"""
    return Helper(fill(dialect, element, text, U=dialect.register(unsigned(element))))


def _format(element: str) -> tuple[int, int, bool]:
    """Exponent bits, fraction bits, and whether there are infinities."""
    form = FLOAT_FORMATS[element]
    return form.exponent_bits, form.mantissa_bits, form.special == IEEE


@helper("to")
def _to(dialect: Dialect, element: str) -> Helper:
    """Round a float to a shorter format, halves to even; what is too large becomes infinity.

    Where there are no infinities it becomes NaN.
    """
    exponent, fraction, infinite = _format(element)
    bias, drop = (1 << (exponent - 1)) - 1, 23 - fraction
    sign = exponent + fraction
    top = ((1 << exponent) - 1) << fraction
    nan = top | 1 << (fraction - 1) if infinite else top | ((1 << fraction) - 1)
    over = top if infinite else nan
    text = """
$fn $M tw_to_$s(float x) {
  $u32 bits = tw_bits_f32(x), sign = bits >> 31 << $sign, rounded;
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return ($M)(sign | $nan);
  if (bits < $least) {
    rounded = tw_bits_f32(tw_from_bits_f32(bits) + $magic) - tw_bits_f32($magic);
  } else {
    rounded = (bits - $shift + $half + (bits >> $drop & 1u)) >> $drop;
  }
  return ($M)(sign | (rounded $test ? $over : rounded));
}"""
    if exponent == 8:  # float32's own exponents: denormals are shortened as all others are
        text = """
$fn $M tw_to_$s(float x) {
  $u32 bits = tw_bits_f32(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return ($M)(bits >> 16 | 0x40u);
  return ($M)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}"""
    magic = 2.0 ** (23 - fraction - bias + 1)
    made = fill(
        dialect,
        element,
        text,
        M=dialect.memory(element),
        sign=str(sign),
        nan=f"{nan:#x}u",
        over=f"{over:#x}u",
        test=f">= {top:#x}u" if infinite else f"> {nan - 1:#x}u",
        least=f"{(127 - bias + 1) << 23:#x}u",
        magic=f"{magic!r}f",
        shift=f"{(127 - bias) << 23:#x}u",
        half=f"{(1 << (drop - 1)) - 1:#x}u",
        drop=str(drop),
    )
    return Helper(made, (("bits", "float32"), ("from_bits", "float32")))


@helper("from")
def _from(dialect: Dialect, element: str) -> Helper:
    """The float that the bits of a shorter format stand for."""
    exponent, fraction, infinite = _format(element)
    bias, drop = (1 << (exponent - 1)) - 1, 23 - fraction
    magnitude = (1 << (exponent + fraction)) - 1
    text = """
$fn float tw_from_$s($M x) {
  $u32 bits = x & $magnitude, sign = ($u32)x >> $sign << 31;
  if (bits >= $top) return tw_from_bits_f32(sign | 0x7f800000u | (bits $rest) << $drop);
  if (bits < $least) return tw_from_bits_f32(sign | tw_bits_f32((float)bits * $unit));
  return tw_from_bits_f32(sign | ((bits << $drop) + $shift));
}"""
    if exponent == 8:
        text = "$fn float tw_from_$s($M x) { return tw_from_bits_f32(($u32)x << 16); }"
    top = ((1 << exponent) - 1) << fraction
    made = fill(
        dialect,
        element,
        text,
        M=dialect.memory(element),
        magnitude=f"{magnitude:#x}u",
        sign=str(exponent + fraction),
        top=f"{top if infinite else magnitude:#x}u",
        rest=f"- {top:#x}u",
        drop=str(drop),
        least=f"{1 << fraction:#x}u",
        unit=f"{2.0 ** (1 - bias - fraction)!r}f",
        shift=f"{(127 - bias) << 23:#x}u",
    )
    return Helper(made, (("bits", "float32"), ("from_bits", "float32")))


@helper("round")
def _round(dialect: Dialect, element: str) -> Helper:
    """Round a float to a shorter format and stay in single precision."""
    text = "$fn float tw_round_$s(float x) { return tw_from_$s(tw_to_$s(x)); }"
    return Helper(fill(dialect, element, text), (("to", element), ("from", element)))


@helper("to_odd")
def _to_odd(dialect: Dialect, element: str) -> Helper:
    """Round a double to a float, an inexact one to the neighbour with an odd last bit.

    Rounding that once more, to a shorter format, gives what rounding the double itself gives.
    """
    text = """
$fn float tw_to_odd_f64(double x) {
  float near = (float)x;
  double error = x < 0 ? (double)near - x : x - (double)near;
  $u32 bits = tw_bits_f32(near);
  if (error == 0 || error != error || (bits & 1u) != 0) return near;
  return tw_from_bits_f32(error > 0 ? bits + 1u : bits - 1u);
}"""
    needs = (("bits", "float32"), ("from_bits", "float32"))
    return Helper(fill(dialect, "float64", text), needs)


# ---- floats to integers, which saturate; NaN becomes 0


def _saturating(source: str) -> Maker:
    def make(dialect: Dialect, element: str) -> Helper:
        low, high = dtypes.integer_limits(element)
        single = source == "float32"
        f, suffix = ("float", "f") if single else ("double", "")
        bound = 2.0 ** (high.bit_length())  # exact in either format, unlike the maximum
        down = f"x <= {float(low)!r}{suffix}" if low else "x <= 0"
        text = f"""
$fn $T tw_{"float" if single else "double"}_to_$s({f} x) {{
  return x != x ? 0 : {down} ? $low : x >= {bound!r}{suffix} ? $high : ($T)x;
}}"""
        bits, signed = dtypes.bits_of(element), low < 0
        low_text = f"(-{high}{dialect.long_suffix if bits == 64 else ''} - 1)" if signed else "0"
        suffix = "" if signed else "u"
        high_text = f"{high}{suffix}{dialect.long_suffix if bits == 64 else ''}"
        return Helper(fill(dialect, element, text, low=low_text, high=high_text))

    return make


HELPERS["float_to"], HELPERS["double_to"] = _saturating("float32"), _saturating("float64")


# ---- 4-bit integers, of which a byte holds two, the first in its low half


@helper("nibble")
def _nibble(dialect: Dialect, element: str) -> Helper:
    """Bring a number into the range of a 4-bit integer."""
    text = "$fn $T tw_nibble_$s($T x) { return x & 15u; }"
    if dtypes.kind_of(element) == "int":
        text = "$fn $T tw_nibble_$s($T x) { return ((x & 15) ^ 8) - 8; }"
    return Helper(fill(dialect, element, text))
