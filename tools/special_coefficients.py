"""Computes the polynomials of ``topi/special_tables.py``: ``python tools/special_coefficients.py``.

Each function is interpolated at Chebyshev's points in 60 digits (mpmath), and the interpolant is
turned into powers of the scaled variable. The error printed beside each is relative to the function
and doesn't include rounding.
"""

from __future__ import annotations

from collections.abc import Callable

import mpmath as mp

mp.mp.dps = 60


def interpolate(
    function: Callable[[mp.mpf], mp.mpf], low: float, high: float, degree: int, middle: float
) -> tuple[list[float], float]:
    """Coefficients of powers of ``x - middle``, lowest first, and the largest relative error."""
    low, high = mp.mpf(low), mp.mpf(high)
    count = degree + 1
    angles = [mp.pi * (mp.mpf(k) + 0.5) / count for k in range(count)]
    points = [(low + high) / 2 + (high - low) / 2 * mp.cos(angle) for angle in angles]
    values = [function(point) for point in points]
    matrix = mp.matrix(count, count)
    for row, point in enumerate(points):
        for column in range(count):
            matrix[row, column] = (point - middle) ** column
    solved = mp.lu_solve(matrix, mp.matrix(values))
    made = [float(item) for item in solved]
    worst = mp.mpf(0)
    for k in range(400):
        x = low + (high - low) * k / 399
        if function(x) != 0:
            found = mp.polyval(solved[::-1], x - middle)
            worst = max(worst, abs(found / function(x) - 1))
    return made, float(worst)


def _log_gamma(z: mp.mpf) -> mp.mpf:
    return mp.loggamma(2 + z) / z if abs(z) > mp.mpf(10) ** -20 else 1 - mp.euler


def _erfcx(t: mp.mpf) -> mp.mpf:
    """``exp(x²) erfc(x) (1 + 2x)`` of ``t = (x - 3.75) / (x + 3.75)``; at infinity its limit."""
    if t == 1:
        return 2 / mp.sqrt(mp.pi)
    x = mp.mpf(3.75) * (1 + t) / (1 - t)
    if x > 1e9:
        return 2 / mp.sqrt(mp.pi)
    return mp.exp(x * x) * mp.erfc(x) * (1 + 2 * x)


def _inverse_error_of(w: mp.mpf) -> mp.mpf:
    """``erfinv(x) / x`` where ``w = -log(1 - x²)``."""
    if w < mp.mpf(10) ** -25:
        return mp.sqrt(mp.pi) / 2
    rest = mp.exp(-w)
    x = mp.sqrt(1 - rest)
    # erfinv near one loses digits: solve erfc(y) = 1 - x instead.
    above = rest / (1 + x)
    start = mp.erfinv(x) if w < 20 else mp.sqrt(w) - mp.log(mp.sqrt(w)) / (2 * mp.sqrt(w)) - 0.5
    y = mp.findroot(lambda v: mp.log(mp.erfc(v)) - mp.log(above), start)
    return y / x


TABLES = {
    "LOG_GAMMA": (_log_gamma, -0.5, 0.5, 18, 0.0),
    "ERFC": (_erfcx, -0.77, 1.0, 22, 0.0),
    "ERFINV_CENTRE": (_inverse_error_of, 0.0, 5.0, 20, 2.5),
    "ERFINV_MIDDLE": (lambda s: _inverse_error_of(s * s), 2.2, 4.0, 24, 3.0),
    "ERFINV_TAIL": (lambda s: _inverse_error_of(s * s), 4.0, 6.1, 17, 5.0),
}

if __name__ == "__main__":
    for name, arguments in TABLES.items():
        coefficients, error = interpolate(*arguments)
        print(f"{name} = (  # relative error {error:.1e}")
        for item in coefficients:
            print(f"    {item!r},")
        print(")")
