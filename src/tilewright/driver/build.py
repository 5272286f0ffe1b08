"""Lowering and building: the front door of everything below graphs.

``lower`` runs the target's passes, ``build`` generates code for what is lowered, ``compile`` does
both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.codegen.c import hip, metal, opencl
from tilewright.codegen.c.package import build_c_module, build_source_module
from tilewright.codegen.c.portable import emit_module as emit_c
from tilewright.codegen.cuda.package import build_cuda_module
from tilewright.codegen.llvm.emit import emit_module
from tilewright.codegen.llvm.jit import target_machine
from tilewright.codegen.llvm.package import Machine, build_module
from tilewright.ir import IRModule, dtypes, has_scalable, pre_order
from tilewright.runtime import Module
from tilewright.support.collector import few_collections
from tilewright.support.errors import BuildError, TargetError
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.analysis import verify
from tilewright.tir.attrs import CONSTANTS
from tilewright.tir.intrin_rules import apply_rules
from tilewright.tir.returned_values import returned_dtype, with_stated_returns
from tilewright.tir.transform import cpu_pipeline, gpu_pipeline

TargetLike = Target | str | dict[str, Any] | None


def resolve_target(target: TargetLike = None) -> Target:
    """Return a target: the one given, else that of the enclosing ``with target:``, else native."""
    if target is None:
        return Target.current() or Target("native")
    return target if isinstance(target, Target) else Target(target)


def check_target(target: TargetLike) -> Target:
    """Return a target if code can be generated for it; an error says why it can't."""
    target = resolve_target(target)
    _check_kind(target)
    if target.kind != "llvm":
        return target
    target_machine(target.triple or None, target.mcpu or None, target.feature_string or None)
    return target


def as_module(mod_or_func: IRModule | PrimFunc, name: str | None = None) -> IRModule:
    """Return a module of PrimFuncs; a single function is named by ``name`` or its symbol.

    Raises ``BuildError`` if there is nothing to build, or something else than PrimFuncs.
    """
    if isinstance(mod_or_func, PrimFunc):
        mod_or_func = (
            IRModule.from_expr(mod_or_func) if name is None else IRModule({name: mod_or_func})
        )
    if not isinstance(mod_or_func, IRModule):
        raise BuildError(
            f"expected an IRModule or a PrimFunc, got {type(mod_or_func).__name__}; "
            "tensors from te become a function with te.create_prim_func"
        )
    others = [key for key, func in mod_or_func.functions.items() if not isinstance(func, PrimFunc)]
    if others:
        raise BuildError(
            f"functions {', '.join(others)} are no PrimFuncs; graphs are built by relax.build"
        )
    if not mod_or_func.functions:
        raise BuildError("the module has no functions to build")
    return mod_or_func


def lower(mod_or_func: IRModule | PrimFunc, target: TargetLike = None) -> IRModule:
    """Run the lowering passes of a target on a program, which must be well formed.

    The result has no blocks, one index per access, and vectors in place of vectorized loops; for a
    GPU each kernel is a function of its own. The interpreter runs what comes out.

    Raises ``BuildError`` for a kind of target that has no lowering, ``VerifyError`` for a malformed
    program.
    """
    target = resolve_target(target)
    lowering = _LOWERINGS.get(target.kind)
    if lowering is None:
        raise BuildError(
            f"no lowering for target kind {target.kind!r}; there is one for: "
            f"{', '.join(_LOWERINGS)}"
        )
    mod = apply_rules(as_module(mod_or_func), target.kind)
    verify(mod)
    _check_vectors(mod, target)
    return lowering(target)(with_stated_returns(mod))


def _check_vectors(mod: IRModule, target: Target) -> None:
    """Refuse scalable vectors where there are none: compilers end the process for them."""
    functions = [func for func in mod.functions.values() if isinstance(func, PrimFunc)]
    scalable = [func for func in functions if has_scalable(func.body)]
    if scalable:
        target.require_scalable_vectors()
    if target.has("sve") or target.has("zvfh") or target.has("zvfhmin"):
        return
    for func in scalable:
        for item in pre_order(func.body):
            dtype = getattr(item, "dtype", "void")
            if dtypes.element_of(dtype) == "float16" and dtypes.is_scalable(dtype):
                raise TargetError(
                    f"{dtype} is not for the target {str(target)!r}: RVV converts vectors of "
                    "float16 with -mattr=+v,+zvfhmin or +zvfh only"
                )


_LOWERINGS: dict[str, Callable[[Target], Callable[[IRModule], IRModule]]] = {
    "llvm": cpu_pipeline,
    "c": cpu_pipeline,
    "cuda": gpu_pipeline,
    "hip": gpu_pipeline,
    "opencl": gpu_pipeline,
    "metal": gpu_pipeline,
}


def _check_kind(target: Target) -> None:
    if target.kind not in _BUILDERS:
        raise BuildError(
            f"no code generator for target kind {target.kind!r}; the kinds that can be built are: "
            f"{', '.join(_BUILDERS)}"
        )


def build(
    lowered: IRModule,
    target: TargetLike = None,
    *,
    entry_name: str | None = None,
    max_lines: int | None = None,
) -> Module:
    """Generate code for a lowered module.

    The module's attribute ``constants`` holds what ``constant_data`` refers to: by symbol, objects
    with the numbers as ``array``. Code of more than ``max_lines`` lines is refused.
    """
    if not isinstance(lowered, IRModule):
        raise BuildError(
            f"build takes a lowered IRModule, got {type(lowered).__name__}; "
            "compile lowers and builds functions and modules"
        )
    target = resolve_target(target)
    _check_kind(target)
    _check_vectors(lowered, target)
    with few_collections():
        return _BUILDERS[target.kind](lowered, target, entry_name, max_lines)


def _build_llvm(
    lowered: IRModule, target: Target, entry_name: str | None, max_lines: int | None
) -> Module:
    emitted = emit_module(lowered, target)
    if max_lines is not None and (lines := emitted.text.count("\n")) > max_lines:
        raise BuildError(f"the code has {lines} lines of LLVM IR, more than {max_lines}")
    return build_module(
        emitted.text,
        emitted.specs,
        machine=Machine(target.triple or None, target.mcpu or None, target.feature_string or None),
        target=str(target),
        sources={"tir": _ScriptText(lowered)},
        constants=_constants(lowered),
        entry_name=entry_name,
    )


def _build_c(
    lowered: IRModule, target: Target, entry_name: str | None, max_lines: int | None
) -> Module:
    emitted = emit_c(lowered)
    if max_lines is not None and (lines := emitted.text.count("\n")) > max_lines:
        raise BuildError(f"the code has {lines} lines of C, more than {max_lines}")
    return build_c_module(
        emitted.text,
        emitted.specs,
        target=str(target),
        sources={"tir": _ScriptText(lowered)},
        constants=_constants(lowered),
        entry_name=entry_name,
    )


def _build_cuda(
    lowered: IRModule, target: Target, entry_name: str | None, max_lines: int | None
) -> Module:
    return build_cuda_module(
        lowered,
        target,
        sources={"tir": _ScriptText(lowered)},
        constants=_constants(lowered),
        entry_name=entry_name,
        max_lines=max_lines,
    )


def _build_text(
    lowered: IRModule, target: Target, entry_name: str | None, max_lines: int | None
) -> Module:
    """Write kernels in a language of other GPUs; nothing here compiles it."""
    for name, func in lowered.functions.items():
        if isinstance(func, PrimFunc) and returned_dtype(func) != "void":
            raise BuildError(f"{name} returns a value; only functions of the CPU do")
    code = _TEXTS[target.kind](lowered, target)
    if max_lines is not None and (lines := code.text.count("\n")) > max_lines:
        raise BuildError(f"the code has {lines} lines of {target.kind}, more than {max_lines}")
    return build_source_module(
        target.kind,
        code.text,
        [name for name in lowered.functions if name not in code.kernels],
        target=str(target),
        sources={"tir": _ScriptText(lowered)},
        entry_name=entry_name,
    )


_TEXTS = {"hip": hip.emit_kernels, "opencl": opencl.emit_kernels, "metal": metal.emit_kernels}
_Builder = Callable[[IRModule, Target, "str | None", "int | None"], Module]
_BUILDERS: dict[str, _Builder] = {
    "llvm": _build_llvm,
    "c": _build_c,
    "cuda": _build_cuda,
    **dict.fromkeys(_TEXTS, _build_text),
}
"""What makes a module of lowered functions, by the target's kind."""


def _constants(lowered: IRModule) -> dict[str, Any]:
    """The arrays that ``constant_data`` refers to, by symbol."""
    return {name: data.array for name, data in lowered.attrs.get(CONSTANTS, {}).items()}


class _ScriptText:
    """Renders a lowered module when somebody asks; pickled as text, which takes its time."""

    def __init__(self, mod: IRModule) -> None:
        self._mod: IRModule | None = mod
        self._text = ""

    def __call__(self) -> str:
        if self._mod is not None:
            self._text, self._mod = self._mod.script(), None
        return self._text

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (self(),)


def compile(
    mod_or_func: IRModule | PrimFunc, target: TargetLike = None, *, name: str | None = None
) -> Module:
    """Compile a module or a function for a target, the native CPU if none is given or active.

    ``name`` is the name of a single function in the module. Functions are compiled as they are
    scheduled; nothing is tuned here.
    """
    target = resolve_target(target)
    _check_kind(target)
    mod = as_module(mod_or_func, name)
    return build(lower(mod, target), target)
