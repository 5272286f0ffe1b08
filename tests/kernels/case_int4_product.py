"""The case of the kernel for products with 4-bit weights, which never change."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import topi

LAYOUT_FREE = [1, 2, 3]


def case(rng: np.random.Generator) -> tuple[Any, list[np.ndarray]]:
    weights = rng.standard_normal((40, 64), dtype="float32")
    x = rng.standard_normal((4, 64), dtype="float32")
    return topi.nn.dense_int4, [x, *topi.nn.quantize_int4(weights, 32, symmetric=False)]
