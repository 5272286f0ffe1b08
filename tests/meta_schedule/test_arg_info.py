"""Arguments to measure with: extents may be formulas of sizes."""

from __future__ import annotations

import pytest

from tilewright import te, topi
from tilewright.ir import Var
from tilewright.meta_schedule.arg_info import ASSUMED_SIZE, TensorInfo, arg_infos, size_names
from tilewright.support.errors import TuneError
from tilewright.tir import PrimFunc


def windows() -> PrimFunc:
    n, size = te.var("n"), Var("size")
    x = te.placeholder((n, (size - 1) // 2 + 1), name="x")
    return te.create_prim_func([x, topi.exp(x)])


def test_formulas_of_sizes_are_evaluated() -> None:
    func = windows()
    assert size_names(func) == ["n", "size"]
    expected = TensorInfo("float32", (ASSUMED_SIZE, 4))
    assert [info for info in arg_infos(func, {"size": 8}) if info == expected] == [expected] * 2


@pytest.mark.parametrize(
    "sizes, reason", [({"size": -3}, "would be -1 for n = 64, size = -3"), ({"n": 6.5}, "whole")]
)
def test_sizes_that_make_no_tensor(sizes: dict[str, int], reason: str) -> None:
    with pytest.raises(TuneError, match=reason):
        arg_infos(windows(), sizes)
