"""The formats of floats of 16 bits and less: how their bits mean numbers.

The names and formats are those of ``ml_dtypes`` and of the OCP specifications of 8-bit floating
point and of microscaling (MX) formats.
"""

from __future__ import annotations

from dataclasses import dataclass

IEEE = "ieee"
"""The greatest exponent is for infinities and NaNs."""
FINITE = "finite"
"""No infinities; NaN is all ones, with either sign (``fn``)."""
UNSIGNED_ZERO = "unsigned zero"
"""No infinities and no negative zero, whose bits mean NaN (``fnuz``)."""
NUMBERS = "numbers"
"""Neither infinities nor NaNs: what is too large becomes the greatest number."""
EXPONENT = "exponent"
"""Powers of two without sign or zero; NaN is all ones (``e8m0fnu``)."""


@dataclass(frozen=True)
class FloatFormat:
    """Bits of a small format, and what else than numbers they mean."""

    exponent_bits: int
    mantissa_bits: int
    special: str = IEEE
    own_bias: int | None = None

    @property
    def bias(self) -> int:
        """What is added to an exponent to store it."""
        return (1 << (self.exponent_bits - 1)) - 1 if self.own_bias is None else self.own_bias

    @property
    def bits(self) -> int:
        """Width with the sign, if there is one."""
        return (self.special != EXPONENT) + self.exponent_bits + self.mantissa_bits

    @property
    def overflow(self) -> int:
        """The bits, without the sign, of what stands for numbers that are too large."""
        ones = (1 << (self.exponent_bits + self.mantissa_bits)) - 1
        if self.special == UNSIGNED_ZERO:
            return ones + 1
        return ones & ~((1 << self.mantissa_bits) - 1) if self.special == IEEE else ones

    @property
    def nan(self) -> int:
        """The bits of a quiet NaN; zero where the format has none."""
        if self.special == NUMBERS:
            return 0
        quiet = 1 << (self.mantissa_bits - 1) if self.special == IEEE else 0
        return self.overflow | quiet

    @property
    def greatest(self) -> float:
        """The greatest number."""
        bits = self.overflow - (self.special != NUMBERS)
        if self.special == EXPONENT:
            return float(2.0 ** (bits - self.bias))
        exponent, mantissa = divmod(bits, 1 << self.mantissa_bits)
        return (1.0 + mantissa / (1 << self.mantissa_bits)) * 2.0 ** (exponent - self.bias)

    @property
    def least(self) -> float:
        """The least number, which is not minus infinity."""
        return float(2.0**-self.bias) if self.special == EXPONENT else -self.greatest


FLOAT_FORMATS = {
    "float16": FloatFormat(5, 10),
    "bfloat16": FloatFormat(8, 7),
    "float8_e3m4": FloatFormat(3, 4),
    "float8_e4m3": FloatFormat(4, 3),
    "float8_e4m3b11fnuz": FloatFormat(4, 3, UNSIGNED_ZERO, 11),
    "float8_e4m3fn": FloatFormat(4, 3, FINITE),
    "float8_e4m3fnuz": FloatFormat(4, 3, UNSIGNED_ZERO, 8),
    "float8_e5m2": FloatFormat(5, 2),
    "float8_e5m2fnuz": FloatFormat(5, 2, UNSIGNED_ZERO, 16),
    "float8_e8m0fnu": FloatFormat(8, 0, EXPONENT),
    "float6_e2m3fn": FloatFormat(2, 3, NUMBERS),
    "float6_e3m2fn": FloatFormat(3, 2, NUMBERS),
    "float4_e2m1fn": FloatFormat(2, 1, NUMBERS),
}
"""Formats by dtype."""
