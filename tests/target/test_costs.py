"""What things are taken to cost: one table, which a machine may correct by what it measures."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

from tilewright import te, tir
from tilewright.dlight import default_schedule
from tilewright.ir import IRModule
from tilewright.support.errors import TargetError
from tilewright.target import Costs, Target
from tilewright.target.costs import MEASURED, costs_of, describe, measured, save_measured

SOURCE = Path(__file__).parents[2] / "src" / "tilewright"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))


def test_each_cost_says_what_it_is_and_is_used() -> None:
    text = "\n".join(path.read_text() for path in SOURCE.rglob("*.py"))
    for row in describe(Costs()):
        assert row["value"] > 0 and row["unit"] and row["meaning"] and row["source"]
        assert re.search(rf"(costs|known|usual)\.{row['name']}\b", text), row["name"]
    assert {row["name"] for row in describe(Costs())} == {item.name for item in fields(Costs)}


def test_what_was_measured_is_used_for_this_cpu_only() -> None:
    native = Target("native")
    other, usual = "haswell" if native.mcpu != "haswell" else "skylake", native.costs
    path = save_measured(native.mcpu, {"launch": 7.0, "clock": 1e9})
    assert json.loads(path.read_text())["cpus"][native.mcpu] == {"launch": 7.0, "clock": 1e9}
    assert Target("native").costs == replace(usual, launch=7.0, clock=1e9)
    assert native.with_options(num_cores=1).costs.launch == 7.0
    assert Target(f"llvm -mcpu={other} -num-cores=1").costs == Costs()
    assert Target(f"llvm -mcpu={other} -mtriple=x86_64-linux-gnu").costs == Costs()
    save_measured(other, {"launch": 9.0})
    assert measured(native.mcpu) == {"launch": 7.0, "clock": 1e9}
    save_measured(native.mcpu, {"launch": 8.0})
    assert Target("native").costs == replace(usual, launch=8.0)
    sources = {row["name"]: row["source"] for row in describe(native.costs, measured(native.mcpu))}
    assert sources["launch"] == "measured here" and sources["clock"] != "measured here"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expecting value"),
        ("[]", "no file of costs of version 1"),
        ('{"version": 2, "cpus": {}}', "no file of costs of version 1"),
        ('{"version": 1, "cpus": []}', "its CPUs are no table"),
        ('{"version": 1, "cpus": {"CPU": []}}', "its costs are no table"),
        ('{"version": 1, "cpus": {"CPU": {"step_wait": 1}}}', "'step_wait' is nothing that is"),
        ('{"version": 1, "cpus": {"CPU": {"launch": "1"}}}', "launch is '1', which is no positive"),
        ('{"version": 1, "cpus": {"CPU": {"launch": true}}}', "launch is True"),
        ('{"version": 1, "cpus": {"CPU": {"launch": 0}}}', "launch is 0"),
        ('{"version": 1, "cpus": {"CPU": {"launch": NaN}}}', "launch is nan"),
        ('{"version": 1, "cpus": {"CPU": {"launch": 1e999}}}', "launch is inf"),
        ("[" * 100_000, "nested too deeply"),
        ("\xff", "codec can't decode"),
    ],
)
def test_a_file_that_is_not_one_is_left_alone(
    text: str, message: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    native = Target("native")
    usual = costs_of("llvm", native.mcpu, native.vector_bits)
    (tmp_path / "costs.json").write_bytes(text.replace("CPU", native.mcpu).encode("latin1"))
    with caplog.at_level(logging.WARNING, "tilewright.target"):
        assert native.costs == usual
    assert message in caplog.text and "doctor --measure" in caplog.text
    save_measured(native.mcpu, {"launch": 5.0})
    assert native.costs.launch == 5.0


def test_some_cpus_run_long_vectors_in_two_halves() -> None:
    whole = Target("llvm -mcpu=znver4 -mattr=-avx512f -num-cores=1 -mtriple=x86_64-linux-gnu").costs
    halves = Target("llvm -mcpu=znver4 -num-cores=1 -mtriple=x86_64-linux-gnu").costs
    assert halves == replace(whole, multiply_adds=1, bf16_dots=1, loads=1)
    assert Target("llvm -mcpu=znver5 -mtriple=x86_64-linux-gnu").costs == Costs()


def test_only_what_is_measured_is_kept() -> None:
    with pytest.raises(ValueError, match="'point_gain' is nothing that is measured"):
        save_measured("haswell", {"point_gain": 1.0})
    assert "launch" in MEASURED and "point_gain" not in MEASURED
    with pytest.raises(TargetError, match="no costs for target 'cuda'; there are for llvm, c"):
        _ = Target("cuda -arch=sm_90").costs


def scheduled(target: Target) -> str:
    x = te.placeholder((64, 256), name="x")
    y = te.compute((64, 256), lambda i, j: x[i, j] * 2.0, name="y")
    mod = IRModule({"main": te.create_prim_func([x, y])})
    return str(default_schedule(target)(mod).script())


def test_rules_go_by_what_was_measured() -> None:
    target = Target("native").with_options(num_cores=2)
    assert "T.parallel" in scheduled(target)  # 16,384 operations
    save_measured(target.mcpu, {"parallel_work": 1e6})
    assert "T.parallel" not in scheduled(target)


def product(target: Target) -> str:
    a, b = te.placeholder((128, 96), name="a"), te.placeholder((96, 128), name="b")
    k = te.reduce_axis((0, 96), "k")
    c = te.compute((128, 128), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    sch = tir.Schedule(default_schedule(target)(IRModule({"main": te.create_prim_func([a, b, c])})))
    return str(sch.mod.script())


def test_tiles_are_as_high_as_latency_wants() -> None:
    target = Target("native").with_options(num_cores=1)
    before = product(target)
    save_measured(target.mcpu, {"loads": 0.5, "multiply_add_latency": 64})
    assert product(target) != before


def test_intel_cpus_multiply_bfloat16_as_float32() -> None:
    assert Target("llvm -mcpu=znver5").has_fast_bf16_dots
    assert not Target("llvm -mcpu=sapphirerapids").has_fast_bf16_dots
    assert not Target("llvm -mcpu=haswell").has_fast_bf16_dots
    assert Target("llvm -mcpu=neoverse-v1 -mtriple=aarch64-linux-gnu").has_fast_bf16_dots
