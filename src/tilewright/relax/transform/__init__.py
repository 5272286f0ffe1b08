"""Passes over graph functions, one per file. Orders live in ``relax.pipeline``."""

from __future__ import annotations

import importlib
from typing import Any

from tilewright.ir import Pass
from tilewright.relax.transform.annotate_pattern import OpPattern, analyze_pattern
from tilewright.relax.transform.function_pass import dataflowblock_pass, function_pass
from tilewright.relax.transform.fuse_ops_by_pattern import FusionPattern, PatternCheckContext
from tilewright.support.folder import classes_in

_PASSES = classes_in(__name__, Pass)
globals().update(_PASSES)

# Passes of graph users that ``meta_schedule`` has: loaded when first used.
_TUNING = {
    "DispatchByHash": "tilewright.meta_schedule.dispatch_by_hash",
    "MetaScheduleApplyDatabase": "tilewright.meta_schedule.passes",
    "MetaScheduleTuneIRMod": "tilewright.meta_schedule.passes",
    "MetaScheduleTuneTIR": "tilewright.meta_schedule.passes",
}


def __getattr__(name: str) -> Any:
    """Load the passes of ``meta_schedule`` when they are first used."""
    if name not in _TUNING:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_TUNING[name]), name)


__all__ = [
    "FusionPattern",
    "OpPattern",
    "PatternCheckContext",
    "analyze_pattern",
    "dataflowblock_pass",
    "function_pass",
    *_PASSES,
    *_TUNING,
]
