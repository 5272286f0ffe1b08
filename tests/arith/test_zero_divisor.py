"""Division by what turns out to be zero gives zero, and nothing may trip."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.arith.helpers import evaluate, rng
from tilewright import compile, te
from tilewright.arith import Analyzer, ModularSet, simplify
from tilewright.ir import (
    NE,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Var,
    const,
    expr_equal,
    floordiv,
    floormod,
    is_const,
    maximum,
    minimum,
    pre_order,
    truncdiv,
    truncmod,
)
from tilewright.tir.interpreter import run

x, y, z, n, i = (Var(name) for name in "x y z n i".split())
DIVISIONS: tuple[Callable[[Any, Any], Expr], ...] = (floordiv, floormod, truncdiv, truncmod)

# Shorter where the divisor is known not to be zero, and what is true of any divisor.
ONLY_OF_NUMBERS = [
    (floordiv(x, x), const(1)),
    (floordiv(x * y, y), x),
    (floordiv(y * x + z, y), x + floordiv(z, y)),
    (floordiv(x * y, z * y), floordiv(x, z)),
    (floordiv(x * y + y * 3, y), x + 3),
    (truncdiv(x, x), const(1)),
    (truncdiv(x * y, y * 2), truncdiv(x, 2)),
    (floordiv(x, y) * y + floormod(x, y), x),
    (x - floormod(x, y), y * floordiv(x, y)),
    (floordiv(x * x + x * y, x + y), x),
    (floormod(floormod(x, y * 4) + z, 4), floormod(x + z, 4)),
    (floordiv(floormod(x, y * 4), 4) + y * floordiv(x, y * 4), floordiv(x, 4)),
    (floormod(floormod(x, y * z) + 1, z), floormod(x + 1, z)),
]
OF_ANY = [
    (floormod(x, x), const(0)),
    (floormod(x * y + z, y), floormod(z, y)),
    (floormod(x * y, y), const(0)),
    (floormod(floormod(x, y), y), floormod(x, y)),
    (floormod(floormod(x, y * 3) + z, y), floormod(x + z, y)),
    (floormod(x * y * 2, y * 4), floormod(x, 2) * y * 2),
    (truncmod(x, x), const(0)),
    (truncmod(x * y, y * 2), truncmod(x, 2) * y),
    (floordiv(const(0), y), const(0)),
    (floormod(const(0), y), const(0)),
]


def test_divisions_by_zero_are_zero() -> None:
    x, zero = Var("x"), IntImm("int64", 0)
    for expr in (
        FloorMod(x, zero),
        FloorDiv(x, zero),
        FloorMod(FloorMod(x, IntImm("int64", 6)) * 2 + 1, zero),
        FloorDiv(FloorMod(x, IntImm("int64", 6)) + x, FloorMod(x * 0, IntImm("int64", 3)) * 0),
    ):
        made = Analyzer().simplify(expr)
        bound = Analyzer().const_int_bound(expr)
        assert is_const(made, 0) and (bound.min, bound.max) == (0, 0)


@pytest.mark.parametrize("expr, short", ONLY_OF_NUMBERS, ids=repr)
def test_what_a_zero_divisor_would_make_wrong(expr: Expr, short: Expr) -> None:
    """It is left alone, unless the divisor is known to be positive."""
    assert not Analyzer().can_prove_equal(expr, short)
    known = Analyzer()
    for var in (x, y, z):
        known.bind_positive(var)
    assert expr_equal(known.simplify(expr), known.simplify(short))
    inside = Analyzer()
    for var in (x, y, z):  # extents of loops, which can't be zero inside of these
        inside.bind(Var(f"i_{var.name}"), rng(var))
    assert expr_equal(inside.simplify(expr), inside.simplify(short))


@pytest.mark.parametrize("expr, short", OF_ANY, ids=repr)
def test_what_holds_of_any_divisor(expr: Expr, short: Expr) -> None:
    assert Analyzer().can_prove_equal(expr, short)
    assert size(simplify(expr)) <= size(short)


def test_remainders_by_what_may_be_zero_have_no_residue() -> None:
    expr = floormod(x * 4 + 1, y * 4)
    known = Analyzer()
    assert known.modular_set(expr) == ModularSet(1, 0)
    assert not known.can_prove(NE(expr, 0))
    known.bind_positive(y)
    assert known.modular_set(expr) == ModularSet(4, 1)
    assert known.can_prove(NE(expr, 0))


def test_negative_divisors_leave_no_positive_rest() -> None:
    """``(x % 4 * 2 + 1) % (n * 2)`` is ``x % 4 % n * 2 + 1`` for a positive n only."""
    known = Analyzer()
    known.limit(n, maximum=-1)
    for divide in (floordiv, floormod):
        expr = divide(floormod(x, 4) * 2 + 1, n * 2)
        for here, size in itertools.product(range(4), range(-4, 0)):
            env = {x: here, n: size}
            assert evaluate(known.simplify(expr), env) == evaluate(expr, env), env


def size(expr: Expr) -> int:
    return sum(1 for _ in pre_order(expr))


def drawn(pick: random.Random, depth: int) -> Expr:
    """A random expression, most of its divisors variables."""
    if depth == 0 or pick.random() < 0.15:
        return pick.choice([x, y, n, x, y, n, const(pick.randint(-3, 5))])
    a, b = drawn(pick, depth - 1), drawn(pick, depth - 1)
    made: Expr = pick.choice([
        lambda: a + b, lambda: a - b, lambda: a * pick.choice([x, y, n, 2, -3, b]),
        lambda: minimum(a, b), lambda: maximum(a, b),
        *(lambda f=f: f(a, pick.choice([x, y, n, n * 2, x * y, x + n, b])) for f in DIVISIONS),
        *(lambda f=f: f(a * y, pick.choice([y, y * 2, y * n])) for f in DIVISIONS),
        *(lambda f=f: f(a * n + b, n) for f in DIVISIONS),
        lambda: floordiv(a, n) * n + floormod(a, n),
        lambda: truncdiv(a, y) * y + truncmod(a, y),
        lambda: floormod(floormod(a, n * 4) + b, 4),
        lambda: floordiv(floormod(a, y * 3), 3) + y * floordiv(a, y * 3),
        lambda: floormod(a * 2 + 1, n * 2),
    ])()  # fmt: skip
    return made


@given(st.integers(0, 10**9))
def test_random_expressions_with_divisors_that_may_be_zero(seed: int) -> None:
    expr = drawn(random.Random(seed), 3)
    known, sized, below = Analyzer(), Analyzer(), Analyzer()
    below.limit(n, maximum=-1)
    sized.bind(x, rng(n))
    sized.limit(y, 0, 3)
    made, within, negative = (item.simplify(expr) for item in (known, sized, below))
    bound, residue = known.const_int_bound(expr), known.modular_set(expr)
    for here, there, size in itertools.product((-4, -1, 0, 1, 2, 5), (-3, 0, 1, 3), (-2, 0, 1, 4)):
        env = {x: here, y: there, n: size}
        value = evaluate(expr, env)
        assert evaluate(made, env) == value, (made, env)
        assert bound.min <= value <= bound.max
        distance = value - residue.base
        assert distance % residue.coeff == 0 if residue.coeff else distance == 0
        if 0 <= here < size and there >= 0:
            assert evaluate(within, env) == value, (within, env)
        if size < 0:
            assert evaluate(negative, env) == value, (negative, env)


@pytest.mark.parametrize("dtype", ["int64", "int32", "int8", "uint8", "uint32"])
def test_loops_that_divide_by_their_variables(dtype: str) -> None:
    """Interpreted and compiled: zero where the divisor is."""

    def body(i: Var) -> Expr:
        v = i.astype(dtype)
        return v // v * 7 + (v * 3) // v + v % v + (v * 2 + 1) % v

    out = te.compute((6,), body, name="out")
    func = te.create_prim_func([out])
    wanted = np.array([0, *(7 + 3 + (2 * v + 1) % v for v in range(1, 6))], dtype)
    for call in (lambda a: run(func, a), compile(func)):
        found = np.full(6, 99, dtype)
        call(found)
        np.testing.assert_array_equal(found, wanted)


def test_scalars_that_are_divided_by_themselves() -> None:
    m = te.var("m", "int64")
    out = te.compute((2,), lambda i: (m * (i + 3)) // m + (m * i + 5) // m, name="out")
    func = te.create_prim_func([m, out])
    for call in (lambda *a: run(func, *a), compile(func)):
        for value in (0, 1, -2, 7):
            found = np.zeros(2, "int64")
            call(value, found)
            assert found.tolist() == [
                0 if value == 0 else i + 3 + (value * i + 5) // value for i in range(2)
            ]
