"""The case of the kernel for attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import topi


def case(rng: np.random.Generator) -> tuple[Any, list[np.ndarray]]:
    operands = [rng.standard_normal((1, 2, 40, 16), dtype="float32") for _ in range(3)]
    return topi.nn.scaled_dot_product_attention, operands
