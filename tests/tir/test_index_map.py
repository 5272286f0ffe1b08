from __future__ import annotations

import numpy as np
import pytest

from tilewright.ir import FALSE, Var, as_int, const, structural_equal
from tilewright.support.errors import ScheduleError
from tilewright.tir.index_map import IndexMap, as_index_map


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
    from tilewright.ir import substitute

    found = set()
    for outer in range(2):
        for inner in range(16):
            values = dict(zip(made.initial_indices, (const(outer), const(0), const(inner))))
            where = shape(made.map_indices(list(values.values())))
            from tilewright.arith import Analyzer

            padded = as_int(Analyzer().simplify(substitute(padding, values)))
            assert bool(padded) == (where[0] >= 20)
            if not padded:
                found.add(where[0])
    assert found == set(range(20))
    with pytest.raises(ScheduleError, match="padding"):
        TILED.inverse([20, 3])


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
