"""Running sums, products and extrema, as kernels see them: recognised by ``topi``'s definition.

A running result is a fold of states by an associative operation, which need not be commutative:
the state of an extremum is a pair of element and index.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright import te, topi
from tilewright.ir import (
    Expr,
    annotated,
    as_int,
    call,
    cast,
    const,
    contains,
    dtypes,
    greatest_of,
    least_of,
    or_,
    pre_order,
    select,
)
from tilewright.kernels.definition import is_definition
from tilewright.scheduling import NotApplicable
from tilewright.tir import Block, Buffer, PrimFunc
from tilewright.tir.building import load
from tilewright.topi.scan import SCAN, running_log_add_exp
from tilewright.topi.sort import comparable
from tilewright.topi.utils import sum_dtype

State = tuple[Expr, ...]
"""The values that are folded."""

_SHORT = 2**31


@dataclass(frozen=True)
class Scan:
    """Running results along an axis; ``operator`` is the name of topi's function."""

    x: Buffer
    outputs: tuple[Buffer, ...]
    axis: int
    operator: str

    @property
    def extent(self) -> Expr:
        """Length of the rows."""
        return self.x.shape[self.axis]

    @property
    def rows(self) -> tuple[Expr, ...]:
        """Extents of the other axes."""
        return (*self.x.shape[: self.axis], *self.x.shape[self.axis + 1 :])

    def place(self, row: Sequence[Expr], index: Expr) -> tuple[Expr, ...]:
        """Indices of an element of a row."""
        return (*row[: self.axis], index, *row[self.axis :])

    @property
    def is_extremum(self) -> bool:
        """Whether states are pairs of element and index."""
        return self.operator in ("cummax", "cummin")

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Dtypes of a state."""
        if not self.is_extremum:
            return (sum_dtype(self.outputs[0].dtype),)
        extent = as_int(self.extent)
        short = extent is not None and extent < _SHORT
        return comparable(const(0, self.x.dtype)).dtype, "int32" if short else "int64"

    @property
    def identity(self) -> State:
        """The state of no element, which may stand before any other."""
        dtype = self.dtypes[0]
        if self.is_extremum:
            worst = least_of(dtype) if self.operator == "cummax" else greatest_of(dtype)
            return worst, const(0, self.dtypes[1])
        if self.operator == "logcumsumexp":
            return (const(-math.inf, dtype),)
        return (const(1 if self.operator == "cumprod" else 0, dtype),)

    def element(self, row: Sequence[Expr], k: Expr) -> State:
        """The state of one element."""
        value = load(self.x, *self.place(row, k))
        if self.is_extremum:
            return comparable(value), cast(k, self.dtypes[1])
        # As the definition: converted to the sums' dtype.
        return (cast(value, self.dtypes[0]),)

    def combine(self, before: State, after: State) -> State:
        """Fold two states, the second of elements right after those of the first."""
        if not self.is_extremum:
            return (_OPERATIONS[self.operator](before[0], after[0]),)
        better: Expr = after[0] >= before[0] if self.operator == "cummax" else after[0] <= before[0]
        if dtypes.is_float(self.dtypes[0]):
            better = or_(better, call("isnan", after[0]))
        return select(better, after[0], before[0]), select(better, after[1], before[1])

    def results(self, state: State) -> State:
        """What is written of a state."""
        return tuple(cast(value, out.dtype) for value, out in zip(state, self.outputs))


_OPERATIONS: dict[str, Callable[[Expr, Expr], Expr]] = {
    "cumsum": lambda a, b: a + b,
    "cumprod": lambda a, b: a * b,
    "logcumsumexp": running_log_add_exp,
}
_DEFINITIONS: dict[str, Callable[[te.Tensor, Scan], Any]] = {
    "cumsum": lambda x, scan: topi.cumsum(x, scan.axis, scan.outputs[0].dtype),
    "cumprod": lambda x, scan: topi.cumprod(x, scan.axis, scan.outputs[0].dtype),
    "logcumsumexp": lambda x, scan: topi.logcumsumexp(x, scan.axis),
    "cummax": lambda x, scan: topi.cummax(x, scan.axis, scan.outputs[1].dtype),
    "cummin": lambda x, scan: topi.cummin(x, scan.axis, scan.outputs[1].dtype),
}
_has_scan = contains(annotated(SCAN))


def read_scan(func: PrimFunc) -> Scan | NotApplicable:
    """Read buffers and operator from a function, or say why it is not a scan."""
    if not _has_scan(func.body):
        return NotApplicable("the function is not one scan")
    blocks = [item for item in pre_order(func.body) if isinstance(item, Block)]
    found = [item for item in blocks if SCAN in item.annotations]
    if len(found) != 1 or len(blocks) != 2 or found[0].name not in _DEFINITIONS:
        return NotApplicable("the function is not one scan")
    written = {region.buffer for region in found[0].writes}
    operands = [item for item in func.buffers if item not in written]
    results = tuple(item for item in func.buffers if item in written)
    operator, axis = found[0].name, int(found[0].annotations[SCAN])
    wanted = 2 if operator in ("cummax", "cummin") else 1
    if len(operands) != 1 or len(results) != wanted or axis >= operands[0].ndim:
        return NotApplicable("the scan isn't of an argument")
    scan = Scan(operands[0], results, axis, operator)

    def define(tensors: Mapping[Buffer, te.Tensor]) -> dict[Buffer, te.Tensor]:
        made = _DEFINITIONS[operator](tensors[scan.x], scan)
        return dict(zip(results, made if isinstance(made, tuple) else (made,)))

    if not is_definition(func, operands, define):
        return NotApplicable("the function is more or less than a scan")
    return scan
