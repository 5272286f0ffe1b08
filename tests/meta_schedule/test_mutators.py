"""Columns of options and the mutators that move between them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.meta_schedule.conftest import matmul
from tilewright.meta_schedule.mutator import (
    MUTATORS,
    MutateChoice,
    MutateComputeLocation,
    MutateParallel,
    MutateTileSize,
    MutateUnroll,
)
from tilewright.meta_schedule.search_strategy.design import (
    Column,
    make_columns,
)
from tilewright.meta_schedule.search_strategy.tile_options import factorizations, tile_options
from tilewright.meta_schedule.space_generator import SpaceGenerator
from tilewright.support.errors import TuneError
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.sampling import count_factorizations


@pytest.fixture
def columns(target):
    generator = SpaceGenerator.create("post-order-apply", target=target)
    sketch = generator.generate_design_space(Schedule(matmul(64, 96, 32)).mod)[0]
    return make_columns(sketch.trace.simplified())


@pytest.mark.parametrize(("number", "parts"), [(1, 3), (7, 2), (96, 4), (720, 3), (2**12, 4)])
def test_all_factorizations(number, parts):
    found = factorizations(number, parts)
    assert len(set(found)) == len(found) == count_factorizations(number, parts)
    assert all(np.prod(row) == number for row in found)


def test_tile_options_keep_their_limits():
    options = tile_options(96, 3, 16, multiple=8)
    assert set(options[:, -1].tolist()) == {8, 16}
    assert (options.prod(axis=1) == 96).all()


def test_multiples_are_a_wish_not_a_rule():
    assert set(tile_options(7, 2, 16, multiple=8)[:, -1].tolist()) == {1, 7}


def test_huge_tables_are_sampled():
    options = tile_options(2**20 * 3**6 * 5**3, 4, 64)
    assert 0 < len(options) <= 20_000
    assert (options.prod(axis=1) == 2**20 * 3**6 * 5**3).all()


def test_columns_of_a_sketch(columns):
    assert [column.use for column in columns] == ["tile", "tile", "tile", "parallel", "unroll"]
    assert all(column.option_of(column.decision(0)) == 0 for column in columns)
    assert columns[0].option_of([3, 3, 3, 3]) == -1
    assert columns[0].option_of(5) == -1


def test_tile_mutation_moves_one_factor(columns):
    column, rng = columns[0], np.random.default_rng(1)
    chosen = column.draw(500, rng)
    mutated = MutateTileSize().mutate(column, chosen, rng)
    assert (column.options[mutated].prod(axis=1) == column.extent).all()
    changed = (column.options[mutated] != column.options[chosen]).sum(axis=1)
    assert (mutated != chosen).mean() > 0.9
    assert (changed == 2).mean() > 0.4


def test_choices_change_to_others():
    column = Column(0, "unroll", np.arange(4)[:, None], np.full(4, 0.25))
    rng = np.random.default_rng(2)
    chosen = column.draw(200, rng)
    mutated = MutateUnroll().mutate(column, chosen, rng)
    assert (mutated != chosen).all()
    assert set(mutated.tolist()) == {0, 1, 2, 3}


def test_each_mutator_knows_its_decisions(columns):
    tile, _, _, parallel, unroll = columns
    assert MutateTileSize().applies(tile) and not MutateTileSize().applies(unroll)
    assert MutateParallel().applies(parallel) and not MutateParallel().applies(unroll)
    assert MutateUnroll().applies(unroll) and not MutateUnroll().applies(tile)
    assert not MutateChoice().applies(unroll)
    assert MutateComputeLocation().structural


def test_unknown_mutator():
    with pytest.raises(TuneError, match="mutate-tile-size"):
        MUTATORS.get("mutate-tile-sizes")
