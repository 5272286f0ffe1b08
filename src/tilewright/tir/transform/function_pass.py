"""Passes made of functions on PrimFuncs, and those that take or leave functions as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir import InfoPass, IRModule, PassContext, pass_decorator
from tilewright.support.errors import VerifyError
from tilewright.target import Target
from tilewright.tir.analysis import verify_memory
from tilewright.tir.function import PrimFunc
from tilewright.tir.transform.base import FunctionTransform


class PrimFuncPass(InfoPass, FunctionTransform):
    """A pass made of a function ``(PrimFunc, IRModule, PassContext) -> PrimFunc``.

    Without a function, a subclass defines ``transform_function``.
    """

    def transform(self, mod: IRModule) -> IRModule:
        """Apply the function to each PrimFunc.

        Raises ``VerifyError`` if it gives anything else.
        """
        if self._function is None:
            return super().transform(mod)
        return _each(mod, self._function, self.name)


def _each(mod: IRModule, function: Callable[..., Any], name: str) -> IRModule:
    context = PassContext.current()

    def rebuilt(_: object, func: PrimFunc) -> PrimFunc:
        made = function(func, mod, context)
        if not isinstance(made, PrimFunc):
            raise VerifyError(f"{name} must return a PrimFunc, got {type(made).__name__}")
        return made

    return mod.map_functions(rebuilt, PrimFunc)


prim_func_pass = pass_decorator(
    "prim_func_pass",
    PrimFuncPass,
    "transform_function",
    """Turn a function on PrimFuncs, or a class with a ``transform_function``, into a pass.

    Use it as a decorator, with options or without. Function and method take the PrimFunc, its
    module and the ``PassContext``. The pass of a class is made by calling the class.

    Raises ``VerifyError`` for what is neither, and a class without the method.
    """,
)


class Apply(FunctionTransform):
    """Replace each PrimFunc by what ``ftransform`` gives for it."""

    def __init__(self, ftransform: Callable[[PrimFunc], PrimFunc]) -> None:
        self.ftransform = ftransform

    def transform(self, mod: IRModule) -> IRModule:
        """Apply the function; ``VerifyError`` if it gives anything but a PrimFunc."""
        return _each(mod, lambda func, *_: self.ftransform(func), self.name)


class Filter(FunctionTransform):
    """Keep the PrimFuncs for which ``fcond`` is true; other functions stay."""

    def __init__(self, fcond: Callable[[PrimFunc], bool]) -> None:
        self.fcond = fcond

    def transform(self, mod: IRModule) -> IRModule:
        """Drop the functions that don't fulfil the condition."""
        kept = {
            name: func
            for name, func in mod.functions.items()
            if not isinstance(func, PrimFunc) or self.fcond(func)
        }
        return mod if len(kept) == len(mod.functions) else mod.replace(functions=kept)


class BindTarget(FunctionTransform):
    """Note the target in the attribute ``target`` of each PrimFunc that names none."""

    def __init__(self, target: Target | str) -> None:
        self.target = Target(target)

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Set the attribute."""
        return func if "target" in func.attrs else func.with_attr("target", self.target)


class VerifyMemory(FunctionTransform):
    """Check that kernels of GPUs access memory in threads only; functions stay as they are.

    Raises ``VerifyError`` for a function whose attribute ``target`` is a GPU and that accesses
    global memory outside of thread-bound loops.
    """

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Check one function."""
        if not verify_memory(func):
            raise VerifyError(
                f"VerifyMemory: the function is for {func.attrs['target']}, but accesses memory "
                "outside of its threads; bind its loops, as dlight.ApplyDefaultSchedule does:\n"
                + func.script()
            )
        return func
