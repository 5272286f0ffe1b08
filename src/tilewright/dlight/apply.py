"""The pass that schedules by rule."""

from __future__ import annotations

from tilewright.ir import IRModule, Pass
from tilewright.scheduling import ScheduleRule, schedule_function
from tilewright.support.errors import TilewrightError
from tilewright.target import Target
from tilewright.tir import PrimFunc


class ApplyDefaultSchedule(Pass):
    """Schedules each TensorIR function by the first rule that applies to it.

    Functions that carry a schedule already (by attribute, or by a loop that is not serial), and
    functions that no rule likes, stay as they are. Loops without iterations are removed. Target:
    the one given, else the current one, else this machine.
    """

    def __init__(self, *rules: ScheduleRule, target: Target | None = None) -> None:
        self.rules = rules
        self.target = target
        for rule in rules:
            if not isinstance(rule, ScheduleRule):
                raise TilewrightError(
                    f"ApplyDefaultSchedule takes rules, got {type(rule).__name__}"
                )

    def transform(self, mod: IRModule) -> IRModule:
        """Schedule what isn't scheduled."""
        target = self.target or Target.current() or Target("native")
        return mod.map_functions(
            lambda name, func: schedule_function(name, func, self.rules, target), PrimFunc
        )
