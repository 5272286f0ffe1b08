"""Random expressions: simplified means equal, bounds contain, modular sets hold, sets cover."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.arith.helpers import Maker, evaluate, rng
from tilewright.arith import Analyzer
from tilewright.ir import Var, expr_equal

x, y, z, w = Var("x"), Var("y"), Var("z"), Var("w")
RANGES = {x: (0, 15), y: (0, 7), z: (-5, 9), w: (-20, 20)}
ROUNDS = int(os.environ.get("TILEWRIGHT_FUZZ_SCALE", "1"))
seeds = st.integers(0, 10**9)


def analyzer() -> Analyzer:
    made = Analyzer()
    for var, (low, high) in RANGES.items():
        if var is not w:
            made.bind(var, rng(high - low + 1, low))
    return made


@given(seeds)
def test_simplified_is_equal(seed):
    for step in range(ROUNDS):
        maker = Maker(seed + step, RANGES)
        expr = maker.integer(4)
        made = analyzer().simplify(expr)
        for _ in range(20):
            point = maker.point(RANGES)
            assert evaluate(made, point) == evaluate(expr, point), (expr, made, point)


@given(seeds)
def test_simplified_condition_is_equal(seed):
    for step in range(ROUNDS):
        maker = Maker(seed + step, RANGES)
        expr = maker.boolean(4)
        made = analyzer().simplify(expr)
        for _ in range(20):
            point = maker.point(RANGES)
            assert bool(evaluate(made, point)) == bool(evaluate(expr, point)), (expr, made, point)


@given(seeds)
def test_constraint_only_changes_what_it_excludes(seed):
    for step in range(ROUNDS):
        maker = Maker(seed + step, RANGES)
        expr, condition = maker.integer(3), maker.boolean(2)
        known = analyzer()
        with known.constraint(condition):
            made = known.simplify(expr)
            bound = known.const_int_bound(expr)
        for _ in range(30):
            point = maker.point(RANGES)
            if evaluate(condition, point):
                value = evaluate(expr, point)
                assert evaluate(made, point) == value, (expr, condition, made, point)
                assert bound.min <= value <= bound.max
        for _ in range(10):  # nothing of the condition is left behind
            point = maker.point(RANGES)
            assert evaluate(known.simplify(expr), point) == evaluate(expr, point)


@given(seeds)
def test_bounds_and_modular_sets_contain(seed):
    for step in range(ROUNDS):
        maker = Maker(seed + step, RANGES)
        expr = maker.integer(4)
        known = analyzer()
        bound, modular = known.const_int_bound(expr), known.modular_set(expr)
        for _ in range(20):
            value = evaluate(expr, maker.point(RANGES))
            assert bound.min <= value <= bound.max, expr
            if modular.coeff:
                assert value % modular.coeff == modular.base, expr
            else:
                assert value == modular.base, expr


@given(seeds)
def test_proofs_are_true(seed):
    for step in range(ROUNDS):
        maker = Maker(seed + step, RANGES)
        a, b = maker.integer(3), maker.integer(3)
        known = analyzer()
        equal, less = known.can_prove_equal(a, b), known.can_prove_lt(a, b)
        greater = known.can_prove_ge(a, b)
        for _ in range(20):
            point = maker.point(RANGES)
            left, right = evaluate(a, point), evaluate(b, point)
            assert not equal or left == right
            assert not less or left < right
            assert not greater or left >= right


@given(seeds)
def test_int_sets_cover(seed):
    for step in range(ROUNDS):
        maker = Maker(seed + step, RANGES)
        expr = maker.integer(4)
        domain = {var: rng(RANGES[var][1] - RANGES[var][0] + 1, RANGES[var][0]) for var in (x, z)}
        found = analyzer().int_set(expr, domain)
        for _ in range(20):
            point = maker.point(RANGES)
            value = evaluate(expr, point)
            if not isinstance(found.min, float):
                assert evaluate(found.min, {**point, x: 10**6, z: -(10**6)}) <= value, (expr, found)
            if not isinstance(found.max, float):
                assert evaluate(found.max, {**point, x: 10**6, z: -(10**6)}) >= value, (expr, found)


@given(seeds)
def test_simplify_is_idempotent_in_cost(seed):
    maker = Maker(seed, RANGES)
    expr = maker.integer(3)
    known = analyzer()
    once = known.simplify(expr)
    twice = known.simplify(once)
    for _ in range(5):
        point = maker.point(RANGES)
        assert evaluate(once, point) == evaluate(twice, point)


@pytest.mark.parametrize("seed", range(5))
def test_simplify_is_deterministic(seed):
    first = analyzer().simplify(Maker(seed, RANGES).integer(4))
    second = analyzer().simplify(Maker(seed, RANGES).integer(4))
    assert expr_equal(first, second)
