"""``@R.rewriter``."""

from __future__ import annotations

import pytest

from tilewright.ir import IRModule
from tilewright.relax import dpl
from tilewright.script import ir as I
from tilewright.script import ir_builder
from tilewright.script import relax as R
from tilewright.support.errors import VerifyError


@R.rewriter
class ByAnother:
    @R.function
    def pattern(A: R.Tensor([16], "float32"), B: R.Tensor([16], "float32")):
        C = R.add(A, B)
        return C

    @R.function
    def replacement(A: R.Tensor([16], "float32"), B: R.Tensor([16], "float32")):
        C = R.call_pure_packed("my_add", A, B, ty_args=R.Tensor([16], "float32"))
        return C


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor([16], "float32"), y: R.Tensor([16], "float32")):
        z = R.add(x, R.exp(y))
        return z


def test_classes_are_rewriters() -> None:
    assert isinstance(ByAnother, dpl.PatternMatchingRewriter)
    made = ByAnother(Module)
    assert [b.value.op_name for b in made["main"].bindings] == ["exp", "call_pure_packed"]


def test_modules_are_rewriters() -> None:
    @I.ir_module
    class Pair:
        @R.function
        def pattern(x: R.Tensor([16], "float32")):
            y = R.exp(x)
            return y

        @R.function
        def replacement(x: R.Tensor([16], "float32")):
            y = R.sin(x)
            return y

    made = ir_builder.relax.rewriter(rewriter_mod=Pair)(Module)
    assert [b.value.op_name for b in made["main"].bindings] == ["sin", "add"]
    with pytest.raises(VerifyError, match="replacement"):
        R.rewriter(IRModule({"pattern": Pair["pattern"]}))
    for wrong in (None, 3, Pair["pattern"]):
        with pytest.raises(VerifyError, match="made of an IRModule"):
            R.rewriter(wrong)
