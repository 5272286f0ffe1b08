"""Sums over the lanes of several vectors at once."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.ir import Var
from tilewright.kernels.cpu.attention.common import lane_sums, with_lets
from tilewright.tir import PrimFunc, decl_buffer, make_root_block, seq
from tilewright.tir.building import lanes_from, load, store
from tilewright.tir.interpreter import run


@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("part", [1, 2, 4, 8])
def test_lanes_of_rows_are_summed(lanes: int, part: int) -> None:
    """All at once, or parts of the rows first."""
    part = min(part, lanes)
    x = decl_buffer((lanes, lanes), "float32", "x")
    parts = decl_buffer((lanes // part, lanes), "float32", "parts")
    y = decl_buffer((lanes,), "float32", "y")
    all_lanes = lanes_from(0, lanes)
    stmts = []
    for first in range(0, lanes, part):
        lets, made = lane_sums([load(x, first + r, all_lanes) for r in range(part)])
        stmts.append(with_lets(lets, store(parts, made, first // part, all_lanes)))
    rows = [load(parts, r, all_lanes) for r in range(lanes // part)]
    lets, made = lane_sums(rows, part.bit_length() - 1)
    stmts.append(with_lets(lets, store(y, made, all_lanes)))
    handles = (Var("a", "handle"), Var("b", "handle"))
    body = make_root_block(seq(*stmts), (parts,))
    func = PrimFunc(handles, body, buffer_map=dict(zip(handles, (x, y))))
    data = np.random.default_rng(0).integers(-9, 9, (lanes, lanes)).astype("float32")
    found = np.zeros(lanes, "float32")
    run(func, data, found)
    np.testing.assert_array_equal(found, data.sum(axis=1))
