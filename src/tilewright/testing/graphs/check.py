"""Builds a graph by rule, runs it, and compares what it gives with what it means."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright import relax, runtime
from tilewright.ir import Var
from tilewright.relax import GraphFunction
from tilewright.runtime import guarded
from tilewright.support.errors import TilewrightError
from tilewright.target import Target
from tilewright.testing.graphs.compare import Noise, difference
from tilewright.testing.graphs.data import draw_array, numpy_dtype
from tilewright.testing.graphs.draw import Case
from tilewright.testing.graphs.graph import Sizes, Step, Value, evaluate, module_of

_MOVED = 5
_MOVED_AGAIN = 60
"""Evaluations with noise: at first, and before a difference is believed."""


@dataclass(frozen=True)
class Problem:
    """What is wrong with a graph: ``kind`` is ``wrong``, ``not built``, ``not run`` or ``died``."""

    kind: str
    text: str

    @property
    def key(self) -> tuple[str, str]:
        """Problems with one key are alike: the text's first words, numbers left out."""
        words = re.sub(r"[\d().,\[\]]+", "#", self.text.split("\n")[0]).split()
        return self.kind, " ".join(words[:8])


@dataclass
class Subgraph:
    """Some steps of a case, and the arrays with which they begin (one set for each size)."""

    case: Case
    inputs: list[Value]
    constants: list[Value]
    steps: list[Step]
    outputs: list[Value]
    given: list[dict[Value, Any]]

    @property
    def extent(self) -> Var | None:
        """The symbolic extent, if there is one."""
        return self.case.extent


def whole_case(case: Case) -> Subgraph:
    """All of a case, with data for its inputs."""
    given = []
    for number in case.sizes:
        size = Sizes(case.extent, number)
        rng = random.Random(case.seed + number)
        arrays: dict[Value, Any] = {
            value: draw_array(rng.getrandbits(32), size.shape(value), value.dtype, value.likes)
            for value in case.inputs
        }
        arrays.update({value: value.data for value in case.constants})
        given.append(arrays)
    return Subgraph(case, case.inputs, case.constants, case.steps, case.outputs, given)


# Every eighth graph each is for instruction sets that run here too.
_LESSER = {1: ("avx2", "x86-64-v3"), 5: ("sse4.2", "x86-64-v2")}


def target_of(name: str, wanted: str | None = None) -> str | None:
    """What a graph of this name is built for, unless told: this machine, or a lesser one."""
    feature, cpu = _LESSER.get(int(name.rpartition("-")[2]) % 8, ("", ""))
    here = Target("native")
    if wanted is not None or not feature or not here.has(feature):
        return wanted
    return f"llvm -mcpu={cpu} -num-cores={here.num_cores}"


def check(
    subgraph: Subgraph, target: str | None = None, threads: Sequence[int] = (1, 2)
) -> Problem | None:
    """What is wrong with a graph built for a target (this machine); ``None`` if nothing is."""
    try:
        mod = module_of(subgraph.inputs, subgraph.constants, subgraph.steps, subgraph.outputs)
        function = relax.build(mod, target)["main"]
    except TilewrightError as error:
        return Problem("not built", f"{type(error).__name__}: {error}")
    except Exception as error:  # what this looks for
        return Problem("not built", f"crash, {type(error).__name__}: {error}")
    before = runtime.num_threads()
    try:
        for number, arrays in zip(subgraph.case.sizes, subgraph.given):
            for count in threads:
                runtime.set_num_threads(count)
                problem = _run(subgraph, function, number, arrays)
                if problem is not None:
                    size = f" at n = {number}" if subgraph.extent is not None else ""
                    return Problem(problem.kind, f"{problem.text} ({count} threads{size})")
    finally:
        runtime.set_num_threads(before)
    return None


def _run(
    subgraph: Subgraph, function: GraphFunction, number: int, arrays: dict[Value, Any]
) -> Problem | None:
    size = Sizes(subgraph.extent, number)
    inputs = [guarded(np.asarray(arrays[value])) for value in subgraph.inputs]
    try:
        right = evaluate(subgraph.steps, arrays, size)
    except (ValueError, IndexError) as error:  # NumPy finds that the sizes don't fit
        return _refuses(function, inputs, str(error))
    try:
        found = function(*inputs)
    except Exception as error:  # what this looks for
        return Problem("not run", f"{type(error).__name__}: {error}")
    results = [found] if len(subgraph.outputs) == 1 else list(found)
    for value, array in zip(subgraph.inputs, inputs):
        if array.tobytes() != np.ascontiguousarray(arrays[value]).tobytes():
            return Problem("wrong", f"the input {value.var.name} was written")
    moved = _moved(subgraph, arrays, size, range(_MOVED))
    for index, value in enumerate(subgraph.outputs):
        made = np.asarray(results[index].numpy()).astype(numpy_dtype(value.dtype), copy=False)
        text = difference(made, right[value], [item[value] for item in moved])
        if text:
            moved += _moved(subgraph, arrays, size, range(_MOVED, _MOVED_AGAIN))
            text = difference(made, right[value], [item[value] for item in moved])
        if text:
            return Problem("wrong", f"result {index}: {text}")
    return None


def _refuses(function: Any, inputs: Sequence[Any], reason: str) -> Problem | None:
    """Sizes that don't fit must be refused when they are known."""
    try:
        function(*inputs)
    except TilewrightError:
        return None
    return Problem("wrong", f"accepts sizes that don't fit: {reason}")


def _moved(subgraph: Subgraph, arrays: dict[Value, Any], size: Sizes, seeds: range) -> list[Any]:
    if not any(step.noise or step.either_zero for step in subgraph.steps):
        return []
    return [
        evaluate(subgraph.steps, arrays, size, Noise(subgraph.case.seed + seed)) for seed in seeds
    ]
