"""Search-based scheduling: design spaces, cost models, measurement, databases of results.

``tune_tir`` tunes a TensorIR function, ``tune_tasks`` several tasks together. Whole models are
tuned with ``relax.extract_tasks`` and ``relax.tune_relax``, which build on this.
"""

from __future__ import annotations

import importlib
from typing import Any

# Each name and the module that has it: loaded when first used, so that importing stays light.
_PACKAGES = (
    "builder cost_model database defaults farm feature feature_extractor measure_callback mutator "
    "postproc relax_integration runner schedule_rule search_strategy space_generator "
    "task_scheduler tir_integration utils"
).split()
_EXPORTS = {
    "ArgInfo": "arg_info",
    "ScalarInfo": "arg_info",
    "TensorInfo": "arg_info",
    "Builder": "builder",
    "BuilderInput": "builder",
    "BuilderResult": "builder",
    "LocalBuilder": "builder",
    "PyBuilder": "builder",
    "AnalyticModel": "cost_model",
    "CostModel": "cost_model",
    "MLPModel": "cost_model",
    "PyCostModel": "cost_model",
    "RandomModel": "cost_model",
    "XGBModel": "cost_model",
    "Database": "database",
    "JSONDatabase": "database",
    "MemoryDatabase": "database",
    "OrderedUnionDatabase": "database",
    "PyDatabase": "database",
    "SQLDatabase": "database",
    "ScheduleFnDatabase": "database",
    "TuningRecord": "database",
    "UnionDatabase": "database",
    "Workload": "database",
    "ExtractedTask": "extracted_task",
    "RPCRunner": "farm",
    "RayBuilder": "farm",
    "RayRunner": "farm",
    "FeatureExtractor": "feature",
    "PerStoreFeature": "feature",
    "PyFeatureExtractor": "feature",
    "AddToDatabase": "measure_callback",
    "MeasureCallback": "measure_callback",
    "PyMeasureCallback": "measure_callback",
    "RemoveBuildArtifact": "measure_callback",
    "UpdateCostModel": "measure_callback",
    "MeasureCandidate": "measure_candidate",
    "Mutator": "mutator",
    "PyMutator": "mutator",
    "is_meta_schedule_enabled": "passes",
    "Postproc": "postproc",
    "PyPostproc": "postproc",
    "Profiler": "profiler",
    "EvaluatorConfig": "runner",
    "LocalRunner": "runner",
    "PyRunner": "runner",
    "Runner": "runner",
    "RunnerInput": "runner",
    "RunnerResult": "runner",
    "PyScheduleRule": "schedule_rule.base",
    "ReuseType": "schedule_rule.level_tiling",
    "ScheduleRule": "schedule_rule.base",
    "PySearchStrategy": "search_strategy",
    "SearchStrategy": "search_strategy",
    "PostOrderApply": "space_generator",
    "PySpaceGenerator": "space_generator",
    "ScheduleFn": "space_generator",
    "SpaceGenerator": "space_generator",
    "SpaceGeneratorUnion": "space_generator",
    "PyTaskScheduler": "task_scheduler",
    "TaskScheduler": "task_scheduler",
    "compile_tir": "tir_integration",
    "tune_tir": "tir_integration",
    "tune_tasks": "tune",
    "TuneContext": "tune_context",
    "TuningSession": "tuning_session",
    "derived_object": "utils",
}

__all__ = sorted([*_PACKAGES, *_EXPORTS])


def __getattr__(name: str) -> Any:
    """Import public names when they are first used."""
    if name in _PACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    source = _EXPORTS.get(name)
    if source is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # `PyRunner` is what TVM's users derive from; here that is `Runner` itself.
    found = getattr(importlib.import_module(f"{__name__}.{source}"), name.removeprefix("Py"))
    globals()[name] = found
    return found
