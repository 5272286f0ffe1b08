"""Fourier transforms of a few numbers, as straight-line statements: butterflies.

A length that is no prime number is made of transforms of its factors, one after another in the same
place (Cooley and Tukey, 1965). Those of prime numbers are sums over pairs ``x[k] + x[-k]`` and
``x[k] - x[-k]``, which share half of the products (Singleton, 1969). Multiplications by 1, -1, i
and -i are none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilewright.ir import Expr, Var, const
from tilewright.tir import Buffer, LetStmt, Stmt, decl_buffer, seq
from tilewright.tir.building import load, store

Complex = tuple[Expr, Expr]
Rotation = tuple[int, int]
"""A fraction of a full circle: so many parts of so many."""


def butterfly(
    values: Sequence[Complex], sign: float, dtype: str, give: Callable[[int, Complex], Stmt]
) -> tuple[Buffer, Stmt]:
    """Return memory and statements that transform ``values`` and ``give`` each result.

    The kernel is ``exp(sign * 2 pi i * j * k / len(values))``.
    """
    count = len(values)
    memory = decl_buffer((2 * count,), dtype, "parts", scope="local")
    work = _InPlace(memory, sign)
    stmts = [work.put(slot, value) for slot, value in enumerate(values)]
    order = work.transform(range(count), [(0, 1)] * count, stmts)
    stmts += [give(number, work.get(slot)) for number, slot in enumerate(order)]
    return memory, seq(*stmts)


class _InPlace:
    """Transforms of numbers in a buffer: slot ``n`` has real and imaginary part side by side."""

    def __init__(self, memory: Buffer, sign: float) -> None:
        self.memory = memory
        self.sign = sign
        self.dtype = memory.dtype

    def get(self, slot: int) -> Complex:
        return load(self.memory, 2 * slot), load(self.memory, 2 * slot + 1)

    def put(self, slot: int, value: Complex) -> Stmt:
        re, im = value
        return seq(store(self.memory, re, 2 * slot), store(self.memory, im, 2 * slot + 1))

    def transform(
        self, slots: Sequence[int], before: Sequence[Rotation], stmts: list[Stmt]
    ) -> list[int]:
        """Transform the numbers in ``slots``, rotated ``before``; return the slots of results."""
        count = len(slots)
        primes = prime_factors(count)
        if len(primes) < 2:
            stmts.append(self._prime(slots, before))
            return list(slots)
        outer = 4 if count % 4 == 0 and count > 4 else primes[0]
        # Of element a * inner + b the columns b are transformed, turned, and then the rows.
        inner = count // outer
        columns = [self.transform(slots[b::inner], before[b::inner], stmts) for b in range(inner)]
        rows = []
        for p in range(outer):
            turned = [(b * p % count, count) for b in range(inner)]
            rows.append(self.transform([column[p] for column in columns], turned, stmts))
        return [rows[number % outer][number // outer] for number in range(count)]

    def _prime(self, slots: Sequence[int], before: Sequence[Rotation]) -> Stmt:
        lets: list[Stmt] = []

        def named(name: str, value: Complex) -> Complex:
            made = []
            for part, suffix in zip(value, ("re", "im")):
                if isinstance(part, Var):
                    made.append(part)
                    continue
                var = Var(f"{name}_{suffix}", self.dtype)
                lets.append(LetStmt(var, part))
                made.append(var)
            return made[0], made[1]

        x = [
            named("x", self._rotated(named("y", self.get(slot)), turn))
            for slot, turn in zip(slots, before)
        ]
        made = _of_prime(x, self.sign, named)
        return seq(*lets, *(self.put(slot, value) for slot, value in zip(slots, made)))

    def _rotated(self, value: Complex, turn: Rotation) -> Complex:
        re, im = value
        part, count = turn[0] * 8, turn[1]
        if part % count == 0 and part // count % 2 == 0:
            ahead = self.sign > 0
            quarter = part // count // 2 % 4
            turned = [value, (negative(im), re), (negative(re), negative(im)), (im, negative(re))]
            return turned[quarter if ahead else -quarter % 4]
        angle = self.sign * 2 * math.pi * turn[0] / count
        c, s = math.cos(angle), math.sin(angle)
        if part % count == 0:  # odd eighths: both are of one size
            size = const(abs(c), self.dtype)
            a = re if c > 0 else negative(re)
            b = im if c > 0 else negative(im)
            # (re + i im) (c + i s), where s is c or -c
            same = (c > 0) == (s > 0)
            return ((a - b) * size, (a + b) * size) if same else ((a + b) * size, (b - a) * size)
        return rotated(value, const(c, self.dtype), const(s, self.dtype))


def _of_prime(
    x: Sequence[Complex], sign: float, named: Callable[[str, Complex], Complex]
) -> list[Complex]:
    count = len(x)
    if count == 1:
        return list(x)
    if count == 2:
        (a, b), (c, d) = x
        return [(a + c, b + d), (a - c, b - d)]
    pairs = range(1, (count + 1) // 2)
    sums = [named("sum", _plus(x[k], x[-k])) for k in pairs]
    rests = [named("rest", _minus(x[k], x[-k])) for k in pairs]
    total = x[0]
    for item in sums:
        total = _plus(total, item)
    found = {0: total}
    for j in pairs:
        even, odd = x[0], None
        for k, (both, rest) in enumerate(zip(sums, rests), 1):
            angle = 2 * math.pi * (j * k % count) / count
            cosine = const(math.cos(angle), both[0].dtype)
            sine = const(sign * math.sin(angle), both[0].dtype)
            even = both[0] * cosine + even[0], both[1] * cosine + even[1]
            scaled = rest[0] * sine, rest[1] * sine
            odd = scaled if odd is None else _plus(scaled, odd)
        even, odd = named("even", even), named("odd", odd or even)
        # even + i * odd, and even - i * odd
        found[j] = even[0] - odd[1], even[1] + odd[0]
        found[count - j] = even[0] + odd[1], even[1] - odd[0]
    return [found[j] for j in range(count)]


def rotated(value: Complex, cosine: Expr, sine: Expr) -> Complex:
    """Multiply by ``cosine + i * sine``."""
    re, im = value
    # A sum, not a difference, of products is one operation with one of them.
    return negative(im) * sine + re * cosine, im * cosine + re * sine


def negative(x: Expr) -> Expr:
    """``-x``, of zeros too."""
    return x * const(-1.0, x.dtype)


def _plus(a: Complex, b: Complex) -> Complex:
    return a[0] + b[0], a[1] + b[1]


def _minus(a: Complex, b: Complex) -> Complex:
    return a[0] - b[0], a[1] - b[1]


def prime_factors(count: int) -> list[int]:
    """Return the prime factors of a number, least first."""
    found: list[int] = []
    divisor = 2
    while divisor * divisor <= count:
        while count % divisor == 0:
            found.append(divisor)
            count //= divisor
        divisor += 1
    return [*found, count] if count > 1 else found


def operations(count: int) -> float:
    """Return about how many operations a butterfly takes for each number."""
    primes = prime_factors(count)
    sums = sum(2.0 if p == 2 else 2 * (p - 1) * (p + 3) / (2 * p) for p in primes)
    # Two stages of two numbers are one of four, without turns.
    return sums + 3.0 * max(0, len(primes) - 1 - primes.count(2) // 2)
