"""Operators by TVM's names, called with TVM's arguments by their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import te, topi
from tilewright.tir.interpreter import run

TRUTH = np.array([[True, False, True], [True, True, True]])
NUMBERS = np.array([-20.0, -1.0, -0.3, 0.0, 0.5, 2.0, 20.0], "float32")
TWOS, PLACES = np.full((3, 3), 2.0, "float32"), np.array([[0, 2, 0], [1, 2, 1]])
UPDATES = np.array([1.0, 2.0, 5.0], "float32")


def scattered(mode: str) -> Callable[..., te.Tensor]:
    return lambda data, indices, updates: topi.scatter_nd(
        data=data, indices=indices, updates=updates, mode=mode
    )


def twos(first: float, second: float) -> Any:
    """The result of ``scatter_nd``: two places of it are written, one of them twice."""
    made = TWOS.copy()
    made[0, 1], made[2, 2] = first, second
    return made


CASES: dict[str, tuple[Callable[..., te.Tensor], list[Any], Any]] = {
    "all": (lambda x: topi.all(data=x, axis=1, keepdims=True), [TRUTH], [[False], [True]]),
    "all of all": (lambda x: topi.all(data=x, axis=None, keepdims=False), [TRUTH], False),
    "any": (lambda x: topi.any(data=x, axis=0, keepdims=False), [~TRUTH], [False, True, False]),
    "fast_tanh": (lambda x: topi.fast_tanh(x=x), [NUMBERS], np.tanh(NUMBERS)),
    "left_shift": (
        lambda a, b: topi.left_shift(lhs=a, rhs=b),
        [np.arange(1, 5, dtype="int32"), np.arange(4, dtype="int32")],
        [1, 4, 12, 32],
    ),
    "update": (scattered("update"), [TWOS, PLACES, UPDATES], twos(5, 2)),
    "add": (scattered("add"), [TWOS, PLACES, UPDATES], twos(8, 4)),
    "mul": (scattered("mul"), [TWOS, PLACES, UPDATES], twos(10, 4)),
    "min": (scattered("min"), [TWOS, PLACES, UPDATES], twos(1, 2)),
    "max": (scattered("max"), [TWOS, PLACES, UPDATES], twos(5, 2)),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    build, arrays, expected = CASES[name]
    inputs = [te.placeholder(x.shape, str(x.dtype), f"x{n}") for n, x in enumerate(arrays)]
    output = build(*inputs)
    result = np.zeros([int(extent) for extent in output.shape], output.dtype)
    run(te.create_prim_func([*inputs, output]), *arrays, result)
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)
