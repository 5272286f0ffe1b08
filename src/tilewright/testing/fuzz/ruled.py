"""Random programs through each kernel and each rule of ``dlight`` alone, and through all of them.

What a rule makes must compute what the unscheduled program does, which the oracle says, on one
thread and on two, for this CPU and for older ones. A rule's schedule is made of primitives: where
it is wrong, its trace is replayed primitive by primitive, and the first one after which the
interpreter disagrees is named. If there is none, the code is to blame, or a kernel that it calls.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from tilewright import runtime
from tilewright.dlight import ScheduleRule, first_applied, kernels_and_rules, start_schedule
from tilewright.driver import compile as compile_module
from tilewright.ir import IRModule
from tilewright.runtime import guarded
from tilewright.runtime.compiled_function import CompiledFunction
from tilewright.support.errors import TilewrightError
from tilewright.target import Target
from tilewright.testing.fuzz.driver import Counts, Finding, Options
from tilewright.testing.fuzz.hard_programs import FAMILIES
from tilewright.testing.fuzz.operators import operator
from tilewright.testing.fuzz.programs import Program
from tilewright.testing.fuzz.session import Fault, Session, TooLong, TooSlow, deadline
from tilewright.testing.fuzz.shrink import simpler
from tilewright.testing.fuzz.stages import generate
from tilewright.testing.fuzz.stages_hard import STAGES, hard_program
from tilewright.tir.analysis import verify
from tilewright.tir.attrs import IS_SCHEDULED
from tilewright.tir.schedule import Schedule, Trace

THREADS = (1, 2)
_TARGETS = ("llvm -mcpu=x86-64-v2", "llvm -mcpu=haswell", "llvm -mcpu=skylake-avx512")
_EXTENTS = (1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 47, 64, 65)
_ITERATIONS = 20_000
_OPERATORS, KERNELS_FAMILY = "operators", "kernels"
ALL = "all rules"


@cache
def rule_sets() -> dict[str, tuple[ScheduleRule, ...]]:
    """Each rule by itself, and all of them in order."""
    rules = kernels_and_rules()
    return {**{rule.name: (rule,) for rule in rules}, ALL: rules}


@cache
def targets() -> tuple[Target, ...]:
    """Return this CPU, and those whose code it runs."""
    here = Target("native")
    others = [Target(text) for text in _TARGETS] if "x86" in here.triple else []
    return (here, *(target for target in others if target.features <= here.features))


def program_for_rules(case: str) -> Program:
    """Return the program of a case: an operator, what looks like one, or any other program."""
    rng = random.Random(f"rules {case}")
    _, _, family = case.partition("@")
    if not family:
        others = [name for name in sorted(FAMILIES) if name != KERNELS_FAMILY]
        family = rng.choice(
            [_OPERATORS, KERNELS_FAMILY, KERNELS_FAMILY, STAGES, rng.choice(others)]
        )
    if family == _OPERATORS:
        return operator(rng, case)
    if family == STAGES:
        return generate(case)
    label = rng.choice(sorted(FAMILIES[family]))
    return hard_program(rng, case, label, extents=_EXTENTS, iterations=_ITERATIONS)


class RuleSession:
    """A program, what it means, and what rules make of it."""

    def __init__(self, program: Program, seed: int, limit: float) -> None:
        self.start = Session(program, seed=seed, limit=limit)
        self.program = program
        self.limit = limit

    def check(self, counts: Counts, rng: random.Random) -> None:
        """Try every rule."""
        start = self.start
        for which in range(len(start.sizes)):
            start.reference(which)
        self.run(start.mod, targets()[0], "", (1,), "unscheduled program differs")
        for name, rules in rule_sets().items():
            target = targets()[0]
            if rng.random() < 0.3:
                target = rng.choice(targets())
            self.check_rule(name, rules, target, counts)

    def check_rule(
        self, name: str, rules: tuple[ScheduleRule, ...], target: Target, counts: Counts
    ) -> None:
        """Apply a rule; compare if it applies."""
        func = self.start.func
        begin = start_schedule(func, record=True)
        if begin is None:
            counts.refused[f"{name}: some loops have no iterations"] += 1
            return
        try:
            with deadline(self.limit), target:
                made = first_applied(begin, rules, target)
        except TooSlow:
            raise Fault("slow rule", name, f"took more than {self.limit:g} s") from None
        except Exception as error:
            raise Fault("rule crashes", name, f"{type(error).__name__}: {error}") from error
        if not isinstance(made, Schedule):
            counts.refused[name] += 1
            counts.reasons[f"{name}: {gist(made.reason)}"] += 1
            return
        counts.accepted[name] += 1
        try:
            verify(made.mod)
        except Exception as error:
            raise Fault("rule's program is not well formed", name, str(error)) from error
        scheduled = made.mod["main"].with_attr(IS_SCHEDULED, 1)
        try:
            mod = IRModule({**self.start.mod.functions, "main": scheduled})
            self.run(mod, target, name, THREADS, "rule differs")
        except Fault as fault:
            raise Fault(
                fault.kind, name, f"{fault.detail}\n{target}\n{self.culprit(made.trace)}"
            ) from fault
        counts.compiled += 1

    def run(
        self, mod: IRModule, target: Target, rule: str, threads: Iterable[int], kind: str
    ) -> None:
        """Compile and compare."""
        try:
            with deadline(4 * self.limit):
                module = compile_module(mod, target)
        except TooSlow:
            raise Fault("slow", rule, "compiling took too long") from None
        except TilewrightError as error:
            if not rule:
                raise TooLong(f"the program itself: {error}") from None
            raise Fault("rule's program is not built", rule, str(error)) from error
        except Exception as error:
            raise Fault("compile", rule, f"{type(error).__name__}: {error}") from error
        before = runtime.num_threads()
        try:
            for count in threads:
                runtime.set_num_threads(count)
                self.compare(module["main"], rule, kind, count)
        finally:
            runtime.set_num_threads(before)

    def compare(self, function: CompiledFunction, rule: str, kind: str, count: int) -> None:
        """Run a compiled function on guarded memory, and compare its results."""
        start = self.start
        for which, sizes in enumerate(start.sizes):
            actual = [guarded(a) for a in self.program.arrays(start.data_seed, sizes)]
            try:
                function(*actual)
            except Exception as error:
                detail = f"{type(error).__name__}: {error}"
                raise Fault("compiled code fails", rule, detail) from error
            start.agree(kind, rule, start.reference(which), actual, f"{count} thread(s), ")

    def culprit(self, trace: Trace) -> str:
        """Name the first primitive after which the interpreter disagrees."""
        for number in range(1, len(trace) + 1):
            inst = trace.insts[number - 1]
            try:
                sch = Schedule(self.start.mod)
                Trace(trace.insts[:number]).apply_to_schedule(sch)
                self.start.compare(sch.mod, inst.name, every=True)
            except (Fault, TilewrightError) as problem:
                return f"wrong from primitive {number} on, {inst.name}: {gist(str(problem))}"
            except TooLong:
                return f"the interpreter takes too long from primitive {number} on, {inst.name}"
        return "each of its primitives keeps the meaning for the interpreter: the code is wrong"


def gist(text: str) -> str:
    """Return the first line of a message without names and numbers, to group by."""
    words = text.strip().split("\n")[0].split()
    return " ".join(word for word in words if not any(c.isdigit() or c in "'\"`" for c in word))[
        :110
    ]


Check = Callable[[Program, int, float, Counts], "Fault | None"]


def check_program(
    program: Program,
    seed: int,
    limit: float,
    counts: Counts,
    make: Callable[[Program, int, float], Any] = RuleSession,
) -> Fault | None:
    """Return what is wrong with a program under the rules; ``make`` makes the session."""
    # What is drawn for a program depends on the seed only, so that it can be made smaller.
    rng = random.Random(f"targets {seed}")
    try:
        session = make(program, seed, limit)
    except Exception as error:
        return Fault("program", "", f"{type(error).__name__}: {error}")
    try:
        if session.start.not_covered:
            counts.not_covered[session.start.not_covered] += 1
        session.check(counts, rng)
    except Fault as fault:
        return fault
    except TooLong as reason:
        counts.too_long += 1
        counts.not_compiled[gist(str(reason))] += 1
    return None


def run_rule_cases(
    cases: Iterable[str],
    options: Options,
    *,
    counts: Counts,
    enough: Callable[[], bool],
    found: Callable[[Finding], Any],
    draw: Callable[[str], Program] = program_for_rules,
    check: Check = check_program,
) -> None:
    """Run cases until it is enough, reporting faults as they come."""
    for case in cases:
        if enough():
            break
        seed = random.Random(f"seed {case}").getrandbits(32)
        program = draw(case)
        counts.programs += 1
        counts.symbolic += bool(program.symbolic)
        counts.forms.update(program.forms)
        fault = check(program, seed, options.limit, counts)
        if fault is not None:
            found(Finding(fault, program, [], case, seed))


def smaller_program(
    finding: Finding,
    *,
    seconds: float = 30.0,
    check: Check = check_program,
) -> Finding:
    """Return a smaller program with the same fault."""
    end = time.perf_counter() + seconds
    program, fault = finding.program, finding.fault
    changed = True
    while changed and time.perf_counter() < end:
        changed = False
        for candidate in simpler(program):
            if time.perf_counter() > end or not candidate.is_valid():
                continue
            found = check(candidate, finding.seed, 20.0, Counts())
            if found is not None and (found.kind, found.primitive) == finding.key:
                program, fault, changed = candidate, found, True
                break
    return Finding(fault, program, [], finding.case, finding.seed)
