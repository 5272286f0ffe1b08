"""TVM's names of ``arith``: called as there, and compared with trying all values."""

from __future__ import annotations

import itertools
import random

import pytest

from tests.arith.helpers import evaluate, rng
from tilewright.arith import (
    Analyzer,
    CompareResult,
    ConstIntBound,
    Extension,
    IntervalSet,
    IntSet,
    IterMapExpr,
    IterMapLevel,
    ModularSet,
    ProofStrength,
    deduce_bound,
    detect_iter_map,
    estimate_region_lower_bound,
    estimate_region_strict_bound,
    estimate_region_upper_bound,
    iter_map_simplify,
    normalize_iter_map_to_expr,
    normalize_to_iter_sum,
    solve_linear_equations,
)
from tilewright.ir import EQ, FALSE, TRUE, Broadcast, Ramp, Var, const, expr_equal
from tilewright.support.errors import VerifyError

x, y, z, n = Var("x"), Var("y"), Var("z"), Var("n")
LOOPS = {x: rng(4), y: rng(4)}


def test_analyzer_in_tvm_s_words():
    known = Analyzer()
    known.bind(x, rng(8))
    known.bind(x, rng(16), True)
    known.update(y, ConstIntBound(0, ConstIntBound.POS_INF))
    known.update(y, ModularSet(4, 1))
    known.update(z, IntervalSet(2, n))
    bound = known.const_int_bound(x + 1)
    assert (bound.min_value, bound.max_value) == (1, 16)
    assert known.const_int_bound(n).max_value == ConstIntBound.POS_INF
    assert known.const_int_bound(n).min_value == ConstIntBound.NEG_INF
    assert known.can_prove((y + 3) % 4 >= 0, ProofStrength.SYMBOLIC_BOUND)
    assert expr_equal(known.rewrite_simplify((y + 3) % 4), const(0))
    assert known.can_prove(z <= n) and known.can_prove_greater_equal(z, 2)
    assert known.can_prove_less(x, 16) and known.can_prove_equal(lhs=x + x, rhs=x * 2)
    assert known.const_int_bound_is_bound(x) and not known.const_int_bound_is_bound(n)
    found = known.int_set(x + n, {x: IntervalSet(0, 3)})
    assert expr_equal(found.min_value, n) and expr_equal(found.max_value, n + 3)
    assert expr_equal(known.int_set(x + 1).max_value, const(16))
    assert known.clone().can_prove(x < 16)


def test_update_overrides_only_when_told():
    known = Analyzer()
    known.update(x, ConstIntBound(0, 9))
    known.update(x, ConstIntBound(2, 20))
    assert known.const_int_bound(x) == ConstIntBound(2, 9)
    known.update(x, ConstIntBound(2, 20), True)
    assert known.const_int_bound(x) == ConstIntBound(2, 20)
    with pytest.raises(VerifyError, match="use limit"):
        known.update(x, 3)


def test_constraint_scope_is_left_again():
    known = Analyzer()
    scope = known.constraint_scope(x < 3)
    with scope:
        assert known.can_prove(x < 4)
    assert not known.can_prove(x < 4)


def test_extensions_that_there_are():
    known = Analyzer()
    known.enabled_extensions = Extension.TransitivelyProveInequalities
    assert known.enabled_extensions & Extension.ApplyConstraintsToBooleanBranches
    with pytest.raises(VerifyError, match="ConvertBooleanToAndOfOrs"):
        known.enabled_extensions = Extension.ConvertBooleanToAndOfOrs


COMPARED = [
    (x, x, CompareResult.EQ),
    (x, x + 1, CompareResult.LT),
    (x + 16, y, CompareResult.GT),
    (x, const(15), CompareResult.LE),
    (x, const(0), CompareResult.GE),
    (x * 2, y * 2 + 1, CompareResult.NE),
    (x, n, CompareResult.UNKNOWN),
]


@pytest.mark.parametrize("a, b, expected", COMPARED, ids=lambda e: repr(e))
def test_try_compare(a, b, expected):
    known = Analyzer()
    known.bind(x, rng(16))
    known.bind(y, rng(16))
    assert known.try_compare(a, b) is expected


def test_sets():
    assert IntSet.single_point(x).min is x
    ramp = IntSet.vector(Ramp(x, const(-2), 4))
    assert expr_equal(Analyzer().simplify(ramp.min), x - 6) and ramp.max is x
    assert IntSet.vector(Broadcast(x, 4)).max is x
    assert IntSet.nothing().is_nothing() and not IntSet.nothing().is_everything()
    assert IntervalSet.everything().is_everything() and IntervalSet(3, 2).is_nothing()
    assert not IntervalSet(x, x - 1).is_nothing()  # not known to be
    with pytest.raises(VerifyError, match="Ramp"):
        IntSet.vector(Ramp(x, y, 4))


REGIONS = [
    ([rng(1, x * 4 + y)], True),
    ([rng(1, x * 8 + y)], False),
    ([rng(1, x), rng(1, x)], False),
    ([rng(1, x), rng(1, y)], True),
    ([rng(4, x * 4)], True),
    ([rng(5, x * 4)], True),
    ([rng(4, x * 5)], False),
    ([rng(2, x + 3), rng(2, y * 2)], True),
    ([rng(1, x // 2), rng(1, x % 2)], True),
    ([rng(1, x), rng(1, x // 2)], False),
]


@pytest.mark.parametrize("region, exact", REGIONS, ids=lambda e: repr(e))
def test_regions_against_all_points(region, exact):
    touched = set()
    for i, j in itertools.product(range(4), repeat=2):
        starts = [evaluate(item.min, {x: i, y: j}) for item in region]
        touched |= set(
            itertools.product(
                *(range(s, s + int(evaluate(r.extent, {}))) for s, r in zip(starts, region))
            )
        )

    def points(box):
        return set(itertools.product(*(range(s.min.value, s.max.value + 1) for s in box)))

    assert touched <= points(estimate_region_upper_bound(region, LOOPS, True))
    strict = estimate_region_strict_bound(region, LOOPS, True)
    lower = estimate_region_lower_bound(region, LOOPS, TRUE)
    assert (strict is not None) == exact
    assert strict is None or points(strict) == touched
    assert lower is None or points(lower) <= touched


def test_deduced_bounds_hold_for_all_relaxed_values():
    pick = random.Random(3)
    found = 0
    for _ in range(200):
        a, b, c = pick.choice([-3, -2, -1, 1, 2, 3]), pick.randint(-3, 3), pick.randint(-9, 9)
        sides = (x * a + y * b, const(c))
        made = pick.choice([lambda p, q: p < q, lambda p, q: p <= q, lambda p, q: p >= q, EQ])
        cond = made(*sides)
        got = deduce_bound(x, cond, {}, {y: rng(4)})
        if got.is_nothing():
            continue
        found += 1
        for i in range(-40, 41):
            holds = all(evaluate(cond, {x: i, y: j}) for j in range(4))
            low = -99 if isinstance(got.min, float) else got.min.value
            high = 99 if isinstance(got.max, float) else got.max.value
            assert (low <= i <= high) == holds, (cond, got, i)
    assert found > 100


def test_deduced_bounds_keep_symbols():
    made = deduce_bound(x, x * 2 + z > n, {}, {})
    assert expr_equal(made.min, (n - z) // 2 + 1) or Analyzer().can_prove(
        EQ(made.min, (n - z) // 2 + 1)
    )
    assert deduce_bound(x, x * x < 4, {}, {}).is_nothing()
    assert deduce_bound(x, x < z, {}, {z: IntervalSet.everything()}).is_nothing()


def test_equations_have_the_same_solutions():
    pick = random.Random(5)
    variables = [x, y, z]
    for _ in range(60):
        rows = [[pick.randint(-3, 3) for _ in variables] for _ in range(pick.randint(1, 3))]
        sums = [sum((v * k for v, k in zip(variables, row)), const(0)) for row in rows]
        equations = [EQ(total, const(pick.randint(-4, 6))) for total in sums]
        made = solve_linear_equations(equations, variables)
        box = range(-4, 5)
        for point in itertools.product(box, repeat=3):
            env = dict(zip(variables, point))
            solves = all(evaluate(item, env) for item in equations)
            free = {var: evaluate(e, env) for var, e in made.dst_to_src.items()}
            back = {var: evaluate(e, free) for var, e in made.src_to_dst.items()}
            within = all(evaluate(item, free) for item in made.dst.relations)
            assert solves == (within and back == env), (equations, made, point)


def test_equations_with_ranges_and_without_solutions():
    made = solve_linear_equations([EQ(x + y, const(7)), EQ(x - y, const(1))], [x, y], LOOPS)
    assert made.dst.variables == () and made.dst.relations == (FALSE,)  # x is 4
    made = solve_linear_equations([EQ(x + y, n)], [x, y])
    assert len(made.dst.variables) == 1 and made.dst.relations == ()
    assert solve_linear_equations([EQ(x * 2, const(3))], [x]).dst.relations == (FALSE,)
    for wrong in (x < 3, EQ(x * y, const(2)), EQ(x * n, const(2))):
        with pytest.raises(VerifyError, match="solve_linear_equations"):
            solve_linear_equations([wrong], [x, y])


def test_iter_maps_by_level():
    indices = [x * 4 + y, x]
    assert detect_iter_map(indices, LOOPS).errors
    loose = detect_iter_map(indices, LOOPS, True, IterMapLevel.NoCheck, True, None)
    assert len(loose.indices) == 2 and isinstance(loose.indices[0], IterMapExpr)
    assert detect_iter_map([x], LOOPS, True, IterMapLevel.Bijective).errors
    assert expr_equal(normalize_iter_map_to_expr(loose.indices[0]), x * 4 + y)
    made = iter_map_simplify([(x * 4 + y) // 4], LOOPS, True, IterMapLevel.Surjective)
    assert made == [x]


def test_normalised_sums_are_not_fused():
    made = normalize_to_iter_sum(x // 2 * 4 + y * 3 + n, LOOPS)
    assert [(a.scale.value, a.extent.value) for a in made.args] == [(4, 2), (3, 4)]
    assert made.base is n
    with pytest.raises(VerifyError, match="no sum of splits"):
        normalize_to_iter_sum(x * y, LOOPS)
