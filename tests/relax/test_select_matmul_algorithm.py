"""Which products become Strassen's, and that their results stay within the stated error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.everyday import few
from tests.relax.helpers import graph, graph_of, random, symbol, tensor, values
from tilewright import relax
from tilewright.ir import IRModule, PassContext
from tilewright.relax import transform as t
from tilewright.relax.expr import Constant
from tilewright.relax.transform.select_matmul_algorithm import STRASSEN_ERROR
from tilewright.target import Target

TARGET = Target("native").with_options(num_cores=1)
WIDE, NARROW = (Target(f"llvm -mcpu={cpu} -num-cores=1") for cpu in ("znver4", "x86-64-v3"))
X, W = random(128, 512, seed=1), random(512, 512, seed=2)


def matmul(x: Any, weight: Any = None, **options: Any) -> Any:
    return relax.op.matmul(x, relax.const(W) if weight is None else weight, **options)


def kernels(mod: IRModule, target: Target = WIDE, **options: Any) -> list[str]:
    return values(t.SelectMatmulAlgorithm(target, **options)(mod))


def weights_of(mod: IRModule) -> list[list[Constant]]:
    """Of each product: sums of quarters, scales of the depth, and of columns."""
    calls = [binding.value for binding in mod["main"].bindings]
    return [
        [arg for arg in call.args[1].fields if isinstance(arg, Constant)]
        for call in calls
        if call.op_name == "call_tir"
    ]


def axis_of(mod: IRModule) -> int:
    """The axis of rows that is cut: the products have half of its extent."""
    made = t.SelectMatmulAlgorithm(WIDE)(mod)
    (func,) = [func for gv, func in made.functions.items() if gv.name == "matmul_strassen"]
    (products,) = [b for b in func.root.alloc_buffers if b.name == "products"]
    pairs = zip(products.shape[1:-1], func.buffers[-1].shape)
    (axis,) = [n for n, (half, whole) in enumerate(pairs) if int(half) != int(whole)]
    return axis


@pytest.mark.parametrize("target", [WIDE, NARROW])
def test_the_tolerance_decides(target: Target) -> None:
    mod = graph_of(matmul, X)
    assert kernels(mod, target) == ["matmul_strassen"]
    with PassContext(config={"relax.matmul_max_error": 1e-6}):
        assert kernels(mod, target, max_error=1e-5) == ["matmul"]
    with PassContext():
        assert kernels(mod, target, max_error=STRASSEN_ERROR) == ["matmul_strassen"]
        assert kernels(mod, target, max_error=1e-6) == ["matmul"]


def multiplied(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The product as a graph computes it, by Strassen's algorithm."""
    mod = graph_of(lambda x: matmul(x, relax.const(w)), x)
    assert values(t.SelectMatmulAlgorithm(TARGET)(mod)) == ["matmul_strassen"]
    return relax.build(mod, TARGET)(x).numpy().copy()


def errors(found: np.ndarray, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Each result's, relative to the norms of its row and its column."""
    x, w = x.astype("float64"), w.astype("float64")
    norms = np.linalg.norm(x, axis=-1, keepdims=True) * np.linalg.norm(w, axis=0)
    with np.errstate(invalid="ignore"):
        return np.abs(found - x @ w) / norms


@pytest.mark.parametrize("shape", [(128, 512), (1, 197, 512), (197, 1, 512), (3, 50, 512)])
def test_shapes_stay_within_the_stated_error(shape: tuple[int, ...]) -> None:
    x = random(*shape, seed=3)
    assert errors(multiplied(x, W), x, W).max() <= STRASSEN_ERROR


def far_apart(*shape: int, reach: float) -> np.ndarray:
    return (10.0 ** np.random.default_rng(5).uniform(-reach, reach, shape)).astype("float32")


def halved(x: np.ndarray, w: np.ndarray, peak: float) -> tuple[np.ndarray, np.ndarray]:
    """Half of the rows and of the columns have one channel only; the others, a peak there."""
    x, w = x * np.float32(len(w) ** -0.5), w * np.float32(len(w) ** -0.5)
    x[:, 3], w[3] = peak, peak
    x[: len(x) // 2], w[:, : w.shape[1] // 2] = 0, 0
    x[: len(x) // 2, 3], w[3, : w.shape[1] // 2] = 1, 1
    return x, w


def small_rows(x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the matrix that are small next to others, and all that some columns have."""
    w = w.copy()
    w[: len(w) // 2] *= np.float32(1e-6)
    w[len(w) // 2 :, :100] = 0
    return x, w


KINDS = {
    "normal": lambda x, w: (x, w),
    "positive": lambda x, w: (np.abs(x), np.abs(w)),
    "rows apart": lambda x, w: (x * far_apart(len(x), 1, reach=5), w),
    "rows far apart": lambda x, w: (x * far_apart(len(x), 1, reach=20), w),
    "columns apart": lambda x, w: (x, w * far_apart(w.shape[1], reach=15)),
    "outliers": lambda x, w: (x * np.where(np.arange(len(w)) % 50 == 7, 1000, 1).astype("f4"), w),
    "sparse": lambda x, w: (x * (np.abs(x) > 2), w * (np.abs(w) > 2)),
    "one channel": lambda x, w: halved(x, w, 0),
    "positive, one channel": lambda x, w: halved(np.abs(x), np.abs(w), 0),
    "one channel, peaks": lambda x, w: halved(x * np.float32(0.05), w * np.float32(0.05), 1.9),
    "small rows": small_rows,
    "rows up to the largest numbers": lambda x, w: (x * far_apart(len(x), 1, reach=35), w),
}


@pytest.mark.parametrize("kind", KINDS)
@few("depth", [256, 768, 4096], 768)
def test_each_result_stays_within_the_stated_error_of_its_row_and_column(
    kind: str, depth: int
) -> None:
    x, w = KINDS[kind](random(128, depth, seed=3), random(depth, 512, seed=4))
    assert errors(multiplied(x, w), x, w).max() <= STRASSEN_ERROR


def test_large_channels_that_meet_small_weights_take_no_digits_from_others() -> None:
    """Relative to the results: the channels' own scales are in the constant matrix."""
    x, w = random(128, 512, seed=3), random(512, 512, seed=4)
    x[:, ::50] *= 1000
    w[::50] /= 1000
    expected = x.astype("float64") @ w
    off = np.abs(multiplied(x, w) - expected).max(axis=1) / np.abs(expected).max(axis=1)
    assert off.max() <= STRASSEN_ERROR


def test_bias_residual_and_activation_are_fused() -> None:
    bias, rest = random(512, seed=5), random(128, 512, seed=6)

    def body(x: Any, rest: Any) -> Any:
        return relax.op.nn.relu(matmul(x) + relax.const(bias)) + rest

    mod = graph_of(body, X, rest)
    assert values(relax.get_pipeline("zero", WIDE)(mod)) == ["fused_matmul_strassen_add_relu_add"]
    found, expected = relax.build(mod, TARGET)(X, rest), np.maximum(X @ W + bias, 0) + rest
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_transposed_weights_are_turned() -> None:
    weight = random(256, 512, seed=7)
    mod = graph_of(lambda x: matmul(x, relax.const(weight), transpose_b=True), X)
    made = t.SelectMatmulAlgorithm(WIDE)(mod)
    assert values(made) == ["matmul_strassen"]
    assert [c.data.shape for c in weights_of(made)[0]] == [(7, 256, 128), (512,), (256,)]
    expected = X @ weight.T
    found = relax.build(mod, TARGET)(X).numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_equal_constants_are_transformed_once() -> None:
    weight = relax.const(W)
    mod = graph_of(lambda x: matmul(matmul(x, weight), weight), X)
    first, second = weights_of(t.SelectMatmulAlgorithm(WIDE)(mod))
    assert len(first) == 3 and all(a is b for a, b in zip(first, second))


@pytest.mark.parametrize(
    "shape, axis", [((1, 128), 1), ((128, 1), 0), ((64, 40), 1), ((64, 4), 0), ((2, 3, 64), 2)]
)
def test_rows_of_one_sequence_are_added(shape: tuple[int, ...], axis: int) -> None:
    assert axis_of(graph(matmul, tensor((*shape, 512)))) == axis


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38])
def test_what_is_not_finite_stays_in_its_row(value: float) -> None:
    x = random(4, 64, 512, seed=8)
    x[2] = 0
    x[1, 5, 7], x[3, 40, 0] = value, value
    with np.errstate(all="ignore"):
        expected = x @ W
    found = multiplied(x, W)
    other = np.ones((4, 64), bool)
    other[1, 5] = other[3, 40] = False
    np.testing.assert_array_equal(found[2], 0)
    other[2] = False
    assert errors(found, x, W)[other].max() <= STRASSEN_ERROR
    rows = [1, 3], [5, 40]
    if np.isfinite(value):
        assert np.isinf(expected[rows]).any()
        np.testing.assert_array_equal(np.isinf(found[rows]), np.isinf(expected[rows]))
    else:
        assert np.isnan(found[rows]).all()


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_matrices_that_are_not_finite_stay_direct(value: float) -> None:
    weight = W.copy()
    weight[3, 4] = value
    assert kernels(graph_of(lambda x: matmul(x, relax.const(weight)), X)) == ["matmul"]


@pytest.mark.parametrize("shape", [(1, 512), (8, 512), (1, 4, 512), (2, 2, 2, 512)])
def test_few_rows_stay_direct(shape: tuple[int, ...]) -> None:
    assert kernels(graph(matmul, tensor(shape))) == ["matmul"]


@pytest.mark.parametrize("weight", [(512, 500), (511, 512), (512, 16), (512, 224), (32, 32)])
def test_small_and_odd_matrices_stay_direct(weight: tuple[int, ...]) -> None:
    body = lambda x: matmul(x, relax.const(random(*weight)))
    assert kernels(graph(body, tensor((128, weight[0])))) == ["matmul"]


def test_batches_other_types_sizes_of_the_call_and_its_weights_stay_direct() -> None:
    batch = graph_of(lambda x: matmul(x, relax.const(random(4, 512, 512))), random(4, 128, 512))
    assert kernels(batch) == ["matmul"]
    double = lambda x: matmul(x, relax.const(W.astype("float64")))
    assert kernels(graph(double, tensor((128, 512), "float64"))) == ["matmul"]
    half = lambda x: matmul(x, relax.const(W.astype("float16")), out_dtype="float32")
    assert kernels(graph(half, tensor((128, 512), "float16"))) == ["matmul"]
    assert kernels(graph(matmul, tensor((symbol("n"), 512)))) == ["matmul"]
    assert kernels(graph_of(matmul, X, W)) == ["matmul"]
    assert kernels(graph(matmul, tensor((0, 512)))) == ["matmul"]
    assert kernels(graph(matmul, tensor((512,)))) == ["matmul"]


def test_gpus_have_rules_of_their_own() -> None:
    assert kernels(graph_of(matmul, X), Target("cuda -arch=sm_80")) == ["matmul"]
