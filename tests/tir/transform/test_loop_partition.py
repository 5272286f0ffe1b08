"""Loops cut where conditions change: whole tiles without tests, last ones no larger than needed."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright.ir import IRModule
from tilewright.script import parse
from tilewright.tir.schedule import Schedule

SUMS = """
@T.prim_func
def main(a: T.handle, z: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, 5), "float32")
    Z = T.match_buffer(z, (n,), "float32")
    for i, k in T.grid(n, 5):
        with T.block("Z"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                Z[vi] = T.float32(0)
            Z[vi] = Z[vi] + A[vi, vk]
"""


@pytest.mark.parametrize("kind", ["unroll", "vectorize"])
@pytest.mark.parametrize("factors", [[None, 10], [None, 3, 8], [None, 2, 2, 16]])
def test_last_tiles_of_any_number_of_rows(factors: list[int | None], kind: str) -> None:
    """Between the loop that is cut and the rows of a tile there may be others."""
    sch = Schedule(parse(SUMS))
    i, k = sch.get_loops("Z")
    *around, row = sch.split(i, factors)
    sch.cache_write("Z", 0, "local")
    sch.reverse_compute_at("Z_local", around[-1])
    sch.reorder(k, row)
    getattr(sch, kind)(row)
    getattr(sch, kind)(sch.get_loops("Z_local")[-1])
    init = sch.decompose_reduction("Z", k)
    getattr(sch, kind)(sch.get_loops(init)[-1])
    kernel = tilewright.compile(IRModule({"main": sch.mod["main"]}), "llvm")["main"]
    rng = np.random.default_rng(0)
    for n in (*range(26), 47, 48, 49, 63, 64, 65, 100):
        x, out = rng.standard_normal((n, 5), dtype=np.float32), np.full(n + 1, 7, np.float32)
        kernel(x, out[:n])
        np.testing.assert_allclose(out[:n], x.sum(1), rtol=1e-4, atol=1e-5, err_msg=str(n))
        assert out[n] == 7
