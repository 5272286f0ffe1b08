"""Converters of PyTorch operators, family by family, against PyTorch: indexing, writing, choice."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_families import check, integers, tensor  # noqa: E402

F = torch.nn.functional


def test_writing_at_indices() -> None:
    check(
        {
            "rows": lambda x, v, i, m: x.index_put((i,), v[:1]),
            "accumulate": lambda x, v, i, m: x.index_put((i,), v, accumulate=True),
            "negative": lambda x, v, i, m: x.index_put((i - 4,), v, accumulate=True),
            "two axes": lambda x, v, i, m: x.index_put((i, i), v[:, 0], accumulate=True),
            "second axis": lambda x, v, i, m: torch.ops.aten.index_put(x, [None, i], v[:1, :1]),
            "apart": lambda x, v, i, m: torch.ops.aten.index_put(
                x.reshape(4, 1, 4), [i, None, i], v[:, :1], True
            ),
            "number": lambda x, v, i, m: x.index_put((i,), torch.tensor(2.0)),
            "mask": lambda x, v, i, m: x.index_put((m,), torch.tensor(2.0)),
            "mask of rows": lambda x, v, i, m: x.index_put((m[:, 0],), v[0]),
            "mask, accumulate": lambda x, v, i, m: x.index_put((m,), v[0, 0], accumulate=True),
            "mask of columns": lambda x, v, i, m: torch.ops.aten.index_put(
                x, [None, m[0]], v[:4, :1]
            ),
            "add": lambda x, v, i, m: x.index_add(0, i, v, alpha=0.5),
            "add columns": lambda x, v, i, m: x.index_add(1, i, v.T),
            "copy": lambda x, v, i, m: x.index_copy(0, i[:2], v[:2]),
            "fill": lambda x, v, i, m: x.index_fill(1, i, 3.0),
            "fill by tensor": lambda x, v, i, m: x.index_fill(1, i, v[0, 0]),
            "reduce": lambda x, v, i, m: x.index_reduce(0, i, v, "amax", include_self=False),
            "add to a number": lambda x, v, i, m: x[0, 0].index_add(0, i[0] * 0, v[0, 0]),
        },
        tensor(4, 4), tensor(5, 4, seed=1), integers(5, below=4), tensor(4, 4, seed=2) > 0,
        decomposed=False,
    )  # fmt: skip


def test_scattering() -> None:
    def reduced(how: str, include_self: bool) -> Any:
        return lambda x, v, i: x.scatter_reduce(0, i, v, how, include_self=include_self)

    check(
        {
            "source": lambda x, v, i: x.scatter(1, i[:1] * 0 + 1, v),
            "value": lambda x, v, i: x.scatter(0, i, 0.5),
            "smaller": lambda x, v, i: x.scatter_add(1, i[:2, :2] % 3, v[:2, :2]),
            "add": lambda x, v, i: x.scatter_add(0, i, v),
            "multiply": lambda x, v, i: x.scatter(0, i, v, reduce="multiply"),
            "add value": lambda x, v, i: x.scatter(0, i, 0.5, reduce="add"),
            "slices": lambda x, v, i: x.scatter_add(0, i[:, :1].expand(3, 3), v),
            "most of slices": lambda x, v, i: x.scatter_reduce(
                1, i[:1].expand_as(x) % 3, x, "amax", include_self=False
            ),
            "no axes": lambda x, v, i: x[0, 0].scatter_add(0, i[0, 0] * 0, v[0, 0]),
            **{
                f"{how} {include_self}": reduced(how, include_self)
                for how in ("sum", "prod", "mean", "amax", "amin")
                for include_self in (True, False)
            },
            "mean of ints": lambda x, v, i: i.scatter_reduce(
                0, i % 3, i, "mean", include_self=False
            ),
            "most of ints": lambda x, v, i: i.scatter_reduce(
                0, i % 3, i, "amax", include_self=False
            ),
        },
        tensor(4, 3), tensor(3, 3, seed=1), integers(3, 3, below=4),
        decomposed=False,
    )  # fmt: skip


def test_writing_slices() -> None:
    scatter = torch.ops.aten
    check(
        {
            "slice": lambda x, v: scatter.slice_scatter(x, v[:, :2], 1, 1, 3),
            "steps": lambda x, v: scatter.slice_scatter(x, v[:, :3], 1, 1, 6, 2),
            "from the end": lambda x, v: scatter.slice_scatter(x, v[:, :2], 1, -4, -1, 2),
            "repeated": lambda x, v: scatter.slice_scatter(x, v[:, :1].expand(3, 2), 1, 1, 3),
            "select": lambda x, v: scatter.select_scatter(x, v[:, 0], 1, -1),
            "diagonal": lambda x, v: scatter.diagonal_scatter(x, v[0, :3], 1),
            "diagonal below": lambda x, v: scatter.diagonal_scatter(x, v[0, :2], -4, 1, 0),
            "strided": lambda x, v: scatter.as_strided_scatter(x, v[:2, :2], (2, 2), (1, 7), 3),
            "masked": lambda x, v: x.masked_scatter(x > 0, v * 2),
            "masked rows": lambda x, v: x.masked_scatter(x[0] > 0, v),
        },
        tensor(3, 6), tensor(3, 6, seed=1),
        decomposed=False,
    )  # fmt: skip


def test_reading_at_strides() -> None:
    check(
        {
            "strided": lambda x, i: x.as_strided((2, 3), (1, 4), 2),
            "strided, transposed": lambda x, i: x.T.as_strided((2, 3), (1, 4)),
            "diagonal": lambda x, i: x.diagonal(1),
            "unfold": lambda x, i: x.unfold(1, 3, 2),
            "unfold rows": lambda x, i: x.unfold(0, 2, 1),
            "roll": lambda x, i: x.roll((1, -2), (0, 1)),
            "roll all": lambda x, i: x.roll(3),
            "take": lambda x, i: x.take(i - 3),
            "take along": lambda x, i: x.take_along_dim(i[None] % 4, 0),
            "select of a number": lambda x, i: x[0, 0].index_select(0, i[:1] * 0),
            "im2col": lambda x, i: F.unfold(x[None, None], 2, padding=1, stride=2),
            "col2im": lambda x, i: F.fold(x[None], (3, 4), (2, 2), padding=1, stride=(3, 2)),
            "triangle": lambda x, i: x[torch.tril_indices(4, 4).unbind()],
        },
        tensor(4, 6), integers(6, below=6),
        decomposed=False,
    )  # fmt: skip


def test_bags_of_embeddings() -> None:
    def bag(mode: str, **options: Any) -> Any:
        return lambda w, i, o, s: F.embedding_bag(i, w, o, mode=mode, **options)

    check(
        {
            "sum": bag("sum"),
            "mean": bag("mean"),
            "max": bag("max"),
            "padding": bag("sum", padding_idx=1),
            "mean, padding": bag("mean", padding_idx=1),
            "max, padding": bag("max", padding_idx=-1),
            "last offset": bag("sum", include_last_offset=True),
            "weights": lambda w, i, o, s: F.embedding_bag(
                i, w, o, mode="sum", per_sample_weights=s
            ),
            "matrix": lambda w, i, o, s: F.embedding_bag(i.reshape(3, 2), w, mode="mean"),
            "matrix, max": lambda w, i, o, s: F.embedding_bag(
                i.reshape(3, 2), w, mode="max", padding_idx=2
            ),
        },
        tensor(5, 3), torch.tensor([1, 4, 2, 1, 0, 4]), torch.tensor([0, 3, 3, 4]),
        tensor(6, seed=2),
    )  # fmt: skip


@pytest.mark.parametrize("order", [2.0, 1.0])
def test_rows_of_a_table_get_a_norm(order: float) -> None:
    def look_up(w: Any, i: Any) -> Any:
        table = w.clone()
        return F.embedding(i, table, max_norm=1.0, norm_type=order), table

    check({"renorm": look_up}, tensor(6, 3), torch.tensor([[1, 4], [1, 0]]))


def test_searching() -> None:
    edges = torch.tensor([-1.0, 0.0, 0.5, 0.5, 2.0])
    check(
        {
            "searchsorted": lambda x, e, i: torch.searchsorted(e, x),
            "right": lambda x, e, i: torch.searchsorted(e, x, side="right", out_int32=True),
            "rows": lambda x, e, i: torch.searchsorted(x.sort(-1)[0], x + 0.1),
            "sorter": lambda x, e, i: torch.searchsorted(x, x, sorter=x.argsort(-1)),
            "number": lambda x, e, i: torch.searchsorted(e, 0.5, right=True),
            "of ints": lambda x, e, i: torch.searchsorted(e, i),
            "bucketize": lambda x, e, i: torch.bucketize(x, e, right=True),
            "bucketize a number": lambda x, e, i: torch.bucketize(0.5, e),
            "repeat": lambda x, e, i: x[0].repeat_interleave(i, output_size=8),
            "isin": lambda x, e, i: torch.isin(i, torch.tensor([0, 2])),
        },
        tensor(3, 4), edges, torch.tensor([3, 0, 4, 1]),
        decomposed=False,
    )  # fmt: skip


def test_order_statistics() -> None:
    def with_nan(x: Any) -> Any:
        return torch.where(x > 1, float("nan"), x)

    check(
        {
            "median": lambda x, i: x.median(),
            "median of axis": lambda x, i: x.median(1),
            "median, NaN": lambda x, i: with_nan(x).median(1).values,
            "nanmedian": lambda x, i: with_nan(x).nanmedian(0, keepdim=True).values,
            "nanmedian of all": lambda x, i: with_nan(x).nanmedian(),
            "kthvalue": lambda x, i: x.kthvalue(2, 0, keepdim=True),
            "mode": lambda x, i: i.mode(1).values,
            "of a number": lambda x, i: x[0, 0].kthvalue(1),
            "histc": lambda x, i: x.histc(4, -1, 2),
            "histc of all": lambda x, i: x.histc(5),
            "histc of equals": lambda x, i: (x * 0).histc(5),
        },
        tensor(4, 5), integers(4, 5, below=3),
        decomposed=False,
    )  # fmt: skip
