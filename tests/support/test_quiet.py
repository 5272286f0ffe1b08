"""Whether strangers use our cores, told by ticks."""

import os

import pytest

from tilewright.support import quiet


def test_a_tick_looks_at_every_core_and_leaves_the_thread_where_it_may_run() -> None:
    before = os.sched_getaffinity(0)
    assert quiet.tick() > 0.0
    assert os.sched_getaffinity(0) == before


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores can't be chosen here")
def test_a_tick_ends_on_the_core_where_it_began() -> None:
    cores = os.sched_getaffinity(0)
    for core in sorted(cores):
        os.sched_setaffinity(0, {core})
        assert quiet._core() == core
    os.sched_setaffinity(0, cores)


def test_twice_the_fastest_tick_is_a_disturbance() -> None:
    assert quiet.is_quiet(1.1e-4, 1e-4)
    assert not quiet.is_quiet(1.9e-4, 1e-4)


def test_a_watch_judges_by_the_fastest_tick_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([2e-4, 1e-4, 2e-4, 1.1e-4])
    monkeypatch.setattr(quiet, "tick", lambda: next(ticks))
    monkeypatch.setattr(quiet, "waited", lambda: 0.0)
    watch = quiet.Watch()
    assert [watch.quiet() for _ in range(4)] == [True, True, False, True]
    assert watch.fastest == 1e-4


def test_who_waited_for_a_core_was_disturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = iter([0.0, 100.0, 100.0])
    monkeypatch.setattr(quiet, "waited", lambda: next(waiting))
    monkeypatch.setattr(quiet, "tick", lambda: 1e-4)
    watch = quiet.Watch()
    assert not watch.quiet()
