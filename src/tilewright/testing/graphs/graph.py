"""A graph while it is drawn: its inputs, its steps, and what each of them means in NumPy."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright import relax
from tilewright.arith import simplify
from tilewright.ir import Expr, IRModule, Var, as_int, const, substitute
from tilewright.relax import TensorStructInfo, TupleStructInfo
from tilewright.testing.graphs.data import draw_array, numpy_dtype
from tilewright.testing.graphs.width import in_single_precision

Meaning = Callable[..., Any]
"""``meaning(size, *arrays)``: what a step makes; ``size`` gives the number that an extent is."""


@dataclass(eq=False)
class Value:
    """A tensor of the graph: an input, a constant, or (part of) what a step makes."""

    var: Any
    shape: tuple[Expr, ...]
    dtype: str
    data: np.ndarray[Any, Any] | None = None
    """What a constant holds."""
    likes: str = ""
    """How the data of an input is drawn: see ``data.py``; ``index:N`` stays below N."""

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def numbers(self) -> tuple[int, ...] | None:
        """The shape, if no extent of it is symbolic."""
        made = tuple(as_int(extent) for extent in self.shape)
        return None if None in made else made  # type: ignore[return-value]


@dataclass(eq=False)
class Step:
    """One operator: how its call is made, and what it means."""

    name: str
    operands: list[Value]
    make: Callable[..., Any]
    meaning: Meaning
    results: list[Value] = field(default_factory=list)
    noise: float = 0.0
    """Units in the last place by which a right result may differ; 0 where it is exact."""
    reduces: bool = False
    """Whether rounding errors are relative to the operands rather than to the result."""
    absolute: float = 0.0
    """Rounding errors that stay when the result is near zero, in units of the dtype's epsilon."""
    either_zero: bool = False
    """Whether zeros of the result may have either sign: the greater of 0 and -0 is one of them."""
    several: bool = False


class Graph:
    """Values and steps, in order."""

    def __init__(self, rng: random.Random, extent: Var | None) -> None:
        self.rng = rng
        self.extent = extent
        self.inputs: list[Value] = []
        self.constants: list[Value] = []
        self.steps: list[Step] = []
        self.values: list[Value] = []

    # ---- drawing ----------------------------------------------------------------------------

    def fresh(
        self, shape: Sequence[Expr | int], dtype: str, *, likes: str = "", constant: float = 0.3
    ) -> Value:
        """Add an input, or with a probability a constant if its shape is known."""
        extents = tuple(const(e) if isinstance(e, int) else e for e in shape)
        number = len(self.inputs) + len(self.constants)
        value = Value(None, extents, dtype, likes=likes)
        if value.numbers is not None and self.rng.random() < constant:
            value.data = draw_array(self.rng.getrandbits(32), value.numbers, dtype, likes)
            value.var = relax.const(value.data)
            self.constants.append(value)
        else:
            value.var = relax.Var(f"x{number}", TensorStructInfo(extents, dtype))
            self.inputs.append(value)
        self.values.append(value)
        return value

    def pick(self, accept: Callable[[Value], bool] = lambda value: True) -> Value | None:
        """One of the values that are accepted, later ones rather than earlier ones."""
        found = [value for value in self.values if accept(value)]
        if not found:
            return None
        return found[max(self.rng.randrange(len(found)), self.rng.randrange(len(found)))]

    def emit(
        self,
        name: str,
        operands: Sequence[Value],
        make: Callable[..., Any],
        meaning: Meaning,
        *,
        noise: float = 0.0,
        reduces: bool = False,
        absolute: float = 0.0,
        either_zero: bool = False,
    ) -> list[Value]:
        """Add a step; returns what it makes."""
        call = make(*(value.var for value in operands))
        info = call.struct_info
        several = isinstance(info, TupleStructInfo)
        step = Step(
            name, list(operands), make, meaning, noise=noise, reduces=reduces, absolute=absolute,
            either_zero=either_zero, several=several,
        )  # fmt: skip
        for part in info.fields if several else [info]:
            number = len(self.values)
            step.results.append(Value(relax.Var(f"v{number}", part), tuple(part.shape), part.dtype))
            self.values.append(step.results[-1])
        self.steps.append(step)
        return step.results


# ---- building and meaning ----------------------------------------------------------------------


def needed(steps: Sequence[Step], outputs: Iterable[Value]) -> list[Step]:
    """The steps on which outputs depend."""
    wanted = set(outputs)
    kept: list[Step] = []
    for step in reversed(steps):
        if wanted.intersection(step.results):
            kept.append(step)
            wanted.update(step.operands)
    return kept[::-1]


def module_of(
    inputs: Sequence[Value], constants: Sequence[Value], steps: Sequence[Step],
    outputs: Sequence[Value],
) -> IRModule:  # fmt: skip
    """The graph function of some inputs, steps and outputs."""
    builder = relax.BlockBuilder()
    known: dict[Value, Any] = {value: value.var for value in (*inputs, *constants)}
    with builder.function("main", [value.var for value in inputs]):
        with builder.dataflow():
            for step in steps:
                made = builder.emit(step.make(*(known[value] for value in step.operands)))
                if step.several:
                    for index, value in enumerate(step.results):
                        known[value] = builder.emit(made[index])
                else:
                    known[step.results[0]] = made
            results = [builder.emit_output(known[value]) for value in outputs]
        builder.emit_func_output(results[0] if len(results) == 1 else relax.Tuple(tuple(results)))
    return builder.get()


class Sizes:
    """Gives the numbers that symbolic extents are in one run."""

    def __init__(self, extent: Var | None, number: int) -> None:
        self.known = {} if extent is None else {extent: const(number)}

    def __call__(self, extent: Any) -> int:
        """The number that an extent is."""
        if isinstance(extent, int):
            return extent
        found = as_int(simplify(substitute(extent, self.known)))
        assert found is not None, f"{extent!r} depends on what isn't known"
        return found

    def shape(self, value: Value) -> tuple[int, ...]:
        """The shape of a value."""
        return tuple(map(self, value.shape))


def evaluate(
    steps: Sequence[Step], known: dict[Value, Any], size: Sizes, noise: Any = None
) -> dict[Value, Any]:
    """What each step makes of arrays, by NumPy; with noise as ``compare.Noise`` adds it."""
    made = dict(known)
    for step in steps:
        arrays = [made[value] for value in step.operands]
        if noise is not None and step.noise and step.reduces:
            arrays = [noise(array, step.noise) for array in arrays]
        single = noise is not None and step.reduces and noise.in_single_precision()
        with np.errstate(all="ignore"), in_single_precision(single):
            found = step.meaning(size, *arrays)
        for value, array in zip(step.results, found if step.several else [found]):
            with np.errstate(all="ignore"):
                rounded = np.asarray(array).astype(numpy_dtype(value.dtype))
            if noise is not None and step.noise:
                rounded = noise(rounded, step.noise, step.absolute)
            if noise is not None and step.either_zero:
                rounded = noise.with_zeros_of_either_sign(rounded)
            made[value] = rounded
    return made
