"""The graph pass pipelines that ``relax.build`` and ``get_pipeline`` run.

``zero`` turns a graph of operators into a graph of fused tensor functions, ready for tuning,
hand-written schedules or library dispatch. ``default_build`` adds code generation: the rule-based
schedule for functions that have none, then memory planning and the native graph function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from tilewright.dlight import default_schedule
from tilewright.ir import IRModule, Pass, Sequential
from tilewright.kernels import ApplyKernels
from tilewright.relax import transform
from tilewright.relax.transform import (
    AnnotateTIROpPattern,
    AttachAttrLayoutFreeBuffers,
    AttachConstantBytes,
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
    InlineBranches,
    InlineFunctions,
    LegalizeOps,
    LowerGraph,
    OutlineBranches,
    ReshapeLater,
    SelectConvAlgorithm,
    SelectConvLayout,
    SelectMatmulAlgorithm,
    SplitAttention,
    SplitBatch,
    SplitLayoutRewritePreproc,
    StaticPlanBlockMemory,
    UpdateInPlace,
)
from tilewright.support.errors import TilewrightError
from tilewright.support.registry import Registry
from tilewright.target import Target

Pipeline = str | Pass | Callable[[IRModule], IRModule] | None
"""A pipeline: its name, a pass, a function, or none."""

PipelineFactory = Callable[..., Pass]
PIPELINES: Registry[PipelineFactory] = Registry("pipeline")
"""Named orders of passes; each entry makes one for a target (which may be unknown yet)."""


def register_pipeline(name: str) -> Callable[[PipelineFactory], PipelineFactory]:
    """Register a function that makes a pipeline, as a decorator.

        @relax.register_pipeline("mine")
        def mine(level=1):
            return ir.transform.Sequential([...])

    If it has a parameter ``target``, it gets the target, or ``None``; what else is passed to
    ``get_pipeline`` are its options.

    Raises ``TilewrightError`` if the name is taken.
    """

    def register(factory: PipelineFactory) -> PipelineFactory:
        signature = inspect.signature(factory)

        def make(target: Target | None, **options: object) -> Pass:
            given = {"target": target} if "target" in signature.parameters else {}
            try:
                signature.bind(**given, **options)
            except TypeError as error:
                raise TilewrightError(f"pipeline {name!r} takes {signature}: {error}") from None
            return factory(**given, **options)

        PIPELINES.register(name, make)
        return factory

    return register


def simplify(target: Target | None) -> Pass:
    """The passes of ``zero`` that run before convolution algorithms are chosen."""
    return Sequential(
        [
            # First, so that all that follows sees one graph.
            InlineBranches(),
            InlineFunctions(),
            # Passes below see branches as functions.
            OutlineBranches(),
            # While the operators are those whose conditions inference recorded.
            CheckShapes(),
            # Leaves arithmetic on constants, which then is one scale, which then is in weights.
            DecomposeOpsForInference(),
            # Passes below look from a use to the operator that made the value, past no aliases,
            # and no tuples such as batch norms give.
            CanonicalizeBindings(),
            FoldConstant(),
            FoldConvScale(),
            # What is still transposed: constants are folded by now.
            FuseTransposeMatmul(),
            FuseTransposeAttention(),
            # Products are what they will be; fusion sees only what follows them at once.
            ReshapeLater(),
            # What the passes above went around.
            DeadCodeElimination(),
        ],
        name="simplify",
    )


def _fused() -> list[Pass]:
    """Operators become tensor functions, and groups of those one function."""
    return [
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
    ]


@register_pipeline("cuda")
def _cuda(target: Target | None) -> Pass:
    # Layouts and algorithms of convolutions, and packed weights, are what CPUs want.
    return Sequential([simplify(target), *_fused()], name="cuda")


@register_pipeline("zero")
def _zero(target: Target | None) -> Pass:
    if target is not None and target.device_kind == "cuda":
        return _cuda(target)
    return Sequential(
        [
            simplify(target),
            # Transposes are in attention's layouts by now.
            SplitAttention(),
            # Chooses for groups of convolutions; an algorithm is for either layout.
            SelectConvLayout(target),
            # Sizes are those of the layout; algorithms are for what is left of a batch.
            SplitBatch(target),
            SelectConvAlgorithm(target),
            # Products are all in the graph, and constants in their last form.
            SelectMatmulAlgorithm(target),
            *_fused(),
            # Goes by all calls of the functions that there are in the end.
            AttachAttrLayoutFreeBuffers(),
        ],
        name="zero",
    )


def scheduled_by_rule(target: Target | None) -> Pass:
    """Kernels and rules for what no record has scheduled."""
    return Sequential(
        [
            # Kernels know definitions as they are.
            ApplyKernels(target=target),
            # Rules schedule updates; whether there is a copy before one is for the plan.
            UpdateInPlace(),
            DeadCodeElimination(),
            # Records are for functions without this.
            AttachConstantBytes(),
            default_schedule(target),
        ],
        name="scheduled_by_rule",
    )


@register_pipeline("plan_memory")
def _plan(target: Target | None) -> Pass:
    return Sequential(
        [
            # Branches share the memory of what is around them.
            InlineBranches(),
            # While calls return values: packed constants are operands like others.
            SplitLayoutRewritePreproc(),
            # Makes allocations, which are planned, which the lowered graph makes once.
            CallTIRRewrite(),
            StaticPlanBlockMemory(),
        ],
        name="plan_memory",
    )


@register_pipeline("lower_graph")
def _lower(target: Target | None) -> Pass:
    return Sequential([_plan(target), LowerGraph()], name="lower_graph")


@register_pipeline("default")
@register_pipeline(name="default_build")
def _default_build(target: Target | None) -> Pass:
    passes = [_zero(target), scheduled_by_rule(target), _lower(target)]
    return Sequential(passes, name="default_build")


@register_pipeline("static_shape_tuning")
def _static_shape_tuning(
    target: Target | None,
    total_trials: int = 1000,
    work_dir: str = "tuning_logs",
    cpu_weight_prepack: bool = False,
    max_trials_per_task: int | None = None,
) -> Pass:
    """Lower a graph of known shapes, tune its functions into ``work_dir``, apply what was found.

    With ``cpu_weight_prepack`` constants are packed by functions of their own. Otherwise that is
    left to the build.
    """
    passes = [
        _zero(target),
        # Imported when they are used: few programs tune.
        transform.MetaScheduleTuneIRMod(
            {}, work_dir, total_trials, max_trials_per_task, target=target
        ),
        transform.MetaScheduleApplyDatabase(work_dir, target=target),
        *([SplitLayoutRewritePreproc()] if cpu_weight_prepack else []),
    ]
    return Sequential(passes, name="static_shape_tuning")


def get_pipeline(name: str = "zero", target: Target | str | None = None, **options: object) -> Pass:
    """Return a named pipeline.

    There are ``zero`` (for GPUs it is ``cuda``), ``plan_memory``, ``lower_graph``, ``default``
    (also ``default_build``: all three, and schedules by rule before the last two),
    ``static_shape_tuning`` (which tunes what ``zero`` gives; options ``total_trials``,
    ``work_dir``, ``cpu_weight_prepack`` and ``max_trials_per_task``), and those of
    ``register_pipeline``, which may take ``options``.

    Raises ``TilewrightError`` for an unknown name, and for options that the pipeline doesn't take.
    """
    made = Target(target) if isinstance(target, str) else target
    return PIPELINES.get(name)(made, **options)


def run_pipeline(mod: IRModule, pipeline: Pipeline, target: Target) -> IRModule:
    """Run a pipeline given by name, as a pass or as a function."""
    if pipeline is None:
        return mod
    run = get_pipeline(pipeline, target) if isinstance(pipeline, str) else pipeline
    return run(mod)


def get_default_pipeline(target: Target | str | None = None) -> Pass:
    """Return the pipeline that builds graphs for a target: ``default_build``."""
    return get_pipeline("default_build", target)
