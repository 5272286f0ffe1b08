"""Random expressions over symbolic tile factors: what is simplified or proven must hold."""

from __future__ import annotations

import os
import random

from hypothesis import given
from hypothesis import strategies as st

from tests.arith.helpers import evaluate, rng
from tilewright.arith import Analyzer, region_bound
from tilewright.ir import (
    GE,
    LE,
    LT,
    Expr,
    Range,
    Var,
    and_,
    compare,
    const,
    floordiv,
    floormod,
    maximum,
    minimum,
)

f0, f1, f2, n = (Var(name) for name in "f0 f1 f2 n".split())
x, y, z, k = (Var(name) for name in "x y z k".split())
ROUNDS = int(os.environ.get("TILEWRIGHT_FUZZ_SCALE", "1"))
seeds = st.integers(0, 10**9)


def analyzer() -> Analyzer:
    made = Analyzer()
    for var in (f0, f1, f2, n):
        made.bind_positive(var)
    made.bind(x, rng(f0))
    made.bind(y, rng(f1))
    made.bind(z, rng(f2))
    made.bind(k, rng(f1 * f2))
    return made


def point(pick: random.Random) -> dict[Var, int]:
    env = {var: pick.randint(1, 5) for var in (f0, f1, f2, n)}
    env[x] = pick.randrange(env[f0])
    env[y] = pick.randrange(env[f1])
    env[z] = pick.randrange(env[f2])
    env[k] = pick.randrange(env[f1] * env[f2])
    return env


def term(pick: random.Random) -> Expr:
    made: Expr = pick.choice([x, y, z, k, f1, f2, n, const(pick.randint(-3, 6))])
    for _ in range(pick.choice([0, 1, 1, 2])):
        made = made * pick.choice([f1, f2, 2, 3, f0, -1, n + 1])
    return made


def integer(pick: random.Random, depth: int) -> Expr:
    if depth == 0:
        return term(pick)
    a = integer(pick, depth - 1)
    kind = pick.choice("+ + + - // // % % min max".split())
    divisor = pick.choice([f1, f2, f1 * f2, f2 * 2, n + 1, const(4), f0 * f1])
    if kind == "//":
        return floordiv(a, divisor)
    if kind == "%":
        return floormod(a, divisor)
    b = integer(pick, depth - 1)
    if kind == "+":
        return a + b
    if kind == "-":
        return a - b
    return (minimum if kind == "min" else maximum)(a, b)


def mixed_radix(pick: random.Random) -> Expr:
    """Forms that fuse and split make."""
    base = pick.choice([x * f1 * f2 + y * f2 + z, x * f1 * f2 + k, y * f2 + z, x * f1 + y])
    base = base * pick.choice([1, 2, f0]) + pick.choice([0, 0, 1, z])
    for _ in range(pick.randint(1, 3)):
        divisor = pick.choice([f1, f2, f1 * f2, f0, 2 * f2])
        base = (floordiv if pick.random() < 0.5 else floormod)(base, divisor)
    return base


@given(seeds)
def test_simplified_is_equal(seed):
    for step in range(ROUNDS):
        pick = random.Random(seed + step)
        expr = mixed_radix(pick) if pick.random() < 0.5 else integer(pick, 3)
        made = analyzer().simplify(expr)
        for _ in range(20):
            env = point(pick)
            assert evaluate(made, env) == evaluate(expr, env), (expr, made, env)


@given(seeds)
def test_proofs_are_true(seed):
    for step in range(ROUNDS):
        pick = random.Random(seed + step)
        a, b = integer(pick, 2), integer(pick, pick.randint(0, 2))
        known = analyzer()
        equal, less = known.can_prove_equal(a, b), known.can_prove_lt(a, b)
        at_least = known.can_prove_ge(a, b)
        for _ in range(30):
            env = point(pick)
            left, right = evaluate(a, env), evaluate(b, env)
            assert not equal or left == right, (a, b, env)
            assert not less or left < right, (a, b, env)
            assert not at_least or left >= right, (a, b, env)


@given(seeds)
def test_proofs_under_conditions_are_true(seed):
    for step in range(ROUNDS):
        pick = random.Random(seed + step)
        kinds = [LT, LE, GE]
        condition = compare(pick.choice(kinds), integer(pick, 1), integer(pick, 1))
        condition = and_(condition, compare(pick.choice(kinds), term(pick), term(pick)))
        goal = compare(pick.choice(kinds), integer(pick, 1), integer(pick, 1))
        value = integer(pick, 2)
        known = analyzer()
        with known.constraint(condition):
            proven, made = known.simplify(goal), known.simplify(value)
        for _ in range(60):
            env = point(pick)
            if evaluate(condition, env):
                assert bool(evaluate(proven, env)) == evaluate(goal, env), (condition, goal, env)
                assert evaluate(made, env) == evaluate(value, env), (condition, value, made, env)


@given(seeds)
def test_regions_cover(seed):
    for step in range(ROUNDS):
        pick = random.Random(seed + step)
        index = mixed_radix(pick) if pick.random() < 0.3 else integer(pick, 2)
        width = pick.choice([1, 2, f1])
        inner = {y: rng(f1), z: rng(f2), k: rng(f1 * f2)}
        predicate = compare(LT, term(pick), term(pick) + n)
        (found,) = region_bound([rng(width, index)], inner, predicate, analyzer=analyzer())
        low = found.min
        high = found.min + found.extent - 1 if isinstance(found, Range) else found.max
        for _ in range(30):
            env = point(pick)
            if not evaluate(predicate, env):
                continue
            outside = {var: value for var, value in env.items() if var not in inner}
            value = evaluate(index, env)
            if not isinstance(low, float):
                assert evaluate(low, outside) <= value, (index, predicate, found, env)
            if not isinstance(high, float):
                last = value + evaluate(const(width) if isinstance(width, int) else width, env) - 1
                assert evaluate(high, outside) >= last, (index, predicate, found, env)
