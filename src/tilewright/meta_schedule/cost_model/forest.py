"""Boosted trees as arrays, and the machine code that evaluates them.

All trees are filled up to one depth: where one has a leaf earlier, all leaves below have its value.
So going down is a fixed number of steps without a branch, and one compiled function serves every
forest of a depth: it is compiled once on a machine (and kept in the cache on disk), however often
the trees change. Rows are done in blocks that stay in the first-level cache, a tree at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from tilewright.codegen.llvm.builder import Callee, Function, exported, external
from tilewright.codegen.llvm.values import BOOL, FLOAT, I32, I64, PTR, VOID, Type, Value, vector
from tilewright.meta_schedule.machine_code import compiled

MAX_DEPTH = 10
"""Complete trees of this depth still fit into the caches."""

_LANES, _VECTORS = 16, 3
"""Rows of a vector, and vectors that go down a tree side by side."""
_INTS, _FLOATS = vector(_LANES, I32), vector(_LANES, FLOAT)


class Table(NamedTuple):
    """Where the arrays of one tree begin."""

    features: Value
    thresholds: Value
    leaves: Value


@dataclass(eq=False)
class Forest:
    """Trees of one depth, in groups of equal size whose sums are separate.

    ``features`` (int32), ``thresholds`` and ``leaves`` (float32) are ``[trees, 2**depth]``. Node 1
    is a tree's root, ``2 * n`` and ``2 * n + 1`` are the children of ``n``; a row goes to the first
    if its feature is less than the threshold.
    """

    depth: int
    groups: int
    features: Any
    thresholds: Any
    leaves: Any

    def __call__(self, rows: Any) -> Any:
        """Return the sums of each group, ``[groups, rows]``, of a float32 array of rows."""
        rows = np.ascontiguousarray(rows, dtype=np.float32)
        made = np.zeros((self.groups, len(rows)), dtype=np.float32)
        if len(self.leaves) and len(rows):
            count, width = rows.shape
            offsets = np.arange(_LANES * _VECTORS, dtype=np.int32) * width
            arrays = (
                np.ascontiguousarray(x) for x in (self.features, self.thresholds, self.leaves)
            )
            _compiled(self.depth)(
                rows, offsets, count, width, *arrays, len(self.leaves) // self.groups, self.groups,
                made,
            )  # fmt: skip
        return made


def forest_of(boosters: Sequence[Any], depth: int) -> Forest:
    """Return the trees of XGBoost's models, none deeper than ``depth``, a group for each."""
    parts = [json.loads(bytes(item.save_raw("json"))) for item in boosters]
    trees = [
        tree for part in parts for tree in part["learner"]["gradient_booster"]["model"]["trees"]
    ]
    left, right = _table(trees, "left_children"), _table(trees, "right_children")
    feature, value = _table(trees, "split_indices"), _table(trees, "split_conditions")
    shape = len(trees), 1 << depth
    features, thresholds = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    every = np.arange(len(trees))[:, None]
    at = np.zeros((len(trees), 1), dtype=np.int64)
    for level in range(depth):
        own = slice(1 << level, 2 << level)
        below = left[every, at]
        inner = below >= 0
        features[:, own] = np.where(inner, feature[every, at], 0)
        thresholds[:, own] = np.where(inner, value[every, at], 0.0)
        both = np.where(inner, below, at), np.where(inner, right[every, at], at)
        at = np.stack(both, axis=2).reshape(len(trees), -1)
    leaves = value[every, at].astype(np.float32)
    return Forest(depth, len(boosters), features, thresholds, leaves)


def _table(trees: Sequence[dict[str, Any]], key: str) -> Any:
    """Return a property of all nodes, ``[trees, nodes]``; there are none where a tree has fewer."""
    made = np.zeros((len(trees), max((len(tree[key]) for tree in trees), default=1)))
    for number, tree in enumerate(trees):
        made[number, : len(tree[key])] = tree[key]
    return made.astype(np.float32 if key == "split_conditions" else np.int64)


def _gather(f: Function, kind: Type, array: Value, places: Value) -> Value:
    """Return elements of an array."""
    name = f"llvm.masked.gather.v{_LANES}{'f32' if kind is _FLOATS else 'i32'}.v{_LANES}p0"
    pointers, truths = Type(f"<{_LANES} x ptr>", lanes=_LANES), vector(_LANES, BOOL)
    assert kind.element is not None
    each = f.here(f"getelementptr {kind.element}, ptr {array.text}, {places.type} {places.text}")
    gather = external(kind, name, pointers, I32, truths, kind)
    return f.call(gather, Value(f, pointers, each), 4, True, 0)


def _vector_step(f: Function, depth: int, table: Table, base: Value, offsets: list[Value]) -> Any:
    """Return where rows come out of a tree, as a vector of leaves for each of ``offsets``."""
    nodes = [f.constant(_INTS, 1) for _ in offsets]
    for _ in range(depth):
        for number, offset in enumerate(offsets):
            feature = _gather(f, _INTS, table.features, nodes[number])
            threshold = _gather(f, _FLOATS, table.thresholds, nodes[number])
            value = _gather(f, _FLOATS, base, feature + offset)
            # What isn't less goes right, and so does NaN.
            right = f.select(value < threshold, 0, 1, _INTS)
            nodes[number] = (nodes[number] << 1) + right
    return [_gather(f, _FLOATS, table.leaves, node - (1 << depth)) for node in nodes]


def _scalar_step(f: Function, depth: int, table: Table, row: Value) -> Value:
    """Return the leaf of one row."""
    node = f.constant(I64, 1)
    for _ in range(depth):
        value = row.at(FLOAT, table.features.at(I32, node).get()).get()
        less = value < table.thresholds.at(FLOAT, node)
        node = (node << 1) + f.select(less, 0, 1, I64)
    return table.leaves.at(FLOAT, node - (1 << depth)).get()


def _evaluator(depth: int) -> Callee:
    """Return the function that evaluates forests of a depth, for rows from ``begin`` on."""
    block = _LANES * _VECTORS

    @exported(
        f"tw_forest_{depth}", VOID,
        rows=PTR, offsets=PTR, count=I64, width=I64, features=PTR, thresholds=PTR, leaves=PTR,
        trees=I64, groups=I64, out=PTR,
    )  # fmt: skip
    def forest(
        f: Function, rows: Value, offsets: Value, count: Value, width: Value, features: Value,
        thresholds: Value, leaves: Value, trees: Value, groups: Value, out: Value,
    ) -> None:  # fmt: skip
        def table_of(tree: Value) -> tuple[Table, Value]:
            at = tree << depth
            table = Table(
                features.at(I32, at).address,
                thresholds.at(FLOAT, at).address,
                leaves.at(FLOAT, at).address,
            )
            return table, out.at(FLOAT, (tree // trees) * count).address

        lanes = [offsets.at(_INTS, number).get(align=4) for number in range(_VECTORS)]
        with f.for_(count // block) as number:
            first = number * block
            base = rows.at(FLOAT, first * width).address
            with f.for_(groups * trees) as tree:
                table, sums = table_of(tree)
                for part, found in enumerate(_vector_step(f, depth, table, base, lanes)):
                    place = sums.at(FLOAT, first + part * _LANES).address.at(_FLOATS)
                    place.set(place.get(align=4) + found, align=4)
        with f.for_(groups * trees) as tree:
            table, sums = table_of(tree)
            with f.for_(count, count - count % block) as row:
                total = sums.at(FLOAT, row)
                total += _scalar_step(f, depth, table, rows.at(FLOAT, row * width).address)

    return forest


@cache
def _compiled(depth: int) -> Callable[..., None]:
    return compiled(_evaluator(depth))
