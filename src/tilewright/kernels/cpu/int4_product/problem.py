"""Recognition of products with 4-bit weights (``topi.nn.dense_int4``) in a function.

The last stage of the definition is annotated. The stages are compared with those that ``topi``
defines for the same operands, so changed ones are left to other rules. For :mod:`.kernel`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewright import te
from tilewright.ir import Expr, as_int
from tilewright.kernels.definition import is_definition
from tilewright.scheduling import NotApplicable, block_of, nests_of
from tilewright.tir import Buffer, PrimFunc, Stmt
from tilewright.tir.layout_rewrite import constants_of
from tilewright.topi.nn.int4 import DENSE_INT4, PER_WORD, dense_int4

# Inputs of a run at most, so that its sums keep enough bits of each activation.
_MOST_INPUTS = 128
# Where the definition rounds activations, all of a group makes a run; its steps are written out.
_MOST_ROUNDED = 512


@dataclass(frozen=True)
class Problem:
    """Operands of a product with 4-bit weights, and the stages that define it."""

    data: Buffer
    packed: Buffer
    scales: Buffer
    zero_points: Buffer | None
    out: Buffer
    stages: tuple[Stmt, ...]
    constants: frozenset[Buffer]
    activation_bits: int = 0

    @property
    def by_output(self) -> bool:
        """Whether weights are bytes, rows of one output each."""
        return self.packed.dtype == "uint8"

    @property
    def depth(self) -> int:
        """Number of inputs."""
        return _extent(self.data.shape[-1])

    @property
    def columns(self) -> int:
        """Number of outputs."""
        return _extent(self.out.shape[-1])

    @property
    def rows(self) -> int:
        """Number of vectors that are multiplied."""
        return math.prod(_extent(extent) for extent in self.data.shape[:-1])

    @property
    def group(self) -> int:
        """Inputs that share a scale."""
        return self.depth // _extent(self.scales.shape[1 if self.by_output else 0])

    @property
    def run(self) -> int:
        """Inputs whose sums are combined at once: a whole group, or a section of it."""
        if self.activation_bits:
            return self.group
        sizes = range(PER_WORD, min(self.group, _MOST_INPUTS) + 1, PER_WORD)
        return max(size for size in sizes if self.group % size == 0)


def _extent(extent: Expr) -> int:
    found = as_int(extent)
    assert found is not None
    return found


def read_int4(func: PrimFunc) -> Problem | NotApplicable:
    """Read operands from a function with one product with 4-bit weights, or say why not."""
    stages = _stages(func)
    if isinstance(stages, NotApplicable):
        return stages
    mark = _annotations(stages[-1])[DENSE_INT4]
    blocks = [block for block in map(block_of, stages) if block is not None]
    if len(blocks) != len(stages):
        return NotApplicable("the stages are not those of the definition")
    made = [region.buffer for block in blocks for region in block.writes]
    read = [region.buffer for block in blocks for region in block.reads]
    operands = list(dict.fromkeys(buffer for buffer in read if buffer not in made))
    if len(operands) not in (3, 4):
        return NotApplicable("the stages have other operands than the definition's")
    extents = [as_int(extent) for item in operands for extent in item.shape]
    if None in extents:
        return NotApplicable("extents are symbolic")
    if 0 in extents:
        return NotApplicable("there is nothing to compute")
    for order in _orders(operands, made[-1], stages, constants_of(func)):
        problem = replace(order, activation_bits=int(mark["activation_bits"]))
        if problem.activation_bits and problem.group > _MOST_ROUNDED:
            return NotApplicable(f"activations are rounded in groups of more than {_MOST_ROUNDED}")
        if _is_definition(func, problem):
            return problem
    return NotApplicable("the stages compute something else")


def _stages(func: PrimFunc) -> tuple[Stmt, ...] | NotApplicable:
    """The stages of the one product with 4-bit weights; the last one says how many there are."""
    nests = nests_of(func)
    marked = [n for n, nest in enumerate(nests) if DENSE_INT4 in _annotations(nest)]
    if len(marked) != 1:
        return NotApplicable(f"{len(marked)} products with 4-bit weights, one is expected")
    last = marked[0]
    first = last + 1 - int(_annotations(nests[last])[DENSE_INT4]["stages"])
    if first < 0:
        return NotApplicable("the stages are not those of the definition")
    return tuple(nests[first : last + 1])


def _annotations(nest: Stmt) -> Mapping[str, Any]:
    found = block_of(nest)
    return {} if found is None else found.annotations


def _orders(
    operands: Sequence[Buffer], out: Buffer, stages: tuple[Stmt, ...], constants: frozenset[Buffer]
) -> list[Problem]:
    """The possible orders of operands: data, weights, then zero points and scales in any order."""
    data, packed, *rest = operands
    if len(rest) == 1:
        return [Problem(data, packed, rest[0], None, out, stages, constants)]
    return [
        Problem(data, packed, scales, zeros, out, stages, constants)
        for scales, zeros in (rest, rest[::-1])
    ]


def _is_definition(func: PrimFunc, problem: Problem) -> bool:
    """Whether the stages are those that ``topi`` defines for these operands."""
    bits = problem.activation_bits or None

    def define(tensors: Mapping[Buffer, te.Tensor]) -> dict[Buffer, te.Tensor]:
        data, packed, scales = (
            tensors[item] for item in (problem.data, problem.packed, problem.scales)
        )
        zeros = None if problem.zero_points is None else tensors[problem.zero_points]
        made = dense_int4(data, packed, scales, zeros, out_dtype="float32", activation_bits=bits)
        return {problem.out: made}

    operands = (problem.data, problem.packed, problem.scales, problem.zero_points)
    given = [item for item in operands if item is not None]
    return is_definition(func, given, define, problem.stages)
