"""The union of several design spaces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir import IRModule
from tilewright.meta_schedule.space_generator.base import (
    MutatorProbs,
    Postprocs,
    Rules,
    SpaceGenerator,
)
from tilewright.support.errors import TuneError
from tilewright.target import Target
from tilewright.tir.schedule import Schedule


class SpaceGeneratorUnion(SpaceGenerator):
    """All sketches of some generators, in their order.

    Each is an instance, a name or a function that schedules. The rules are those of each of them;
    postprocs and mutators are the union's own, as every candidate passes the same ones.
    """

    name = "union"

    def __init__(
        self,
        space_generators: Sequence[SpaceGenerator | str | Callable[[Schedule], object]],
        sch_rules: Rules = "from-target",
        postprocs: Postprocs = "from-target",
        mutator_probs: MutatorProbs = "from-target",
        **options: Any,
    ) -> None:
        super().__init__(
            sch_rules=sch_rules, postprocs=postprocs, mutator_probs=mutator_probs, **options
        )
        if not space_generators:
            raise TuneError("a union needs at least one space generator")
        self.space_generators: list[Any] = list(space_generators)

    def initialize(self, target: Target) -> None:
        """Fill in the target's defaults, also those of the generators."""
        super().initialize(target)
        self.space_generators = [
            SpaceGenerator.create(item, target=target) for item in self.space_generators
        ]

    @property
    def is_users_own(self) -> bool:
        """Whether one of the generators is."""
        return type(self) is not SpaceGeneratorUnion or any(
            item.is_users_own if isinstance(item, SpaceGenerator) else not isinstance(item, str)
            for item in self.space_generators
        )

    def generate_design_space(self, mod: IRModule) -> list[Schedule]:
        """Return the sketches of all generators.

        They are drawn with the union's seed added to their own.
        """
        made: list[Schedule] = []
        for generator in self.space_generators:
            own = generator.clone()
            own.seed += self.seed
            made.extend(own.generate_design_space(mod))
        return made
