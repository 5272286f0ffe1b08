"""Runners: check and measure compiled candidates."""

from __future__ import annotations

from tilewright.meta_schedule.runner.base import (
    EvaluatorConfig,
    NoReferenceError,
    Reference,
    Runner,
    RunnerInput,
    RunnerResult,
)
from tilewright.meta_schedule.runner.local import LocalRunner

__all__ = [
    "EvaluatorConfig",
    "LocalRunner",
    "NoReferenceError",
    "Reference",
    "Runner",
    "RunnerInput",
    "RunnerResult",
]
