"""Loops whose iterations run at once stay free of races, whatever a primitive does inside them.

``parallel``, ``vectorize`` and ``bind`` look at what is in the loop, less closely than ``verify``
does; later primitives rewrite that. A reduction that the threads combine may be decomposed, or
become one that they can't combine.
"""

from __future__ import annotations

from tilewright.tir.analysis import find_race, runs_at_once
from tilewright.tir.schedule.state import ScheduleState


def refuse_races(state: ScheduleState, before: tuple[object, ...]) -> None:
    """Refuse a change that brings a race into a loop that runs its iterations at once."""
    for func_name, old in state.changed_since(before):
        func = state.func(func_name)
        if old is None or not runs_at_once(func.body):
            continue
        race = find_race(func, known=frozenset(old.loops.values()))
        if race is not None:
            loop, why = race
            raise state.error(
                why,
                loop,
                remedy="choose another loop, or do this before parallel, vectorize or bind",
            )
