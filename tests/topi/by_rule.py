"""What tests of operators by TVM's names share: numbers, and their results by compiled code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

import tilewright
from tilewright import dlight, te
from tilewright.arith import simplify
from tilewright.ir import IRModule, as_int, substitute
from tilewright.target import Target

TARGET = Target("native").with_options(num_cores=1)


def results(
    define: Callable[..., Any],
    *arrays: np.ndarray,
    shapes: Sequence[Any] | None = None,
    **sizes: int,
) -> list[np.ndarray]:
    """Schedule by rule, compile and run; ``shapes`` may name sizes, which are given by name."""
    given = shapes or [array.shape for array in arrays]
    inputs = [
        te.placeholder(shape, str(array.dtype), name=f"x{number}")
        for number, (shape, array) in enumerate(zip(given, arrays))
    ]
    made = define(*inputs)
    outputs = list(made) if isinstance(made, (list, tuple)) else [made]
    func = te.create_prim_func([*inputs, *outputs])
    mod = dlight.ApplyDefaultSchedule(target=TARGET)(IRModule({"main": func}))

    def extent(e: Any) -> int:
        values = {v: sizes[v.name] for shape in given for v in shape if hasattr(v, "name")}
        return as_int(simplify(substitute(e, values))) or 0

    found = [np.empty([extent(e) for e in output.shape], output.dtype) for output in outputs]
    tilewright.compile(mod, TARGET)["main"](*arrays, *found)
    return found


def evaluate(define: Callable[..., Any], *arrays: np.ndarray, **options: Any) -> np.ndarray:
    """The first of the results."""
    return results(define, *arrays, **options)[0]


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Random numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def t(array: np.ndarray) -> torch.Tensor:
    """The array as a tensor."""
    return torch.from_numpy(np.ascontiguousarray(array))


def moved(array: Any, source: str, target: str) -> np.ndarray:
    """The array with its axes in another order."""
    return np.ascontiguousarray(np.transpose(array, [source.index(axis) for axis in target]))
