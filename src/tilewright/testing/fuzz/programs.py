"""Programs that the fuzzer makes: what they are made of, and their data.

A program is a list of stages that are text in the dialect ``T``, with the names of dimensions
(``d0``, ``d1`` …) in place of numbers. So it can be printed with any extents, some of them
symbolic, and made smaller by what ``shrink`` does: lower numbers, fewer stages, an input in place
of a stage.

Numbers are chosen so that the order of a reduction does not matter: inputs are small integers, also
in floating-point buffers, and each stage knows how large its values can get. Results may then be
compared bit for bit. A few programs use functions that round (``exact`` is false then); theirs are
compared with a tolerance.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewright.ir import IRModule
from tilewright.script import parse
from tilewright.testing.fuzz.oracle_values import dtype_of
from tilewright.tir import PrimFunc

_DIM = re.compile(r"\bd(\d+)\b")
_NUMBERS = re.compile(r"(?<![\w\])])\(([-+*/% \d]*\d)\)")
"""Arithmetic of numbers in brackets of its own, not of a call."""
_ITERATIONS = 600


@dataclass(frozen=True)
class Tensor:
    """A buffer: its shape in terms of dimensions, and how large its values are."""

    name: str
    dims: tuple[str, ...]
    dtype: str
    bound: int
    index_of: str = ""
    """Set where the values are indices into a dimension of this extent."""
    wide: bool = False
    """Whether values are from all of the dtype's range."""


@dataclass(frozen=True)
class Stage:
    """A step of a program: text that makes ``outputs`` of ``reads``."""

    form: str
    outputs: tuple[Tensor, ...]
    reads: tuple[str, ...]
    lines: tuple[str, ...]
    updates: bool = False
    """Whether it changes a buffer that an earlier stage made."""
    rough: bool = False


@dataclass(frozen=True)
class Program:
    """A program and the extents of its dimensions; ``symbolic`` ones are read from the shapes."""

    seed: object
    dims: Mapping[str, int]
    symbolic: frozenset[str]
    inputs: tuple[Tensor, ...]
    stages: tuple[Stage, ...]
    results: frozenset[str]
    """Names of made buffers that are parameters."""

    @property
    def exact(self) -> bool:
        """Whether results can be compared bit for bit."""
        return not any(stage.rough for stage in self.stages)

    @property
    def tolerance(self) -> float:
        """How much results may differ, absolutely and relatively, that can't be compared so.

        Moved computation may round, or keep what rounding to a buffer's dtype dropped.
        """
        return 2e-4

    @property
    def runs(self) -> bool:
        """Whether it can be run, and not only be compiled."""
        return True

    @property
    def made(self) -> dict[str, Tensor]:
        """Buffers that stages make, in order."""
        inputs = {tensor.name for tensor in self.inputs}
        found: dict[str, Tensor] = {}
        for stage in self.stages:
            for tensor in stage.outputs:
                if tensor.name not in inputs:
                    found.setdefault(tensor.name, tensor)
        return found

    @property
    def params(self) -> list[Tensor]:
        """Buffers that are parameters, in order."""
        made = self.made
        return [*self.inputs, *(made[name] for name in made if name in self.results)]

    def size(self, extent: str, dims: Mapping[str, int] | None = None) -> int:
        """Return an extent as a number."""
        return number(extent, self.dims if dims is None else dims)

    def render(self, text: str) -> str:
        """Put numbers in place of dimensions; symbolic ones become variables ``n0`` …"""

        def name(match: re.Match[str]) -> str:
            if match[0] in self.symbolic:
                return f"n{match[1]}"
            return str(self.dims[match[0]])

        made = _DIM.sub(name, text)
        while (simpler := _NUMBERS.sub(lambda match: str(eval(match[1])), made)) != made:
            made = simpler
        return made

    def text(self) -> str:
        """Return the program in the dialect ``T``."""
        params, matches, symbols = [], [], []
        for dim in sorted(self.symbolic):
            symbols.append(f"    n{dim[1:]} = T.int64()")
        for tensor in self.params:
            shape = _tuple(tensor.dims)
            if any(item in dims_in(shape) for item in self.symbolic):
                params.append(f"p_{tensor.name}: T.handle")
                name, dtype = tensor.name, tensor.dtype
                matches.append(f'    {name} = T.match_buffer(p_{name}, {shape}, "{dtype}")')
            else:
                params.append(f'{tensor.name}: T.Buffer({shape}, "{tensor.dtype}")')
        lines = ["@T.prim_func", f"def main({', '.join(params)}):", *symbols, *matches]
        for tensor in self.made.values():
            if tensor.name not in self.results:
                shape = _tuple(tensor.dims)
                lines.append(f'    {tensor.name} = T.alloc_buffer({shape}, "{tensor.dtype}")')
        for stage in self.stages:
            lines.extend(f"    {line}" for line in stage.lines)
        return self.render("\n".join(lines)) + "\n"

    def build(self) -> PrimFunc:
        """Return the program as a function."""
        func: PrimFunc = parse(self.text())
        return func

    def module(self) -> IRModule:
        """Return the program as a module."""
        return IRModule.from_expr(self.build())

    @property
    def forms(self) -> tuple[str, ...]:
        """Kinds of its stages, to be counted."""
        return tuple(stage.form for stage in self.stages)

    def sizes(self) -> list[dict[str, int]]:
        """Return values of the dimensions to run with: two sets if some are symbolic."""
        first = dict(self.dims)
        if not self.symbolic:
            return [first]
        second = {k: (v % 5 + 3 if k in self.symbolic else v) for k, v in first.items()}
        return [first, second]

    def least_sizes(self) -> list[dict[str, int]]:
        """Return sizes of which some are one, or nothing; not every program has a meaning then."""
        return [
            {**self.dims, **dict.fromkeys(self.symbolic, least)}
            for least in (0, 1)
            if self.symbolic
        ]

    def arrays(
        self, seed: int, dims: Mapping[str, int] | None = None
    ) -> list[np.ndarray[Any, Any]]:
        """Return arguments: inputs, and results full of something."""
        rng = np.random.default_rng(seed)
        return [self._array(rng, tensor, dims or self.dims) for tensor in self.params]

    def _array(
        self, rng: np.random.Generator, tensor: Tensor, dims: Mapping[str, int]
    ) -> np.ndarray[Any, Any]:
        shape = [number(extent, dims) for extent in tensor.dims]
        if tensor.wide:
            return wide_array(rng, shape, tensor.dtype)
        if tensor.index_of:
            low, high = 0, number(tensor.index_of, dims)
        elif tensor.dtype == "bool":
            low, high = 0, 2
        else:
            bound = min(tensor.bound, 4)
            low, high = (0 if tensor.dtype == "uint8" else -bound), bound + 1
        return rng.integers(low, high, shape).astype(dtype_of(tensor.dtype))

    def is_valid(self) -> bool:
        """Whether all extents are positive and every buffer is made before it is read."""
        for dims in self.sizes():
            for tensor in (*self.inputs, *self.made.values()):
                if any(number(extent, dims) < 1 for extent in tensor.dims):
                    return False
                if tensor.index_of and number(tensor.index_of, dims) < 1:
                    return False
        known = {tensor.name for tensor in self.inputs}
        for stage in self.stages:
            if not known.issuperset(stage.reads):
                return False
            if stage.updates and stage.outputs[0].name not in known:
                return False
            known.update(tensor.name for tensor in stage.outputs)
        # Symbolic extents must be the extent of a parameter by themselves.
        shapes = {extent for tensor in self.params for extent in tensor.dims}
        return self.symbolic <= shapes and bool(self.stages) and bool(self.results)


_WIDE_FLOATS = [65504, 3e38, 2049, 257, 1000, 3, 1, 0.1, 1 / 3, 6e-5, 1e-7, 0]


def wide_array(rng: np.random.Generator, shape: Sequence[int], dtype: str) -> np.ndarray:
    """Return numbers from all of a dtype's range, those at its ends above all."""
    kind = dtype_of(dtype)
    if kind.kind not in "iu":
        with np.errstate(over="ignore"):
            chosen = rng.choice(_WIDE_FLOATS, shape) * rng.choice([1, -1], shape)
            floats: np.ndarray[Any, Any] = chosen.astype(kind)
            return floats
    low, high = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
    ends = [low, low + 1, high, high - 1, high // 2 + 1, low // 2 - 1 if low else 2, 0, 1, 2, 3]
    ends += [-1, -2, 5] if low else [5, 6, 7]
    special = np.array(ends, kind)[rng.integers(0, len(ends), shape)]
    anything = rng.integers(low, high, shape, kind, endpoint=True)
    made: np.ndarray[Any, Any] = np.where(rng.random(shape) < 0.6, special, anything)
    return made


def dims_in(text: str) -> set[str]:
    """Return the names of dimensions in a text."""
    return {match[0] for match in _DIM.finditer(text)}


def number(extent: str, dims: Mapping[str, int]) -> int:
    """Evaluate an extent: sums, products and quotients of dimensions and numbers."""
    return int(eval(extent, {"__builtins__": {}}, dict(dims)))


def _tuple(items: Sequence[str]) -> str:
    return "(" + "".join(f"{item}, " for item in items) + ")"


def iterations(program: Program) -> int:
    """Count innermost iterations, roughly."""
    total = 0
    for stage in program.stages:
        counts: list[int] = []
        depths: list[int] = []
        for line in stage.lines:
            depth = len(line) - len(line.lstrip())
            while depths and depths[-1] >= depth:
                depths.pop()
                counts.pop()
            match = re.match(r"\s*for \w+ in T\.serial\((.*)\):", line)
            if match:
                extent = match[1].removeprefix("2, 2 + ").replace("t0", "4")
                depths.append(depth)
                counts.append(max(1, number(extent, program.dims)))
            elif "=" in line:
                product = 1
                for item in counts:
                    product *= item
                total += product
    return total


def fit(program: Program) -> Program:
    """Lower extents until the program is small enough to run in a millisecond."""
    dims = dict(program.dims)
    while iterations(program) > _ITERATIONS:
        names = sorted(dims, key=lambda name: dims[name])
        if not names or dims[names[-1]] <= 3:
            break
        dims[names[-1]] -= 1
        smaller = replace(program, dims=dict(dims))
        if not smaller.is_valid():
            break
        program = smaller
    return program
