"""Loops whose iterations run at once stay free of races, whatever a primitive does inside them.

``parallel``, ``vectorize`` and ``bind`` look at what is in the loop, less closely than ``verify``
does; later primitives rewrite that. A reduction that the threads combine may be decomposed, or
become one that they can't combine.
"""

from __future__ import annotations

from tilewright.tir import SERIAL, UNROLLED
from tilewright.tir.analysis import find_race
from tilewright.tir.schedule.state import FunctionIndex, ScheduleState


def refuse_races(state: ScheduleState, before: tuple[object, ...]) -> None:
    """Refuse a change that brings a race into a loop that runs its iterations at once."""
    for func_name, old in state.changed_since(before):
        if old is None or not _runs_at_once(state.index(func_name)):
            continue
        race = find_race(state.func(func_name), known=frozenset(old.loops.values()))
        if race is not None:
            loop, why = race
            raise state.error(
                why,
                loop,
                remedy="choose another loop, or do this before parallel, vectorize or bind",
            )


def _runs_at_once(index: FunctionIndex) -> bool:
    return any(loop.kind not in (SERIAL, UNROLLED) for loop in index.loops.values())
