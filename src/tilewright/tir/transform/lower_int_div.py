"""Replace floor division by the cheaper truncating one where both give the same.

They agree where the dividend is not negative and the divisor positive, which the ranges of loops
tell. Divisions by powers of two stay: they become shifts and masks, which round down anyway. Where
the divisor isn't a constant the result says what was proven (``indexdiv``), so that nobody looks
for a zero again when the program runs.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir import (
    Broadcast,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Mutator,
    Node,
    Ramp,
    call,
    contains,
    dtypes,
    is_const,
    most_lanes,
    pre_order,
)
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import For
from tilewright.tir.transform.base import FunctionTransform, function_analyzer, inside_loop


class LowerIntDiv(FunctionTransform):
    """Use truncating division for operands that are known not to be negative."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        if not _has_division(func.body):
            return func
        # Only what holds a division is entered.
        if not any(_may_truncate(item) for item in pre_order(func.body, _has_division)):
            return func
        return func.map_children(_Rewriter(function_analyzer(func)).visit)


_has_division = contains(FloorDiv, FloorMod)


def _may_truncate(node: Any) -> bool:
    """Whether a node is a division that truncating makes cheaper if its operands permit."""
    if type(node) not in (FloorDiv, FloorMod):
        return False
    if dtypes.kind_of(node.dtype) != "int":
        return False
    b = node.b.value if isinstance(node.b, Broadcast) else node.b
    return not (isinstance(b, IntImm) and (b.value <= 0 or b.value & (b.value - 1) == 0))


class _Rewriter(Mutator):
    def __init__(self, analyzer: Analyzer) -> None:
        self.analyzer = analyzer

    def visit(self, node: Node) -> Any:
        """Rewrite a node if there is something to rewrite in it."""
        return super().visit(node) if _has_division(node) else node

    def visit_For(self, node: For) -> For:
        # What is known inside, that the loop runs at all, needn't hold where its ends are computed.
        minimum, extent = self.visit(node.min), self.visit(node.extent)
        with inside_loop(self.analyzer, node):
            body = self.visit(node.body)
        return node.replace(min=minimum, extent=extent, body=body)

    def visit_FloorDiv(self, node: FloorDiv) -> Expr:
        return self._divide(node, "div")

    def visit_FloorMod(self, node: FloorMod) -> Expr:
        return self._divide(node, "mod")

    def _divide(self, node: Expr, name: str) -> Expr:
        # Bounds are asked of the operands as they were: rewritten ones are opaque to the analyzer.
        cheap = self._agree(node)
        made: Expr = self.generic_visit(node)
        if not cheap:
            return made
        b = made.b  # type: ignore[attr-defined]
        proven = "trunc" if is_const(b.value if isinstance(b, Broadcast) else b) else "index"
        return call(proven + name, made.a, b)  # type: ignore[attr-defined]

    def _agree(self, node: Any) -> bool:
        return bool(_may_truncate(node) and self._least(node.a) >= 0 and self._least(node.b) >= 1)

    def _least(self, expr: Expr) -> float:
        """A bound of an expression from below, in all its lanes."""
        if isinstance(expr, Broadcast):
            return self._least(expr.value)
        if isinstance(expr, Ramp):
            steps = (most_lanes(expr.lanes) - 1) * min(self._least(expr.stride), 0)
            return self._least(expr.base) + steps
        return self.analyzer.const_int_bound(expr).min
