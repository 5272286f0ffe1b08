"""Search-based scheduling: design spaces, cost models, measurement, databases of results.

``tune_tir`` tunes a TensorIR function, ``tune_tasks`` several tasks together. Whole models are
tuned with ``relax.extract_tasks`` and ``relax.tune_relax``, which build on this.
"""

from __future__ import annotations

import importlib
from typing import Any

# Each name and the module that has it: loaded when first used, so that importing stays light.
_EXPORTS = {
    "builder": "",
    "cost_model": "",
    "database": "",
    "defaults": "",
    "feature": "",
    "measure_callback": "",
    "mutator": "",
    "postproc": "",
    "runner": "",
    "schedule_rule": "",
    "search_strategy": "",
    "space_generator": "",
    "task_scheduler": "",
    "ArgInfo": "arg_info",
    "ScalarInfo": "arg_info",
    "TensorInfo": "arg_info",
    "CostModel": "cost_model",
    "Database": "database",
    "JSONDatabase": "database",
    "MemoryDatabase": "database",
    "OrderedUnionDatabase": "database",
    "ScheduleFnDatabase": "database",
    "TuningRecord": "database",
    "UnionDatabase": "database",
    "Workload": "database",
    "LocalBuilder": "builder",
    "LocalRunner": "runner",
    "MeasureCandidate": "measure_candidate",
    "MeasureCallback": "measure_callback",
    "Mutator": "mutator",
    "Postproc": "postproc",
    "ScheduleRule": "schedule_rule",
    "SearchStrategy": "search_strategy",
    "SpaceGenerator": "space_generator",
    "TaskScheduler": "task_scheduler",
    "TuneContext": "tune_context",
    "TuningSession": "tuning_session",
    "compile_tir": "tune",
    "tune_tasks": "tune",
    "tune_tir": "tune",
}

__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    """Import public names when they are first used."""
    source = _EXPORTS.get(name)
    if source is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if source == "":
        return importlib.import_module(f"{__name__}.{name}")
    found = getattr(importlib.import_module(f"{__name__}.{source}"), name)
    globals()[name] = found
    return found
