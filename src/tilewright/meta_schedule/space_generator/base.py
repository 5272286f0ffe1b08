"""The base of space generators, which make the sketches of a task."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

from tilewright.ir import IRModule
from tilewright.meta_schedule import defaults
from tilewright.meta_schedule.mutator import MUTATORS, Mutator
from tilewright.meta_schedule.postproc import POSTPROCS, Postproc
from tilewright.meta_schedule.schedule_rule import SCHEDULE_RULES, ScheduleRule
from tilewright.support.errors import TuneError
from tilewright.support.registry import Registry
from tilewright.target import Target
from tilewright.tir.schedule import Schedule

Rules = Sequence[ScheduleRule | str] | str | None
Postprocs = Sequence[Postproc | str] | str | None
MutatorProbs = Mapping[Mutator | str, float] | str | None

ScheduleFnType = Callable[[Schedule], Schedule | Sequence[Schedule] | None]
"""A function that schedules: it changes the schedule it gets, or returns one or several."""


class SpaceGenerator:
    """Base of space generators: holds the rules, postprocs and mutators of a task.

    Each is a list of instances or names; ``"from-target"`` takes the target's default, see
    ``defaults.py``. ``None`` means the same, and the name of a target's kind means the defaults of
    that kind. ``mutator_probs`` gives each mutator its weight. ``seed`` determines the first random
    decisions of sketches, before a search changes them. A ``name`` registers a generator by it.
    """

    ScheduleFnType: ClassVar[Any]  # a union, for annotations
    SpaceGeneratorType: ClassVar[Any]  # a union, for annotations

    name = ""

    def __init__(
        self,
        *,
        sch_rules: Rules = "from-target",
        postprocs: Postprocs = "from-target",
        mutator_probs: MutatorProbs = "from-target",
        seed: int = 0,
    ) -> None:
        self.seed = seed
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

        def kind(given: object) -> str:
            return (
                given
                if isinstance(given, str) and given != "from-target"
                else defaults.name_for(target)
            )

        rules, postprocs = self._sch_rules, self._postprocs
        mutators: Mapping[Any, float] | str | None = self._mutator_probs
        if rules is None or isinstance(rules, str):
            rules = defaults.of_kind(kind(rules)).sch_rules
        if postprocs is None or isinstance(postprocs, str):
            postprocs = defaults.of_kind(kind(postprocs)).postprocs
        if mutators is None or isinstance(mutators, str):
            mutators = defaults.of_kind(kind(mutators)).mutator_probs
        self.sch_rules = [SCHEDULE_RULES.instance(rule, ScheduleRule) for rule in rules]
        self.postprocs = [POSTPROCS.instance(postproc, Postproc) for postproc in postprocs]
        self.mutator_probs = {
            MUTATORS.instance(mutator, Mutator): float(weight)
            for mutator, weight in mutators.items()
        }
        for rule in self.sch_rules:
            rule.initialize(target)
        for postproc in self.postprocs:
            postproc.initialize(target)
        for mutator in self.mutator_probs:
            mutator.initialize(target)

    def _initialize_with_tune_context(self, context: Any) -> None:
        """Learn of which task (a ``TuneContext``) the space is; after ``initialize``."""
        parts: list[Any] = [*self.sch_rules, *self.postprocs, *self.mutator_probs]
        for part in parts:
            part._initialize_with_tune_context(context)

    def generate_design_space(self, mod: IRModule) -> list[Schedule]:
        """Return the sketches of a module: schedules whose sampling decisions may be changed."""
        raise NotImplementedError(f"{type(self).__name__} must define generate_design_space")

    @property
    def is_users_own(self) -> bool:
        """Whether a user says what is in the space, so that nothing else is measured unasked."""
        return True

    def clone(self) -> SpaceGenerator:
        """Return a generator of the same space that shares no state with this one."""
        return copy.deepcopy(self)

    @staticmethod
    def create(
        kind: SpaceGenerator | str | Callable[[Schedule], object] = "post-order-apply",
        *args: Any,
        target: Target | None = None,
        **kwargs: Any,
    ) -> SpaceGenerator:
        """Make a generator by name, from a function that schedules, or take an instance.

        Other arguments are those of its class. It is initialised for a ``target`` that is given.
        Raises ``TuneError`` for anything else.
        """
        if callable(kind) and not isinstance(kind, (SpaceGenerator, type)):
            kind = SPACE_GENERATORS.get("schedule-fn")(kind, *args, **kwargs)
            args, kwargs = (), {}
        made = SPACE_GENERATORS.instance(kind, SpaceGenerator, *args, **kwargs)
        if target is not None:
            made.initialize(target)
        return made


SpaceGenerator.SpaceGeneratorType = (
    SpaceGenerator | ScheduleFnType | Literal["post-order-apply", "union"]
)

SpaceGenerator.ScheduleFnType = ScheduleFnType

PySpaceGenerator = SpaceGenerator
"""The name under which TVM's users derive from it."""

SPACE_GENERATORS: Registry[Callable[..., SpaceGenerator]] = Registry("space generator", TuneError)
"""Space generators by name."""
