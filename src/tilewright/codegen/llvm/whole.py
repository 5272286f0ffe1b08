"""Division and shifts of integers: LLVM leaves some operands undefined, the language none.

What they give is said in :mod:`tilewright.ir.integers`. A divisor that isn't a constant is replaced
by one where the quotient is undefined (zero, and -1 for the least number), which costs two or three
operations next to a division that takes twenty cycles. ``indexdiv`` and ``indexmod`` are known to
be harmless and go without.
"""

from __future__ import annotations

from tilewright.codegen.llvm.emits import Emits
from tilewright.codegen.llvm.types import constant_text, intrinsic_suffix, register_type
from tilewright.ir import Broadcast, Expr, IntImm, dtypes


def constant_operand(expr: Expr, operand: str) -> int | None:
    """The number that an operand is in all lanes, if the program or its text says so."""
    value = expr.value if isinstance(expr, Broadcast) else expr
    if isinstance(value, IntImm):
        return value.value
    literal = dtypes.lanes_of(expr.dtype) == 1 and operand.lstrip("-").isdigit()
    return int(operand) if literal else None


class _Division:
    """A division that truncates, of operands that are made harmless first."""

    def __init__(
        self, emitter: Emits, dtype: str, a: str, b: str, divisor: int | None, known: bool = False
    ) -> None:
        self.emitter, self.dtype, self.a, self.b = emitter, dtype, a, b
        self.kind, self.mask = register_type(dtype), emitter.mask_type(dtype)
        self.signed = dtypes.kind_of(dtype) == "int"
        self.zero: str | None = None
        """Whether the divisor is zero, where that isn't known."""
        # A constant needs no guard, and neither does a division that something was proven of.
        self.free = divisor is not None and divisor not in (0, -1)
        if known:
            self._switch_lanes_off()
        elif not self.free:
            self._make_harmless()

    def _const(self, value: int) -> str:
        return constant_text(value, self.dtype)

    def _pure(self, text: str, *operands: str) -> str:
        return str(self.emitter.pure(text, *operands))

    def _switch_lanes_off(self) -> None:
        """Lanes that a mask switches off may hold a zero divisor, whatever was proven."""
        mask = self.emitter.mask
        if mask is not None and not self.free and dtypes.lanes_of(self.dtype) == mask[1]:
            text = f"select {self.mask} {mask[0]}, {self.kind} {self.b}"
            self.b = self.emitter.here(f"{text}, {self.kind} {self._const(1)}")

    def _make_harmless(self) -> None:
        kind, mask, a, b = self.kind, self.mask, self.a, self.b
        bad = self.zero = self._pure(f"icmp eq {kind} {b}, {self._const(0)}", b)
        if self.signed:
            low = dtypes.integer_limits(dtypes.element_of(self.dtype))[0]
            least = self._pure(f"icmp eq {kind} {a}, {self._const(low)}", a)
            minus = self._pure(f"icmp eq {kind} {b}, {self._const(-1)}", b)
            wraps = self._pure(f"and {mask} {least}, {minus}", least, minus)
            bad = self._pure(f"or {mask} {bad}, {wraps}", bad, wraps)
        self.b = self._pure(f"select {mask} {bad}, {kind} {self._const(1)}, {kind} {b}", bad, b)

    def compute(self, op: str) -> str:
        """``div`` or ``rem`` by what is no zero."""
        text = f"{'s' if self.signed else 'u'}{op} {self.kind} {self.a}, {self.b}"
        emit = self.emitter.pure if self.free else self.emitter.guarded
        return str(emit(text, self.a, self.b))

    def quotient(self, value: str) -> str:
        """Make a quotient zero where the divisor was."""
        if self.zero is None:
            return value
        zero = self._const(0)
        text = f"select {self.mask} {self.zero}, {self.kind} {zero}, {self.kind} {value}"
        return self._pure(text, self.zero, value)

    def floored(self) -> tuple[str, str, str]:
        """Quotient and remainder that truncate, and whether they were to round down."""
        kind, mask, zero = self.kind, self.mask, self._const(0)
        quotient = self.compute("div")
        product = self._pure(f"mul {kind} {quotient}, {self.b}", quotient, self.b)
        rest = self._pure(f"sub {kind} {self.a}, {product}", self.a, product)
        # A remainder of the other sign than the divisor.
        some = self._pure(f"icmp ne {kind} {rest}, {zero}", rest)
        mixed = self._pure(f"xor {kind} {rest}, {self.b}", rest, self.b)
        other = self._pure(f"icmp slt {kind} {mixed}, {zero}", mixed)
        return quotient, rest, self._pure(f"and {mask} {some}, {other}", some, other)


def _is_power_of_two(divisor: int) -> bool:
    return divisor > 0 and divisor & (divisor - 1) == 0


def floored(emitter: Emits, op: str, dtype: str, a: str, b: str, divisor: int | None) -> str:
    """``a // b`` (``op`` is ``div``) or ``a % b`` (``rem``)."""
    kind, is_quotient = register_type(dtype), op == "div"
    if dtypes.kind_of(dtype) == "uint":
        return truncated(emitter, op, dtype, a, b, divisor)
    if divisor is not None and _is_power_of_two(divisor):
        # Shifts and masks round down as they are.
        name, number = ("ashr", divisor.bit_length() - 1) if is_quotient else ("and", divisor - 1)
        return str(emitter.pure(f"{name} {kind} {a}, {constant_text(number, dtype)}", a))
    division = _Division(emitter, dtype, a, b, divisor)
    return _quotient(division) if is_quotient else _remainder(division)


def _quotient(division: _Division) -> str:
    emitter, kind = division.emitter, division.kind
    quotient, _, adjust = division.floored()
    extended = emitter.pure(f"sext {division.mask} {adjust} to {kind}", adjust)
    return division.quotient(emitter.pure(f"add {kind} {quotient}, {extended}", quotient, extended))


def _remainder(division: _Division) -> str:
    emitter, kind = division.emitter, division.kind
    _, rest, adjust = division.floored()
    zero = constant_text(0, division.dtype)
    text = f"select {division.mask} {adjust}, {kind} {division.b}, {kind} {zero}"
    shift = emitter.pure(text, adjust, division.b)
    return str(emitter.pure(f"add {kind} {rest}, {shift}", rest, shift))


def truncated(
    emitter: Emits, op: str, dtype: str, a: str, b: str, divisor: int | None, known: bool = False
) -> str:
    """``truncdiv`` (``op`` is ``div``) or ``truncmod`` (``rem``); ``known`` to be harmless."""
    division = _Division(emitter, dtype, a, b, divisor, known)
    made = division.compute(op)
    return division.quotient(made) if op == "div" else made


def shifted(emitter: Emits, name: str, dtype: str, a: str, b: str, amount: int | None) -> str:
    """``shift_left`` or ``shift_right``; an amount out of range moves all bits out."""
    kind, bits = register_type(dtype), dtypes.bits_of(dtype)
    signed = dtypes.kind_of(dtype) == "int"
    op = "shl" if name == "shift_left" else "ashr" if signed else "lshr"
    if amount is not None and 0 <= amount < bits:
        return str(emitter.pure(f"{op} {kind} {a}, {b}", a, b))
    if op == "ashr":
        most, suffix = constant_text(bits - 1, dtype), intrinsic_suffix(dtype)
        b = emitter.pure(f"call {kind} @llvm.umin.{suffix}({kind} {b}, {kind} {most})", b)
        return str(emitter.pure(f"ashr {kind} {a}, {b}", a, b))
    inside = emitter.pure(f"icmp ult {kind} {b}, {constant_text(bits, dtype)}", b)
    made = emitter.pure(f"{op} {kind} {a}, {b}", a, b)
    text = f"select {emitter.mask_type(dtype)} {inside}, {kind} {made}"
    return str(emitter.pure(f"{text}, {kind} {constant_text(0, dtype)}", inside, made))
