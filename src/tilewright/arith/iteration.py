"""What holds in an iteration: that there is one tells that none of the loops around it is empty."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.arith.analyzer import Analyzer
from tilewright.ir import Expr, IntImm, Mul


def within_iteration(extents: Iterable[Expr], sizes: Iterable[Expr]) -> Analyzer:
    """Return an analyzer for statements about iterations of loops with ``extents``.

    ``sizes`` are not negative, such as extents of buffers. A loop over ``n * m`` has an iteration
    only if neither is zero. What is proven about all iterations holds if there are none; how many
    there are must be asked elsewhere.
    """
    known = Analyzer()
    for size in sizes:
        if not isinstance(size, IntImm):
            known.assume(size >= 0)
    for extent in extents:
        factors = _factors(extent)
        if all(known.can_prove_ge(factor, 0) for factor in factors):
            for factor in factors:
                known.assume(factor >= 1)
    return known


def _factors(extent: Expr) -> list[Expr]:
    """The factors of a product that aren't numbers."""
    if isinstance(extent, Mul):
        return _factors(extent.a) + _factors(extent.b)
    return [] if isinstance(extent, IntImm) else [extent]
