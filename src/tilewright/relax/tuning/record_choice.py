"""Kernels where a graph has them: which of the best records of each function serve it.

The record that is the fastest alone, with its operands in the caches, may not be that among its
neighbours. So a graph is built with the best records of all functions, with the second best ones
and so on, and run kernel by kernel in turns with the one by rule. Each function gets the schedule
that took the least time in its place: a record if that is clearly faster than the rules' schedule.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from tilewright.ir import IRModule, structural_hash
from tilewright.meta_schedule.database import Database
from tilewright.meta_schedule.database.record import normalized
from tilewright.meta_schedule.runner import passing_bytes
from tilewright.meta_schedule.task_scheduler.final_ranking import gain
from tilewright.relax.execution.executable import Executable
from tilewright.relax.execution.profiling import profile
from tilewright.relax.pipeline import scheduled_by_rule
from tilewright.relax.transform.layout_free import constant_bytes
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.attrs import IS_SCHEDULED

# How many records of a function are looked at for each that is measured: others replay to the
# program of one before, or are what the rules make.
_LOOKED_AT = 4
# In its place, a record must be so much faster than the rules' schedule to be used.
FASTER = 0.01

Inputs = Mapping[str, Sequence[object]]
"""Random inputs of each graph function."""


@dataclass(frozen=True)
class Nominee:
    """A record that may serve a function: its digest, and the function as it schedules it."""

    digest: str
    function: PrimFunc


def workload_hash(function: PrimFunc) -> str:
    """Return what the workload of a graph's function is known by."""
    return structural_hash(normalized(function))


def nominees(
    functions: IRModule, database: Database, target: Target, most: int
) -> dict[str, list[Nominee]]:
    """Return the best records of each tensor function, at most so many, other programs each.

    What the rules make isn't among them. Records that weren't checked are only looked at where none
    was, and then one. Those that were measured with constants where the graph has them come first.
    """
    cold = passing_bytes(constant_bytes(functions), target) > 0
    by_rule = scheduled_by_rule(target)(functions).functions
    found = {}
    for name, function in functions.functions.items():
        if isinstance(function, PrimFunc) and not function.attrs.get(IS_SCHEDULED):
            # A pass may have removed it, where it is an update.
            known = {_program(by_rule[name])} if isinstance(by_rule.get(name), PrimFunc) else set()
            some = list(islice(_each_nominee(function, database, target, known, most, cold), most))
            if some:
                found[name] = some
    return found


def _each_nominee(
    function: PrimFunc,
    database: Database,
    target: Target,
    known: set[str],
    most: int,
    cold: bool,
) -> Iterator[Nominee]:
    seen = set[str]()
    for item in islice(database.each_replayed(function, target, cold=cold), _LOOKED_AT * most):
        if not item.record.verified and seen:
            return
        seen.add(item.record.digest)
        made: PrimFunc = item.schedule.mod["main"]
        program = _program(made)
        if program not in known:
            known.add(program)
            attrs = {**function.attrs, **made.attrs, IS_SCHEDULED: 1}
            yield Nominee(item.record.digest, made.replace(attrs=attrs))
        if not item.record.verified:
            return


def _program(function: object) -> str:
    """What a scheduled function is known by: attributes say what it is part of."""
    assert isinstance(function, PrimFunc)
    return structural_hash(function.replace(attrs={}))


def with_nominees(functions: IRModule, chosen: Mapping[str, Nominee]) -> IRModule:
    """Return a graph some of whose functions are scheduled by records."""
    return functions.map_functions(
        lambda name, function: chosen[name].function if name in chosen else function, PrimFunc
    )


def gains(
    by_rule: Executable,
    tuned: Executable,
    inputs: Inputs,
    rounds: Iterable[int],
    workloads: Mapping[str, str],
) -> dict[str, float]:
    """Run two graphs kernel by kernel, in turns; return the speedups of kernels in their places.

    ``workloads`` has the hashes of those that are looked at. Functions with the same workload get
    the same record, so what all their calls take counts.

    Raises ``RunError`` if a graph can't be run with the inputs.
    """
    times: tuple[dict[str, list[float]], ...] = ({}, {})
    for turn in rounds:
        for which in (0, 1) if turn % 2 == 0 else (1, 0):
            taken = dict.fromkeys(workloads.values(), 0.0)
            for name, values in inputs.items():
                for row in profile((by_rule, tuned)[which], name, values, repeat=1).kernels():
                    if row.name in workloads:
                        taken[workloads[row.name]] += row.seconds
            for workload, seconds in taken.items():
                times[which].setdefault(workload, []).append(seconds)
    old, new = times
    # A kernel may be gone, such as one that only packs a constant, or not be called.
    called = {x for x in old if min(old[x]) > 0.0 and min(new[x]) > 0.0}
    return {name: gain(old[x], new[x]) for name, x in workloads.items() if x in called}


def turns(count: int, few: int, until: float) -> Iterator[int]:
    """Yield the numbers of turns; after ``until`` (``time.monotonic``) only the first few."""
    for turn in range(count):
        if turn >= few and time.monotonic() > until:
            return
        yield turn


def served_best(
    names: Mapping[str, Sequence[Nominee]], ways: Sequence[Mapping[str, float]]
) -> dict[str, Nominee]:
    """Return the nominee that serves each function best; none where the rules' schedule does.

    ``ways`` are the ``gains`` with the first nominees of all functions, with the second ...
    """
    found = {}
    for name, some in names.items():
        speedups = [way.get(name, 0.0) for _, way in zip(some, ways)]
        best = max(speedups, default=0.0)
        if best > 1.0 + FASTER:
            found[name] = some[speedups.index(best)]
    return found
