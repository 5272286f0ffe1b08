"""Apply every rule to every block, consumers before producers, and keep all forks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from tilewright.ir import IRModule
from tilewright.meta_schedule.schedule_rule import NotApplicable, ScheduleRule
from tilewright.meta_schedule.schedule_rule.apply_custom_rule import ApplyCustomRule
from tilewright.meta_schedule.space_generator.base import (
    MutatorProbs,
    Postprocs,
    Rules,
    SpaceGenerator,
)
from tilewright.tir import Block
from tilewright.tir.attrs import SCHEDULE_RULE
from tilewright.tir.schedule import Schedule
from tilewright.tir.walk import child_blocks

logger = logging.getLogger("tilewright.meta_schedule")


class PostOrderApply(SpaceGenerator):
    """Apply rules in order, each to all blocks from the last to the first.

    Rules fork; ``max_sketches`` limits the number of sketches. Blocks for which ``f_block_filter``
    is false are left as they are. A block with the annotation ``schedule_rule`` is left to
    ``ApplyCustomRule``.
    """

    name = "post-order-apply"

    def __init__(
        self,
        f_block_filter: Callable[[Block], bool] | None = None,
        sch_rules: Rules = "from-target",
        postprocs: Postprocs = "from-target",
        mutator_probs: MutatorProbs = "from-target",
        *,
        max_sketches: int = 32,
        **options: Any,
    ) -> None:
        super().__init__(
            sch_rules=sch_rules, postprocs=postprocs, mutator_probs=mutator_probs, **options
        )
        self.f_block_filter = f_block_filter
        self.max_sketches = max_sketches

    @property
    def is_users_own(self) -> bool:
        """Whether a user lists the rules."""
        by_name = self._sch_rules is None or isinstance(self._sch_rules, str)
        return type(self) is not PostOrderApply or not by_name

    def generate_design_space(self, mod: IRModule) -> list[Schedule]:
        """Return the sketches."""
        made = [Schedule(mod, seed=self.seed)]
        for rule in self.sch_rules:
            made = [fork for sch in made for fork in self._apply(rule, sch)]
            if len(made) > self.max_sketches:
                logger.info(
                    "%s left %d sketches, keeping %d", rule.name, len(made), self.max_sketches
                )
                made = made[: self.max_sketches]
        return made

    def _is_for(self, rule: ScheduleRule, block: Block) -> bool:
        if (SCHEDULE_RULE in block.annotations) != isinstance(rule, ApplyCustomRule):
            return False
        return self.f_block_filter is None or self.f_block_filter(block)

    def _apply(self, rule: ScheduleRule, sch: Schedule) -> list[Schedule]:
        done: list[Schedule] = []
        stack = [(sch, all_blocks(sch))]
        while stack:
            current, blocks = stack.pop()
            if not blocks:
                done.append(current)
                continue
            name_func, rest = blocks[-1], blocks[:-1]
            func, name = name_func
            if not current.has_block(name, func):
                stack.append((current, rest))
                continue
            length = len(current.trace)
            block = current.get_block(name, func)
            if not self._is_for(rule, current.get(block)):
                del current.trace.insts[length:]
                stack.append((current, rest))
                continue
            result = rule.apply(current, block)
            if isinstance(result, NotApplicable):
                del current.trace.insts[length:]
                logger.debug("%s does not apply to %s: %s", rule.name, name, result.reason)
                result = [current]
            stack.extend((fork, rest) for fork in reversed(result))
        return done


def all_blocks(sch: Schedule) -> list[tuple[str, str]]:
    """Return function and name of all blocks, inner ones before those around them."""
    found: list[tuple[str, str]] = []
    for func in sch.state.func_names():
        roots = child_blocks(sch.state.func(func).body)
        stack = [(realize, False) for realize in reversed(roots)]
        while stack:
            realize, entered = stack.pop()
            if entered:
                found.append((func, realize.block.name))
                continue
            stack.append((realize, True))
            stack.extend((item, False) for item in reversed(child_blocks(realize.block)))
    return found
