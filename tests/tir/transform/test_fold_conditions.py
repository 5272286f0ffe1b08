"""Comparisons that loop ranges decide, by evaluating both sides at every point."""

from __future__ import annotations

from itertools import product

import pytest

from tilewright.ir import FALSE, TRUE, Broadcast, Ramp, Var, const, floordiv, floormod
from tilewright.tir.transform.fold_conditions import bounds_of, decided

I, J = Var("i", "int64"), Var("j", "int64")
RANGES = {I: (0, 7), J: (-2, 3)}
FORMS = {
    "linear": (lambda i, j: i * 14 + j, lambda i, j: i * 14 + j),
    "negative": (lambda i, j: 5 - i * 3, lambda i, j: 5 - i * 3),
    "quotient": (lambda i, j: floordiv(i * 3 + j, 4), lambda i, j: (i * 3 + j) // 4),
    "remainder": (lambda i, j: floormod(j, 8), lambda i, j: j % 8),
    "one period": (lambda i, j: floormod(i + 8, 8), lambda i, j: (i + 8) % 8),
}


@pytest.mark.parametrize("name", list(FORMS))
def test_bounds_hold_everywhere(name: str) -> None:
    build, value = FORMS[name]
    bounds = bounds_of(build(I, J), RANGES)
    values = [value(i, j) for i, j in product(range(8), range(-2, 4))]
    assert bounds is not None
    assert bounds[0] <= min(values) and max(values) <= bounds[1]


def test_what_is_unknown_stays_open() -> None:
    unknown = Var("n", "int64")
    assert bounds_of(I + unknown, RANGES) is None
    assert decided(unknown > I, RANGES) is None
    assert decided(I < 7, RANGES) is None
    assert decided(I < 7.0, RANGES) is None


def test_decided_both_ways() -> None:
    assert decided(I < 8, RANGES) is TRUE
    assert decided(I <= 7, RANGES) is TRUE
    assert decided(I >= 0, RANGES) is TRUE
    assert decided(I > 7, RANGES) is FALSE
    assert decided(I + 8 <= J, RANGES) is FALSE


def test_vectors_are_decided_for_all_lanes() -> None:
    lanes = Ramp(I * 16, const(1), 16)
    whole = decided(lanes < Broadcast(const(128), 16), RANGES)
    assert isinstance(whole, Broadcast) and whole.value is TRUE and whole.lanes == 16
    assert decided(lanes < Broadcast(const(127), 16), RANGES) is None
