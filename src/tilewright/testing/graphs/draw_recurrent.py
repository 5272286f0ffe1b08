"""Recurrent layers of every cell, in both directions."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir import Expr
from tilewright.relax import op
from tilewright.testing.graphs.data import numpy_dtype
from tilewright.testing.graphs.graph import Graph, Sizes, Value
from tilewright.testing.graphs.width import wide

Array = np.ndarray[Any, Any]
_GATES = {"lstm": 4, "gru": 3, "tanh": 1, "relu": 1}


def draw_recurrence(g: Graph) -> list[Value] | None:
    """A few steps; outputs and last state."""
    rng = g.rng
    dtype = rng.choice(["float32", "float32", "float64", "float16"])
    cell = rng.choice(list(_GATES))
    steps: Expr | int = rng.choice([0, 1, 2, 4])
    batch: Expr | int = rng.choice([1, 2, 3, 4])
    hidden = rng.choice([1, 3, 8, 20])
    if g.extent is not None and rng.random() < 0.4:
        batch = g.extent
    reverse, batch_first = rng.random() < 0.5, rng.random() < 0.5
    width = _GATES[cell] * hidden
    x = g.fresh([*((batch, steps) if batch_first else (steps, batch)), width], dtype, likes="tame")
    weight = g.fresh([hidden, width], dtype, likes="tame", constant=0.6)
    bias = g.fresh([width], dtype, likes="tame", constant=0.6)
    states = [g.fresh([batch, hidden], dtype, likes="tame") for _ in range(1 + (cell == "lstm"))]

    kind = numpy_dtype(dtype)

    def meaning(size: Sizes, x: Array, weight: Array, bias: Array, *states: Array) -> list[Array]:
        x, weight, bias, *now = map(wide, (x, weight, bias, *states))
        rows = x.swapaxes(0, 1) if batch_first else x
        y = np.zeros((*rows.shape[:2], hidden), rows.dtype)
        for step in reversed(range(len(rows))) if reverse else range(len(rows)):
            own = np.split(now[0] @ weight + bias, _GATES[cell], 1)
            now = _step(cell, np.split(rows[step], _GATES[cell], 1), own, now)
            now = [wide(state.astype(kind)) for state in now]  # as the operator keeps them
            y[step] = now[0]
        return [y.swapaxes(0, 1) if batch_first else y, *now]

    return g.emit(
        "recurrence",
        [x, weight, bias, *states],
        lambda *operands: op.nn.recurrence(
            *operands, cell=cell, reverse=reverse, batch_first=batch_first
        ),
        meaning,
        noise=16 if dtype == "float16" else 256,
        absolute=2 if dtype == "float16" else 64,  # sums that may cancel
        reduces=True,
    )


def _step(cell: str, x: list[Array], own: list[Array], states: list[Array]) -> list[Array]:
    if cell == "lstm":
        write, keep, new, show = (a + b for a, b in zip(x, own))
        memory = _sigmoid(keep) * states[1] + _sigmoid(write) * np.tanh(new)
        return [_sigmoid(show) * np.tanh(memory), memory]
    if cell == "gru":
        reset, update = (_sigmoid(a + b) for a, b in zip(x[:2], own[:2]))
        new = np.tanh(x[2] + reset * own[2])
        return [(1 - update) * new + update * states[0]]
    total = x[0] + own[0]
    return [np.tanh(total) if cell == "tanh" else np.maximum(total, 0)]


def _sigmoid(x: Array) -> Array:
    made: Array = 1 / (1 + np.exp(-x))
    return made


DRAWERS = {"recurrence": (draw_recurrence, 0.4)}
