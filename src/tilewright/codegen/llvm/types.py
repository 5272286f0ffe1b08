"""How dtypes look in LLVM IR: register types, memory types, constants.

A value's register type may differ from its memory type: truth values are ``i1`` in registers and a
byte in memory; 16-bit floats are computed in single precision and rounded when they are stored or
cast, and after each operation. The emitters convert at loads and stores.
"""

from __future__ import annotations

import struct
from functools import cache

from tilewright.ir import ScalableLanes, dtypes
from tilewright.support.errors import CodegenError

_REGISTER = {
    "bool": "i1",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "i8",
    "uint16": "i16",
    "uint32": "i32",
    "uint64": "i64",
    "float16": "float",
    "bfloat16": "float",
    "float32": "float",
    "float64": "double",
    "handle": "ptr",
    "void": "void",
}
# bfloat16 is moved as an integer: LLVM's conversions are library calls on CPUs without AVX512-BF16.
_MEMORY = {**_REGISTER, "bool": "i8", "float16": "half", "bfloat16": "i16"}


def _element(table: dict[str, str], element: str) -> str:
    made = table.get(element)
    if made is None:
        raise CodegenError(f"the LLVM code generator has no {element}; it knows {', '.join(table)}")
    return made


@cache
def wide_dtype(dtype: str) -> str:
    """The dtype in which a function gives a value of ``dtype`` to its caller."""
    return "float64" if dtypes.is_float(dtype) else "int64"


def lanes_suffix(lanes: int) -> str:
    """Return the part of a type suffix that says how many lanes there are: ``v16``, ``nxv4``."""
    return f"nxv{lanes.factor}" if isinstance(lanes, ScalableLanes) else f"v{lanes}"


def register_type(dtype: str) -> str:
    """Return the LLVM type of an SSA value."""
    element, lanes = dtypes.split_dtype(dtype)
    made = _element(_REGISTER, element)
    return made if lanes == 1 else f"<{lanes} x {made}>"


@cache
def memory_type(dtype: str) -> str:
    """Return the LLVM type of a value in memory."""
    element, lanes = dtypes.split_dtype(dtype)
    made = _element(_MEMORY, element)
    return made if lanes == 1 else f"<{lanes} x {made}>"


@cache
def is_narrow(dtype: str) -> bool:
    """Whether registers are wider than the floats they hold."""
    return dtypes.element_of(dtype) in ("float16", "bfloat16")


@cache
def memory_bytes(dtype: str) -> int:
    """Return the bytes that one element takes in memory."""
    return dtypes.bytes_of(dtypes.element_of(dtype))


@cache
def intrinsic_suffix(dtype: str) -> str:
    """Return the type suffix of overloaded intrinsics for a register type: ``f32``, ``v16f32``."""
    element, lanes = dtypes.split_dtype(dtype)
    scalar = {"float": "f32", "double": "f64", "ptr": "p0"}.get(register_type(element))
    scalar = scalar or register_type(element)
    return scalar if lanes == 1 else f"{lanes_suffix(lanes)}{scalar}"


def float_text(value: float, double: bool) -> str:
    """Spell a float constant; LLVM writes both formats as the bits of the equal double."""
    if not double:
        try:
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        except OverflowError:
            value = float("inf") if value > 0 else float("-inf")
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def round_half(value: float) -> float:
    """Round a number to the nearest float16."""
    try:
        rounded: float = struct.unpack("<e", struct.pack("<e", value))[0]
    except OverflowError:
        rounded = float("inf") if value > 0 else float("-inf")
    return rounded


def round_bfloat(value: float) -> float:
    """Round a number to the nearest bfloat16, ties to even."""
    if value != value or value in (float("inf"), float("-inf")):
        return value
    try:
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    bits += 0x7FFF + ((bits >> 16) & 1)
    rounded: float = struct.unpack("<f", struct.pack("<I", bits & 0xFFFF0000))[0]
    return rounded


def constant_text(value: float | int, dtype: str) -> str:
    """Return the operand text of a constant; vector dtypes give a splat."""
    element, lanes = dtypes.split_dtype(dtype)
    kind = dtypes.kind_of(element)
    if kind == "bool":
        text = "true" if value else "false"
    elif kind == "float":
        if element == "float16":
            value = round_half(value)
        elif element == "bfloat16":
            value = round_bfloat(value)
        text = float_text(value, element == "float64")
    elif kind == "handle":
        text = "null" if value == 0 else f"inttoptr (i64 {int(value)} to ptr)"
    else:
        text = str(int(value))
    return text if lanes == 1 else f"splat ({register_type(element)} {text})"


def _escaped(data: bytes) -> str:
    return "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:02X}" for byte in data
    )


def global_name(name: str) -> str:
    """Return a name as that of an LLVM global; whatever it holds, it stays a name."""
    if not name or "\0" in name:
        raise CodegenError(f"{name!r} can't be the name of a symbol")
    return f'@"{_escaped(name.encode())}"'


def c_string(text: str) -> str:
    """Return the LLVM type and value of a constant that holds ``text`` and a zero byte."""
    data = text.encode() + b"\0"
    return f'[{len(data)} x i8] c"{_escaped(data)}"'
