"""Scalable vectors as values: dtypes, lanes, constructors, equality, text and errors."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from tilewright import arith, ir, tir
from tilewright.ir import (
    Broadcast,
    Call,
    Cast,
    Mul,
    Ramp,
    ScalableLanes,
    Select,
    Shuffle,
    Var,
    const,
    dtypes,
    structural_equal,
)
from tilewright.support.errors import VerifyError

S = ir.vscale()
RAMP = Ramp(0, 1, 4 * S)
ONES = Broadcast(1.0, S * 4)


def test_dtypes() -> None:
    assert dtypes.split_dtype("float32xvscalex4") == ("float32", ScalableLanes(4))
    assert dtypes.vector_dtype("bool", ScalableLanes(16)) == "boolxvscalex16"  # type: ignore[arg-type]
    assert dtypes.element_of("int8xvscalex16") == "int8"
    assert dtypes.is_scalable("int8xvscalex16") and not dtypes.is_scalable("int8x16")
    assert str(dtypes.lanes_of("int8xvscalex16")) == "vscale x 16"
    assert str(RAMP.lanes) == "vscale x 4" and repr(RAMP.lanes) == "vscale() * 4"


@pytest.mark.parametrize(
    "dtype", ["float32xvscale", "float32xvscalex1", "float32xvscalex0", "float32xvscalex-4",
              "float32x4xvscalex4", "xvscalex4", "float32xvscalex4x2", "float32xvscalex1000000"]
)  # fmt: skip
def test_no_dtypes(dtype: str) -> None:
    with pytest.raises(VerifyError, match="unknown dtype"):
        dtypes.split_dtype(dtype)


@pytest.mark.parametrize(
    ("made", "dtype"),
    [
        (S, "int32"),
        (RAMP, "int64xvscalex4"),
        (Ramp(const(0, "int32"), 1, S * 8), "int32xvscalex8"),
        (Ramp(0, 1, Cast("int64", S) * 4), "int64xvscalex4"),
        (Ramp(0, 1, RAMP.lanes), "int64xvscalex4"),
        (Ramp(0, 1, const(4, "int32")), "int64x4"),
        (Broadcast(const(1.0, "float16"), S * 8), "float16xvscalex8"),
        (const(1, "int32xvscalex4"), "int32xvscalex4"),
        (RAMP + 1, "int64xvscalex4"),
        (RAMP + RAMP, "int64xvscalex4"),
        (RAMP < 3, "boolxvscalex4"),
        (ir.not_(RAMP < 3), "boolxvscalex4"),
        (RAMP.astype("float32xvscalex4"), "float32xvscalex4"),
        (Select(RAMP < 3, ONES, ONES), "float32xvscalex4"),
        (tir.exp(ONES), "float32xvscalex4"),
        (tir.isnan(ONES), "boolxvscalex4"),
        (tir.max(RAMP, RAMP), "int64xvscalex4"),
        (tir.reinterpret("int32xvscalex4", ONES), "int32xvscalex4"),
        (tir.reinterpret("int64xvscalex2", ONES), "int64xvscalex2"),
        (tir.decl_buffer((64,))[RAMP], "float32xvscalex4"),
        (tir.decl_buffer((64,))[3 : 3 + S * 4], "float32xvscalex4"),
        (tir.decl_buffer((64,)).vload([RAMP]), "float32xvscalex4"),
        (tir.decl_buffer((64,)).vload([RAMP], "float32xvscalex4"), "float32xvscalex4"),
        (tir.decl_buffer((64,)).vload([3], "float32xvscalex4"), "float32xvscalex4"),
        (tir.get_active_lane_mask("uint1xvscalex4", 3, 9), "boolxvscalex4"),
        (tir.get_active_lane_mask("boolxvscalex4", const(3, "int32"), 9), "boolxvscalex4"),
    ],
)  # fmt: skip
def test_values(made: Any, dtype: str) -> None:
    assert made.dtype == dtype


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Ramp(0, 1, S), r"T.vscale\(\) times one that is more than 1"),
        (lambda: Ramp(0, 1, S + 1), r"T.vscale\(\) times one"),
        (lambda: Ramp(0, 1, S * S), r"T.vscale\(\) times one"),
        (lambda: Ramp(0, 1, S * -4), r"T.vscale\(\) times one"),
        (lambda: Ramp(0, 1, S * 0), "a positive number"),
        (lambda: Ramp(0, 1, 2 * (S * 4)), r"T.vscale\(\) times one"),
        (lambda: Ramp(0, 1, Var("n") * 4), r"T.vscale\(\) times one"),
        (lambda: Broadcast(RAMP, 4), "single values"),
        (lambda: Broadcast(Broadcast(1, 4), S * 4), "single values"),
        (lambda: RAMP + Ramp(0, 1, 4), "numbers of lanes differ"),
        (lambda: RAMP + Ramp(0, 1, 8 * S), "numbers of lanes differ"),
        (lambda: RAMP.astype("float32"), "keeps the number of lanes"),
        (lambda: RAMP.astype("float32x4"), "keeps the number of lanes"),
        (lambda: Shuffle((RAMP,), (0,)), "is scalable"),
        (lambda: tir.vectorlow("int64xvscalex2", RAMP), "is scalable"),
        (lambda: tir.reinterpret("int32x4", ONES), "has 128 bits"),
        (lambda: tir.reinterpret("int16xvscalex4", ONES), "has 64"),
        (lambda: tir.decl_buffer((4,), "float32xvscalex4"), "elements of a known size"),
        (lambda: dtypes.bytes_of("float32xvscalex4"), "is scalable"),
        (lambda: range(RAMP.lanes), "is scalable"),
        (lambda: RAMP.lanes - 1, "is scalable"),
        (lambda: RAMP.lanes > 4, "is scalable"),
        (lambda: RAMP.lanes <= 4, "is scalable"),
    ],
)
def test_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        make()


def test_lanes_compare_as_far_as_that_is_known() -> None:
    lanes: Any = RAMP.lanes
    assert lanes > 1 and lanes >= 4 and not lanes < 4 and not lanes <= 3
    assert lanes != 4 and lanes == ScalableLanes(4) and lanes < ScalableLanes(8)
    assert lanes * 1 is lanes and 1 * lanes is lanes and lanes // 1 is lanes and lanes % 1 == 0


def test_lanes_are_an_expression_where_one_is_wanted() -> None:
    assert structural_equal(ir.as_expr(RAMP.lanes), S * 4)
    assert structural_equal(ir.lane_count(RAMP.lanes, "int64"), Cast("int64", S) * 4)


def test_get_vscale_expr() -> None:
    for dtype, factor in (("float32", 4), ("int8", 16), ("bool", 16), ("handle", 2)):
        assert structural_equal(tir.get_vscale_expr(dtype), factor * S)
    assert structural_equal(tir.get_vscale_expr("float64", 256), 4 * S)
    assert structural_equal(tir.get_vscale_expr("float32x4", min_size=128), 4 * S)
    assert ir.as_int(tir.get_vscale_expr("float32", 16)) == 0


def test_equality() -> None:
    x = Var("x")
    assert structural_equal(Ramp(x, 1, 4 * S), Ramp(x, 1, S * 4))
    assert not structural_equal(Ramp(x, 1, 4 * S), Ramp(x, 1, 4))
    assert not structural_equal(Ramp(x, 1, 4 * S), Ramp(x, 1, 8 * S))
    assert ir.structural_hash(RAMP) == ir.structural_hash(Ramp(0, 1, S * 4))
    assert ir.structural_hash(RAMP) != ir.structural_hash(Ramp(0, 1, 4))


def test_saved_values_come_back() -> None:
    for value in (RAMP, ONES + ONES, S * 3, Var("v", "int8xvscalex16") * 3):
        for made in (pickle.loads(pickle.dumps(value)), ir.load_json(ir.save_json(value))):
            assert structural_equal(made, value, map_free_vars=True) and made.dtype == value.dtype


def test_what_has_scalable_vectors() -> None:
    assert ir.has_scalable(RAMP + 1) and ir.has_scalable(S * 4 + Var("x"))
    assert ir.has_scalable(Var("v", "int8xvscalex16"))
    assert not ir.has_scalable(Ramp(0, 1, 4) + 1)


def test_analyzer() -> None:
    known, n = arith.Analyzer(), Var("n")
    wide = Cast("int64", S)
    bound = known.const_int_bound(S)
    assert (bound.min, bound.max) == (1, ir.MAX_VSCALE)
    assert known.can_prove(wide * 4 >= 4) and known.can_prove(wide > 0)
    for unknown in (S.equal(1), wide * 4 <= 64, S.equal(2), (wide % 2).equal(0)):
        assert not known.can_prove(unknown) and not known.can_prove(ir.not_(unknown))
    assert structural_equal(known.simplify(S * 4 - S * 2), S * 2)
    assert structural_equal(known.simplify((S * 4) // 4), S)
    assert type(known.simplify(S + 0)) is Call and type(known.simplify(wide * 4)) is Mul
    known.bind(n, ir.Range(0, 100))
    tiles = ir.ceildiv(n, wide * 4)
    assert known.can_prove(tiles * (wide * 4) >= n)


def test_vectors_fold_only_where_all_lengths_agree() -> None:
    known, x = arith.Analyzer(), Var("x")
    known.bind(x, ir.Range(0, 8))

    def bound(number: int) -> Broadcast:
        return Broadcast(number, S * 4)

    ramp = Ramp(x, 1, S * 4)
    assert known.simplify(ramp < bound(8)).dtype == "boolxvscalex4"
    assert not isinstance(known.simplify(ramp < bound(12)), Broadcast)  # holds for vscale 1
    assert isinstance(known.simplify(ramp >= bound(0)), Broadcast)
    assert isinstance(known.simplify(ramp < bound(8 + 4 * ir.MAX_VSCALE)), Broadcast)
    falling = Ramp(x, -1, S * 4)
    assert isinstance(known.simplify(falling < bound(8)), Broadcast)
    assert not isinstance(known.simplify(falling >= bound(-4)), Broadcast)
    inside = Ramp(x * 16, 1, S * 4)
    assert isinstance(known.simplify(inside // bound(16)), ir.FloorDiv)  # one lane more at 8
    assert isinstance(known.simplify(Ramp(x, 16, S * 4) % bound(16)), Broadcast)
    assert isinstance(known.simplify(Ramp(x * 2, 16, S * 4) // bound(2)), Ramp)
    interval = arith.IntervalSet.vector(ramp)
    assert known.can_prove_equal(interval.max_value, x + Cast("int64", S) * 4 - 1)
