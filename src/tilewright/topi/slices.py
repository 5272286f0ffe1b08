"""Where Python's slices begin and end, of axes whose extent may be symbolic."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.arith import simplify
from tilewright.ir import Expr, ExprLike, as_expr, as_int, const, maximum, minimum
from tilewright.support.errors import VerifyError

NO_END = 2**31 - 1
"""Ends from here on, and before its negative, mean that of the axis."""


def slice_bounds(
    begin: ExprLike, end: ExprLike, extent: Expr, step: int = 1, *, assume_inbound: bool = False
) -> tuple[Expr, Expr]:
    """Where the slice ``begin:end:step`` begins and ends; negative numbers count from the end.

    With a positive step ``0 <= begin <= end <= extent`` holds of the result, with a negative one
    ``-1 <= end <= begin < extent``. Bounds that are expressions count from the start of the axis.
    ``assume_inbound`` says that there is nothing to clamp.
    """
    size, low, high = as_int(extent), as_int(as_expr(begin)), as_int(as_expr(end))
    if size is not None and low is not None and high is not None and not assume_inbound:
        start, stop, _ = slice(low, high, step).indices(size)
        return as_expr(start), as_expr(max(start, stop) if step > 0 else min(start, stop))
    first, last = (_from_start(bound, extent) for bound in (begin, end))
    if high is not None and (high >= NO_END if step > 0 else high <= -NO_END):
        last = extent if step > 0 else as_expr(-1)
    if low is not None and low >= NO_END and step < 0:
        first = extent - 1
    if assume_inbound:
        return simplify(first), simplify(last)
    least, most = (as_expr(0), extent) if step > 0 else (as_expr(-1), extent - 1)
    first, last = _clamped(first, low, least, most), _clamped(last, high, least, most)
    ordered = low is not None and high is not None and (low >= 0) == (high >= 0)
    if step > 0 and not (ordered and low <= high):  # type: ignore[operator]
        last = maximum(first, last)
    elif step < 0 and not (ordered and low >= high):  # type: ignore[operator]
        last = minimum(first, last)
    return simplify(first), simplify(last)


def slice_extent(first: Expr, last: Expr, step: int) -> Expr:
    """Number of elements from ``first`` to ``last``, as ``slice_bounds`` gives them."""
    length = last - first if step > 0 else first - last
    return simplify((length + (abs(step) - 1)) // abs(step))


def _from_start(bound: ExprLike, extent: Expr) -> Expr:
    number = as_int(as_expr(bound))
    return extent + number if number is not None and number < 0 else as_expr(bound)


def _clamped(bound: Expr, number: int | None, least: Expr, most: Expr) -> Expr:
    """A bound between the ends of an axis; its sign tells at which end it may be outside."""
    if number is None:
        return maximum(minimum(bound, most), least)
    return minimum(bound, most) if number >= 0 else maximum(bound, least)


def section_cuts(
    what: str, extent: Expr, sections: int, require: Callable[..., object]
) -> list[Expr]:
    """Where sections of an axis start and end: all have the same size but the last.

    A constant extent that doesn't divide leaves less for the last one, a symbolic one is required
    to divide. ``require`` is the function that checks it, and starts what it says with ``what``.

    Raises ``VerifyError`` if nothing is left for the last section.
    """
    size = as_int(extent)
    if size is None:
        require(extent % sections == 0, what, extent, f" does not divide into {sections} sections")
        return [extent // sections * n for n in range(sections + 1)]
    part = -(-size // sections)
    if part * (sections - 1) > size:
        raise VerifyError(
            f"{what}{size} does not divide into {sections} sections: {sections - 1} of {part} "
            f"leave nothing for the last"
        )
    return [*(const(part * n) for n in range(sections)), extent]
