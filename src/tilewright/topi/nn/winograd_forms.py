"""Winograd's convolutions by TVM's names: their layouts and arguments, and the matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tilewright.ir import cast
from tilewright.support.errors import VerifyError
from tilewright.support.naming import named
from tilewright.te import Tensor, compute
from tilewright.topi.create import const_vector
from tilewright.topi.nn.winograd import (
    conv2d_winograd_weight_transform,
    conv2d_winograd_without_weight_transform,
    winograd_matrices,
)
from tilewright.topi.utils import pair


def winograd_transform_matrices(
    tile_size: int, kernel_size: int, out_dtype: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return constant matrices ``A``, ``B`` and ``G`` of ``F(tile_size, kernel_size)``.

    With them ``Y = A^T [(G g G^T) * (B^T d B)] A``. They are of the points of this module.
    """
    exact = winograd_matrices(tile_size, kernel_size)
    transposed = (tuple(zip(*exact.result)), tuple(zip(*exact.input)), exact.filter)
    a, b, g = (
        const_vector(np.array([[float(x) for x in row] for row in matrix], out_dtype), name)
        for matrix, name in zip(transposed, "ABG")
    )
    return a, b, g


def _channels_first(data: Tensor, weight: Tensor, pre_computed: bool) -> tuple[Tensor, Tensor]:
    """Images and, unless they are transformed already, filters in the order of ``NCHW``."""
    n, h, w, c = data.shape
    image: Tensor = compute(
        (n, c, h, w), lambda b, k, i, j: data(b, i, j, k), name="channels_first"
    )
    if pre_computed:
        return image, weight
    rows, columns, channels, filters = weight.shape
    kernel: Tensor = compute(
        (filters, channels, rows, columns), lambda f, k, i, j: weight(i, j, k, f), name="kernel"
    )
    return image, kernel


def _channels_last(made: Tensor) -> Tensor:
    n, c, h, w = made.shape
    last: Tensor = compute((n, h, w, c), lambda b, i, j, k: made(b, k, i, j), name="channels_last")
    return last


def _conv2d_winograd_in(layout: str, doc: str) -> Callable[..., Tensor]:
    def conv2d_winograd(
        data: Tensor,
        weight: Tensor,
        strides: int | Sequence[int],
        padding: int | Sequence[int],
        dilation: int | Sequence[int],
        out_dtype: str,
        pre_computed: bool = False,
    ) -> Tensor:
        is_last = layout == "NHWC"
        if is_last:
            data, weight = _channels_first(data, weight, pre_computed)
        if set(pair(strides, 2, "strides")) | set(pair(dilation, 2, "dilation")) != {1}:
            raise VerifyError("conv2d_winograd: strides and dilation are 1")
        tile = 4
        filters = weight if pre_computed else conv2d_winograd_weight_transform(weight, tile)
        made = conv2d_winograd_without_weight_transform(data, filters, padding, tile)
        if out_dtype != made.dtype:
            wide: Tensor = made
            made = compute(wide.shape, lambda *i: cast(wide(*i), out_dtype), name="cast")
        return _channels_last(made) if is_last else made

    return named(conv2d_winograd, f"conv2d_winograd_{layout.lower()}", doc)


conv2d_winograd_nchw = _conv2d_winograd_in(
    "NCHW",
    """Convolve ``data [N, C, H, W]`` with ``weight [F, C, r, r]`` by Winograd's ``F(4, r)``.

    With ``pre_computed`` the weight is transformed already: ``[alpha, alpha, C, F]``.

    Raises ``VerifyError`` for strides and dilations other than one.
    """,
)
conv2d_winograd_nhwc = _conv2d_winograd_in(
    "NHWC",
    "Convolve ``data [N, H, W, C]`` with ``weight [r, r, C, F]``; see ``conv2d_winograd_nchw``.",
)
