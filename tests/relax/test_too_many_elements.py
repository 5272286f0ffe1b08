"""Shapes with more elements than 64-bit indices can count are refused instead of wrapping."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.relax.helpers import graph_of, random
from tilewright import te, topi
from tilewright.relax import op
from tilewright.support.errors import TilewrightError
from tilewright.tir import decl_buffer

WRAPS = 2**62 + 1
"""Four times this is 4 in 64 bits."""

CASES: dict[str, Callable[[Any], Any]] = {
    "tile": lambda x: op.tile(x, (WRAPS, 1)),
    "repeat": lambda x: op.repeat(x, WRAPS, axis=0),
    "repeat of all": lambda x: op.repeat(x, WRAPS),
    "broadcast": lambda x: op.broadcast_to(op.reshape(x, (1, 1, 4, 3)), (2**31, 2**31, 4, 3)),
    "reshape": lambda x: op.reshape(x, (WRAPS, 4, 3)),
}


@pytest.mark.parametrize("name", CASES)
def test_graphs(name: str) -> None:
    with pytest.raises(TilewrightError, match=r"count|does not fit int64"):
        graph_of(CASES[name], random(4, 3))


@pytest.mark.parametrize(
    "make", [lambda a: topi.tile(a, (WRAPS, 1)), lambda a: topi.repeat(a, WRAPS, 0)]
)
def test_definitions(make: Callable[[te.Tensor], te.Tensor]) -> None:
    with pytest.raises(TilewrightError, match="does not fit int64"):
        make(te.placeholder((4, 3), "float32", "a"))


def test_declarations() -> None:
    for shape in ((2**32, 2**31), (2**21,) * 3):
        with pytest.raises(TilewrightError, match="elements, more than 64-bit indices can count"):
            te.placeholder(shape, "int8", "a")
        with pytest.raises(TilewrightError, match="elements, more than 64-bit indices can count"):
            decl_buffer(shape, "int8")
    assert decl_buffer((2**31, 2**31, 0), "int8").shape[2].value == 0
    assert decl_buffer((2**31, 2**31), "int8").shape[0].value == 2**31
