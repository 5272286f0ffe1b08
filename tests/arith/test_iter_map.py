"""Iteration maps: detected forms, refusals, and agreement with brute force."""

from __future__ import annotations

import itertools
import random

import pytest

from tests.arith.helpers import evaluate, rng
from tilewright.arith import (
    Analyzer,
    detect_iter_map,
    inverse_affine_iter_map,
    iter_map_simplify,
    normalize_iter_map_to_expr,
    subspace_divide,
)
from tilewright.ir import TRUE, Var, and_, ceildiv, expr_equal, uses_var

i, j, k, n, m = (Var(name) for name in "i j k n m".split())
f0, f1, f2 = Var("f0"), Var("f1"), Var("f2")
x, y, z = Var("x"), Var("y"), Var("z")


def positive() -> Analyzer:
    made = Analyzer()
    for var in (f0, f1, f2, n, m):
        made.bind_positive(var)
    return made


def points(domain, env=None):
    """All assignments of a domain whose extents are evaluated in ``env``."""
    env = env or {}
    axes = []
    for var, value in domain.items():
        low, extent = evaluate(value.min, env), evaluate(value.extent, env)
        axes.append([(var, low + step) for step in range(extent)])
    for chosen in itertools.product(*axes):
        yield {**env, **dict(chosen)}


BIJECTIVE = [
    ([i * 16 + j], {i: rng(4), j: rng(16)}, TRUE, [64]),
    ([j * 4 + i], {i: rng(4), j: rng(16)}, TRUE, [64]),
    ([i // 4, i % 4], {i: rng(24)}, TRUE, [6, 4]),
    ([i % 4, i // 4], {i: rng(24)}, TRUE, [4, 6]),
    ([i // 8, i // 2 % 4, i % 2], {i: rng(24)}, TRUE, [3, 4, 2]),
    ([(i * 8 + j) // 4, (i * 8 + j) % 4], {i: rng(4), j: rng(8)}, TRUE, [8, 4]),
    ([(i * 6 + j) // 4, (i * 6 + j) % 4], {i: rng(4), j: rng(6)}, TRUE, [6, 4]),
    ([i // 4 % 4 * 8 + i % 4 * 2 + j], {i: rng(16), j: rng(2)}, TRUE, [32]),
    (
        [(i // 4 * 6 + j) // 8, (i // 4 * 6 + j) % 8, i % 4],
        {i: rng(16), j: rng(6)},
        TRUE,
        [3, 8, 4],
    ),
    ([i * 4 + j + 7, k], {i: rng(3, 2), j: rng(4), k: rng(5, 1)}, TRUE, [12, 5]),
    ([i * 4 + j], {i: rng(6), j: rng(4)}, i * 4 + j < 22, [22]),
    ([i * 4 + j, k], {i: rng(6), j: rng(4), k: rng(9)}, and_(i * 4 + j < 22, k < 5), [22, 5]),
    ([i, j], {i: rng(6), j: rng(4)}, and_(i < 5, j >= 1), [5, 3]),
    ([i * 10 + j], {i: rng(13), j: rng(10)}, i * 10 + j > 5, [124]),
    ([i * 4 + j], {i: rng(6), j: rng(4)}, i * 4 + j >= 7, [17]),
    ([i * 4 + j + 1], {i: rng(6), j: rng(4)}, i * 8 + j * 2 > 13, [17]),
    ([i * 4 + j, k], {i: rng(6), j: rng(4), k: rng(3)}, and_(i * 4 + j >= 7, k >= 1), [17, 2]),
    ([i * 4 + j], {i: rng(6), j: rng(4)}, and_(i * 4 + j >= 7, i * 4 + j < 22), [15]),
    ([i * 4 + j], {i: rng(6), j: rng(4)}, and_(i * 4 + j >= 0, i * 4 + j < 30), [24]),
    ([i * 4 + j], {i: rng(6), j: rng(4)}, and_(i * 4 + j >= 7, i * 4 + j >= 9), [15]),
    ([k, i * 4 + j], {i: rng(6), j: rng(4), k: rng(2)}, i * -4 - j < -9, [2, 14]),
    ([i * 4 + j], {i: rng(1), j: rng(4)}, TRUE, [4]),
]


@pytest.mark.parametrize("indices, domain, predicate, extents", BIJECTIVE, ids=lambda e: repr(e))
def test_bijective_maps(indices, domain, predicate, extents):
    found = detect_iter_map(indices, domain, predicate, require_bijective=True)
    assert not found.errors
    images = set()
    outputs = [Var(f"o{axis}") for axis in range(len(indices))]
    solved = inverse_affine_iter_map(found.indices, outputs)
    for point in points(domain):
        if not evaluate(predicate, point):
            continue
        image = tuple(evaluate(index, point) for index in indices)
        again = tuple(evaluate(normalize_iter_map_to_expr(total), point) for total in found.indices)
        assert image == again
        images.add(image)
        env = dict(zip(outputs, image))
        for var, value in solved.items():
            assert evaluate(value, env) == point[var]
    sizes = [evaluate(total.args[0].extent, {}) for total in found.indices]
    assert sizes == extents
    bases = [evaluate(total.base, {}) for total in found.indices]
    box = itertools.product(*(range(base, base + size) for base, size in zip(bases, sizes)))
    assert images == set(box)


REFUSED = [
    ([i + j], {i: rng(4), j: rng(4)}, "overlap or leave gaps"),
    ([i, i], {i: rng(4)}, "used more than once"),
    ([i // 2, i // 4], {i: rng(8)}, "used more than once"),
    ([i * j], {i: rng(4), j: rng(4)}, "not linear"),
    ([i // n], {i: rng(4)}, "may not be positive"),
    ([i // (j + 1)], {i: rng(4), j: rng(4)}, "divides by something that varies"),
    ([(i * 3 + j) // 2], {i: rng(4), j: rng(2)}, "not a fusion"),
    ([i * 3 + j * 2], {i: rng(4), j: rng(4)}, "overlap or leave gaps"),
]


@pytest.mark.parametrize("indices, domain, reason", REFUSED, ids=lambda e: repr(e))
def test_refusals_say_why(indices, domain, reason):
    found = detect_iter_map(indices, domain)
    assert not found.indices
    assert reason in found.errors[0]


NOT_BIJECTIVE = [
    ([i * 2], {i: rng(4)}, TRUE, "stride 2"),
    ([i * 8 + j], {i: rng(4), j: rng(4)}, TRUE, "overlap or leave gaps"),
    ([i // 4], {i: rng(8)}, TRUE, "do not cover"),
    ([i], {i: rng(8), j: rng(4)}, TRUE, "do not depend on"),
    ([i // 3, i % 3], {i: rng(8)}, TRUE, "padded"),
    ([i, j], {i: rng(8), j: rng(8)}, i + j < 5, "does not bound a fused index"),
    ([i, j], {i: rng(8), j: rng(8)}, i * 8 + j >= 5, "no index fuses what the condition"),
    ([(i * 4 + j) // 2, (i * 4 + j) % 2], {i: rng(6), j: rng(4)}, i * 4 + j >= 6, "no index fuses"),
    ([i * 4 + j], {i: rng(6), j: rng(4)}, and_(i * 4 + j >= 9, i * 4 + j < 9), "does not bound"),
    ([i * 4 + j], {i: rng(6), j: rng(4)}, i * 4 + j >= 24, "does not bound a fused index"),
    ([i * 4 + j], {i: rng(6), j: rng(4)}, and_(i >= 3, i < 2), "does not bound a fused index"),
]


@pytest.mark.parametrize("indices, domain, predicate, reason", NOT_BIJECTIVE, ids=repr)
def test_not_bijective(indices, domain, predicate, reason):
    assert not detect_iter_map(indices, domain, predicate).errors
    found = detect_iter_map(indices, domain, predicate, require_bijective=True)
    assert any(reason in error for error in found.errors), found.errors


def test_injective_is_told():
    domain = {i: rng(8), j: rng(4)}
    assert detect_iter_map([i * 8 + j], domain).injective
    assert detect_iter_map([i // 3, i % 3], domain).injective
    assert not detect_iter_map([i // 4], domain).injective


def test_padding_predicate():
    found = detect_iter_map([i // 3, i % 3], {i: rng(8)})
    assert expr_equal(found.padding_predicate, i >= 8)


SYMBOLIC = [
    ([x * f1 + y], {x: rng(f0), y: rng(f1)}, TRUE, f0 * f1),
    ([x * f1 * f2 + y * f2 + z], {x: rng(f0), y: rng(f1), z: rng(f2)}, TRUE, f0 * f1 * f2),
    ([x * 4 + j], {x: rng(n), j: rng(4)}, TRUE, n * 4),
    ([x * 16 + j], {x: rng(ceildiv(n, 16)), j: rng(16)}, x * 16 + j < n, n),
    ([x * 2 * f1 + y], {x: rng(f0), y: rng(f1 * 2)}, TRUE, f0 * f1 * 2),
    ([x * 4 + j], {x: rng(n), j: rng(4)}, x * 4 + j >= 3, n * 4 - 3),
]


@pytest.mark.parametrize("indices, domain, predicate, extent", SYMBOLIC, ids=lambda e: repr(e))
def test_symbolic_maps(indices, domain, predicate, extent):
    known = positive()
    found = detect_iter_map(indices, domain, predicate, require_bijective=True, analyzer=known)
    assert not found.errors
    assert known.can_prove_equal(found.indices[0].args[0].extent, extent)
    env = {f0: 3, f1: 4, f2: 2, n: 21, m: 5}
    images = [
        evaluate(indices[0], point) for point in points(domain, env) if evaluate(predicate, point)
    ]
    first = evaluate(found.indices[0].base, env)
    assert sorted(images) == list(range(first, first + evaluate(extent, env)))


@pytest.mark.parametrize("predicate", [x * 4 + j < m, x * 4 + j >= m, x * 4 + j >= 5], ids=repr)
def test_a_bound_that_may_lie_outside_is_none(predicate):
    # Nobody knows whether m (or 5) is in [0, n * 4).
    domain = {x: rng(n), j: rng(4)}
    found = detect_iter_map(
        [x * 4 + j], domain, predicate, require_bijective=True, analyzer=positive()
    )
    assert any("does not bound" in error for error in found.errors)


def test_symbolic_fused_loop():
    known = positive()
    domain = {k: rng(f0 * f1 * f2)}
    indices = [k // (f1 * f2), k // f2 % f1, k % f2]
    found = detect_iter_map(indices, domain, require_bijective=True, analyzer=known)
    assert not found.errors
    outputs = [x, y, z]
    solved = inverse_affine_iter_map(found.indices, outputs)
    assert known.can_prove_equal(solved[k], x * f1 * f2 + y * f2 + z)


def test_symbolic_tiles_of_a_known_extent():
    known = positive()
    known.assume(f0 * f1 * f2 == 512)
    domain = {k: rng(512)}
    indices = [k // (f1 * f2), k // f2 % f1, k % f2]
    found = detect_iter_map(indices, domain, require_bijective=True, analyzer=known)
    assert not found.errors
    assert known.can_prove_equal(found.indices[0].args[0].extent, f0)
    tiles = {x: rng(f0), y: rng(f1), z: rng(f2)}
    fused = [x * f1 * f2 + y * f2 + z]
    found = detect_iter_map(fused, tiles, require_bijective=True, analyzer=known)
    assert not found.errors
    assert known.can_prove_equal(found.indices[0].args[0].extent, 512)
    assert known.can_prove_equal(known.simplify(f0 * 0 + 1024 // f2), f0 * f1 * 2)


@pytest.mark.parametrize("seed", range(60))
def test_random_maps_agree_with_brute_force(seed):
    """Random splits and fusions: what is called bijective is, and evaluates alike."""
    pick = random.Random(seed)
    domain = {var: rng(pick.choice([2, 3, 4, 6, 8, 12])) for var in (i, j, k)}
    extents = {var: evaluate(value.extent, {}) for var, value in domain.items()}
    order = list(domain)
    pick.shuffle(order)
    fused, size = order[0], extents[order[0]]
    for var in order[1:]:
        if pick.random() < 0.8:
            fused, size = fused * extents[var] + var, size * extents[var]
    by = pick.choice([2, 3, 4, 6, 8, 12])
    indices = [fused // by, fused % by]
    if pick.random() < 0.4:
        indices = [fused // (by * 2), fused // by % 2, fused % by]
    if pick.random() < 0.3:
        indices.append(pick.choice(order))
    used = {var: value for var, value in domain.items() if any(uses_var(e, {var}) for e in indices)}
    found = detect_iter_map(indices, used, require_bijective=True)
    images = [tuple(evaluate(e, point) for e in indices) for point in points(used)]
    loose = detect_iter_map(indices, used)
    if loose.injective:
        assert len(set(images)) == len(images)
    if found.errors:
        return
    assert len(set(images)) == len(images)
    box = 1
    for total in found.indices:
        box *= evaluate(total.args[0].extent, {}) if total.args else 1
    assert box == len(images)
    for point, image in zip(points(used), images):
        assert image == tuple(evaluate(total.to_expr(), point) for total in found.indices)
    outputs = [Var(f"o{axis}") for axis in range(len(indices))]
    solved = inverse_affine_iter_map(found.indices, outputs)
    assert set(solved) == set(used)
    for point, image in zip(points(used), images):
        for var, value in solved.items():
            assert evaluate(value, dict(zip(outputs, image))) == point[var]


@pytest.mark.parametrize("size, by", [(s, b) for s in (6, 12, 24, 36) for b in (2, 3, 4, 6, 12)])
def test_splits_that_divide_are_bijective(size, by):
    found = detect_iter_map([i // by, i % by], {i: rng(size)}, require_bijective=True)
    assert bool(found.errors) == (size % by != 0 and by < size)


def test_simplify_knows_the_loops():
    domain = {i: rng(64), j: rng(16)}
    made = iter_map_simplify([(i * 16 + j) // 4, i // 8 * 8 + i // 4 % 2 * 4 + i % 4], domain)
    assert expr_equal(made[0], i * 4 + j // 4)
    assert made[1] is i


def test_subspace_division():
    domain = {i: rng(4), j: rng(16), k: rng(4), x: rng(4)}
    found = subspace_divide([i * 16 + j, k * 4 + x], domain, {j, x})
    assert found is not None
    expected = [(i, 4, j, 16), (k, 4, x, 4)]
    for (outer, inner), (a, a_extent, b, b_extent) in zip(found, expected):
        assert expr_equal(normalize_iter_map_to_expr(outer), a)
        assert expr_equal(normalize_iter_map_to_expr(inner), b)
        assert evaluate(outer.extent, {}) == a_extent
        assert evaluate(inner.extent, {}) == b_extent


def test_subspace_division_of_symbolic_tiles():
    known = positive()
    domain = {x: rng(f0), y: rng(f1), z: rng(f2)}
    found = subspace_divide([x * f1 * f2 + y * f2 + z], domain, {y, z}, analyzer=known)
    assert found is not None
    ((outer, inner),) = found
    assert normalize_iter_map_to_expr(outer) is x
    assert known.can_prove_equal(inner.extent, f1 * f2)


def test_subspace_predicates():
    domain = {i: rng(4), j: rng(16)}
    found = subspace_divide([i * 16 + j], domain, {j}, and_(i < 3, j < 9))
    assert found is not None
    assert expr_equal(found.outer_predicate, i < 3)
    assert expr_equal(found.inner_predicate, j < 9)
    assert subspace_divide([i * 16 + j], domain, {j}, i * 16 + j < 50) is None
    assert subspace_divide([j * 4 + i], domain, {j}) is None


def test_condition_that_no_index_fuses_is_not_a_box():
    domain = {i: rng(24), j: rng(2)}
    found = detect_iter_map([i, j], domain, i * 2 + j < 45, require_bijective=True)
    assert any("no index fuses" in error for error in found.errors)
    assert not detect_iter_map([i, j], domain, i * 2 + j < 45).errors
    fused = detect_iter_map([i * 2 + j], domain, i * 2 + j < 45, require_bijective=True)
    assert not fused.errors
    assert evaluate(fused.indices[0].args[0].extent, {}) == 45


@pytest.mark.parametrize("first, second", [(10, 78), (10, 80), (9, 78), (10, 64), (9, 72)])
def test_nested_conditions(first, second):
    domain = {i: rng(3), j: rng(4), k: rng(8)}
    predicate = and_(i * 4 + j < first, i * 32 + j * 8 + k < second)
    extent = min(first * 8, second)
    whole = [i * 32 + j * 8 + k]
    found = detect_iter_map(whole, domain, predicate, require_bijective=True)
    assert not found.errors
    assert evaluate(found.indices[0].args[0].extent, {}) == extent
    parts = detect_iter_map([i * 4 + j, k], domain, predicate, require_bijective=True)
    assert bool(parts.errors) == (extent % 8 != 0 or second < first * 8)


def test_a_fused_offset_is_padding_at_the_start() -> None:
    # They reach 14 of 16 points, though 14 + 2 is divisible by 4.
    indices, domain = [(i + 2) // 4, (i + 2) % 4], {i: rng(14)}
    found = detect_iter_map(indices, domain, require_bijective=True)
    assert found.errors and "padded at its start" in found.errors[0]
    assert not detect_iter_map(indices, domain).errors
