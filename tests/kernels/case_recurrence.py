"""The case of the kernel for recurrent layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import topi


def case(rng: np.random.Generator) -> tuple[Any, list[np.ndarray]]:
    shapes = [(5, 6, 4 * 20), (20, 4 * 20), (4 * 20,), (6, 20), (6, 20)]
    return topi.nn.recurrence, [rng.standard_normal(s, dtype="float32") / 2 for s in shapes]
