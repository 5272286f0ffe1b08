"""Whether other programs disturb our cores, told by ticks."""

import os
import threading

import pytest

from tilewright.support import interference


def test_a_tick_looks_at_every_core_and_leaves_the_thread_where_it_may_run() -> None:
    before = os.sched_getaffinity(0)
    assert interference.tick() > 0.0
    assert os.sched_getaffinity(0) == before


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores can't be chosen here")
def test_a_tick_ends_on_the_core_where_it_began() -> None:
    cores = os.sched_getaffinity(0)
    for core in sorted(cores):
        os.sched_setaffinity(0, {core})
        assert interference._core() == core
    os.sched_setaffinity(0, cores)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_cores_that_slow_each_other_down_lengthen_the_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: dict[int, int] = {}

    def least(_numbers: object) -> float:
        """The last look of each thread is the one with the others at work."""
        thread = threading.get_ident()
        measured[thread] = measured.get(thread, 0) + 1
        alone = 2 if thread == threading.main_thread().ident else 1
        return 3e-5 if measured[thread] <= alone else 6e-5

    monkeypatch.setattr(interference, "_loop", lambda: 1e-4)
    monkeypatch.setattr(interference, "_least", least)
    before = os.sched_getaffinity(0)
    assert interference.tick() == pytest.approx(1e-4)
    measured.clear()
    assert interference.tick(threads=2) == pytest.approx(2e-4)
    assert os.sched_getaffinity(0) == before


def test_twice_the_fastest_tick_is_a_disturbance() -> None:
    assert interference.is_undisturbed(1.1e-4, 1e-4)
    assert not interference.is_undisturbed(1.9e-4, 1e-4)


def test_a_watch_judges_by_the_fastest_tick_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([2e-4, 1e-4, 2e-4, 1.1e-4])
    monkeypatch.setattr(interference, "tick", lambda threads: next(ticks))
    monkeypatch.setattr(interference, "run_delay", lambda: 0.0)
    watch = interference.Watch()
    assert [watch.undisturbed() for _ in range(4)] == [True, True, False, True]
    assert watch.fastest == 1e-4


def test_who_waited_for_a_core_was_disturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = iter([0.0, 100.0, 100.0])
    monkeypatch.setattr(interference, "run_delay", lambda: next(waiting))
    monkeypatch.setattr(interference, "tick", lambda threads: 1e-4)
    watch = interference.Watch()
    assert not watch.undisturbed()
