"""What is computed where it is used, and what stays a block."""

from __future__ import annotations

import numpy as np

from tilewright import te, topi
from tilewright.ir import IRModule, structural_equal
from tilewright.scheduling.blocks import inline_injective, leaf_blocks
from tilewright.tir import PrimFunc
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Schedule


def writes_into_parts(count: int) -> PrimFunc:
    """A row after another is replaced, as slices and joins; each step uses the last one twice."""
    x = te.placeholder((8, 4), "float32", "x")
    row = te.placeholder((1, 4), "float32", "row")
    made = x
    for step in range(count):
        place = 1 + step % 6
        before = topi.strided_slice(made, [0], [place])
        after = topi.strided_slice(made, [place + 1], [8])
        made = topi.concatenate([before, row, after], 0)
    return te.create_prim_func([x, row, made])


def test_short_chains_become_one_block() -> None:
    sch = Schedule(IRModule({"main": writes_into_parts(3)}))
    inline_injective(sch)
    assert len(leaf_blocks(sch)) == 1


def test_copies_of_copies_are_cut() -> None:
    func = writes_into_parts(12)
    sch = Schedule(IRModule({"main": func}))
    inline_injective(sch)
    assert 1 < len(leaf_blocks(sch)) < 8
    assert not structural_equal(sch.mod["main"], func)
    x, row = np.arange(32, dtype="float32").reshape(8, 4), np.full((1, 4), -1, "float32")
    found, want = np.zeros((8, 4), "float32"), np.zeros((8, 4), "float32")
    run(sch.mod, x, row, found)
    run(func, x, row, want)
    np.testing.assert_array_equal(found, want)
