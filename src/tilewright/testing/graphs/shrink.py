"""The smallest part of a graph that shows its problem still."""

from __future__ import annotations

import multiprocessing
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilewright import relax
from tilewright.relax import TensorStructInfo
from tilewright.testing.graphs.check import Part, Problem, check, whole
from tilewright.testing.graphs.draw import draw_case
from tilewright.testing.graphs.graph import Sizes, Step, Value, evaluate, module_of, needed
from tilewright.testing.graphs.stacks import Stacks

_SECONDS = 60.0


def checked_apart(
    part: Part, target: str | None = None, seconds: float = _SECONDS
) -> Problem | None:
    """``check`` in a process of its own, which may die."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    stacks = Stacks()

    def run() -> None:
        stacks.answer()
        theirs.send(check(part, target))

    process = multiprocessing.get_context("fork").Process(target=run, daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(seconds):
            where = stacks.ask(process.pid or 0)
            return Problem("died", f"no result within {seconds:g} s\n{where}")
        found: Problem | None = ours.recv()
        return found
    except EOFError:
        process.join()
        code = process.exitcode or 0
        return Problem("died", signal.Signals(-code).name if code < 0 else f"exit status {code}")
    finally:
        process.kill()
        process.join()
        stacks.close()


def shrink(name: str, target: str | None = None) -> tuple[Part, Problem | None]:
    """Leave out steps, or take what they make as inputs, as long as the kind of problem stays."""
    part = whole(draw_case(name))
    problem = checked_apart(part, target)
    if problem is None:
        return part, None
    for value in part.outputs if len(part.outputs) > 1 else []:
        smaller = _with_outputs(part, [value])
        found = checked_apart(smaller, target)
        if found is not None and found.kind == problem.kind:
            part, problem = smaller, found
            break
    for step in list(part.steps):
        if step not in part.steps or len(part.steps) == 1:
            continue
        try:
            smaller = _without(part, step)
        except (ValueError, IndexError):  # sizes that don't fit: there is nothing to take instead
            break
        found = checked_apart(smaller, target)
        if found is not None and found.kind == problem.kind:
            part, problem = smaller, found
    # From the end: what comes after the fault isn't needed either.
    for step in part.steps[:-1][::-1]:
        smaller = _with_outputs(part, step.results)
        found = checked_apart(smaller, target)
        if found is not None and found.kind == problem.kind:
            part, problem = smaller, found
    return part, problem


def _with_outputs(part: Part, outputs: list[Value]) -> Part:
    return _tidy(part, part.inputs, part.given, needed(part.steps, outputs), outputs)


def _without(part: Part, step: Step) -> Part:
    """What a step makes becomes inputs, which hold what it means."""
    sizes = [Sizes(part.extent, number) for number in part.case.sizes]
    made = [evaluate(part.steps, arrays, size) for size, arrays in zip(sizes, part.given)]
    given = [
        {**arrays, **{value: found[value] for value in step.results}}
        for arrays, found in zip(part.given, made)
    ]
    for value in step.results:
        value.var = relax.Var(value.var.name, TensorStructInfo(value.shape, value.dtype))
    steps = [item for item in part.steps if item is not step]
    return _tidy(part, [*part.inputs, *step.results], given, needed(steps, part.outputs),
                 part.outputs)  # fmt: skip


def _tidy(part: Part, inputs: Any, given: Any, steps: list[Step], outputs: list[Value]) -> Part:
    used = {value for step in steps for value in step.operands} | set(outputs)
    return replace(
        part, inputs=[v for v in inputs if v in used], steps=steps, outputs=outputs, given=given,
        constants=[v for v in part.constants if v in used],
    )  # fmt: skip


def report(
    name: str, folder: Path, target: str | None = None, seen: Problem | None = None
) -> tuple[Problem, Path]:
    """Shrink the case of a name and write what is left, with its data, and the problem ``seen``."""
    part, problem = shrink(name, target)
    if problem is None:
        first = f"; seen was {seen.kind}: {seen.text}" if seen is not None else ""
        problem = Problem("flaky", f"not seen again in a process of its own{first}")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.txt"
    lines = [f"{problem.kind}: {problem.text}", "", f"case {name}", ""]
    try:
        mod = module_of(part.inputs, part.constants, part.steps, part.outputs)
        lines.append(mod.script())
    except Exception as error:  # the report says so, it mustn't end here
        lines.append(f"(doesn't print: {type(error).__name__}: {error})")
        lines += [f"{step.name}({[v.var.name for v in step.operands]})" for step in part.steps]
    for number, arrays in zip(part.case.sizes, part.given):
        lines.append(f"\n# data{f' at n = {number}' if part.extent is not None else ''}")
        for value in (*part.inputs, *part.constants):
            lines.append(f"{value.var!r} {value.dtype} = {arrays[value]!r}")
    path.write_text("\n".join(lines))
    return problem, path
