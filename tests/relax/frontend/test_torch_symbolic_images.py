"""Images whose height and width are only known when the model runs."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import tilewright
from tests.everyday import few
from tilewright.support.errors import ImportModelError

torch = pytest.importorskip("torch")

from tilewright.relax.frontend.torch.symbols import fraction_of  # noqa: E402

functional = torch.nn.functional
nn = torch.nn


def exported(function: Callable[..., Any], *shape: int) -> Any:
    class Model(nn.Module):
        def forward(self, x: Any) -> Any:
            return function(x)

    auto = torch.export.Dim.AUTO
    return torch.export.export(
        Model(), (torch.randn(shape),), dynamic_shapes=({0: auto, 2: auto, 3: auto},)
    )


def check(function: Callable[..., Any], *shapes: tuple[int, ...]) -> None:
    compiled = tilewright.compile(exported(function, 2, 6, 8, 9))
    for number, shape in enumerate(((2, 6, 8, 9), *shapes)):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(number))
        torch.testing.assert_close(compiled(x), function(x), rtol=1e-4, atol=5e-5)


SIZES = ((3, 6, 7, 5), (2, 6, 33, 40), (4, 6, 5, 4))


def test_group_norm() -> None:
    gamma, beta = torch.randn(6), torch.randn(6)
    check(lambda x: functional.group_norm(x, 2, gamma, beta).relu(), *SIZES)
    check(lambda x: functional.group_norm(x, 6), *SIZES)


@few(
    "factor, options",
    [
        ((2.0, 0.75), {"mode": "nearest"}),
        (1.5, {"mode": "nearest-exact"}),
        (0.5, {"mode": "bilinear"}),
        ((2.0, 0.75), {"mode": "bilinear", "align_corners": True}),
        (1.5, {"mode": "bilinear", "recompute_scale_factor": True}),
        (1.7, {"mode": "bilinear"}),
        (2, {"mode": "bicubic"}),
        ((1.7, 0.6), {"mode": "bicubic"}),
        (1.5, {"mode": "bicubic", "align_corners": True}),
        (0.5, {"mode": "bicubic", "antialias": True}),
        ((0.75, 1.1), {"mode": "bilinear", "antialias": True}),
        ((1.5, 0.5), {"mode": "area"}),
    ],
    every=3,
)
def test_images_scaled_by_a_factor(factor: Any, options: dict[str, Any]) -> None:
    def scaled(x: Any) -> Any:
        return functional.interpolate(x * 2, scale_factor=factor, **options)

    check(scaled, *SIZES)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "linear"])
def test_rows_and_volumes(mode: str) -> None:
    """Images with their columns as channels, and with channels as depth."""

    def rows(x: Any) -> Any:
        return functional.interpolate(x.flatten(0, 1), scale_factor=1.7, mode=mode)

    def volumes(x: Any) -> Any:
        way = "trilinear" if mode == "linear" else mode
        return functional.interpolate(x.unsqueeze(1), scale_factor=(0.5, 1.5, 0.75), mode=way)

    check(rows, *SIZES)
    check(volumes, *SIZES)


def test_images_of_a_given_size() -> None:
    for options in (
        {"mode": "bicubic"},
        {"mode": "bicubic", "antialias": True},
        {"mode": "bilinear", "antialias": True, "align_corners": True},
        {"mode": "area"},
    ):
        check(lambda x, o=options: functional.interpolate(x, size=(7, 11), **o), *SIZES)


def test_fractions_scale_sizes_as_floats_do() -> None:
    sizes, refused = np.arange(1, 5000), 0
    for factor in (i / j for i in range(1, 40) for j in (3, 7, 10, 25, 64, 100)):
        exact = fraction_of(Fraction(factor))
        if exact is None:
            refused += 1
            continue
        scaled = sizes * exact.numerator // exact.denominator
        np.testing.assert_array_equal(scaled, np.floor(sizes * factor), err_msg=str(factor))
    assert 0 < refused < 40
    assert fraction_of(Fraction(0.29)) is None and np.floor(100 * 0.29) == 28


@pytest.mark.parametrize("align", [True, False])
def test_images_as_large_as_others(align: bool) -> None:
    """As in networks that add a coarse image to a finer one."""

    def summed(x: Any) -> Any:
        small = functional.max_pool2d(x, 2)
        large = functional.interpolate(
            small, size=x.shape[2:], mode="bilinear", align_corners=align
        )
        return large + x

    check(summed, *SIZES)


def test_one_pixel_of_many_and_many_of_one() -> None:
    def one(x: Any) -> Any:
        made = functional.interpolate(x, size=(1, x.shape[3]), mode="bilinear", align_corners=True)
        return made + functional.interpolate(made, size=x.shape[2:], mode="bilinear")

    check(one, *SIZES)


def test_a_factor_that_sizes_can_not_have() -> None:
    program = exported(lambda x: functional.interpolate(x, scale_factor=0.29), 2, 6, 8, 9)
    with pytest.raises(ImportModelError, match=r"scaled by 0\.29; .* give the result's size"):
        tilewright.compile(program)


@pytest.mark.parametrize(
    "part",
    [
        lambda x: x[:, :, -x.shape[3] :],
        lambda x: x[:, :, : -(x.shape[3] - 3)] if x.shape[3] > 3 else x,
        lambda x: x[:, :, x.shape[2] // 2 :],
        lambda x: x[:, :, -3 : x.shape[2] - 1],
        lambda x: x[..., 1 : x.shape[3] - 1] + x[..., 2:],
        lambda x: x[:, :, x.shape[2] // 4 : -(x.shape[2] // 4)],
    ],
)
def test_parts_between_symbolic_bounds(part: Callable[..., Any]) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(part, backend="tilewright", dynamic=True, fullgraph=True)
    for number, shape in enumerate(((2, 6, 12, 9), (3, 6, 17, 11), (2, 6, 24, 20), (2, 6, 9, 8))):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(number))
        torch.testing.assert_close(compiled(x), part(x))
