"""The base of kernels: an operator to recognise, and better forms of it with sizes to choose.

A kernel goes through five steps, each a method: ``recognise`` reads a problem from a function,
``plan`` chooses a form and its sizes for a target (by estimate; a search may choose otherwise),
``fault`` says why sizes, which may come from a database, are invalid, ``build`` writes the form,
and ``schedule`` divides its loops among threads. The forms are registered in
``tir.schedule.KERNELS``: the primitive ``use_kernel`` inserts them, so traces and records keep
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, fields
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from tilewright.scheduling import Choices, NotApplicable, ScheduleRule
from tilewright.target import Target
from tilewright.tir import Block, PrimFunc
from tilewright.tir.schedule import KERNELS, Schedule

P = TypeVar("P")


class Kernel(ScheduleRule, Generic[P]):
    """One operator; ``P`` is the problem it reads from a function. A kernel is also a rule."""

    forms: ClassVar[Mapping[str, type]]
    """A frozen dataclass of sizes (integers and truth values) for each form, by its name."""

    def prepare(self, sch: Schedule) -> None:
        """Rewrite a function by primitives so that it is recognised; by default do nothing."""

    def recognise(self, func: PrimFunc) -> P | NotApplicable:
        """Read the problem from a function, or say why the kernel doesn't apply."""
        raise NotImplementedError

    def plan(self, problem: P, target: Target, choices: Choices) -> Any:
        """Choose one of the forms' dataclasses, or say why no form does (``NotApplicable``)."""
        raise NotImplementedError

    def fault(self, problem: P, plan: Any) -> str | None:
        """Say why a plan is invalid for a problem, if it is."""
        raise NotImplementedError

    def build(self, func: PrimFunc, problem: P, plan: Any) -> Block:
        """Return the function's new root block; the plan has no fault."""
        raise NotImplementedError

    def schedule(
        self, sch: Schedule, problem: P, plan: Any, kept: Sequence[str], target: Target
    ) -> None:
        """Schedule the built blocks, and the blocks of the function that were ``kept``, by name."""
        raise NotImplementedError

    def apply_to(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Replace the operator by the kernel, and schedule it."""
        self.prepare(sch)
        problem = self.recognise(sch.mod["main"])
        if isinstance(problem, NotApplicable):
            return problem
        plan = self.plan(problem, target, sch.choices)
        if isinstance(plan, NotApplicable):
            return plan
        (name,) = [name for name, form in self.forms.items() if type(plan) is form]
        before = [rv.name for rv in sch.get_child_blocks("root")]
        sch.use_kernel("root", name, asdict(plan))
        after = {rv.name for rv in sch.get_child_blocks("root")}
        kept = [name for name in before if name in after]
        self.schedule(sch, problem, plan, kept, target)
        return sch

    def register_forms(self) -> None:
        """Register the forms with ``use_kernel``."""
        for name in self.forms:
            KERNELS.register(name, partial(self.form, name))

    def form(self, name: str, func: PrimFunc, options: Mapping[str, object]) -> Block | str:
        """Write a form with the sizes that a trace names, or say why that is impossible."""
        problem = self.recognise(func)
        if isinstance(problem, NotApplicable):
            return problem.reason
        plan = _read_plan(self.forms[name], options)
        if isinstance(plan, str):
            return plan
        return self.fault(problem, plan) or self.build(func, problem, plan)


def _read_plan(form: type, options: Mapping[str, object]) -> object:
    """Read a form's sizes from options, or say what is wrong with these."""
    known = {item.name: item for item in fields(form)}
    for name, value in options.items():
        if name not in known:
            return f"there is no option {name!r}; options are {', '.join(known)}"
        if not isinstance(value, int):
            return f"option {name!r} takes an integer, got {value!r}"
    missing = [n for n, item in known.items() if item.default is MISSING and n not in options]
    return f"option {missing[0]!r} is missing" if missing else form(**options)
