"""Tiles that need not divide, as decisions of the search."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import pytest

from tilewright import te
from tilewright.ir import IRModule
from tilewright.meta_schedule.mutator.mutate_tile_size import MutateTileSize
from tilewright.meta_schedule.search_strategy.design import Variant, covering_options
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.sampling import Rng, sample_covering


def matmul(n: int, m: int, k: int) -> PrimFunc:
    a = te.placeholder((n, k), name="A")
    b = te.placeholder((k, m), name="B")
    axis = te.reduce_axis((0, k), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="C")
    return te.create_prim_func([a, b, c])


def variant(func: PrimFunc, tail: str) -> Variant:
    sch = Schedule(func, seed=1)
    i, j, k = sch.get_loops("C")
    i0, i1, i2 = sch.split(i, sch.sample_tile(i, 3, 8), tail=tail)
    j0, j1 = sch.split(j, sch.sample_partitioned_tile(j, 2, 1, 2))
    sch.reorder(i0, j0, i1, k, i2, j1)
    return Variant(IRModule.from_expr(func), sch.trace, 0, Target("llvm"))


@pytest.mark.parametrize(("extent", "parts", "limit"), [(30, 3, 16), (37, 2, 8), (1, 2, 4)])
def test_options_are_what_is_drawn(extent: int, parts: int, limit: int) -> None:
    options = {tuple(row) for row in covering_options(extent, parts, limit).tolist()}
    rng = Rng(0)
    drawn = {tuple(sample_covering(rng, extent, parts, limit)) for _ in range(5000)}
    assert drawn == options
    assert all(extent <= prod(row) <= extent * 1.25 and row[-1] <= limit for row in options)


def test_symbolic_features_are_those_of_replay() -> None:
    made = variant(matmul(30, 20, 10), "predicate")
    assert made.fallback_reason is None
    rows = made.draw(20, np.random.default_rng(0))
    symbolic, replayed = made.evaluate(rows), made._replayed(rows)
    assert symbolic.valid.all()
    np.testing.assert_allclose(symbolic.cycles, replayed.cycles, rtol=1e-5)


def test_overlapping_tiles_fall_back_to_replay(
    same_result: Callable[[PrimFunc, object], None],
) -> None:
    func = matmul(30, 20, 10)
    made = variant(func, "overlap")
    assert made.fallback_reason is not None
    rows = made.draw(12, np.random.default_rng(0))
    found = made.evaluate(rows)
    assert found.valid.any()
    for row in rows[found.valid][:3]:
        same_result(func, made.replay(row).mod)


def test_mutated_tiles_are_options() -> None:
    made = variant(matmul(30, 20, 10), "predicate")
    column = made.columns[0]
    rng = np.random.default_rng(0)
    chosen = rng.integers(0, len(column.options), 200)
    other = MutateTileSize().mutate(column, chosen, rng)
    assert ((other >= 0) & (other < len(column.options))).all()
    assert (other != chosen).mean() > 0.8
    assert made.row_of(made.trace) is not None
