"""Integer expressions on arrays give what the interpreter gives for each element."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.arith.typed import INTEGERS, TypedMaker, same_values, values
from tilewright.arith import NotEvaluable, decided_conjuncts, evaluate
from tilewright.ir import Var, call, cast, const, floordiv, floormod, not_, or_, structural_equal
from tilewright.tir import decl_buffer


@given(seed=st.integers(0, 10**9))
def test_evaluated_as_interpreted(seed: int) -> None:
    for step in range(10):
        maker = TypedMaker(seed + step)
        expr = maker.expr(maker.random.choice((*INTEGERS, "bool")), maker.random.randint(1, 4))
        flat = [var for variables in maker.variables.values() for var in variables]
        before = maker.random.getstate()
        (expected,) = values(maker, [expr])
        maker.random.setstate(before)  # for the same inputs again
        try:
            found = evaluate(expr, dict(zip(flat, maker.inputs())))
        except NotEvaluable:
            continue
        assert same_values(expected, np.broadcast_to(found, expected.shape)), (expr, seed + step)


def test_division_by_zero_and_shifts_by_all_bits_are_zero() -> None:
    x, by = Var("x"), Var("by")
    given = {x: np.array([-3, 0, 5]), by: np.array([0, 64, -1])}
    for divided in (floordiv(x, by), floormod(x, by)):
        assert list(evaluate(divided, {**given, by: np.zeros(3, int)})) == [0, 0, 0]
    assert list(evaluate(call("shift_left", x, by), given)) == [-3, 0, 0]
    assert list(evaluate(cast(x + 2**31, "int32"), given)) == [2**31 - 3, -(2**31), 5 - 2**31]


@pytest.mark.parametrize("name", ["unknown variable", "load", "float"])
def test_what_has_no_value_is_refused(name: str) -> None:
    buffer = decl_buffer((4,), "int64", "A")
    expr = {
        "unknown variable": Var("n") + 1,
        "load": buffer[0] + 1,
        "float": cast(const(1.5) * cast(Var("n"), "float32"), "int64"),
    }[name]
    with pytest.raises(NotEvaluable):
        evaluate(expr, {})


def test_denied_conditions_are_split_and_turned_around() -> None:
    x, y = Var("x"), Var("y")
    likely = call("likely", not_(or_(x < 3, y >= 5)))
    found = decided_conjuncts(likely)
    assert all(map(structural_equal, found, [x >= 3, y < 5])) and len(found) == 2
    real = Var("real", "float32")
    (kept,) = decided_conjuncts(not_(real < 1.0))  # NaN is neither less nor at least
    assert structural_equal(kept, not_(real < 1.0))
