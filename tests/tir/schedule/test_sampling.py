"""Sampling: uniform, seeded, checked."""

from __future__ import annotations

from collections import Counter
from math import prod

import pytest
from schedule_cases import chain, check, conv2d, matmul

from tilewright.support.errors import ScheduleError
from tilewright.tir.schedule import PRIMITIVES, Rng, Schedule
from tilewright.tir.schedule.sampling import (
    count_factorizations,
    divisors,
    sample_partitioned,
    sample_perfect,
)


def all_tiles(extent: int, parts: int) -> list[tuple[int, ...]]:
    if parts == 1:
        return [(extent,)]
    return [(d, *rest) for d in divisors(extent) for rest in all_tiles(extent // d, parts - 1)]


def test_counts_agree_with_enumeration():
    for extent in (1, 7, 12, 36, 64):
        for parts in (1, 2, 3):
            assert count_factorizations(extent, parts) == len(all_tiles(extent, parts))


def test_tiles_are_uniform():
    rng = Rng(0)
    allowed = [tile for tile in all_tiles(24, 3) if tile[-1] <= 4]
    counts = Counter(tuple(sample_perfect(rng, 24, 3, 4)) for _ in range(400 * len(allowed)))
    assert set(counts) == set(allowed)
    assert all(abs(count - 400) < 120 for count in counts.values())


def test_partitioned_tiles_are_uniform():
    rng = Rng(0)
    allowed = [tile for tile in all_tiles(24, 3) if prod(tile[1:]) % 4 == 0]
    counts = Counter(tuple(sample_partitioned(rng, 24, 3, 1, 4)) for _ in range(300 * len(allowed)))
    assert set(counts) == set(allowed)
    assert all(abs(count - 300) < 100 for count in counts.values())


def test_primes_and_ones():
    rng = Rng(3)
    assert prod(sample_perfect(rng, 7919, 4, 64)) == 7919
    assert sample_perfect(rng, 1, 3, 16) == [1, 1, 1]
    assert sample_perfect(rng, 12, 1, 4) == [12]


def test_categorical_follows_probabilities():
    sch = Schedule(matmul(), seed=0)
    counts = Counter(
        int(sch.sample_categorical([10, 20, 30], [0.0, 0.25, 0.75])) for _ in range(2000)
    )
    assert counts[10] == 0
    assert 400 < counts[20] < 600
    assert sch.get(sch.sample_categorical([5, 6], [1.0, 0.0], decision=1)) == 6


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s, i: s.sample_perfect_tile(i, 2, decision=[5, 2]), "not a tile of 2 factors"),
        (lambda s, i: s.sample_perfect_tile(i, 3, decision=[3, 4]), "not a tile of 3 factors"),
        (lambda s, i: s.sample_perfect_tile(i, 0), "must be positive"),
        (lambda s, i: s.sample_partitioned_tile(i, 2, 1, 5), "does not divide the extent"),
        (lambda s, i: s.sample_partitioned_tile(i, 2, 2, 4), "partition_pos must be within"),
        (lambda s, i: s.sample_categorical([1, 2], [1.0]), "there must be as many"),
        (lambda s, i: s.sample_categorical([1], [-1.0]), "can't be negative"),
        (lambda s, i: s.sample_categorical([1], [1.0], decision=3), "not within 0 .. 0"),
        (lambda s, i: s.sample_compute_location("C", decision=4), "not -2 .inline., -1"),
    ],
)
def test_refusals(call, message):
    sch = Schedule(matmul())
    i, *_ = sch.get_loops(sch.get_block("C"))
    with pytest.raises(ScheduleError, match=message):
        call(sch, i)


def test_compute_location_covers_all_choices():
    sch = Schedule(chain(), seed=0)
    block = sch.get_block("B")
    loops = sch.get_loops(sch.get_block("C"))
    found = Counter()
    for _ in range(60):
        place = sch.sample_compute_location(block)
        found[place.place or place.var.name] += 1
    names = {sch.get(loop).loop_var.name for loop in loops}
    assert set(found) == {"root", "inline", *names}
    inst = sch.trace.insts[-1]
    assert inst.decision in (-2, -1, 0, 1)


def test_compute_location_of_an_output_is_where_it_is():
    sch = Schedule(chain(), seed=0)
    assert {sch.sample_compute_location("D").place for _ in range(5)} == {"root"}


def test_tiles_that_cover():
    sch = Schedule(matmul(30, 7, 10), seed=0)
    i, j, _ = sch.get_loops("C")
    seen = set()
    for _ in range(300):
        factors = tuple(int(item) for item in sch.sample_tile(i, 3, 8))
        assert 30 <= prod(factors) <= 37
        assert factors[-1] <= 8
        assert prod(factors) - prod(factors[1:]) < 30
        seen.add(factors)
    assert any(prod(factors) > 30 for factors in seen)
    assert any(prod(factors) == 30 for factors in seen)
    assert [int(item) for item in sch.sample_tile(j, 1)] == [7]
    again = Schedule(matmul(30, 7, 10), seed=0)
    first = again.sample_tile(again.get_loops("C")[0], 3, 8)
    assert [int(item) for item in first] == sch.trace.insts[2].decision


def test_covering_tiles_split_with_any_tail():
    before = matmul(30, 7, 10)
    for tail in ("predicate", "peel", "overlap"):
        sch = Schedule(before, seed=4, check=True)
        for loop in sch.get_loops("C")[:2]:
            sch.split(loop, sch.sample_tile(loop, 2, 4), tail=tail)
        check(sch, before)


def test_symbolic_tiles_that_cover_get_a_predicate():
    sch = Schedule(matmul(64, 32, 16), symbolic=True)
    i, j, _ = sch.get_loops("C")
    sch.split(i, sch.sample_tile(i, 2, 16))
    sch.split(j, sch.sample_partitioned_tile(j, 3, 1, 4))
    assert [tile.exact for tile in sch.state.symbolic] == [False, True]
    assert sch.mod.script().count("T.where") == 1


def test_a_location_needs_few_tries(monkeypatch):
    tries = []
    primitive = PRIMITIVES.get("compute_at")
    function = primitive.function

    def counted(*args):
        tries.append(args)
        return function(*args)

    monkeypatch.setattr(primitive, "function", counted)
    sch = Schedule(conv2d(), seed=0)
    for _ in range(20):
        sch.sample_compute_location("pad")
    assert len(tries) < 20 * 3
