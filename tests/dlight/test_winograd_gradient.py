"""Gradients of filters by Winograd's filtering: right on any target, chosen where they pay off."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import graph_of, random, values
from tilewright import driver, relax, te, topi
from tilewright.dlight.cpu import WinogradGradient
from tilewright.ir import IRModule, PassContext
from tilewright.relax import transform as t
from tilewright.relax.transform.conv_alternatives import WINOGRAD_ERRORS
from tilewright.scheduling import NotApplicable
from tilewright.support.errors import VerifyError
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.attrs import IS_SCHEDULED
from tilewright.tir.schedule import Schedule

ONE, TWO = (Target("native").with_options(num_cores=cores) for cores in (1, 2))
WIDE = Target("llvm -mcpu=znver4 -num-cores=1")


def gradient(images: int, filters: int, channels: int, size: int, pad: int = 1) -> PrimFunc:
    out = size + 2 * pad - 2
    g = te.placeholder((images, filters, out, out), name="g")
    x = te.placeholder((images, channels, size, size), name="x")
    return te.create_prim_func([g, x, topi.nn.conv2d_weight_backward_winograd(g, x, pad)])


def reference(g: Any, x: Any, pad: int) -> Any:
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(x, g.shape[2:], axis=(2, 3))
    return np.einsum("ncijhw,nfhw->fcij", windows, g.astype(np.float64), optimize=True)


def scheduled(func: PrimFunc, target: Target) -> PrimFunc:
    made = WinogradGradient().apply_to(Schedule(IRModule({"main": func})), target)
    assert isinstance(made, Schedule), made
    return made.mod["main"].with_attr(IS_SCHEDULED, 1)


@pytest.mark.parametrize(
    "sizes, target",
    # The last one has few tiles for its channels: blocks of pairs.
    [((2, 16, 32, 9, 1), ONE), ((1, 32, 16, 7, 0), TWO), ((1, 64, 32, 4, 1), TWO)],
    ids=["one", "two", "blocks"],
)
def test_results(sizes: tuple[int, int, int, int, int], target: Target) -> None:
    images, filters, channels, size, pad = sizes
    out = size + 2 * pad - 2
    g, x = random(images, filters, out, out), random(images, channels, size, size, seed=1)
    made = np.empty((filters, channels, 3, 3), np.float32)
    module = IRModule({"main": scheduled(gradient(*sizes), target)})
    driver.compile(module, target)["main"](g, x, made)
    expected = reference(g, x, pad)
    assert np.abs(made - expected).max() <= WINOGRAD_ERRORS[4] * np.abs(expected).max()


def test_products_of_few_tiles_stay_in_the_cache() -> None:
    def depth(func: PrimFunc) -> int:
        made = Schedule(IRModule({"main": scheduled(func, WIDE)}))
        return len(made.get_loops(made.get_block("products_update")))

    # Inside of loops over blocks of pairs.
    assert depth(gradient(8, 512, 512, 7)) > depth(gradient(8, 32, 32, 28))


def test_other_blocks_or_few_channels_are_left_to_other_rules() -> None:
    g, x = te.placeholder((1, 16, 4, 4)), te.placeholder((1, 16, 4, 4))
    made = topi.nn.relu(topi.nn.conv2d_weight_backward_winograd(g, x, 1))
    for func, why in (
        (te.create_prim_func([g, x, made]), "other blocks"),
        (gradient(1, 24, 16, 4), "multiples of 16"),
    ):
        refused = WinogradGradient().apply_to(Schedule(IRModule({"main": func})), WIDE)
        assert isinstance(refused, NotApplicable) and why in str(refused)


def test_shapes_must_fit_and_be_known() -> None:
    with pytest.raises(VerifyError, match="images"):
        topi.nn.conv2d_weight_backward_winograd(
            te.placeholder((1, 2, 4, 4)), te.placeholder((2, 2, 4, 4)), 1
        )


# ---- the choice ----------------------------------------------------------------------------------


def chosen(gradient: Any, data: Any, padding: int = 1, **options: Any) -> list[str]:
    def body(g: Any, x: Any) -> Any:
        return relax.op.grad.conv_weight_backward(g, x, (3, 3), 1, padding, **options)

    return values(t.SelectConvAlgorithm(WIDE)(graph_of(body, gradient, data)))


def empty(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


def test_filters_of_many_channels_are_of_winograd() -> None:
    large, small = empty(8, 128, 28, 28), empty(8, 16, 28, 28)
    assert chosen(large, large) == ["conv_weight_backward_winograd"]
    assert chosen(small, small) == ["grad.conv_weight_backward"]
    with PassContext(config={"relax.conv_max_error": 0.0}):
        assert chosen(large, large) == ["grad.conv_weight_backward"]
    assert chosen(large, empty(8, 128, 30, 30), 0) == ["conv_weight_backward_winograd"]
    assert chosen(large, empty(8, 128, 30, 30), 1, dilation=2) == ["grad.conv_weight_backward"]


def test_filters_of_large_images_are_summed_by_image() -> None:
    image = empty(2, 1, 64, 64)
    assert chosen(image, image) == ["grad.conv_weight_backward", "sum"]
    assert chosen(image[:1], image[:1]) == ["grad.conv_weight_backward"]
