"""The novel operators as loop nests, as one writes them for Numba.

Functions take the workload's arrays and return the result. Loops over ``prange`` are those that
threads may share; the peer puts Numba's in its place. Constants have the type of the data, or all
would be computed in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

prange: Callable[..., Any] = range
_F = np.float32


# ---- products over other rings ------------------------------------------------------------------


def max_plus(a: Any, b: Any) -> Any:
    """Paths of two steps."""
    n = b.shape[1]
    out = np.empty((a.shape[0], n), np.float32)
    for i in prange(a.shape[0]):
        row = np.full(n, -np.inf, np.float32)
        for r in range(a.shape[1]):
            for j in range(n):
                row[j] = max(row[j], a[i, r] + b[r, j])
        out[i] = row
    return out


def manhattan(a: Any, b: Any) -> Any:
    """Distances of rows, by sums of differences."""
    out = np.empty((a.shape[0], b.shape[0]), np.float32)
    for i in prange(a.shape[0]):
        for j in range(b.shape[0]):
            total = _F(0)
            for r in range(a.shape[1]):
                total += abs(a[i, r] - b[j, r])
            out[i, j] = total
    return out


def hamming(a: Any, b: Any) -> Any:
    """Bits that differ, counted in pairs, fours and bytes."""
    out = np.empty((a.shape[0], b.shape[0]), np.int32)
    for i in prange(a.shape[0]):
        for j in range(b.shape[0]):
            total = np.int32(0)
            for r in range(a.shape[1]):
                v = a[i, r] ^ b[j, r]
                v = v - ((v >> np.uint32(1)) & np.uint32(0x55555555))
                v = (v & np.uint32(0x33333333)) + ((v >> np.uint32(2)) & np.uint32(0x33333333))
                v = (v + (v >> np.uint32(4))) & np.uint32(0x0F0F0F0F)
                total += np.int32(np.uint32(v * np.uint32(0x01010101)) >> np.uint32(24))
            out[i, j] = total
    return out


def complex_product(a: Any, b: Any) -> Any:
    """Products of matrices whose real and imaginary parts are apart."""
    n = a.shape[1]
    out = np.empty((2, n, n), np.float32)
    for i in prange(n):
        real, imaginary = np.zeros(n, np.float32), np.zeros(n, np.float32)
        for r in range(n):
            p, q = a[0, i, r], a[1, i, r]
            for j in range(n):
                real[j] += p * b[0, r, j] - q * b[1, r, j]
                imaginary[j] += p * b[1, r, j] + q * b[0, r, j]
        out[0, i], out[1, i] = real, imaginary
    return out


def banded(a: Any, b: Any) -> Any:
    """A matrix of some diagonals times a matrix."""
    n, columns, half = a.shape[0], b.shape[1], a.shape[1] // 2
    out = np.zeros((n, columns), np.float32)
    for i in prange(n):
        for d in range(max(0, half - i), min(a.shape[1], n + half - i)):
            for j in range(columns):
                out[i, j] += a[i, d] * b[i + d - half, j]
    return out


def block_sparse(values: Any, places: Any, b: Any) -> Any:
    """A matrix of some blocks a row times a matrix."""
    rows, per_row, size, _ = values.shape
    out = np.empty((rows, size, b.shape[1]), np.float32)
    for r in prange(rows):
        for i in range(size):
            row = np.zeros(b.shape[1], np.float32)
            for p in range(per_row):
                first = places[r, p] * size
                for k in range(size):
                    for j in range(b.shape[1]):
                        row[j] += values[r, p, i, k] * b[first + k, j]
            out[r, i] = row
    return out


def viterbi(scores: Any, moves: Any, seen: Any) -> Any:
    """The best score of each state after one more step."""
    out = np.full(scores.shape, -np.inf, np.float32)
    for b in prange(scores.shape[0]):
        for i in range(moves.shape[0]):
            for j in range(moves.shape[1]):
                out[b, j] = max(out[b, j], scores[b, i] + moves[i, j])
        for j in range(moves.shape[1]):
            out[b, j] += seen[b, j]
    return out


def covariance(x: Any) -> Any:
    """Products of all pairs of columns."""
    n = x.shape[1]
    out = np.empty((n, n), np.float32)
    for i in prange(n):
        row = np.zeros(n, np.float32)
        for k in range(x.shape[0]):
            for j in range(n):
                row[j] += x[k, i] * x[k, j]
        out[i] = row
    return out


# ---- all pairs ----------------------------------------------------------------------------------


def n_body(p: Any, m: Any) -> Any:
    """Forces on bodies by all others."""
    n = m.shape[0]
    out = np.empty((3, n), np.float32)
    for i in prange(n):
        fx, fy, fz = _F(0), _F(0), _F(0)
        for j in range(n):
            x, y, z = p[0, j] - p[0, i], p[1, j] - p[1, i], p[2, j] - p[2, i]
            near = _F(1) / np.sqrt(x * x + y * y + z * z + _F(0.01))
            pull = m[j] * near * near * near
            fx += x * pull
            fy += y * pull
            fz += z * pull
        out[0, i], out[1, i], out[2, i] = fx, fy, fz
    return out


def kernel_product(x: Any, v: Any) -> Any:
    """A matrix of Gaussians of distances times a vector."""
    n = x.shape[0]
    out = np.empty(n, np.float32)
    for i in prange(n):
        total = _F(0)
        for j in range(n):
            far = _F(0)
            for k in range(x.shape[1]):
                far += (x[i, k] - x[j, k]) * (x[i, k] - x[j, k])
            total += np.exp(far * _F(-0.5)) * v[j]
        out[i] = total
    return out


def rays(origin: Any, inverse: Any, low: Any, high: Any) -> Any:
    """Where rays enter the nearest box."""
    out = np.empty(origin.shape[1], np.float32)
    for r in prange(origin.shape[1]):
        best = _F(1e30)
        x, y, z = origin[0, r], origin[1, r], origin[2, r]
        u, v, w = inverse[0, r], inverse[1, r], inverse[2, r]
        for b in range(low.shape[1]):
            x0, x1 = (low[0, b] - x) * u, (high[0, b] - x) * u
            y0, y1 = (low[1, b] - y) * v, (high[1, b] - y) * v
            z0, z1 = (low[2, b] - z) * w, (high[2, b] - z) * w
            near = max(max(_F(0), min(x0, x1)), max(min(y0, y1), min(z0, z1)))
            far = min(min(_F(1e30), max(x0, x1)), min(max(y0, y1), max(z0, z1)))
            best = min(best, near if near <= far else _F(1e30))
        out[r] = best
    return out


def nearest_centre(x: Any, c: Any) -> Any:
    """Squares of distances to the nearest centres."""
    out = np.empty(x.shape[0], np.float32)
    for i in prange(x.shape[0]):
        best = _F(np.inf)
        for j in range(c.shape[0]):
            far = _F(0)
            for k in range(x.shape[1]):
                far += (x[i, k] - c[j, k]) * (x[i, k] - c[j, k])
            best = min(best, far)
        out[i] = best
    return out


# ---- grids --------------------------------------------------------------------------------------


def heat(x: Any) -> Any:
    """One step of the heat equation."""
    n = x.shape[0] - 2
    out = np.empty((n, n, n), np.float32)
    for i in prange(n):
        for j in range(n):
            middle, row = x[i + 1, j + 1], out[i, j]
            up, down, left, right = x[i, j + 1], x[i + 2, j + 1], x[i + 1, j], x[i + 1, j + 2]
            for k in range(n):
                around = up[k + 1] + down[k + 1] + left[k + 1] + right[k + 1]
                around += middle[k] + middle[k + 2]
                row[k] = middle[k + 1] * _F(0.4) + around * _F(0.1)
    return out


def lattice_boltzmann(f: Any) -> Any:
    """Move along nine velocities, then relax."""
    n = f.shape[1]
    xs = np.array([0, 1, 0, -1, 0, 1, -1, -1, 1])
    ys = np.array([0, 0, 1, 0, -1, 1, 1, -1, -1])
    shares = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4).astype(np.float32)
    out = np.empty((9, n, n), np.float32)
    for y in prange(n):
        came = np.empty(9, np.float32)
        for x in range(n):
            rho, u, v = _F(0), _F(0), _F(0)
            for q in range(9):
                own = f[q, (y - ys[q]) % n, (x - xs[q]) % n] * _F(0.05) + _F(1)
                came[q] = own
                rho += own
                u += own * _F(xs[q])
                v += own * _F(ys[q])
            u, v = u / rho, v / rho
            for q in range(9):
                along = u * _F(xs[q]) + v * _F(ys[q])
                rest = _F(1) + _F(3) * along + _F(4.5) * along * along - _F(1.5) * (u * u + v * v)
                out[q, y, x] = came[q] + (rho * rest * shares[q] - came[q]) * _F(0.6)
    return out


def haar(x: Any) -> Any:
    """Sums and differences of squares of four."""
    half = x.shape[0] // 2
    out = np.empty((4, half, half), np.float32)
    for i in prange(half):
        for j in range(half):
            p, q = x[2 * i, 2 * j], x[2 * i, 2 * j + 1]
            r, s = x[2 * i + 1, 2 * j], x[2 * i + 1, 2 * j + 1]
            out[0, i, j] = (p + q + r + s) * _F(0.5)
            out[1, i, j] = (p - q + r - s) * _F(0.5)
            out[2, i, j] = (p + q - r - s) * _F(0.5)
            out[3, i, j] = (p - q - r + s) * _F(0.5)
    return out


def bilateral(x: Any) -> Any:
    """Means of neighbours of similar values, in windows of five."""
    out_n = x.shape[0] - 4
    out = np.empty((out_n, out_n), np.float32)
    for i in prange(out_n):
        for j in range(out_n):
            total, weights = _F(0), _F(0)
            for di in range(5):
                for dj in range(5):
                    d = x[i + di, j + dj] - x[i + 2, j + 2]
                    near = np.exp(d * d * _F(-0.5))
                    total += near * x[i + di, j + dj]
                    weights += near
            out[i, j] = total / weights
    return out


def disparity(a: Any, b: Any) -> Any:
    """Sums of differences in windows of five, of an image and shifted ones."""
    n, shifts = a.shape[0], b.shape[1] - a.shape[1]
    size = n - 4
    out = np.zeros((shifts, size, size), np.float32)
    for d in prange(shifts):
        for y in range(size):
            row = out[d, y]
            for i in range(5):
                left, right = a[y + i], b[y + i, d:]
                for j in range(5):
                    for x in range(size):
                        row[x] += abs(left[x + j] - right[x + j])
    return out


def correlation(a: Any, b: Any) -> Any:
    """Products of the channels of an image and of shifted ones."""
    channels, n, _ = a.shape
    width = b.shape[1] - n + 1
    out = np.empty((width, width, n, n), np.float32)
    for dy in prange(width):
        for dx in range(width):
            for y in range(n):
                row = np.zeros(n, np.float32)
                for c in range(channels):
                    left, right = a[c, y], b[c, y + dy, dx:]
                    for x in range(n):
                        row[x] += left[x] * right[x]
                out[dy, dx, y] = row
    return out


def dilation(x: Any, s: Any) -> Any:
    """Largest sums of an image and a small one that slides over it."""
    size, width = x.shape[0] - s.shape[0] + 1, s.shape[0]
    out = np.full((size, size), -np.inf, np.float32)
    for y in prange(size):
        for i in range(width):
            for j in range(width):
                for c in range(size):
                    out[y, c] = max(out[y, c], x[y + i, c + j] + s[i, j])
    return out


def box_blur(x: Any) -> Any:
    """Means of 32 neighbours in a row, by running sums."""
    rows, n = x.shape
    out = np.empty((rows, n - 32), np.float32)
    for i in prange(rows):
        sums = np.empty(n, np.float32)
        total = _F(0)
        for j in range(n):
            total += x[i, j]
            sums[j] = total
        for j in range(n - 32):
            out[i, j] = (sums[j + 32] - sums[j]) * _F(1 / 32)
    return out


def distance_transform(f: Any) -> Any:
    """The lower envelope of parabolas."""
    rows, n = f.shape
    out = np.empty((rows, n), np.float32)
    for i in prange(rows):
        row = np.full(n, np.inf, np.float32)
        for k in range(n):
            for j in range(n):
                far = _F(j - k)
                row[j] = min(row[j], f[i, k] + far * far * _F(0.01))
        out[i] = row
    return out


def life(x: Any) -> Any:
    """One step of the game of life."""
    n = x.shape[0] - 2
    out = np.empty((n, n), np.int32)
    for i in prange(n):
        up, middle, down, row = x[i], x[i + 1], x[i + 2], out[i]
        for j in range(n):
            count = up[j] + up[j + 1] + up[j + 2] + middle[j] + middle[j + 2]
            count += down[j] + down[j + 1] + down[j + 2]
            row[j] = (count == 3) | ((count == 2) & (middle[j + 1] == 1))
    return out


# ---- element by element -------------------------------------------------------------------------

_FACTORS = tuple(_F(((-1) ** k) / math.factorial(min(k, 8))) for k in range(13))


def horner(x: Any) -> Any:
    """A polynomial of degree 12."""
    out = np.empty_like(x)
    for i in prange(x.shape[0]):
        made = _FACTORS[12]
        for k in range(11, -1, -1):
            made = made * x[i] + _FACTORS[k]
        out[i] = made
    return out


def rational(x: Any) -> Any:
    """A quotient of polynomials."""
    out = np.empty_like(x)
    for i in prange(x.shape[0]):
        s = x[i] * x[i]
        top = x[i] * (_F(135135) + s * (_F(17325) + s * (_F(378) + s)))
        out[i] = top / (_F(135135) + s * (_F(62370) + s * (_F(3150) + s * _F(28))))
    return out


def median(x: Any) -> Any:
    """The median of five neighbours, by a sorting network."""
    out = np.empty(x.shape[0] - 4, np.float32)
    for i in prange(x.shape[0] - 4):
        a, b, c, d, e = x[i], x[i + 1], x[i + 2], x[i + 3], x[i + 4]
        a, b = min(a, b), max(a, b)
        d, e = min(d, e), max(d, e)
        a, d = min(a, d), max(a, d)
        b, e = min(b, e), max(b, e)
        b, c = min(b, c), max(b, c)
        out[i] = max(b, min(c, d))
    return out


def solves(m: Any, b: Any) -> Any:
    """Systems of three equations by Cramer's rule."""
    n = b.shape[1]
    out = np.empty((3, n), np.float32)
    for s in prange(n):
        a, e, i = m[0, 0, s] + _F(4), m[1, 1, s] + _F(4), m[2, 2, s] + _F(4)
        d, g, h = m[1, 0, s], m[2, 0, s], m[2, 1, s]
        p, c, f = m[0, 1, s], m[0, 2, s], m[1, 2, s]
        x, y, z = b[0, s], b[1, s], b[2, s]
        u, v, w = e * i - f * h, f * g - d * i, d * h - e * g
        whole = _F(1) / (a * u + p * v + c * w)
        out[0, s] = (x * u + p * (f * z - y * i) + c * (y * h - e * z)) * whole
        out[1, s] = (a * (y * i - f * z) + x * v + c * (d * z - y * g)) * whole
        out[2, s] = (a * (e * z - y * h) + p * (y * g - d * z) + x * w) * whole
    return out


def pooled(x: Any, lengths: Any) -> Any:
    """Means of rows of different lengths."""
    batch, _, width = x.shape
    out = np.zeros((batch, width), np.float32)
    for b in prange(batch):
        for t in range(lengths[b]):
            for d in range(width):
                out[b, d] += x[b, t, d]
        for d in range(width):
            out[b, d] /= _F(lengths[b])
    return out


def iterated(re: Any, im: Any) -> Any:
    """Squares of absolute values after eight steps of ``z * z + c``, at most four."""
    out = np.empty_like(re)
    for i in prange(re.shape[0]):
        x, y = re[i], im[i]
        for _ in range(8):
            x, y = x * x - y * y + re[i], _F(2) * x * y + im[i]
            x, y = min(max(x, _F(-2)), _F(2)), min(max(y, _F(-2)), _F(2))
        out[i] = x * x + y * y
    return out


def cholesky(b: Any) -> Any:
    """Factors of ``b @ b.T + 4``, of three rows: six numbers for each."""
    n = b.shape[2]
    out = np.empty((6, n), np.float32)
    for s in prange(n):
        a = np.zeros((3, 3), np.float32)
        for i in range(3):
            for j in range(i + 1):
                for k in range(3):
                    a[i, j] += b[i, k, s] * b[j, k, s]
            a[i, i] += _F(4)
        p = np.sqrt(a[0, 0])
        q, r = a[1, 0] / p, a[2, 0] / p
        u = np.sqrt(a[1, 1] - q * q)
        v = (a[2, 1] - q * r) / u
        out[0, s], out[1, s], out[2, s] = p, q, u
        out[3, s], out[4, s], out[5, s] = r, v, np.sqrt(a[2, 2] - r * r - v * v)
    return out
