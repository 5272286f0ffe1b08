"""Passes over graph functions, one a file. Orders live in ``relax.pipeline``."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tilewright.relax.transform.annotate_pattern import (
    AnnotateTIROpPattern,
    OpPattern,
    analyze_pattern,
)
from tilewright.relax.transform.bind_params import BindParams
from tilewright.relax.transform.call_tir_rewrite import CallTIRRewrite
from tilewright.relax.transform.canonicalize import CanonicalizeBindings
from tilewright.relax.transform.check_shapes import CheckShapes
from tilewright.relax.transform.convert_layout import ConvertLayout
from tilewright.relax.transform.dead_code import DeadCodeElimination
from tilewright.relax.transform.decompose_ops import DecomposeOpsForInference
from tilewright.relax.transform.fold_constant import FoldConstant
from tilewright.relax.transform.fold_conv_scale import FoldConvScale
from tilewright.relax.transform.fuse_ops import FuseOps
from tilewright.relax.transform.fuse_tir import FuseTIR
from tilewright.relax.transform.fuse_transpose_attention import FuseTransposeAttention
from tilewright.relax.transform.fuse_transpose_matmul import FuseTransposeMatmul
from tilewright.relax.transform.inline_functions import InlineFunctions
from tilewright.relax.transform.layout_free import (
    AttachAttrLayoutFreeBuffers,
    SplitLayoutRewritePreproc,
)
from tilewright.relax.transform.legalize_ops import LegalizeOps
from tilewright.relax.transform.lower_graph import LowerGraph
from tilewright.relax.transform.plan_memory import StaticPlanBlockMemory
from tilewright.relax.transform.select_conv_algorithm import SelectConvAlgorithm
from tilewright.relax.transform.select_conv_layout import SelectConvLayout

if TYPE_CHECKING:
    from tilewright.meta_schedule.passes import (
        MetaScheduleApplyDatabase,
        MetaScheduleTuneIRMod,
        MetaScheduleTuneTIR,
    )

_TUNING = ("MetaScheduleApplyDatabase", "MetaScheduleTuneIRMod", "MetaScheduleTuneTIR")


def __getattr__(name: str) -> Any:
    """Load the passes of ``meta_schedule`` when they are first used."""
    if name not in _TUNING:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("tilewright.meta_schedule.passes"), name)


__all__ = [
    "AnnotateTIROpPattern",
    "AttachAttrLayoutFreeBuffers",
    "SplitLayoutRewritePreproc",
    "BindParams",
    "CallTIRRewrite",
    "CanonicalizeBindings",
    "CheckShapes",
    "ConvertLayout",
    "DeadCodeElimination",
    "DecomposeOpsForInference",
    "FoldConstant",
    "FoldConvScale",
    "FuseOps",
    "FuseTIR",
    "FuseTransposeAttention",
    "FuseTransposeMatmul",
    "InlineFunctions",
    "LegalizeOps",
    "LowerGraph",
    "MetaScheduleApplyDatabase",
    "MetaScheduleTuneIRMod",
    "MetaScheduleTuneTIR",
    "OpPattern",
    "SelectConvAlgorithm",
    "SelectConvLayout",
    "StaticPlanBlockMemory",
    "analyze_pattern",
]
