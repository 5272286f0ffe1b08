"""Whether the splits of an iteration map tell all inputs apart, and whether they cover them.

The last step of ``iter_map``: each mark (a variable, or a fused sum) must be used by splits that
don't overlap. Splits that reach to its top in order also determine it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.iter_expr import IterMark, IterSplitExpr, IterSumExpr
from tilewright.arith.polynomial import poly_exact
from tilewright.ir import FALSE, Expr, as_int, const, or_


def uses_of(totals: Iterable[IterSumExpr]) -> dict[IterMark, list[IterSplitExpr]]:
    """The splits that are taken of each mark, also inside of fused ones."""
    uses: dict[IterMark, list[IterSplitExpr]] = {}
    pending = [arg for total in totals for arg in total.args]
    while pending:
        arg = pending.pop()
        if arg.source not in uses and isinstance(arg.source.source, IterSumExpr):
            pending.extend(arg.source.source.args)
        uses.setdefault(arg.source, []).append(arg)
    return uses


class SplitChecker:
    """Checks the splits of one mark after another, and collects what is wrong with them."""

    def __init__(self, analyzer: Analyzer, bijective: bool) -> None:
        self.analyzer = analyzer
        self.bijective = bijective
        self.errors: list[str] = []
        self.covered = True
        self.padding: Expr = FALSE

    def check(self, mark: IterMark, splits: Sequence[IterSplitExpr]) -> None:
        """Check that the splits don't overlap; note if they don't cover the mark, or pad it."""
        ok, full, top = self._in_order(mark, splits)
        if not ok:
            self.errors.append(f"splits of `{mark.to_expr()!r}` are used more than once")
        elif not full:
            self.covered = False
            if self.bijective:
                self.errors.append(f"the splits of `{mark.to_expr()!r}` do not cover its extent")
        fused = mark.source
        shifted = mark.padded and isinstance(fused, IterSumExpr) and as_int(fused.base) != 0
        if self.bijective and shifted:
            self.errors.append(f"`{mark.to_expr()!r}` is padded at its start, by {fused.base!r}")
        if not ok or not mark.padded or self.analyzer.can_prove_equal(top, mark.extent):
            return
        self.padding = or_(self.padding, mark.to_expr() >= mark.extent)
        if self.bijective:
            self.errors.append(
                f"`{mark.to_expr()!r}` of extent {mark.extent!r} is padded to {top!r}"
            )

    def _in_order(self, mark: IterMark, splits: Sequence[IterSplitExpr]) -> tuple[bool, bool, Expr]:
        """Order splits from the lowest; return (no overlap, covered, where they end)."""
        analyzer = self.analyzer
        left = list(splits)
        end: Expr = const(1)
        full = True
        while left:
            following = [arg for arg in left if analyzer.can_prove_equal(arg.lower_factor, end)]
            if len(following) > 1:
                return False, False, end
            if following:
                (split,) = following
            else:
                full = False
                split = self._lowest(left)
                # A split may start higher up if what is below is simply not used.
                if not self._is_multiple(split.lower_factor, end):
                    return False, False, end
            left.remove(split)
            end = analyzer.simplify(split.lower_factor * split.extent)
        return True, full and analyzer.can_prove_ge(end, mark.extent), end

    def _lowest(self, splits: list[IterSplitExpr]) -> IterSplitExpr:
        """The split with the smallest factor: by value, or the one that divides all others."""
        if all(as_int(split.lower_factor) is not None for split in splits):
            return min(splits, key=lambda split: as_int(split.lower_factor) or 0)
        for split in splits:
            if all(self._is_multiple(other.lower_factor, split.lower_factor) for other in splits):
                return split
        return splits[0]

    def _is_multiple(self, a: Expr, b: Expr) -> bool:
        poly = self.analyzer.poly
        return poly_exact(poly(a), poly(b)) is not None
