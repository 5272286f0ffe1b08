"""Settings of the whole suite: nodes refuse assignment, Hypothesis is repeatable and quick."""

from __future__ import annotations

import os

os.environ.setdefault("TILEWRIGHT_FREEZE_NODES", "1")

from hypothesis import HealthCheck, settings

settings.register_profile(
    "suite",
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))
