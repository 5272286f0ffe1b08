"""Fourier-Motzkin elimination against enumeration; long sums."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.arith.helpers import evaluate
from tilewright.arith import (
    Analyzer,
    can_prove_by_cases,
    simplify,
    solve_linear_inequalities,
)
from tilewright.ir import (
    GE,
    LE,
    Add,
    Range,
    Sub,
    Var,
    and_,
    call,
    const,
    floordiv,
    maximum,
    minimum,
)

i, j, n = Var("i"), Var("j"), Var("n")
SPAN = range(-6, 7)


def system(pick: random.Random):
    parts = [GE(i, const(-6)), LE(i, const(6)), GE(j, const(-6)), LE(j, const(6))]
    for _ in range(pick.randint(1, 4)):
        left = i * pick.randint(-3, 3) + j * pick.randint(-3, 3)
        right = n * pick.randint(-2, 2) + pick.randint(-5, 5)
        parts.append(pick.choice([GE, LE])(left, right))
    return and_(*parts)


@given(st.integers(0, 10**9))
def test_solutions_are_those_of_the_system(seed):
    condition = system(random.Random(seed))
    found = solve_linear_inequalities(condition, [i, j])
    assert found is not None
    for size in range(-3, 4):
        holds = False
        for a, b in itertools.product(SPAN, SPAN):
            env = {i: a, j: b, n: size}
            inside = all(
                all(evaluate(low, env) <= env[var] for low in found.lower[var])
                and all(evaluate(high, env) >= env[var] for high in found.upper[var])
                for var in (i, j)
            )
            true = evaluate(condition, env)
            holds = holds or true
            assert not true or inside, (condition, found, env)
            assert not true or evaluate(found.rest, env)
            # Bounds of the variable eliminated first say all that its conditions say.
            rest_of_j = all(evaluate(low, env) <= b for low in found.lower[j]) and all(
                evaluate(high, env) >= b for high in found.upper[j]
            )
            if found.exact and inside and rest_of_j and evaluate(found.rest, env):
                assert true, (condition, found, env)
        if found.exact:
            assert holds == bool(evaluate(found.rest, {n: size})), (condition, found, size)


def test_triangle():
    found = solve_linear_inequalities(and_(i >= j, i + j < n), [i, j])
    assert [*map(repr, found.lower[i])] == ["j"]
    assert Analyzer().can_prove_equal(found.upper[j][0], floordiv(n - 1, 2))
    assert not found.lower[j] and found.exact


def test_contradiction():
    found = solve_linear_inequalities(and_(i >= 5, i <= 3), [i])
    assert repr(found.rest) == "bool(0)"


def test_what_is_not_linear_is_refused():
    assert solve_linear_inequalities(i * j >= 3, [i, j]) is None
    assert solve_linear_inequalities(i % 3 >= j, [i]) is None


def test_known_facts_drop_out():
    known = Analyzer()
    known.bind_positive(n)
    found = solve_linear_inequalities(and_(i >= 0, i < n), [i], analyzer=known)
    assert repr(found.rest) == "bool(1)"


@pytest.mark.parametrize("kind", [Add, Sub])
@pytest.mark.parametrize("dtype", ["int64", "float32"])
def test_sums_of_thousands_of_terms(kind, dtype):
    terms = [Var(f"x{k}", dtype) for k in range(40)]
    total = terms[0]
    for k in range(1, 5000):
        total = kind(total, terms[k % 40])
    made = simplify(total)
    if dtype == "int64":
        env = {var: index * 7 - 50 for index, var in enumerate(terms)}
        expected = env[terms[0]]
        for k in range(1, 5000):
            expected += env[terms[k % 40]] * (1 if kind is Add else -1)
        assert evaluate(made, env) == expected
    else:
        assert made is total  # the order of float operations stays


def test_long_sum_with_an_effect_stays():
    total = call("call_extern", "f", dtype="int64")
    for k in range(2000):
        total = Add(total, i if k % 2 else j)
    assert simplify(total) is total


def test_a_claim_is_proven_for_each_operand_of_minima_and_maxima() -> None:
    known = Analyzer()
    x = Var("x")
    known.bind(x, Range.from_min_extent(const(0), const(9)))
    claim = maximum(x - 1, 0) + minimum(1, x) <= x
    assert can_prove_by_cases(known, claim)
    assert not can_prove_by_cases(known, maximum(x - 1, 0) + minimum(1, x) < x)
    assert can_prove_by_cases(known, maximum(minimum(x, 4), 2) - 2 <= x)
    assert not can_prove_by_cases(known, maximum(minimum(x, 4), 2) <= x)
