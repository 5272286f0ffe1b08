"""Interval sets and the regions that loops touch."""

from __future__ import annotations

import itertools
import random

import pytest

from tests.arith.helpers import evaluate, rng
from tilewright.arith import (
    NEG_INF,
    POS_INF,
    Analyzer,
    BoxBounds,
    IntervalSet,
    detect_clip_bound,
    detect_linear_equation,
    int_set,
    region_bound,
)
from tilewright.ir import (
    TRUE,
    Range,
    Var,
    and_,
    ceildiv,
    const,
    expr_equal,
    maximum,
    minimum,
    select,
)
from tilewright.tir import decl_buffer

i, j, k, n, m = (Var(name) for name in "i j k n m".split())
f0, f1, f2 = Var("f0"), Var("f1"), Var("f2")
x, y, z = Var("x"), Var("y"), Var("z")
ENV = {n: 5, m: 7, f0: 3, f1: 4, f2: 2, i: 6, k: 9, x: 2}


def positive() -> Analyzer:
    made = Analyzer()
    for var in (f0, f1, f2, n, m):
        made.bind_positive(var)
    return made


TIGHT = [
    (i * 16 + j, 1, {j: rng(16)}, TRUE),
    (x * f1 + y, 1, {y: rng(f1)}, TRUE),
    (x * f1 + y, 1, {x: rng(f0), y: rng(f1)}, TRUE),
    (x * f1 * f2 + y * f2 + z, 1, {y: rng(f1), z: rng(f2)}, TRUE),
    (x * f2 - z, 1, {z: rng(f2)}, TRUE),
    (i * 2 + j * 3 - 1, 1, {j: rng(3)}, TRUE),
    (i * 2 + j * n - 1, 2, {j: rng(3)}, TRUE),
    ((i * 16 + j) // 4, 1, {j: rng(16)}, TRUE),
    (j // 3, 1, {j: rng(16)}, TRUE),
    (minimum(j, k), 1, {j: rng(16)}, TRUE),
    (y * 16 + j, 1, {y: rng(4), j: rng(16)}, y * 16 + j < 50),
    (y * 16 + j, 1, {y: rng(ceildiv(n * 8, 16)), j: rng(16)}, y * 16 + j < n * 8),
    (j * 2, 1, {j: rng(16)}, and_(j < 5, j >= 2)),
    (j + 3, 1, {j: rng(n)}, j < 3),
    (j + k, 4, {j: rng(8, 4)}, TRUE),
    (j % 4 + i, 1, {j: rng(3, 4)}, TRUE),
]


@pytest.mark.parametrize("index, width, domain, predicate", TIGHT, ids=lambda e: repr(e))
def test_region_is_the_hull(index, width, domain, predicate):
    (found,) = region_bound([rng(width, index)], domain, predicate, analyzer=positive())
    assert isinstance(found, Range)
    axes = []
    for var, value in domain.items():
        low = evaluate(value.min, ENV)
        axes.append([(var, low + step) for step in range(evaluate(value.extent, ENV))])
    touched = []
    for chosen in itertools.product(*axes):
        env = {**ENV, **dict(chosen)}
        if evaluate(predicate, env):
            touched.append(evaluate(index, env))
    low = evaluate(found.min, ENV)
    assert low == min(touched)
    assert low + evaluate(found.extent, ENV) == max(touched) + width


def test_symbolic_tile_extent_is_short():
    (found,) = region_bound([rng(1, x * f1 + y)], {y: rng(f1)}, analyzer=positive())
    assert expr_equal(found.min, x * f1)
    assert found.extent is f1


def test_what_is_not_relaxed_stays():
    item = rng(4, i * 2)
    (found,) = region_bound([item], {j: rng(16)})
    assert found is item


def test_unknown_ends_are_infinite():
    buffer = decl_buffer((64,), "int64")
    (found,) = region_bound([rng(1, buffer[j])], {j: rng(16)})
    assert isinstance(found, IntervalSet)
    assert not found.is_bounded
    assert found.to_range() is None


def test_exact_regions():
    domain = {j: rng(16)}
    (loose,) = region_bound([rng(1, j * 2)], domain)
    assert evaluate(loose.extent, {}) == 31
    (strided,) = region_bound([rng(1, j * 2)], domain, exact=True)
    assert isinstance(strided, IntervalSet)
    (dense,) = region_bound([rng(2, j * 2)], domain, exact=True)
    assert evaluate(dense.extent, {}) == 32


def test_inner_ranges_may_depend_on_outer():
    domain = {i: rng(4), j: rng(i + 1)}
    (found,) = region_bound([rng(1, i + j)], domain)
    assert (evaluate(found.min, {}), evaluate(found.extent, {})) == (0, 7)


def test_int_set_of_intervals():
    known = positive()
    half = known.int_set(-x, {x: IntervalSet(0, POS_INF)})
    assert half.min == NEG_INF
    assert evaluate(half.max, {}) == 0
    product = known.int_set(x * y, {x: rng(f0), y: rng(4, 1)})
    assert known.can_prove_equal(product.max, f0 * 4 - 4)
    assert evaluate(int_set(j, {j: rng(16)}, j < 4).max, {}) == 3
    assert evaluate(int_set(select(i < 3, j, 20), {j: rng(4)}).max, {}) == 20
    assert IntervalSet.everything().min == NEG_INF
    assert evaluate(IntervalSet.from_range(rng(4, 2)).max, {}) == 5


def test_linear_equations():
    made = detect_linear_equation(x * 3 + y * n - 5 + k, [x, y])
    assert made is not None
    for got, expected in zip(made, [3, n, k - 5]):
        assert Analyzer().can_prove_equal(got, expected)
    assert detect_linear_equation(x * y, [x, y]) == []
    assert detect_linear_equation(x // 2, [x]) == []
    assert detect_linear_equation(x * x, [x]) == []


def test_clip_bounds():
    ends = detect_clip_bound(and_(x * 2 >= 3, x < n), [x])
    assert evaluate(ends[0], {}) == 2
    assert expr_equal(ends[1], n - 1)
    assert detect_clip_bound(x + y < 3, [x, y]) == []
    assert detect_clip_bound(x * n < 3, [x]) == []
    free = detect_clip_bound(TRUE, [x])
    assert free == [None, None]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_indices_from_memory_have_no_ends(dtype: str) -> None:
    table = decl_buffer((9,), dtype, "I")
    one = const(1, dtype)
    for index in (table[i], table[i] * 2, maximum(table[i], table[i + 1]) + 1):
        assert int_set(index, {i: rng(8)}).max is POS_INF
        (found,) = region_bound([Range.from_min_extent(index, one)], {i: rng(8)})
        assert isinstance(found, IntervalSet) and found.max is POS_INF
    (found,) = region_bound([Range.from_min_extent(maximum(table[i], 3), one)], {i: rng(8)})
    assert isinstance(found, IntervalSet) and evaluate(found.min, {}) == 3


def test_parts_of_a_sum_keep_what_each_says_alone():
    """Merged, ``i // 8 % 4 * 16 + i // 32`` is ``i // 8 * 16 - i // 32 * 63``: a wider box."""
    (found,) = region_bound(
        [Range.from_min_extent(n * 64 + i // 8 % 4 * 16 + i // 32, const(1))], {i: rng(128)}
    )
    assert isinstance(found, Range)
    assert expr_equal(found.min, n * 64) and evaluate(found.extent, {}) == 48 + 3 + 1


def test_boxes_of_random_sums_hold_all_values():
    draw = random.Random(9)
    for _ in range(150):
        terms = [
            var
            * draw.choice([1, 3, 8])
            // draw.choice([1, 4, 32])
            % draw.choice([3, 4, 16])
            * draw.choice([-16, -1, 1, 16])
            for var in (i, j, i)
        ]
        dom = {i: rng(draw.choice([3, 40])), j: rng(draw.choice([1, 5]), 2)}
        item = Range.from_min_extent(sum(terms[1:], terms[0]), const(draw.randint(1, 3)))
        (found,) = region_bound([item], dom)
        assert isinstance(found, Range)
        low, size = evaluate(found.min, {}), evaluate(found.extent, {})
        for a, b in itertools.product(*(range(d.min.value, d.min.value + d.extent.value)
                                        for d in dom.values())):  # fmt: skip
            first = evaluate(item.min, {i: a, j: b})
            assert low <= first and first + item.extent.value <= low + size


def test_sums_in_constant_loops_get_the_box_of_the_general_way(monkeypatch):
    """The short way for sums of multiples gives the very expressions of the long one."""
    draw = random.Random(5)
    outer, other = Var("outer"), Var("other")
    known = Analyzer()
    known.bind(outer, rng(12))
    known.bind(other, 3 * outer + 1)
    short = 0
    for _ in range(300):
        dom = {var: rng(draw.choice([1, 2, 7, 16]), draw.randint(-3, 4)) for var in (i, j, k)}
        start = const(draw.randint(-5, 5))
        for var in draw.sample([i, j, k, outer, other, i], draw.randint(1, 5)):
            term = var * draw.choice([1, 1, 4, -2, 16]) + draw.randint(0, 3)
            start = start + term if draw.random() < 0.7 else start - term
        item = Range.from_min_extent(start, const(draw.randint(1, 9)))
        box = BoxBounds(dom, analyzer=known)
        short += box._linear(item) is not None
        (found,) = box.of([item])
        with monkeypatch.context() as patch:
            patch.setattr(BoxBounds, "_linear", lambda self, item: None)
            (expected,) = BoxBounds(dom, analyzer=known).of([item])
        assert repr(found) == repr(expected), (item, dom)
    assert short > 100
