"""Gradients of images: convolutions, resizing, sampling, layouts; and of gradients themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.everyday import few
from tests.relax.helpers import random, symbol, tensor
from tests.relax.test_gradients import check_with_torch, scalar
from tilewright import relax
from tilewright.relax import const, op
from tilewright.relax.transform import Gradient
from tilewright.support.errors import VerifyError

torch = pytest.importorskip("torch")
F = torch.nn.functional

CONVOLUTIONS: dict[str, tuple[dict[str, Any], tuple[int, ...], tuple[int, ...]]] = {
    "plain": ({"padding": 1}, (2, 3, 5, 4), (4, 3, 3, 3)),
    "point": ({}, (2, 3, 2, 3), (4, 3, 1, 1)),
    "strided": ({"stride": 2, "padding": 1}, (2, 3, 5, 4), (4, 3, 3, 3)),
    "missed": ({"stride": 3}, (1, 2, 9, 6), (3, 2, 2, 3)),
    "dilated": ({"dilation": (2, 1), "padding": (3, 0)}, (1, 2, 5, 4), (3, 2, 3, 2)),
    "grouped": ({"groups": 2, "padding": 1}, (2, 4, 4, 3), (6, 2, 3, 3)),
    "depthwise": ({"groups": 3, "padding": 1}, (1, 3, 4, 4), (3, 1, 3, 3)),
}


@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_convolutions(kind: str) -> None:
    options, image, filters = CONVOLUTIONS[kind]
    ours = {"strides" if key == "stride" else key: value for key, value in options.items()}
    check_with_torch(
        lambda x, w: op.nn.conv2d(x, w, **ours),
        lambda x, w: F.conv2d(x, w, **options),
        [random(*image), random(*filters, seed=1)],
        compiled=kind in ("plain", "grouped"),
    )


@pytest.mark.parametrize("by_image", [False, True])
def test_gradients_of_the_gradient_of_filters(by_image: bool) -> None:
    def body(g: Any, x: Any) -> Any:
        made = op.grad.conv_weight_backward(g, x, (3, 2), (2, 1), (1, 0, 1, 1), 1, 1, by_image)
        return op.sum(made, 0) if by_image else made

    def reference(g: Any, x: Any) -> Any:
        padded = F.pad(x, (0, 1, 1, 1))
        return torch.nn.grad.conv2d_weight(padded, (2, 3, 3, 2), g, (2, 1))

    check_with_torch(body, reference, [random(2, 2, 3, 4), random(2, 3, 5, 4, seed=1)])


@pytest.mark.parametrize("method", ["nearest_neighbor", "linear"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_resizing(method: str, layout: str) -> None:
    order, back = ((0, 2, 3, 1), (0, 3, 1, 2)) if layout == "NHWC" else ((0, 1, 2, 3),) * 2
    mode = "nearest" if method == "nearest_neighbor" else "bilinear"

    def reference(x: Any) -> Any:
        return F.interpolate(x.permute(back), (5, 2), mode=mode).permute(order)

    coordinates = "asymmetric" if mode == "nearest" else "half_pixel"
    x = np.ascontiguousarray(random(1, 2, 3, 4).transpose(order))
    check_with_torch(
        lambda x: op.image.resize2d(x, (5, 2), None, layout, method, coordinates, "pytorch"),
        reference,
        [x],
    )


def test_resizing_with_aligned_corners() -> None:
    check_with_torch(
        lambda x: op.image.resize2d(x, (5, 1), None, "NCHW", "linear", "align_corners"),
        lambda x: F.interpolate(x, (5, 1), mode="bilinear", align_corners=True),
        [random(2, 1, 3, 4)],
    )


def test_resizing_axis_by_axis() -> None:
    check_with_torch(
        lambda x: op.image.resize2d(x, (5, 2), method="cubic"),
        lambda x: F.interpolate(x, (5, 2), mode="bicubic"),
        [random(1, 2, 3, 4)],
    )
    check_with_torch(
        lambda x: op.image.resize1d(x, 5),
        lambda x: F.interpolate(x, 5, mode="linear"),
        [random(1, 2, 3)],
    )


SAMPLING = [
    ("linear", "zeros", False), ("linear", "border", True), ("linear", "reflection", False),
    ("nearest", "zeros", False), ("cubic", "zeros", True),
]  # fmt: skip


@few("method, padding, align", SAMPLING, every=2)
def test_sampling(method: str, padding: str, align: bool) -> None:
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(method, method)
    check_with_torch(
        lambda x, grid: op.image.sample_at(x, grid, method, padding, align),
        lambda x, grid: F.grid_sample(x, grid, mode, padding, align),
        [random(1, 2, 3, 4), 1.2 * random(1, 2, 3, 2, seed=1)],
        compiled=method == "linear" and align,
    )


def test_sampling_of_volumes() -> None:
    check_with_torch(
        lambda x, grid: op.image.sample_at(x, grid),
        lambda x, grid: F.grid_sample(x, grid, align_corners=False),
        [random(1, 1, 2, 3, 2), 1.2 * random(1, 1, 2, 2, 3, seed=1)],
    )


def test_layouts() -> None:
    check_with_torch(
        lambda x: op.layout_transform(x, lambda n, c: (n, c // 4, c % 4)),
        lambda x: x.reshape(3, 2, 4),
        [random(3, 8)],
    )
    padded = scalar(lambda x: op.layout_transform(x, lambda i: (i // 4, i % 4), 0.0), tensor((6,)))
    with pytest.raises(VerifyError, match="has a gradient where nothing is padded"):
        Gradient("main")(padded)


@pytest.mark.parametrize("order", [2.0, 3.0])
def test_norms_have_gradient_zero_at_zero(order: float) -> None:
    check_with_torch(
        lambda x: op.grad.root(op.sum(op.power(op.abs(x), relax.const(order)), 1), order),
        lambda x: torch.linalg.vector_norm(x, order, 1),
        [np.array([[3, -4, 0], [0, 0, 0]], "float32")],
    )


def test_gradients_of_the_gradients_of_pooling() -> None:
    x = random(1, 2, 4, 5)

    grads = random(1, 2, 2, 2, seed=1)
    places = F.max_pool2d(torch.tensor(x), 2, 2, return_indices=True)[1]

    def back(g: Any) -> Any:
        zeros = torch.zeros(1, 2, 20)
        return zeros.scatter_add(2, places.reshape(1, 2, 4), g.reshape(1, 2, 4)).reshape(x.shape)

    check_with_torch(lambda g: op.grad.max_pool2d_backward(g, const(x), 2, 2), back, [grads])
    numbers = const(places.numpy())
    check_with_torch(
        lambda g: op.grad.max_pool_places_backward(g, const(x), numbers), back, [grads]
    )
    check_with_torch(
        lambda g: op.grad.avg_pool2d_backward(g, const(x[..., :4]), 2, 2),
        lambda g: g.repeat_interleave(2, 2).repeat_interleave(2, 3) / 4,
        [grads],
    )


def test_resizing_refuses_unknown_extents() -> None:
    mod = scalar(lambda x: op.image.resize2d(x, 4), tensor((1, 1, symbol("n"), 2)))
    with pytest.raises(VerifyError, match="constant height and width"):
        Gradient("main")(mod)
