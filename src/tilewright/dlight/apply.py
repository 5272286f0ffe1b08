"""The passes that schedule without tuning: by rule, and by kernel and rule."""

from __future__ import annotations

from tilewright.dlight import cpu, gpu
from tilewright.ir import Pass, Sequential
from tilewright.kernels import ApplyKernels, kernels_for
from tilewright.scheduling import ApplyFirst, ScheduleRule
from tilewright.target import Target
from tilewright.tir.transform import LowerLoopExits


class ApplyDefaultSchedule(ApplyFirst):
    """Schedules each TensorIR function by the first rule that applies to it.

    Without rules it takes those for the target (``rules_for``). Functions that already have a
    schedule (by attribute, or by a loop that is not serial), and functions to which no rule
    applies, are unchanged. Loops without iterations are removed. The target is the given one, else
    the current one, else this machine.
    """

    def rules_for(self, target: Target) -> tuple[ScheduleRule, ...]:
        """The given rules, or those for the target."""
        return self.rules or rules_for(target)


def rules_for(target: Target) -> tuple[ScheduleRule, ...]:
    """Return the rules for a kind of target, in order."""
    return gpu.rules() if target.device_kind == "cuda" else cpu.rules()


def default_schedule(target: Target | None = None) -> Pass:
    """Return the passes for unscheduled functions: kernels, then rules.

    Before them ``break`` and ``continue``, which schedules don't know, become conditions.
    """
    rules: list[Pass] = [ApplyKernels(target=target), ApplyDefaultSchedule(target=target)]
    return Sequential([LowerLoopExits(), *rules], name="default_schedule")


def kernels_and_rules(target: Target | None = None) -> tuple[ScheduleRule, ...]:
    """Return the kernels and rules of ``default_schedule``, in order, for searches.

    Those for this machine if no target is given.
    """
    target = target or Target("native")
    return (*kernels_for(target), *rules_for(target))
