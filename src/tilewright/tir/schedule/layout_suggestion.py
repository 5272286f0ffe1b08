"""A layout that matches how a buffer is read: elements in the order in which loops visit them.

Rules that pack a constant operand call this after tiling: an access ``B[k0 * 4 + k1, j]`` under
loops ``k0, j, k1`` suggests ``lambda k, j: (k // 4, j, k % 4)``, which ``transform_layout`` takes.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.arith import Analyzer, IterSplitExpr, IterSumExpr, detect_iter_map
from tilewright.ir import TRUE, Expr, Range, Var, as_int, const
from tilewright.tir import Buffer, For
from tilewright.tir.index_map import IndexMap


def suggest_index_map(
    buffer: Buffer,
    indices: Sequence[Expr],
    loops: Sequence[For],
    predicate: Expr = TRUE,
    analyzer: Analyzer | None = None,
) -> IndexMap | None:
    """Return the map that lays ``buffer`` out in the order in which ``loops`` access ``indices``.

    ``loops`` are given outermost first, ``indices`` are in terms of their variables. ``None`` if
    the loops do not go through the buffer element by element from its start: steps that overlap or
    leave holes, an offset, an index that is not a sum of loops. Loops that the access doesn't
    depend on are ignored.
    """
    known = analyzer.copy() if analyzer is not None else Analyzer()
    for extent in buffer.shape:
        if isinstance(extent, Var):
            known.bind_positive(extent)
    domain = {loop.loop_var: Range.from_min_extent(loop.min, loop.extent) for loop in loops}
    found = detect_iter_map([_flat(buffer, indices)], domain, predicate, analyzer=known)
    if found.errors or not found.indices:
        return None
    digits = _contiguous(_steps(found.indices[0]), known)
    if digits is None:
        return None
    depth = {loop.loop_var: number for number, loop in enumerate(loops)}
    if any(digit.source.var not in depth for digit in digits):
        return None
    variables = tuple(Var(f"i{axis}") for axis in range(buffer.ndim))
    for var, extent in zip(variables, buffer.shape):
        known.bind(var, Range.from_min_extent(const(0), extent))
    flat = _flat(buffer, variables)
    results: list[tuple[int, int, Expr]] = []
    for place, digit in enumerate(digits):
        value = flat // digit.scale
        if place:  # the first digit is bounded by the buffer itself
            value = value % digit.extent
        assert digit.source.var is not None
        results.append((depth[digit.source.var], place, known.simplify(value)))
    results.sort(key=lambda item: item[:2])
    return IndexMap(variables, tuple(value for _, _, value in results))


def _flat(buffer: Buffer, indices: Sequence[Expr]) -> Expr:
    """The row-major position of an element."""
    total: Expr = const(0)
    for index, extent in zip(indices, buffer.shape):
        total = total * extent + index
    return total


def _steps(total: IterSumExpr) -> Sequence[IterSplitExpr]:
    """The loops with their strides; empty if the access does not start at zero."""
    while as_int(total.base) == 0:
        if len(total.args) != 1 or not isinstance(total.args[0].source.source, IterSumExpr):
            return total.args
        # All loops are fused into one mark, of which this is the whole.
        (whole,) = total.args
        if as_int(whole.lower_factor) != 1 or as_int(whole.scale) != 1:
            break
        if whole.extent is not whole.source.extent:
            break
        total = whole.source.source
    return ()


def _contiguous(args: Sequence[IterSplitExpr], known: Analyzer) -> list[IterSplitExpr] | None:
    """Order digits from highest to lowest; ``None`` unless each starts where another ends."""
    left = list(args)
    covered: Expr = const(1)
    made: list[IterSplitExpr] = []
    while left:
        lowest = next((item for item in left if known.can_prove_equal(item.scale, covered)), None)
        if lowest is None:
            return None
        left.remove(lowest)
        covered = known.simplify(covered * lowest.extent)
        made.append(lowest)
    return made[::-1] or None
