"""Derive the polynomial tables of the LLVM vector math library.

    python tools/fit_math.py > src/tilewright/codegen/llvm/math/coefficients.py

Every table is a weighted minimax polynomial found here by Remez exchange in 80-digit arithmetic
(mpmath); nothing is taken from another library. On one-sided intervals the lowest free coefficient
is rounded to the target format after each exchange and the rest are fitted again around it, so the
rounding of the coefficients is part of the optimum. (On intervals around zero the remaining terms
are no Haar system, so there all coefficients are simply rounded.) The
constants (``ln 2`` in two parts, ``2/pi`` in windows, ...) come from mpmath as well. The error that
each fit reaches is printed to stderr and kept in the table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import mpmath as mp
import numpy as np

mp.mp.dps = 80
Real = Callable[[mp.mpf], mp.mpf]


def rounded(value: mp.mpf, bits: int) -> mp.mpf:
    """Round ``value`` to ``bits`` significant bits, half to even."""
    with mp.workprec(bits):
        return +value


def parts(value: mp.mpf, bits: int, count: int) -> list[mp.mpf]:
    """Split ``value`` into ``count`` ``bits``-bit numbers, each the rounding of what is left."""
    result = []
    for _ in range(count):
        head = rounded(value, bits)
        result.append(head)
        value = value - head
    return result


def remez(
    grid: list[mp.mpf], target: list[mp.mpf], weight: list[mp.mpf], degree: int
) -> tuple[list[mp.mpf], mp.mpf]:
    """Minimise ``max |weight * (p - target)|`` over the grid for polynomials of one degree."""
    count = degree + 2
    last = len(grid) - 1
    points = [round(last * (1 - np.cos(np.pi * i / (count - 1))) / 2) for i in range(count)]
    coefs: list[mp.mpf] = []
    level = mp.mpf(0)
    for _ in range(12):
        matrix = mp.matrix(count, count)
        right = mp.matrix(count, 1)
        for row, at in enumerate(points):
            power = mp.mpf(1)
            for col in range(degree + 1):
                matrix[row, col] = power * weight[at]
                power *= grid[at]
            matrix[row, degree + 1] = (-1) ** row
            right[row] = target[at] * weight[at]
        solved = mp.lu_solve(matrix, right)
        coefs = [solved[i] for i in range(degree + 1)]
        level = abs(solved[degree + 1])
        errors = [w * (mp.polyval(coefs[::-1], x) - t) for x, t, w in zip(grid, target, weight)]
        # One extremum per run of equal sign; keep the alternating set with the largest errors.
        runs: list[int] = []
        for at, error in enumerate(errors):
            if runs and (error > 0) == (errors[runs[-1]] > 0):
                if abs(error) > abs(errors[runs[-1]]):
                    runs[-1] = at
            else:
                runs.append(at)
        while len(runs) > count:
            runs.pop(0 if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else -1)
        worst = max(abs(e) for e in errors)
        if len(runs) < count or worst <= level * mp.mpf("1.001"):
            return coefs, worst
        points = runs
    return coefs, level


@dataclass(frozen=True)
class Fit:
    """One polynomial: its name, the function, the interval, the weight, degrees for (f32, f64)."""

    name: str
    function: Real
    low: mp.mpf
    high: mp.mpf
    weight: Real
    degrees: tuple[int, int]
    note: str
    high64: mp.mpf | None = None

    def run(self, bits: int) -> tuple[list[mp.mpf], mp.mpf]:
        degree = self.degrees[0 if bits == 24 else 1]
        high = self.high64 if self.high64 is not None and bits == 53 else self.high
        count = 30 * (degree + 2)
        nodes = [mp.mpf(float((1 - np.cos(np.pi * (i + 0.5) / count)) / 2)) for i in range(count)]
        grid = [self.low + (high - self.low) * node for node in nodes]
        target = [self.function(x) for x in grid]
        weight = [self.weight(x) for x in grid]
        start, weights = list(target), list(weight)
        coefs: list[mp.mpf] = []
        if self.low < 0:
            coefs = [rounded(c, bits) for c in remez(grid, target, weight, degree)[0]]
        for left in range(degree, -1, -1) if self.low > 0 else ():
            free, _ = remez(grid, target, weight, left)
            coefs.append(rounded(free[0], bits))
            target = [(t - coefs[-1]) / x for t, x in zip(target, grid)]
            weight = [w * abs(x) for w, x in zip(weight, grid)]
        error = max(
            abs(w * (mp.polyval(coefs[::-1], x) - t)) for x, t, w in zip(grid, start, weights)
        )
        return coefs, error


LN2 = mp.log(2)
HALF_LN2 = LN2 / 2 * mp.mpf("1.003")
QUARTER_PI = mp.pi / 4 * mp.mpf("1.0005")
ONE = mp.mpf(1)


def odd_tail(function: Real) -> Real:
    """Return ``P`` in ``function(x) = x + x**3 * P(x**2)``, as a function of ``x**2``."""
    return lambda z: (function(mp.sqrt(z)) / mp.sqrt(z) - 1) / z


def odd_weight(function: Real) -> Real:
    """Weight that makes the error of ``odd_tail`` relative to the function."""
    return lambda z: z * mp.sqrt(z) / function(mp.sqrt(z))


def odd(name: str, function: Real, high: mp.mpf, degrees: tuple[int, int]) -> Fit:
    note = f"{name}(x) = x + x**3 * P(x**2), |x| <= {mp.nstr(high, 6)}"
    return Fit(
        name, odd_tail(function), high**2 / 1000, high**2, odd_weight(function), degrees, note
    )


def log_fit(name: str, scale: mp.mpf) -> Fit:
    return Fit(
        name,
        lambda f: scale * (mp.log1p(f) - f) / f**2,
        mp.sqrt(mp.mpf("0.5")) - 1,
        mp.sqrt(2) - 1,
        lambda f: abs(f**2 / (scale * mp.log1p(f))),
        (8, 20),
        f"{name}(1 + f) = f * c + f**2 * P(f), sqrt(1/2) <= 1 + f <= sqrt(2)",
    )


def exp_fit(name: str, scale: mp.mpf, known: int, degrees: tuple[int, int]) -> Fit:
    """Fit ``exp(scale * r)`` after its first ``known`` terms, on half a period of ``2**n``."""

    def tail(r: mp.mpf) -> mp.mpf:
        return (mp.exp(scale * r) - sum(r**i for i in range(known))) / r**known

    high = HALF_LN2 / scale
    terms = "1 + r + r**2 * P(r)" if known == 2 else "1 + r * P(r)"
    return Fit(
        name, tail, -high, high, lambda r: abs(r**known) / mp.exp(scale * r), degrees,
        f"{name}(r) = {terms}, |r| <= {mp.nstr(high, 6)}",
    )  # fmt: skip


def pow_tail(z: mp.mpf) -> mp.mpf:
    s = mp.sqrt(z)
    return (2 * mp.atanh(s) / LN2 / s - 2 / LN2 - z * 2 / (3 * LN2)) / z**2


FITS = [
    exp_fit("exp", ONE, 2, (4, 9)),
    exp_fit("exp2", LN2, 1, (5, 10)),
    exp_fit("exp10", mp.log(10), 1, (5, 10)),
    log_fit("log", ONE),
    log_fit("log2", 1 / LN2),
    log_fit("log10", 1 / mp.log(10)),
    odd("tanh", mp.tanh, mp.mpf("0.6"), (4, 10)),
    odd("sinh", mp.sinh, ONE, (3, 7)),
    odd("sin", mp.sin, QUARTER_PI, (3, 6)),
    Fit(
        "cos", lambda z: (mp.cos(mp.sqrt(z)) - 1) / z, mp.mpf("1e-3"), QUARTER_PI**2,
        lambda z: z / mp.cos(mp.sqrt(z)), (3, 6), "cos(x) = 1 + x**2 * P(x**2), |x| <= pi/4",
    ),
    odd("tan", mp.tan, QUARTER_PI, (6, 14)),
    odd("atan", mp.atan, ONE, (8, 20)),
    odd("asin", mp.asin, mp.mpf("0.5"), (4, 11)),
    Fit(
        "erf", lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1, mp.mpf("1e-6"), ONE,
        lambda z: mp.sqrt(z) / mp.erf(mp.sqrt(z)), (6, 12), "erf(x) = x + x * P(x**2), |x| <= 1",
    ),
    Fit(
        "erfc_log", lambda a: mp.log(mp.erfc(a)), ONE, mp.mpf(4),
        lambda a: mp.erfc(a) / mp.erf(a), (7, 19),
        "erf(a) = 1 - exp(P(a)), 1 <= a <= 4 (fp32) or 6 (fp64)", mp.mpf(6),
    ),
    Fit(
        "pow_log2", pow_tail, mp.mpf("1e-5"), (mp.sqrt(2) - 1) ** 2 / (mp.sqrt(2) + 1) ** 2,
        lambda z: z**2 * LN2 / 2, (2, 7),
        "log2((1 + s) / (1 - s)) = s * (c0 + c1 * s**2 + s**4 * P(s**2)), |s| <= 0.1716",
    ),
]  # fmt: skip

CONSTANTS: list[tuple[str, mp.mpf, int]] = [
    ("ln2", LN2, 2),
    ("log10_2", mp.log10(2), 2),
    ("log2_e", 1 / LN2, 2),
    ("log2_10", mp.log(10) / LN2, 2),
    ("log10_e", 1 / mp.log(10), 2),
    ("half_pi", mp.pi / 2, 3),
    ("two_over_pi", 2 / mp.pi, 1),
    ("pow_c0", 2 / LN2, 2),
    ("pow_c1", 2 / (3 * LN2), 2),
    ("sqrt_half", mp.sqrt(mp.mpf("0.5")), 2),
    ("sqrt_two_over_pi", mp.sqrt(2 / mp.pi), 1),
]

HEADER = '''"""Polynomial and constant tables of the vector math library.

Generated by ``tools/fit_math.py`` (Remez exchange in 80-digit arithmetic); do not edit by hand.
Coefficients run from the constant term upwards. The last column of each comment is the largest
weighted (in most cases: relative) error of the exact polynomial, as a power of two.
"""

from __future__ import annotations

# fmt: off
'''


def main() -> None:
    wanted = sys.argv[1:]
    out = [HEADER]
    out.append("POLYNOMIALS: dict[str, dict[int, tuple[float, ...]]] = {")
    for fit in FITS:
        if wanted and fit.name not in wanted:
            continue
        out.append(f"    # {fit.note}")
        out.append(f'    "{fit.name}": {{')
        for bits, width in ((24, 32), (53, 64)):
            coefs, error = fit.run(bits)
            size = mp.nstr(mp.log(error, 2), 4)
            print(f"{fit.name} f{width}: degree {len(coefs) - 1}, 2**{size}", file=sys.stderr)
            out.append(f"        {width}: (  # 2**{size}")
            out += [f"            {float(c)!r}," for c in coefs]
            out.append("        ),")
        out.append("    },")
    out.append("}\n")
    out.append(
        "# Each constant as a sum of numbers of the format: value = parts[0] + parts[1] + ..."
    )
    out.append("CONSTANTS: dict[str, dict[int, tuple[float, ...]]] = {")
    for name, value, count in CONSTANTS:
        out.append(f'    "{name}": {{')
        for bits, width in ((24, 32), (53, 64)):
            numbers = ", ".join(repr(float(p)) for p in parts(value, bits, count))
            out.append(f"        {width}: ({numbers},),")
        out.append("    },")
    out.append("}\n")
    out.append("# Row g: (2/pi * 2**(16 * g)) modulo 4, in four parts, for huge angles.")
    out.append("TWO_OVER_PI_WINDOWS: tuple[tuple[float, float, float, float], ...] = (")
    with mp.workdps(450):
        for group in range(64):
            window = mp.fmod(2 / mp.pi * mp.mpf(2) ** (16 * group), 4)
            out.append(f"    ({', '.join(repr(float(p)) for p in parts(window, 53, 4))}),")
    out.append(")")
    print("\n".join(out))


if __name__ == "__main__":
    main()
