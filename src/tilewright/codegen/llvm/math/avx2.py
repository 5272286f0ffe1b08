"""float32 functions by AVX2's look-up in a register: eight entries at a time.

The gates of gelu are polynomials whose coefficients are looked up by interval, as AVX-512's are
(:mod:`.avx512`), on eight intervals instead of 32. That takes no exponential and no division.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.llvm.math.builder import Builder, Operand, Value
from tilewright.codegen.llvm.math.spec import AVX2, math_variant
from tilewright.codegen.llvm.math.tables import TABLES

_LANES = 8


def lookup(b: Builder, table: Sequence[float], index: Value) -> Value:
    """Return ``table[index]`` for a table of eight entries, by the index's low bits."""
    entries = ", ".join(f"float {b.scalar(value)}" for value in table)
    head = f"call <8 x float> @llvm.x86.avx2.permps(<8 x float> <{entries}>"
    return b.by_parts(_LANES, lambda i: f"{head}, {i})", "f", index)


def _gated(b: Builder, name: str, x: Value) -> Value:
    """``x / 2 + |x| * g(|x|)`` with a table's ``g``, which is 1/2 at its end."""
    a = b.abs(x)
    within = b.at_most(a, 7.375)
    shifted = within + b.fmt.magic
    t, index = within - (shifted - b.fmt.magic), b.bits(shifted)
    coefs: list[Operand] = [lookup(b, column, index) for column in TABLES[name]]
    return b.copysign(b.fma(a, b.horner(t, coefs), x * 0.5), x)


@math_variant(isa=AVX2, ulp=2.0)
def gelu(b: Builder, x: Value) -> Value:
    """The gate ``erf(|x| / sqrt 2) / 2`` by polynomials of eight intervals."""
    return _gated(b, "gelu_8", x)


@math_variant(isa=AVX2, ulp=2.0)
def gelu_tanh(b: Builder, x: Value) -> Value:
    """The gate ``tanh(u) / 2`` by polynomials of eight intervals."""
    return _gated(b, "gelu_tanh_8", x)
