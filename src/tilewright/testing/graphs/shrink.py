"""The smallest part of a graph that shows its problem still."""

from __future__ import annotations

import multiprocessing
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilewright import relax
from tilewright.relax import TensorStructInfo
from tilewright.testing.graphs.check import Problem, Subgraph, check, whole_case
from tilewright.testing.graphs.draw import draw_case
from tilewright.testing.graphs.graph import Sizes, Step, Value, evaluate, module_of, needed
from tilewright.testing.graphs.stacks import Stacks

_SECONDS = 60.0


def checked_apart(
    subgraph: Subgraph, target: str | None = None, seconds: float = _SECONDS
) -> Problem | None:
    """``check`` in a process of its own, which may die."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    stacks = Stacks()

    def run() -> None:
        stacks.answer()
        theirs.send(check(subgraph, target))

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


def shrink(name: str, target: str | None = None) -> tuple[Subgraph, Problem | None]:
    """Leave out steps, or take what they make as inputs, as long as the kind of problem stays."""
    subgraph = whole_case(draw_case(name))
    problem = checked_apart(subgraph, target)
    if problem is None:
        return subgraph, None
    for value in subgraph.outputs if len(subgraph.outputs) > 1 else []:
        smaller = _with_outputs(subgraph, [value])
        found = checked_apart(smaller, target)
        if found is not None and found.kind == problem.kind:
            subgraph, problem = smaller, found
            break
    for step in list(subgraph.steps):
        if step not in subgraph.steps or len(subgraph.steps) == 1:
            continue
        try:
            smaller = _without(subgraph, step)
        except (ValueError, IndexError):  # sizes that don't fit: there is nothing to take instead
            break
        found = checked_apart(smaller, target)
        if found is not None and found.kind == problem.kind:
            subgraph, problem = smaller, found
    # From the end: what comes after the fault isn't needed either.
    for step in subgraph.steps[:-1][::-1]:
        smaller = _with_outputs(subgraph, step.results)
        found = checked_apart(smaller, target)
        if found is not None and found.kind == problem.kind:
            subgraph, problem = smaller, found
    return subgraph, problem


def _with_outputs(subgraph: Subgraph, outputs: list[Value]) -> Subgraph:
    return _tidy(
        subgraph, subgraph.inputs, subgraph.given, needed(subgraph.steps, outputs), outputs
    )


def _without(subgraph: Subgraph, step: Step) -> Subgraph:
    """What a step makes becomes inputs, which hold what it means."""
    sizes = [Sizes(subgraph.extent, number) for number in subgraph.case.sizes]
    made = [evaluate(subgraph.steps, arrays, size) for size, arrays in zip(sizes, subgraph.given)]
    given = [
        {**arrays, **{value: found[value] for value in step.results}}
        for arrays, found in zip(subgraph.given, made)
    ]
    for value in step.results:
        value.var = relax.Var(value.var.name, TensorStructInfo(value.shape, value.dtype))
    steps = [item for item in subgraph.steps if item is not step]
    inputs, outputs = [*subgraph.inputs, *step.results], subgraph.outputs
    return _tidy(subgraph, inputs, given, needed(steps, outputs), outputs)


def _tidy(
    subgraph: Subgraph, inputs: list[Value], given: Any, steps: list[Step], outputs: list[Value]
) -> Subgraph:
    used = {value for step in steps for value in step.operands} | set(outputs)
    return replace(
        subgraph,
        inputs=[v for v in inputs if v in used],
        constants=[v for v in subgraph.constants if v in used],
        steps=steps,
        outputs=outputs,
        given=given,
    )


def report(
    name: str, folder: Path, target: str | None = None, seen: Problem | None = None
) -> tuple[Problem, Path]:
    """Shrink the case of a name and write what is left, with its data, and the problem ``seen``."""
    subgraph, problem = shrink(name, target)
    if problem is None:
        first = f"; seen was {seen.kind}: {seen.text}" if seen is not None else ""
        problem = Problem("flaky", f"not seen again in a process of its own{first}")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.txt"
    lines = [
        f"{problem.kind}: {problem.text}",
        "",
        f"case {name}, for {target or 'this machine'}",
        "",
    ]
    try:
        mod = module_of(subgraph.inputs, subgraph.constants, subgraph.steps, subgraph.outputs)
        lines.append(mod.script())
    except Exception as error:  # the report says so, it mustn't end here
        lines.append(f"(doesn't print: {type(error).__name__}: {error})")
        lines += [f"{step.name}({[v.var.name for v in step.operands]})" for step in subgraph.steps]
    for number, arrays in zip(subgraph.case.sizes, subgraph.given):
        lines.append(f"\n# data{f' at n = {number}' if subgraph.extent is not None else ''}")
        for value in (*subgraph.inputs, *subgraph.constants):
            lines.append(f"{value.var!r} {value.dtype} = {arrays[value]!r}")
    path.write_text("\n".join(lines))
    return problem, path
