"""What compiled graphs leave to NumPy: transforms of odd sizes, and dense linear algebra.

Graphs call ``relax.numpy(name, kinds, options, *tensors)``: one of the functions here, with the
operands, then the results to write. ``kinds`` has ``c`` for each complex tensor among them (a real
one with a last axis of 2), ``s`` for each size and ``r`` for each other; ``options`` are JSON.

Functions of matrices take stacks of them. Where a matrix is singular (or not positive definite),
its result is NaN and its ``info`` the number of the row where that was noticed; with the option
``check`` that is a ``RunError``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.relax.execution.global_calls import copy_back
from tilewright.runtime import from_dlpack, register_global_func
from tilewright.support.errors import RunError

Array = NDArray[Any]

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""Functions that graphs may call, by name; each takes arrays and options."""


def _call(name: str, kinds: str, options: str, *tensors: object) -> None:
    """Call a function of the table; its first results are converted to the outputs' dtypes."""
    arrays = [_array(item, kind) for item, kind in zip(tensors, kinds, strict=True)]
    given = json.loads(options)
    count = given.pop("results")
    inputs, outputs = arrays[:-count], arrays[-count:]
    results = FUNCTIONS[name](*inputs, **given)
    for result, output in zip(results if isinstance(results, tuple) else (results,), outputs):
        output[...] = result
    for tensor, output in zip(tensors[-count:], outputs):
        copy_back(tensor, output)


def _array(given: Any, kind: str) -> Any:
    if kind == "s":
        return int(given)
    array: Array = from_dlpack(given).numpy()
    if kind == "r":
        return array
    dtype = np.complex64 if array.dtype == np.float32 else np.complex128
    return array.view(dtype).reshape(array.shape[:-1])


register_global_func("relax.numpy", _call, override=True)


def _entry(function: Callable[..., Any]) -> Callable[..., Any]:
    FUNCTIONS[function.__name__] = function
    return function


# ---- integers, slices ----------------------------------------------------------------------------


@_entry
def gcd(a: Array, b: Array) -> Array:
    """Greatest common divisors."""
    made: Array = np.gcd(a, b)
    return made


@_entry
def lcm(a: Array, b: Array) -> Array:
    """Least common multiples."""
    made: Array = np.lcm(a, b)
    return made


@_entry
def unique_slices(x: Array, axis: int) -> tuple[Array, ...]:
    """Different slices along an axis, each slice's place among them, their counts, their number.

    Slices and counts are filled up with zeros.
    """
    values, inverse, counts = np.unique(x, axis=axis, return_inverse=True, return_counts=True)
    rest = x.shape[axis] - len(counts)
    widths = [(0, rest if number == axis else 0) for number in range(x.ndim)]
    return (
        np.pad(values, widths), inverse.reshape(-1), np.pad(counts, (0, rest)),
        np.array(len(counts)),
    )  # fmt: skip


# ---- Fourier transforms --------------------------------------------------------------------------


def _scale(sizes: Sequence[int], normalization: int) -> float:
    """What PyTorch divides by: nothing (0), the root of the size (1), or the size (2)."""
    size = math.prod(sizes)
    return (1.0, size**-0.5, 1.0 / size)[normalization]


@_entry
def fft(x: Array, dims: Sequence[int], forward: bool, normalization: int) -> Array:
    """Transform real or complex numbers to complex ones."""
    function = np.fft.fftn if forward else np.fft.ifftn
    made: Array = function(x, axes=dims, norm="backward" if forward else "forward")
    return made * _scale([x.shape[axis] for axis in dims], normalization)


@_entry
def fft_to_half(x: Array, dims: Sequence[int], normalization: int) -> Array:
    """Transform real numbers to the first half of their spectrum along the last of ``dims``."""
    made: Array = np.fft.rfftn(x, axes=dims)
    return made * _scale([x.shape[axis] for axis in dims], normalization)


@_entry
def fft_to_real(x: Array, size: int, dims: Sequence[int], normalization: int) -> Array:
    """Transform half a spectrum, as ``fft_to_half`` gives it, to ``size`` real numbers."""
    sizes = [*(x.shape[axis] for axis in dims[:-1]), size]
    made: Array = np.fft.irfftn(x, s=sizes, axes=dims, norm="forward")
    return made * _scale(sizes, normalization)


# ---- solving -------------------------------------------------------------------------------------


def _adjoint(a: Array) -> Array:
    return a.conj().swapaxes(-1, -2)


def _matrices(a: Array) -> Array:
    return a.reshape(math.prod(a.shape[:-2]), *a.shape[-2:])


def _each(function: Callable[..., Array], *stacks: Array) -> Array:
    """Apply a function to stacks of matrices; where it fails for one, its result is NaN."""
    try:
        return function(*stacks)
    except np.linalg.LinAlgError:
        batch = np.broadcast_shapes(*(a.shape[:-2] for a in stacks))
        wide = [_matrices(np.broadcast_to(a, (*batch, *a.shape[-2:]))) for a in stacks]
        made = []
        for matrices in zip(*wide):
            try:
                made.append(function(*matrices))
            except np.linalg.LinAlgError:
                made.append(np.full_like(matrices[-1], np.nan))
        return np.stack(made).reshape(*batch, *made[0].shape)


def _refuse(info: Array, what: str, fault: str, check: bool) -> None:
    if check and info.any():
        place = tuple(map(int, np.argwhere(info)[0])) if info.ndim else ()
        which = f"matrix {place} of the stack" if place else "the matrix"
        raise RunError(f"{what}: {which} {fault} (noticed in row {int(info[place])})")


def _solved(a: Array, b: Array, left: bool = True) -> Array:
    """Solve ``a x = b``, or ``x a = b``."""
    if not left:
        return _solved(a.swapaxes(-1, -2), b.swapaxes(-1, -2)).swapaxes(-1, -2)
    b = b.reshape(*[1] * (a.ndim - b.ndim), *b.shape)
    return _each(np.linalg.solve, a, b)


@_entry
def inverse(a: Array, check: bool) -> tuple[Array, Array]:
    """The inverses and ``info``."""
    made = _each(np.linalg.inv, a)
    info = _singular(a, made)
    _refuse(info, "inverse", "is singular", check)
    return made, info


@_entry
def solve(a: Array, b: Array, left: bool, check: bool) -> tuple[Array, Array]:
    """The solutions for the columns of ``b`` (rows, unless ``left``), or a vector, and ``info``."""
    is_vector = b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1])
    made = _solved(a, b[..., None] if is_vector else b, left or is_vector)
    info = _singular(a, made)
    _refuse(info, "solve", "is singular", check)
    return made[..., 0] if is_vector else made, info


def _singular(a: Array, result: Array) -> Array:
    """``info`` of matrices that were inverted."""
    if np.isfinite(result).all():
        return np.zeros(a.shape[:-2], np.int32)
    info: Array = lu_factor(a, pivot=True, check=False)[2]
    return info


@_entry
def solve_triangular(
    a: Array, b: Array, upper: bool, left: bool, unit: bool, turned: bool = False
) -> Array:
    """Solutions with one triangle of ``a``, transposed if ``turned``."""
    triangle = np.triu(a) if upper else np.tril(a)
    if unit:
        places = range(a.shape[-1])
        triangle[..., places, places] = 1
    return _solved(triangle.swapaxes(-1, -2) if turned else triangle, b, left)


# ---- decompositions ------------------------------------------------------------------------------


@_entry
def determinant(a: Array) -> Array:
    """The determinants."""
    made: Array = np.linalg.det(a)
    return made


@_entry
def log_determinant(a: Array) -> tuple[Array, Array]:
    """Signs, and logarithms of absolute values, of the determinants."""
    signs, logarithms = np.linalg.slogdet(a)
    return signs, logarithms


@_entry
def cholesky(a: Array, upper: bool, check: bool) -> tuple[Array, Array]:
    """The triangular factors and ``info``; the other triangle isn't read."""
    lower = _adjoint(a) if upper else a
    made = _each(np.linalg.cholesky, lower)
    info = np.zeros(a.shape[:-2], np.int32)
    for place in np.argwhere(np.isnan(made).any((-1, -2))):
        info[tuple(place)] = _indefinite(lower[tuple(place)])
    _refuse(info, "cholesky", "isn't positive definite", check)
    return _adjoint(made) if upper else made, info


def _indefinite(a: Array) -> int:
    """The order of the first leading block that isn't positive definite."""
    for order in range(1, len(a) + 1):
        try:
            np.linalg.cholesky(a[:order, :order])
        except np.linalg.LinAlgError:
            return order
    return 0


@_entry
def cholesky_solve(b: Array, factor: Array, upper: bool) -> Array:
    """Solutions of a system by its matrix' triangular factor."""
    return _solved(_multiplied(factor, upper), b)


@_entry
def cholesky_inverse(factor: Array, upper: bool) -> Array:
    """The inverse of a matrix by its triangular factor."""
    return _each(np.linalg.inv, _multiplied(factor, upper))


def _multiplied(factor: Array, upper: bool) -> Array:
    lower = _adjoint(np.triu(factor)) if upper else np.tril(factor)
    made: Array = lower @ _adjoint(lower)
    return made


@_entry
def lu_factor(a: Array, pivot: bool, check: bool) -> tuple[Array, Array, Array]:
    """Both factors in one matrix, the row (from 1) exchanged with each, and ``info``."""
    factors = a.copy()
    steps = min(a.shape[-2:])
    pivots = np.empty((*a.shape[:-2], steps), np.int32)
    info = np.zeros(a.shape[:-2], np.int32)
    for place in np.ndindex(*a.shape[:-2]):
        info[place] = _eliminate(factors[place], pivots[place], pivot)
    _refuse(info, "lu_factor", "is singular", check)
    return factors, pivots, info


def _eliminate(matrix: Array, pivots: Array, pivot: bool) -> int:
    """Gauss's elimination in place; returns the first step (from 1) without a pivot, or 0."""
    fault = 0
    for step in range(len(pivots)):
        column = matrix[step:, step]
        sizes = np.abs(column.real) + np.abs(column.imag)
        chosen = step + (int(sizes.argmax()) if pivot else 0)
        pivots[step] = chosen + 1
        if matrix[chosen, step] == 0:
            fault = fault or step + 1
            continue
        if chosen != step:
            matrix[[step, chosen]] = matrix[[chosen, step]]
        matrix[step + 1 :, step] /= matrix[step, step]
        below, beside = matrix[step + 1 :, step], matrix[step, step + 1 :]
        matrix[step + 1 :, step + 1 :] -= np.outer(below, beside)
    return fault


@_entry
def lu_unpack(factors: Array, pivots: Array) -> tuple[Array, Array, Array]:
    """Permutation, lower and upper factor."""
    rows, columns = factors.shape[-2:]
    steps = min(rows, columns)
    lower = np.tril(factors[..., :steps], -1)
    lower[..., range(steps), range(steps)] = 1
    orders = np.empty((*factors.shape[:-2], rows), np.int64)
    for place in np.ndindex(*factors.shape[:-2]):
        order = orders[place]
        order[:] = range(rows)
        for step, chosen in enumerate(pivots[place] - 1):
            order[[step, chosen]] = order[[chosen, step]]
    permutation = np.eye(rows, dtype=factors.dtype)[orders].swapaxes(-1, -2)
    return permutation, lower, np.triu(factors[..., :steps, :])


@_entry
def lu(a: Array, pivot: bool) -> tuple[Array, Array, Array]:
    """Permutation, lower and upper factor of matrices."""
    factors, pivots, _ = lu_factor(a, pivot, False)
    made: tuple[Array, Array, Array] = lu_unpack(factors, pivots)
    return made


@_entry
def lu_solve(factors: Array, pivots: Array, b: Array, left: bool, adjoint: bool) -> Array:
    """Solutions of a system by its matrix' factors."""
    permutation, lower, upper = lu_unpack(factors, pivots)
    matrix = permutation @ lower @ upper
    return _solved(_adjoint(matrix) if adjoint else matrix, b, left)


@_entry
def qr(a: Array, mode: str) -> tuple[Array, Array]:
    """Orthogonal and triangular factor."""
    made = np.linalg.qr(a, "complete" if mode == "complete" else "reduced")
    return (np.empty(0, a.dtype) if mode == "r" else made[0]), made[1]


@_entry
def svd(a: Array, full: bool) -> tuple[Array, Array, Array]:
    """Left singular vectors, singular values, adjoint right singular vectors."""
    made = np.linalg.svd(a, full)
    return made[0], made[1], made[2]


@_entry
def singular_values(a: Array) -> Array:
    """Singular values, in falling order."""
    made: Array = np.linalg.svd(a, compute_uv=False)
    return made


@_entry
def eigh(a: Array, triangle: str) -> tuple[Array, Array]:
    """Eigenvalues, in rising order, and vectors of Hermitian matrices given by a triangle."""
    values, vectors = np.linalg.eigh(a, "U" if triangle.upper() == "U" else "L")
    return values, vectors


@_entry
def eigh_values(a: Array, triangle: str) -> Array:
    """Eigenvalues of Hermitian matrices, in rising order."""
    made: Array = np.linalg.eigvalsh(a, "U" if triangle.upper() == "U" else "L")
    return made


@_entry
def eig(a: Array) -> tuple[Array, Array]:
    """Eigenvalues and vectors of any matrices."""
    values, vectors = np.linalg.eig(a)
    return values, vectors


@_entry
def eig_values(a: Array) -> Array:
    """Eigenvalues of any matrices."""
    made: Array = np.linalg.eigvals(a)
    return made


@_entry
def pseudoinverse(a: Array, *limits: Array, hermitian: bool, **named: Sequence[str]) -> Array:
    """Pseudoinverses; singular values up to an absolute or a relative limit are zero."""
    if hermitian:  # only the lower triangle counts
        below = np.tril(a, -1)
        a = below + _adjoint(below) + np.where(np.eye(a.shape[-1], dtype=bool), a.real, 0)
    u, s, v = np.linalg.svd(a, full_matrices=False)
    if not s.size:
        return _adjoint(a)
    given = dict(zip(named["limits"], limits))
    default = 0.0 if "atol" in given else max(a.shape[-2:]) * np.finfo(a.dtype).eps
    relative = np.asarray(given.get("rtol", default))[..., None] * s[..., :1]
    limit = np.maximum(relative, np.asarray(given.get("atol", 0.0))[..., None])
    inverted = np.where(s > limit, 1 / np.where(s > limit, s, 1), 0)
    made: Array = _adjoint(v) @ (inverted[..., None] * _adjoint(u))
    return made


@_entry
def exponential(a: Array) -> Array:
    """The exponentials of matrices, by a series after scaling, squared as often as halved."""
    wide = a.astype(np.result_type(a.dtype, np.float64))
    if not wide.size:
        return wide
    norm = np.abs(wide).sum(-2).max()
    halvings = max(0, int(np.ceil(np.log2(norm))) + 2) if np.isfinite(norm) and norm > 0 else 0
    scaled = wide / 2.0**halvings
    term = made = np.broadcast_to(np.eye(a.shape[-1], dtype=wide.dtype), a.shape)
    for number in range(1, 16):
        term = term @ scaled / number
        made = made + term
    for _ in range(halvings):
        made = made @ made
    return made
