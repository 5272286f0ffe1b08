"""The random driver: programs, sequences of primitives, counts of what happened."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.support.collector import few_collections
from tilewright.testing.fuzz.draw import Draw, drawer
from tilewright.testing.fuzz.drawers import EXCLUDED, drawn, row
from tilewright.testing.fuzz.programs import Program
from tilewright.testing.fuzz.session import ACCEPTED, REFUSED, Fault, Session, TooLong
from tilewright.testing.fuzz.stages_hard import program_of_case
from tilewright.testing.fuzz.steps import Step
from tilewright.testing.fuzz.symbolic import check_symbolic
from tilewright.tir.schedule import PRIMITIVES

_SLOW_PROGRAM = 0.02
"""A program that takes longer to interpret (in seconds) has grown enough; its sequence ends."""


@dataclass(frozen=True)
class Options:
    """What to try, and how often to compile."""

    seed: int = 0
    only: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    """Families of programs to draw from; all and random stages if none is named."""
    attempts: int = 36
    accepted: int = 18
    compile_every: int = 4
    """Compile at the end of every so many sequences; 0 never."""
    compile_each: bool = False
    """Compile after every accepted step."""
    render: float = 0.1
    """Share of refusals whose message is rendered."""
    limit: float = 20.0
    """Seconds that one step may take."""

    def case(self, number: int) -> str:
        """Name a case."""
        name = f"{self.seed}-{number}"
        return f"{name}@{self.families[number % len(self.families)]}" if self.families else name


@dataclass
class Counts:
    """What happened."""

    accepted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    forms: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    """Why rules don't apply."""
    programs: int = 0
    symbolic: int = 0
    compiled: int = 0
    not_compiled: Counter[str] = field(default_factory=Counter)
    not_covered: Counter[str] = field(default_factory=Counter)
    """Programs that only the interpreter understands, by what the oracle doesn't know."""
    interpreted: int = 0
    undone: int = 0
    symbolic_tiles: int = 0
    replays: int = 0
    too_long: int = 0

    def add(self, other: Counts) -> None:
        """Add the counts of another process."""
        for name in ("accepted", "refused", "forms", "not_compiled", "not_covered", "reasons"):
            getattr(self, name).update(getattr(other, name))
        for name in (
            "programs", "symbolic", "compiled", "interpreted", "undone", "replays", "too_long",
            "symbolic_tiles",
        ):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def clear(self) -> None:
        """Start from zero again."""
        self.__init__()  # type: ignore[misc]

    @property
    def applications(self) -> int:
        """Accepted applications of primitives that change programs; look-ups don't count."""
        return sum(n for name, n in self.accepted.items() if counts_as_application(name))

    @property
    def refusals(self) -> int:
        """Refused applications of such primitives."""
        return sum(n for name, n in self.refused.items() if counts_as_application(name))


def counts_as_application(name: str) -> bool:
    """Whether a primitive is one that changes programs: no question, no choice."""
    found = PRIMITIVES.get(name)
    return found.recorded and not found.pure


@dataclass
class Finding:
    """A fault, with what leads to it."""

    fault: Fault
    program: Program
    steps: list[Step]
    case: str
    seed: int = 0
    """Of the data, and of the schedule's sampling."""

    @property
    def key(self) -> tuple[str, str]:
        """Faults with one key are likely one fault."""
        return self.fault.kind, self.fault.primitive


class Chooser:
    """Draws steps by the weights of the table."""

    def __init__(self, only: Sequence[str] = ()) -> None:
        for name in only:
            PRIMITIVES.get(name)  # an unknown name answers with near matches
        rows = drawn()
        if only:
            # The primitives asked for, most of the time; others prepare programs for them.
            boost = dict.fromkeys(only, 20.0)
        else:
            boost = {}
        self.names = list(rows)
        self.weights = [rows[name].weight * boost.get(name, 1.0) for name in rows]
        self.drawers = {name: drawer(name, item.draw) for name, item in rows.items()}

    def step(self, session: Session, rng: random.Random, number: int) -> Step | None:
        """Draw a step for the program as it is now, or nothing if what was drawn has no place."""
        name = rng.choices(self.names, self.weights)[0]
        step = self.drawers[name](Draw(session.sch, rng, session.made))
        if step is not None:
            step.number = number
        return step


def run_case(case: str, options: Options, chooser: Chooser, counts: Counts) -> Finding | None:
    """Run one program with one random sequence; returns the fault that it shows."""
    rng = random.Random(f"steps {case.removesuffix('@stages')}")
    program = program_of_case(case)
    steps: list[Step] = []
    seed = rng.getrandbits(32)
    try:
        session = Session(program, seed=seed, limit=options.limit)
    except Exception as error:
        fault = Fault("program", "", f"{type(error).__name__}: {error}")
        return Finding(fault, program, steps, case, seed)
    counts.programs += 1
    counts.symbolic += bool(program.symbolic)
    counts.forms.update(program.forms)
    try:
        session.check_start()
        if session.not_covered:
            counts.not_covered[session.not_covered] += 1
        _walk(session, rng, options, chooser, counts, steps)
    except Fault as fault:
        return Finding(fault, program, steps, case, seed)
    except TooLong:
        counts.too_long += 1
    finally:
        counts.interpreted += session.runs
    return None


def _walk(
    session: Session,
    rng: random.Random,
    options: Options,
    chooser: Chooser,
    counts: Counts,
    steps: list[Step],
) -> None:
    for number in range(options.attempts):
        step = chooser.step(session, rng, number)
        if step is None:
            continue
        steps.append(step)
        outcome = session.apply(step, render=rng.random() < options.render)
        if outcome == ACCEPTED:
            counts.accepted[step.primitive] += 1
            if rng.random() < 0.05:
                session.check_undo()
                counts.undone += 1
            if options.compile_each:
                _compile(session, counts)
        else:
            steps.pop()
            if outcome == REFUSED:
                counts.refused[step.primitive] += 1
        if session.seconds > _SLOW_PROGRAM or len(session.steps) >= options.accepted:
            break
    session.finish()
    counts.replays += 1
    counts.symbolic_tiles += check_symbolic(session, random.Random(0))
    if options.compile_every and rng.randrange(options.compile_every) == 0:
        _compile(session, counts)


def _compile(session: Session, counts: Counts) -> None:
    reason = session.check_compiled()
    if reason:
        counts.not_compiled[reason] += 1
    else:
        counts.compiled += 1


def run_cases(
    cases: Iterable[str],
    options: Options,
    *,
    counts: Counts,
    enough: Callable[[], bool],
    found: Callable[[Finding], Any],
) -> None:
    """Run cases until it is enough, reporting faults as they come."""
    chooser = Chooser(options.only)
    with few_collections():
        for case in cases:
            if enough():
                break
            finding = run_case(case, options, chooser, counts)
            if finding is not None:
                found(finding)


def primitives_without_drawer() -> list[str]:
    """Names of primitives that are neither fuzzed nor excluded with a reason."""
    return [name for name in PRIMITIVES if name not in EXCLUDED and row(name) is None]
