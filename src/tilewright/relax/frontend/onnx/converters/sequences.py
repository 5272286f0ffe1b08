"""Sequences and optionals, which exist only while a model is imported."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.relax import ops as op
from tilewright.relax.frontend.onnx.converters.base import (
    Context,
    Graph,
    Shape,
    Tensor,
    Value,
    converts,
)
from tilewright.relax.frontend.onnx.converters.shapes import (
    MOST_PARTS,
    equal_parts,
    parts_of,
)
from tilewright.relax.values import const


def _items(ctx: Context, sequence: Value) -> list[Any]:
    ctx.require(isinstance(sequence, list), "its input must be a sequence")
    return list(sequence)  # type: ignore[arg-type]


def _place(ctx: Context, position: Value, count: int) -> int:
    found = ctx.ints(ctx.sizes(position, "position"), "position")[0]
    ctx.require(-count <= found < count, f"there is no position {found} in {count} elements")
    return found % count if count else 0


@converts("SequenceEmpty")
def _empty(ctx: Context, *, dtype: int = 1) -> tuple[Value, ...]:
    return ([],)


@converts("SequenceConstruct")
def _construct(ctx: Context, *items: Tensor) -> tuple[Value, ...]:
    return (list(items),)


@converts("SequenceInsert")
def _insert(
    ctx: Context, sequence: Value, item: Tensor, position: Value = None
) -> tuple[Value, ...]:
    items = _items(ctx, sequence)
    place = len(items) if position is None else _place(ctx, position, len(items) + 1)
    if position is not None:
        found = ctx.ints(ctx.sizes(position, "position"), "position")[0]
        place = found if found >= 0 else found + len(items)
    return ([*items[:place], item, *items[place:]],)


@converts("SequenceErase")
def _erase(ctx: Context, sequence: Value, position: Value = None) -> tuple[Value, ...]:
    items = _items(ctx, sequence)
    place = len(items) - 1 if position is None else _place(ctx, position, len(items))
    return ([*items[:place], *items[place + 1 :]],)


@converts("SequenceAt")
def _at(ctx: Context, sequence: Value, position: Value) -> tuple[Value, ...]:
    items = _items(ctx, sequence)
    return (items[_place(ctx, position, len(items))],)


@converts("SequenceLength")
def _length(ctx: Context, sequence: Value) -> Tensor:
    return const(np.int64(len(_items(ctx, sequence))))


@converts("SplitToSequence")
def _split(
    ctx: Context, x: Tensor, split: Value = None, *, axis: int = 0, keepdims: int = 1
) -> tuple[Value, ...]:
    at = ctx.axis(axis, x.ndim)
    if split is None:
        (count,) = ctx.ints([x.shape[at]], "the extent that is split")
        parts = equal_parts(ctx, x, at, count)
        return ([p if keepdims else op.squeeze(p, at) for p in map(ctx.emit, parts)],)
    sizes: Shape = ctx.sizes(split, "split")
    found = ctx.known(split)
    if found is not None and not found.ndim:
        (size,) = ctx.ints(sizes, "split")
        (extent,) = ctx.ints([x.shape[at]], "the extent that is split")
        ctx.require(
            size > 0 and extent // size <= MOST_PARTS,
            f"{extent} elements in parts of {size} are not 1 to {MOST_PARTS} parts",
        )
        sizes = tuple(min(size, extent - start) for start in range(0, extent, size))
    return ([ctx.emit(part) for part in parts_of(ctx, x, at, sizes)],)


@converts("ConcatFromSequence")
def _concat(ctx: Context, sequence: Value, *, axis: int, new_axis: int = 0) -> Tensor:
    items = [ctx.tensor(item) for item in _items(ctx, sequence)]
    ctx.require(items, "the sequence is empty")
    if new_axis:
        return op.stack(items, ctx.axis(axis, items[0].ndim + 1))
    return op.concat(items, ctx.axis(axis, items[0].ndim))


@converts("SequenceMap")
def _map(ctx: Context, sequence: Value, *others: Value, body: Graph) -> tuple[Value, ...]:
    items = _items(ctx, sequence)
    results: list[list[Value]] = [[] for _ in body.output]
    for number, item in enumerate(items):
        rest = []
        for other in others:
            if isinstance(other, list):
                ctx.require(len(other) == len(items), "sequences have different lengths")
            rest.append(other[number] if isinstance(other, list) else other)
        for made, value in zip(results, ctx.run_graph(body, [item, *rest])):
            made.append(value)
    return tuple(results)


@converts("Optional")
def _optional(ctx: Context, value: Value = None, *, type: object = None) -> tuple[Value, ...]:
    return (value,)


@converts("OptionalHasElement")
def _has_element(ctx: Context, value: Value = None) -> Tensor:
    return const(value is not None)


@converts("OptionalGetElement")
def _get_element(ctx: Context, value: Value) -> tuple[Value, ...]:
    ctx.require(value is not None, "the optional has no element")
    return (value,)
