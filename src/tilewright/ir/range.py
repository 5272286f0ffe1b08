"""Ranges of integers."""

from __future__ import annotations

from tilewright.ir.expr import BUILD, BinaryExpr, Expr, ExprLike, IntImm
from tilewright.ir.node import (
    Node,
    child,
    node,
    set_span,
)


@node
class Range(Node):
    """The half-open range ``[min, min + extent)``."""

    min: Expr = child()
    extent: Expr = child()

    init_takes_fields = False

    def __init__(self, begin: ExprLike, end: ExprLike | None = None, span: object = None) -> None:
        """Make the range from ``begin`` to ``end``, which isn't in it; with one bound, from 0."""
        if end is None:
            extent = BUILD.as_expr(begin)
            low = BUILD.as_expr(0, extent.dtype)
        else:
            low, end = BinaryExpr.as_children(begin, end)
            zero = isinstance(low, IntImm) and low.value == 0 and low.dtype == end.dtype
            extent = end if zero else BUILD.sub(end, low)
        self.fill(low, extent)
        if span is not None:
            set_span(self, span)

    def __repr__(self) -> str:
        return f"Range({self.min!r}, extent={self.extent!r})"

    @staticmethod
    def from_min_extent(min_value: ExprLike, extent: ExprLike, span: object = None) -> Range:
        """Make a range from its start and its length."""
        if not (isinstance(min_value, Expr) and isinstance(extent, Expr)):
            min_value, extent = BUILD.as_expr(min_value), BUILD.as_expr(extent)
        made = Range.of_fields(min_value, extent)
        if span is not None:
            set_span(made, span)
        return made
