"""Pipelines by name: ours, and those that users register."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import agree, graph, random, tensor, values
from tilewright import relax
from tilewright.ir import Pass, Sequential
from tilewright.relax import op
from tilewright.relax import transform as t
from tilewright.relax.pipeline import PIPELINES
from tilewright.support.errors import TilewrightError, VerifyError
from tilewright.target import Target
from tilewright.tir import PrimFunc

TARGET = "llvm -mcpu=haswell"


@pytest.fixture
def registered() -> Iterator[None]:
    before = dict(PIPELINES._entries)
    yield
    PIPELINES._entries.clear()
    PIPELINES._entries.update(before)


def test_the_default_pipeline_leaves_native_functions() -> None:
    mod = graph(lambda x: op.exp(op.tanh(x)), tensor((4,)))
    for name in ("default", "default_build"):
        made = relax.get_pipeline(name, TARGET)(mod)
        assert all(isinstance(function, PrimFunc) for function in made.functions.values())
    fused = relax.get_pipeline("zero")(mod)
    assert values(fused) == ["fused_tanh_exp"]
    agree(mod, fused, random(4))


def test_users_register_pipelines(registered: None) -> None:
    seen: list[Any] = []

    @relax.register_pipeline("mine")
    def mine(target: Target | None, level: int = 1) -> Pass:
        seen.append((target, level))
        return Sequential([t.LegalizeOps()] * level)

    @relax.register_pipeline("plain")
    def plain() -> Pass:
        return t.LegalizeOps()

    mod = graph(op.exp, tensor((4,)))
    assert values(relax.get_pipeline("mine", TARGET, level=2)(mod)) == ["exp"]
    assert seen[0][0].kind == "llvm" and seen[0][1] == 2
    agree(mod, relax.get_pipeline("plain")(mod), random(4))
    executable = relax.build(mod, TARGET, pipeline="mine")
    assert list(executable.signatures) == ["main"]
    with pytest.raises(TilewrightError, match="'mine' is registered twice"):
        relax.register_pipeline("mine")(plain)
    with pytest.raises(TilewrightError, match=r"pipeline 'plain' takes \(\)"):
        relax.get_pipeline("plain", level=1)
    with pytest.raises(TilewrightError, match="unknown pipeline 'mien'; did you mean 'mine'"):
        relax.get_pipeline("mien")


def test_parameters_are_bound_by_name_or_variable() -> None:
    n = relax.Var("w", tensor((4,)))
    mod = graph(op.add, tensor((2, 4)), tensor((4,)))
    main, y = mod["main"], random(4)
    by_name = relax.bind_params(main, {"y": y})
    by_variable = relax.bind_params(main, {main.params[1]: relax.const(y)})
    for made in (by_name, by_variable):
        assert [param.name for param in made.params] == ["x"]
        x = random(2, 4)
        np.testing.assert_allclose(relax.interpreter.run(made, x), x + y, rtol=1e-6)
    with pytest.raises(VerifyError, match="the function has no parameter 'w'"):
        relax.bind_params(main, {n: y})


def test_static_shape_tuning_takes_its_options_and_lowers(tmp_path: Path) -> None:
    made = relax.get_pipeline(
        "static_shape_tuning", TARGET, total_trials=0, work_dir=str(tmp_path), max_trials_per_task=4
    )
    assert isinstance(made, Sequential)
    assert [item.name for item in made.passes] == [
        "zero",
        "MetaScheduleTuneIRMod",
        "MetaScheduleApplyDatabase",
    ]
    packed = relax.get_pipeline("static_shape_tuning", TARGET, cpu_weight_prepack=True)
    assert isinstance(packed, Sequential)
    assert packed.passes[-1].name == "SplitLayoutRewritePreproc"
