"""Identities by family, with the shortest form written out, and each checked on small numbers."""

from __future__ import annotations

import itertools

import pytest

from tests.arith.helpers import evaluate
from tilewright.arith import Analyzer
from tilewright.ir import (
    EQ,
    FALSE,
    GE,
    GT,
    LE,
    LT,
    NE,
    TRUE,
    Broadcast,
    Cast,
    IntImm,
    Mul,
    Not,
    Ramp,
    Select,
    Var,
    and_,
    call,
    const,
    expr_equal,
    free_vars,
    if_then_else,
    maximum,
    minimum,
    not_,
    or_,
    pre_order,
    truncdiv,
    truncmod,
)
from tilewright.ir.dtype import integer_limits

x, y, z, n = Var("x"), Var("y"), Var("z"), Var("n")
p = Var("p", "bool")

DIVISION = [
    (maximum(x * 8, 5) // 8, maximum(x, 0)),
    (maximum(x * 8, -3) // 8, maximum(x, -1)),
    (minimum(x * 3, y) // 3, minimum(x, y // 3)),
    (maximum(x * n * 2, n * 4) // 2, maximum(x * n, n * 2)),
    ((x + 5) // 8 - x // 8, (x % 8 + 5) // 8),
    (x // 3 - (x + 7) // 3, (x % 3 + 7) // 3 * -1),
    ((x + 5) // 2 - x // 2, x % 2 + 2),
    ((x + 1) // 2 - x // 2, x % 2),
    (x - x // 2, (x + 1) // 2),
    (x % 3 // 3 + (x % 3 + 5) // 3 + x // 3, (x + 5) // 3),
    ((x // 3 + 7) // 2, (x + 21) // 6),
    ((x * 3 - 8 + y) // 3, x + (y - 8) // 3),
    ((8 - x * 3) % 4, x % 4),
    ((1 - x) % 2, (x + 1) % 2),
    ((x * 3 + y * 3) % 2, (x + y) % 2),
    ((x % 2 + 1) // 2, x % 2),
    ((x % 2 + 1) % 2, 1 - x % 2),
    (x - x % 4, x // 4 * 4),
    ((x - x % 4) // 4, x // 4),
    ((n + 7) // 8 * 8 - n, 7 - (n + 7) % 8),
    ((x * n) // (n * 3), (x * n) // (n * 3)),
    ((x * n * 2) % (n * 4), n * (x % 2) * 2),
]

TRUNCATION = [
    (x - truncdiv(x, 4) * 4, truncmod(x, 4)),
    (x - truncdiv(x + 7, 8) * 8, truncmod(x + 7, 8) - 7),
    (truncmod(truncdiv(x, 4), 8) * 4 + truncmod(x, 4), truncmod(x, 32)),
    (truncdiv(truncmod(x, 24), 3) + truncdiv(x, 24) * 8, truncdiv(x, 3)),
    (truncdiv(maximum(x * 4, -8), 4), maximum(x, -2)),
    (truncdiv(minimum(x * 4, y), 4), minimum(x, truncdiv(y, 4))),
    (maximum(truncdiv(x, 3), truncdiv(y, 3)), truncdiv(maximum(x, y), 3)),
    (truncdiv(0 - x, 4) + truncdiv(x, 4), IntImm("int64", 0)),
    (truncmod(truncmod(x, 8) * -2, 8), truncmod(x, 4) * -2),
    (truncdiv(x * n, n * 2), truncdiv(x * n, n * 2)),
    (truncmod(x * n, n * 2), n * truncmod(x, 2)),
    (LE(x, truncdiv(x + 7, 8) * 8), TRUE),
    (EQ(x - truncdiv(x, 4) * 4, 7), FALSE),
    (LT(x - truncdiv(x, 4) * 4, 3), LT(truncmod(x, 4), 3)),
]

CHOICE = [
    (minimum(minimum(minimum(x, 3), y), 1), minimum(minimum(x, y), 1)),
    (maximum(maximum(maximum(x, y), 1), y + 1), maximum(maximum(x, 1), y + 1)),
    (minimum(x, 12) - minimum(x + 8, 20), IntImm("int64", -8)),
    (maximum(x - 8, y + 1) - maximum(x, y + 9), IntImm("int64", -8)),
    (maximum(x, y) + minimum(x + 2, y + 2), x + y + 2),
    (minimum(x, y) * maximum(y, x), x * y),
    (0 - maximum(0 - x, 0 - y), minimum(x, y)),
    (2 - minimum(0 - x, 0), maximum(x, 0) + 2),
    (0 - minimum(3 - x, -3), maximum(x - 3, 3)),
    (maximum(x * -2, y * -2), minimum(x, y) * -2),
    (minimum(-1 - x, 8 - x), -1 - x),
    (Select(LT(x, 3), x, const(3)), minimum(x, 3)),
    (Select(LT(x, 3), x, const(2)), minimum(x, 2)),
    (Select(LE(y, x), x, y), maximum(x, y)),
    (Select(LT(x, y), x * 4 + 1, y * 4), minimum(x * 4 + 1, y * 4)),
    (Select(LT(x, y), x * 4 + 5, y * 4), Select(LT(x, y), x * 4 + 5, y * 4)),
    (Select(EQ(x, 7), minimum(x, 12), x), x),
    (if_then_else(NE(x, 0), x * y, 0), x * y),
    (if_then_else(EQ(x, 0), 0, y // x * x), if_then_else(EQ(x, 0), 0, y // x * x)),
]

COMPARISON = [
    (NE(x - x // 3 * 3, 0), NE(x % 3, 0)),
    (GT(x, x // 8 * 8), GT(x % 8, 0)),
    (LE(x, (x + 5) // 8 * 8), LT((x + 5) % 8, 6)),
    (LT(x % 8 // 4, 1), LT(x % 8, 4)),
    (NE(x % 8 // 4, 1), LT(x % 8, 4)),
    (LT(x, y * -8), LT(x, y * -8)),
    (LE(x, y * -8), LE(x, y * -8)),
    (EQ(x * -8, y), EQ(y, x * -8)),
    (LT(minimum(x, 11), 10), LT(x, 10)),
    (NE(maximum(minimum(x, 5), 2), 5), LT(x, 5)),
    (LE(Select(LT(x, 3), x, const(2)), 2), TRUE),
    (LT(Select(p, x + 1, x + 2), x), FALSE),
    (GE(Select(LT(x, 0), 0 - x, x + 1), 1), TRUE),
    (EQ(Select(p, const(1), const(2)), 3), FALSE),
]

LOGIC = [
    (or_(LT(x, y), EQ(y, x)), LE(x, y)),
    (or_(LT(x, y), LT(y, x)), NE(x, y)),
    (or_(GT(x, 1), LT(x, 1)), NE(x, 1)),
    (or_(EQ(x, 1), LT(x, 1)), LT(x, 2)),
    (or_(EQ(x % 4, 1), LT(x % 4, 1)), LT(x % 4, 2)),
    (or_(LT(x - y, 3), GE(x, y + 2)), TRUE),
    (and_(LT(x, 3), GT(x, 1)), EQ(x, 2)),
    (and_(LE(x, y), NE(x, y)), LT(x, y)),
    (and_(LT(x, 3), GT(x, 5)), FALSE),
    (and_(NE(x, 3), LT(x, 4)), LT(x, 3)),
    (and_(NE(x, y), GE(x, y)), LT(y, x)),
    (or_(EQ(x, y), GT(x, y)), LE(y, x)),
]

FAMILIES = [*DIVISION, *TRUNCATION, *CHOICE, *COMPARISON, *LOGIC]
NUMBERS = (-13, -8, -5, -2, -1, 0, 1, 2, 3, 4, 6, 7, 9, 16)


def size(expr):
    return sum(1 for _ in pre_order(expr))


@pytest.mark.parametrize("expr, expected", FAMILIES, ids=lambda e: repr(e)[:60])
def test_shortest_form(expr, expected):
    analyzer = Analyzer()
    made = analyzer.simplify(expr)
    assert expr_equal(made, analyzer.simplify(expected)), made
    assert size(made) <= size(expected), made
    for here, there, symbol, truth in itertools.product(
        NUMBERS, (-7, -1, 0, 2, 3, 5), (-3, 0, 1, 4), (False, True)
    ):
        env = {x: here, y: there, n: symbol, p: truth}
        assert evaluate(made, env) == evaluate(expr, env), (made, env)


def under(*conditions):
    analyzer = Analyzer()
    for condition in conditions:
        analyzer.assume(condition)
    return analyzer


IN_CONTEXT = [
    ([GE(x, 0)], NE(x // 4, 0), LE(4, x)),
    ([GE(x, 2), GE(y, 1)], NE(minimum(x, y), 1), NE(y, 1)),
    ([EQ(x % 4, 0)], EQ((x + 2) // 4, x // 4), TRUE),
    ([EQ(x % 4, 1)], LT((x + 2) // 4, x // 4), FALSE),
    ([LE(x, 0)], truncdiv(truncdiv(x, 6), 6), truncdiv(x, 36)),
    ([LE(x, 0)], truncmod(truncmod(x, 8), 2), truncmod(x, 2)),
    ([GE(x, 0)], (x + 2) // 3 - 1, (x + 2) // 3 - 1),
    ([GE(x, 3)], (x + 2) // 3 - 1, (x - 1) // 3),
]


@pytest.mark.parametrize("known, expr, expected", IN_CONTEXT, ids=lambda e: repr(e)[:60])
def test_shortest_form_where_something_is_known(known, expr, expected):
    analyzer = under(*known)
    made = analyzer.simplify(expr)
    assert expr_equal(made, expected), made
    for env in ({x: here, y: there} for here in range(-20, 21) for there in (-2, 1, 4)):
        if all(evaluate(condition, env) for condition in known):
            assert evaluate(made, env) == evaluate(expr, env), env


def B4(value):
    return Broadcast(value, 4)


MASK = LT(Ramp(x, const(1), 4), B4(y))
u, s = Var("u", "uint8"), Var("s", "int8")
f, g = Var("f", "float32"), Var("g", "float32")

VECTORS = [
    (Ramp(x * 4, const(1), 4) // B4(const(8)), B4(x // 2)),
    (Ramp(x * 4, const(1), 4) % B4(const(8)), Ramp(x % 2 * 4, const(1), 4)),
    (Ramp(x * 16 + 3, const(1), 4) % B4(const(5)), None),
    (Ramp(x * 16 - 1, const(1), 4) % B4(const(16)), Ramp(const(15), const(1), 4) % B4(const(16))),
    (truncdiv(Ramp(x * 4, const(8), 4), B4(const(4))), Ramp(x, const(2), 4)),
    (truncmod(Ramp(x * 4, const(8), 4), B4(const(4))), B4(const(0))),
    (truncdiv(Ramp(x * 4, const(1), 4), B4(const(4))), None),
    (LE(Ramp(x, z, 4), Ramp(y, z, 4)), B4(LE(x, y))),
    (Not(MASK), GE(Ramp(x, const(1), 4), B4(y))),
    (Select(MASK, Ramp(x, const(1), 4), Ramp(x, const(1), 4)), Ramp(x, const(1), 4)),
    (Select(B4(TRUE), Ramp(x, const(1), 4), B4(y)), Ramp(x, const(1), 4)),
    (and_(MASK, B4(TRUE)), MASK),
    (and_(MASK, B4(FALSE)), B4(FALSE)),
    (or_(MASK, Not(MASK)), B4(TRUE)),
    (B4(f) + B4(g), B4(f + g)),
    (LT(B4(f), B4(g)), B4(LT(f, g))),
    (Cast("int8x4", B4(const(3))), B4(const(3, "int8"))),
    (Ramp(u, const(1, "uint8"), 4) + B4(const(200, "uint8")), None),
]


@pytest.mark.parametrize("expr, expected", VECTORS, ids=lambda e: repr(e)[:60])
def test_vectors(expr, expected):
    made = Analyzer().simplify(expr)
    if expected is not None:
        assert expr_equal(made, expected), made
    if {x, y, z}.issuperset(free_vars(expr)):
        for here, there, rise in itertools.product(NUMBERS, (-7, 2, 5), (-2, 3)):
            env = {x: here, y: there, z: rise}
            assert list(lanes(made, env)) == list(lanes(expr, env)), (made, env)


def lanes(expr, env):
    """The value of each lane: vectors replaced by what they hold there."""
    for lane in range(4):
        yield evaluate(at_lane(expr, lane), env)


def at_lane(expr, lane):
    if isinstance(expr, Broadcast):
        return expr.value
    if isinstance(expr, Ramp):
        return expr.base + expr.stride * lane
    return expr.map_children(lambda item: at_lane(item, lane))


NARROW = [
    (and_(LT(u, 2), GT(u, 8)), FALSE),
    (or_(LT(s, 8), GE(s, -1)), TRUE),
    (and_(EQ(u, 2), EQ(u, 3)), FALSE),
    (and_(GE(u, 0), LE(u, 3)), LE(u, 3)),
    (not_(LT(s, 3)), GE(s, 3)),
    (call("abs", u), u),
    (const(0, "uint8") // u, const(0, "uint8")),
    (Select(p, u, Mul(u, u)) + Select(p, Mul(u, u), u), Select(p, u + u * u, u * u + u)),
]


@pytest.mark.parametrize("expr, expected", NARROW, ids=lambda e: repr(e)[:60])
def test_narrow(expr, expected):
    made = Analyzer().simplify(expr)
    assert expr_equal(made, Analyzer().simplify(expected)), made


FLOATS_STAY = [
    not_(LT(f, g)),
    or_(LT(f, g), GE(f, g)),
    or_(LT(f, g), GT(f, g)),
    Select(LT(f, g), f, g),
    f + 0.0,
    f * 0.0,
    f - f,
    EQ(f, f),
]
FLOATS = [
    (or_(LT(f, g), EQ(f, g)), LE(f, g)),
    (and_(LE(f, g), GE(f, g)), EQ(f, g)),
    (and_(LT(f, g), GE(f, g)), FALSE),
    (or_(EQ(f, g), NE(g, f)), TRUE),
    (minimum(Select(p, f, g), Select(p, g, f)), None),
    *((expr, expr) for expr in FLOATS_STAY),
]


@pytest.mark.parametrize("expr, expected", FLOATS, ids=lambda e: repr(e)[:60])
def test_floats(expr, expected):
    """Each holds for NaN, too; what does not, stays."""
    made = Analyzer().simplify(expr)
    assert isinstance(made, Select) if expected is None else expr_equal(made, expected), made


KINDS = (LT, LE, GT, GE, EQ, NE)
SIDES = [
    ((x, y), (x, y)),
    ((x, y), (y, x)),
    ((x, const(1)), (x, const(2))),
    ((x, const(2)), (x, const(1))),
    ((x, const(1)), (const(1), x)),
    ((x - y, const(1)), (y, x)),
    ((x * 2, y), (y + 1, x * 2)),
]


@pytest.mark.parametrize("first, second", SIDES, ids=lambda e: repr(e))
def test_two_comparisons_of_the_same(first, second):
    """All pairs of comparisons, joined in both ways, are what they are joined."""
    points = [{x: a, y: b} for a in range(-3, 5) for b in range(-5, 9)]
    for one, two, join in itertools.product(KINDS, KINDS, (and_, or_)):
        expr = join(one(*first), two(*second))
        made = Analyzer().simplify(expr)
        assert size(made) <= size(expr)
        for env in points:
            assert evaluate(made, env) == evaluate(expr, env), (expr, made, env)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_two_comparisons_of_data_that_wraps(dtype):
    a = Var("a", dtype)
    low, high = integer_limits(dtype)
    numbers = [low, low + 1, 5, 6, high - 1, high]
    for one, two, join in itertools.product(KINDS, KINDS, (and_, or_)):
        for left, right in itertools.product(numbers, repeat=2):
            expr = join(one(a, const(left, dtype)), two(a, const(right, dtype)))
            made = Analyzer().simplify(expr)
            for value in (low, low + 1, 4, 5, 6, 7, high - 1, high):
                assert evaluate(made, {a: value}) == evaluate(expr, {a: value}), (expr, made)
