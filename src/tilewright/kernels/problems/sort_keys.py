"""Elements as integer keys that compare as the elements sort, for the sorting kernels.

A key is a signed integer of 32 or 64 bits. Keys of floats follow IEEE's total order of magnitudes;
NaN is the greatest key, so it comes last. In descending order keys are complemented, so the least
key still comes first.

If indices are requested, they are packed below 32-bit keys into 64 bits: then all numbers differ,
and equal elements are ordered by index.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir import Expr, call, cast, const, dtypes, select


def greatest(bits: int) -> int:
    """The greatest key."""
    return int(2 ** (bits - 1) - 1)


@dataclass(frozen=True)
class KeyCoder:
    """Turns elements of a dtype into keys and back.

    ``exact`` keys distinguish zeros of different signs, so values can be recovered from keys;
    others don't, so that equal elements have equal keys and their indices stay in order.
    """

    dtype: str
    is_ascend: bool
    exact: bool

    @property
    def bits(self) -> int:
        """Bits of a key."""
        return 64 if dtypes.bits_of(self.dtype) == 64 else 32

    @property
    def is_float(self) -> bool:
        """Whether elements are floating-point numbers."""
        return dtypes.is_float(self.dtype)

    @property
    def _wide(self) -> str:
        """The dtype in which elements are compared."""
        return f"float{self.bits}" if self.is_float else f"int{self.bits}"

    @property
    def _is_wide_unsigned(self) -> bool:
        return self.dtype in ("uint32", "uint64")

    def encode(self, value: Expr) -> Expr:
        """Return the key of an element."""
        dtype = f"int{self.bits}"
        if self.is_float:
            key = self._of_float(cast(value, self._wide), dtype)
        elif self._is_wide_unsigned:
            key = call("bitwise_xor", call("reinterpret", value, dtype=dtype), self._sign_bit)
        else:
            key = cast(value, dtype)
        return key if self.is_ascend else call("bitwise_not", key)

    def _of_float(self, value: Expr, dtype: str) -> Expr:
        key = _fold_sign(call("reinterpret", value, dtype=dtype), self.bits)
        if not self.exact:
            key = select(value == const(0.0, value.dtype), const(0, dtype), key)
        return select(call("isnan", value), const(greatest(self.bits), dtype), key)

    @property
    def _sign_bit(self) -> Expr:
        return const(-(2 ** (self.bits - 1)), f"int{self.bits}")

    def decode(self, key: Expr) -> Expr:
        """Return the element of an exact key."""
        if not self.is_ascend:
            key = call("bitwise_not", key)
        if self.is_float:
            wide = call("reinterpret", _fold_sign(key, self.bits), dtype=self._wide)
            return cast(wide, self.dtype)
        if self._is_wide_unsigned:
            key = call("bitwise_xor", key, self._sign_bit)
            return call("reinterpret", key, dtype=self.dtype)
        return cast(key, self.dtype)


def _fold_sign(bits: Expr, width: int) -> Expr:
    """Complement the magnitude of negative numbers; an involution."""
    sign = call("shift_right", bits, const(width - 1, bits.dtype))
    magnitude = const(greatest(width), bits.dtype)
    return call("bitwise_xor", bits, call("bitwise_and", sign, magnitude))


def pack(key: Expr, place: Expr) -> Expr:
    """Pack a 32-bit key and an index (64-bit, below ``2**32``)."""
    wide = cast(key, place.dtype)
    return call("bitwise_or", call("shift_left", wide, const(32, wide.dtype)), place)


def place_of(packed: Expr) -> Expr:
    """The index in a result of ``pack``."""
    return call("bitwise_and", packed, const(2**32 - 1, packed.dtype))


def key_of(packed: Expr) -> Expr:
    """The key in a result of ``pack``, as a 32-bit integer."""
    return cast(call("shift_right", packed, const(32, packed.dtype)), "int32")
