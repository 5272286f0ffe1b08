"""Rules schedule a function as if what it asserts about sizes weren't there, and it stays."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import dlight, driver, te, topi
from tilewright.ir import IRModule, structural_equal
from tilewright.target import Target
from tilewright.tir import AssertStmt, seq

NATIVE = Target("native")


def scheduled(func):
    rules = dlight.default_schedule(NATIVE)
    return rules(IRModule({"main": func}))["main"]


def test_a_schedule_is_the_same_with_and_without_assertions():
    x = te.placeholder((te.var("n"), te.var("m")), name="x")
    made = topi.topk(x, 3, ret_type="values")
    func = te.create_prim_func([x, made])
    bare = te.create_prim_func([x, made], sizes_checked=True)
    checked = scheduled(func)
    check, *rest = checked.root.body.stmts
    assert isinstance(check, AssertStmt)
    assert structural_equal(seq(rest), scheduled(bare).root.body, map_free_vars=True)


@pytest.mark.parametrize("columns", [3, 9])
def test_scheduled_code_still_asserts(columns):
    x = te.placeholder((te.var("n"), te.var("m")), name="x")
    func = te.create_prim_func([x, topi.topk(x, 4, ret_type="values")])
    compiled = driver.compile(IRModule({"main": scheduled(func)}), NATIVE)["main"]
    values = np.random.default_rng(0).random((5, columns), np.float32)
    made = np.zeros((5, 4), np.float32)
    if columns == 9:
        compiled(values, made)
        np.testing.assert_array_equal(made, -np.sort(-values, 1)[:, :4])
    else:
        with pytest.raises(RuntimeError, match="m = 3"):
            compiled(values, made)
