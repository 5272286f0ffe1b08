"""The base class of schedule rules, and scheduling a function by the first one that applies."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.ir import IRModule, is_const, rewrite_bottom_up
from tilewright.ir.module import GLOBAL_SYMBOL
from tilewright.scheduling.size_checks import put_back, set_aside
from tilewright.support.errors import ScheduleError, VerifyError
from tilewright.support.registry import near_matches
from tilewright.target import Target
from tilewright.tir import SERIAL, For, PrimFunc
from tilewright.tir.attrs import IS_SCHEDULED
from tilewright.tir.schedule import Choices, Schedule
from tilewright.tir.stmt import BlockRealize, is_no_op
from tilewright.tir.transform import RemoveEmptyLoops
from tilewright.tir.walk import statements

logger = logging.getLogger("tilewright.scheduling")


@dataclass(frozen=True)
class NotApplicable:
    """A rule doesn't apply, with the reason."""

    reason: str


class ScheduleRule:
    """Schedules functions of one kind.

    A subclass defines ``apply_to(sch, target)``, which begins with a schedule and says why the rule
    doesn't apply; or it overrides TVM's ``apply(func, target, tunable)``, which makes the schedule
    itself.
    """

    before: ClassVar[str] = ""
    """The rule that is less specific, so comes later: where a rule of a folder joins the order."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse an ``apply`` that begins with a schedule: that is ``apply_to``.

        Raises ``VerifyError``.
        """
        super().__init_subclass__(**options)
        own = cls.__dict__.get("apply")
        if callable(own) and _most_arguments(own) < len(("self", "func", "target", "tunable")):
            raise VerifyError(
                f"rule {cls.__name__}: apply is called as apply(func, target, tunable); "
                "a rule that begins with a schedule defines apply_to(sch, target)"
            )

    @property
    def name(self) -> str:
        """The rule's name, for logs."""
        return type(self).__name__

    def apply_to(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Schedule the function ``main`` of a fresh schedule.

        Return the schedule, or why the rule doesn't apply. A ``ScheduleError`` from a primitive
        counts as not applicable.
        """
        raise NotImplementedError(f"{self.name} must define apply_to")

    def apply(
        self, func: PrimFunc, target: Target | str, tunable: bool = False
    ) -> Schedule | list[Schedule] | None:
        """Make a schedule of a function; ``None`` if the rule doesn't apply, or to its target.

        An override may return a list, whose first counts. ``tunable`` says that the result will be
        measured: passes never do, and the rules here make the same schedule then.
        """
        if not isinstance(func, PrimFunc) or is_scheduled(func):
            return None
        start = start_schedule(func, record=True)
        target = Target(target) if isinstance(target, str) else target
        made = None if start is None else _first(start, (self,), target, _apply_to)
        return made if isinstance(made, Schedule) else None

    def is_target_available(self, target: Target) -> bool:
        """Return whether the rule is for a target: any, unless a subclass says otherwise."""
        return True

    @staticmethod
    def from_callable(name: str) -> Callable[[Callable[..., Any]], ScheduleRule]:
        """Make a rule of a function ``(func, target, tunable)``: a decorator."""

        def make(function: Callable[..., Any]) -> ScheduleRule:
            members = {"apply": lambda _, func, target, tunable: function(func, target, tunable)}
            made: ScheduleRule = type(name, (ScheduleRule,), members)()
            return made

        return make


def _most_arguments(function: Callable[..., Any]) -> float:
    """How many arguments a function takes by position."""
    parameters = inspect.signature(function).parameters.values()
    if any(item.kind is item.VAR_POSITIONAL for item in parameters):
        return float("inf")
    return sum(
        item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD) for item in parameters
    )


class CPUScheduleRule(ScheduleRule):
    """A rule for CPUs."""

    def is_target_available(self, target: Target) -> bool:
        """Return whether a target is a CPU."""
        return target.device_kind != "cuda"


class GPUScheduleRule(ScheduleRule):
    """A rule for GPUs."""

    def is_target_available(self, target: Target) -> bool:
        """Return whether a target is a GPU."""
        return target.device_kind == "cuda"


def _apply(rule: ScheduleRule, sch: Schedule, target: Target) -> Schedule | NotApplicable:
    """Apply a rule to a schedule that others may share."""
    if type(rule).apply is ScheduleRule.apply:
        return _apply_to(rule, sch, target)
    # The schedule that it makes shall call the function `main`, as rules do.
    found: object = rule.apply(sch.mod["main"].with_attr(GLOBAL_SYMBOL, "main"), target, False)
    if isinstance(found, (list, tuple)):
        found = found[0] if found else None
    if found is None:
        return NotApplicable("its apply returned none")
    if not isinstance(found, Schedule):
        raise VerifyError(
            f"rule {rule.name}: apply returns a Schedule, a list of them or None, "
            f"not a {type(found).__name__}"
        )
    return found


def _apply_to(rule: ScheduleRule, sch: Schedule, target: Target) -> Schedule | NotApplicable:
    if not rule.is_target_available(target):
        return NotApplicable(f"it isn't for targets of kind {str(target.kind)!r}")
    return rule.apply_to(sch.copy(), target)


def joined(
    listed: Sequence[ScheduleRule], found: Iterable[type[ScheduleRule]]
) -> tuple[ScheduleRule, ...]:
    """Return listed rules in order, with other rules inserted by their ``before``.

    Of two with the same ``before``, the first found is tried first.
    """
    made = list(listed)
    for cls in found:
        if "before" in vars(cls):
            names = [rule.name for rule in made]
            if cls.before not in names:
                raise ScheduleError(
                    f"rule {cls.__name__} comes before {cls.before!r}, which is no rule; "
                    f"{near_matches(cls.before, names)}"
                )
            made.insert(names.index(cls.before), cls())
    return tuple(made)


def is_scheduled(func: PrimFunc) -> bool:
    """Whether a function is already scheduled."""
    if func.attrs.get(IS_SCHEDULED):
        return True
    if not isinstance(func.body, BlockRealize):
        return True  # lowered already
    return any(type(item) is For and _is_scheduled_loop(item) for item in statements(func))


def without_loops_of_cpus(func: PrimFunc) -> PrimFunc:
    """Return a function whose loops are serial, if it isn't scheduled and binds none to threads.

    Parallel and vectorized loops are a schedule for a CPU; a GPU's threads run none of them.
    """
    if func.attrs.get(IS_SCHEDULED) or not isinstance(func.body, BlockRealize):
        return func
    loops = [item for item in statements(func) if type(item) is For]
    if any(loop.thread for loop in loops) or not any(map(_is_scheduled_loop, loops)):
        return func

    def serial(node: object) -> Any:
        if type(node) is For and _is_scheduled_loop(node):
            return node.replace(kind=SERIAL, annotations={})
        return node

    return func.replace(body=rewrite_bottom_up(func.body, serial))


def _is_scheduled_loop(loop: For) -> bool:
    return bool(loop.kind != SERIAL or loop.annotations)


def schedule_function(
    name: str, func: PrimFunc, rules: tuple[ScheduleRule, ...], target: Target
) -> PrimFunc:
    """Apply the first rule that applies; return the function unchanged if none does."""
    if target.device_kind == "cuda":
        func = without_loops_of_cpus(func)
    if is_scheduled(func):
        return func
    func = RemoveEmptyLoops().transform_function(func)
    if is_no_op(func.root.body):
        return func.with_attr(IS_SCHEDULED, 1)
    checks, computing = set_aside(func)
    sch = first_schedule(computing, rules, target, name=name)
    if sch is None:
        return func
    made = put_back(checks, computing, sch.mod["main"]).with_attr(IS_SCHEDULED, 1)
    symbol = func.attrs.get(GLOBAL_SYMBOL)
    if made.attrs.get(GLOBAL_SYMBOL) == symbol:
        return made
    if symbol is None:
        return made.without_attr(GLOBAL_SYMBOL)
    return made.with_attr(GLOBAL_SYMBOL, symbol)


def first_schedule(
    func: PrimFunc,
    rules: tuple[ScheduleRule, ...],
    target: Target,
    *,
    record: bool = False,
    name: str = "main",
    choices: Choices | None = None,
) -> Schedule | None:
    """Return the schedule of the first rule that applies, or ``None``.

    With ``record`` it has a trace, so that it can be kept in a database. With ``choices`` rules
    decide as these want; else by their estimates, and ``name`` is the function's in messages.
    """
    start = start_schedule(func, record=record, name=name, choices=choices)
    made = None if start is None else first_applied(start, rules, target)
    return made if isinstance(made, Schedule) else None


def start_schedule(
    func: PrimFunc, *, record: bool = False, name: str = "main", choices: Choices | None = None
) -> Schedule | None:
    """Return the schedule that rules begin with; ``None`` if some loops have no iterations.

    ``ApplyDefaultSchedule`` removes such loops, which a schedule with a trace can't. Rules that
    begin with the same schedule share its cached analyses.
    """
    if any(type(item) is For and is_const(item.extent, 0) for item in statements(func)):
        logger.debug("%s: stays as it is: some of its loops have no iterations", name)
        return None
    made = Schedule(IRModule({"main": func}), record=record)
    made.choices = choices or Choices(function=name)
    made.state.index("main")  # built once, for all copies
    return made


def first_applied(
    sch: Schedule, rules: tuple[ScheduleRule, ...], target: Target
) -> Schedule | NotApplicable:
    """Return the schedule by the first rule that applies, or why none does."""
    return _first(sch, rules, target, _apply)


def _first(
    sch: Schedule,
    rules: tuple[ScheduleRule, ...],
    target: Target,
    apply: Callable[[ScheduleRule, Schedule, Target], Schedule | NotApplicable],
) -> Schedule | NotApplicable:
    reasons, name = [], sch.choices.function
    for rule in rules:
        try:
            result = apply(rule, sch, target)
        except ScheduleError as error:
            result = NotApplicable(error.summary)
        if isinstance(result, Schedule):
            logger.debug("%s: scheduled by %s", name, rule.name)
            return result
        logger.debug("%s: %s does not apply: %s", name, rule.name, result.reason)
        reasons.append(f"{rule.name}: {result.reason}")
    return NotApplicable("; ".join(reasons))


def warn_of_unscheduled(sch: Schedule, reasons: Mapping[str, str]) -> None:
    """Warn the user of the blocks that a rule left unscheduled, with reasons by block name.

    Not during a search, which measures all alternatives.
    """
    if not reasons:
        return
    logger.log(
        logging.DEBUG if sch.choices.is_search else logging.WARNING,
        "%s: no rule schedules %s, left as serial loops on one thread without vectors; schedule "
        "the function by hand (tir.Schedule, then the attribute %r) or tune it, or state the "
        "computation otherwise",
        sch.choices.function,
        ", ".join(f"block {block!r} ({why})" for block, why in reasons.items()),
        IS_SCHEDULED,
    )
