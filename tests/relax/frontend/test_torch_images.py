"""Converters of PyTorch operators on images: pooling with places, resizing, sampling."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch_families import Family, check, tensor  # noqa: E402

import tilewright  # noqa: E402

F = torch.nn.functional


def test_pooling_with_places() -> None:
    check(
        {
            "1d": lambda x: F.max_pool1d(x[0], 3, 2, return_indices=True),
            "2d": lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True),
            "2d up": lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True, return_indices=True),
            "2d without batch": lambda x: F.max_pool2d(
                x[0], 2, dilation=(1, 2), return_indices=True
            ),
            "3d": lambda x: F.max_pool3d(x, 2, return_indices=True),
            "adaptive 1d": lambda x: F.adaptive_max_pool1d(x[0], 3, return_indices=True),
            "adaptive 2d": lambda x: F.adaptive_max_pool2d(x, (2, 3), return_indices=True),
            "adaptive 3d": lambda x: F.adaptive_max_pool3d(x, (2, 2, 3), return_indices=True),
        },
        tensor(2, 2, 5, 7),
    )  # fmt: skip


class Rounded(torch.nn.Module):
    """Pools whose last windows reach beyond the image."""

    def forward(self, x):  # type: ignore[no-untyped-def]
        return (
            F.max_pool2d(x, 3, 2, ceil_mode=True),
            F.max_pool2d(x, (3, 2), (3, 2), (1, 0), ceil_mode=True),
            F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
            F.avg_pool2d(x, 2, ceil_mode=True, count_include_pad=False),
            F.avg_pool2d(x, 2, 3, ceil_mode=True),
        )


def test_pools_of_images_of_any_size_may_round_up() -> None:
    model, auto = Rounded(), torch.export.Dim.AUTO
    sizes = ({0: auto, 2: auto, 3: auto},)
    run = tilewright.compile(model, example_inputs=(tensor(2, 8, 11, 14),), dynamic_shapes=sizes)
    for shape in ((2, 8, 11, 14), (1, 8, 5, 7), (3, 8, 8, 5), (1, 8, 17, 10)):
        x = tensor(*shape)
        for found, expected in zip(run(x), model(x)):
            torch.testing.assert_close(found, expected)
    # Whether the last window begins behind the image was settled by the example.
    with pytest.raises(RuntimeError, match="the model was exported for sizes with"):
        run(tensor(1, 8, 4, 7))


class Adaptive(torch.nn.Module):
    """Pools whose windows depend on the image."""

    def forward(self, x):  # type: ignore[no-untyped-def]
        return F.adaptive_avg_pool2d(x, (3, 4)), F.adaptive_max_pool2d(x, (4, 1))


def test_adaptive_pools_of_images_of_any_size() -> None:
    model, auto = Adaptive(), torch.export.Dim.AUTO
    sizes = ({0: auto, 2: auto, 3: auto},)
    run = tilewright.compile(model, example_inputs=(tensor(2, 8, 11, 14),), dynamic_shapes=sizes)
    for shape in ((2, 8, 12, 16), (1, 8, 2, 7), (3, 8, 8, 5)):
        x = tensor(*shape)
        for found, expected in zip(run(x), model(x)):
            torch.testing.assert_close(found, expected)


def test_averages_with_a_divisor_of_their_own() -> None:
    check(
        {
            "1d": lambda x: F.avg_pool2d(x[:, :, :1], (1, 3), (1, 2), divisor_override=2),
            "2d": lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=5),
            "2d up": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, divisor_override=5),
            "3d": lambda x: F.avg_pool3d(x, 2, (1, 2, 2), divisor_override=3),
        },
        tensor(2, 2, 5, 7),
    )


def test_averages_with_a_divisor_add_up_more_than_half_floats_hold() -> None:
    x = torch.linspace(2e4, 6e4, 36).reshape(1, 1, 6, 6).half()
    model = Family([lambda x: F.avg_pool2d(x, 3, 2, divisor_override=9)])
    (found,), (wanted,) = tilewright.compile(model, example_inputs=(x,))(x), model(x)
    torch.testing.assert_close(found, wanted)


def test_many_half_floats_are_added_up_as_wider_ones() -> None:
    class Counts(torch.nn.Module):
        def forward(self, x, places, ones):  # type: ignore[no-untyped-def]
            return x.scatter_add(0, places, ones), torch.linalg.vector_norm(ones * 300)

    inputs = (torch.zeros(2).bfloat16(), torch.arange(600) % 2, torch.ones(600).bfloat16())
    sums, norm = tilewright.compile(Counts(), example_inputs=inputs)(*inputs)
    assert sums.tolist() == [300, 300]
    torch.testing.assert_close(norm, torch.linalg.vector_norm(inputs[2] * 300))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_transposed_convolutions_with_a_bias_are_rounded_once(dtype: object, spatial: int) -> None:
    kind = (torch.nn.ConvTranspose1d, torch.nn.ConvTranspose2d, torch.nn.ConvTranspose3d)
    model = kind[spatial - 1](2, 1, 1).to(dtype)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([1.0, 2**-13]).reshape(model.weight.shape))
        model.bias.fill_(-1)
    inputs = (torch.ones(1, 2, *[3] * spatial, dtype=dtype),)
    made = tilewright.compile(model, example_inputs=inputs)(*inputs)
    assert made.dtype == dtype
    assert torch.equal(made, torch.full_like(made, 2**-13))


def test_resizing() -> None:
    cases = {
        f"{mode} {align}": lambda x, mode=mode, align=align: F.interpolate(
            x, (7, 3), mode=mode, align_corners=align
        )
        for mode in ("bilinear", "bicubic")
        for align in (True, False)
    }
    for mode in ("bilinear", "bicubic"):
        cases[f"smooth {mode}"] = lambda x, mode=mode: F.interpolate(
            x, (2, 9), mode=mode, antialias=True
        )
    cases["factor"] = lambda x: F.interpolate(x, scale_factor=1.7, mode="bicubic")
    cases["linear"] = lambda x: F.interpolate(x[0], 9, mode="linear")
    cases["trilinear"] = lambda x: F.interpolate(x[None], (3, 4, 5), mode="trilinear")
    cases["nearest"] = lambda x: F.interpolate(x[None], (3, 4, 5))
    cases["exact"] = lambda x: F.interpolate(x[0], 9, mode="nearest-exact")
    check(cases, tensor(1, 2, 5, 6))


def test_sampling() -> None:
    def sampled(mode, padding, align):  # type: ignore[no-untyped-def]
        return lambda x, grid: F.grid_sample(x, grid, mode, padding, align)

    cases = {
        f"{mode} {padding} {align}": sampled(mode, padding, align)
        for mode, padding, align in (
            ("bilinear", "zeros", False),
            ("nearest", "border", True),
            ("bicubic", "reflection", False),
        )
    }
    cases["3d"] = lambda x, grid: F.grid_sample(
        x[:, None], torch.cat([grid, grid[..., :1]], -1)[None], align_corners=False
    )
    check(cases, tensor(1, 2, 4, 5), tensor(1, 3, 3, 2, seed=1))


def test_gradients() -> None:
    aten = torch.ops.aten

    def of_pool(x, grad):  # type: ignore[no-untyped-def]
        _, places = aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1])
        return aten.max_pool2d_with_indices_backward(
            grad, x, [3, 3], [2, 2], [1, 1], [1, 1], False, places
        )

    check(
        {
            "max_pool2d": of_pool,
            "bilinear": lambda x, g: aten.upsample_bilinear2d_backward(
                g, [3, 4], [1, 2, 5, 7], False
            ),
            "nearest": lambda x, g: aten.upsample_nearest2d_backward(g, [3, 4], [1, 2, 5, 7]),
            "bicubic": lambda x, g: aten.upsample_bicubic2d_backward(
                g, [3, 4], [1, 2, 5, 7], True
            ),
            "hardshrink": lambda x, g: aten.hardshrink_backward(g, g, 0.5),
        },
        tensor(1, 2, 5, 7), tensor(1, 2, 3, 4, seed=1),
    )  # fmt: skip
