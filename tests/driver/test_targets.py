"""Targets that code can't be generated for are errors, before anything is compiled."""

from __future__ import annotations

import pytest

from tilewright import driver, te
from tilewright.support.errors import CodegenError, TargetError, TilewrightError
from tilewright.tir import PrimFunc, Schedule

OTHER = "llvm -mtriple=riscv64-unknown-linux-gnu"  # of which we have no tables
BAD = [
    ("lvm", TargetError, "unknown target 'lvm'; did you mean 'llvm'"),
    ("nvidia/nvidia-h201", TargetError, "unknown GPU 'nvidia/nvidia-h201'; did you mean"),
    ("cuda -arch=sm_33", TargetError, "unknown GPU architecture 'sm_33'"),
    ("llvm -mcpu=nosuch", TargetError, "LLVM knows no .* CPU 'nosuch'"),
    ("llvm -mattr=+nosuch", TargetError, "LLVM knows no .* feature 'nosuch'"),
    (f"{OTHER} -mcpu=nosuch", CodegenError, "knows no CPU or feature 'nosuch'"),
    (f"{OTHER} -mattr=+nosuch", CodegenError, "knows no CPU or feature '[+]nosuch'"),
    ("llvm -mtriple=nosuch", TargetError, "LLVM has no target for -mtriple='nosuch'"),
]


def function() -> PrimFunc:
    x = te.placeholder((8,), name="x")
    return te.create_prim_func([x, te.compute((8,), lambda i: x[i] + 1.0, name="y")])


@pytest.mark.parametrize(("target", "kind", "message"), BAD)
def test_compile_refuses(target: str, kind: type[TilewrightError], message: str) -> None:
    with pytest.raises(kind, match=message):
        driver.compile(function(), target)


@pytest.mark.parametrize(("target", "kind", "message"), BAD)
def test_check_target_refuses(target: str, kind: type[TilewrightError], message: str) -> None:
    with pytest.raises(kind, match=message):
        driver.check_target(target)


def test_gpu_programs_are_lowered_for_the_interpreter() -> None:
    sch = Schedule(function())
    (loop,) = sch.get_loops(sch.get_block("y"))
    sch.bind(loop, "threadIdx.x")
    assert set(driver.lower(sch.mod, "cuda").functions) == {"main", "main_kernel"}


def test_check_target_gives_the_target() -> None:
    assert driver.check_target("llvm -mcpu=znver2 -num-cores=3").num_cores == 3
    assert driver.check_target(None).kind == "llvm"


def test_llvm_says_nothing_on_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CodegenError):
        driver.check_target(f"{OTHER} -mcpu=neither")
    assert capfd.readouterr() == ("", "")
