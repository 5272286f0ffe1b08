"""``SplitAttention``: a single query reads joined keys and values where they lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import agree, graph, graph_of, random, symbol, tensor, values
from tilewright import relax
from tilewright.ir.transform import Sequential
from tilewright.relax import op
from tilewright.relax import transform as t

SPLIT = Sequential([t.SplitAttention(), t.DeadCodeElimination()])
QUERY = random(1, 4, 1, 64)


def parts(*lengths: int, heads: int = 4, depth: int = 64, seed: int = 1) -> list[np.ndarray]:
    return [random(1, heads, n, depth, seed=seed + i) for i, n in enumerate(lengths)]


def attend(count: int, **options: Any) -> Any:
    def body(q: Any, *given: Any) -> Any:
        k, v = op.concat(given[:count], axis=2), op.concat(given[count:], axis=2)
        return op.nn.scaled_dot_product_attention(q, k, v, **options)

    return body


def operators(body: Any, *arrays: np.ndarray) -> list[str]:
    """What a graph calls after the pass; its results stay the same."""
    mod = graph_of(body, *arrays)
    made = SPLIT(mod)
    agree(mod, made, *arrays)
    return values(made)


@pytest.mark.parametrize("lengths", [(300, 1), (1, 300), (150, 3, 150), (0, 300, 1), (1, 299, 0)])
def test_scores_are_joined_instead_of_keys(lengths: tuple[int, ...]) -> None:
    given = [*parts(*lengths), *parts(*lengths, seed=5)]
    found = operators(attend(len(lengths)), QUERY, *given)
    assert "nn.scaled_dot_product_attention" not in found
    assert found.count("concat") == 1
    assert found.count("matmul") == 2 * sum(n > 1 for n in lengths)


def test_the_whole_pipeline_gives_the_same_with_scale_and_depths_that_differ() -> None:
    keys, others = parts(400, 1, depth=40), parts(400, 1, depth=24, seed=5)
    query = random(1, 1, 4, 40)
    layouts = ("BSHD", "BHSD", "BHSD", "BSHD")
    body = attend(2, scale=0.7, causal_mask="BottomRight", layout=layouts)
    arrays = [query, *keys, *others]
    mod = graph_of(body, *arrays)
    assert "nn.scaled_dot_product_attention" not in values(SPLIT(mod))
    expected = np.asarray(relax.interpreter.run(mod, *arrays))
    assert expected.shape == (1, 1, 4, 24)
    np.testing.assert_allclose(np.asarray(relax.build(mod)(*arrays)), expected, 2e-5, 2e-6)


def test_not_a_number_stays_where_it_is() -> None:
    keys, others = parts(300, 1), parts(300, 1, seed=5)
    keys[0][0, 1, 7] = np.nan
    others[1][0, 2] = np.nan
    arrays = [QUERY, *keys, *others]
    mod = graph_of(attend(2), *arrays)
    found = [np.asarray(relax.build(item)(*arrays)) for item in (mod, SPLIT(mod))]
    for result in found:
        assert np.isnan(result).all(axis=(0, 2, 3)).tolist() == [False, True, True, False]


@pytest.mark.parametrize("batch", [1, 3])
def test_one_head_and_several_batches(batch: int) -> None:
    arrays = [random(batch, 1, n, 64, seed=n) for n in (1, 600, 1)]
    query, *keys = arrays
    assert "matmul" in operators(attend(2), query, *keys, *[key * 0.5 for key in keys])


def test_what_else_is_asked_for_stays_attention() -> None:
    keys, others = parts(300, 1), parts(300, 1, seed=5)
    arrays = [QUERY, *keys, *others]

    def shared(q: Any, k: Any, new: Any, *given: Any) -> Any:
        joined = op.concat((k, new), axis=2)
        made = op.nn.scaled_dot_product_attention(q, joined, op.concat(given, axis=2))
        return made, joined

    def masked(q: Any, *given: Any) -> Any:
        k, v = (op.concat(item, axis=2) for item in (given[:2], given[2:4]))
        return op.nn.scaled_dot_product_attention(q, k, v, given[4])

    def of_features(q: Any, *given: Any) -> Any:
        k, v = (op.concat(item, axis=3) for item in (given[:2], given[2:]))
        return op.nn.scaled_dot_product_attention(q, k, v)

    few = [QUERY, *parts(20, 1), *parts(20, 1, seed=5)]
    apart = [*parts(300, 1), *parts(299, 2, seed=5)]
    half = [random(1, 4, 300, 32, seed=i) for i in range(4)]
    for body, given in (
        (shared, arrays),  # a cache is given back as a whole
        (masked, [*arrays, random(1, 1, 1, 301)]),
        (of_features, [QUERY, *half]),
        (attend(2), [random(1, 4, 2, 64), *keys, *others]),  # several queries
        (attend(2), [random(1, 8, 1, 64), *keys, *others]),  # heads share keys
        (attend(2), few),
        (attend(2), [QUERY, *apart]),
        (attend(2, causal_mask="TopLeft"), arrays),
        (attend(2, causal_mask="BottomRight", window_size=9), arrays),
        (attend(2), [item.astype("float16") for item in [*arrays]]),
    ):
        mod = graph_of(body, *given)
        assert "nn.scaled_dot_product_attention" in values(SPLIT(mod))


def test_keys_of_unknown_length_stay_joined() -> None:
    n = symbol("n")
    shapes = [(1, 4, 1, 64), (1, 4, n, 64), (1, 4, 1, 64), (1, 4, n, 64), (1, 4, 1, 64)]
    mod = graph(attend(2), *(tensor(shape) for shape in shapes))
    assert "nn.scaled_dot_product_attention" in values(SPLIT(mod))


def test_unknown_lengths_may_add_up_to_a_known_one() -> None:
    n = symbol("n")
    past, rest = (1, 4, n, 64), (1, 4, 300 - n, 64)
    mod = graph(attend(2), *map(tensor, [(1, 4, 1, 64), past, rest, past, rest]))
    assert "nn.scaled_dot_product_attention" in values(SPLIT(mod))
