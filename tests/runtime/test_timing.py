"""The measuring primitive. No test concludes anything from how long something took."""

from __future__ import annotations

import pytest

from tilewright.runtime import measure
from tilewright.support.errors import RunError


class _Counter:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, *_: object) -> None:
        self.calls += 1


def test_number_and_repeat_are_kept() -> None:
    counter = _Counter()
    result = measure(counter, (1, 2), number=5, repeat=4, warmup=1)
    assert counter.calls == 1 + 5 * 4
    assert len(result.results) == 4 and result.number == 5
    assert result.min <= result.median <= result.max
    assert result.min <= result.mean <= result.max


def test_number_grows_to_the_least_time() -> None:
    result = measure(_Counter(), number=1, repeat=1, min_repeat_ms=1)
    assert result.number > 10


def test_cold_cache_keeps_the_number() -> None:
    result = measure(_Counter(), number=2, repeat=2, min_repeat_ms=5, flush_cache_bytes=4096)
    assert result.number == 2


def test_bad_counts_are_refused() -> None:
    with pytest.raises(RunError, match="must be positive"):
        measure(_Counter(), number=0)
    with pytest.raises(RunError, match="must not be negative"):
        measure(_Counter(), warmup=-1)
