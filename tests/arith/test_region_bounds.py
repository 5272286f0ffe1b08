"""Boxes that regions cover, and intervals of values for which comparisons hold."""

from __future__ import annotations

import itertools
import random

import pytest

from tilewright import tir
from tilewright.arith import (
    Analyzer,
    IntervalSet,
    deduce_bound,
    estimate_region_strict_bound,
    estimate_region_upper_bound,
    evaluate,
)
from tilewright.ir import TRUE, Expr, Range, Var, const, substitute

I, J, N = (Var(name, "int64") for name in "ijn")
STARTS = [
    I * 4 + J, I * 2 + J + 3, I // 4 * 4 + J, I % 2 * 2 + J, (I * 4 + J) // 4, I + 4, I + J, I * 8,
]  # fmt: skip


def facts(rng: random.Random, n: Expr) -> Expr:
    few, many = const(rng.randint(1, 9)), const(rng.randint(1, 20))
    return rng.choice([
        TRUE, few > I, n > I * 2, I % 2 == 0, n > I * 4 + J, few > I + J, n * 3 > I * 4 + J,
        tir.any(I < 1, I > 2), n > I * I, tir.all(n > I, many > I * 4 + J),
    ])  # fmt: skip


def touched(start: Expr, length: int, sizes: tuple[int, int], fact: Expr) -> set[int]:
    points = itertools.product(*map(range, sizes))
    found: set[int] = set()
    for i, j in points:
        if evaluate(fact, {I: i, J: j}):
            first = int(evaluate(start, {I: i, J: j}))
            found.update(range(first, first + length))
    return found


@pytest.mark.parametrize("symbolic", [False, True])
def test_strict_boxes_are_what_a_region_touches(symbolic: bool) -> None:
    rng, boxes = random.Random(5), 0
    for _ in range(150):
        start, length = rng.choice(STARTS), rng.randint(1, 3)
        sizes = rng.choice([1, 2, 4, 8]), rng.choice([1, 3, 4])
        n = N if symbolic else const(sizes[0])
        fact = TRUE if symbolic and rng.random() < 0.6 else facts(rng, n)
        dom = {I: Range(0, n), J: Range(0, sizes[1])}
        region = [Range.from_min_extent(start, length)]
        strict = estimate_region_strict_bound(region, dom, fact)
        upper = estimate_region_upper_bound(region, dom, fact)[0]
        real = touched(start, length, sizes, substitute(fact, {N: const(sizes[0])}))
        ends = [
            int(evaluate(end, {N: sizes[0]}))
            for box in (upper, *(strict or ()))
            for end in (box.min_value, box.max_value)
        ]
        assert not real or (ends[0] <= min(real) and max(real) <= ends[1]), (start, fact, sizes)
        if strict is None:
            is_box = bool(real) and len(real) == max(real) - min(real) + 1
            assert symbolic or not is_box, (start, length, sizes, fact)
            continue
        boxes += 1
        assert real == set(range(ends[2], ends[3] + 1)), (start, length, sizes, fact, strict)
    assert boxes > (20 if symbolic else 40)


def test_dimensions_that_depend_on_each_other_are_no_box() -> None:
    two = [Range.from_min_extent(I, 2)] * 2
    assert estimate_region_strict_bound(two, {I: Range(0, 3)}) is None
    assert estimate_region_strict_bound(two, {I: Range(0, 1)}) is not None
    assert estimate_region_strict_bound(two[:1], {I: Range(0, 0)}) is None


def test_quotients_have_bounds() -> None:
    rng = random.Random(4)
    for _ in range(120):
        divisor, factor = rng.randint(2, 5), rng.choice([-2, -1, 1, 3])
        total = (I * rng.choice([-2, 1, 3]) + rng.randint(-9, 9)) // divisor * factor + J * 2
        limit = rng.randint(-20, 20)
        cond = rng.choice([total < limit, total <= limit, total > limit, total >= limit])
        last = rng.randint(0, 4)
        got = deduce_bound(I, cond, {}, {J: IntervalSet(const(0), const(last))})
        assert not got.is_nothing()
        for i in range(-70, 71):
            low = -99 if isinstance(got.min, float) else Analyzer().simplify(got.min).value  # type: ignore[attr-defined]
            high = 99 if isinstance(got.max, float) else Analyzer().simplify(got.max).value  # type: ignore[attr-defined]
            holds = all(evaluate(cond, {I: i, J: j}) for j in range(last + 1))
            assert (low <= i <= high) == holds, (cond, got, i)
