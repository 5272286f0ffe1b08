"""A design space defined by a function that schedules, with sampling for open decisions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilewright.ir import IRModule
from tilewright.meta_schedule.space_generator.base import (
    MutatorProbs,
    Postprocs,
    Rules,
    ScheduleFnType,
    SpaceGenerator,
)
from tilewright.support.errors import TuneError
from tilewright.tir.schedule import Schedule


class ScheduleFn(SpaceGenerator):
    """Call ``sch_fn(sch)``: it changes the schedule it gets, or returns one or several."""

    name = "schedule-fn"

    def __init__(
        self,
        sch_fn: ScheduleFnType,
        sch_rules: Rules = "from-target",
        postprocs: Postprocs = "from-target",
        mutator_probs: MutatorProbs = "from-target",
        **options: Any,
    ) -> None:
        super().__init__(
            sch_rules=sch_rules, postprocs=postprocs, mutator_probs=mutator_probs, **options
        )
        self.sch_fn = sch_fn

    def generate_design_space(self, mod: IRModule) -> list[Schedule]:
        """Return the function's schedules of the module.

        Raises ``TuneError`` if it returns anything else.
        """
        sch = Schedule(mod, seed=self.seed)
        result = self.sch_fn(sch)
        made = [sch] if result is None else [result] if isinstance(result, Schedule) else result
        if not isinstance(made, Iterable):
            made = [made]
        found = list(made)
        for item in found:
            if not isinstance(item, Schedule):
                raise TuneError(
                    "sch_fn must return nothing, a Schedule, or a list of them, not a "
                    f"{type(item).__name__}"
                )
        return found
