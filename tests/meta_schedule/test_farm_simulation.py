"""A simulated farm: what it takes, and what keeps it from being faster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright.meta_schedule.farm.simulation import (
    FLOWING,
    IN_TURN,
    OVERLAPPED,
    Recorded,
    Setup,
    simulate,
)
from tilewright.support.errors import TuneError

EXACT = Recorded([2.0], [4.0], [0.0], 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)


def test_a_batch_is_built_then_measured() -> None:
    made = simulate(Setup(devices=2, builders=4, batch=8, mode=IN_TURN), EXACT, 16)
    assert made.seconds == 2 * (8 / 4 * 2.0 + 8 / 2 * 4.0)
    assert made.rate == 16 / made.seconds
    assert (made.lost, made.given_up, made.driver) == (0, 0, 0.0)
    assert made.devices == pytest.approx(16 * 4.0 / (2 * made.seconds))


def test_the_next_batch_is_built_while_one_is_measured() -> None:
    made = simulate(Setup(devices=2, builders=4, batch=8, mode=OVERLAPPED), EXACT, 16)
    assert made.seconds == 8 / 4 * 2.0 + 2 * (8 / 2 * 4.0)


def test_a_flow_does_not_wait_for_batches() -> None:
    made = simulate(Setup(devices=2, builders=4, batch=8, mode=FLOWING), EXACT, 16)
    assert made.seconds == 2.0 + 8 * 4.0


def test_sending_recording_and_the_first_of_each_device_take_time() -> None:
    setup = Setup(devices=1, builders=1, batch=1, mode=IN_TURN)
    once = replace(EXACT, search=0.5, send=0.4, record=0.25, reference=3.0, latency=[0.125])
    made = simulate(setup, once, 2)
    assert made.seconds == pytest.approx(2 * (0.5 + 0.4 + 0.25 + 2.0 + 4.0 + 2 * 0.125) + 3.0)
    assert made.driver == pytest.approx(2 * 1.15 / made.seconds)


def test_it_stops_where_one_process_searches() -> None:
    times = replace(EXACT, measure=[0.1], build=[0.1], search=0.01)
    rates = [simulate(Setup(n, n, 64, FLOWING), times, 1024).rate for n in (1, 4, 64)]
    assert rates[1] > 3.7 * rates[0]
    assert 80.0 < rates[2] <= 100.0


@pytest.mark.parametrize("mode", [IN_TURN, OVERLAPPED, FLOWING])
def test_lost_workers_cost_time_but_no_trial(mode: str) -> None:
    setup = Setup(devices=8, builders=4, batch=16, mode=mode, loss=0.05, seed=3)
    made = simulate(setup, EXACT, 256)
    assert made.trials == 256 and made.lost > 5
    assert made.seconds > simulate(replace(setup, loss=0.0), EXACT, 256).seconds
    assert simulate(setup, EXACT, 256) == made


def test_what_can_not_be_simulated() -> None:
    with pytest.raises(TuneError, match="known: in turn, overlapped, flowing"):
        simulate(Setup(1, 1, mode="at once"), EXACT, 8)
    with pytest.raises(TuneError, match="needs devices"):
        simulate(Setup(0, 1), EXACT, 8)
