"""Which products become Strassen's, and that their results stay within the stated error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

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


@pytest.fixture(autouse=True)
def _admitted() -> Iterator[None]:
    """As if the user had asked for it."""
    with PassContext(config={"relax.matmul_max_error": 1e-5}):
        yield


def matmul(x: Any, weight: Any = None, **options: Any) -> Any:
    return relax.op.matmul(x, relax.const(W) if weight is None else weight, **options)


def kernels(mod: IRModule, target: Target = WIDE, **options: Any) -> list[str]:
    return values(t.SelectMatmulAlgorithm(target, **options)(mod))


def weights_of(mod: IRModule) -> list[Constant]:
    calls = [binding.value for binding in mod["main"].bindings]
    return [
        arg
        for call in calls
        if call.op_name == "call_tir"
        for arg in call.args[1].fields
        if isinstance(arg, Constant)
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


def test_products_are_direct_unless_the_user_asks() -> None:
    """A row's error would go by that of another one: small activations next to very large ones."""
    with PassContext():
        assert kernels(graph_of(matmul, X)) == ["matmul"]
        x = X.copy()
        x[0] *= 1e5
        found = relax.build(graph_of(matmul, x), TARGET)(x).numpy()
    expected = x.astype("float64") @ W.astype("float64")
    off = np.abs(found - expected).max(axis=1) / np.abs(expected).max(axis=1)
    assert off.max() < 2e-6


@pytest.mark.parametrize("shape", [(128, 512), (1, 197, 512), (197, 1, 512), (3, 50, 512)])
@pytest.mark.parametrize("kind", ["normal", "positive", "rows apart"])
def test_results_stay_within_the_stated_error(shape: tuple[int, ...], kind: str) -> None:
    x = random(*shape, seed=3)
    if kind == "positive":
        x = np.abs(x)
    if kind == "rows apart":
        x *= np.exp(random(*shape[:-1], 1, seed=4) * 3)
    mod = graph_of(matmul, x)
    assert values(t.SelectMatmulAlgorithm(TARGET)(mod)) == ["matmul_strassen"]
    found = relax.build(mod, TARGET)(x)
    expected = x.astype("float64") @ W.astype("float64")
    assert np.abs(found.numpy() - expected).max() <= STRASSEN_ERROR * np.abs(expected).max()


def test_long_sums_stay_within_the_stated_error() -> None:
    x, w = random(64, 4096, seed=3), random(4096, 128, seed=4)
    mod = graph_of(lambda x: matmul(x, relax.const(w)), x)
    assert values(t.SelectMatmulAlgorithm(TARGET)(mod)) == ["matmul_strassen"]
    found, expected = relax.build(mod, TARGET)(x), x.astype("float64") @ w
    assert np.abs(found.numpy() - expected).max() <= STRASSEN_ERROR * np.abs(expected).max()


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
    assert [c.data.shape for c in weights_of(made)] == [(7, 256, 128)]
    expected = X @ weight.T
    found = relax.build(mod, TARGET)(X).numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_equal_constants_are_transformed_once() -> None:
    weight = relax.const(W)
    mod = graph_of(lambda x: matmul(matmul(x, weight), weight), X)
    first, second = weights_of(t.SelectMatmulAlgorithm(WIDE)(mod))
    assert first is second


@pytest.mark.parametrize(
    "shape, axis", [((1, 128), 1), ((128, 1), 0), ((64, 40), 1), ((64, 4), 0), ((2, 3, 64), 2)]
)
def test_rows_of_one_sequence_are_added(shape: tuple[int, ...], axis: int) -> None:
    assert axis_of(graph(matmul, tensor((*shape, 512)))) == axis


@pytest.mark.parametrize("value", [np.inf, np.nan, 3e38])
def test_what_is_not_finite_stays_in_its_sequence(value: float) -> None:
    x = random(4, 64, 512, seed=8)
    mod = graph_of(matmul, x)
    assert values(t.SelectMatmulAlgorithm(TARGET)(mod)) == ["matmul_strassen"]
    run = relax.build(mod, TARGET)
    before = run(x).numpy().copy()
    x[1, 5, 7] = value
    after = run(x).numpy()
    others = [0, 2, 3]
    np.testing.assert_array_equal(after[others], before[others])
    changed = {row for row in range(64) if not np.array_equal(after[1, row], before[1, row])}
    assert changed == {5, 37}


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
