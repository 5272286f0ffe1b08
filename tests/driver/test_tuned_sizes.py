"""Which sizes a symbolic extent is tuned at: given ones, those between bounds, those of a call."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import te, topi
from tilewright.ir import Var
from tilewright.meta_schedule import TuneContext
from tilewright.meta_schedule.passes import MetaScheduleTuneIRMod
from tilewright.meta_schedule.search_strategy.design import make_variants
from tilewright.meta_schedule.sizes import spread, symbols_within
from tilewright.meta_schedule.tir_integration import tune_tir
from tilewright.support.errors import BuildError, TuneError


def doubled() -> Any:
    n = Var("n", "int64")
    a = te.placeholder((n, 4), name="a")
    return te.create_prim_func([a, topi.multiply(a, 2.0)])


def measured(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The sizes of the tasks that there were."""
    return sorted(set(re.findall(r"@(n=\d+):", caplog.text)))


def test_given_sizes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        made = tw.compile(doubled(), database=tmp_path, tune=4, symbols={"n": [2, 32]})
    assert measured(caplog) == ["n=2", "n=32"]
    for n in (0, 1, 2, 7, 32, 100):
        x, out = np.ones((n, 4), "float32"), np.empty((n, 4), "float32")
        made["main"](x, out)
        np.testing.assert_array_equal(out, x * 2)


def test_sizes_go_with_a_budget() -> None:
    with pytest.raises(BuildError, match="give a budget by tune="):
        tw.compile(doubled(), symbols={"n": 4})


def test_sizes_are_those_of_the_model(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model, x = torch.nn.Linear(8, 8), torch.randn(3, 8)
    given = {"example_inputs": (x,), "dynamic_shapes": ({0: torch.export.Dim("n", max=64)},)}
    with pytest.raises(TuneError, match="no function has a size 'q'; known: n"):
        tw.compile(model, database=tmp_path, tune=2, symbols={"q": 4}, **given)
    mod = tw.ir.IRModule({"main": doubled()})
    with pytest.raises(TuneError, match="no function has a size 'm'; known: n"):
        MetaScheduleTuneIRMod(None, tmp_path, 2, symbols={"m": 4})(mod)


def test_bounds_that_no_memory_holds_are_not_measured_at() -> None:
    found = symbols_within({"n": (2, 10**12), "m": (10**6, 10**9)})
    assert found == {"n": [2, 27, 362, 4871, 65536], "m": 10**6}


def test_sizes_between_the_bounds_of_an_export(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(8, 8)
    n = torch.export.Dim("n", min=1, max=64)
    x = torch.randn(3, 8)
    given = {"example_inputs": (x,), "dynamic_shapes": ({0: n},)}
    with caplog.at_level("INFO"):
        made = tw.compile(model, database=tmp_path, tune=3, **given)
    assert measured(caplog) == ["n=1", "n=64", "n=8"]
    for size in (0, 1, 5, 64):
        x = torch.randn(size, 8)
        torch.testing.assert_close(made(x), model(x).detach(), atol=1e-5, rtol=1e-5)


def test_the_size_that_torch_compile_is_called_with(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch._dynamo.reset()
    sizes: list[Any] = []
    from tilewright.torch import dynamo

    real = dynamo.tune_relax
    with pytest.MonkeyPatch.context() as patch:

        def noting(*args: Any, **kwargs: Any) -> Any:
            sizes.append(kwargs.get("symbols"))
            return real(*args, **kwargs)

        patch.setattr(dynamo, "tune_relax", noting)
        run = torch.compile(
            lambda x: torch.relu(x) * 2,
            backend="tilewright",
            dynamic=True,
            options={"mode": "tune", "work_dir": tmp_path, "trials": 2, "threads": 1},
        )
        x = torch.randn(24, 3)
        torch.testing.assert_close(run(x), torch.relu(x) * 2)
    (found,) = sizes
    assert sorted(found.values()) == [3, 24]


def test_candidates_of_symbolic_sizes_are_rated(tmp_path: Path) -> None:
    n, m = Var("n", "int64"), Var("m", "int64")
    a = te.placeholder((n, m), name="a")
    b = te.placeholder((m, 24), name="b")
    func = te.create_prim_func([a, b, topi.nn.relu(topi.nn.matmul(a, b))])
    symbols = {"n": 24, "m": 20}
    task = TuneContext(func, target="llvm", symbols=symbols, task_name="main")
    sketches = task.space_generator.generate_design_space(task.mod)
    variants = make_variants(task.mod, sketches, task.target, task.sizes)
    assert any(variant.size > 1 for variant in variants)
    rng = np.random.default_rng(0)
    for variant in variants:
        found = variant.evaluate(variant.draw(8, rng))
        assert found.valid.any() and np.isfinite(found.cycles[found.valid]).all()
    database = tune_tir(func, "llvm", None, 8, database="memory", symbols=symbols)
    made = tw.compile(func, "llvm", database=database)
    for rows, depth in ((24, 20), (1, 1), (7, 33), (0, 5), (5, 0)):
        x = np.random.default_rng(1).standard_normal((rows, depth)).astype("float32")
        y = np.random.default_rng(2).standard_normal((depth, 24)).astype("float32")
        out = np.empty((rows, 24), "float32")
        made["main"](x, y, out)
        np.testing.assert_allclose(out, np.maximum(x @ y, 0), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("value", [0, -1, [0], [4, -1], []])
def test_sizes_are_positive_whether_one_or_several(value: Any) -> None:
    with pytest.raises(TuneError, match="positive"):
        spread({"n": value})
