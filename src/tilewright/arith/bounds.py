"""Constant bounds of integer expressions: interval arithmetic over polynomials and their atoms.

Bounds are Python ints or the float infinities ``NEG_INF`` and ``POS_INF``. Index arithmetic is
taken to be free of overflow, so an unknown ``int64`` value is unbounded unless it is data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.arith.context import Context
from tilewright.arith.data import holds_data
from tilewright.arith.polynomial import DIV, MAX, MIN, VAR, Poly
from tilewright.ir import (
    INDEX,
    MAX_VSCALE,
    Add,
    Call,
    Cast,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Select,
    Sub,
    Var,
    dtypes,
)

NEG_INF = -math.inf
POS_INF = math.inf
Bound = float  # an int, or one of the infinities
Interval = tuple[Any, Any]
EVERYTHING: Interval = (NEG_INF, POS_INF)


_LIMIT = 2**63 - 1


class ConstIntBound:
    """The closed interval of an expression's values.

    ``min`` and ``max`` are numbers or infinities; ``min_value`` and ``max_value`` are integers, and
    ``NEG_INF`` or ``POS_INF`` where there is no bound.
    """

    NEG_INF = -_LIMIT
    POS_INF = _LIMIT
    __slots__ = ("max", "min")

    def __init__(self, min_value: float, max_value: float) -> None:
        self.min: float = NEG_INF if min_value == self.NEG_INF else min_value
        self.max: float = POS_INF if max_value == self.POS_INF else max_value

    @property
    def min_value(self) -> int:
        """The least value."""
        return self.NEG_INF if self.min == NEG_INF else int(self.min)

    @property
    def max_value(self) -> int:
        """The greatest value."""
        return self.POS_INF if self.max == POS_INF else int(self.max)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConstIntBound) and (self.min, self.max) == (other.min, other.max)

    def __hash__(self) -> int:
        return hash((self.min, self.max))

    def __repr__(self) -> str:
        return f"ConstIntBound(min={self.min!r}, max={self.max!r})"


def times(a: Any, b: int) -> Any:
    """Multiply two bounds; zero times infinity is zero."""
    return a * b if a and b else 0


def interval_mul(a: Interval, b: Interval) -> Interval:
    """Interval of the product."""
    if a[0] == a[1] and b[0] == b[1]:
        value = times(a[0], b[0])
        return value, value
    if a[0] >= 0 and b[0] >= 0:
        return times(a[0], b[0]), times(a[1], b[1])
    ends = (times(a[0], b[0]), times(a[0], b[1]), times(a[1], b[0]), times(a[1], b[1]))
    return min(ends), max(ends)


def floor_div(a: Any, b: int) -> Any:
    """``a // b`` for bounds, ``b`` positive."""
    if b == POS_INF:
        return 0 if a >= 0 else -1
    if a in (NEG_INF, POS_INF):
        return a
    return a // b


def floor_quotient(a: Interval, b: Interval) -> Interval:
    """Interval of ``a // b``; a division by zero is 0."""
    if b[0] > 0:
        low = floor_div(a[0], b[0] if a[0] < 0 else b[1])
        return low, floor_div(a[1], b[0] if a[1] >= 0 else b[1])
    if b[1] < 0:
        return floor_quotient((-a[1], -a[0]), (-b[1], -b[0]))
    # The parts of the divisor on both sides of zero, and zero itself.
    found: Interval = (0, 0)
    if b[1] > 0:
        found = union(found, floor_quotient(a, (1, b[1])))
    if b[0] < 0:
        found = union(found, floor_quotient((-a[1], -a[0]), (1, -b[0])))
    return found


def floor_remainder(a: Interval, b: Interval) -> Interval:
    """Interval of ``a % b``; of a division by zero it is 0."""
    if b[0] > 0:
        if a[0] >= 0:
            return a if a[1] < b[0] else (0, min(a[1], b[1] - 1))
        return 0, b[1] - 1
    if b[1] < 0:
        return b[0] + 1, 0
    if b[0] == 0:  # a zero divisor has no value at all
        return 0, max(b[1] - 1, 0)
    return min(b[0] + 1, 0), max(b[1] - 1, 0)


def _trunc_quotient(a: Interval, b: Interval) -> Interval:
    """Interval of ``truncdiv(a, b)``: magnitudes divided, with the signs that may be."""
    found: Interval | None = None
    for sign_a, part_a in _signed_parts(a):
        for sign_b, part_b in _signed_parts(b):
            divisor = (max(part_b[0], 1), part_b[1])
            if divisor[1] < 1:
                continue
            low, high = floor_quotient(part_a, divisor)
            part = (low, high) if sign_a == sign_b else (-high, -low)
            found = part if found is None else union(found, part)
    if found is None:
        return 0, 0
    return union(found, (0, 0)) if b[0] <= 0 <= b[1] else found


def _trunc_remainder(a: Interval, b: Interval) -> Interval:
    """Interval of ``truncmod(a, b)``, which has the sign of ``a``."""
    most = max(abs(b[0]), abs(b[1])) - 1
    if most < 0:
        return 0, 0
    return (0 if a[0] >= 0 else max(-most, a[0])), (0 if a[1] <= 0 else min(most, a[1]))


def _signed_parts(a: Interval) -> list[tuple[int, Interval]]:
    """The magnitudes of an interval's numbers, by their sign."""
    parts: list[tuple[int, Interval]] = []
    if a[1] >= 0:
        parts.append((1, (max(a[0], 0), a[1])))
    if a[0] < 0:
        parts.append((-1, (max(-a[1], 1), -a[0])))
    return parts


def _shifted(name: str, a: Interval, by: Interval) -> Interval:
    """Interval of a shift by between 0 and 63 bits, as of whole numbers."""
    if by[0] < 0 or by[1] > 63:
        return EVERYTHING
    least, most = 1 << int(by[0]), 1 << int(by[1])
    if name == "shift_left":
        return interval_mul(a, (least, most))
    return floor_quotient(a, (least, most))


_NARROW: dict[type, Callable[[Interval, Interval], Interval]] = {
    Add: lambda a, b: (a[0] + b[0], a[1] + b[1]),
    Sub: lambda a, b: (a[0] - b[1], a[1] - b[0]),
    Mul: interval_mul,
    Min: lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    Max: lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    FloorDiv: floor_quotient,
    FloorMod: floor_remainder,
}


def meet(a: Interval, b: Interval) -> Interval:
    """The intersection; one point if that is empty, as in code that is never reached."""
    low, high = max(a[0], b[0]), min(a[1], b[1])
    if low <= high:
        return low, high
    return (low, low) if low != POS_INF else (high, high)


def union(a: Interval, b: Interval) -> Interval:
    """The least interval that holds both."""
    return min(a[0], b[0]), max(a[1], b[1])


def dtype_interval(dtype: str) -> Interval:
    """The values of an integer or bool dtype; unbounded for the index dtype."""
    if dtype == INDEX or not (dtypes.is_integer(dtype) or dtypes.is_bool(dtype)):
        return EVERYTHING
    return dtypes.integer_limits(dtype)


_DEEPEST = 4
"""So many operators of narrow integers are looked through for a bound."""


class BoundAnalyzer:
    """Computes const bounds in a context; results for atoms are cached there."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._depth = 0

    def poly(self, a: Poly) -> Interval:
        """Bounds of a polynomial."""
        low = 0
        high = 0
        for mono, value in a.items():
            if not mono:
                low += value
                high += value
                continue
            if len(mono) == 1:
                inner = self.atom(mono[0])
            else:
                inner = self.monomial(mono)
            if value > 0:
                low += times(inner[0], value)
                high += times(inner[1], value)
            else:
                low += times(inner[1], value)
                high += times(inner[0], value)
        known = self.context.poly_limits
        if known and len(a) > 1:
            low, high = self._refine(a, low, high)
        return low, high

    def _refine(self, a: Poly, low: object, high: object) -> Interval:
        """Use facts about whole linear forms: ``16*i + j <= 999``."""
        offset = a.get((), 0)
        form = a.items() if not offset else [item for item in a.items() if item[0]]
        known = self.context.poly_limits.get(frozenset(form))
        if known is None:
            return low, high
        return meet((low, high), (known[0] + offset, known[1] + offset))

    def monomial(self, mono: tuple[int, ...]) -> Interval:
        """Bounds of a product of atoms; even powers are not negative."""
        result: Interval = (1, 1)
        index = 0
        while index < len(mono):
            atom = mono[index]
            count = 1
            while index + count < len(mono) and mono[index + count] == atom:
                count += 1
            inner = self.atom(atom)
            power = inner
            for _ in range(count - 1):
                power = interval_mul(power, inner)
            if count % 2 == 0:
                if inner[0] <= 0 <= inner[1]:
                    power = (0, power[1])
                power = (max(0, power[0]), power[1])
            result = interval_mul(result, power)
            index += count
        known = self.context.poly_limits.get(frozenset((((mono), 1),)))
        if known is not None:
            result = meet(result, known)
        return result

    def atom(self, number: int) -> Interval:
        """Bounds of an atom."""
        cache = self.context.bound_cache
        found = cache.get(number)
        if found is None:
            cache[number] = EVERYTHING  # guards against ranges that refer to each other
            found = self._atom(number)
            if number in self.context.table.data:
                limits = dtypes.integer_limits(self.context.table.dtypes[number])
                # The least number divided by -1 is itself again.
                wraps = found[1] > limits[1] and self.context.table.kinds[number] == DIV
                found = limits if wraps else meet(found, limits)
            known = self.context.limits.get(number)
            if known is not None:
                found = meet(found, known)
            cache[number] = found
        return found

    def _atom(self, number: int) -> Interval:
        context = self.context
        table = context.table
        kind = table.kinds[number]
        if kind == VAR:
            limits = dtype_interval(table.dtypes[number])
            ends = context.ranges.get(number)
            if ends is not None:
                low = NEG_INF if ends[0] is None else self.poly(ends[0])[0]
                high = POS_INF if ends[1] is None else self.poly(ends[1])[1]
                limits = meet(limits, (low, high))
            return limits
        operands = table.operands[number]
        if operands is not None:
            a, b = self.poly(operands[0]), self.poly(operands[1])
            if kind == MIN:
                return min(a[0], b[0]), min(a[1], b[1])
            if kind == MAX:
                return max(a[0], b[0]), max(a[1], b[1])
            return floor_quotient(a, b) if kind == DIV else floor_remainder(a, b)
        expr = table.exprs[number]
        assert expr is not None
        return self.opaque(expr)

    def opaque(self, expr: Any) -> Interval:
        """Bounds of an expression that is not an arithmetic node."""
        limits = dtype_interval(expr.dtype)
        kind = type(expr)
        if kind is Select:
            return union(self._quick(expr.true_value), self._quick(expr.false_value))
        if kind is Cast:
            source = expr.value.dtype
            if dtypes.is_integer(source) or dtypes.is_bool(source):
                inner = self._quick(expr.value)
                if limits[0] <= inner[0] and inner[1] <= limits[1]:
                    return inner
            return limits
        if kind is Call:
            return self._call(expr, limits)
        if kind is Var:
            return meet(limits, self.context.limits.get(self.context.table.var(expr), EVERYTHING))
        if kind in _NARROW and expr.dtype not in ("int32", "int64"):
            return self._narrow(expr, limits)
        return limits

    def _narrow(self, expr: Any, limits: Interval) -> Interval:
        """Bounds of arithmetic that wraps: those of whole numbers, where these fit the dtype.

        Only so far down, since every operator above asks again.
        """
        if self._depth >= _DEEPEST:
            return limits
        self._depth += 1
        try:
            a, b = self._quick(expr.a), self._quick(expr.b)
        finally:
            self._depth -= 1
        low, high = _NARROW[type(expr)](a, b)
        return (low, high) if limits[0] <= low and high <= limits[1] else limits

    def _call(self, expr: Any, limits: Interval) -> Interval:
        name, args = expr.op.name, expr.args
        if name == "if_then_else":
            return union(self._quick(args[1]), self._quick(args[2]))
        if name == "bitwise_and":
            for arg in args:
                if isinstance(arg, IntImm) and arg.value >= 0:
                    return 0, arg.value
            a, b = map(self._quick, args)
            if a[0] >= 0 and b[0] >= 0:
                return 0, min(a[1], b[1])
        elif name in ("bitwise_or", "bitwise_xor"):
            a, b = map(self._quick, args)
            most = max(a[1], b[1])
            if a[0] >= 0 and b[0] >= 0 and isinstance(most, int):
                return 0, (1 << most.bit_length()) - 1  # no bit comes in above the highest
        elif name in ("abs", "fabs"):
            a = self._quick(args[0])
            ends = abs(a[0]), abs(a[1])
            narrow = dtypes.bits_of(expr.dtype) < 32
            if max(ends) > dtypes.integer_limits(expr.dtype)[1] and (
                narrow or holds_data(args[0], self.context.table.data_vars)
            ):
                return limits  # abs(int8(-128)) wraps; indices are taken not to overflow
            return (0 if a[0] <= 0 <= a[1] else min(ends)), max(ends)
        elif name == "vscale":
            return 1, MAX_VSCALE
        elif name in ("popcount", "clz"):
            return 0, dtypes.bits_of(args[0].dtype)
        elif name == "truncmod":
            return meet(limits, _trunc_remainder(*map(self._quick, args)))
        elif name == "truncdiv":
            low, high = _trunc_quotient(*map(self._quick, args))
            return (low, high) if limits[0] <= low and high <= limits[1] else limits
        elif name in ("shift_left", "shift_right"):
            low, high = _shifted(name, *map(self._quick, args))
            return (low, high) if limits[0] <= low and high <= limits[1] else limits
        return limits

    def _quick(self, expr: Expr) -> Interval:
        """Bounds of an operand of an opaque atom, through the context's normaliser."""
        if not (dtypes.is_integer(expr.dtype) or dtypes.is_bool(expr.dtype)):
            return EVERYTHING
        return self.context.bound_of(expr)
