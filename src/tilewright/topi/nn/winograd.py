"""Winograd's minimal filtering: convolutions of stride one with fewer multiplications.

A tile of ``m x m`` results of an ``r x r`` window takes ``(m + r - 1)^2`` multiplications per pair
of channels instead of ``m^2 r^2`` (Lavin & Gray, *Fast Algorithms for Convolutional Neural
Networks*, 2016):

    Y = A^T [(G g G^T) * (B^T d B)] A

The matrices come from interpolation at ``m + r - 2`` points and at infinity (Cook and Toom). They
are computed here from the points, exactly. What rounding does to the result depends on the points
(Barabasz et al., *Error Analysis and Improving the Accuracy of Winograd Convolution*, 2020): with
0, +-3/4 and +-3/2 the error of F(4x4, 3x3) is a quarter of what it is with the usual 0, +-1, +-2.
Relative to the largest result, against float64, it is about 3e-6, and 6e-7 for F(2x2, 3x3); direct
summation has 4e-7.

All stages keep channels last, so that each transform works on vectors of channels and the products
in between are matrix products; the result comes back in the order of the input, or another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright import te
from tilewright.arith import simplify
from tilewright.ir import Expr, ExprLike, Select, and_, as_int, const, if_then_else
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, require_equal, with_conditions
from tilewright.tir.attrs import integer, register_annotation
from tilewright.topi.layout import image_layout
from tilewright.topi.utils import padding_of, require_ndim

WINOGRAD_TILE = register_annotation(
    "winograd_tile",
    integer(1, 16),
    means="On the block of products: rows of results per tile.",
    read_by=("dlight.cpu.contraction.winograd",),
)

# Pairs +-a share most of their rows' work; powers of two times small numbers keep factors exact.
_POINTS = {
    count: tuple(map(Fraction, points))
    for count, points in {
        1: ("0",),
        2: ("0", "1"),
        3: ("0", "1", "-1"),
        4: ("0", "1", "-1", "2"),
        5: ("0", "3/4", "-3/4", "3/2", "-3/2"),
        6: ("0", "1", "-1", "1/2", "-1/2", "2"),
        7: ("0", "1", "-1", "1/2", "-1/2", "2", "-2"),
    }.items()
}

Matrix = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True)
class WinogradMatrices:
    """The three transforms of ``F(m, r)``, exactly: of the result, the filter and the input."""

    result: Matrix  # A^T, m x alpha
    filter: Matrix  # G, alpha x r
    input: Matrix  # B^T, alpha x alpha


@cache
def winograd_matrices(m: int, r: int) -> WinogradMatrices:
    """Return the matrices of ``F(m, r)``: ``m`` results of a window of ``r``.

    Raises ``VerifyError`` for sizes that need more points than are known.
    """
    count = m + r - 2
    if m < 1 or r < 1 or count not in _POINTS:
        raise VerifyError(
            f"winograd: F({m}, {r}) needs {count} points; m + r - 2 from 1 to {max(_POINTS)} works"
        )
    points = _POINTS[count]
    zero, one = Fraction(0), Fraction(1)
    result = tuple((*(a**i for a in points), one if i == m - 1 else zero) for i in range(m))
    filters, inputs = [], []
    for a in points:
        others = [b for b in points if b != a]
        scale = one
        for b in others:
            scale *= a - b
        filters.append(tuple(a**k / scale for k in range(r)))
        inputs.append((*_from_roots(others), zero))
    filters.append((*(zero for _ in range(r - 1)), one))
    inputs.append(_from_roots(points))
    return WinogradMatrices(result, tuple(filters), tuple(inputs))


def _from_roots(roots: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """Coefficients of the polynomial with these roots, the constant term first."""
    made = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *made]
        made = [a - root * b for a, b in zip(shifted, [*made, Fraction(0)])]
    return tuple(made)


# So many filters of one channel are transformed at a time: their float64 numbers stay in the cache.
_PAIRS = 4096


def winograd_weight(weight: NDArray[Any], m: int) -> NDArray[Any]:
    """Transform constant filters ``[F, C, r, r]`` to ``[alpha, alpha, C, F]``, in float64."""
    count, channels, window, _ = weight.shape
    rows = np.array(winograd_matrices(m, window).filter, np.float64)
    both = np.kron(rows, rows)
    alpha = len(rows)
    made = np.empty((alpha, alpha, channels, count), weight.dtype)
    step = max(1, _PAIRS // max(count, 1))
    for first in range(0, channels, step):
        columns = weight[:, first : first + step].transpose(2, 3, 1, 0).astype(np.float64)
        target = made[:, :, first : first + step]
        target[...] = (both @ columns.reshape(window * window, -1)).reshape(target.shape)
    return made


def conv2d_winograd_weight_transform(weight: Tensor, tile: int, turned: bool = False) -> Tensor:
    """Transform filters ``[F, C, r, r]`` to ``[alpha, alpha, C, F]``.

    Those that are to be ``turned``, as in a transposed convolution, are ``[C, F, r, r]``, and have
    their taps in reverse.
    """
    require_ndim("conv2d_winograd", weight, 4)
    window = _window_of(weight.shape[2:])
    matrix = winograd_matrices(tile, window).filter
    channels, filters = weight.shape[:2] if turned else weight.shape[1::-1]
    last, alpha = window - 1, tile + window - 1
    taps: Tensor = compute(
        (channels, window, window, filters),
        lambda c, i, j, f: weight(c, f, last - i, last - j) if turned else weight(f, c, i, j),
        name="taps",
    )
    rows: Tensor = compute(
        (channels, alpha, window, filters),
        lambda c, x, j, f: row_of(x, matrix, [taps(c, i, j, f) for i in range(window)]),
        name="filter_rows",
    )
    made: Tensor = compute(
        (alpha, alpha, channels, filters),
        lambda x, y, c, f: row_of(y, matrix, [rows(c, x, j, f) for j in range(window)]),
        name="filter_transform",
    )
    return made


def conv2d_winograd(
    data: Tensor,
    weight: Tensor,
    padding: int | Sequence[int] = 0,
    tile: int = 4,
    turned: bool = False,
) -> Tensor:
    """Convolve ``data [N, C, H, W]`` with ``weight [F, C, r, r]`` at stride one.

    ``turned`` filters are ``[C, F, r, r]`` with taps in reverse.
    """
    filters = conv2d_winograd_weight_transform(weight, tile, turned)
    return conv2d_winograd_without_weight_transform(data, filters, padding, tile)


@with_conditions
def conv2d_winograd_without_weight_transform(
    data: Tensor,
    weight: Tensor,
    padding: int | Sequence[int] = 0,
    tile: int = 4,
    layout: str = "NCHW",
    out_layout: str = "",
) -> Tensor:
    """Convolve ``data [N, C, H, W]`` with transformed filters ``weight [alpha, alpha, C, F]``.

    ``tile`` is the number of rows (and columns) of results that are made together. The image and
    the result may have channels in blocks (``layout``, ``out_layout`` such as ``NCHW16c``).
    """
    image = image_layout("conv2d_winograd", layout)
    made_layout = image_layout("conv2d_winograd", out_layout or layout)
    require_ndim("conv2d_winograd", data, image.ndim)
    require_ndim("conv2d_winograd", weight, 4)
    sizes = image.extents(data.shape)
    require_equal("conv2d_winograd: channels", sizes["C"], weight.shape[2])
    alpha = _window_of(weight.shape[:2])
    matrices = winograd_matrices(tile, alpha - tile + 1)
    before, after = padding_of(padding, 2)
    batch, channels, filters = data.shape[0], sizes["C"], weight.shape[3]
    out = [data.shape[2 + a] + before[a] + after[a] - (alpha - tile) for a in range(2)]
    tiles = [simplify((extent + tile - 1) // tile) for extent in out]
    extents = [count * tile + alpha - tile for count in tiles]
    source = pad_channels_last(data, channels, image.block("C"), before, extents)
    rc = te.reduce_axis((0, channels), "rc")
    if any(as_int(count) is None for count in tiles):
        result = _tiles_in_a_row(source, weight, matrices, tile, tiles, rc)
    else:
        inputs = transform_tiles(source, matrices.input, tile, tiles, "input")
        products: Tensor = compute(
            (alpha, alpha, batch, tiles[0], tiles[1], filters),
            lambda x, y, n, p, q, f: te.sum(
                inputs(x, y, n, p, q, rc.var) * weight(x, y, rc.var, f), axis=[rc]
            ),
            name="products",
            attrs={WINOGRAD_TILE: tile},
        )
        transformed = _result_transform(products, matrices.result, out)
        result = lambda n, h, w, f: transformed(n, h, w, f)
    shape = made_layout.shape({"N": batch, "C": filters, "H": out[0], "W": out[1]})
    size = made_layout.block("C")
    formula: Callable[..., Expr] = lambda n, f, h, w: result(n, h, w, f)
    if size > 1:
        formula = lambda n, f, h, w, b: result(n, h, w, f * size + b)
    made: Tensor = compute(shape, formula, name="conv2d_winograd", tag="conv2d_winograd")
    return made


def transform_tiles(
    source: Tensor, matrix: Matrix, step: int, tiles: Sequence[Any], what: str
) -> Tensor:
    """Transform tiles of ``source [N, H, W, C]``, the rows and columns of which are ``step`` apart.

    The result is ``[alpha, alpha, N, rows, columns, C]``; tiles are as large as the ``alpha`` rows
    of the matrix are long. ``what`` the source is names the blocks.
    """
    batch, _, width, channels = source.shape
    alpha, size = len(matrix), len(matrix[0])
    rows: Tensor = compute(
        (batch, tiles[0], alpha, width, channels),
        lambda n, p, x, w, c: row_of(
            x, matrix, [source(n, p * step + i, w, c) for i in range(size)], parity=True
        ),
        name=f"{what}_rows",
    )
    made: Tensor = compute(
        (alpha, alpha, batch, tiles[0], tiles[1], channels),
        lambda x, y, n, p, q, c: row_of(
            y, matrix, [rows(n, p, x, q * step + j, c) for j in range(size)], parity=True
        ),
        name=f"{what}_transform",
    )
    return made


def _result_transform(products: Tensor, matrix: Matrix, out: Sequence[Any]) -> Tensor:
    """Transform products of tiles to ``[N, H, W, F]`` of extents ``out``."""
    tile, alpha = len(matrix), len(matrix[0])
    _, _, batch, _, columns, filters = products.shape
    summed: Tensor = compute(
        (batch, out[0], alpha, columns, filters),
        lambda n, h, y, q, f: row_of(
            h % tile, matrix, [products(x, y, n, h // tile, q, f) for x in range(alpha)]
        ),
        name="result_rows",
    )
    made: Tensor = compute(
        (batch, out[0], out[1], filters),
        lambda n, h, w, f: row_of(
            w % tile, matrix, [summed(n, h, y, w // tile, f) for y in range(alpha)]
        ),
        name="result_transform",
    )
    return made


def _tiles_in_a_row(
    source: Tensor,
    weight: Tensor,
    matrices: WinogradMatrices,
    tile: int,
    tiles: Sequence[Expr],
    rc: Any,
) -> Callable[..., Expr]:
    """The stages with all tiles of an image as one axis: any number of them fills a matrix.

    Return the result at ``(n, h, w, f)``.
    """
    batch, channels, filters = source.shape[0], weight.shape[2], weight.shape[3]
    alpha, count, across = len(matrices.input), tiles[0] * tiles[1], tiles[1]
    input_rows: Tensor = compute(
        (batch, count, alpha, alpha, channels),
        lambda n, t, x, j, c: row_of(
            x,
            matrices.input,
            [source(n, t // across * tile + i, t % across * tile + j, c) for i in range(alpha)],
            parity=True,
        ),
        name="input_rows",
    )
    inputs: Tensor = compute(
        (alpha, alpha, batch, count, channels),
        lambda x, y, n, t, c: row_of(
            y, matrices.input, [input_rows(n, t, x, j, c) for j in range(alpha)], parity=True
        ),
        name="input_transform",
    )
    products: Tensor = compute(
        (alpha, alpha, batch, count, filters),
        lambda x, y, n, t, f: te.sum(
            inputs(x, y, n, t, rc.var) * weight(x, y, rc.var, f), axis=[rc]
        ),
        name="products",
        attrs={WINOGRAD_TILE: tile},
    )
    result_rows: Tensor = compute(
        (batch, count, tile, alpha, filters),
        lambda n, t, i, y, f: row_of(
            i, matrices.result, [products(x, y, n, t, f) for x in range(alpha)]
        ),
        name="result_rows",
    )
    result: Tensor = compute(
        (batch, count, tile, tile, filters),
        lambda n, t, i, j, f: row_of(
            j, matrices.result, [result_rows(n, t, i, y, f) for y in range(alpha)]
        ),
        name="result_transform",
    )
    return lambda n, h, w, f: result(n, h // tile * across + w // tile, h % tile, w % tile, f)


def _window_of(shape: Sequence[object]) -> int:
    size = as_int(shape[0])
    if size is None or as_int(shape[1]) != size:
        raise VerifyError(f"conv2d_winograd: windows are square and constant, got {list(shape)}")
    return size


def pad_channels_last(
    data: Tensor, channels: Expr, block: int, before: Sequence[Any], size: Sequence[ExprLike]
) -> Tensor:
    """Surround with zeros, up to whole tiles, and put the channels last."""

    def formula(n: Expr, h: Expr, w: Expr, c: Expr) -> Expr:
        place, inside = [], []
        for at, lead, extent, total in zip((h, w), before, data.shape[2:4], size):
            place.append(at - lead)
            if as_int(lead) != 0:
                inside.append(at >= lead)
            if as_int(total - extent - lead) != 0:
                inside.append(at < extent + lead)
        value = data(n, c, *place) if block == 1 else data(n, c // block, *place, c % block)
        return if_then_else(and_(*inside), value, const(0, data.dtype)) if inside else value

    made: Tensor = compute(
        (data.shape[0], *size, channels), formula, name="pad_temp", tag="injective,pad"
    )
    return made


def row_of(row: Expr, matrix: Matrix, values: Sequence[Expr], *, parity: bool = False) -> Expr:
    """Return row ``row`` of ``matrix @ values``; it becomes constant once loops are unrolled."""
    made = _combine(matrix[-1], values, parity)
    for number in range(len(matrix) - 2, -1, -1):
        made = Select(row == number, _combine(matrix[number], values, parity), made)
    return made


def _combine(factors: Sequence[Fraction], values: Sequence[Expr], parity: bool) -> Expr:
    """Sum values, sharing partial sums between rows.

    Points come in pairs ``+-a``. In the two rows of the input's transform for a pair, even elements
    have equal factors and odd elements opposite ones (``parity``); in the result's transform the
    pair itself is added in one row and subtracted in the next. Each such partial sum is computed
    once.
    """
    count = len(values)
    if parity:
        parts = [range(0, count, 2), range(1, count, 2)]
    else:
        parts = [range(1)] + [range(a, min(a + 2, count)) for a in range(1, count, 2)]
    total: Expr | None = None
    for part in parts:
        used = [k for k in reversed(part) if factors[k]]
        if not used:
            continue
        lead = factors[used[0]]
        term = values[used[0]]
        for k in used[1:]:
            term = _add(term, factors[k] / lead, values[k])
        total = _scaled(lead, term) if total is None else _add(total, lead, term)
    assert total is not None
    return total


def _scaled(factor: Fraction, value: Expr) -> Expr:
    return value if factor == 1 else value * const(float(factor), value.dtype)


def _add(total: Expr, factor: Fraction, value: Expr) -> Expr:
    return total - _scaled(-factor, value) if factor < 0 else total + _scaled(factor, value)
