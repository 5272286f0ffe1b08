"""Operators that stand alone: bits, determinants, counts of n-grams, sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import te
from tilewright.ir import call, dtypes
from tilewright.relax import ops as op
from tilewright.relax.expr import const
from tilewright.relax.frontend.onnx.converters.base import (
    Array,
    Context,
    Tensor,
    converts,
)
from tilewright.relax.frontend.onnx.model import dtype_of

_LARGEST_DETERMINANT = 6
#: Results of one sequence: each is computed by itself.
_MOST_COLUMNS = 4096


@converts("BitCast")
def _bit_cast(ctx: Context, x: Tensor, *, to: int) -> Tensor:
    dtype = dtype_of(to)
    ctx.require(
        dtypes.bits_of(x.dtype) == dtypes.bits_of(dtype),
        f"{x.dtype} and {dtype} have different sizes",
    )
    if x.dtype == "bool":
        x = op.astype(x, "uint8")
    if dtype == "bool":
        return ctx.cast(x, "bool")
    if x.dtype == dtype:
        return x

    def bits(data: te.Tensor) -> te.Tensor:
        made: te.Tensor = te.compute(
            data.shape, lambda *i: call("reinterpret", data(*i), dtype=dtype), name="bits"
        )
        return made

    return ctx.te(bits, x, name="bit_cast")


@converts("Det")
def _det(ctx: Context, x: Tensor) -> Tensor:
    rows, columns = ctx.ints(x.shape[-2:], "extents of matrices")
    ctx.require(
        rows == columns and 0 < rows <= _LARGEST_DETERMINANT,
        f"matrices must be square, of up to {_LARGEST_DETERMINANT} rows; got {rows} and {columns}",
    )
    lead = x.ndim - 2
    made: dict[tuple[int, tuple[int, ...]], Tensor] = {}

    def element(row: int, column: int) -> Tensor:
        at = op.strided_slice(x, [lead, lead + 1], [row, column], [row + 1, column + 1])
        return op.squeeze(at, (lead, lead + 1))

    def minor(row: int, left: tuple[int, ...]) -> Tensor:
        """The determinant of the rows from one on, over some of the columns."""
        if (row, left) not in made:
            total: Any = None
            for number, column in enumerate(left):
                part = element(row, column)
                if len(left) > 1:
                    part = op.multiply(part, minor(row + 1, left[:number] + left[number + 1 :]))
                if total is None:
                    total = part
                else:
                    total = (op.subtract if number % 2 else op.add)(total, part)
            made[row, left] = ctx.emit(total)
        return made[row, left]

    return minor(0, tuple(range(rows)))


@converts("Unique")
def _unique(
    ctx: Context, x: Array, *, axis: int | None = None, sorted: int = 1
) -> tuple[Tensor, ...]:
    values, index, inverse, counts = np.unique(
        x if axis is not None else x.reshape(-1), True, True, True, axis=axis
    )
    if not sorted:
        order = np.argsort(index, kind="stable")
        values = np.take(values, order, 0 if axis is None else axis)
        index, counts = index[order], counts[order]
        inverse = np.argsort(order, kind="stable")[inverse]
    return (
        const(np.ascontiguousarray(values)),
        *(const(item.astype(np.int64).reshape(-1)) for item in (index, inverse, counts)),
    )


@converts("TfIdfVectorizer")
def _tf_idf(
    ctx: Context, x: Tensor,
    *, max_gram_length: int, max_skip_count: int, min_gram_length: int, mode: str,
    ngram_counts: tuple[int, ...], ngram_indexes: tuple[int, ...],
    pool_int64s: tuple[int, ...] | None = None, weights: tuple[float, ...] | None = None,
) -> Tensor:  # fmt: skip
    ctx.choice("mode", mode, ("TF", "IDF", "TFIDF"))
    ctx.require(pool_int64s is not None, "only n-grams of integers are supported")
    assert pool_int64s is not None
    grams = _grams(ctx, pool_int64s, ngram_counts)
    size = max(ngram_indexes, default=-1) + 1
    ctx.require(
        len(grams) == len(ngram_indexes) and 0 < size <= _MOST_COLUMNS and min(ngram_indexes) >= 0,
        f"ngram_indexes must be one for each of the pool, from 0 to below {_MOST_COLUMNS}",
    )
    rows = op.expand_dims(x, 0) if x.ndim == 1 else x
    (extent,) = ctx.ints([rows.shape[1]], "the length of sequences")
    columns: list[Any] = [None] * size
    shape = (rows.shape[0],)
    for number, (gram, index) in enumerate(zip(grams, ngram_indexes)):
        if not min_gram_length <= len(gram) <= max_gram_length:
            continue
        total: Any = None
        for skip in range(max_skip_count + 1 if len(gram) > 1 else 1):
            span = (len(gram) - 1) * (skip + 1) + 1
            if span > extent:
                break
            met: Any = None
            for k, word in enumerate(gram):
                start = k * (skip + 1)
                part = op.strided_slice(rows, [1], [start], [start + extent - span + 1])
                same = op.equal(part, const(word, x.dtype))
                met = same if met is None else op.logical_and(met, same)
            count = op.sum(op.astype(met, "float32"), 1)
            total = count if total is None else op.add(total, count)
        if total is None:
            continue
        weight = 1.0 if weights is None else weights[number]
        if mode == "IDF":
            total = op.astype(op.greater(total, const(0, "float32")), "float32")
        if mode != "TF":
            total = op.multiply(total, const(weight, "float32"))
        columns[index] = total
    made = op.stack([op.zeros(shape, "float32") if c is None else c for c in columns], 1)
    return op.squeeze(made, 0) if x.ndim == 1 else made


def _grams(ctx: Context, pool: Sequence[int], starts: Sequence[int]) -> list[tuple[int, ...]]:
    """The n-grams of a pool: of one word first, then of two, and so on."""
    made = []
    ends = [*starts[1:], len(pool)]
    for length, (start, end) in enumerate(zip(starts, ends), 1):
        ctx.require(
            0 <= start <= end <= len(pool) and (end - start) % length == 0,
            "ngram_counts don't fit the pool",
        )
        made += [tuple(pool[n : n + length]) for n in range(start, end, length)]
    return made
