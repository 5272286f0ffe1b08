"""Decorators of classes: ``@R.rewriter``, patterns in two functions, and ``@R.py_module``."""

from __future__ import annotations

from typing import Any

from tilewright.ir import IRModule
from tilewright.relax.dpl import PatternMatchingRewriter
from tilewright.script import from_source
from tilewright.script.ir import ir_module
from tilewright.support.errors import ParseError


def py_module(mod: type) -> Any:
    """Make what a call with a device compiles of a class derived from ``relax.BasePyModule``.

    Raises ``ParseError`` for another class.
    """
    if not hasattr(mod, "of_script"):
        raise ParseError(f"{mod.__name__} must be derived from relax.BasePyModule")
    return ir_module.decorate(mod, 3)


def rewriter(rewriter_mod: IRModule | type) -> PatternMatchingRewriter:
    """Make a rewriter of a module, or of a class, with functions ``pattern`` and ``replacement``.

        @R.rewriter
        class Twice:
            @R.function
            def pattern(x: R.Tensor((16,), "float32")):
                return R.add(x, x)

            @R.function
            def replacement(x: R.Tensor((16,), "float32")):
                return R.multiply(x, R.const(2.0))

        made = Twice(mod)

    See ``dpl.PatternMatchingRewriter.from_module``.

    Raises ``VerifyError`` if the functions or their parameters don't fit.
    """
    mod = from_source(rewriter_mod) if isinstance(rewriter_mod, type) else rewriter_mod
    return PatternMatchingRewriter.from_module(mod)
