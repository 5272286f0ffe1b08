"""Draws a graph: some inputs, then operators one after another."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tilewright.ir import Var
from tilewright.support.errors import VerifyError
from tilewright.support.folder import modules_in
from tilewright.testing.graphs import draw_contract, draw_elementwise, draw_moves, draw_reduce
from tilewright.testing.graphs.data import FLOATS, INTEGERS
from tilewright.testing.graphs.graph import Graph, Step, Value, needed

# Graphs are drawn by name, and stay the same: families come in the order in which they came to be.
_FIRST = (draw_elementwise, draw_moves, draw_reduce, draw_contract)
_FAMILIES = dict.fromkeys((*_FIRST, *modules_in(__package__, "draw_")))
DRAWERS: dict[str, tuple[Callable[[Graph], object], float]] = {
    name: drawer for family in _FAMILIES for name, drawer in family.DRAWERS.items()
}
"""What draws operators and how often, of all files ``draw_*.py``."""

_EXTENTS = (1, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17)


@dataclass
class Case:
    """A drawn graph with its results, and the sizes at which it runs."""

    name: str
    inputs: list[Value]
    constants: list[Value]
    steps: list[Step]
    outputs: list[Value]
    extent: Var | None
    sizes: tuple[int, ...]
    seed: int
    refused: Counter[str] = field(default_factory=Counter)


def draw_case(name: str) -> Case:
    """The graph of a name; the same one each time."""
    rng = random.Random(name)
    extent = Var("n", "int64") if rng.random() < 0.25 else None
    g = Graph(rng, extent)
    if rng.random() < 0.25:
        draw_contract.image_input(g)
    for _ in range(rng.randint(1, 2)):
        _draw_input(g)
    refused: Counter[str] = Counter()
    names = list(DRAWERS)
    weights = [DRAWERS[item][1] for item in names]
    wanted = rng.choice([2, 4, 6, 8, 12])
    for _ in range(3 * wanted):
        if len(g.steps) >= wanted:
            break
        drawer = rng.choices(names, weights)[0]
        try:
            DRAWERS[drawer][0](g)
        except VerifyError as error:
            refused[f"{drawer}: {str(error).splitlines()[0][:100]}"] += 1
    outputs = _outputs(g)
    steps = needed(g.steps, outputs)
    used = {value for step in steps for value in step.operands} | set(outputs)
    sizes = tuple(rng.sample([0, 1, 2, 3, 8, 17, 40], 2)) if extent is not None else (0,)
    return Case(
        name, [v for v in g.inputs if v in used], [v for v in g.constants if v in used], steps,
        outputs, extent, sizes, rng.getrandbits(32), refused,
    )  # fmt: skip


def _draw_input(g: Graph) -> Value:
    dtype = g.rng.choice(["float32"] * 6 + [*FLOATS[1:], *INTEGERS[:4], "int64", "bool"])
    ndim = g.rng.choice([0, 1, 2, 2, 3, 3, 4])
    shape: list[Any] = [g.rng.choice(_EXTENTS) for _ in range(ndim)]
    if ndim and g.rng.random() < 0.04:
        shape[g.rng.randrange(ndim)] = 0
    if ndim and g.rng.random() < 0.06:
        shape[g.rng.randrange(ndim)] = g.rng.choice([64, 100, 129])
    if ndim and g.extent is not None:
        shape[0] = g.extent
    return g.fresh(shape, dtype, constant=0.1)


def _outputs(g: Graph) -> list[Value]:
    """What nothing else uses, and at times something in between."""
    used = {value for step in g.steps for value in step.operands}
    made = [value for step in g.steps for value in step.results]
    ends = [value for value in made if value not in used]
    between = [value for value in made if value in used and g.rng.random() < 0.15]
    return (ends + between)[:6] or g.values[:1]
