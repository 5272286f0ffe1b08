"""Kernels as a pass: in any order with the pass of the rules, which do without them."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

from tilewright import dlight, driver, te, topi
from tilewright.ir import IRModule, Pass, as_int, structural_equal
from tilewright.kernels import ApplyKernels
from tilewright.kernels.cpu import CPU_KERNELS
from tilewright.support.errors import TilewrightError
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.attrs import IS_SCHEDULED, LAYOUT_FREE
from tilewright.tir.schedule import KERNELS

# A target that has each kernel's instructions, and this machine, which runs what it can.
VNNI = Target("llvm -mcpu=icelake-server -num-cores=2")
NATIVE = Target("native")


# What is computed, of which operands: ``case`` of each file beside this one.
CASES = {
    path.stem.removeprefix("case_"): importlib.import_module(path.stem)
    for path in sorted(Path(__file__).parent.glob("case_*.py"))
}


def made(case: str) -> tuple[IRModule, list[np.ndarray]]:
    operator, arrays = CASES[case].case(np.random.default_rng(5))
    tensors = [te.placeholder(a.shape, str(a.dtype), f"x{n}") for n, a in enumerate(arrays)]
    results = operator(*tensors)
    results = results if isinstance(results, tuple) else (results,)
    func = te.create_prim_func([*tensors, *results])
    if hasattr(CASES[case], "LAYOUT_FREE"):
        func = func.with_attr(LAYOUT_FREE, CASES[case].LAYOUT_FREE)
    return IRModule({"main": func}), arrays


def rules(target: Target) -> Pass:
    return dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=target)


def is_scheduled(mod: IRModule) -> bool:
    return bool(mod["main"].attrs.get(IS_SCHEDULED))


def test_each_kernel_has_its_case() -> None:
    assert set(CPU_KERNELS) == set(CASES)
    assert all(name in KERNELS for _, kernel in CPU_KERNELS.items() for name in kernel.forms)


@pytest.mark.parametrize("case", CASES)
def test_kernels_and_rules_come_in_any_order(case: str) -> None:
    mod, _ = made(case)
    kernel, rule = ApplyKernels(target=VNNI)(mod), rules(VNNI)(mod)
    assert is_scheduled(kernel) and is_scheduled(rule)
    assert not structural_equal(kernel, rule), "the rules did not need the kernel"
    assert structural_equal(rules(VNNI)(kernel), kernel)
    assert structural_equal(ApplyKernels(target=VNNI)(rule), rule)
    assert structural_equal(dlight.default_schedule(VNNI)(mod), kernel)


@pytest.mark.parametrize("case", CASES)
def test_rules_do_without_kernels(case: str) -> None:
    mod, arrays = made(case)
    results = []
    for schedule in (rules(NATIVE), dlight.default_schedule(NATIVE), None):
        scheduled = mod if schedule is None else schedule(mod)
        made_of = mod["main"].buffers[len(arrays) :]
        outs = [np.zeros([as_int(n) for n in item.shape], item.dtype) for item in made_of]
        driver.compile(scheduled, NATIVE)["main"](*arrays, *outs)
        results.append(np.concatenate([out.ravel() for out in outs]))
    np.testing.assert_allclose(results[0], results[2], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(results[1], results[2], rtol=1e-4, atol=1e-4)


def test_other_functions_stay_as_they_are() -> None:
    x = te.placeholder((4, 4), "float32", "x")
    mod = IRModule({"main": te.create_prim_func([x, topi.nn.matmul(x, x)])})
    assert ApplyKernels(target=VNNI)(mod)["main"] is mod["main"]
    assert isinstance(mod["main"], PrimFunc)


def test_passes_take_rules_only() -> None:
    with pytest.raises(TilewrightError, match="ApplyDefaultSchedule takes rules, got str"):
        dlight.ApplyDefaultSchedule("scan")  # type: ignore[arg-type]
