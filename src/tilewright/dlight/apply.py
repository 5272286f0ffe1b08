"""The passes that schedule without tuning: by rule, and by kernel and rule."""

from __future__ import annotations

from tilewright.dlight import cpu
from tilewright.ir import Pass, Sequential
from tilewright.kernels import ApplyKernels
from tilewright.kernels import cpu as cpu_kernels
from tilewright.scheduling import ApplyFirst, ScheduleRule
from tilewright.target import Target


class ApplyDefaultSchedule(ApplyFirst):
    """Schedules each TensorIR function by the first rule that applies to it.

    Functions that already have a schedule (by attribute, or by a loop that is not serial), and
    functions to which no rule applies, are unchanged. Loops without iterations are removed. The
    target is the given one, else the current one, else this machine.
    """


def default_schedule(target: Target | None = None) -> Pass:
    """Return the passes for unscheduled functions: kernels, then rules."""
    rules = ApplyDefaultSchedule(*cpu.rules(), target=target)
    return Sequential([ApplyKernels(target=target), rules], name="default_schedule")


def kernels_and_rules() -> tuple[ScheduleRule, ...]:
    """Return the kernels and rules of ``default_schedule``, in order, for searches."""
    return (*cpu_kernels.kernels(), *cpu.rules())
