"""Operators that stand alone: bits, determinants, counts of n-grams, sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright import te
from tilewright.ir import call, dtypes
from tilewright.relax import ops as op
from tilewright.relax.frontend.onnx.converters.base import (
    Array,
    Context,
    Tensor,
    converts,
)
from tilewright.relax.frontend.onnx.model import dtype_of
from tilewright.relax.values import const

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
            total: Tensor | None = None
            for number, column in enumerate(left):
                part = element(row, column)
                if len(left) > 1:
                    part = op.multiply(part, minor(row + 1, left[:number] + left[number + 1 :]))
                if total is None:
                    total = part
                else:
                    total = (op.subtract if number % 2 else op.add)(total, part)
            assert total is not None
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


@dataclass(frozen=True, kw_only=True)
class _GramAttributes:
    max_gram_length: int
    max_skip_count: int
    min_gram_length: int
    mode: str
    ngram_counts: tuple[int, ...]
    ngram_indexes: tuple[int, ...]
    pool_int64s: tuple[int, ...] | None = None
    weights: tuple[float, ...] | None = None


@converts("TfIdfVectorizer")
def _tf_idf(ctx: Context, x: Tensor, *, attrs: _GramAttributes) -> Tensor:
    ctx.choice("mode", attrs.mode, ("TF", "IDF", "TFIDF"))
    if attrs.pool_int64s is None:
        raise ctx.error("only n-grams of integers are supported")
    grams, indexes = _grams(ctx, attrs.pool_int64s, attrs.ngram_counts), attrs.ngram_indexes
    size = max(indexes, default=-1) + 1
    ctx.require(
        len(grams) == len(indexes) and 0 < size <= _MOST_COLUMNS and min(indexes) >= 0,
        f"ngram_indexes must be one for each of the pool, from 0 to below {_MOST_COLUMNS}",
    )
    rows = op.expand_dims(x, 0) if x.ndim == 1 else x
    columns: list[Tensor] = [op.zeros((rows.shape[0],), "float32")] * size
    for number, (gram, index) in enumerate(zip(grams, indexes)):
        if not attrs.min_gram_length <= len(gram) <= attrs.max_gram_length:
            continue
        total = _count(ctx, rows, gram, attrs.max_skip_count)
        if total is None:
            continue
        if attrs.mode == "IDF":
            total = op.astype(op.greater(total, const(0, "float32")), "float32")
        if attrs.mode != "TF":
            weight = 1.0 if attrs.weights is None else attrs.weights[number]
            total = op.multiply(total, const(weight, "float32"))
        columns[index] = total
    made = op.stack(columns, 1)
    return op.squeeze(made, 0) if x.ndim == 1 else made


def _count(ctx: Context, rows: Tensor, gram: tuple[int, ...], most_skipped: int) -> Tensor | None:
    """How often each row has an n-gram, words skipped between; ``None`` if rows are too short."""
    (extent,) = ctx.ints([rows.shape[1]], "the length of sequences")
    total: Tensor | None = None
    for skip in range(most_skipped + 1 if len(gram) > 1 else 1):
        span = (len(gram) - 1) * (skip + 1) + 1
        if span > extent:
            break
        met: Tensor | None = None
        for k, word in enumerate(gram):
            start = k * (skip + 1)
            part = op.strided_slice(rows, [1], [start], [start + extent - span + 1])
            same = op.equal(part, const(word, rows.dtype))
            met = same if met is None else op.logical_and(met, same)
        assert met is not None
        count = op.sum(op.astype(met, "float32"), 1)
        total = count if total is None else op.add(total, count)
    return total


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
