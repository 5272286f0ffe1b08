"""Pages that graphs append to: the operator, its plan, and decoding token by token."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attention_reference import append_operands, append_paged_kv, attention
from helpers import graph, graph_of, tensor, values

from tilewright import relax
from tilewright.ir import Var
from tilewright.relax import op
from tilewright.relax.frontend import nn
from tilewright.support.errors import VerifyError

RNG = np.random.default_rng(5)


def append(*operands: Any) -> Any:
    return op.nn.append_paged_kv(*operands)


@pytest.mark.parametrize("counts", [None, [2, 0, 1]])
def test_operator(counts: Any) -> None:
    arrays = append_operands(RNG, [9, 3, 12], 2, 2, 4, 3, 8, counts)
    mod = graph_of(append, *arrays)
    relax.verify_graph(mod)
    expected, given = append_paged_kv(*arrays), arrays[2].copy()
    for result in (relax.interpreter.run(mod, *arrays), relax.build(mod)(*arrays)):
        np.testing.assert_array_equal(np.asarray(result), expected)
        np.testing.assert_array_equal(arrays[2], given)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({0: (3, 2, 2)}, "key must have 4 dimensions"),
        ({1: (3, 2, 2, 7)}, "shapes of key and value differ"),
        ({2: (9, 1, 2, 4, 8)}, "a page has keys and values"),
        ({2: (9, 2, 1, 4, 8)}, "heads of key and pages differ"),
        ({2: (9, 2, 2, 4, 9)}, "depths of key and pages differ"),
        ({3: (2, 3)}, "batches of key and page_table differ"),
        ({4: (2,)}, "batches of key and lengths differ"),
        ({5: (2,)}, "batches of key and counts differ"),
    ],
)
def test_refusals(changed: Any, message: str) -> None:
    rows = (3, 2, 2, 8)
    shapes = {0: rows, 1: rows, 2: (9, 2, 2, 4, 8), 3: (3, 3), 4: (3,), 5: (3,), **changed}
    arrays = [np.zeros(shapes[n], "int32" if n > 2 else "float32") for n in range(6)]
    with pytest.raises(VerifyError, match=message):
        graph_of(append, *arrays)


def test_tables_are_int32() -> None:
    arrays = append_operands(RNG, [4], 1, 1, 4, 2, 8)
    with pytest.raises(VerifyError, match="lengths must be int32, got int64"):
        graph_of(append, *arrays[:4], arrays[4].astype("int64"))


# ---- the plan ------------------------------------------------------------------------------------


def test_pages_that_the_graph_makes_are_not_copied() -> None:
    arrays = append_operands(RNG, [9, 3], 2, 2, 4, 3, 8)

    def body(key: Any, value: Any, pages: Any, table: Any, lengths: Any) -> Any:
        return append(key, value, op.exp(pages), table, lengths)

    executable = relax.build(graph_of(body, *arrays))
    assert executable.planned is not None
    names = values(executable.planned)
    assert names == ["memory.empty", "exp", "append_paged_kv_inplace"]
    expected = append_paged_kv(*arrays[:2], np.exp(arrays[2]), *arrays[3:])
    np.testing.assert_allclose(executable(*arrays).numpy(), expected, rtol=1e-6)


def test_pages_that_are_needed_later_are_copied() -> None:
    arrays = append_operands(RNG, [9, 3], 2, 2, 4, 3, 8)

    def body(key: Any, value: Any, pages: Any, table: Any, lengths: Any) -> Any:
        own = op.exp(pages)
        return op.subtract(append(key, value, own, table, lengths), own)

    executable = relax.build(graph_of(body, *arrays))
    own = np.exp(arrays[2])
    expected = append_paged_kv(*arrays[:2], own, *arrays[3:]) - own
    np.testing.assert_allclose(executable(*arrays).numpy(), expected, rtol=1e-5, atol=1e-6)


def test_a_caller_may_have_pages_written_where_they_are() -> None:
    arrays = append_operands(RNG, [9, 3], 2, 2, 4, 3, 8)
    executable = relax.build(graph_of(append, *arrays))
    assert executable.overwritable["main"] == ((2, 0),)
    expected = append_paged_kv(*arrays)
    # Elements that no position has aren't even read: a copy would end in other memory's elements.
    pages = arrays[2].copy()
    executable["main"].run_into([*arrays[:2], pages, *arrays[3:]], [pages])
    np.testing.assert_array_equal(pages, expected)
    apart = np.full_like(pages, 7)
    executable["main"].run_into(arrays, [apart])
    np.testing.assert_array_equal(apart, expected)


def test_pages_that_are_read_after_the_append_are_not_overwritable() -> None:
    arrays = append_operands(RNG, [9, 3], 2, 2, 4, 3, 8)

    def body(key: Any, value: Any, pages: Any, table: Any, lengths: Any) -> Any:
        made = append(key, value, pages, table, lengths)
        return relax.Tuple((made, op.sum(pages)))

    params = [tensor(a.shape, a.dtype.name) for a in arrays]
    mod = graph(body, *params)
    assert relax.build(mod).overwritable["main"] == ()


# ---- decoding ------------------------------------------------------------------------------------


class Layer(nn.Module):
    """Attention of new positions over all in the pages, which it appends them to."""

    def __init__(self, width: int, heads: int, key_heads: int) -> None:
        self.heads, self.key_heads, self.depth = heads, key_heads, width // heads
        self.project = nn.Linear(width, (heads + 2 * key_heads) * self.depth, bias=False)

    def forward(
        self, x: nn.Tensor, pages: nn.Tensor, table: nn.Tensor, lengths: nn.Tensor
    ) -> tuple[nn.Tensor, nn.Tensor]:
        batch, new, _ = x.shape
        heads = [self.heads, self.key_heads, self.key_heads]
        ends = [sum(heads[:n]) * self.depth for n in (1, 2)]
        q, k, v = (
            nn.op.reshape(part, (batch, new, count, self.depth))
            for part, count in zip(nn.op.split(self.project(x), ends, axis=-1), heads)
        )
        pages = nn.op.append_paged_kv(k, v, pages, table, lengths)
        seen = nn.op.paged_attention(q, pages, table, lengths)
        return nn.op.reshape(seen, (batch, new, self.heads * self.depth)), pages


def test_decoding_equals_attention_over_all_tokens() -> None:
    width, heads, key_heads, page_size, most = 16, 4, 2, 4, 4
    depth, batch = width // heads, 3
    spec = nn.spec
    mod, params = Layer(width, heads, key_heads).export_tvm(
        {
            "forward": {
                "x": spec.Tensor(["b", "m", width], "float32"),
                "pages": spec.Tensor(["n", 2, key_heads, page_size, depth], "float32"),
                "table": spec.Tensor(["b", "t"], "int32"),
                "lengths": spec.Tensor(["b"], "int32"),
            }
        }
    )
    ((_, info),) = params
    weight = RNG.standard_normal(tuple(map(int, info.shape)), dtype="float32") / 4
    executable = relax.build(mod)
    step = executable["forward"]
    # The result of pages is where these were: a step writes the new positions and nothing else.
    assert executable.overwritable["forward"] == ((1, 1),)

    tokens = RNG.standard_normal((batch, page_size * most, width), dtype="float32")
    pages = np.full((batch * most + 1, 2, key_heads, page_size, depth), np.nan, "float32")
    table = RNG.permutation(len(pages))[: batch * most].reshape(batch, most).astype("int32")
    lengths, found = np.zeros(batch, "int32"), []
    while lengths[0] < tokens.shape[1]:
        new = 6 if lengths[0] == 0 else 1  # a prompt, then token by token
        x = np.ascontiguousarray(tokens[:, lengths[0] : lengths[0] + new])
        lengths += new
        seen = np.empty_like(x)
        step.run_into([x, pages, table, lengths, weight], [seen, pages])
        found.append(seen)

    q, k, v = np.split(tokens @ weight.T, [heads * depth, (heads + key_heads) * depth], axis=-1)
    dense = attention(
        *(x.reshape(batch, tokens.shape[1], -1, depth) for x in (q, k, v)),
        causal_mask="TopLeft", layout="BSHD",
    )  # fmt: skip
    expected = dense.reshape(batch, tokens.shape[1], width)
    np.testing.assert_allclose(np.concatenate(found, 1), expected, rtol=1e-4, atol=1e-5)
    assert np.isnan(pages).sum() == pages[0].size  # only the page that no sequence has


def test_symbolic_numbers_of_pages_and_tokens() -> None:
    b, m, n, t = (Var(name) for name in "bmnt")
    rows = tensor((b, m, 2, 8))
    infos = [rows, rows, tensor((n, 2, 2, 4, 8)), tensor((b, t), "int32"), tensor((b,), "int32")]
    executable = relax.build(graph(append, *infos))
    for lengths, new, most in (([5, 2], 1, 2), ([7], 7, 3), ([], 1, 1), ([3], 0, 1)):
        arrays = append_operands(RNG, lengths, new, 2, 4, most, 8)
        np.testing.assert_array_equal(executable(*arrays).numpy(), append_paged_kv(*arrays))


def test_in_place_by_the_c_compiler() -> None:
    arrays = append_operands(RNG, [9, 3], 2, 2, 4, 3, 8)
    executable = relax.build(graph_of(append, *arrays), "c")
    expected, pages = append_paged_kv(*arrays), arrays[2].copy()
    np.testing.assert_array_equal(executable(*arrays).numpy(), expected)
    executable["main"].run_into([*arrays[:2], pages, *arrays[3:]], [pages])
    np.testing.assert_array_equal(pages, expected)
