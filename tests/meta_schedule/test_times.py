"""What repeated measurements say: intervals, and which program is faster."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.meta_schedule.runner import RunnerResult
from tilewright.meta_schedule.runner.measuring import Patience
from tilewright.meta_schedule.times import (
    clearly_faster,
    confidence,
    confidence_interval,
    robust_seconds,
)


@pytest.mark.parametrize("count", [8, 12, 25, 40, 2000])
def test_an_interval_holds_the_quartile_as_often_as_it_says(count: int) -> None:
    rng = np.random.default_rng(count)
    draws = rng.exponential(1.0, (2000 if count < 100 else 1000, count))
    quartile = -np.log(0.75)
    intervals = [confidence_interval(list(row), 0.9) for row in draws]
    held = np.mean([low <= quartile <= high for low, high in intervals])
    assert held >= 0.875
    if count == 40:  # and it isn't simply everything
        assert np.mean([high - low for low, high in intervals]) < 0.6


@pytest.mark.parametrize("count", [1, 2, 3, 6, 8, 12, 600])
def test_the_confidence_that_is_said_is_that_of_the_interval(count: int) -> None:
    rng = np.random.default_rng(count)
    draws = rng.exponential(1.0, (4000 if count < 100 else 500, count))
    intervals = [confidence_interval(list(row)) for row in draws]
    held = np.mean([low <= -np.log(0.75) <= high for low, high in intervals])
    said = confidence(list(draws[0]))
    assert held >= said - 0.03
    assert held <= said + 0.03 or said == 0.95


def test_too_few_measurements_give_their_extremes() -> None:
    assert confidence_interval([2.0]) == (2.0, 2.0)
    assert confidence_interval([3.0, 1.0, 2.0]) == (1.0, 3.0)


def test_an_interval_holds_the_robust_time() -> None:
    rng = np.random.default_rng(1)
    for count in range(1, 30):
        times = list(rng.random(count))
        low, high = confidence_interval(times)
        assert low <= robust_seconds(times) <= high


def test_faster_in_most_rounds_is_faster_beyond_noise() -> None:
    a = [1.0 + 0.01 * n for n in range(12)]
    assert clearly_faster(a, [1.02 * t for t in a])
    assert not clearly_faster([1.02 * t for t in a], a)
    assert not clearly_faster(a, a)
    mixed = [t * (1.02 if n % 3 else 0.98) for n, t in enumerate(a)]  # 8 of 12
    assert not clearly_faster(a, mixed)
    assert not clearly_faster([1.0] * 3, [2.0] * 3)  # three rounds are too few


def test_waiting_that_does_not_help_becomes_shorter_and_comes_back() -> None:
    patience = Patience()
    for _ in range(10):
        patience.learn(helped=False)
    assert 0.0 < patience.share < 0.1
    for _ in range(10):
        patience.learn(helped=True)
    assert patience.share == 1.0


def test_what_a_record_says_of_its_timing() -> None:
    quiet = RunnerResult((1.0, 2.0, 3.0))
    assert quiet.timing == {"interval": [1.0, 3.0], "confidence": 0.562}  # 1 - 3/4**3 - 1/4**3
    assert RunnerResult((1.0,)).timing == {"interval": [1.0, 1.0], "confidence": 0.0}
    assert RunnerResult((1.0,) * 12).timing["confidence"] == 0.95
    disturbed = RunnerResult((1.0,), slowdown=1.456, cold=True)
    assert disturbed.timing["slowdown"] == 1.46 and disturbed.timing["caches"] == "cold"
    assert RunnerResult(None, "no", "run").timing == {}
    assert RunnerResult((1.0,), slowdown=float("inf")).timing["slowdown"] == 1000.0
