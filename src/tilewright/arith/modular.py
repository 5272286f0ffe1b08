"""Modular sets: which residue an integer expression leaves.

``(coeff, base)`` says that the value is ``coeff * k + base`` for some integer ``k``; ``(0, base)``
is the constant ``base`` and ``(1, 0)`` says nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd
from typing import Any

from tilewright.arith.context import Context
from tilewright.arith.polynomial import DIV, MOD, VAR, Poly
from tilewright.ir import Call, Cast, IntImm, Select, dtypes

Residue = tuple[int, int]
ANY: Residue = (1, 0)


@dataclass(frozen=True)
class ModularSet:
    """All values are ``coeff * k + base``; ``coeff`` 0 means the constant ``base``."""

    coeff: int
    base: int


def make(coeff: int, base: int) -> Residue:
    """Normalise: ``0 <= base < coeff`` unless constant."""
    coeff = abs(coeff)
    return (coeff, base % coeff) if coeff else (0, base)


def residue_add(a: Residue, b: Residue) -> Residue:
    """Residue of the sum."""
    return make(gcd(a[0], b[0]), a[1] + b[1])


def residue_mul(a: Residue, b: Residue) -> Residue:
    """Residue of the product: (pk + r)(ql + s) = pq kl + ps k + qr l + rs."""
    return make(gcd(gcd(a[0] * b[0], a[0] * b[1]), a[1] * b[0]), a[1] * b[1])


def residue_union(a: Residue, b: Residue) -> Residue:
    """Residue of a value that is one or the other."""
    return make(gcd(gcd(a[0], b[0]), abs(a[1] - b[1])), a[1])


def residue_intersect(a: Residue, b: Residue) -> Residue:
    """Residue of a value that is both (by search below the least modulus; else the finer one)."""
    if a[0] == 0 or b[0] == 0:
        return a if a[0] == 0 else b
    if a[0] < b[0]:
        a, b = b, a
    common = gcd(a[0], b[0])
    if (a[1] - b[1]) % common:
        return a
    base = a[1]
    for _ in range(min(b[0] // common, 4096)):
        if base % b[0] == b[1]:
            return make(a[0] * b[0] // common, base)
        base += a[0]
    return a


class ModularAnalyzer:
    """Computes modular sets in a context."""

    def __init__(self, context: Context, may_vanish: Callable[[Poly], bool]) -> None:
        self.context = context
        self.may_vanish = may_vanish  # of divisors

    def poly(self, a: Poly) -> Residue:
        """Residue of a polynomial."""
        result: Residue = (0, 0)
        for mono, value in a.items():
            term: Residue = (0, value)
            for number in mono:
                term = residue_mul(term, self.atom(number))
            result = residue_add(result, term)
            if result[0] == 1:
                return ANY
        return result

    def atom(self, number: int) -> Residue:
        """Residue of an atom."""
        cache = self.context.residue_cache
        found = cache.get(number)
        if found is None:
            cache[number] = ANY
            found = self._atom(number)
            known = self.context.residues.get(number)
            if known is not None:
                found = residue_intersect(found, known)
            cache[number] = found
        return found

    def _atom(self, number: int) -> Residue:
        table = self.context.table
        kind, operands = table.kinds[number], table.operands[number]
        if kind == VAR:
            ends = self.context.ranges.get(number)
            if ends is not None and ends[0] is not None and ends[0] == ends[1]:
                return self.poly(ends[0])
            return ANY
        if operands is not None:
            a, b = self.poly(operands[0]), self.poly(operands[1])
            if kind == DIV:
                if b[0] == 0 and b[1] and a[0] % b[1] == 0:
                    return make(a[0] // b[1], a[1] // b[1])
                return ANY
            if kind == MOD:
                # a - b * (a // b) keeps every common divisor of a and b; by zero it is zero.
                rest = residue_add(a, (gcd(b[0], b[1]), 0))
                return residue_union(rest, (0, 0)) if self.may_vanish(operands[1]) else rest
            return residue_union(a, b)
        expr = table.exprs[number]
        assert expr is not None
        return self.opaque(expr)

    def opaque(self, expr: Any) -> Residue:
        """Residue of an expression that is not an arithmetic node."""
        of = self.context.residue_of
        kind = type(expr)
        if kind is Select:
            return residue_union(of(expr.true_value), of(expr.false_value))
        if kind is Call:
            name, args = expr.op.name, expr.args
            if name == "if_then_else":
                return residue_union(of(args[1]), of(args[2]))
            if name == "shift_left" and isinstance(args[1], IntImm) and 0 <= args[1].value < 64:
                return residue_mul(of(args[0]), (0, 2 ** args[1].value))
        if (
            kind is Cast
            and dtypes.is_integer(expr.value.dtype)
            and dtypes.bits_of(expr.dtype) >= dtypes.bits_of(expr.value.dtype)
            and dtypes.kind_of(expr.dtype) == dtypes.kind_of(expr.value.dtype)
        ):
            return of(expr.value)
        return ANY
