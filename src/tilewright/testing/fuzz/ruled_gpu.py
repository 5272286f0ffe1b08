"""Random programs through each rule for GPUs alone, and through ``ApplyDefaultSchedule``.

No function may stay unscheduled, and no rule's schedule may fail to lower or exceed the GPU's
limits; NVRTC must compile it. A share of the kernels is simulated, races reported, and must compute
what the unscheduled program does. Nothing needs a GPU.
"""

from __future__ import annotations

import random
from functools import cache, partial
from math import prod

from tilewright.codegen.cuda import nvrtc
from tilewright.codegen.cuda.emit import emit_kernels
from tilewright.dlight import (
    ApplyDefaultSchedule,
    Choices,
    ScheduleRule,
    first_applied,
    first_schedule,
    gpu,
    rules_for,
    start_schedule,
)
from tilewright.dlight.gpu.matmul import TENSOR_MAPS
from tilewright.ir import IRModule, PassContext, as_int, pre_order, structural_equal
from tilewright.scheduling.gpu import limits_of
from tilewright.support.errors import MissingExtraError
from tilewright.target import Target
from tilewright.testing.fuzz.driver import Counts
from tilewright.testing.fuzz.hard_programs import FAMILIES
from tilewright.testing.fuzz.operator_draws import EMPTY, HUGE, USUAL
from tilewright.testing.fuzz.operators import LARGE, OPERATORS, operator
from tilewright.testing.fuzz.programs import Program
from tilewright.testing.fuzz.ruled import (
    KERNELS_FAMILY,
    check_program,
    gist,
    run_rule_cases,
    smaller_program,
)
from tilewright.testing.fuzz.session import Fault, Session, TooLong, TooSlow, deadline
from tilewright.testing.fuzz.stages import generate
from tilewright.testing.fuzz.stages_hard import STAGES, hard_program
from tilewright.tir import BufferStore, PrimFunc, Stmt
from tilewright.tir.analysis import allocated_memory, verify
from tilewright.tir.attrs import IS_SCHEDULED
from tilewright.tir.interpreter import compile_function
from tilewright.tir.schedule import Schedule
from tilewright.tir.transform import CALLING_CONV, gpu_pipeline, launch_extents

ALL = "ApplyDefaultSchedule"
_TARGETS = tuple(
    f"nvidia/{name}" for name in ("tesla-t4", "nvidia-a100", "nvidia-h200", "nvidia-b200")
)
_UNUSUAL = 0.15
"""Share of the operators that have nothing along some axis, or more than 2**31 elements."""
_LEAST = 0.3
"""How often sizes that come with the call are also nothing, and one."""
_EXTENTS = (1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 47, 64, 65)
_ITERATIONS = 4000
_ALONE = 0.3
"""How often each rule is tried by itself."""
_SIMULATED = 0.25
"""Share of the kernels that are simulated."""
_COMPILED = 0.5
"""Share of the kernels that NVRTC compiles, where there is one."""
_LONGEST = 4.0
"""Seconds of a simulation."""
_LONGEST_OF_CLUSTERS = 20.0
"""The same of products in clusters, whose blocks have hundreds of threads."""
_OF_MAPS = ".cluster", ".turns", ".from_registers"
"""How the keys of choices end that tensor maps bring along."""
_BY_MAPS = 0.5
"""How often products on Hopper are asked for tensor maps, and for a cluster that is drawn."""


@cache
def gpu_rule_sets() -> dict[str, tuple[ScheduleRule, ...]]:
    """Each rule by itself, and none, which stands for all of them in order."""
    return {**{rule.name: (rule,) for rule in gpu.rules()}, ALL: ()}


def program_for_gpu_rules(case: str) -> Program:
    """Return the program of a case: an operator most often, or any other program."""
    rng = random.Random(f"gpu rules {case}")
    _, _, family = case.partition("@")
    if not family:
        others = [name for name in sorted(FAMILIES) if name != KERNELS_FAMILY]
        family = rng.choice(["operators"] * 4 + [STAGES, rng.choice(others)])
    if family == "operators" or family in OPERATORS:
        label = family if family in OPERATORS else ""
        symbolic = rng.random() < 0.4
        others = [EMPTY, HUGE] if label in ("", *LARGE) else [EMPTY]
        extents = rng.choice(others) if rng.random() < _UNUSUAL else USUAL
        return operator(rng, case, label, symbolic, extents)
    if family == STAGES:
        return generate(case)
    label = rng.choice(sorted(FAMILIES[family]))
    return hard_program(rng, case, label, extents=_EXTENTS, iterations=_ITERATIONS)


class GPURuleSession:
    """A program, what it means, and what rules for GPUs make of it."""

    def __init__(self, program: Program, seed: int, limit: float) -> None:
        self.start = Session(program, seed=seed, limit=limit)
        self.program = program
        self.limit = limit
        self.longest = _LONGEST

    def check(self, counts: Counts, rng: random.Random) -> None:
        """Try all rules in order, and some by themselves, on one target."""
        target = Target(rng.choice(_TARGETS))
        if self.program.runs and rng.random() < _LEAST:
            self.with_least_sizes()
        seen: list[Stmt] = []
        for name, rules in gpu_rule_sets().items():
            if rules and rng.random() > _ALONE:
                continue
            mod = self.applied(name, rules, target, counts)
            if mod is None:
                continue
            counts.accepted[name] += 1
            body = mod["main"].body
            if any(structural_equal(body, other, map_free_vars=True) for other in seen):
                continue
            seen.append(body)
            lowered = self.lowered(mod, name, target)
            if rng.random() < _COMPILED:
                self.compile(lowered, name, target, counts)
            if self.program.runs and rng.random() < _SIMULATED:
                self.simulate(lowered, name, counts)

    def with_least_sizes(self) -> None:
        """Also run with sizes of nothing and of one, if the program has a meaning then."""
        start = self.start
        start.reference(0)
        start.sizes.extend(s for s in self.program.least_sizes() if start.is_defined(s))

    def applied(
        self, name: str, rules: tuple[ScheduleRule, ...], target: Target, counts: Counts
    ) -> IRModule | None:
        """Apply one rule, or all of them in order; ``None`` if the rule doesn't apply."""
        try:
            with deadline(self.limit, of_cpu=True):
                if not rules:
                    return self.by_default(target)
                begin = start_schedule(self.start.func, record=True)
                made = None if begin is None else first_applied(begin, rules, target)
        except TooSlow:
            raise Fault("slow rule", name, f"took more than {self.limit:g} s") from None
        except Fault:
            raise
        except Exception as error:
            raise Fault("rule crashes", name, f"{type(error).__name__}: {error}") from error
        if made is None:
            counts.refused[f"{name}: some loops have no iterations"] += 1
            return None
        if not isinstance(made, Schedule):
            counts.refused[name] += 1
            counts.reasons[f"{name}: {gist(made.reason)}"] += 1
            return None
        main = made.mod["main"].with_attr(IS_SCHEDULED, 1)
        mod = IRModule({**self.start.mod.functions, "main": main})
        return mod if len(mod.functions) == 1 else ApplyDefaultSchedule(target=target)(mod)

    def by_maps(self, target: Target, counts: Counts, rng: random.Random) -> IRModule | None:
        """Apply all rules with tensor maps and a cluster; ``None`` if no rule offers these."""
        with PassContext(config={TENSOR_MAPS.key: True}):
            offered = Choices({})
            first_schedule(self.start.func, rules_for(target), target, choices=offered)
            wanted = {
                key: rng.randrange(len(options))
                for key, options in offered.offered.items()
                if key.endswith(_OF_MAPS)
            }
            choices = Choices(wanted)
            rules = rules_for(target) if wanted else ()
            made = first_schedule(self.start.func, rules, target, choices=choices)
            if made is None:
                return None
            main = made.mod["main"].with_attr(IS_SCHEDULED, 1)
            mod = IRModule({**self.start.mod.functions, "main": main})
            counts.accepted[f"{ALL}, in clusters"] += 1
            self.longest = _LONGEST_OF_CLUSTERS
            return ApplyDefaultSchedule(target=target)(mod)

    def by_default(self, target: Target) -> IRModule:
        """Apply all rules in order; every function ends scheduled."""
        mod: IRModule = ApplyDefaultSchedule(target=target)(self.start.mod)
        for name, func in mod.functions.items():
            if isinstance(func, PrimFunc) and not func.attrs.get(IS_SCHEDULED):
                raise Fault("unscheduled", ALL, f"function {name!r}")
        return mod

    def lowered(self, mod: IRModule, rule: str, target: Target) -> IRModule:
        """Lower a schedule, and look at its kernels."""
        try:
            verify(mod)
        except Exception as error:
            raise Fault("rule's program is not well formed", rule, str(error)) from error
        try:
            with deadline(self.limit, of_cpu=True):
                made: IRModule = gpu_pipeline(target)(mod)
                verify(made)
        except TooSlow:
            raise Fault("slow lowering", rule, f"took more than {self.limit:g} s") from None
        except Exception as error:
            detail = f"{type(error).__name__}: {error}\n{mod.script()}"
            raise Fault("not lowered", rule, detail) from error
        wrong = fault_of(made, target)
        if wrong is not None:
            raise Fault("beyond the GPU", rule, f"{wrong}\n{target}\n{mod.script()}")
        return made

    def compile(self, lowered: IRModule, rule: str, target: Target, counts: Counts) -> None:
        """Make machine code of the kernels."""
        if not any(
            isinstance(func, PrimFunc) and CALLING_CONV in func.attrs
            for func in lowered.functions.values()
        ):
            return
        try:
            nvrtc.compile_text(emit_kernels(lowered, target).text, target.arch)
        except MissingExtraError as error:
            counts.not_compiled[gist(str(error))] += 1
        except Exception as error:
            detail = f"{type(error).__name__}: {error}\n{target}\n{lowered.script()}"
            raise Fault("not compiled", rule, detail) from error
        else:
            counts.compiled += 1

    def simulate(self, lowered: IRModule, rule: str, counts: Counts) -> None:
        """Run the kernels with their threads in lock step, on all sizes."""
        try:
            function = compile_function(lowered["main"], lowered, check_races=True)
        except Exception as error:
            detail = f"{type(error).__name__}: {error}\n{lowered.script()}"
            raise Fault("not simulated", rule, detail) from error
        for which in range(len(self.start.sizes)):
            expected = self.start.reference(which)
            actual = self.start.arrays(which)
            try:
                with deadline(self.longest, of_cpu=True):
                    function(*actual)
            except TooSlow:
                counts.too_long += 1
                return
            except Exception as error:
                detail = f"{type(error).__name__}: {error}\n{lowered.script()}"
                raise Fault("simulation fails", rule, detail) from error
            self.start.agree("simulation differs", rule, expected, actual)
        counts.interpreted += 1


def fault_of(lowered: IRModule, target: Target) -> str | None:
    """Say what of a lowered module a GPU can't run, if anything."""
    limits = limits_of(target)
    for name, func in lowered.functions.items():
        if not isinstance(func, PrimFunc):
            continue
        if func.attrs.get(CALLING_CONV) != "device_kernel_launch":
            if any(type(item) is BufferStore for item in pre_order(func.body)):
                return f"{name} writes memory on the host"
            continue
        extents = launch_extents(func)
        threads = prod(as_int(n) or 1 for tag, n in extents.items() if tag.startswith("thread"))
        if threads > limits.max_threads:
            return f"{name} has {threads} threads in a block"
        shared = as_int(allocated_memory(func).get("shared", 0))
        if shared is None or shared > limits.max_shared_memory:
            return f"{name} has {shared} bytes of shared memory"
    return None


def check_by_default(
    program: Program, seed: int, counts: Counts, *, simulated: bool, limit: float = 20.0
) -> tuple[Target, Fault | None]:
    """Put a program through all rules in order, compile its kernels, and maybe simulate them.

    Returns the target that was drawn, and what is wrong, if anything.
    """
    rng = random.Random(f"targets {seed}")
    target = Target(rng.choice(_TARGETS))
    try:
        session = GPURuleSession(program, seed, limit)
        simulated = simulated and program.runs
        if simulated and rng.random() < _LEAST:
            session.with_least_sizes()
        mod = None
        if target.arch == "sm_90a" and rng.random() < _BY_MAPS:
            mod = session.by_maps(target, counts, rng)
        if mod is None:
            mod = session.applied(ALL, (), target, counts)
        assert mod is not None
        lowered = session.lowered(mod, ALL, target)
        session.compile(lowered, ALL, target, counts)
        if simulated:
            session.simulate(lowered, ALL, counts)
    except Fault as fault:
        return target, fault
    except TooLong:
        counts.too_long += 1
    return target, None


check_gpu_program = partial(check_program, make=GPURuleSession)
"""Return what is wrong with a program under the rules; see ``check_program``."""
run_gpu_rule_cases = partial(run_rule_cases, draw=program_for_gpu_rules, check=check_gpu_program)
"""Run cases until it is enough; see ``run_rule_cases``."""
smaller_gpu_program = partial(smaller_program, check=check_gpu_program)
"""Return a smaller program with the same fault."""
