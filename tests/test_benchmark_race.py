"""What counts in a race of subjects."""

from __future__ import annotations

import pytest

from benchmarks.race import Measured, complaints, ratio


def _ran(seconds: float, **info: float) -> Measured:
    return Measured(dict(info), rounds=[seconds], ticks=[1.0], fastest_tick=1.0)


def test_ratios_are_the_peers_time_over_ours():
    assert ratio(_ran(2.0), _ran(3.0, difference=1e-7)) == 1.5
    assert ratio(_ran(2.0), Measured({}, error="no such operator")) is None


@pytest.mark.parametrize("difference", [2e-4, float("inf"), float("nan")])
def test_who_is_wrong_has_no_ratio(difference):
    right, wrong = _ran(2.0, difference=1e-7), _ran(1.0, difference=difference)
    assert ratio(right, wrong) is None
    assert ratio(wrong, right) is None
    assert complaints({"peer": wrong}) == [f"peer: wrong, relative difference {difference:.1e}"]


def test_each_subject_may_have_its_own_limit():
    assert ratio(_ran(2.0), _ran(1.0, difference=2e-3, limit=1e-2)) == 0.5
