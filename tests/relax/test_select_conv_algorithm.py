"""Which convolutions become Winograd's, and that their results stay within the stated error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import graph, graph_of, random, symbol, values
from tilewright import relax
from tilewright.ir import IRModule, PassContext
from tilewright.relax import transform as t
from tilewright.relax.expr import Constant
from tilewright.relax.transform.conv_alternatives import WINOGRAD_ERRORS, ConvolutionSizes
from tilewright.relax.transform.select_conv_algorithm import choose_winograd_tile
from tilewright.target import Target

TARGET = Target("native").with_options(num_cores=1)
WIDE = Target("llvm -mcpu=znver4 -num-cores=1")
X, W = random(1, 32, 14, 14, seed=1), random(48, 32, 3, 3, seed=2)


def conv(x: Any, weight: Any = None, **options: Any) -> Any:
    weight = relax.const(W) if weight is None else weight
    return relax.op.nn.conv2d(x, weight, **{"padding": 1, **options})


def kernels(mod: IRModule, **options: Any) -> list[str]:
    return values(t.SelectConvAlgorithm(WIDE, **options)(mod))


def filters_of(mod: IRModule) -> list[Constant]:
    calls = [binding.value for binding in mod["main"].bindings]
    return [
        arg
        for call in calls
        if call.op_name == "call_tir"
        for arg in call.args[1].fields
        if isinstance(arg, Constant)
    ]


def reference(x: Any, w: Any) -> Any:
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
    return np.einsum("nchwij,fcij->nfhw", windows, w.astype(np.float64), optimize=True)


@pytest.mark.parametrize("max_error, size", [(1e-5, 6), (3e-6, 4), (0.0, None)])
def test_the_tolerance_decides(max_error: float, size: int | None) -> None:
    made = t.SelectConvAlgorithm(WIDE, max_error=max_error)(graph_of(conv, X))
    if size is None:
        assert values(made) == ["nn.conv2d"]
    else:
        assert values(made) == ["conv2d_winograd"]
        assert [c.data.shape for c in filters_of(made)] == [(size, size, 32, 48)]


def test_the_pass_option_goes_before_the_argument() -> None:
    with PassContext(config={"relax.conv_max_error": 0.0}):
        assert kernels(graph_of(conv, X)) == ["nn.conv2d"]


@pytest.mark.parametrize("max_error", [1e-5, 3e-6])
@pytest.mark.parametrize("channels", [64, 256])
def test_results_stay_within_the_stated_error(max_error: float, channels: int) -> None:
    x, w = random(1, channels, 14, 11, seed=3), random(64, channels, 3, 3, seed=4)
    mod = t.SelectConvAlgorithm(TARGET, max_error=max_error)(
        graph_of(lambda x: conv(x, relax.const(w)), x)
    )
    assert values(mod) == ["conv2d_winograd"]
    found = relax.build(mod, TARGET)(x)
    expected = reference(x, w)
    assert np.abs(found.numpy() - expected).max() <= max_error * np.abs(expected).max()
    assert max(e for e in WINOGRAD_ERRORS.values() if e <= max_error) <= max_error


@pytest.mark.parametrize(("max_error", "reach"), [(1e-5, 4), (3e-6, 2), (0.0, 1)])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
def test_what_is_not_finite_spoils_the_results_of_its_tiles(
    max_error: float, reach: int, value: float
) -> None:
    """No others, and without an error allowed only those that are made of it."""
    row, column = 6, 9
    spoilt = X.copy()
    spoilt[0, 5, row, column] = value
    with PassContext(config={"relax.conv_max_error": max_error}):
        mod = t.SelectConvAlgorithm(TARGET)(graph_of(conv, X))
        assert values(mod) == ["conv2d_winograd" if max_error else "nn.conv2d"]
        executable = relax.build(mod, TARGET)
    found, plain = (executable(x).numpy() for x in (spoilt, X))
    differs = np.argwhere((found != plain).any((0, 1)))
    distance = np.abs(differs - (row, column)).max(1)
    assert distance.max() <= reach
    assert (distance <= 1).sum() == 9
    if not np.isfinite(value):
        near = found[0, :, row - 1 : row + 2, column - 1 : column + 2]
        assert not np.isfinite(near).any()


def test_bias_residual_and_activation_are_fused() -> None:
    bias = random(48, 1, 1, seed=5)

    def body(x: Any, rest: Any) -> Any:
        return relax.op.nn.relu(conv(x) + relax.const(bias) + rest)

    rest = random(1, 48, 14, 14, seed=6)
    mod = relax.get_pipeline("zero", WIDE)(graph_of(body, X, rest))
    assert values(mod) == ["fused_conv2d_winograd_add_add_relu"]
    found = relax.build(graph_of(body, X, rest), TARGET)(X, rest)
    expected = np.maximum(reference(X, W) + bias + rest, 0)
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    "options", [{"strides": 2}, {"dilation": 2}, {"padding": 0, "strides": (1, 2)}]
)
def test_other_steps_stay_direct(options: dict[str, Any]) -> None:
    assert kernels(graph_of(lambda x: conv(x, **options), X)) == ["nn.conv2d"]


@pytest.mark.parametrize("shape", [(48, 32, 5, 5), (48, 32, 1, 1), (48, 32, 3, 1), (40, 32, 3, 3)])
def test_other_windows_and_channels_stay_direct(shape: tuple[int, ...]) -> None:
    weight = random(*shape)
    body = lambda x: relax.op.nn.conv2d(x, relax.const(weight), padding=2)
    assert kernels(graph_of(body, X)) == ["nn.conv2d"]


def test_groups_other_types_and_weights_of_run_time_stay_direct() -> None:
    grouped = graph_of(lambda x: conv(x, relax.const(random(48, 16, 3, 3)), groups=2), X)
    assert kernels(grouped) == ["nn.conv2d"]
    small = random(1, 32, 8, 8, seed=1)  # transforming filters in each call takes longer
    assert kernels(graph_of(conv, small, W)) == ["nn.conv2d"]
    wide = graph_of(lambda x: conv(x, relax.const(W.astype("float64"))), X.astype("float64"))
    assert kernels(wide) == ["nn.conv2d"]


def test_gpus_have_rules_of_their_own() -> None:
    mod = graph_of(conv, X)
    assert values(t.SelectConvAlgorithm(Target("cuda -arch=sm_80"))(mod)) == ["nn.conv2d"]


def test_equal_constants_are_transformed_once() -> None:
    weight = relax.const(random(32, 32, 3, 3))
    mod = graph_of(lambda x: conv(conv(x, weight), weight), X)
    first, second = filters_of(t.SelectConvAlgorithm(WIDE)(mod))
    assert first is second


def test_large_filters_of_small_images_are_not_made_larger() -> None:
    tiles = [2, 4]
    assert choose_winograd_tile(ConvolutionSizes(1, 64, 64, 56, 56), tiles, WIDE) == 4
    assert choose_winograd_tile(ConvolutionSizes(1, 512, 512, 7, 7), tiles, WIDE) == 2
    assert choose_winograd_tile(ConvolutionSizes(1, 2048, 2048, 2, 2), tiles, WIDE) is None
    assert choose_winograd_tile(ConvolutionSizes(64, 512, 512, 7, 7), tiles, WIDE) == 2


def test_filters_that_come_with_the_call() -> None:
    x = random(2, 32, 40, 40, seed=9)
    mod = graph_of(lambda x, w: relax.op.nn.conv2d(x, w, padding=1), x, W)
    assert kernels(mod)[-1] == "conv2d_winograd"
    found, expected = relax.build(mod, TARGET)(x, W).numpy(), reference(x, W)
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
    # Transformed, these exceed the cache, and all images would read them.
    large = relax.TensorStructInfo((1, 512, 7, 7), "float32")
    filters = relax.TensorStructInfo((512, 512, 3, 3), "float32")
    mod = graph(lambda x, w: relax.op.nn.conv2d(x, w, padding=1), large, filters)
    assert kernels(mod) == ["nn.conv2d"]


@pytest.mark.parametrize("turned", [False, True])
def test_many_filters_of_the_call_are_transformed_by_panels(turned: bool) -> None:
    large, filters = (
        relax.TensorStructInfo(shape, "float32") for shape in [(8, 256, 14, 14), (256, 256, 3, 3)]
    )
    how = relax.op.nn.conv2d_transpose if turned else relax.op.nn.conv2d
    mod = graph(lambda x, w: how(x, w, padding=1), large, filters)
    # No products with matrices of filters before it.
    assert kernels(mod) == ["conv2d_winograd"]
    with PassContext(config={"relax.conv_max_error": 0.0}):
        assert kernels(mod) == ["nn.conv2d_transpose" if turned else "nn.conv2d"]


@pytest.mark.parametrize("padding", [0, 1, (0, 2, 1, 2)])
def test_transposed_convolutions_of_stride_one(padding: Any) -> None:
    def body(x: Any, w: Any, **options: Any) -> Any:
        return relax.op.nn.conv2d_transpose(x, w, padding=padding, **options)

    x, weight = random(2, 32, 40, 40, seed=9), random(32, 48, 3, 3, seed=8)
    mod = graph_of(body, x, weight)
    assert kernels(mod)[-1] == "conv2d_winograd"
    found = relax.build(mod, TARGET)(x, weight).numpy()
    with PassContext(config={"relax.conv_max_error": 0.0}):
        direct = relax.build(mod, TARGET)(x, weight).numpy()
    assert np.abs(found - direct).max() <= 1e-5 * np.abs(direct).max()
    for options in ({"strides": 2}, {"dilation": 2}, {"strides": 2, "output_padding": 1}):
        assert kernels(graph_of(lambda x, w: body(x, w, **options), X, weight)) == [  # noqa: B023
            "nn.conv2d_transpose"
        ]


@pytest.mark.parametrize("cores", [1, 2])
def test_any_number_of_images(cores: int) -> None:
    info = relax.TensorStructInfo((symbol("n"), 32, 14, 11), "float32")
    mod = t.SelectConvAlgorithm(TARGET, max_error=1e-5)(graph(conv, info))
    assert values(mod) == ["conv2d_winograd"]
    run = relax.build(mod, TARGET.with_options(num_cores=cores))
    for count in (0, 1, 3):
        x = random(count, 32, 14, 11, seed=7)
        found = run(x).numpy()
        assert found.shape == (count, 48, 14, 11)
        np.testing.assert_allclose(found, reference(x, W), rtol=1e-4, atol=1e-3)
