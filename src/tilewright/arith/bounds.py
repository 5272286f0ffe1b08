"""Constant bounds of integer expressions: interval arithmetic over polynomials and their atoms.

Bounds are Python ints or the float infinities ``NEG_INF`` and ``POS_INF``. Index arithmetic is
taken to be free of overflow, so an unknown ``int64`` value is unbounded unless it is data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tilewright.arith.context import Context
from tilewright.arith.data import holds_data
from tilewright.arith.polynomial import DIV, MAX, MIN, VAR, Poly
from tilewright.ir import INDEX, Call, Cast, Expr, IntImm, Select, dtypes

NEG_INF = -math.inf
POS_INF = math.inf
Bound = float  # an int, or one of the infinities
Interval = tuple[Any, Any]
EVERYTHING: Interval = (NEG_INF, POS_INF)


@dataclass(frozen=True)
class ConstIntBound:
    """The closed interval ``[min, max]`` of an expression's values."""

    min: float
    max: float


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


class BoundAnalyzer:
    """Computes const bounds in a context; results for atoms are cached there."""

    def __init__(self, context: Context) -> None:
        self.context = context

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
                found = meet(found, dtypes.integer_limits(self.context.table.dtypes[number]))
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
            return self._div(a, b) if kind == DIV else self._mod(a, b)
        expr = table.exprs[number]
        assert expr is not None
        return self.opaque(expr)

    @staticmethod
    def _div(a: Interval, b: Interval) -> Interval:
        if b[0] <= 0:
            if b[1] >= 0:
                return EVERYTHING if a[0] < 0 or b[0] < 0 else (0, a[1])
            a, b = (-a[1], -a[0]), (-b[1], -b[0])
        low = floor_div(a[0], b[0] if a[0] < 0 else b[1])
        high = floor_div(a[1], b[0] if a[1] >= 0 else b[1])
        return low, high

    @staticmethod
    def _mod(a: Interval, b: Interval) -> Interval:
        if b[0] > 0:
            if a[0] >= 0:
                return a if a[1] < b[0] else (0, min(a[1], b[1] - 1))
            return 0, b[1] - 1
        if b[1] < 0:
            return b[0] + 1, 0
        if b[0] == 0:  # a zero divisor has no value at all
            return 0, max(b[1] - 1, 0)
        return min(b[0] + 1, 0), max(b[1] - 1, 0)

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
        return limits

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
        elif name in ("popcount", "clz"):
            return 0, dtypes.bits_of(args[0].dtype)
        elif name == "truncmod" and isinstance(args[1], IntImm) and args[1].value:
            most, a = abs(args[1].value) - 1, self._quick(args[0])
            return (0 if a[0] >= 0 else max(-most, a[0])), (0 if a[1] <= 0 else min(most, a[1]))
        elif name == "truncdiv" and isinstance(args[1], IntImm) and args[1].value > 0:
            a, by = self._quick(args[0]), args[1].value
            low = floor_div(a[0], by) if a[0] >= 0 else -floor_div(-a[0], by)
            return low, (floor_div(a[1], by) if a[1] >= 0 else -floor_div(-a[1], by))
        return limits

    def _quick(self, expr: Expr) -> Interval:
        """Bounds of an operand of an opaque atom, through the context's normaliser."""
        if not (dtypes.is_integer(expr.dtype) or dtypes.is_bool(expr.dtype)):
            return EVERYTHING
        return self.context.bound_of(expr)
