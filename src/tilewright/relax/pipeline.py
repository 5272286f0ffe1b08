"""The graph pass pipelines that ``relax.build`` and ``get_pipeline`` run.

``zero`` turns a graph of operators into a graph of fused tensor functions, ready for tuning,
hand-written schedules or library dispatch. ``default_build`` adds code generation: the rule-based
schedule for functions that have none, then memory planning and the native graph function.
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
    """The passes of ``zero`` that run before convolution algorithms are chosen."""
    return Sequential(
        [
            # First, so that all that follows sees one graph.
            InlineFunctions(),
            # While the operators are those whose conditions inference recorded.
            CheckShapes(),
            # Passes below look from a use to the operator that made the value, past no aliases.
            CanonicalizeBindings(),
            # Leaves arithmetic on constants, which then is one scale, which then is in weights.
            DecomposeOpsForInference(),
            FoldConstant(),
            FoldConvScale(),
            # What is still transposed: constants are folded by now.
            FuseTransposeMatmul(),
            FuseTransposeAttention(),
            # What the passes above went around.
            DeadCodeElimination(),
        ],
        name="simplify",
    )


def _zero(target: Target | None) -> Pass:
    return Sequential(
        [
            simplify(target),
            # Chooses for groups of convolutions; an algorithm is for either layout.
            SelectConvLayout(target),
            SelectConvAlgorithm(target),
            # Fusion is of tensor functions.
            LegalizeOps(),
            # Rules may give aliases and tuples, which would hide from fusion what flows where.
            CanonicalizeBindings(),
            # Fusion goes by the patterns; then groups become functions.
            AnnotateTIROpPattern(),
            FuseOps(),
            FuseTIR(),
            # Functions that were fused into others.
            DeadCodeElimination(),
            # Goes by all calls of the functions that there are in the end.
            AttachAttrLayoutFreeBuffers(),
        ],
        name="zero",
    )


def _plan(target: Target | None) -> Pass:
    return Sequential(
        [
            # While calls return values: packed constants are operands like others.
            SplitLayoutRewritePreproc(),
            # Makes allocations, which are planned, which the lowered graph makes once.
            CallTIRRewrite(),
            StaticPlanBlockMemory(),
        ],
        name="plan_memory",
    )


def _lower(target: Target | None) -> Pass:
    return Sequential([_plan(target), LowerGraph()], name="lower_graph")


def _default_build(target: Target | None) -> Pass:
    return Sequential([_zero(target), default_schedule(target), _lower(target)], "default_build")


PIPELINES.register("zero", _zero)
PIPELINES.register("plan_memory", _plan)
PIPELINES.register("lower_graph", _lower)
PIPELINES.register("default_build", _default_build)


def get_pipeline(name: str = "zero", target: Target | str | None = None) -> Pass:
    """Return a named pipeline: ``zero``, ``plan_memory``, ``lower_graph``, ``default_build``."""
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
