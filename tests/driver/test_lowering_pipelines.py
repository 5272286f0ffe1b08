"""Building by ``tirx.build``: pipelines by name, and operators lowered by rules of users."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import tilewright
from tilewright import tirx
from tilewright.driver import pipelines
from tilewright.script import from_source
from tilewright.support.errors import BuildError, TilewrightError, VerifyError
from tilewright.target import Target
from tilewright.tir import intrin_rules

TEXT = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("b"):
            v = T.axis.S(8, i)
            B[v] = T.exp(A[v])
"""


@pytest.fixture
def func() -> tirx.PrimFunc:
    made: tirx.PrimFunc = from_source(TEXT)
    return made


@pytest.fixture(autouse=True)
def nothing_stays_registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(intrin_rules, "_RULES", {})
    monkeypatch.setattr(pipelines, "_PIPELINES", dict(pipelines._PIPELINES))
    yield


def result(module: tilewright.runtime.Module) -> np.ndarray:
    given, made = np.linspace(0, 1, 8, dtype="float32"), np.zeros(8, "float32")
    module["main"](given, made)
    return made


EXPECTED = np.exp(np.linspace(0, 1, 8, dtype="float32"))


@pytest.mark.parametrize("pipeline", ["default", "s_tir", None, tirx.transform.Simplify()])
def test_functions_are_built_by_a_pipeline(func: tirx.PrimFunc, pipeline: object) -> None:
    for given in (func, tilewright.IRModule({"main": func})):
        made = tirx.build(given, Target("llvm"), pipeline)
        np.testing.assert_allclose(result(made), EXPECTED, rtol=1e-6)


def test_a_pipeline_of_the_user(func: tirx.PrimFunc) -> None:
    seen = []

    @tilewright.ir.transform.module_pass(opt_level=0, name="Look")
    def look(mod: tilewright.IRModule, context: object) -> tilewright.IRModule:
        seen.append((list(mod.functions), Target.current().kind))
        return mod

    tirx.register_tir_pipeline("look", lambda times=1: tilewright.ir.transform.Sequential([look]))
    np.testing.assert_allclose(result(tirx.build(func, pipeline="look")), EXPECTED, rtol=1e-6)
    assert seen == [(["main"], "llvm")]
    assert isinstance(tirx.get_tir_pipeline("look", times=2), tilewright.ir.transform.Pass)
    with pytest.raises(ValueError, match="unknown pipeline 'other'"):
        tirx.build(func, pipeline="other")
    with pytest.raises(ValueError, match="unknown pipeline None"):
        tirx.get_tir_pipeline()
    with pytest.raises(BuildError, match="no functions"):
        tirx.build(tilewright.IRModule({}))


def test_the_default_pipeline_lowers_for_its_target(func: tirx.PrimFunc) -> None:
    mod = tilewright.IRModule({"main": func})
    lowered = tirx.get_default_tir_pipeline(Target("llvm"))(mod)
    assert pipelines.KERNEL_ABI in lowered["main"].attrs
    with Target("llvm"):
        assert tilewright.ir.structural_equal(tirx.get_tir_pipeline("default")(mod), lowered)
    made = tirx.build(mod["main"].with_attr("target", Target("c")))
    assert "float" in made.inspect_source("c")


def test_rules_write_operators_for_a_target(func: tirx.PrimFunc) -> None:
    @tirx.register_intrin_lowering("tirx.exp", "llvm", level=20)
    def doubled(op: tirx.Call) -> tirx.PrimExpr:
        return op.args[0] * 2.0

    tirx.register_intrin_lowering("tirx.exp", "llvm", f=lambda op: op.args[0], level=10)
    tirx.register_intrin_lowering("tirx.exp", "default", f=lambda op: op.args[0] * 3.0)
    given = np.linspace(0, 1, 8, dtype="float32")
    np.testing.assert_array_equal(result(tirx.build(func, "llvm")), given * 2)
    rules = intrin_rules.rules_for("cuda")
    assert repr(rules["exp"](tirx.exp(tirx.Var("x", "float32")))) == "(x * float32(3.0))"


def test_rules_are_checked(func: tirx.PrimFunc) -> None:
    tirx.register_intrin_lowering("tirx.exp", "llvm", f=lambda op: op.args[0] > 1.0)
    with pytest.raises(VerifyError, match="the rule for exp gives"):
        tirx.build(func, "llvm")
    with pytest.raises(TilewrightError, match="nonsense"):
        tirx.register_intrin_lowering("tirx.nonsense", "llvm", f=lambda op: op)
    with pytest.raises(VerifyError, match="unknown kind of target 'lvm'; did you mean 'llvm'"):
        tirx.register_intrin_lowering("tirx.exp", "lvm", f=lambda op: op)
    with pytest.raises(VerifyError, match="unknown kind of target ''"):
        tirx.register_intrin_lowering("tirx.exp", "")
    with pytest.raises(VerifyError, match="a rule for exp is a function"):
        tirx.register_intrin_lowering("tirx.exp", "llvm", f=3)  # type: ignore[arg-type]


def test_kinds_that_only_tvm_has_stand_in_programs(func: tirx.PrimFunc) -> None:
    tirx.register_intrin_lowering("tirx.exp", "vulkan", f=lambda op: op.args[0] * 2.0)
    given = np.linspace(0, 1, 8, dtype="float32")
    np.testing.assert_allclose(result(tirx.build(func, "llvm")), np.exp(given), rtol=1e-6)
