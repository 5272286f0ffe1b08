"""Division towards zero, narrow integers, and comparisons that one side decides."""

from __future__ import annotations

import itertools

import pytest

from tests.arith.helpers import evaluate, rng
from tilewright.arith import Analyzer
from tilewright.ir import (
    EQ,
    FALSE,
    LE,
    LT,
    NE,
    TRUE,
    Add,
    BinaryExpr,
    Broadcast,
    Cast,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Ramp,
    Select,
    Sub,
    Var,
    call,
    cast,
    const,
    expr_equal,
    maximum,
    minimum,
    pre_order,
    truncdiv,
    truncmod,
)
from tilewright.ir.dtype import integer_limits
from tilewright.ir.integers import wrap_integer

x, y, z, i = Var("x"), Var("y"), Var("z"), Var("i")
b, u, f = Var("b", "int8"), Var("u", "uint8"), Var("f", "float32")


@pytest.fixture
def known() -> Analyzer:
    analyzer = Analyzer()
    analyzer.bind(i, rng(16))
    return analyzer


TRUNCATED = [
    (truncdiv(truncdiv(x, 6), 6), truncdiv(x, 36)),
    (truncdiv(x * 8, 2), x * 4),
    (truncdiv(x * 2, 4), truncdiv(x, 2)),
    (truncdiv(x + z, 1), x + z),
    (truncdiv(x, -1), x * -1),
    (truncmod(x * 12, 3), const(0)),
    (truncmod(truncmod(x, 12), 4), truncmod(x, 4)),
    (truncmod(x, -12), truncmod(x, 12)),
    (truncdiv(x * 5, x), truncdiv(x * 5, x)),
    (truncmod(x * 5, x), const(0)),
    (truncdiv(x * 5 + x * i, i + 5), x),
    (truncdiv(i, 4), i // 4),
    (truncmod(i - 16, 4) <= 0, TRUE),
    (truncdiv(i - 8, 16), const(0)),
    (truncmod(i - 8, 16), i - 8),
    (truncdiv(x + 1, 7) < 5, x < 34),
    (truncdiv(x, 4) >= 0, x >= -3),
    (truncdiv(x, 4) >= 2, x >= 8),
    (truncdiv(x, 4) < -1, x <= -8),
]


@pytest.mark.parametrize("expr, expected", TRUNCATED, ids=lambda e: repr(e))
def test_truncated_divisions(known, expr, expected):
    assert expr_equal(known.simplify(expr), known.simplify(expected)), known.simplify(expr)


@pytest.mark.parametrize("divisor", [-4, -3, -1, 1, 2, 3, 6])
def test_truncated_divisions_keep_their_value(divisor):
    numerators = [x, x * 2, x * 6 + 3, truncdiv(x, 3), truncmod(x, 6), x - 2]
    for numerator, made in itertools.product(numerators, (truncdiv, truncmod)):
        quotient = made(numerator, divisor)
        for expr in (quotient, quotient >= -1, quotient <= 1, quotient >= 2, quotient < -2):
            simpler = Analyzer().simplify(expr)
            for value in range(-40, 41):
                assert evaluate(simpler, {x: value}) == evaluate(expr, {x: value}), (expr, value)


NARROW = [
    (b + 3 - 3, b),
    (Mul(b, IntImm("int8", 0)), IntImm("int8", 0)),
    (Add(IntImm("int8", 100), IntImm("int8", 100)), IntImm("int8", -56)),
    (b * 64 * 4, IntImm("int8", 0)),
    (EQ(b + 1, cast(u, "int8") + 1), EQ(b, cast(u, "int8"))),
    (u < 0, FALSE),
    (u <= 255, TRUE),
    (u % 16 < 16, TRUE),
    (u // 16 + u % 16 < 31, TRUE),
    (minimum(u % 4, const(9, "uint8")), u % 4),
    (cast(cast(u, "int32"), "uint8"), u),
    (cast(cast(i - 8, "int8"), "int64"), i - 8),
    (cast(cast(x, "int8"), "int64"), cast(cast(x, "int8"), "int64")),
    (Cast("float32", Cast("float64", f)), f),
]


@pytest.mark.parametrize("expr, expected", NARROW, ids=lambda e: repr(e))
def test_narrow_integers(known, expr, expected):
    assert expr_equal(known.simplify(expr), expected), known.simplify(expr)


def wrapped(expr: Expr, env: dict[Var, int]) -> int:
    """The value of narrow arithmetic: every result wraps."""
    if isinstance(expr, Cast):
        return wrap_integer(wrapped(expr.value, env), expr.dtype)
    if not isinstance(expr, BinaryExpr):
        return evaluate(expr, env)
    operands = [const(wrapped(side, env), side.dtype) for side in (expr.a, expr.b)]
    value = evaluate(type(expr)(*operands), {})
    return value if expr.dtype == "bool" else wrap_integer(value, expr.dtype)


@pytest.mark.parametrize("var", [b, u], ids=["int8", "uint8"])
@pytest.mark.parametrize("kind", [Add, Sub, Mul, Min, Max, FloorDiv, FloorMod, LT, LE, EQ, NE])
def test_narrow_operators_at_all_values(var, kind):
    operands = [var, var * 3, var + 100, var % 7, var // 16, var * 2 - 5]
    constants = [const(value, var.dtype) for value in (0, 1, 2, 7, 127)]
    for first, second in itertools.product(operands, [*operands[:3], *constants]):
        if kind in (FloorDiv, FloorMod) and not (isinstance(second, IntImm) and second.value):
            continue
        expr = kind(first, second)
        simpler = Analyzer().simplify(expr)
        assert simpler.dtype == expr.dtype
        for value in range(-128, 128, 3) if var is b else range(0, 256, 3):
            assert wrapped(simpler, {var: value}) == wrapped(expr, {var: value}), (expr, simpler)


DECIDED = [
    (maximum(y, i) <= 20, y < 21),
    (minimum(x, y + 3) >= x, x <= y + 3),
    (minimum(i, y) <= -4, y < -3),
    (EQ(minimum(x, y), x), x <= y),
    (NE(maximum(x, y), y), y < x),
    (minimum(maximum(z, x), maximum(z, y)), maximum(z, minimum(x, y))),
    (x - 1 < y, x <= y),
    ((x * 5 + 1) % 4, (x + 1) % 4),
    ((i + 7) // 8 + 2, (i + 23) // 8),
    (Min(Select(x < 3, x, y), Select(x < 3, z, i)), Select(x < 3, minimum(x, z), minimum(y, i))),
    (Select(x < 3, x, y) * (z - 3), Select(x < 3, x, y) * (z - 3)),
]


@pytest.mark.parametrize("expr, expected", DECIDED, ids=lambda e: repr(e))
def test_one_side_decides(known, expr, expected):
    assert expr_equal(known.simplify(expr), expected), known.simplify(expr)


VECTORS = [
    (Ramp(x, const(4), 4) // 4, Ramp(x // 4, const(1), 4)),
    (Ramp(x, const(4), 4) % 4, Broadcast(x % 4, 4)),
    (Ramp(i * 4, const(1), 4) // 4, Broadcast(i, 4)),
    (Ramp(i * 4, const(1), 4) % 4, Ramp(const(0), const(1), 4)),
    (Ramp(i, const(1), 4) < 19, Broadcast(TRUE, 4)),
    (minimum(Ramp(i, const(1), 4), Broadcast(const(40), 4)), Ramp(i, const(1), 4)),
    (LT(Broadcast(x, 4), Broadcast(y, 4)), Broadcast(x < y, 4)),
    (truncmod(Broadcast(x, 4), Broadcast(const(5), 4)), Broadcast(truncmod(x, 5), 4)),
    (Add(Broadcast(b, 4), Broadcast(b, 4)), Broadcast(b + b, 4)),
]


@pytest.mark.parametrize("expr, expected", VECTORS, ids=lambda e: repr(e))
def test_vectors(known, expr, expected):
    assert expr_equal(known.simplify(expr), expected), known.simplify(expr)


def test_a_ramp_across_zero_is_not_truncated_as_one():
    # truncdiv(-1, 2) and truncdiv(1, 2) are both 0: no ramp.
    expr = truncdiv(Ramp(x, const(2), 4), Broadcast(const(2), 4))
    assert Analyzer().simplify(expr) is expr


BOUNDS = [
    (truncdiv(i - 20, 3), -6, -1),
    (truncdiv(i - 8, y), -8, 8),
    (truncmod(i - 8, -3), -2, 2),
    (call("shift_right", i, 2), 0, 3),
    (call("shift_left", i, i % 3), 0, 60),
    ((i - 8) // y, -8, 8),
    (i // (i - 4), -15, 15),
]


@pytest.mark.parametrize("expr, low, high", BOUNDS, ids=lambda e: repr(e))
def test_bounds_of_divisions_and_shifts(known, expr, low, high):
    found = known.const_int_bound(expr)
    assert low <= found.min and found.max <= high, found
    for here, there in itertools.product(range(16), range(-9, 10)):
        env = {i: here, y: there}
        assert found.min <= evaluate(expr, env) <= found.max, env


PAIRED = [
    (maximum(x, y) + minimum(x, y), x + y),
    (maximum(x, 4) + minimum(4, x) - 4, x),
    (minimum(y, x) * 3 + z + maximum(x, y) * 3, z + y * 3 + x * 3),
    (maximum(x, y) + minimum(x, z), maximum(x, y) + minimum(x, z)),
    (maximum(x, y) * 2 + minimum(x, y), maximum(x, y) * 2 + minimum(x, y)),
    ((x % 2 + 7) // 2 + x // 2, (x + 7) // 2),
    ((x % 6 * 2 + 5) // 3 + x // 6 * 4, (x * 2 + 5) // 3),
    ((x % 3 + 7) // 3 + y // 3, (x % 3 + 7) // 3 + y // 3),
    (truncdiv(x, 3) * 3 + truncmod(x, 3), x),
    (truncmod(x - y, 3) * 2 + truncdiv(x - y, 3) * 6, x * 2 - y * 2),
    (truncdiv(x * 4, 6) * 6 + truncmod(x * 4, 6), x * 4),
    (truncmod(x, y) + truncdiv(x, y) * y, truncmod(x, y) + truncdiv(x, y) * y),
    (truncdiv(x, 3) * 6 + truncmod(x, 3), truncdiv(x, 3) * 6 + truncmod(x, 3)),
    (x - x // 3 * 3, x % 3),
    (z + x * 2 - x // 4 * 8, z + x % 4 * 2),
    (x - x // 3 * 4, x - x // 3 * 4),
    (minimum(x // 3, y // 3), minimum(x, y) // 3),
    (maximum(x // 2, y // 3), maximum(x // 2, y // 3)),
]


@pytest.mark.parametrize("expr, expected", PAIRED, ids=lambda e: repr(e))
def test_pairs_of_terms(expr, expected):
    made = Analyzer().simplify(expr)
    assert expr_equal(made, expected), made
    assert sum(1 for _ in pre_order(made)) <= sum(1 for _ in pre_order(expr))
    for here, there, other in itertools.product(
        range(-13, 14), [-7, -3, -1, 0, 1, 2, 5, 12], [-4, 6]
    ):
        env = {x: here, y: there, z: other}
        assert evaluate(made, env) == evaluate(expr, env), (made, env)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_pairs_of_narrow_terms_wrap(dtype):
    # A sum of the two may leave the type: pairs have to come out the same modulo 2**8.
    a, c = Var("a", dtype), Var("c", dtype)
    two = const(2, dtype)
    low, high = integer_limits(dtype)
    points = [low, low + 1, -1 % 256 if low == 0 else -1, 0, 1, 2, 5, high - 1, high]
    for wide in (False, True):
        first, second = (Cast("int32", a), Cast("int32", c)) if wide else (a, c)
        by = const(2, first.dtype) if wide else two
        for expr in (
            Max(first, second) + Min(first, second),
            first - FloorDiv(first, by) * by,
            FloorDiv(FloorMod(first, by) + 7, by) + FloorDiv(first, by),
            Min(FloorDiv(first, by), FloorDiv(second, by)),
        ):
            made = Analyzer().simplify(expr)
            for here, there in itertools.product(points, points):
                env = {a: here, c: there}
                assert wrapped(made, env) == wrapped(expr, env), (expr, made, env)


_V, _W = Ramp(x, const(1), 4) % Broadcast(y, 4), Ramp(x, y, 4)
_U = Cast("uint8x4", Ramp(x, const(1), 4))


def _repeated(value: int, dtype: str = "int64") -> Expr:
    return Broadcast(const(value, dtype), 4)


TRIVIAL_VECTORS = [
    (Add(_V, _repeated(0)), _V),
    (Mul(_repeated(1), _V), _V),
    (Mul(_V, _repeated(0)), _repeated(0)),
    (FloorDiv(_U, _repeated(1, "uint8")), _U),
    (FloorMod(_U, _repeated(1, "uint8")), _repeated(0, "uint8")),
    (truncmod(_V, _repeated(1)), _repeated(0)),
    (Sub(_repeated(0), _V), Sub(_repeated(0), _V)),
    (Sub(_U, _U), _repeated(0, "uint8")),
    (LT(_U, _U), Broadcast(FALSE, 4)),
    (EQ(_V, _V), Broadcast(TRUE, 4)),
    (Max(_U, _U), _U),
    (Min(Min(_V, _repeated(9)), _repeated(4)), Min(_V, _repeated(4))),
    (Max(Min(_V, _repeated(9)), _repeated(4)), Max(Min(_V, _repeated(9)), _repeated(4))),
    (Sub(_W, _W), _repeated(0)),
    (Sub(Ramp(x, const(2), 4), Ramp(z, const(2), 4)), Broadcast(x - z, 4)),
]


@pytest.mark.parametrize("expr, expected", TRIVIAL_VECTORS, ids=lambda e: repr(e))
def test_vectors_with_nothing_to_compute(expr, expected):
    assert expr_equal(Analyzer().simplify(expr), expected), Analyzer().simplify(expr)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_least_divisor(dtype):
    # It has no magnitude of its type.
    a, (low, high) = Var("a", dtype), integer_limits(dtype)
    for divide in (truncmod, truncdiv):
        expr = divide(a, const(low, dtype))
        made = Analyzer().simplify(expr)
        for here in (low, low + 1, -1, 0, high):
            assert evaluate(made, {a: here}) == evaluate(expr, {a: here})


def test_ramps_of_data_wrap():
    a = Var("a", "int32")
    ramp, repeated = Ramp(a, const(3, "int32"), 4), Broadcast(a, 4)
    three = Broadcast(const(3, "int32"), 4)
    cases = [
        (Max(ramp, repeated), ramp),
        (LT(ramp, repeated), Broadcast(FALSE, 4)),
        (ramp // three, Ramp(FloorDiv(a, const(3, "int32")), const(1, "int32"), 4)),
        (ramp % three, Broadcast(FloorMod(a, const(3, "int32")), 4)),
    ]
    for high, whole in ((2**31 - 1, False), (2**31 - 10, True), (None, True)):
        known = Analyzer()
        if high is not None:  # else it is an index, which is taken not to overflow
            known.mark_data(a)
            known.limit(a, 0, high)
        for expr, expected in cases:
            made = known.simplify(expr)
            assert expr_equal(made, expected if whole else expr), (high, made)
