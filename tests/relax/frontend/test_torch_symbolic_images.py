"""Images whose height and width are only known when the model runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilewright
from tilewright.support.errors import ImportModelError

torch = pytest.importorskip("torch")
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


@pytest.mark.parametrize(
    "factor, options",
    [
        ((2.0, 0.75), {"mode": "nearest"}),
        (1.5, {"mode": "nearest-exact"}),
        (0.5, {"mode": "bilinear"}),
        ((2.0, 0.75), {"mode": "bilinear", "align_corners": True}),
        (1.5, {"mode": "bilinear", "recompute_scale_factor": True}),
    ],
)
def test_images_scaled_by_a_factor(factor: Any, options: dict[str, Any]) -> None:
    def scaled(x: Any) -> Any:
        return functional.interpolate(x * 2, scale_factor=factor, **options)

    check(scaled, *SIZES)


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
    program = exported(lambda x: functional.interpolate(x, scale_factor=1.1), 2, 6, 8, 9)
    with pytest.raises(ImportModelError, match=r"scaled by 1\.1; .* give the result's size"):
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
