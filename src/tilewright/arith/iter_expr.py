"""What iteration maps are made of: ranges of whole numbers, splits of them, sums of splits.

- an :class:`IterMark` is a range ``[0, extent)``: an input variable (less its minimum), or a sum of
  splits that were fused and are taken apart again;
- an :class:`IterSplitExpr` is a split ``(mark // lower_factor) % extent * scale``;
- an :class:`IterSumExpr` is a sum of splits and a base that is free of the inputs.

``iter_map`` brings indices into this form, ``subspace`` divides and inverts it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.arith.analyzer import Analyzer
from tilewright.ir import Expr, IntImm, Var, as_int


@dataclass(eq=False)
class IterMark:
    """The range ``[0, extent)`` of an expression: a variable less its minimum, or a fused sum."""

    source: Any  # Expr or IterSumExpr
    extent: Expr
    var: Var | None = None
    offset: Expr | None = None  # value = source; var = value + offset
    serial: int = 0
    padded: bool = False

    def to_expr(self) -> Expr:
        """The expression whose range this is."""
        return self.source.to_expr() if isinstance(self.source, IterSumExpr) else self.source


class IterMapExpr:
    """What an index of an iteration map is: a split, or a sum of splits."""

    def to_expr(self) -> Expr:
        """The ordinary expression."""
        raise NotImplementedError(f"{type(self).__name__} must define to_expr")


@dataclass(eq=False)
class IterSplitExpr(IterMapExpr):
    """The split ``(source // lower_factor) % extent * scale``."""

    source: IterMark
    lower_factor: Expr
    extent: Expr
    scale: Expr

    def to_expr(self) -> Expr:
        """The expression, without divisions that do nothing."""
        return self._value() * self.scale

    def _value(self) -> Expr:
        value = self.source.to_expr()
        value = value // self.lower_factor
        covers = same_value(self.lower_factor * self.extent, self.source.extent)
        return value if covers or (self.source.padded and self.is_top()) else value % self.extent

    def is_top(self) -> bool:
        """Whether nothing is above this split in a padded mark."""
        whole, low = as_int(self.source.extent), as_int(self.lower_factor)
        extent = as_int(self.extent)
        if whole is None or low is None or extent is None:
            return False
        return low * extent >= whole

    def with_scale(self, scale: Expr) -> IterSplitExpr:
        """The same split at another scale."""
        return IterSplitExpr(self.source, self.lower_factor, self.extent, scale)


@dataclass(eq=False)
class IterSumExpr(IterMapExpr):
    """``base`` plus splits, greatest scale first."""

    args: tuple[IterSplitExpr, ...]
    base: Expr

    def to_expr(self) -> Expr:
        """The sum as an expression."""
        total: Expr | None = None
        for arg in self.args:
            term = arg.to_expr()
            total = term if total is None else total + term
        return self.base if total is None else total + self.base


def same_value(a: Expr, b: Expr) -> bool:
    """Whether two extents are equal, knowing nothing about their variables."""
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return a.value == b.value
    return a is b or Analyzer().can_prove_equal(a, b)


def same_split(analyzer: Analyzer, a: IterSplitExpr, b: IterSplitExpr) -> bool:
    """Whether two splits are the same but for their scale."""
    return (
        a.source is b.source
        and analyzer.can_prove_equal(a.lower_factor, b.lower_factor)
        and analyzer.can_prove_equal(a.extent, b.extent)
    )
