"""How traces are drawn for ``size_variants``: by the drawers of the other primitives."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from tilewright.support.errors import ScheduleError
from tilewright.testing.fuzz.draw import Draw, Drawer, Row, drawer
from tilewright.testing.fuzz.steps import BlockRef, Step, Unresolved, results_of
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule

_NAME = "size_variants"
_MOST_STEPS, _TRIES = 3, 12


def draw_size_variants(rows: Callable[[], Mapping[str, Row]]) -> Drawer:
    """Schedule the program as it is in two or three ways, for ranges of one of its sizes."""

    def draw(d: Draw) -> Step | None:
        func = d.sch.mod[d.sch.working_func]
        sizes = [var.name for var in func.symbolic_vars()] if isinstance(func, PrimFunc) else []
        if not sizes and d.chance(0.95):
            return None
        table = {key: row for key, row in rows().items() if key != _NAME or d.chance(0.05)}
        limits = sorted(d.rng.sample(range(12), d.rng.choice([1, 1, 2])))
        if d.chance(0.03):
            limits.append(limits[-1])
        traces = [_trace(d, table) for _ in range(len(limits) + 1)]
        if d.chance(0.03):
            traces.pop()
        symbol = d.rng.choice(sizes or ["n"]) if d.chance(0.97) else "none"
        block = BlockRef("root") if d.chance(0.97) else d.block()
        return Step(_NAME, (block, symbol, limits, traces))

    return draw


def _trace(d: Draw, table: Mapping[str, Row]) -> str:
    """Apply a few steps that are accepted to a copy of the program; return the trace's text."""
    sch = Schedule(d.sch.mod, seed=d.rng.getrandbits(16))
    sch.work_on(d.sch.working_func)
    made: dict[int, object] = {}
    names, weights = list(table), [row.weight for row in table.values()]
    inner = Draw(sch, d.rng, made)
    wanted = d.rng.randint(0, _MOST_STEPS)
    for _ in range(_TRIES):
        if len(made) >= wanted:
            break
        chosen = d.rng.choices(names, weights)[0]
        step = drawer(chosen, table[chosen].draw)(inner)
        if step is None:
            continue
        try:
            made[len(made)] = results_of(step.apply(sch, made))
        except (ScheduleError, Unresolved):
            continue
    return json.dumps(sch.trace.as_json())
