"""Features of candidates that are already schedules."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from tilewright.meta_schedule.feature.of_target import feature_function
from tilewright.meta_schedule.feature.per_store import Evaluation
from tilewright.meta_schedule.measure_candidate import MeasureCandidate
from tilewright.meta_schedule.task import Task
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule

_known: WeakKeyDictionary[MeasureCandidate, Evaluation] = WeakKeyDictionary()


def remember(candidate: MeasureCandidate, evaluation: Evaluation) -> None:
    """Keep a candidate's features, so that they need not be computed from its trace."""
    _known[candidate] = evaluation


def candidate_evaluation(context: Task, candidate: MeasureCandidate) -> Evaluation:
    """Return a candidate's features; if unknown, replay its trace up to the postprocs."""
    found = _known.get(candidate)
    if found is None:
        sch = candidate.sch
        if sch.trace.has_postproc:
            trace = sch.trace.simplified(remove_postproc=True)
            sch = Schedule(context.mod, record=False)
            trace.apply_to_schedule(sch)
        func = sch.mod.functions[sch.working_func]
        assert isinstance(func, PrimFunc)
        found = feature_function(func, context.target, context.sizes)([], 1)
        remember(candidate, found)
    return found
