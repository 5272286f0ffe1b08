"""The simplifier on forms that schedules and lowering make."""

from __future__ import annotations

import pytest

from tests.arith.helpers import rng
from tilewright.arith import Analyzer, simplify
from tilewright.ir import (
    FALSE,
    TRUE,
    Add,
    FloatImm,
    Let,
    Mul,
    Var,
    and_,
    call,
    cast,
    ceildiv,
    const,
    expr_equal,
    floordiv,
    floormod,
    if_then_else,
    maximum,
    minimum,
    not_,
    or_,
    select,
)
from tilewright.support.errors import VerifyError
from tilewright.tir import decl_buffer

i, j, k, f, n, m = (Var(name) for name in "i j k f n m".split())
f0, f1, f2 = Var("f0"), Var("f1"), Var("f2")
x, y, z = Var("x"), Var("y"), Var("z")


@pytest.fixture
def known() -> Analyzer:
    made = Analyzer()
    for var in (f0, f1, f2, n, m):
        made.bind_positive(var)
    made.bind(i, rng(64))
    made.bind(j, rng(16))
    made.bind(x, rng(f0))
    made.bind(y, rng(f1))
    made.bind(z, rng(f2))
    return made


CONSTANT = [
    ((i * 16 + j) // 16, i),
    ((i * 16 + j) % 16, j),
    (i + j - i, j),
    (i // 4 * 4 + i % 4, i),
    ((i // 4 * 4 + i % 4) // 4, i // 4),
    (k // 8 // 4, k // 32),
    (k % 64 // 8, k // 8 % 8),
    (k % 64 % 8, k % 8),
    ((k * 4 + 2) // 8, k // 2),
    (k // 64 * 64 + k // 8 % 8 * 8 + k % 8, k),
    ((i * 32 + j * 2) // 64, i // 2),
    ((k % 49 * 16 + j) // 28 * 28 + (k * 16 + j) % 28, k % 49 * 16 + j),
    ((k + 9) // 4 - 2, (k + 1) // 4),
    (call("shift_left", k, 3) + k * 2, k * 10),
    (k // 4 % 2 * 4 + k % 4, k % 8),
    (k // 8 * 2 + k % 8 // 4, k // 4),
    (k * 2 + 2 - maximum(k * 2 - 1, 0), minimum(3, k * 2 + 2)),
    (call("bitwise_and", k, 7), k % 8),
    (call("truncdiv", i, 4), i // 4),
    (maximum(minimum(k, 5), 7), const(7)),
    (minimum(k + i, k + j), k + minimum(i, j)),
    (minimum(minimum(k, i), i + 3), minimum(k, i)),
    (minimum(i * 16 + 15, 999) - i * 16 + 1, minimum(16, 1000 - i * 16)),
    ((j + 3) % 32, j + 3),
    ((k * 6) % 4 // 2, k % 2),
    (floordiv(0 - k, -4), k // 4),
]


@pytest.mark.parametrize("expr, expected", CONSTANT, ids=lambda e: repr(e))
def test_constant_factors(known, expr, expected):
    assert expr_equal(known.simplify(expr), expected), known.simplify(expr)


SYMBOLIC = [
    ((x * f1 + y) // f1, x),
    ((x * f1 + y) % f1, y),
    ((x * f1 * f2 + y * f2 + z) // (f1 * f2), x),
    ((x * f1 * f2 + y * f2 + z) // f2 % f1, y),
    ((x * f1 * f2 + y * f2 + z) % (f1 * f2) // f2, y),
    ((x * f1 * f2 + y * f2 + z) % f2, z),
    (k // f1 // f2, k // (f1 * f2)),
    ((n * 16) // 16, n),
    ((k * (n + 1)) // (n + 1), k),
    ((x * 4 * f1) // (4 * f1), x),
    ((n * m) % m, const(0)),
    (k // f1 % f2 * f1 + k % f1, k % (f1 * f2)),
    (minimum(n, n + 1), n),
    (maximum(n, 1), n),
]


@pytest.mark.parametrize("expr, expected", SYMBOLIC, ids=lambda e: repr(e))
def test_symbolic_factors(known, expr, expected):
    assert expr_equal(known.simplify(expr), expected), known.simplify(expr)


CONDITIONS = [
    (i * 16 + j < 1008, i < 63),
    (i * 16 + j < 1024, TRUE),
    (i < 100, TRUE),
    (i < 0, FALSE),
    (x * f1 + y < f0 * f1, TRUE),
    (i >= 1, 1 * const(1) <= i),
    (and_(i < 5, i < 3), i < 3),
    (or_(i < 5, i >= 5), TRUE),
    (and_(i < 5, i > 7), FALSE),
    (k // 4 < 3, k < 12),
    (k // 4 >= 5, const(20) <= k),
    (n // 4 * 4 <= n, TRUE),
    (ceildiv(n, 16) * 16 >= n, TRUE),
    (ceildiv(n, 16) * 16 - n < 16, TRUE),
    (k * 2 == k + k, TRUE),
    (k * 2 == 2 * k + 1, FALSE),
    (k * 4 + 1 == j * 2, FALSE),
    (k + 3 == 5, k == 2),
    (i + 1 != 0, TRUE),
    (not_(k < 3), const(3) <= k),
    (minimum(i, j) <= j, TRUE),
]


@pytest.mark.parametrize("expr, expected", CONDITIONS, ids=lambda e: repr(e))
def test_conditions(known, expr, expected):
    assert expr_equal(known.simplify(expr), expected), known.simplify(expr)


def test_the_same_object_comes_back(known):
    buffer = decl_buffer((64, 64))
    for expr in (
        i * 16 + k,
        (k + 3) // 4,
        k * n + m,
        buffer[i, k + 1] * 2.0 + 1.0,
        i * 16 + j < 1000,
        if_then_else(i < 5, buffer[i, j], 0.0),
        and_(i < 5, j < 3),
        minimum(16, n - i * 16),
        x * f1 * f2 + y * f2,
    ):
        assert known.simplify(expr) is expr


def test_numbers_and_variables_come_back():
    dtypes = ("int64", "int8", "uint32", "bool", "float32", "float16")
    leaves = [leaf for dtype in dtypes for leaf in (const(0, dtype), const(1, dtype))]
    for expr in (*leaves, *(Var("v", dtype) for dtype in dtypes), const(float("nan"), "float32")):
        assert simplify(expr) is Analyzer().simplify(expr) is expr


def test_loads_are_simplified_inside(known):
    buffer = decl_buffer((64, 16))
    made = known.simplify(buffer[(i * 16 + j) // 16, (i * 16 + j) % 16] * 1.0)
    assert expr_equal(made, buffer[i, j])


def test_floats_are_not_reassociated():
    a, b = Var("a", "float32"), Var("b", "float32")
    for expr in ((a + b) - a, a * 0.0, a + 0.0, a - a, (a + 1.0) + 2.0):
        assert simplify(expr) is expr
    assert simplify(Mul(a, FloatImm("float32", 1.0))) is a


def test_branches_know_their_condition(known):
    made = known.simplify(select(i < 5, minimum(i, 5), maximum(i, 4)))
    assert made is i
    padded = if_then_else(and_(i >= 1, i < 5), (i - 1) % 8, 99)
    assert expr_equal(known.simplify(padded), if_then_else(and_(const(1) <= i, i < 5), i - 1, 99))


def test_constraints_are_scoped(known):
    with known.constraint(k < 4):
        with known.constraint(k >= 0):
            assert known.can_prove(k // 4 == 0)
        assert not known.can_prove(k // 4 == 0)
    assert not known.can_prove(k < 4)


def test_product_constraint(known):
    with known.constraint(f0 * f1 * f2 == 512):
        assert known.can_prove_equal(f0 * f1 * f2 * 2, 1024)
        assert known.can_prove_equal(f2 * f0 * f1 + 1, 513)
        assert expr_equal(known.simplify(minimum(f0 * f1 * f2, 1000)), const(512))
        assert known.can_prove(x * f1 * f2 + y * f2 + z < 512)
    assert not known.can_prove_equal(f0 * f1 * f2, 512)


def test_divisibility_constraint(known):
    with known.constraint(n % 4 == 0):
        assert expr_equal(known.simplify(n // 4 * 4), n)
        assert known.modular_set(n + 1).coeff == 4
        assert known.can_prove((n + 2) % 4 == 2)


def test_predicate_as_fact(known):
    with known.constraint(i * 16 + j < 1000):
        assert known.can_prove_lt(i * 16 + j, 1000)
        assert known.const_int_bound(i * 16 + j).max == 999
        assert known.can_prove_lt(i * 32 + j * 2, 2000)
    with known.constraint(and_(x * f1 + y < n, y > 2)):
        assert known.can_prove_le(x * f1 + 4, n)


def test_inequality_is_remembered(known):
    with known.constraint(const(3) != k):
        assert known.can_prove(k != 3)
        assert expr_equal(known.simplify(k - 3 == 0), FALSE)
    with known.constraint(j != 0):
        assert known.const_int_bound(j).min == 1


def test_unknown_truth_values_are_remembered(known):
    flag, a = Var("flag", "bool"), Var("a", "float32")
    made = known.simplify(select(flag, select(and_(flag, a < 1.0), 1, 2), 3))
    assert expr_equal(made, select(flag, select(a < 1.0, 1, 2), 3))


def test_modular_and_bounds(known):
    assert known.modular_set(k * 6 + 4) == type(known.modular_set(k))(6, 4)
    bound = known.const_int_bound(i * 3 - j)
    assert (bound.min, bound.max) == (-15, 189)
    assert known.const_int_bound(cast(Var("u", "uint8"), "int64")).max == 255
    assert known.const_int_bound(k).max == float("inf")


def test_binding_twice_is_refused(known):
    known.bind(i, rng(64))
    with pytest.raises(VerifyError, match="i is bound already"):
        known.bind(i, rng(32))
    known.bind(i, rng(32), override=True)
    assert known.const_int_bound(i).max == 31


def test_bound_values_are_put_in(known):
    known.bind(k, i + 1)
    assert expr_equal(known.simplify(k * 2 - 2), i * 2)
    known.bind(m, rng(1, 7), override=True)
    assert expr_equal(known.simplify(m + n), n + 7)


def test_copies_are_independent(known):
    other = known.copy()
    other.bind(k, rng(4))
    assert other.can_prove(k < 4)
    assert not known.can_prove(k < 4)


def test_let_is_simplified():
    assert expr_equal(simplify(Let(k, const(3), k + n)), n + 3)
    assert simplify(Let(k, Add(n, const(0)), k * 2)) is not None


def test_memory_conditions_are_not_learnt(known):
    buffer = decl_buffer((64,), "int64")
    with known.constraint(buffer[i] < 5):
        assert not known.can_prove(buffer[i] < 5)


def test_overflowing_constants_are_left():
    big = Var("b", "int32")
    expr = Mul(Mul(big, const(2**20, "int32")), const(2**20, "int32"))
    made = simplify(expr)
    assert made is expr


def test_a_mask_of_all_but_the_sign_is_no_remainder():
    for bits in (32, 64):
        value = Var("b", f"int{bits}")
        masked = call("bitwise_and", value, const(2 ** (bits - 1) - 1, f"int{bits}"))
        assert simplify(masked) is masked


def test_negative_divisors(known):
    assert expr_equal(known.simplify(floormod(i, -4)), floormod(i, -4)) or known.can_prove_equal(
        floormod(i, -4), known.simplify(floormod(i, -4))
    )


def test_a_part_of_a_positive_product_is_positive(known):
    a, b, c, loop = Var("a"), Var("b"), Var("c"), Var("loop")
    known.assume(a >= 0)
    known.assume(b * c >= 0)
    with known.constraint(TRUE):
        known.bind(loop, rng(a * b * c))
        assert known.can_prove(b * c >= 1) and known.can_prove(a >= 1)
        assert not known.can_prove(b >= 1)  # both may be negative
    with known.constraint(TRUE):
        known.bind(loop, rng(b * c * i))
        assert known.can_prove(b * c >= 1)


def test_a_sum_that_divides_a_positive_product_is_positive(known):
    a, b, n, loop = Var("a"), Var("b"), Var("n"), Var("loop")
    known.limit(n, 0)
    for size in (a + 3, (b + 1) // 2 - 1):
        known.assume(size >= 0)
    product = known.simplify(n * (a + 3) * ((b + 1) // 2 - 1))
    assert known.can_prove(product >= 0)
    assert not known.can_prove(a + 3 >= 1) and not known.can_prove((b + 1) // 2 >= 2)
    with known.constraint(TRUE):
        known.bind(loop, rng(product))
        assert known.can_prove(n >= 1) and known.can_prove(a + 3 >= 1)
        assert known.can_prove((b + 1) // 2 >= 2)
        assert not known.can_prove(a + 3 >= 2)


def test_a_range_may_end_at_a_product_of_quotients(known):
    a, b, loop = Var("a"), Var("b"), Var("loop")
    for var in (a, b):
        known.limit(var, 0)
    known.bind(loop, rng(a // 4 * (b // 4)))
    assert expr_equal(known.simplify((j + loop // (a // 4 * (b // 4))) // 16), const(0))
    assert expr_equal(known.simplify(loop // (a // 4) % (b // 4)), loop // (a // 4))


def test_inside_a_loop_its_extent_is_positive(known):
    a, b, loop = Var("a"), Var("b"), Var("loop")
    for var in (a, b):
        known.limit(var, 0)
    with known.constraint(TRUE):
        known.bind(loop, rng((a + 15) // 16 * b))
        assert known.can_prove(a >= 1) and known.can_prove(b >= 1)
        assert not known.can_prove(a >= 2)
    with known.constraint(TRUE):
        known.bind(loop, rng(minimum(b - 2, a * 3)))
        assert known.can_prove(b >= 3) and known.can_prove(a >= 1)
    with known.constraint(TRUE):
        known.bind(loop, rng((a - 2) * (b - 2)))
        assert not known.can_prove(a >= 1)  # both factors may be negative
    assert not known.can_prove(a >= 1)
