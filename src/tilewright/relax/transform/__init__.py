"""Passes over graph functions, one per file. Orders live in ``relax.pipeline``."""

from __future__ import annotations

from tilewright.ir import Pass
from tilewright.relax.transform.annotate_pattern import OpPattern, analyze_pattern
from tilewright.relax.transform.function_pass import dataflowblock_pass, function_pass
from tilewright.relax.transform.fuse_ops_by_pattern import FusionPattern, PatternCheckContext
from tilewright.support.folder import classes_in
from tilewright.support.later import imported_later

_PASSES = classes_in(__name__, Pass)
globals().update(_PASSES)

# Passes of graph users that ``meta_schedule`` has: loaded when first used.
_TUNING = {
    "DispatchByHash": "tilewright.meta_schedule.dispatch_by_hash",
    "MetaScheduleApplyDatabase": "tilewright.meta_schedule.passes",
    "MetaScheduleTuneIRMod": "tilewright.meta_schedule.passes",
    "MetaScheduleTuneTIR": "tilewright.meta_schedule.passes",
}

_BUILD = "relax.build does that itself; leave it out"
_ABSENT = {
    "ComputePrimValue": _BUILD,
    "KillAfterLastUse": _BUILD,
    "LowerAllocTensor": _BUILD,
    "LowerRuntimeBuiltin": _BUILD,
    "RemovePurityChecking": "graphs say what has effects until they are compiled; leave it out",
    "RewriteCUDAGraph": "GraphFunction.capture records the calls of a graph; leave it out",
    "VMBuiltinLower": _BUILD,
    "VMShapeLower": _BUILD,
}
"""Steps of lowering to the bytecode of TVM's virtual machine."""

__getattr__ = imported_later(__name__, _TUNING, _ABSENT)

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
