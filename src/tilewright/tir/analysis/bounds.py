"""Accesses that are not shown to stay inside their buffers.

Each index is proved to lie in ``[0, extent)`` from the ranges of the loops and the conditions
around the access, for all sizes of symbolic extents. What can't be proved is listed: it may still
be right (an index read from memory, say), but the program doesn't show it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir import (
    GLOBAL_SYMBOL,
    Expr,
    IRModule,
    Range,
    Var,
    add,
    as_int,
    expr_equal,
    pre_order,
    rewrite_top_down,
    sub,
)
from tilewright.script import to_text
from tilewright.support.errors import VerifyError
from tilewright.support.text import indent
from tilewright.tir.analysis.accesses import Access, detect_accesses
from tilewright.tir.analysis.data_variables import know_data
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.function import PrimFunc


@dataclass(frozen=True, eq=False)
class OutOfBounds:
    """An index that is not shown to be inside: ``axis`` of ``access.buffer``.

    ``below`` and ``above`` say at which end. ``reason`` is a sentence about it.
    """

    access: Access
    axis: int
    below: bool
    above: bool
    reason: str

    @property
    def buffer(self) -> Buffer:
        """The buffer."""
        return self.access.buffer

    def __repr__(self) -> str:
        return f"OutOfBounds({self.reason})"


def check_out_of_bounds(func: PrimFunc) -> list[OutOfBounds]:
    """Return the accesses of a function that are not provably in bounds, in program order."""
    found = []
    contexts: dict[Any, _Context] = {}
    for access in detect_accesses(func, through_matches=False):
        # Access after access is under the same loops and conditions.
        key = (access.loops, access.conditions)
        known = contexts.get(key)
        if known is None:
            known = contexts[key] = _Context(func, access)
        for axis in range(len(access.box)):
            fault = _check(known, access, axis)
            if fault is not None:
                found.append(fault)
    return found


class _Context:
    """Knows a function's sizes, and the loops and conditions of an access.

    What is read from memory is stood for by variables, the same place by the same one: conditions
    hold until the access (``Access.conditions`` leaves out those that are overwritten).
    """

    def __init__(self, func: PrimFunc, access: Access) -> None:
        self.known = Analyzer()
        self.loads: list[tuple[BufferLoad, Var]] = []
        for var in func.symbolic_vars():
            self.known.bind_positive(var)
        know_data(self.known, func)
        for var, value in access.domain.items():
            self.known.bind(
                var, Range.from_min_extent(self.fixed(value.min), self.fixed(value.extent))
            )
        for condition in access.conditions:
            self.known.assume(self.fixed(condition))

    def fixed(self, expr: Expr) -> Expr:
        made: Expr = rewrite_top_down(expr, self._stand_in)
        return made

    def _stand_in(self, node: Expr) -> Var | None:
        if type(node) is not BufferLoad:
            return None
        for load, var in self.loads:
            if expr_equal(load, node):
                return var
        self.loads.append((node, Var(node.buffer.name, node.dtype)))
        return self.loads[-1][1]


def _check(context: _Context, access: Access, axis: int) -> OutOfBounds | None:
    known, item = context.known, access.box[axis]
    low, extent = context.fixed(item.min), context.fixed(access.shape[axis])
    end = add(low, context.fixed(item.extent))
    below = not known.can_prove_ge(low, 0)
    above = not known.can_prove_ge(extent, end)
    if not below and not above:
        return None
    reason = _reason(known, access, axis, below, above)
    return OutOfBounds(access, axis, below, above, reason)


def _reason(known: Analyzer, access: Access, axis: int, below: bool, above: bool) -> str:
    item, extent = access.box[axis], access.shape[axis]
    index = item.min if as_int(item.extent) == 1 else f"{item.min!r}:+{item.extent!r}"
    text = f"index {index!s} of dimension {axis} of {access.buffer.name!r} (extent {extent!r})"
    if any(type(part) is BufferLoad for part in pre_order(item.min)):
        return f"{text} depends on data"
    ends = []
    if below:
        low = known.const_int_bound(item.min).min
        ends.append("may be negative" if low == float("-inf") else f"may be as low as {int(low)}")
    if above:
        ends.append(_upper(known, sub(add(item.min, item.extent), 1), extent))
    return f"{text} {' and '.join(ends)}"


def _upper(known: Analyzer, last: Expr, extent: Expr) -> str:
    high = known.const_int_bound(last).max
    if as_int(extent) is None or high == float("inf"):
        return "is not shown to be below the extent"
    return f"may be as high as {int(high)}"


def verify_in_bounds(target: IRModule | PrimFunc) -> None:
    """Raise ``VerifyError``, with the accesses marked, if some are not provably in bounds."""
    if isinstance(target, PrimFunc):
        functions = {target.attrs.get(GLOBAL_SYMBOL, "main"): target}
    else:
        functions = {k: v for k, v in target.functions.items() if isinstance(v, PrimFunc)}
    for name, func in functions.items():
        faults = check_out_of_bounds(func)
        if faults:
            raise VerifyError(_renderer(name, func, faults))


def _renderer(name: str, func: PrimFunc, faults: list[OutOfBounds]) -> Callable[[], str]:
    def render() -> str:
        marked = list(dict.fromkeys(fault.access.node for fault in faults))
        reasons = "\n".join(f"  {fault.reason}" for fault in faults)
        program = indent(to_text(func, underline=marked))
        return f"function {name!r} may access memory out of bounds:\n{reasons}\n{program}"

    return render
