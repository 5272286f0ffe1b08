"""What tells one C-like language from another: a table of words and a few hooks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tilewright.codegen.c.vector import Value
from tilewright.ir import Call
from tilewright.support.errors import CodegenError

SUFFIXES = {
    "bool": "b8",
    "int4": "i4",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint4": "u4",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "float32": "f32",
    "float64": "f64",
}
"""Element types in the names of helper functions."""

NARROW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Floats that registers hold in single precision; memory has their bits."""

Maker = Callable[["Dialect", str], "Helper"]


@dataclass(frozen=True)
class Helper:
    """A function that generated code calls: its text, and the helpers that it calls itself."""

    text: str
    needs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Dialect:
    """A C-like language: how it spells types, functions, memory and threads."""

    name: str
    types: Mapping[str, str]
    """Types by the names of C99's ``stdint.h`` (``int32_t``), ``float``, ``double``, ``bool``."""
    kernel: str
    """What starts a kernel, up to its name, of ``{threads}`` of a block and ``{x}``, ``{y}``,
    ``{z}`` along its axes; ``{bounds}``: also how many blocks a processor is to have room for."""
    infinity: Mapping[str, str]
    """Texts of infinity and NaN: ``inf``, ``nan``, and ``inf64``, ``nan64`` of doubles."""
    math: Mapping[tuple[str, str], str]
    """Texts of functions by operator and ``float32`` or ``float64``, of ``{0}``, ``{1}`` …"""
    helpers: Mapping[str, Maker]
    """Makers of helpers that take the place of the shared ones, or have none."""
    function: str = "static inline"
    """Qualifiers of helper functions."""
    restrict: str = ""
    long_suffix: str = "L"
    """Suffix of 64-bit constants."""
    header: str = ""
    """What generated text starts with."""
    pointer_parameter: str = "{type} {restrict} {name}"
    scalar_parameter: str = "{type} {name}"
    more_parameters: tuple[str, ...] = ()
    """Parameters behind those of the program; ``{index}`` in the others is their position."""
    missing: frozenset[str] = frozenset()
    """Types that the language has not."""
    # ---- memory
    spaces: Mapping[str, str] = field(default_factory=dict)
    """Qualifiers of pointers by scope: OpenCL's ``__global``."""
    vector_types: Mapping[tuple[str, int], str] = field(default_factory=dict)
    """Types that memory moves at once, by memory type and number, and how lanes are named."""
    vector_bytes: int = 16
    """The most bytes that a load or store moves at once."""
    make: str = "make_{type}({parts})"
    """A value of a vector type, of its parts."""
    native_vectors: bool = False
    """Whether arithmetic takes vectors of any length (GCC's extension)."""
    shared: str = ""
    """Qualifiers of memory that threads share; ``{align}`` in bytes."""
    dynamic_shared: str = ""
    """A declaration of shared memory whose size the launch tells; empty if there is none."""
    align: str = "__attribute__((aligned({align})))"
    # ---- threads
    indices: Mapping[str, str] = field(default_factory=dict)
    """Thread tags as expressions."""
    barriers: Mapping[str, str] = field(default_factory=dict)
    """Statements that wait for the threads of a scope."""
    fail: str = "return;"
    """What ends a kernel whose assertion failed."""
    prints: bool = True
    """Whether there is ``printf``."""
    unroll: str = "#pragma unroll"
    packed: frozenset[str] = frozenset()
    """Elements of which pairs are computed at once."""
    calls: Mapping[str, Callable[[Any, Call], Value]] = field(default_factory=dict)
    """Operators whose code is the dialect's own."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """What else its hooks want to know: the number of an architecture …"""

    @cached_property
    def words(self) -> frozenset[str]:
        """What the text of a kernel calls or mentions: no variable may hide it."""
        texts = [
            *self.math.values(), *self.infinity.values(), *self.types.values(),
            *self.indices.values(), *self.barriers.values(), self.fail, self.kernel,
            *(word for name in self.vector_types.values() for word in (name, f"make_{name}")),
        ]  # fmt: skip
        return frozenset(re.findall(r"(?<![\w.{])[A-Za-z_]\w*", " ".join(texts)))

    def type(self, name: str) -> str:
        """Return the spelling of a type of ``stdint.h``; ``CodegenError`` if it has none."""
        if name in self.missing:
            raise CodegenError(f"{self.name} has no {name}")
        return self.types.get(name, name)

    def register(self, dtype_element: str) -> str:
        """Return the type of a value of an element type."""
        if dtype_element in NARROW:
            return self.type("float")
        return self.type(_REGISTER.get(dtype_element) or self._unknown(dtype_element))

    def memory(self, dtype_element: str) -> str:
        """Return the type of an element in memory."""
        made = _MEMORY.get(dtype_element) or _REGISTER.get(dtype_element)
        return self.type(made or self._unknown(dtype_element))

    def _unknown(self, dtype_element: str) -> str:
        raise CodegenError(
            f"the {self.name} code generator has no {dtype_element}; it knows "
            f"{', '.join((*_REGISTER, *NARROW))}"
        )


_REGISTER = {
    "bool": "bool",
    "int4": "int32_t",
    "uint4": "uint32_t",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float32": "float",
    "float64": "double",
    "handle": "void*",
    "void": "void",
}
_MEMORY = {
    "bool": "uint8_t",
    "int4": "uint8_t",
    "uint4": "uint8_t",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "float8_e4m3fn": "uint8_t",
    "float8_e5m2": "uint8_t",
}
