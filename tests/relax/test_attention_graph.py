"""Attention in graphs: the operator, its form in whole models, transposes that vanish."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attention_reference import attention, paged_attention, paged_operands
from helpers import graph, graph_of, random, values

from tilewright import relax
from tilewright.relax import op
from tilewright.support.errors import VerifyError
from tilewright.tir import PrimFunc

Q, K, V = random(2, 4, 5, 8), random(2, 2, 6, 8, seed=1), random(2, 2, 6, 3, seed=2)
MASK = random(4, 1, 6, seed=3)


def check(body: Any, arrays: list[np.ndarray], expected: np.ndarray) -> Any:
    mod = graph_of(body, *arrays)
    for result in (relax.interpreter.run(mod, *arrays), relax.build(mod)(*arrays)):
        np.testing.assert_allclose(np.asarray(result), expected, rtol=2e-5, atol=3e-6)
    return mod


@pytest.mark.parametrize(
    ("arrays", "options"),
    [
        ([Q, K, V], {}),
        ([Q, K, V, MASK], {"scale": 0.4}),
        ([Q, K, V, MASK > 0], {"causal_mask": "BottomRight"}),
        ([Q, K, V], {"causal_mask": "BottomRight", "window_size": 2}),
        ([Q.swapaxes(1, 2).copy(), K, V], {"layout": ("BSHD", "BHSD", "BHSD", "BSHD")}),
    ],
)
def test_operator(arrays: list[np.ndarray], options: Any) -> None:
    expected = attention(*arrays, **options)

    def body(*x: Any) -> Any:
        return op.nn.scaled_dot_product_attention(*x, **options)

    mod = check(body, arrays, expected)
    relax.verify_graph(mod)
    folded = relax.transform.FoldConstant()(graph(lambda: body(*map(relax.const, arrays))))
    np.testing.assert_allclose(
        np.asarray(relax.interpreter.run(folded)), expected, rtol=2e-5, atol=3e-6
    )


@pytest.mark.parametrize(
    ("shapes", "options", "message"),
    [
        ([(1, 2, 3, 4), (1, 2, 3, 5), (1, 2, 3, 5)], {}, "depths of query and key"),
        ([(1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 5, 4)], {}, "sequences of key and value"),
        ([(1, 3, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4)], {}, "3 query heads are no multiple of 2"),
        ([(1, 2, 3, 4)] * 3, {"layout": "SBHD"}, "layout must be one of"),
        ([(1, 2, 3, 4)] * 3, {"causal_mask": "left"}, "causal_mask must be"),
        ([(1, 2, 3, 4)] * 3 + [(2, 3)], {}, "does not broadcast|do not broadcast"),
        ([(1, 2, 3, 4)] * 3 + [(5, 2, 3, 3)], {}, "does not broadcast"),
        ([(2, 3, 4)] * 3, {}, "query must have 4 dimensions"),
    ],
)
def test_refusals(shapes: Any, options: Any, message: str) -> None:
    arrays = [np.zeros(shape, "float32") for shape in shapes]
    with pytest.raises(VerifyError, match=message):
        graph_of(lambda *x: op.nn.scaled_dot_product_attention(*x, **options), *arrays)


@pytest.mark.parametrize("window", [None, 4])
def test_keys_in_pages(window: int | None) -> None:
    arrays = paged_operands(np.random.default_rng(4), [9, 0, 12], 1, (4, 2), 4, 3, 8)
    options = {"window_size": window}
    expected = paged_attention(*arrays, **options)
    relax.verify_graph(check(lambda *x: op.nn.paged_attention(*x, **options), arrays, expected))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({0: (3, 2, 4)}, "query must have 4 dimensions"),
        ({1: (9, 1, 2, 4, 5)}, "a page has keys and values"),
        ({1: (9, 2, 2, 4, 7)}, "depths of queries and pages differ"),
        ({1: (9, 2, 3, 4, 5)}, "4 query heads are no multiple of 3"),
        ({2: (2, 3)}, "batches of query and page_table differ"),
        ({3: (2,)}, "batches of query and lengths differ"),
    ],
)
def test_refusals_of_pages(changed: Any, message: str) -> None:
    shapes = {0: (3, 2, 4, 5), 1: (9, 2, 2, 4, 5), 2: (3, 3), 3: (3,), **changed}
    arrays = [np.zeros(shapes[n], "int32" if n > 1 else "float32") for n in range(4)]
    with pytest.raises(VerifyError, match=message):
        graph_of(lambda *x: op.nn.paged_attention(*x), *arrays)
    if 3 in changed:
        with pytest.raises(VerifyError, match="page_table must be int32, got float32"):
            graph_of(lambda *x: op.nn.paged_attention(x[0], x[1], x[2], x[3]),
                     *arrays[:2], arrays[2].astype("float32"), arrays[3])  # fmt: skip


def test_stays_one_function() -> None:
    """What follows is not fused in: the kernels know attention only as it is."""

    def body(q: Any, k: Any, v: Any) -> Any:
        return op.nn.relu(op.nn.scaled_dot_product_attention(q * 2.0, k, v))

    arrays = [Q, K, V]
    check(body, arrays, np.maximum(attention(Q * 2, K, V), 0))
    mod = relax.get_pipeline("zero")(graph_of(body, *arrays))
    blocks = [
        sum("attention" in line and "T.block(" in line for line in func.script().splitlines())
        for func in mod.functions.values()
        if isinstance(func, PrimFunc)
    ]
    assert sorted(blocks) == [0, 0, 7]


def swap(x: Any) -> Any:
    return op.permute_dims(x, (0, 2, 1, 3))


def transposes(body: Any, *arrays: np.ndarray) -> int:
    mod = graph_of(body, *arrays)
    for item in (
        relax.transform.CanonicalizeBindings(),
        relax.transform.FuseTransposeAttention(),
        relax.transform.DeadCodeElimination(),
    ):
        mod = item(mod)
        relax.verify_graph(mod)
    return values(mod).count("permute_dims")


def test_swaps_of_axes_vanish() -> None:
    arrays = [np.ascontiguousarray(x.swapaxes(1, 2)) for x in (Q, K, V)]

    def body(q: Any, k: Any, v: Any) -> Any:
        return swap(op.nn.scaled_dot_product_attention(swap(q), swap(k), swap(v))) + 1.0

    check(body, arrays, attention(*arrays, layout="BSHD") + 1)
    assert transposes(body, *arrays) == 0


def test_a_cache_keeps_its_layout() -> None:
    def body(q: Any, k: Any, v: Any) -> Any:
        return swap(op.nn.scaled_dot_product_attention(swap(q), k, v))

    query = np.ascontiguousarray(Q.swapaxes(1, 2))
    check(body, [query, K, V], attention(Q, K, V).swapaxes(1, 2))
    assert transposes(body, query, K, V) == 0


def test_other_permutations_and_other_uses_stay() -> None:
    def other_axes(q: Any, k: Any, v: Any) -> Any:
        attended = op.nn.scaled_dot_product_attention(op.permute_dims(q, (0, 1, 3, 2)), k, v)
        return op.permute_dims(attended, (1, 0, 2, 3))

    query = np.ascontiguousarray(Q.swapaxes(2, 3))
    check(other_axes, [query, K, V], attention(Q, K, V).swapaxes(0, 1))
    assert transposes(other_axes, query, K, V) == 2

    def used_twice(q: Any, k: Any, v: Any) -> Any:
        attended = op.nn.scaled_dot_product_attention(q, k, v)
        return op.sum(attended) + swap(attended)

    expected = attention(Q, K, V)
    check(used_twice, [Q, K, V], expected.swapaxes(1, 2) + expected.sum())
    assert transposes(used_twice, Q, K, V) == 1
