"""The orders of graph passes: what ``relax.build`` and ``get_pipeline`` run.

``zero`` turns a graph of operators into a graph of fused tensor functions, ready for tuning,
hand-written schedules or library dispatch. ``default_build`` adds what makes code of that: the
rule-based schedule for functions that have none, then memory and the native graph function.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.dlight import default_schedule
from tilewright.ir import IRModule, Pass, Sequential
from tilewright.relax.transform import (
    AnnotateTIROpPattern,
    AttachAttrLayoutFreeBuffers,
    CallTIRRewrite,
    CanonicalizeBindings,
    CheckShapes,
    DeadCodeElimination,
    DecomposeOpsForInference,
    FoldConstant,
    FoldConvScale,
    FuseOps,
    FuseTIR,
    FuseTransposeAttention,
    FuseTransposeMatmul,
    InlineFunctions,
    LegalizeOps,
    LowerGraph,
    SelectConvAlgorithm,
    SelectConvLayout,
    SplitLayoutRewritePreproc,
    StaticPlanBlockMemory,
)
from tilewright.support.registry import Registry
from tilewright.target import Target

PipelineFactory = Callable[[Target | None], Pass]
PIPELINES: Registry[PipelineFactory] = Registry("pipeline")
"""Named orders of passes; each entry makes one for a target (which may be unknown yet)."""


def simplify(target: Target | None) -> Pass:
    """The part of ``zero`` after which it is decided how convolutions are computed."""
    return Sequential(
        [
            InlineFunctions(),
            CheckShapes(),
            CanonicalizeBindings(),
            DecomposeOpsForInference(),
            FoldConstant(),
            FoldConvScale(),
            FuseTransposeMatmul(),
            FuseTransposeAttention(),
            DeadCodeElimination(),
        ],
        name="simplify",
    )


def _zero(target: Target | None) -> Pass:
    return Sequential(
        [
            simplify(target),
            SelectConvLayout(target),
            SelectConvAlgorithm(target),
            LegalizeOps(),
            CanonicalizeBindings(),
            AnnotateTIROpPattern(),
            FuseOps(),
            FuseTIR(),
            DeadCodeElimination(),
            AttachAttrLayoutFreeBuffers(),
        ],
        name="zero",
    )


def _lower(target: Target | None) -> Pass:
    return Sequential(
        [SplitLayoutRewritePreproc(), CallTIRRewrite(), StaticPlanBlockMemory(), LowerGraph()],
        name="lower_graph",
    )


def _default_build(target: Target | None) -> Pass:
    return Sequential([_zero(target), default_schedule(target), _lower(target)], "default_build")


PIPELINES.register("zero", _zero)
PIPELINES.register("lower_graph", _lower)
PIPELINES.register("default_build", _default_build)


def get_pipeline(name: str = "zero", target: Target | str | None = None) -> Pass:
    """Return a named order of passes: ``zero``, ``lower_graph`` or ``default_build``."""
    made = Target(target) if isinstance(target, str) else target
    return PIPELINES.get(name)(made)


def run_pipeline(
    mod: IRModule, pipeline: str | Pass | Callable[[IRModule], IRModule] | None, target: Target
) -> IRModule:
    """Run a pipeline given by name, as a pass or as a function."""
    if pipeline is None:
        return mod
    run = get_pipeline(pipeline, target) if isinstance(pipeline, str) else pipeline
    return run(mod)
