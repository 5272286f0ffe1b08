"""Makes mutants, decides which of them are broken, and has them checked as the tuner does."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright import driver
from tilewright.codegen.llvm.emit import emit_module
from tilewright.codegen.llvm.package import Machine, build_module
from tilewright.ir import (
    Broadcast,
    IRModule,
    Ramp,
    as_int,
    const,
    pre_order,
    rewrite_top_down,
    substitute,
)
from tilewright.meta_schedule.arg_info import TensorInfo
from tilewright.meta_schedule.runner import EvaluatorConfig, LocalRunner, RunnerInput
from tilewright.meta_schedule.runner.inputs import arguments_of
from tilewright.runtime import Module
from tilewright.support.errors import RunError, TilewrightError
from tilewright.testing.mutants.mutations import MUTATIONS, Mutation, mutated, places
from tilewright.testing.mutants.subjects import OPERATORS, Subject, machine, subject
from tilewright.tir import Allocate, BufferStore, PrimFunc, seq
from tilewright.tir.attrs import CONSTANTS
from tilewright.tir.interpreter import compile_function
from tilewright.tir.transform import cpu_pipeline

# The interpreter compares with inputs of these kinds; a difference of so many roundings counts.
_KINDS, _ROUNDINGS = (0, 1, 2), 32
# Elements behind memory that a program allocates itself: what strays there breaks nothing that
# anybody sees, unless the results say so.
_MARGIN = 8192
# A kernel that does nothing from this call on (counted from zero).
_STALE = 2

CONFIG = EvaluatorConfig(number=1, repeat=1, min_repeat_ms=0.05, retries=0, patience_ms=0.0)


@dataclass(frozen=True)
class Mutant:
    """A broken kernel: what it was, what is wrong with it, and its code.

    ``refusal`` is what ``verify`` says of it, if it doesn't get as far as code.
    """

    operator: str
    mutation: str
    module: Module | None
    refusal: str | None = None


@dataclass
class Report:
    """What became of the mutants, by verdict, and those that were accepted."""

    verdicts: Counter[str] = field(default_factory=Counter)
    mutations: Counter[str] = field(default_factory=Counter)
    harmless: Counter[str] = field(default_factory=Counter)
    survivors: list[str] = field(default_factory=list)
    refused_unchanged: list[str] = field(default_factory=list)


class Campaign:
    """Draws mutants from a seed."""

    def __init__(self, seed: int, operators: tuple[str, ...] = tuple(OPERATORS)) -> None:
        self.rng = random.Random(seed)
        self.operators = operators
        self.report = Report()
        self._lowered: dict[tuple[str, int], IRModule] = {}
        self._results: dict[tuple[str, int], list[Any]] = {}

    def run(self, count: int) -> Report:
        """Check all unchanged kernels and ``count`` broken ones."""
        runner = LocalRunner(evaluator_config=CONFIG, timeout_sec=10.0, num_threads=2)
        try:
            for name in self.operators:
                self._run_unchanged(subject(name), runner)
            for number, mutant in zip(range(count), self.mutants()):
                self._judge(number, mutant, runner)
        finally:
            runner.close()
        return self.report

    def _run_unchanged(self, item: Subject, runner: LocalRunner) -> None:
        for number, mod in enumerate(item.scheduled):
            module = driver.compile(mod, machine())
            (result,) = runner.run([RunnerInput(module=module, reference=item.reference)])
            if result.error is not None:
                text = f"{item.name}, schedule {number}: {result.reason}: {result.error}"
                self.report.refused_unchanged.append(text)

    def _judge(self, number: int, mutant: Mutant, runner: LocalRunner) -> None:
        self.report.mutations[mutant.mutation] += 1
        if mutant.module is None:
            self.report.verdicts["refused by verify"] += 1
            return
        (result,) = runner.run(
            [RunnerInput(module=mutant.module, reference=subject(mutant.operator).reference)]
        )
        self.report.verdicts[result.reason or "accepted"] += 1
        if result.reason is None:
            self.report.survivors.append(f"#{number} {mutant.operator}: {mutant.mutation}")

    def mutants(self) -> Iterator[Mutant]:
        """Yield broken kernels without end: all ways to break one equally often."""
        ways = [*MUTATIONS, None]
        while True:
            self.rng.shuffle(ways)
            for way in ways:
                for _ in range(20):
                    item = subject(self.rng.choice(self.operators))
                    choice = self.rng.randrange(len(item.scheduled))
                    made = (
                        self._stale(item, choice)
                        if way is None
                        else self._broken(item, choice, way)
                    )
                    if made is not None:
                        yield made
                        break

    def _lower(self, item: Subject, choice: int) -> IRModule:
        key = item.name, choice
        if key not in self._lowered:
            self._lowered[key] = driver.lower(item.scheduled[choice], machine())
        return self._lowered[key]

    def _broken(self, item: Subject, choice: int, way: Mutation) -> Mutant | None:
        mod = item.scheduled[choice] if way.scheduled else self._lower(item, choice)
        found = places(mod["main"], way)
        if not found:
            return None
        func = mutated(mod["main"], *self.rng.choice(found))
        changed = mod.replace(functions={**mod.functions, "main": func})
        try:
            if way.scheduled:
                refusal = _refusal(changed)
                if refusal is not None:
                    return (
                        Mutant(item.name, way.name, None, refusal)
                        if (way.construction or self._differs(item, choice, func))
                        else None
                    )
                changed = cpu_pipeline(machine())(changed)
                func = changed["main"]
            if not (way.construction or self._differs(item, choice, func)):
                self.report.harmless[way.name] += 1
                return None
            return Mutant(item.name, way.name, driver.build(changed, machine()))
        except TilewrightError:  # it can't be compiled: nothing that the tuner would run
            self.report.harmless[f"{way.name} (no code)"] += 1
            return None

    def _differs(self, item: Subject, choice: int, func: PrimFunc) -> bool:
        """Whether the interpreter's results are others, or it finds an access out of bounds.

        It must be so whether memory that isn't initialised holds NaN or zeros: what compiled code
        makes of such memory may be right by chance.
        """
        key = item.name, choice
        if key not in self._results:
            self._results[key] = list(_results(item, self._lower(item, choice)["main"]))
        rights = self._results[key]
        return all(_breaks(item, _with_margins(func, zeroed), rights) for zeroed in (False, True))

    def _stale(self, item: Subject, choice: int) -> Mutant | None:
        """Return a kernel that keeps a state, and after some calls computes nothing."""
        lowered = self._lower(item, choice)
        emitted = emit_module(lowered, machine())
        pattern = r'(define [^\n]*@"main\.kernel"\([^\n]*\{\n)entry:\n'
        begin = (
            "first:\n  %tw_calls = load i32, ptr @tw_calls\n  %tw_next = add i32 %tw_calls, 1\n"
            "  store i32 %tw_next, ptr @tw_calls\n"
            f"  %tw_stale = icmp sge i32 %tw_calls, {_STALE}\n"
            "  br i1 %tw_stale, label %stale, label %entry\nstale:\n  ret i32 0\nentry:\n"
        )
        text, count = re.subn(pattern, lambda found: found[1] + begin, emitted.text)
        if count != 1:
            return None
        target = machine()
        place = Machine(target.triple or None, target.mcpu or None, target.feature_string or None)
        constants = {name: data.array for name, data in lowered.attrs.get(CONSTANTS, {}).items()}
        module = build_module(
            "@tw_calls = internal global i32 0\n" + text,
            emitted.specs,
            machine=place,
            target=str(target),
            constants=constants,
        )
        return Mutant(item.name, "computes nothing later on", module)


def _refusal(mod: IRModule) -> str | None:
    """What the verification says that comes before lowering."""
    try:
        driver.lower(mod, machine())
    except TilewrightError as error:
        return error.summary
    return None


def _breaks(item: Subject, func: PrimFunc, rights: list[Any]) -> bool:
    try:
        for right, found in zip(rights, _results(item, func)):
            if any(map(_other, right, found)):
                return True
    except RunError:
        return True
    return False


def _with_margins(func: PrimFunc, zeroed: bool) -> PrimFunc:
    """Make allocated memory longer, so that only accesses outside of arguments are errors."""
    longer = {
        item.buffer: item.buffer.replace(shape=(item.buffer.shape[0] + _MARGIN,))
        for item in pre_order(func.body)
        if isinstance(item, Allocate) and len(item.buffer.shape) == 1
    }

    def rewrite(node: Any) -> Any:
        if isinstance(node, Allocate) and node.buffer in longer:
            buffer, body = longer[node.buffer], rewrite_top_down(node.body, rewrite)
            size = as_int(buffer.shape[0])
            if zeroed and size is not None:
                zero = Broadcast(const(0, buffer.dtype), size)
                body = seq(BufferStore(buffer, zero, (Ramp(const(0), const(1), size),)), body)
            return node.replace(buffer=buffer, body=body)
        return None

    return func.replace(body=substitute(rewrite_top_down(func.body, rewrite), longer))


def _results(item: Subject, func: PrimFunc) -> Iterator[list[Any]]:
    """Yield the results of a function by the interpreter, for each kind of inputs."""
    call = compile_function(func)
    infos, traits = item.reference.args_info, item.reference.traits
    written = [len(infos) - 1]
    for kind in _KINDS:
        arguments = [np.array(x) for x in arguments_of(kind, infos, 0, traits.fixed, written)]
        with np.errstate(all="ignore"):
            call(*arguments)
        yield [arguments[index] for index in written if isinstance(infos[index], TensorInfo)]


def _other(right: Any, found: Any) -> bool:
    if right.dtype.kind in "iub":
        return not np.array_equal(right, found)
    a, b = right.astype(np.float64), found.astype(np.float64)
    finite = np.isfinite(a)
    same = np.array_equal(a[~finite], b[~finite], equal_nan=True)
    if not same or not np.isfinite(b[finite]).all():
        return True
    if not finite.any():
        return False
    allowed = _ROUNDINGS * float(np.finfo(right.dtype).eps) * float(np.abs(a[finite]).max())
    return bool((np.abs(a[finite] - b[finite]) > allowed).any())
