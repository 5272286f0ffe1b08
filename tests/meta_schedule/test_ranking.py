"""Records are ordered by robust times, never by the clock; a race decides between those in it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from database_cases import TARGET, matmul, schedule

from tilewright.meta_schedule.database import (
    Database,
    MemoryDatabase,
    TuningRecord,
    UnionDatabase,
    measured_alike,
)
from tilewright.meta_schedule.database.ranking import best_first
from tilewright.meta_schedule.database.record import Workload, provenance
from tilewright.target import Target

CHECKED = {"against": "unscheduled program", "trusted_timing": True}
WORKLOAD = Workload(MemoryDatabase().commit_workload(matmul()).mod)


def record(
    *micros: float,
    factor: int = 1,
    beat: tuple[int, ...] = (),
    verified: Mapping[str, object] = CHECKED,
    target: Target = TARGET,
    **origin: object,
) -> TuningRecord:
    """A schedule (known by its factor) that took so long; it beat those of other factors."""
    losers = [TuningRecord(schedule(matmul(), n).trace, WORKLOAD).digest for n in beat]
    return TuningRecord(
        schedule(matmul(), factor).trace.simplified(), WORKLOAD,
        tuple(1e-6 * value for value in micros), target,
        provenance=provenance(verified, beat=losers) | origin,
    )  # fmt: skip


def order(*records: TuningRecord, target: Target | None = TARGET) -> list[int]:
    """The positions of the records, best first."""
    return [next(n for n, x in enumerate(records) if x is y) for y in best_first(records, target)]


def test_no_clock_decides() -> None:
    # Of an old race's winner that took 1 ms and a new one's that took 2, the first is better.
    old = record(1000, factor=2, beat=(1,), time=1.0)
    new = record(2000, factor=4, beat=(1,), time=2.0)
    assert order(new, old) == [1, 0]
    # A schedule that nobody raced may be faster than a race's winner.
    alone = record(100, factor=8, time=0.5)
    assert order(new, old, alone) == [2, 1, 0]


def test_the_winner_of_a_race_comes_before_the_loser_however_lucky_that_was_before() -> None:
    lucky, winner, middle = record(1, factor=2), record(1.2, factor=4, beat=(2,)), record(1.1)
    assert order(lucky, winner, middle) == [1, 0, 2]
    # What beat the winner comes before both.
    champion = record(1.3, factor=8, beat=(4,))
    assert order(lucky, winner, middle, champion) == [3, 1, 0, 2]


def test_where_each_won_once_times_decide() -> None:
    a, b = record(2, factor=2, beat=(4,)), record(1, factor=4, beat=(2,))
    assert order(a, b) == [1, 0] and order(b, a) == [0, 1]
    # Three in a circle: all are given, once.
    circle = [record(n, factor=2**n, beat=(2 ** (n % 3 + 1),)) for n in (1, 2, 3)]
    assert sorted(order(*circle)) == [0, 1, 2]


def test_half_of_the_repeats_disturbed_is_not_the_time() -> None:
    disturbed = record(*[1.16] * 6, 9, 10, 11, 12, 13, 13)
    assert disturbed.best_seconds == pytest.approx(1.16e-6)
    steady = record(2, 2, 2)
    assert order(steady, disturbed) == [1, 0]
    # If the measurement itself says so, it counts with its longest.
    distrusted = record(*[1.16] * 6, 13, verified={**CHECKED, "trusted_timing": False})
    assert order(distrusted, steady) == [1, 0]


def test_what_nobody_checked_comes_last_and_other_machines_after_this_one() -> None:
    other = Target(f"{TARGET} -l2=4194304")
    records = (record(1, verified={}), record(3), record(2, target=other))
    assert order(*records) == [1, 2, 0]
    assert order(*records, target=None) == [2, 1, 0]


def test_what_serves_several_sizes_comes_before_what_was_measured_at_one() -> None:
    family = record(50, sizes=[1, 16, 128])
    later, slower = record(2, factor=2), record(80, factor=4)
    assert order(later, slower, family) == [2, 0, 1]
    # Among families times decide, and whatever has beaten one is before it.
    other = record(40, factor=8, sizes=[1, 64])
    assert order(family, later, other) == [2, 0, 1]
    winner = record(3, factor=16, beat=(1,))
    assert order(family, later, winner) == [2, 0, 1]
    # Unchecked ones, and those of other machines, stay behind.
    unchecked = record(1, factor=2, verified={}, sizes=[1, 16])
    elsewhere = record(1, factor=4, target=Target(f"{TARGET} -l2=4194304"), sizes=[1, 16])
    assert order(unchecked, elsewhere, slower) == [2, 1, 0]


COLD = {"caches": "cold"}


def test_times_with_cold_caches_are_not_compared_with_warm_ones() -> None:
    warm, cold, slower = record(1), record(30, factor=2, timing=COLD), record(4e9, timing=COLD)
    assert order(warm, slower, cold) == [2, 1, 0]
    # A race of both has compared them.
    winner = record(1.1, factor=4, beat=(2,))
    assert order(warm, cold, winner) == [2, 1, 0]
    # Unchecked ones, and those of other machines, stay behind; so do single sizes.
    unchecked = record(30, factor=2, verified={}, timing=COLD)
    elsewhere = record(30, factor=2, target=Target(f"{TARGET} -l2=4194304"), timing=COLD)
    assert order(unchecked, elsewhere, warm) == [2, 1, 0]
    family, cold_family = record(9, sizes=[1, 4]), record(9e3, sizes=[1, 4], timing=COLD)
    assert order(cold, family, cold_family) == [2, 1, 0]
    # No two times become one.
    times = [random.Random(1).uniform(0, 1e9) for _ in range(99)]
    ranks = [record(x, timing=COLD).rank for x in times]
    assert [times[n] for n in sorted(range(99), key=lambda n: ranks[n])] == sorted(times)
    for said in ("cold", ["cold"], {"caches": "COLD"}, {"caches": ["cold"]}):
        assert not record(1, timing=said).cold
    assert record(timing=COLD).rank == float("inf")


@pytest.mark.parametrize("wanted, expected", [
    (None, [30, 40, 1, 2, 0.5]), (True, [30, 40, 1, 2, 0.5]), (False, [1, 2, 30, 40, 0.5]),
])  # fmt: skip
def test_who_knows_where_constants_will_be_gets_what_was_measured_so(
    opened: Callable[..., Database], wanted: bool | None, expected: list[float]
) -> None:
    database = opened()
    database.commit_workload(matmul())
    for item in (
        record(2, factor=2), record(40, factor=4, timing=COLD), record(1, factor=8),
        record(30, factor=16, timing=COLD), record(0.5, verified={}),
    ):  # fmt: skip
        database.commit_tuning_record(item)
    if not isinstance(database, MemoryDatabase):
        database = opened()
    found = database.each_replayed(matmul(), TARGET, cold=wanted)
    times = [item.record.best_seconds * 1e6 for item in found]
    assert times == pytest.approx(expected)
    # One that is named comes first, the others as before.
    named = record(2, factor=2).digest
    found = database.each_replayed(matmul(), TARGET, named, cold=wanted)
    others = [item.record.best_seconds * 1e6 for item in found]
    assert others == pytest.approx([2, *(x for x in expected if x != 2)])


def test_a_search_starts_from_times_that_compare() -> None:
    database = MemoryDatabase()
    workload = database.commit_workload(matmul())
    for item in (record(2, factor=2), record(40, factor=4, timing=COLD), record(3, factor=8)):
        database.commit_tuning_record(item)
    for cold, expected in ((True, [40]), (False, [2, 3])):
        view = measured_alike(database, cold)
        found = [item.best_seconds * 1e6 for item in view.get_top_k(workload, 9, TARGET)]
        assert found == pytest.approx(expected)
        best = view.query_tuning_record(matmul(), TARGET)
        assert best is not None and best.cold == cold
        assert len(view) == len(expected) and view.has_workload(matmul())
    view.commit_tuning_record(record(50, factor=16, timing=COLD))
    assert len(database) == 4


def test_origins_that_strangers_wrote() -> None:
    for said in ("yes", 3, [1, None], {"a": 1}, [["x"]]):
        odd = replace(record(2), provenance={"verified": CHECKED, "beat": said})
        assert odd.beat == () and order(odd, record(1)) == [1, 0]
    assert replace(record(1), provenance={"verified": "yes"}).verified is False
    for sizes in ("yes", 3, [], {"a": 1}, [None, "1", True]):
        odd = record(2, sizes=sizes)
        assert odd.sizes == () and order(odd, record(1)) == [1, 0]
    assert record(0.0, sizes=[1]).rank == 0.0 and record(sizes=[1]).rank == float("inf")


def test_every_order_is_total_and_independent_of_the_order_of_arrival() -> None:
    rng = random.Random(5)
    for _ in range(200):
        count = rng.randint(1, 6)
        records = [
            record(
                rng.randint(1, 4) + n / 100, factor=2 ** (n % 4),
                beat=tuple(2**k for k in range(4) if k != n % 4 and rng.random() < 0.3),
            )
            for n in range(count)
        ]  # fmt: skip
        first = [id(x) for x in best_first(records, TARGET)]
        assert sorted(first) == sorted(map(id, records))
        rng.shuffle(records)
        assert [id(x) for x in best_first(records, TARGET)] == first


def test_databases_give_the_best_first(opened: Callable[..., Database]) -> None:
    database = opened()
    database.commit_workload(matmul())
    for item in (record(1, factor=2), record(1.5, factor=4, beat=(2,)), record(1.2, factor=8)):
        database.commit_tuning_record(item)
    if not isinstance(database, MemoryDatabase):
        database = opened()
    ranked = database.get_top_k(database.commit_workload(matmul()), 2, TARGET)
    assert [r.best_seconds for r in ranked] == pytest.approx([1.5e-6, 1e-6])
    database.commit_tuning_record(record(9, factor=16, sizes=[1, 4]))
    if not isinstance(database, MemoryDatabase):
        database = opened()
    (family,) = database.get_top_k(database.commit_workload(matmul()), 1, TARGET)
    assert family.sizes == (1, 4) and family.counted_seconds == pytest.approx(9e-6)
    assert database.best_records() == [family]
    pruned = MemoryDatabase()
    database.dump_pruned(pruned)
    assert len(pruned) == 1
    # The race's loser in one database, its winner in another.
    lucky = MemoryDatabase()
    lucky.commit_workload(matmul())
    lucky.commit_tuning_record(record(0.5, factor=2))
    best = UnionDatabase(lucky, pruned).query_tuning_record(matmul(), TARGET)
    assert best is not None and best.sizes == (1, 4)
