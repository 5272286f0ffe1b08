"""Building under TVM's names: ``tirx.build``, and pipelines of lowering passes by name.

A pipeline is a pass over tensor functions that runs before code is generated. What it leaves to be
lowered, the target's own passes lower; the pipelines that are known from the start are those.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.driver.build import TargetLike, as_module, lower, resolve_target
from tilewright.driver.build import build as generate
from tilewright.ir import IRModule, Pass, module_pass
from tilewright.runtime import Module
from tilewright.support.errors import BuildError
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.transform.make_kernel_abi import KERNEL_ABI

PipelineFactory = Callable[..., Pass]


def _lowering(target: Target | None = None) -> Pass:
    """The passes of a target: the one given, that of a function, or the one that is active."""

    def run(mod: IRModule, context: object) -> IRModule:
        return lower(mod, target or _stated(mod))

    made: Pass = module_pass(run, opt_level=0, name="Lower")
    return made


_PIPELINES: dict[str, PipelineFactory] = {"default": _lowering, "s_tir": _lowering}


def register_tir_pipeline(name: str, pipeline_factory: PipelineFactory) -> None:
    """Name a pipeline; ``pipeline_factory`` makes the pass. A name that is there is replaced."""
    _PIPELINES[name] = pipeline_factory


def get_tir_pipeline(name: str | None = None, **kwargs: object) -> Pass:
    """Return the pass of a pipeline by name; ``kwargs`` are its options.

    Raises ``ValueError`` for an unknown name.
    """
    if name not in _PIPELINES:
        raise ValueError(f"unknown pipeline {name!r}; there are: {', '.join(_PIPELINES)}")
    return _PIPELINES[name](**kwargs)


def get_default_tir_pipeline(target: Target) -> Pass:
    """Return the pass that lowers functions for a target."""
    return get_tir_pipeline("default", target=target)


def build(
    mod: PrimFunc | IRModule, target: TargetLike = None, pipeline: str | Pass | None = "default"
) -> Module:
    """Compile tensor functions as they are scheduled.

    Without ``target`` it is the one that is active, else that of a function's attribute ``target``.
    ``pipeline`` is a pass or the name of one; what it leaves to be lowered is lowered then.

    Raises ``ValueError`` for an unknown name, ``BuildError`` for what can't be built.
    """
    module = as_module(mod)
    chosen = resolve_target(target or _stated(module))
    passes = get_tir_pipeline(pipeline) if isinstance(pipeline, str) else pipeline
    with chosen:
        lowered = module if passes is None else passes(module)
        if not isinstance(lowered, IRModule):
            raise BuildError(f"a pipeline gives an IRModule, got {type(lowered).__name__}")
        if not any(KERNEL_ABI in func.attrs for func in lowered.functions.values()):
            lowered = lower(lowered, chosen)
    return generate(lowered, chosen)


def _stated(mod: IRModule) -> TargetLike:
    """The target that is active, or that a function names."""
    named = (func.attrs.get("target") for func in mod.functions.values())
    found: TargetLike = Target.current() or next(filter(None, named), None)
    return found
