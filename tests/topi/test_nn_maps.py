"""Small operators of networks, against PyTorch and NumPy, compiled by rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch.nn.functional as F
from by_rule import evaluate, moved, numbers, results, t

from tilewright import te, topi
from tilewright.support.errors import VerifyError

nn = topi.nn


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_space_and_depth(layout: str) -> None:
    x, y = numbers(2, 12, 3, 4), numbers(1, 3, 4, 6)
    made = evaluate(lambda a: nn.depth_to_space(a, 2, layout, "CRD"), moved(x, "NCHW", layout))
    expected = F.pixel_shuffle(t(x), 2).numpy()
    np.testing.assert_array_equal(made, moved(expected, "NCHW", layout))
    made = evaluate(lambda a: nn.space_to_depth(a, 2, layout), moved(y, "NCHW", layout))
    back = evaluate(lambda a: nn.depth_to_space(a, 2, layout), made)
    np.testing.assert_array_equal(back, moved(y, "NCHW", layout))
    expected = y.reshape(1, 3, 2, 2, 3, 2).transpose(0, 3, 5, 1, 2, 4).reshape(1, 12, 2, 3)
    np.testing.assert_array_equal(made, moved(expected, "NCHW", layout))


def test_space_and_batch() -> None:
    x = numbers(2, 3, 5, 2)
    padded = np.pad(x, ((0, 0), (0, 1), (1, 0), (0, 0)), constant_values=7)
    expected = padded.reshape(2, 2, 2, 3, 2, 2).transpose(2, 4, 0, 1, 3, 5).reshape(8, 2, 3, 2)
    made = evaluate(lambda a: nn.space_to_batch_nd(a, (2, 2), (0, 1), (1, 0), 7.0), x)
    np.testing.assert_array_equal(made, expected)
    back = evaluate(lambda a: nn.batch_to_space_nd(a, (2, 2), (0, 1), (1, 0)), made)
    np.testing.assert_array_equal(back, x)


@pytest.mark.parametrize("batch", [0, 3])
def test_symbolic_batches(batch: int) -> None:
    n = te.var("n")
    x = numbers(batch, 4, 3, 2)
    for define, expected in (
        (lambda a: nn.depth_to_space(a, 2, mode="CRD"), F.pixel_shuffle(t(x), 2).numpy()),
        (nn.flatten, x.reshape(batch, 24)),
        (lambda a: nn.lrn(a, 3), F.local_response_norm(t(x), 3, 1e-4, 0.75, 2.0).numpy()),
        (lambda a: nn.reflect_pad(a, (0, 0, 1, 1)), np.pad(
            x, ((0, 0), (0, 0), (1, 1), (1, 1)), mode="reflect") if batch else x),
    ):  # fmt: skip
        made = evaluate(define, x, shapes=[(n, 4, 3, 2)], n=batch)
        np.testing.assert_allclose(made, expected.reshape(made.shape), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_nll_loss(reduction: str) -> None:
    x, weights = numbers(3, 4, 2), abs(numbers(4, seed=1))
    targets = np.array([[0, 1], [3, -100], [2, 1]], "int32")
    expected = F.nll_loss(t(x), t(targets).long(), t(weights), reduction=reduction).numpy()
    made = evaluate(lambda *a: nn.nll_loss(*a, reduction, -100), x, targets, weights)
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)


def test_lrn_along_any_axis() -> None:
    x = numbers(2, 3, 4, 5)
    expected = F.local_response_norm(t(moved(x, "NHWC", "NCHW")), 5, 0.1, 0.6, 1.5).numpy()
    made = evaluate(lambda a: nn.lrn(a, 5, -1, 0.1, 0.6, 1.5), x)
    np.testing.assert_allclose(made, moved(expected, "NCHW", "NHWC"), rtol=1e-5, atol=1e-6)
    with pytest.raises(VerifyError, match="size must be odd, got 4"):
        nn.lrn(te.placeholder((1, 3)), 4)


def test_scales_buffers_and_flat_rows() -> None:
    x, s, b = numbers(2, 3, 2, 2), numbers(3, seed=1), numbers(3, seed=2)
    scaled = x * s[:, None, None] + b[:, None, None]
    made = evaluate(nn.scale_shift_nchw, x, s, b)
    np.testing.assert_allclose(made, scaled, rtol=1e-6)
    made = evaluate(nn.scale_shift_nhwc, moved(x, "NCHW", "NHWC"), s, b)
    np.testing.assert_allclose(made, moved(scaled, "NCHW", "NHWC"), rtol=1e-6)
    old, new = numbers(2, 5), numbers(2, 3, seed=1)
    made = evaluate(lambda d, o: nn.fifo_buffer(d, o, 1), new, old)
    np.testing.assert_array_equal(made, np.concatenate([old[:, 3:], new], 1))
    with pytest.raises(VerifyError, match="6 elements do not fit a buffer of 5"):
        nn.fifo_buffer(te.placeholder((6,)), te.placeholder((5,)), 0)


def test_products_of_signs() -> None:
    x, w = numbers(3, 64), numbers(2, 64, seed=1)

    def define(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        return nn.binary_dense(nn.binarize_pack(a, 1), nn.binarize_pack(b))

    expected = np.where(x >= 0, 1, -1) @ np.where(w >= 0, 1, -1).T
    np.testing.assert_array_equal(evaluate(define, x, w), expected)


@pytest.mark.parametrize("axis", [0, 2])
def test_bits_in_words(axis: int) -> None:
    x = np.random.default_rng(0).integers(0, 4, (2, 16)).astype("uint8")
    made = evaluate(lambda a: nn.bitpack(a, 2, 1, axis, "uint8"), x)
    expected = np.stack([np.packbits(x >> bit & 1, 1) for bit in range(2)], axis)
    np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_deformable_convolution_without_offsets_is_a_convolution(layout: str) -> None:
    x, w = numbers(2, 4, 6, 5), numbers(6, 2, 3, 2)
    expected = F.conv2d(t(x), t(w), None, (2, 1), 1, 1, 2).numpy()
    offset = np.zeros((2, 2 * 12, *expected.shape[2:]), "float32")
    kernel, conv = moved(w, "OIHW", "OIHW"), nn.deformable_conv2d_nchw
    if layout == "NHWC":
        kernel, conv = moved(w, "OIHW", "HWIO"), nn.deformable_conv2d_nhwc
    made = evaluate(
        lambda a, o, b: conv(a, o, b, (2, 1), 1, 1, 2, 2, "float32"),
        moved(x, "NCHW", layout), moved(offset, "NCHW", layout), kernel,
    )  # fmt: skip
    np.testing.assert_allclose(made, moved(expected, "NCHW", layout), rtol=1e-4, atol=1e-5)


def test_deformable_convolution_between_pixels() -> None:
    x = np.array([10, 20, 40], "float32").reshape(1, 1, 3, 1).repeat(8, 3)
    offset = np.zeros((1, 2, 3, 8), "float32")
    offset[0, 0, 0] = [-0.5, 0, 0.5, 1.5, 2, 2.25, 2.75, 3]
    one = np.ones((1, 1, 1, 1), "float32")
    made = evaluate(
        lambda *a: nn.deformable_conv2d_nchw(*a, 1, 0, 1, 1, 1, "float32"), x, offset, one
    )
    np.testing.assert_allclose(made[0, 0, 0], [0, 10, 15, 30, 40, 30, 10, 0], rtol=1e-6)
    np.testing.assert_array_equal(made[0, 0, 1:], x[0, 0, 1:])


@pytest.mark.parametrize("is_multiply", [True, False])
def test_correlation(is_multiply: bool) -> None:
    a, b = numbers(1, 3, 6, 7), numbers(1, 3, 6, 7, seed=1)
    kernel, reach, stride1, stride2, around = 3, 2, 2, 2, 3
    first, second = (np.pad(v, ((0, 0), (0, 0), (around,) * 2, (around,) * 2)) for v in (a, b))
    made = evaluate(
        lambda x, y: nn.correlation_nchw(
            x, y, kernel, reach, stride1, stride2, around, is_multiply
        ),
        a,
        b,
    )
    assert made.shape[1] == 9
    for channel in range(9):
        down, right = (channel // 3 - 1) * stride2, (channel % 3 - 1) * stride2
        for y, x in np.ndindex(made.shape[2:]):
            row, column = y * stride1 + reach, x * stride1 + reach
            one = first[0, :, row : row + kernel, column : column + kernel]
            row, column = row + down, column + right
            two = second[0, :, row : row + kernel, column : column + kernel]
            both = one * two if is_multiply else abs(one - two)
            np.testing.assert_allclose(made[0, channel, y, x], both.mean(), rtol=1e-4, atol=1e-5)


def test_upsampling() -> None:
    x = numbers(1, 2, 3, 4)
    made = evaluate(lambda a: nn.upsampling(a, 2, 3), x)
    np.testing.assert_array_equal(made, x.repeat(2, 2).repeat(3, 3))
    made = evaluate(lambda a: nn.upsampling(a, 2, 1.5, method="bilinear", align_corners=True), x)
    expected = F.interpolate(t(x), (6, 6), mode="bilinear", align_corners=True).numpy()
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)
    x = numbers(1, 2, 3, 2, 2)
    made = evaluate(lambda a: nn.upsampling3d(a, 2, 2, 2, method="trilinear"), x)
    expected = F.interpolate(t(x), scale_factor=2, mode="trilinear").numpy()
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)


WRONG: dict[str, tuple[Callable[..., Any], str]] = {
    "layout": (lambda x: nn.depth_to_space(x, 2, "CHWN"), "layout is 'NCHW' or 'NHWC'"),
    "mode": (lambda x: nn.depth_to_space(x, 2, mode="RDC"), "mode is 'DCR' or 'CRD'"),
    "channels": (lambda x: nn.depth_to_space(x, 3), "4 channels do not divide into 9"),
    "squares": (lambda x: nn.space_to_depth(x, 4), "does not divide into 4"),
    "blocks": (lambda x: nn.space_to_batch_nd(x, (2,), (0,), (0, 0)), "numbers for as many axes"),
    "images": (lambda x: nn.batch_to_space_nd(x, (3,), (0,), (0,)), "2 images do not divide"),
    "method": (lambda x: nn.upsampling(x, 2, 2, method="area"), "method must be one of"),
    "kernel": (
        lambda x: nn.correlation_nchw(x, x, 2, 1, 1, 1, 0, True), "kernel_size must be odd"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_refused(name: str) -> None:
    define, message = WRONG[name]
    with pytest.raises(VerifyError, match=message):
        define(te.placeholder((2, 4, 6, 6)))


@pytest.mark.parametrize("named", [False, True])
def test_deformable_convolution_at_places_outside_of_the_image(named: bool) -> None:
    """Taps may go anywhere: far away and to no number at all, what they find there is zero."""
    x = numbers(1, 16, 3, 5)
    x[0, :, 0, 4] = np.inf
    offset = np.zeros((1, 2, 3, 5), np.float32)
    offset[0, 0, 0] = [np.nan, np.inf, -np.inf, 1e30, 0]
    offset[0, 1, 1] = [-1e30, -1.5, 0.5, 1e9, 0.5]
    offset[0, 0, 2] = [0.5, 0.25, -2, -2.5, 1]
    shapes = [(1, 16, "h", "w"), (1, 2, "h", "w"), (8, 16, 1, 1)]
    if named:
        sizes = {name: te.var(name, "int64") for name in "hw"}
        shapes = [tuple(sizes.get(n, n) for n in shape) for shape in shapes]
    kernel = numbers(8, 16, 1, 1, seed=1)
    (found,) = results(
        lambda *a: nn.deformable_conv2d_nchw(*a, 1, 0, 1, 1, 1, "float32"),
        x, offset, kernel, **({"shapes": shapes, "h": 3, "w": 5} if named else {}),
    )  # fmt: skip
    sampled = np.zeros_like(x)
    sampled[0, :, 0, 4] = x[0, :, 0, 4]
    for column in (2, 4):
        last = x[0, :, 1, column + 1] if column < 4 else 0
        sampled[0, :, 1, column] = (x[0, :, 1, column] + last) / 2
    sampled[0, :, 2, 0] = x[0, :, 2, 0] / 2
    sampled[0, :, 2, 1] = x[0, :, 2, 1] * 0.75
    sampled[0, :, 2, 2] = x[0, :, 0, 2]
    expected = np.einsum("fc,nchw->nfhw", kernel[:, :, 0, 0], sampled)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
