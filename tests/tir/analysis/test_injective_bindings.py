"""Bindings that are taken for injective are: all instances are counted."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.arith import evaluate
from tilewright.ir import Expr, Range, Var, const
from tilewright.tir.analysis.block_kind import is_injective_binding


def is_injective(values: list[Expr], loops: dict[Var, int]) -> bool:
    seen = {
        tuple(int(evaluate(value, dict(zip(loops, at)))) for value in values)
        for at in itertools.product(*map(range, loops.values()))
    }
    return len(seen) == len(list(itertools.product(*map(range, loops.values()))))


def taken(values: list[Expr], loops: dict[Var, int]) -> bool:
    ranges = {var: Range.from_min_extent(const(0), const(extent)) for var, extent in loops.items()}
    return is_injective_binding(tuple(values), ranges)


@pytest.mark.parametrize(
    ("extents", "sizes"),
    [((5, 16), (8, 5, 2)), ((5, 16), (1, 8, 5, 2)), ((14, 15), (3, 7, 5, 2)), ((3, 4, 5), (10, 6))],
)
def test_digits_of_loops_that_were_fused_and_split(
    extents: tuple[int, ...], sizes: tuple[int, ...]
) -> None:
    loops = {Var(f"i{n}", "int64"): extent for n, extent in enumerate(extents)}
    number: Expr = const(0)
    for var, extent in loops.items():
        number = number * extent + var
    values, weight = [], 1
    for size in reversed(sizes):
        values.append(number // weight % size)
        weight *= size
    values[-1] = number // (weight // sizes[0])
    assert taken(values[::-1], loops) and is_injective(values, loops)


@st.composite
def bindings(draw: st.DrawFn) -> tuple[list[Expr], dict[Var, int]]:
    """Digits of one or two numbers, often those that tell it, often not."""
    extents = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    loops = {Var(f"i{n}", "int64"): extent for n, extent in enumerate(extents)}
    number: Expr = const(0)
    for var, extent in loops.items():
        number = number * (extent + draw(st.sampled_from([0, 0, 0, 1, -1]))) + var
    values: list[Expr] = []
    weight = 1
    for _ in range(draw(st.integers(1, 4))):
        size = draw(st.sampled_from([1, 2, 3, 4, 5, 8]))
        low = weight if draw(st.integers(0, 5)) else draw(st.sampled_from([1, 2, 3, 6]))
        value = number // low
        values.append(value if draw(st.booleans()) and draw(st.booleans()) else value % size)
        weight *= size
    if draw(st.booleans()):
        values.append(number // weight)
    return values, loops


@given(bindings())
def test_what_is_taken_for_injective_is(case: tuple[list[Expr], dict[Var, int]]) -> None:
    values, loops = case
    used = {var for var in loops if any(repr(var) in repr(value) for value in values)}
    if used == set(loops) and taken(values, loops):
        assert is_injective(values, loops)
