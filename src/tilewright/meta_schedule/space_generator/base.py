"""The base of space generators, which make the sketches of a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tilewright.ir import IRModule
from tilewright.meta_schedule import defaults
from tilewright.meta_schedule.mutator import MUTATORS, Mutator
from tilewright.meta_schedule.postproc import POSTPROCS, Postproc
from tilewright.meta_schedule.schedule_rule import SCHEDULE_RULES, ScheduleRule
from tilewright.support.errors import TuneError
from tilewright.support.registry import Registry
from tilewright.target import Target
from tilewright.tir.schedule import Schedule


class SpaceGenerator:
    """Base of space generators: holds the rules, postprocs and mutators of a task.

    Each is a list of instances or names; ``None`` takes the target's default, see ``defaults.py``.
    ``mutator_probs`` gives each mutator its weight. A ``name`` registers a generator by it.
    """

    name = ""

    def __init__(
        self,
        *,
        sch_rules: Sequence[ScheduleRule | str] | None = None,
        postprocs: Sequence[Postproc | str] | None = None,
        mutator_probs: Mapping[Mutator | str, float] | None = None,
    ) -> None:
        self._sch_rules = sch_rules
        self._postprocs = postprocs
        self._mutator_probs = mutator_probs
        self.sch_rules: list[ScheduleRule] = []
        self.postprocs: list[Postproc] = []
        self.mutator_probs: dict[Mutator, float] = {}
        self.target: Target | None = None

    def initialize(self, target: Target) -> None:
        """Fill in the target's defaults and make rules and postprocs know the target."""
        self.target = target
        names = defaults.for_target(target)
        rules = names.sch_rules if self._sch_rules is None else self._sch_rules
        postprocs = names.postprocs if self._postprocs is None else self._postprocs
        mutators = names.mutator_probs if self._mutator_probs is None else self._mutator_probs
        self.sch_rules = [SCHEDULE_RULES.get(r)() if isinstance(r, str) else r for r in rules]
        self.postprocs = [POSTPROCS.get(p)() if isinstance(p, str) else p for p in postprocs]
        self.mutator_probs = {
            (MUTATORS.get(m)() if isinstance(m, str) else m): float(probability)
            for m, probability in mutators.items()
        }
        for rule in self.sch_rules:
            rule.initialize(target)
        for postproc in self.postprocs:
            postproc.initialize(target)

    def generate_design_space(self, mod: IRModule) -> list[Schedule]:
        """Return the sketches of a module: schedules whose sampling decisions may be changed."""
        raise NotImplementedError(f"{type(self).__name__} must define generate_design_space")

    @staticmethod
    def create(
        kind: SpaceGenerator | str | Callable[[Schedule], object], target: Target
    ) -> SpaceGenerator:
        """Make a generator by name, from a function that schedules, or take an instance.

        It is initialised for the target. Raises ``TuneError`` for anything else.
        """
        if callable(kind) and not isinstance(kind, (SpaceGenerator, type)):
            kind = SPACE_GENERATORS.get("schedule-fn")(kind)
        made = SPACE_GENERATORS.instance(kind, SpaceGenerator)
        made.initialize(target)
        return made


SPACE_GENERATORS: Registry[Callable[..., SpaceGenerator]] = Registry("space generator", TuneError)
"""Space generators by name."""
