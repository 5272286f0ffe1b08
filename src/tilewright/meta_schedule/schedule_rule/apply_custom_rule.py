"""Apply to a block the rule that its annotation names."""

from __future__ import annotations

from tilewright.meta_schedule.schedule_rule.base import SCHEDULE_RULES, NotApplicable, ScheduleRule
from tilewright.support.errors import TuneError
from tilewright.target import Target
from tilewright.tir.attrs import SCHEDULE_RULE
from tilewright.tir.schedule import BlockRV, Schedule

_NOTHING = "None"


class ApplyCustomRule(ScheduleRule):
    """Apply the rule registered under the name in the block's annotation ``schedule_rule``.

    All other rules leave such a block alone; the name ``"None"`` leaves it as it is. Raises
    ``TuneError`` for a name that isn't registered.
    """

    name = "apply-custom-rule"

    def __init__(self) -> None:
        self.target: Target | None = None
        self._rules: dict[str, ScheduleRule] = {}

    def initialize(self, target: Target) -> None:
        """Learn the target, for the rules that will be applied."""
        self.target = target
        self._rules = {}

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule] | NotApplicable:
        """Apply the block's rule."""
        name = sch.get(block).annotations.get(SCHEDULE_RULE)
        if name is None or name == _NOTHING:
            return NotApplicable("the block asks for no rule")
        return self._rule(str(name)).apply(sch, block)

    def _rule(self, name: str) -> ScheduleRule:
        if self.target is None:
            raise TuneError("apply-custom-rule doesn't know the target: call initialize first")
        if name == self.name:
            raise TuneError(f"a block can't ask for {name!r} itself; name another rule")
        if name not in self._rules:
            self._rules[name] = SCHEDULE_RULES.instance(name, ScheduleRule)
            self._rules[name].initialize(self.target)
        return self._rules[name]
