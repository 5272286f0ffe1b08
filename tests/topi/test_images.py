"""Images resized, sampled and cut, against PyTorch and NumPy, compiled by rule."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch.nn.functional as F
from by_rule import evaluate, moved, numbers, t

from tests.everyday import few
from tilewright import te, topi
from tilewright.support.errors import VerifyError
from tilewright.topi.sampling import Sampling, not_above

image = topi.image

PLACES = {
    "half_pixel": lambda i, have, want: (i + 0.5) * have / want - 0.5,
    "align_corners": lambda i, have, want: i * (have - 1) / max(want - 1, 1),
    "asymmetric": lambda i, have, want: i * have / want,
    "pytorch_half_pixel": lambda i, have, want: (
        (i + 0.5) * have / want - 0.5 if want > 1 else 0 * i
    ),
    "tf_half_pixel_for_nn": lambda i, have, want: (i + 0.5) * have / want,
}
ROUNDINGS = {
    "round": np.rint,
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": lambda x: np.floor(x + 1e-5),
    "ceil": lambda x: np.ceil(x - 1e-5),
}


@pytest.mark.parametrize("mode", PLACES)
def test_nearest_pixels(mode: str) -> None:
    x = numbers(2, 7)
    for want in (3, 14, 1):
        places = PLACES[mode](np.arange(want), 7, want)
        made = evaluate(
            lambda a, n=want: image.resize1d(a, (), n, "NCW", "nearest_neighbor", mode, "round"),
            x[None],
        )
        expected = x[:, np.clip(ROUNDINGS["round"](places), 0, 6).astype(int)]
        np.testing.assert_array_equal(made[0], expected)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_roundings(rounding: str) -> None:
    x = numbers(1, 1, 4)
    made = evaluate(
        lambda a: image.resize1d(a, (), 8, "NCW", "nearest_neighbor", "asymmetric", rounding), x
    )
    at = np.clip(ROUNDINGS[rounding](np.arange(8) / 2), 0, 3).astype(int)
    np.testing.assert_array_equal(made, x[..., at])


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("method", ["linear", "cubic"])
@pytest.mark.parametrize("aligned", [True, False])
def test_interpolation(layout: str, method: str, aligned: bool) -> None:
    x = numbers(2, 3, 5, 4)
    torch_name = {"linear": "bilinear", "cubic": "bicubic"}[method]
    expected = F.interpolate(t(x), (8, 3), mode=torch_name, align_corners=aligned).numpy()
    mode = "align_corners" if aligned else "pytorch_half_pixel"
    made = evaluate(
        lambda a: image.resize2d(a, (), (8, 3), layout, method, mode), moved(x, "NCHW", layout)
    )
    np.testing.assert_allclose(made, moved(expected, "NCHW", layout), rtol=1e-4, atol=1e-5)


def test_volumes_integers_and_other_results() -> None:
    x = numbers(1, 2, 3, 4, 5)
    expected = F.interpolate(t(x), (4, 2, 7), mode="trilinear").numpy()
    made = evaluate(lambda a: image.resize3d(a, (), (4, 2, 7)), x)
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5)
    small = np.array([[[0, 10, 20]]], "uint8")
    made = evaluate(
        lambda a: image.resize1d(a, (), 6, coordinate_transformation_mode="asymmetric"), small
    )
    np.testing.assert_array_equal(made, [[[0, 5, 10, 15, 20, 20]]])
    made = evaluate(
        lambda a: image.resize1d(a, (), 0, "NCW", out_dtype="float64", output_shape=(1, 1, 3)),
        small,
    )
    assert made.dtype == np.float64
    np.testing.assert_array_equal(made, [[[0, 10, 20]]])


def test_parts_of_images() -> None:
    x = np.arange(20, dtype="float32").reshape(1, 1, 4, 5)
    made = evaluate(
        lambda a: image.resize2d(
            a, (0.0, 0.5, 1.0, 1.5), (4, 3), "NCHW", "linear", "tf_crop_and_resize",
            extrapolation_value=-7.0,
        ), x,
    )  # fmt: skip
    expected = np.full((4, 3), -7.0)
    expected[:, :2] = x[0, 0][:, [2, 4]]
    np.testing.assert_allclose(made[0, 0], expected, rtol=1e-6)


@few("padding", ["zeros", "border", "reflection"], every=2)
@pytest.mark.parametrize("method", ["nearest", "bilinear", "bicubic"])
def test_grid_sample(method: str, padding: str) -> None:
    x, grid = numbers(2, 3, 4, 5), 1.2 * numbers(2, 2, 3, 6, seed=1)
    for aligned in (True, False):
        made = evaluate(
            lambda a, g, al=aligned: image.grid_sample(a, g, method, "NCHW", padding, al), x, grid
        )
        places = t(grid.transpose(0, 2, 3, 1))
        expected = F.grid_sample(t(x), places, method, padding, aligned).numpy()
        np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.filterwarnings("ignore:Since version 1.3.0")
@pytest.mark.parametrize("size", [(1, 3), (3, 1), (1, 1)])
def test_affine_grids_of_single_pixels(size: tuple[int, int], aligned: bool) -> None:
    matrix = numbers(1, 2, 3)
    expected = F.affine_grid(t(matrix), [1, 1, *size], aligned).numpy().transpose(0, 3, 1, 2)
    made = evaluate(lambda m: image.affine_grid(m, size, aligned), matrix)
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)


def test_grid_sample_of_volumes_and_affine_grids() -> None:
    x, matrix = numbers(2, 2, 3, 4, 5), 0.6 * numbers(2, 3, 4, seed=1)
    for aligned in (True, False):
        grid = F.affine_grid(t(matrix), [2, 2, 3, 4, 2], aligned)
        made = evaluate(lambda m, al=aligned: image.affine_grid(m, (3, 4, 2), al), matrix)
        expected = grid.numpy().transpose(0, 4, 1, 2, 3)
        np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)
        sampled = F.grid_sample(t(x), grid, "bilinear", "zeros", aligned).numpy()
        made = evaluate(
            lambda a, g, al=aligned: image.grid_sample(a, g, layout="NCDHW", align_corners=al),
            x,
            made,
        )
        np.testing.assert_allclose(made, sampled, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_crop_and_resize(layout: str) -> None:
    x = numbers(2, 3, 5, 7)
    boxes = np.array([[0, 0, 1, 1], [0.25, 0.5, 0.75, 1], [-0.5, 0, 0.5, 1]], "float32")
    images = np.array([1, 0, 0], "int32")
    made = evaluate(
        lambda a, b, i: image.crop_and_resize(a, b, i, (3, 4), layout, "bilinear", 9.0),
        moved(x, "NCHW", layout), boxes, images,
    )  # fmt: skip
    made = moved(made, layout, "NCHW")
    aligned = F.interpolate(t(x[1:]), (3, 4), mode="bilinear", align_corners=True).numpy()
    np.testing.assert_allclose(made[0], aligned[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(made[1], x[0][:, 1:4][:, :, 3:7], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(made[2][:, 0], 9.0)
    np.testing.assert_allclose(made[2][:, 1], x[0][:, 0][:, [0, 2, 4, 6]], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_dilation(layout: str) -> None:
    x, w = numbers(2, 3, 6, 7), numbers(3, 3, 2)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    expected = np.full((2, 3, 3, 7), -np.inf, "float32")
    for i, j in np.ndindex(3, 2):
        part = padded[:, :, i : i + 6 : 2, 2 * j : 2 * j + 7]
        expected = np.maximum(expected, part[:, :, :3] + w[:, i, j][:, None, None])
    dilate = image.dilation2d_nchw if layout == "NCHW" else image.dilation2d_nhwc
    kernel = w if layout == "NCHW" else np.ascontiguousarray(w.transpose(1, 2, 0))
    made = evaluate(lambda a, b: dilate(a, b, (2, 1), 1, (1, 2)), moved(x, "NCHW", layout), kernel)
    np.testing.assert_allclose(made, moved(expected, "NCHW", layout), rtol=1e-5)


def test_symbolic_and_empty_batches() -> None:
    n = te.var("n")
    for batch in (0, 2):
        x, grid = numbers(batch, 2, 3, 4), numbers(batch, 2, 5, 2)
        shapes: list[Any] = [(n, 2, 3, 4), (n, 2, 5, 2)]
        made = evaluate(image.grid_sample, x, grid, shapes=shapes, n=batch)
        expected = F.grid_sample(t(x), t(grid.transpose(0, 2, 3, 1)), align_corners=True).numpy()
        np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5)
        made = evaluate(lambda a: image.resize2d(a, (), (6, 8)), x, shapes=shapes[:1], n=batch)
        expected = F.interpolate(t(x), (6, 8), mode="bilinear").numpy() if batch else made
        np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5)


def test_options_that_are_unknown() -> None:
    x, grid = te.placeholder((1, 1, 4, 4)), te.placeholder((1, 2, 4, 4))
    for define, message in (
        (lambda: image.resize2d(x, (), 3, "HWCN"), "layout must be one of NCHW, NHWC"),
        (lambda: image.resize2d(x, (), 3, method="area"), "method must be one of"),
        (lambda: image.resize2d(x, (), 3, "NCHW", "nearest_neighbor", "half_pixel", "up"),
         "rounding_method must be one of round"),
        (lambda: image.resize2d(x, (0, 1), 3, "NCHW", "linear", "tf_crop_and_resize"),
         "roi has 4 numbers"),
        (lambda: image.grid_sample(x, grid, padding_mode="wrap"), "padding_mode is one of zeros"),
        (lambda: image.grid_sample(x, grid, "area"), "method is one of nearest"),
        (lambda: image.affine_grid(grid, (4, 4)), "must have 3 dimensions"),
    ):  # fmt: skip
        with pytest.raises(VerifyError, match=message):
            define()


def test_places_of_small_images_are_of_32_bits() -> None:
    for extents, kind in (((9, 7), "int32"), ((46340, 46341), "int32"), ((46341, 46341), "int64")):
        steps = Sampling(extents, "linear", "zeros", False)
        places = te.placeholder((2, 1, 3), "float32")
        assert steps.index(places).dtype == steps.index_dtype == kind


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    ("dtype", "extent"),
    [("float16", 2052), ("float16", 70000), ("bfloat16", 300), ("float32", (1 << 24) + 4)],
)
def test_the_last_pixel_is_on_the_image_where_floats_round_its_place_up(
    dtype: str, extent: int, mode: str
) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    greatest = float(ml_dtypes.finfo(kind).max)
    numbers = [min(extent - 1, greatest), min(extent, greatest), np.nan, np.inf, -np.inf, greatest]
    steps = Sampling((extent,), mode, "border", True)
    index = evaluate(steps.index, np.array([numbers], kind))
    assert 0.9 * extent < index.max() < extent and index.min() >= -1

    assert 0.9 * extent < not_above(extent - 1, dtype) <= extent - 1
