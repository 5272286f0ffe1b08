"""What a workload is: an operator with shapes, how each subject computes it, and what it costs.

Workloads are data; the lists stand in ``benchmarks/workloads``, a file per family.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright import te, topi
from tilewright.runtime import numpy_dtype
from tilewright.tir import PrimFunc
from tilewright.tir.attrs import LAYOUT_FREE

Array = np.ndarray[Any, Any]

#: Largest difference from the float64 reference over its largest value, by type of the result.
TOLERANCE = {"float32": 1e-4, "bfloat16": 1e-2, "float16": 2e-3, "float64": 1e-12}


class Unavailable(Exception):
    """A subject has no such operator: no fault, but no figure either."""


@dataclass(frozen=True)
class Input:
    """An operand: ``weight`` if a model would hold it as a constant.

    Floats are drawn from the normal distribution, integers from all values of their type or from
    ``low`` (included) to ``high`` (excluded).
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    weight: bool = False
    low: int | None = None
    high: int | None = None

    def draw(self, rng: np.random.Generator) -> Array:
        """Return random contents."""
        kind = numpy_dtype(self.dtype)
        if kind.kind in "iu":
            bounds = np.iinfo(kind)
            low = bounds.min if self.low is None else self.low
            high = bounds.max + 1 if self.high is None else self.high
            return rng.integers(low, high, self.shape, kind)
        return rng.standard_normal(self.shape, dtype=np.float32).astype(kind, copy=False)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * numpy_dtype(self.dtype).itemsize


def weight(*shape: int, dtype: str = "float32") -> Input:
    """Describe an operand that a model holds as a constant."""
    return Input(shape, dtype, weight=True)


def data(*shape: int, dtype: str = "float32") -> Input:
    """Describe an operand that comes with each call."""
    return Input(shape, dtype)


@dataclass(frozen=True)
class Workload:
    """An operator to measure.

    ``build`` takes tensors of ``te``; ``needs`` are the functions of topi (``nn.conv2d``) and
    arguments of them (``nn.conv2d:out_dtype``) that it uses, without which it isn't available.
    ``reference`` takes the operands as arrays of float64 (int64 for integers), and is the peer
    numpy too, with arrays of their own types, unless ``numpy`` is another function or None.
    ``torch`` takes torch, its functional module and tensors; ``torch_prepare`` what becomes of
    the operands beforehand. ``loops`` takes the arrays: a loop nest in what Numba compiles of
    Python. ``onnx`` are ways to write it as a graph, each of a graph and names; the fastest counts.

    ``graph``, for what graph passes decide about (such as the algorithm of a convolution), writes
    it with operators of relax; with constant weights we then build the graph.

    ``flops`` are of ``kind``: those of the multiply-adds or dot products that limit it. ``reads``
    are the bytes that must be read, if not all of the operands.
    """

    name: str
    family: str
    inputs: tuple[Input, ...]
    build: Callable[..., te.Tensor]
    reference: Callable[..., Array]
    torch: Callable[..., Any] | None
    onnx: tuple[Callable[..., str], ...]
    flops: float
    kind: str = "float32"
    out_dtype: str = "float32"
    numpy: Callable[..., Array] | str | None = "reference"
    torch_prepare: Callable[..., Sequence[Any]] | None = None
    needs: tuple[str, ...] = ()
    graph: Callable[..., Any] | None = None
    tolerance: float | None = None
    quick: bool = False
    reads: int | None = None
    loops: Callable[..., Any] | None = None

    def prim_func(self, constant_weights: bool = False) -> PrimFunc:
        """Return the operator as a function of its inputs and its result."""
        for needed in self.needs:
            if not _has(needed):
                raise Unavailable(f"not available: topi has no {needed.replace(':', ' with ')}")
        tensors = [
            te.placeholder(item.shape, item.dtype, name=f"x{n}")
            for n, item in enumerate(self.inputs)
        ]
        func = te.create_prim_func([*tensors, self.build(*tensors)])
        free = self.weights if constant_weights else []
        return func.with_attr(LAYOUT_FREE, free) if free else func

    @property
    def weights(self) -> list[int]:
        """Positions of the operands that a model holds as constants."""
        return [n for n, item in enumerate(self.inputs) if item.weight]

    def arrays(self, seed: int = 0) -> list[Array]:
        """Return random inputs."""
        rng = np.random.default_rng(seed)
        return [item.draw(rng) for item in self.inputs]

    def expected(self, arrays: Sequence[Array]) -> Array:
        """Return the result in float64, or int64 for integers."""
        wide = [a.astype(np.int64 if a.dtype.kind in "iu" else np.float64) for a in arrays]
        with np.errstate(all="ignore"):
            return np.asarray(self.reference(*wide))

    @property
    def limit(self) -> float:
        """The largest difference that is no fault; 0 for integers."""
        if self.tolerance is not None:
            return self.tolerance
        return TOLERANCE.get(self.out_dtype, 0.0)

    @property
    def read_bytes(self) -> int:
        """The fewest bytes that must be read."""
        if self.reads is not None:
            return self.reads
        return sum(item.nbytes for item in self.inputs)

    def written_bytes(self, shape: Sequence[int]) -> int:
        """The fewest bytes that must be written, for a result of this shape."""
        return math.prod(shape) * numpy_dtype(self.out_dtype).itemsize


def _has(path: str) -> bool:
    """Whether topi has a function ``nn.dense``, or one with an argument ``nn.dense:bias``."""
    name, _, argument = path.partition(":")
    found: Any = topi
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            return False
    return callable(found) and (not argument or argument in inspect.signature(found).parameters)
