"""Derive the look-up tables of the vector math library for AVX-512 and AVX2.

    python tools/fit_tables.py > src/tilewright/codegen/llvm/math/tables.py

A permutation of a register is a look-up in a table of 16 (one register) or 32 entries (two), for
AVX2 one of 8. With 32 intervals, a function is a polynomial of degree 4 or 5 on each of them, with
8 one of degree 7, whose coefficients are looked up by the interval's number: no exponential and no
division. Polynomials are minimax, by the Remez exchange of ``fit_math.py``; all numbers are of
single precision.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import mpmath as mp
import numpy as np
from fit_math import Real, remez, rounded

SINGLE = 24


@dataclass(frozen=True)
class Piecewise:
    """A function of ``a >= 0`` on ``count`` intervals, in each a polynomial of ``t = a - origin``.

    Intervals have equal width around multiples of ``width`` (the origins), or grow: then they are
    what eighths of octaves of ``a + offset`` are, with their lower ends as origins. Without
    ``relative`` errors count absolutely. With it the first interval's polynomial has no constant
    term and the rounded derivative at 0 as its first, so that it is exact in relative terms down
    to the smallest number. ``last`` replaces the last interval's polynomial.
    """

    name: str
    function: Real
    degree: int
    relative: bool
    note: str
    width: float = 0.0
    offset: float = 0.0
    last: tuple[float, ...] = ()
    count: int = 32

    def bounds(self, number: int) -> tuple[mp.mpf, mp.mpf, mp.mpf]:
        """Return an interval's origin and the range of ``t``."""
        if self.width:
            half = mp.mpf(self.width) / 2
            return 2 * half * number, mp.mpf(0) if number == 0 else -half, half
        mantissa, exponent = mp.frexp(self.offset)
        first = int(16 * mantissa) - 8 + number  # eighths of octaves
        unit = mp.mpf(2) ** (exponent - 1 + first // 8) / 8
        return unit * (8 + first % 8) - self.offset, mp.mpf(0), unit

    def entry(self, number: int) -> int:
        """Return where an interval's coefficients stand: what the look-up's bits make of it."""
        if self.width:
            return number
        bits = int(np.float32(self.offset).view(np.uint32))
        return ((bits >> 20) + number) % self.count

    def interval(self, number: int) -> tuple[list[mp.mpf], mp.mpf]:
        """Fit one interval; return coefficients and the largest error."""
        if number == self.count - 1 and self.last:
            return [mp.mpf(c) for c in self.last], mp.mpf(0)
        first = number == 0 and self.relative
        center, low, high = self.bounds(number)
        half = (high - low) / 2
        low, high = low - half / 1000 if low or number else low, high + half / 1000
        if first:
            low = high / 1000
        slope = rounded(mp.diff(self.function, 0), SINGLE) if first else mp.mpf(0)
        grid = _nodes(low, high, 30 * (self.degree + 2))
        exact = [self.function(center + t) for t in grid]
        weight = [1 / abs(e) if self.relative else mp.mpf(1) for e in exact]
        if first:
            target = [(e - slope * t) / t**2 for e, t in zip(exact, grid)]
            weights = [w * t**2 for w, t in zip(weight, grid)]
            free, _ = remez(grid, target, weights, self.degree - 2)
            coefs = [mp.mpf(0), slope, *(rounded(c, SINGLE) for c in free)]
        else:
            coefs = [rounded(c, SINGLE) for c in remez(grid, exact, weight, self.degree)[0]]
        # The constant term's own rounding is part of the function's rounding, not of the fit.
        exact0 = coefs[0] if first else remez(grid, exact, weight, self.degree)[0][0]
        errors = [
            abs(w * (mp.polyval([*coefs[:0:-1], exact0], t) - e))
            for w, t, e in zip(weight, grid, exact)
        ]
        return coefs, max(errors)


def _nodes(low: mp.mpf, high: mp.mpf, count: int) -> list[mp.mpf]:
    steps = [(1 - mp.cos(mp.pi * (i + mp.mpf("0.5")) / count)) / 2 for i in range(count)]
    return [low + (high - low) * step for step in steps]


def _half_normal(a: mp.mpf) -> mp.mpf:
    return mp.erf(a / mp.sqrt(2)) / 2


def _half_tanh(a: mp.mpf) -> mp.mpf:
    return mp.tanh(mp.sqrt(2 / mp.pi) * (a + mp.mpf("0.044715") * a**3)) / 2


TINY = 2.0**-24
# The last interval of a function that tends to 1 must round to 1 where the true value does, which
# the rounded constant term of a fit would not.
PIECEWISE = [
    Piecewise(
        "erf", mp.erf, 4, True, "erf(k/8 + t)", width=0.125,
        last=(1.0 - TINY, 5.6e-7, 0.0, 0.0, 0.0),
    ),
    Piecewise(
        "tanh", mp.tanh, 4, True, "tanh(a), a + 5/8 by eighths of octaves", offset=0.625,
        last=(1.0 - 2 * TINY, 2.16e-7, -1.12e-7, 0.0, 0.0),
    ),
    Piecewise("gelu", _half_normal, 4, False, "erf((k/4 + t) / sqrt 2) / 2", width=0.25),
    Piecewise(
        "gelu_tanh", _half_tanh, 4, False,
        "tanh(sqrt(2/pi) (a + 0.044715 a**3)) / 2, a = k/4 + t", width=0.25,
    ),
    Piecewise("gelu_8", _half_normal, 7, False, "erf((k + t) / sqrt 2) / 2", width=1.0, count=8),
    Piecewise(
        "gelu_tanh_8", _half_tanh, 7, False,
        "tanh(sqrt(2/pi) (a + 0.044715 a**3)) / 2, a = k + t", width=1.0, count=8,
    ),
]  # fmt: skip


def reciprocals(count: int, base: mp.mpf, one: mp.mpf) -> tuple[list[mp.mpf], list[mp.mpf]]:
    """Return ``c`` and ``-log c`` for equal parts of [1, 2), both of single precision.

    ``one`` is the number that stands for ``log 2``. In each interval ``c`` is that number near the
    reciprocal of its middle whose logarithm is nearest to one of single precision, so that the
    look-up is much better than it looks. The upper half's logarithms cancel with ``-one`` when the
    exponent is -1: there the sum must be good. The first and the last interval touch a power of
    two, where the result tends to zero: there they are exact.
    """
    recips, logs = [mp.mpf(1)], [mp.mpf(0)]
    for i in range(1, count - 1):
        middle = count / (count + mp.mpf(i) + mp.mpf("0.5"))
        best: tuple[mp.mpf, mp.mpf, mp.mpf] | None = None
        start = int(mp.nint(middle * 2**SINGLE))
        for numerator in range(start - 3000, start + 3000):
            c = rounded(mp.mpf(numerator) / 2**SINGLE, SINGLE)
            wanted = -mp.log(c) / base + (one - mp.log(2) / base if 2 * i >= count else 0)
            error = abs(wanted - rounded(wanted, SINGLE))
            if best is None or error < best[0]:
                best = (error, c, rounded(wanted, SINGLE))
        assert best is not None
        recips.append(best[1])
        logs.append(best[2])
    return [*recips, mp.mpf("0.5")], [*logs, one]


HEADER = '''"""Look-up tables of the vector math library for AVX-512 and AVX2.

Generated by ``tools/fit_tables.py``; do not edit by hand.
"""

from __future__ import annotations

# fmt: off
'''


def _half_period(r: mp.mpf) -> mp.mpf:
    return (mp.mpf(2) ** r - 1) / r


def _log_ratio(scale: mp.mpf) -> Real:
    return lambda r: scale * mp.log1p(r) / r


LOG_RANGE = (-mp.mpf("0.0317"), mp.mpf("0.0627"))  # what the table of reciprocals leaves
SHORT = mp.mpf("0.01563")
POLYNOMIALS: list[tuple[str, Real, tuple[mp.mpf, mp.mpf], int, int, str]] = [
    ("exp2", _half_period, (-SHORT, SHORT), 1, SINGLE, "2**r = 1 + r * P(r), |r| <= 1/64"),
    ("exp2_fine", _half_period, (-SHORT, SHORT), 2, SINGLE, "the same, by one term more"),
    ("log", _log_ratio(mp.mpf(1)), LOG_RANGE, 4, SINGLE, "log(1 + r) = r * P(r)"),
    ("log2", _log_ratio(1 / mp.log(2)), LOG_RANGE, 4, SINGLE, "log2(1 + r) = r * P(r)"),
    ("pow_log2", _log_ratio(1 / mp.log(2)), LOG_RANGE, 5, 53, "log2(1 + r) = r * P(r), in float64"),
]


def _polynomial(
    function: Real, interval: tuple[mp.mpf, mp.mpf], degree: int, bits: int
) -> tuple[list[mp.mpf], mp.mpf]:
    # An even number of nodes: zero, where the functions have no value, is none of them.
    grid = _nodes(*interval, 30 * (degree + 2))
    target = [function(r) for r in grid]
    exponential = function is _half_period
    weight = [abs(r) if exponential else 1 / abs(t) for r, t in zip(grid, target)]
    coefs = remez(grid, target, weight, degree)[0]
    if bits == SINGLE and not exponential:
        # The first coefficient carries the result next to 1: round it first, fit the rest again.
        first = rounded(function(mp.mpf("1e-30")), bits)
        rest = [(t - first) / r for t, r in zip(target, grid)]
        weights = [w * abs(r) for w, r in zip(weight, grid)]
        coefs = [first, *remez(grid, rest, weights, degree - 1)[0]]
    coefs = [rounded(c, bits) for c in coefs]
    error = max(w * abs(mp.polyval(coefs[::-1], r) - t) for w, r, t in zip(weight, grid, target))
    return coefs, error


def _rows(name: str, rows: list[list[mp.mpf]], note: str) -> list[str]:
    out = [f"    # {note}", f'    "{name}": (']
    for row in rows:
        numbers = [f"{float(v):.9g}" for v in row]
        out.append("        (")
        out += [f"            {', '.join(numbers[i : i + 5])}," for i in range(0, len(numbers), 5)]
        out.append("        ),")
    return [*out, "    ),"]


def main() -> None:
    out = [HEADER, "TABLES: dict[str, tuple[tuple[float, ...], ...]] = {"]
    for piece in PIECEWISE:
        fits = [piece.interval(k) for k in sorted(range(piece.count), key=piece.entry)]
        size = mp.nstr(mp.log(max(error for _, error in fits), 2), 4)
        print(f"{piece.name}: degree {piece.degree}, 2**{size}", file=sys.stderr)
        columns = [[coefs[i] for coefs, _ in fits] for i in range(piece.degree + 1)]
        note = f"{piece.note}, {piece.count} intervals; error 2**{size}"
        out += _rows(piece.name, columns, note)
    powers = [rounded(mp.mpf(2) ** (mp.mpf(i) / 32), SINGLE) for i in range(32)]
    out += _rows("exp2", [powers], "2**(i/32)")
    for name, base in (("log", mp.mpf(1)), ("log2", mp.log(2))):
        rows = reciprocals(16, base, rounded(mp.log(2) / base, SINGLE))
        out += _rows(name, list(rows), "c and -log c for [1, 2) in 16 parts")
    out += ["}\n", "POLYNOMIALS: dict[str, tuple[float, ...]] = {"]
    for name, function, interval, degree, bits, note in POLYNOMIALS:
        coefs, error = _polynomial(function, interval, degree, bits)
        size = mp.nstr(mp.log(error, 2), 4)
        print(f"{name}: degree {degree}, 2**{size}", file=sys.stderr)
        out += [f"    # {note}; error 2**{size}", f'    "{name}": (']
        out += [f"        {float(c)!r}," for c in coefs]
        out.append("    ),")
    print("\n".join([*out, "}"]))


if __name__ == "__main__":
    main()
