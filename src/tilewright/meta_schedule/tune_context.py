"""``TuneContext``: one task being tuned, with its search components."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright import dlight
from tilewright.ir import IRModule
from tilewright.meta_schedule.search_strategy import RuleChoices, SearchStrategy
from tilewright.meta_schedule.space_generator import SpaceGenerator
from tilewright.meta_schedule.task import Task
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule


class TuneContext(Task):
    """A task: a module of one function, a target, a design space and a way to search it.

    ``space_generator`` and ``search_strategy`` are instances or names. The same ``seed`` gives the
    same candidates, as long as measured times rank them alike. ``start_from_rules`` measures the
    rule-based schedule first, and its neighbours.
    """

    def __init__(
        self,
        mod: IRModule | PrimFunc,
        *,
        target: Target | str,
        space_generator: SpaceGenerator | str | Callable[[Schedule], object] = "post-order-apply",
        search_strategy: SearchStrategy | str = "evolutionary",
        task_name: str = "main",
        seed: int = 0,
        start_from_rules: bool = True,
        symbols: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(
            mod,
            target=target,
            space_generator=space_generator,
            task_name=task_name,
            seed=seed,
            symbols=symbols,
        )
        self.search_strategy = SearchStrategy.create(search_strategy)
        self.rule_choices: RuleChoices | None = None
        """What the rules could make of the task; ``None`` without ``start_from_rules``."""
        if start_from_rules and self.target.kind == "llvm":
            func: PrimFunc = self.mod["main"]
            self.rule_choices = RuleChoices(
                func, self.args_info, dlight.kernels_and_rules(), self.target, task_name
            )
            self.rule_choices.rejected = self.rejected

    def generate_design_space(self) -> list[Schedule]:
        """Return the sketches: schedules whose sampling decisions are open."""
        by_rule = self.rule_schedule()
        if by_rule is not None:
            for postproc in self.space_generator.postprocs:
                postproc.learn_reference(by_rule.mod)
        return self.space_generator.generate_design_space(self.mod)

    def rule_schedule(self) -> Schedule | None:
        """Return the rules' schedule of the task, if a rule applies."""
        return None if self.rule_choices is None else self.rule_choices.schedule(frozenset())

    def __repr__(self) -> str:
        return f"TuneContext({self.task_name}, {self.target.kind})"
