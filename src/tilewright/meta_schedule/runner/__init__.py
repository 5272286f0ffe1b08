"""Runners: check and measure compiled candidates."""

from __future__ import annotations

from tilewright.meta_schedule.runner.base import (
    REASONS,
    RUNNERS,
    TUNING,
    EvaluatorConfig,
    LocalRunnerFuture,
    NoReferenceError,
    PyRunner,
    PyRunnerFuture,
    Reference,
    Runner,
    RunnerFuture,
    RunnerInput,
    RunnerResult,
    is_usual,
    passing_bytes,
)
from tilewright.meta_schedule.runner.local import LocalRunner

RUNNERS.register("local", LocalRunner)

create = Runner.create

__all__ = [
    "create",
    "REASONS",
    "RUNNERS",
    "TUNING",
    "EvaluatorConfig",
    "LocalRunner",
    "LocalRunnerFuture",
    "NoReferenceError",
    "PyRunner",
    "PyRunnerFuture",
    "Reference",
    "Runner",
    "RunnerFuture",
    "RunnerInput",
    "RunnerResult",
    "is_usual",
    "passing_bytes",
]
