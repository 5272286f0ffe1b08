"""Softmax, norms and other chains over rows: one kernel, rows in registers where they fit."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_rules import CUDA, agree, compiled, function, kernels, lowered, scheduled, tensor, widest

from tests.everyday import few
from tilewright import te, topi
from tilewright.dlight.gpu import GeneralReduction, RMSNorm
from tilewright.scheduling import NotApplicable, start_schedule
from tilewright.tir import PrimFunc

n, m = te.var("n"), te.var("m")


def layer_norm(*shape: Any, dtype: str = "float32") -> PrimFunc:
    scale, shift = (tensor(shape[-1], dtype=dtype, name=name) for name in "gb")
    return function(topi.nn.layer_norm, tensor(*shape, dtype=dtype), scale, shift)


def softmax(*shape: Any, dtype: str = "float32") -> PrimFunc:
    return function(topi.nn.softmax, tensor(*shape, dtype=dtype))


def rms_norm(*shape: Any, dtype: str = "float32") -> PrimFunc:
    return function(
        topi.nn.rms_norm, tensor(*shape, dtype=dtype), tensor(shape[-1], dtype=dtype, name="g")
    )


CASES: dict[str, tuple[PrimFunc, dict[str, int]]] = {
    "softmax": (softmax(5, 64), {}),
    "softmax, odd": (softmax(5, 33), {}),
    "softmax of one": (softmax(5, 1), {}),
    "softmax, several axes": (softmax(2, 3, 2, 40), {}),
    "softmax, symbolic": (softmax(n, m), {"n": 3, "m": 40}),
    "softmax, no rows": (softmax(n, m), {"n": 0, "m": 40}),
    "softmax, symbolic rows": (softmax(n, 64), {"n": 3}),
    "log softmax": (function(topi.nn.log_softmax, tensor(4, 48)), {}),
    "layer norm": (layer_norm(3, 40), {}),
    "layer norm, symbolic": (layer_norm(n, m), {"n": 2, "m": 70}),
    "layer norm, float16": (layer_norm(3, 64, dtype="float16"), {}),
    "rms norm": (rms_norm(3, 128), {}),
    "rms norm, symbolic": (rms_norm(n, 24), {"n": 2}),
    "argmax": (function(lambda x: topi.argmax(x, 1), tensor(5, 33)), {}),
    "argmin, symbolic": (function(lambda x: topi.argmin(x, 1), tensor(n, m)), {"n": 2, "m": 40}),
}


@few("name", CASES, every=3)
def test_one_kernel_of_all_stages(name: str) -> None:
    func, sizes = CASES[name]
    tolerance = 4e-3 if "float16" in name else 2e-5
    mod = agree(func, GeneralReduction(), tolerance=tolerance, **sizes)
    assert len(kernels(mod)) == 1


@pytest.mark.parametrize(("func", "lanes"), [(softmax(4, 512), 4), (layer_norm(4, 1024), 4),
                                             (rms_norm(4, 1024, dtype="float16"), 8)])  # fmt: skip
def test_rows_are_read_once_as_vectors(func: PrimFunc, lanes: int) -> None:
    mod = lowered(scheduled(func, GeneralReduction()))
    (text,) = kernels(mod).values()
    assert widest(mod) == lanes
    assert "x_local" in text and "for " not in text.replace("for i", "for_i").split("x_local[")[1]
    (resources,) = compiled(mod).values()
    assert resources.spill_bytes == resources.stack_bytes == 0
    assert resources.registers <= 64  # 1024 threads at once


def test_long_rows_are_read_again() -> None:
    mod = lowered(scheduled(softmax(2, 50000), GeneralReduction()))
    (text,) = kernels(mod).values()
    assert "exp" in text and "50000," not in text  # nothing of a row is stored


def test_norms_by_a_rule_of_their_own() -> None:
    agree(rms_norm(3, 64), RMSNorm())
    for func, reason in ((softmax(3, 8), "2 reductions"), (layer_norm(3, 8), "reduction")):
        sch = start_schedule(func)
        assert sch is not None
        refused = RMSNorm().apply_to(sch, CUDA)
        assert isinstance(refused, NotApplicable) and reason in refused.reason


def test_other_functions_are_refused() -> None:
    for func in (function(topi.nn.relu, tensor(4)), function(topi.sum, tensor(4, 5))):
        sch = start_schedule(func)
        assert sch is not None
        assert isinstance(GeneralReduction().apply_to(sch, CUDA), NotApplicable)
