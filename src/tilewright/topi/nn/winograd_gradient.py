"""Winograd's minimal filtering for gradients of filters: fewer multiplications, as forwards.

The gradient of a 3 x 3 filter is a convolution of the image with the gradient of the result. By
tiles of ``m x m`` of that gradient, it is the sum of many small convolutions with 3 x 3 results,
each ``F(3, m)`` (``winograd``). The sum is taken before the transform back:

    dW = A^T [sum of (G g G^T) * (B^T d B), over all tiles and images] A

For ``m`` = 4 that takes 36 multiplications where direct sums take 144.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright import te
from tilewright.ir import as_int
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, require_equal, with_conditions
from tilewright.tir.attrs import integer, register_annotation
from tilewright.topi.nn.winograd import (
    pad_channels_last,
    row_of,
    transform_tiles,
    winograd_matrices,
)
from tilewright.topi.utils import padding_of, require_ndim

WINOGRAD_GRADIENT = register_annotation(
    "winograd_gradient",
    integer(1, 16),
    means="On the block of products: rows of the result's gradient per tile.",
    read_by=("dlight.cpu.contraction.winograd_gradient",),
)

_WINDOW = 3


@with_conditions
def conv2d_weight_backward_winograd(
    output_grad: Tensor, data: Tensor, padding: int | Sequence[int] = 0, tile: int = 4
) -> Tensor:
    """Give ``[F, C, 3, 3]``, the gradient of filters of a convolution of stride one.

    ``data`` ``[N, C, H, W]`` was convolved with them, ``output_grad`` ``[N, F, P, Q]`` is the
    gradient of the result, in which ``tile`` rows and columns are taken together. All sizes are
    constant.

    Raises ``VerifyError`` if shapes don't fit.
    """
    what = "conv2d_weight_backward_winograd"
    for operand in (output_grad, data):
        require_ndim(what, operand, 4)
    require_equal(f"{what}: images", data.shape[0], output_grad.shape[0])
    matrices = winograd_matrices(_WINDOW, tile)
    alpha = len(matrices.input)
    out = [as_int(extent) for extent in output_grad.shape[2:]]
    if None in out:
        raise VerifyError(f"{what}: sizes are constant, got {list(output_grad.shape)}")
    before, _ = padding_of(padding, 2)
    tiles = [-(-(extent or 0) // tile) for extent in out]
    channels, filters, images = data.shape[1], output_grad.shape[1], data.shape[0]
    spread = [count * tile for count in tiles]
    around = [extent + alpha - tile for extent in spread]
    image = transform_tiles(
        pad_channels_last(data, channels, 1, before, around), matrices.input, tile, tiles, "input"
    )
    grad = transform_tiles(
        pad_channels_last(output_grad, filters, 1, (0, 0), spread),
        matrices.filter, tile, tiles, "gradient",
    )  # fmt: skip
    steps = [te.reduce_axis((0, images), "rn")]
    steps += [te.reduce_axis((0, count), name) for name, count in zip(("rp", "rq"), tiles)]
    at = [step.var for step in steps]
    products: Tensor = compute(
        (alpha, alpha, filters, channels),
        lambda x, y, f, c: te.sum(grad(x, y, *at, f) * image(x, y, *at, c), axis=steps),
        name="products",
        attrs={WINOGRAD_GRADIENT: tile},
    )
    rows: Tensor = compute(
        (filters, _WINDOW, alpha, channels),
        lambda f, i, y, c: row_of(i, matrices.result, [products(x, y, f, c) for x in range(alpha)]),
        name="result_rows",
    )
    result: Tensor = compute(
        (filters, _WINDOW, _WINDOW, channels),
        lambda f, i, j, c: row_of(j, matrices.result, [rows(f, i, y, c) for y in range(alpha)]),
        name="result_transform",
    )
    made: Tensor = compute(
        (filters, channels, _WINDOW, _WINDOW),
        lambda f, c, i, j: result(f, i, j, c),
        name=what,
    )
    return made
