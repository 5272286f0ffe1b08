"""Rules of dlight, called with TVM's arguments."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import dlight, s_tir, te
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.interpreter import run

CPU, GPU = Target("llvm -num-cores=1"), Target("nvidia/nvidia-a100")


def row_sums() -> PrimFunc:
    x = te.placeholder((8, 8), "float32", "x")
    k = te.reduce_axis((0, 8), "k")
    return te.create_prim_func(
        [x, te.compute((8,), lambda i: te.sum(x[i, k], axis=k), name="sums")]
    )


ON_GPU = {
    "Fallback": True, "GEMV": False, "GeneralReduction": False, "LowBatchGEMV": False,
    "Matmul": False, "RMSNorm": False, "Reduction": True, "Transpose": False,
}  # fmt: skip


@pytest.mark.parametrize("name", ON_GPU)
def test_rules_schedule_what_they_are_for(name: str) -> None:
    rule = getattr(dlight.gpu, name)()
    assert rule.is_target_available(target=GPU) and not rule.is_target_available(target=CPU)
    made = rule.apply(row_sums(), GPU, False)
    assert (made is not None) == ON_GPU[name]
    if made is not None:
        x, sums = np.arange(64, dtype="float32").reshape(8, 8), np.zeros(8, "float32")
        run(made.mod["main"], x, sums)
        np.testing.assert_array_equal(sums, x.sum(1))


@pytest.mark.parametrize("name", ["GEMV", "Reduction"])
def test_rules_of_cpus_are_for_cpus(name: str) -> None:
    rule = getattr(dlight.cpu, name)()
    assert rule.is_target_available(target=CPU) and not rule.is_target_available(target=GPU)


def test_what_is_known_of_a_block() -> None:
    schedule = s_tir.Schedule(row_sums())
    found = dlight.analysis.get_sblock_info(sch=schedule, block=schedule.get_sblock("sums"))
    assert (found.name, found.dom(), found.dom_kind()) == ("sums", [8, 8], "SR")
