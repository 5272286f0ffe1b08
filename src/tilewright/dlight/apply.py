"""The passes that schedule without a trial: by rule, and by kernel and rule."""

from __future__ import annotations

from tilewright.dlight import cpu
from tilewright.ir import Pass, Sequential
from tilewright.kernels import ApplyKernels
from tilewright.kernels import cpu as cpu_kernels
from tilewright.scheduling import ApplyFirst, ScheduleRule
from tilewright.target import Target


class ApplyDefaultSchedule(ApplyFirst):
    """Schedules each TensorIR function by the first rule that applies to it.

    Functions that carry a schedule already (by attribute, or by a loop that is not serial), and
    functions that no rule likes, stay as they are. Loops without iterations are removed. Target:
    the one given, else the current one, else this machine.
    """


def default_schedule(target: Target | None = None) -> Pass:
    """Return the passes for functions that nothing has scheduled yet: kernels, then rules."""
    rules = ApplyDefaultSchedule(*cpu.rules(), target=target)
    return Sequential([ApplyKernels(target=target), rules], name="default_schedule")


def kernels_and_rules() -> tuple[ScheduleRule, ...]:
    """What ``default_schedule`` tries, in its order; for searches that start from it."""
    return (*cpu_kernels.kernels(), *cpu.rules())
