"""Options of a run that mean nothing are refused, before anything is measured."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.meta_schedule.conftest import matmul
from tests.meta_schedule.test_components import NATIVE, quick
from tilewright import meta_schedule as ms
from tilewright import te, tir
from tilewright.support.errors import TuneError


def rows() -> tir.PrimFunc:
    n = tir.Var("n", "int64")
    a = te.placeholder((n, 8), name="A")
    return te.create_prim_func([a, te.compute((n, 8), lambda i, j: a[i, j] + 1.0, name="B")])


@pytest.mark.parametrize("wrong", [-2, 1.5, "3", True])
def test_a_seed_is_a_number(wrong: Any) -> None:
    with pytest.raises(TuneError, match="a seed is a whole number"):
        ms.TuneContext(matmul(8, 8, 8), target=NATIVE, rand_state=wrong)
    with pytest.raises(TuneError, match="a seed is a whole number"):
        ms.tune_tir(matmul(8, 8, 8), NATIVE, None, 1, **quick(), seed=wrong)


def test_a_seed_that_is_none_is_drawn() -> None:
    def seed(said: int | None) -> int:
        return ms.TuneContext(matmul(8, 8, 8), target=NATIVE, rand_state=said).rand_state

    drawn = {seed(None), seed(-1), seed(None)}
    assert len(drawn) == 3 and min(drawn) >= 0
    assert seed(7) == 7
    assert len(ms.tune_tir(matmul(8, 8, 8), NATIVE, None, 2, **quick(), seed=None)) == 2


@pytest.mark.parametrize(
    ("symbols", "said"),
    [
        ({"m": 3}, "no function has a size 'm'; known: n"),
        ({"nn": [1, 2]}, "did you mean 'n'"),
        ({"n": [4, "a"]}, "positive numbers"),
        ({"n": [0]}, "positive numbers"),
        ({"n": []}, "positive numbers"),
        ({"n": [1, 2], "m": [1, 2]}, "one size may have several values"),
    ],
)
def test_sizes_are_those_of_the_functions(symbols: Any, said: str) -> None:
    with pytest.raises(TuneError, match=re.escape(said)):
        ms.tune_tir(rows(), NATIVE, None, 1, **quick(), symbols=symbols)
    assert len(ms.tune_tir(rows(), NATIVE, None, 1, **quick(), symbols={"n": 3})) == 1


@pytest.mark.parametrize("made", [3, [3], "abc", object()])
def test_a_space_of_ones_own_makes_schedules(made: object) -> None:
    with pytest.raises(TuneError, match="sch_fn must return nothing, a Schedule, or a list"):
        ms.tune_tir(matmul(8, 8, 8), NATIVE, None, 1, **quick(space=lambda sch: made))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"progress": 3}, "progress is an instance of Progress, not a int"),
        ({"special_space": 3}, "special_space is a dict"),
        ({"special_space": ["main"]}, "special_space is a dict"),
    ],
)
def test_options_of_another_kind(options: dict[str, Any], said: str) -> None:
    with pytest.raises(TuneError, match=said):
        ms.tune_tir(matmul(8, 8, 8), NATIVE, None, 1, **quick(**options))
