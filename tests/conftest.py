"""Settings of the whole suite: nodes refuse assignment, Hypothesis is repeatable and quick."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

os.environ.setdefault("TILEWRIGHT_FREEZE_NODES", "1")
# Tests replace parts of the compiler, of which the key of a compiled graph knows nothing.
os.environ.setdefault("TILEWRIGHT_CACHE_GRAPHS", "0")

from hypothesis import HealthCheck, settings

settings.register_profile(
    "suite",
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
# Some tests send Ctrl-C to programs. Programs started in the background (by a CI, say) inherit that
# it is ignored; a handler of ours is not inherited, so that they start with the default again.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("deep", settings.get_profile("suite"), max_examples=400)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


# Python's usual thresholds (700, 10, 10) cost a sixth of the suite's time, mostly for walking what
# lives as long as the process. Much higher first ones cost more again: new containers leave the
# processor's caches before they are looked at.
gc.set_threshold(2_000, 20, 20)


def pytest_collection_finish() -> None:
    """Take the suite's own million objects out of what each collection of garbage walks."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def fake_cuda() -> Iterator[Any]:
    """A CUDA driver with eight devices, which are imaginary."""
    from fake_cuda import fake_driver

    with fake_driver(8) as driver:
        yield driver
