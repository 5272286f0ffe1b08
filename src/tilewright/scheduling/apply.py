"""The pass that schedules each function by the first of some rules that applies to it."""

from __future__ import annotations

from tilewright.ir import IRModule, Pass
from tilewright.scheduling.rule import ScheduleRule, schedule_function
from tilewright.support.errors import TilewrightError
from tilewright.target import Target
from tilewright.tir import PrimFunc


class ApplyFirst(Pass):
    """Schedules each TensorIR function by the first rule that applies to it.

    Functions that are already scheduled, or to which no rule applies, are unchanged. For a GPU a
    function without loops on threads isn't: parallel and vectorized loops are a CPU's.
    """

    def __init__(self, *rules: ScheduleRule, target: Target | None = None) -> None:
        self.rules = rules
        self.target = target
        for rule in rules:
            if not isinstance(rule, ScheduleRule):
                name = type(self).__name__
                raise TilewrightError(f"{name} takes rules, got {type(rule).__name__}")

    def transform(self, mod: IRModule) -> IRModule:
        """Schedule the unscheduled functions."""
        target = self.target or Target.current() or Target("native")
        rules = self.rules_for(target)
        return mod.map_functions(
            lambda name, func: schedule_function(name, func, rules, target), PrimFunc
        )

    def rules_for(self, target: Target) -> tuple[ScheduleRule, ...]:
        """The rules to try for a target, in order."""
        return self.rules
