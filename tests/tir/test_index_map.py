from __future__ import annotations

import json

import numpy as np
import pytest

from tilewright.arith import Analyzer
from tilewright.ir import (
    FALSE,
    Range,
    Var,
    as_int,
    const,
    load_json,
    save_json,
    structural_equal,
    substitute,
)
from tilewright.support.errors import ScheduleError
from tilewright.tir.index_map import AXIS_SEPARATOR, IndexMap, as_index_map


def shape(exprs: object) -> list[int | None]:
    return [as_int(e) for e in exprs]  # type: ignore[attr-defined]


TILED = IndexMap.from_func(lambda i, j: (i // 16, j, i % 16))


def test_indices_and_shapes_are_mapped() -> None:
    assert shape(TILED.map_indices([const(35), const(7)])) == [2, 7, 3]
    assert shape(TILED.map_shape([128, 10])) == [8, 10, 16]
    assert shape(TILED.map_shape([100, 10])) == [7, 10, 16]


def test_symbolic_shapes() -> None:
    n = Var("n")
    mapped = TILED.map_shape([n * 16, 10])
    assert as_int(mapped[1]) == 10
    assert as_int(mapped[2]) == 16


@pytest.mark.parametrize(
    "function",
    [lambda i, j: (i * 4 + j,), lambda i, j: (i, j * 2), lambda i, j: (i // 3 + j,)],
)
@pytest.mark.parametrize("sizes", [(0, 1), (1, 0), (0, 0), (5, 1), (3, 4)])
def test_no_extent_of_symbolic_shapes_is_negative(function: object, sizes: object) -> None:
    n, m = Var("n"), Var("m")
    mapping = IndexMap.from_func(function)
    symbolic = mapping.map_shape([n, m])
    actual = [substitute(extent, {n: const(sizes[0]), m: const(sizes[1])}) for extent in symbolic]
    made = [as_int(Analyzer().simplify(extent)) for extent in actual]
    assert all(extent >= 0 for extent in made)
    if 0 not in sizes:
        assert made == [as_int(extent) for extent in mapping.map_shape(sizes)]


def test_text_round_trip() -> None:
    for text in (
        "lambda i, j: (i // 16, j, i % 16)",
        "lambda i, j: (i * 4 + j,)",
        "lambda a, b: ((a + b) * 2 - 1, a - (b - 1), max(a, min(b, 3)))",
    ):
        made = IndexMap.from_text(text)
        assert made.to_text() == text
        assert structural_equal(made, IndexMap.from_text(made.to_text()))


@pytest.mark.parametrize(
    "text, reason",
    [
        ("i + 1", "expected `lambda"),
        ("lambda i: i ** 2", "index arithmetic"),
        ("lambda i: k", "unknown name k"),
        ("lambda i: __import__('os')", "index arithmetic"),
        ("lambda i:", "syntax"),
    ],
)
def test_text_that_is_no_map(text: str, reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason.replace("*", r"\*")):
        IndexMap.from_text(text)


@pytest.mark.parametrize(
    "function, sizes",
    [
        (lambda i, j: (j, i), (6, 8)),
        (lambda i, j: (i * 8 + j,), (6, 8)),
        (lambda i, j: (i // 2, j // 4, i % 2, j % 4), (6, 8)),
        (lambda i, j: ((i * 8 + j) // 12, (i * 8 + j) % 12), (6, 8)),
        (lambda i, j: (i // 4, i // 2 % 2, j, i % 2), (8, 3)),
        (lambda i, j: (i, 0, j), (4, 5)),
    ],
)
def test_inverse_undoes_the_map(function: object, sizes: tuple[int, int]) -> None:
    made = IndexMap.from_func(function)  # type: ignore[arg-type]
    inverse = made.inverse(sizes)
    for i in range(sizes[0]):
        for j in range(sizes[1]):
            there = made.map_indices([const(i), const(j)])
            assert shape(inverse.map_indices(there)) == [i, j]


def test_padding_predicate() -> None:
    made, padding = TILED.non_surjective_inverse([20, 3])
    assert padding is not FALSE
    found = set()
    for outer in range(2):
        for inner in range(16):
            values = dict(zip(made.initial_indices, (const(outer), const(0), const(inner))))
            where = shape(made.map_indices(list(values.values())))
            padded = as_int(Analyzer().simplify(substitute(padding, values)))
            assert bool(padded) == (where[0] >= 20)
            if not padded:
                found.add(where[0])
    assert found == set(range(20))
    with pytest.raises(ScheduleError, match="padding"):
        TILED.inverse([20, 3])


@pytest.mark.parametrize(
    "function, sizes, expected",
    [
        (lambda i: (i + 4,), [16], "lambda axis0: (axis0 - 4,)"),
        (lambda i: (i // 4 + 1, i % 4), [8], "lambda axis0, axis1: (axis0 * 4 + axis1 - 4,)"),
        (lambda i, j: (j + 2, i), [3, 5], "lambda axis0, axis1: (axis1, axis0 - 2)"),
        (lambda i: (15 - i,), [16], "lambda axis0: (15 - axis0,)"),
    ],
)  # fmt: skip
def test_results_may_begin_anywhere(function: object, sizes: list[int], expected: str) -> None:
    assert IndexMap.from_func(function).inverse(sizes).to_text() == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "function", [lambda i: (2 * i + 1,), lambda i: ((i + 3) // 4, (i + 3) % 4)]
)
def test_holes_have_no_inverse(function: object) -> None:
    with pytest.raises(ScheduleError, match="adds padding"):
        IndexMap.from_func(function).inverse([16])  # type: ignore[arg-type]


def test_maps_that_lose_information_have_no_inverse() -> None:
    for function in (lambda i: (i // 2,), lambda i: (i % 3,), lambda i: (0,)):
        with pytest.raises(ScheduleError, match="not a bijection"):
            IndexMap.from_func(function).inverse([6])


def test_given_inverse_is_used() -> None:
    made = IndexMap.from_func(lambda i: (5 - i,), inverse_index_map=lambda i: (5 - i,))
    inverse = made.inverse([6])
    assert shape(inverse.map_indices([const(2)])) == [3]


def test_composition_and_equivalence() -> None:
    swap = IndexMap.from_func(lambda i, j: (j, i))
    assert swap.compose(swap).is_equivalent_to(IndexMap.identity(2))
    assert not swap.is_equivalent_to(IndexMap.identity(2))
    split = IndexMap.from_func(lambda i: (i // 4, i % 4))
    fuse = IndexMap.from_func(lambda i, j: (i * 4 + j,))
    assert fuse.compose(split).is_equivalent_to(IndexMap.identity(1))


def test_arrays_are_laid_out() -> None:
    data = np.arange(60).reshape(20, 3)
    made = TILED.map_ndarray(data)
    assert made.shape == (2, 3, 16)
    assert made[1, 2, 3] == data[19, 2]
    assert made[1, 2, 4] == 0


def test_variadic_functions_and_separators() -> None:
    made = IndexMap.from_func(lambda *i: (i[-1], *i[:-1]), ndim=3)
    assert shape(made.map_indices([const(1), const(2), const(3)])) == [3, 1, 2]
    _, separators = IndexMap.from_func_with_separators(lambda i, j: (i, IndexMap.AXIS_SEPARATOR, j))
    assert separators == [1]
    with pytest.raises(ScheduleError, match="needs ndim"):
        IndexMap.from_func(lambda *i: i)
    with pytest.raises(ScheduleError, match="takes 2 indices"):
        as_index_map(TILED, 3)


def _holds(padding: object, values: dict[object, int]) -> bool:
    known = substitute(padding, {var: const(value) for var, value in values.items()})
    return bool(as_int(Analyzer().simplify(known)))


@pytest.mark.parametrize(
    "function, sizes",
    [
        (lambda i, j: (i // 4, j, i % 4), (10, 3)),
        (lambda i, j: ((i + 2) // 4, (i + 2) % 4, j), (14, 2)),
        (lambda i, j: ((i + 2) // 4, (i + 2) % 4, j), (12, 2)),
        (lambda i, j: (i + 3, j), (5, 2)),
        (lambda i, j: (2 * i, j), (5, 2)),
        (lambda i, j: (9 - i, j), (7, 2)),
        (lambda i, j: (i, 3, j), (3, 2)),
        (lambda i, j: ((i * 10 + j) // 8, (i * 10 + j) % 8), (3, 10)),
        (lambda i, j: (i // 4 % 2, i // 8, i % 4, j), (20, 2)),
        (lambda i, j: (i // 6, j // 4, i % 6 // 2, j % 4, i % 2), (11, 7)),
    ],
)
def test_padding_is_what_no_input_reaches(function: object, sizes: tuple[int, int]) -> None:
    made = IndexMap.from_func(function)  # type: ignore[arg-type]
    inverse, padding = made.non_surjective_inverse(sizes)
    reached = {}
    for where in np.ndindex(*sizes):
        point = tuple(shape(made.map_indices(where)))
        assert point not in reached
        reached[point] = where
    for point in np.ndindex(*shape(made.map_shape(sizes))):
        values = dict(zip(inverse.initial_indices, point))
        assert _holds(padding, values) == (point not in reached)
        if point in reached:
            assert tuple(shape(inverse.map_indices(point))) == reached[point]


def _random_map(rng: np.random.Generator, sizes: tuple[int, int]) -> IndexMap:
    """Fuses or not, shifts, splits each index, and permutes the parts."""
    first, second = (int(n) for n in rng.integers(2, 6, 2))
    offset, fused = int(rng.integers(0, 4)), bool(rng.integers(2))
    i, j = Var("i"), Var("j")
    total = (i * sizes[1] + j if fused else i) + offset
    parts = [total // first, total % first]
    if not fused:
        parts += [j // second, j % second]
    return IndexMap((i, j), tuple(parts[n] for n in rng.permutation(len(parts))))


def test_random_maps_are_inverted_exactly() -> None:
    rng = np.random.default_rng(5)
    inverted = 0
    for _ in range(60):
        sizes = (int(rng.integers(1, 14)), int(rng.integers(1, 14)))
        made = _random_map(rng, sizes)
        try:
            inverse, padding = made.non_surjective_inverse(sizes)
        except ScheduleError:
            continue
        inverted += 1
        reached = {tuple(shape(made.map_indices(where))): where for where in np.ndindex(*sizes)}
        assert len(reached) == sizes[0] * sizes[1]
        for point in np.ndindex(*shape(made.map_shape(sizes))):
            values = dict(zip(inverse.initial_indices, point))
            assert _holds(padding, values) == (point not in reached), (made, sizes, point)
            if point in reached:
                assert tuple(shape(inverse.map_indices(point))) == reached[point]
    assert inverted >= 50


def test_symbolic_maps_have_inverses() -> None:
    n, m = Var("n"), Var("m")
    fuse = IndexMap.from_func(lambda i, j: (i * n + j,))
    inverse = fuse.inverse([m, n])
    assert inverse.to_text() == "lambda axis0: (axis0 // n, axis0 % n)"
    split = IndexMap.from_func(lambda i: (i // n, i % n))
    assert split.inverse([n * m]).to_text() == "lambda axis0, axis1: (axis0 * n + axis1,)"
    _, padding = split.non_surjective_inverse([m])
    assert padding is not FALSE


def test_a_wrong_inverse_is_not_believed() -> None:
    made = IndexMap.from_func(lambda i: (i // 2,), inverse_index_map=lambda i: (i * 2,))
    with pytest.raises(ScheduleError, match="not a bijection"):
        made.inverse([6])


def test_ranges_are_mapped() -> None:
    ranges = TILED.map_ranges(
        [Range.from_min_extent(const(20), const(20)), Range.from_min_extent(const(3), const(2))]
    )
    assert [shape((item.min, item.extent)) for item in ranges] == [[1, 2], [3, 2], [0, 16]]
    with pytest.raises(ScheduleError, match="may be negative"):
        IndexMap.from_func(lambda i: (i - 1,)).map_shape([4])


def test_json_keeps_inverse_separators_and_symbols() -> None:
    n = Var("n")
    made = IndexMap.from_func(
        lambda i, j: (i, AXIS_SEPARATOR, j + n), inverse_index_map=lambda i, j: (i, j - n)
    )
    assert made.axis_separators == (1,)
    data = json.loads(json.dumps(made.to_json()))
    assert data["map"] == "lambda i, j: (i, AXIS_SEPARATOR, j + n)"
    again = IndexMap.from_json(data, {"n": n})
    assert structural_equal(again, made)
    assert again.inverse_map is not None
    assert structural_equal(as_index_map(TILED.to_json()), TILED)  # type: ignore[arg-type]
    with pytest.raises(ScheduleError, match="is not an index map"):
        IndexMap.from_json({"map": "lambda i: (i,)"})
    with pytest.raises(ScheduleError, match="gives 3 indices"):
        TILED.with_inverse(lambda a, b, c: (a, b, c))


def test_variables_are_renamed() -> None:
    made = TILED.rename_variables(lambda var: {"i": "row"}.get(var.name))
    assert made.to_text() == "lambda row, j: (row // 16, j, row % 16)"
    # A parameter never takes the name of a symbolic extent.
    n = Var("n")
    assert (
        IndexMap.from_func(lambda n_: (n_ + n,)).rename_variables(lambda _: "n").to_text()
        == "lambda n_0: (n_0 + n,)"
    )


def test_results_may_be_numbers():
    i = Var("i")
    made = IndexMap([i], [3, i // 4])
    assert [as_int(item) for item in made.map_indices([9])] == [3, 2]
    assert structural_equal(load_json(save_json(made)), made)
    with pytest.raises(ScheduleError, match="an index map gives expressions"):
        IndexMap([i], [None])
