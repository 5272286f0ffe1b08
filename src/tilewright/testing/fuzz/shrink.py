"""Makes a failing case small, and writes it down so that it can be run anywhere.

Steps are left out while the fault stays, then the program is made simpler: fewer stages, stages
turned into inputs, lower and constant extents. What is left becomes a Python file with the program
and the trace that shows the fault.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from tilewright.support.errors import ScheduleError
from tilewright.testing.fuzz.driver import Finding
from tilewright.testing.fuzz.programs import Program, Tensor
from tilewright.testing.fuzz.session import ACCEPTED, Fault, Session, TooLong
from tilewright.testing.fuzz.steps import Step
from tilewright.testing.fuzz.symbolic import check_symbolic

_KINDS_AT_END = ("replay", "script", "undo", "compile", "compiled code fails",
                 "compiled code differs", "slow", "symbolic tiles")  # fmt: skip


def reproduce(
    program: Program, steps: list[Step], *, seed: int = 0, limit: float = 20.0
) -> Fault | None:
    """Run a program and steps; returns the fault that shows."""
    try:
        session = Session(program, seed=seed, limit=limit)
    except Exception as error:
        return Fault("program", "", f"{type(error).__name__}: {error}")
    try:
        session.check_start()
        for step in steps:
            if session.apply(step) == ACCEPTED:
                session.check_undo()
        session.finish()
        check_symbolic(session, random.Random(0))
        session.check_compiled()
    except TooLong:
        return None
    except Fault as fault:
        return fault
    return None


def shrink(finding: Finding, *, seconds: float = 30.0) -> Finding:
    """Return a smaller case of the same fault; the same one if it doesn't show again."""
    end = time.perf_counter() + seconds
    limit = 5.0 if finding.fault.kind != "slow" else 20.0
    late = finding.fault.kind in _KINDS_AT_END

    def shows(program: Program, steps: list[Step]) -> Fault | None:
        if not program.is_valid():
            return None
        fault = reproduce(program, steps, seed=finding.seed, limit=limit)
        if fault is None or fault.kind != finding.fault.kind:
            return None
        # A fault at the end is blamed on the last step, which may be any.
        return fault if late or fault.primitive == finding.fault.primitive else None

    fault = shows(finding.program, finding.steps)
    if fault is None:
        return finding
    program, steps = finding.program, finding.steps
    changed = True
    while changed and time.perf_counter() < end:
        changed = False
        for attempt in (_fewer_steps, _simpler_program):
            program, steps, fault, better = attempt(program, steps, fault, shows, end)
            changed = changed or better
    return Finding(fault, program, steps, finding.case, finding.seed)


_Shows = Callable[[Program, list[Step]], "Fault | None"]
_Outcome = tuple[Program, list[Step], Fault, bool]


def _fewer_steps(
    program: Program, steps: list[Step], fault: Fault, shows: _Shows, end: float
) -> _Outcome:
    better = False
    size = max(1, len(steps) // 2)
    while size:
        at = 0
        while at < len(steps) and time.perf_counter() < end:
            fewer = steps[:at] + steps[at + size :]
            found = shows(program, fewer)
            if found is None:
                at += size
            else:
                steps, fault, better = fewer, found, True
        size //= 2
    return program, steps, fault, better


def _simpler_program(
    program: Program, steps: list[Step], fault: Fault, shows: _Shows, end: float
) -> _Outcome:
    better = changed = True
    better = False
    while changed and time.perf_counter() < end:
        changed = False
        for candidate in simpler(program):
            if time.perf_counter() > end:
                break
            found = shows(candidate, steps)
            if found is not None:
                program, fault, better, changed = candidate, found, True, True
                break
    return program, steps, fault, better


def simpler(program: Program) -> Iterator[Program]:
    """Yield programs that are a little simpler, the simplest first."""
    for at in range(len(program.stages)):
        yield from _without(program, at)
    for name in sorted(program.symbolic):
        yield replace(program, symbolic=program.symbolic - {name})
    for name in sorted(program.dims):
        extent = program.dims[name]
        for smaller in sorted({1, 2, extent // 2, extent - 1}):
            if 0 < smaller < extent:
                yield replace(program, dims={**program.dims, name: smaller})
    used = {name for stage in program.stages for name in stage.reads}
    kept = tuple(tensor for tensor in program.inputs if tensor.name in used)
    if program.stages and len(kept) < len(program.inputs):
        yield replace(program, inputs=kept)


def _without(program: Program, at: int) -> Iterator[Program]:
    """Leave a stage out: nobody reads it, or its outputs become inputs."""
    stage = program.stages[at]
    others = (*program.stages[:at], *program.stages[at + 1 :])
    later = program.stages[at + 1 :]
    read = {name for item in later for name in item.reads}
    read |= {tensor.name for item in later if item.updates for tensor in item.outputs}
    needed = [t for t in stage.outputs if t.name in read and not stage.updates]
    made = {tensor.name for item in others for tensor in item.outputs}
    results = frozenset(name for name in program.results if name in made)
    inputs = _with(program.inputs, needed)
    inputs_named = {tensor.name for tensor in inputs}
    results -= inputs_named
    if not results:
        last = [t.name for item in others for t in item.outputs if t.name not in inputs_named]
        results = frozenset(last[-1:])
    if others and (results or any(item.updates for item in others)):
        yield replace(program, stages=others, inputs=inputs, results=results)


def _with(inputs: tuple[Tensor, ...], more: list[Tensor]) -> tuple[Tensor, ...]:
    return (*inputs, *more)


def reproduction(finding: Finding) -> str:
    """Return a Python program that shows the fault."""
    session = Session(finding.program, seed=finding.seed)
    calls = []
    for step in finding.steps:
        recorded = len(session.steps)
        try:
            session.apply(step, render=False)
        except (Fault, TooLong):
            if len(session.steps) == recorded:
                calls.append(step)
    note = "\n".join(f"# {line}" for line in str(finding.fault).split("\n")[:40])
    steps = "\n".join(f"#   {step}" for step in finding.steps)
    try:
        trace = str(session.sch.trace)
    except ScheduleError as error:
        trace = f"# the trace can't be printed: {error}\n"
    last = "\n".join(f"# then: {step}" for step in calls)
    shapes = ", ".join(f"{t.name}: {t.dtype}{list(t.dims)}" for t in finding.program.params)
    fault = finding.fault
    intrinsics = sorted(set(re.findall(r"fuzz\.copy\.(\w+)\.(\d+)", steps)))
    imports = setup = ""
    if intrinsics:
        imports = "from tilewright.testing.fuzz.intrinsics import copy_intrinsic\n"
        setup = "".join(f'copy_intrinsic("{dtype}", {n})\n' for dtype, n in intrinsics) + "\n"
    return f'''"""{fault.kind}: {fault.primitive}. Found in case {finding.case!r}."""

{note}
# Steps:
{steps}

from tilewright.script import parse
{imports}from tilewright.tir.analysis import verify
from tilewright.tir.schedule import Schedule

{setup}PROGRAM = """
{finding.program.text()}"""
# Dimensions {dict(finding.program.dims)}; parameters {shapes}


{trace}
{last}

if __name__ == "__main__":
    sch = Schedule(parse(PROGRAM))
    sch.work_on({session.scheduled!r})
    apply_trace(sch)
    verify(sch.mod)
    sch.mod.show()
'''


def write(finding: Finding, folder: Path) -> Path:
    """Write the reproduction into a folder; returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    base = f"{finding.fault.kind}-{finding.fault.primitive or 'program'}".replace(" ", "-")
    number = 0
    while (path := folder / f"{base}-{number}.py").exists():
        number += 1
    path.write_text(reproduction(finding))
    return path
