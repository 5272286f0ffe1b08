from __future__ import annotations

import operator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright import ir
from tilewright.ir import (
    EQ,
    Add,
    Broadcast,
    Call,
    Cast,
    FloatImm,
    FloorDiv,
    IntImm,
    Mul,
    Ramp,
    Select,
    Var,
    as_int,
    const,
    is_const,
)
from tilewright.ir.dtype import integer_limits
from tilewright.support.errors import VerifyError


def test_python_numbers_take_the_dtype_of_the_expression() -> None:
    x = Var("x", "float16")
    made = x + 1
    assert isinstance(made, Add) and made.dtype == "float16"
    assert isinstance(made.b, FloatImm) and made.b.dtype == "float16"


def test_the_wider_type_wins() -> None:
    made = Var("a", "int32") + Var("b", "int64")
    assert made.dtype == "int64" and isinstance(made.a, Cast)
    assert (Var("a", "int64") + Var("b", "float32")).dtype == "float32"


def test_an_integer_next_to_a_float_number_becomes_a_float() -> None:
    assert (Var("i") + 0.5).dtype == "float32"


def test_scalars_spread_over_vectors() -> None:
    made = Ramp(const(0), const(1), 4) + Var("i")
    assert made.dtype == "int64x4" and isinstance(made.b, Broadcast)


@given(st.integers(-50, 50), st.integers(-50, 50))
def test_integer_constants_fold_as_python_computes(a: int, b: int) -> None:
    x, y = const(a), const(b)
    assert as_int(x + y) == a + b
    assert as_int(x - y) == a - b
    assert as_int(x * y) == a * b
    if b:
        assert as_int(x // y) == a // b
        assert as_int(x % y) == a % b
    assert as_int(ir.minimum(x, y)) == min(a, b)
    assert bool(as_int(x < y)) == (a < b)


def test_float_folding_never_rounds() -> None:
    assert isinstance(const(0.1, "float32") + const(0.2, "float32"), Add)
    assert isinstance(const(0.5, "float32") + const(0.25, "float32"), FloatImm)


@pytest.mark.parametrize(
    ("build", "is_x"),
    [
        (lambda x: x + 0, True),
        (lambda x: x * 1, True),
        (lambda x: x // 1, True),
        (lambda x: x - 0, True),
        (lambda x: x * 0, False),
        (lambda x: x % 1, False),
    ],
)
def test_trivial_operations_vanish(build: Any, is_x: bool) -> None:
    x = Var("x")
    made = build(x)
    assert (made is x) if is_x else as_int(made) == 0


def test_equality_builds_a_node_whose_truth_is_identity() -> None:
    x, y = Var("x"), Var("y")
    assert isinstance(x == y, EQ)
    assert x in [y, x] and x not in [y]


def test_other_conditions_have_no_truth_value() -> None:
    with pytest.raises(VerifyError, match="not known while the program is being built"):
        bool(Var("x") < 3)


def test_division_of_integers_is_refused() -> None:
    with pytest.raises(VerifyError, match="ambiguous"):
        Var("x") / 2


def test_division_by_zero_is_zero() -> None:
    x = Var("x", "int16")
    for made in (x // 0, x % 0, const(7, "int16") // 0, const(-7, "int16") % 0):
        assert is_const(made, 0) and made.dtype == "int16"


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_constants_wrap_like_numbers_at_run_time(dtype: str) -> None:
    low, high = integer_limits(dtype)
    least, most = const(low, dtype), const(high, dtype)
    assert is_const(least // -1, low) and is_const(least % -1, 0)
    assert is_const(most + 1, low) and is_const(least - 1, high) and is_const(most * 2, -2)


def test_a_constant_must_fit() -> None:
    with pytest.raises(VerifyError, match="300 does not fit uint8"):
        const(300, "uint8")


def test_unknown_dtype_names_near_matches() -> None:
    with pytest.raises(VerifyError, match="unknown dtype 'flaot32'; did you mean 'float32'"):
        const(1, "flaot32")


def test_calls_check_their_arguments() -> None:
    assert ir.call("exp", Var("x", "float32x8")).dtype == "float32x8"
    assert ir.call("isnan", Var("x", "float32x8")).dtype == "boolx8"
    with pytest.raises(VerifyError, match="exp takes 1 arguments, got 2"):
        ir.call("exp", 1.0, 2.0)
    with pytest.raises(Exception, match="unknown operator 'expp'; did you mean 'exp'"):
        ir.call("expp", 1.0)


def test_select_of_constant_condition_folds() -> None:
    x, y = Var("x"), Var("y")
    assert ir.select(True, x, y) is x
    assert isinstance(ir.select(x < y, x, y), Select)


def test_logic_folds() -> None:
    condition = Var("x") < 3
    assert ir.and_(condition, True) is condition
    assert as_int(ir.and_(condition, False)) == 0
    assert as_int(ir.or_(condition, True)) == 1
    assert ir.not_(ir.not_(condition)) is condition


def test_visitors() -> None:
    x, y = Var("x"), Var("y")
    expr = (x + y) * (x // 2)
    assert ir.free_vars(expr) == [x, y]
    assert len(ir.collect(expr, Var)) == 3
    assert isinstance(next(iter(ir.post_order(expr))), Var)
    assert ir.substitute(expr, {}) is expr
    swapped = ir.substitute(expr, {x: y})
    assert ir.free_vars(swapped) == [y]
    assert ir.uses_var(expr, {x}) and not ir.uses_var(swapped, {x})


def test_mutators_keep_what_does_not_change() -> None:
    class Halve(ir.Mutator):
        def visit_IntImm(self, node: IntImm) -> Any:
            return const(node.value // 2) if node.value > 8 else node

    x = Var("x")
    small, large = x + 8, x * 100
    assert Halve().visit(small) is small
    made = Halve().visit(large)
    assert isinstance(made, Mul) and as_int(made.b) == 50


def test_nodes_are_immutable_in_tests() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        (Var("x") + 1).a = Var("y")


def test_replace_and_repr() -> None:
    node = Var("x") // 3
    assert isinstance(node, FloorDiv)
    assert repr(node) == "(x // 3)"
    assert repr(node.replace(b=const(4))) == "(x // 4)"


@pytest.mark.parametrize("value", [1.5, float("nan"), float("inf")])
def test_integer_constants_are_integers(value):
    with pytest.raises(VerifyError, match="is no integer"):
        const(value, "int64")
    assert const(2.0, "int32").value == 2


@pytest.mark.parametrize("join", [operator.and_, operator.or_, operator.xor])
def test_bits_of_numbers_and_truths(join: Any) -> None:
    x, truth = Var("x", "int8"), Var("t", "bool")
    for made in (join(x, 1), join(1, x), join(x, truth), join(truth, x), 1 << x, 64 >> x):
        assert isinstance(made, Call)
        assert made.dtype == "int8"
    assert join(1, x).args[1] is x
    assert join(truth, Var("u", "bool")).dtype == "bool"
