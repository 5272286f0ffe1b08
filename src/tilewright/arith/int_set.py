"""Sets of integers as intervals with symbolic ends, and the boxes that loops touch.

``int_set`` lets the variables of a domain run through their ranges and gives the interval that an
expression covers, in terms of everything else. ``region_bound`` does so for a box of ranges: it is
what region inference, ``compute_at`` and buffer compaction ask. Ends are found on polynomials: a
variable goes to the end of its range that the sign of its coefficient asks for, so that
``i0*f1 + i1`` over ``i1`` in ``[0, f1)`` has extent ``f1``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.bounds import NEG_INF, POS_INF
from tilewright.arith.intervals import (
    IntervalSet,
    Relaxer,
    bind_domain,
    interval_of,
    narrow,
    unless_limit,
)
from tilewright.arith.iter_expr import IterSplitExpr, IterSumExpr
from tilewright.arith.iter_map import detect_iter_map
from tilewright.arith.polynomial import MAX, MIN, Poly, poly_add, poly_sub
from tilewright.ir import (
    INDEX,
    TRUE,
    Add,
    Expr,
    IntImm,
    Mul,
    Range,
    Sub,
    Var,
    const,
    dtypes,
    floormod,
    is_const,
    uses_var,
)

_LIMITS = dtypes.integer_limits(INDEX)


def int_set(
    expr: Expr,
    dom: Mapping[Var, Range | IntervalSet],
    predicate: Expr = TRUE,
    *,
    analyzer: Analyzer | None = None,
) -> IntervalSet:
    """Return the interval that ``expr`` covers while the variables run through ``dom``."""
    _, relaxer, _ = _relaxer(dom, predicate, analyzer)
    return interval_of(relaxer, expr)


def _relaxer(
    dom: Mapping[Var, Range | IntervalSet], predicate: Expr, analyzer: Analyzer | None
) -> tuple[Analyzer, Relaxer, list[Poly]]:
    """Bind a domain, narrow it by a predicate, and return the facts that the predicate gave."""
    known = analyzer.copy() if analyzer is not None else Analyzer()
    ends = bind_domain(known._simplifier, dom)
    if isinstance(predicate, IntImm):
        return known, Relaxer(known._simplifier, ends), []
    context = known._context
    before, limits_before = len(context.facts), dict(context.limits)
    known.assume(predicate)
    facts = context.facts[before:]
    for number, (low, high) in context.limits.items():
        if limits_before.get(number) != (low, high):
            if low != NEG_INF:
                facts.append({(number,): 1, **({(): -low} if low else {})})
            if high != POS_INF:
                facts.append({(number,): -1, **({(): high} if high else {})})
    ends = narrow(Relaxer(known._simplifier, ends), ends, facts)
    context.ranges.update(ends)
    context.changed()
    return known, Relaxer(known._simplifier, ends), facts


def region_bound(
    region: Sequence[Range],
    dom: Mapping[Var, Range],
    predicate: Expr = TRUE,
    *,
    exact: bool = False,
    analyzer: Analyzer | None = None,
) -> list[Range | IntervalSet]:
    """Return the smallest box found that covers ``region`` for all values of ``dom``.

    Each dimension is a ``Range``, or an ``IntervalSet`` with an infinite end where no bound is
    known (an index read from memory). Variables outside ``dom`` stay as they are. ``predicate``
    narrows the domain. With ``exact``, a dimension of which not every element is provably touched
    also comes back as an (unbounded) ``IntervalSet``.
    """
    box = BoxBounds(dom, predicate, analyzer=analyzer)
    if not exact:
        return box.of(region)
    made: list[Range | IntervalSet] = []
    for item, found in zip(region, box.of(region)):
        if found is item or not isinstance(found, Range):
            made.append(found)
            continue
        is_exact = _is_exact(box.inside, item, found, dom, predicate)
        made.append(found if is_exact else IntervalSet.everything())
    return made


class BoxBounds:
    """What ``region_bound`` says for one domain and predicate, for any number of regions."""

    def __init__(
        self, dom: Mapping[Var, Range], predicate: Expr = TRUE, *, analyzer: Analyzer | None = None
    ) -> None:
        self.dom = dict(dom)
        self.predicate = predicate
        self.analyzer = Analyzer() if analyzer is None else analyzer
        self._ends = _constant_ends(dom) if predicate is TRUE else {}
        self._relaxer: tuple[Analyzer, Relaxer, list[Poly]] | None = None

    @property
    def inside(self) -> Analyzer:
        """What knows the domain and the predicate; made when it is needed."""
        return self._known()[0]

    def _known(self) -> tuple[Analyzer, Relaxer, list[Poly]]:
        if self._relaxer is None:
            self._relaxer = _relaxer(self.dom, self.predicate, self.analyzer)
        return self._relaxer

    def of(self, region: Sequence[Range]) -> list[Range | IntervalSet]:
        """Return the box around a region, dimension by dimension."""
        return [self._around(item) for item in region]

    def _around(self, item: Range) -> Range | IntervalSet:
        linear = self._linear(item)
        if linear is not None:
            return linear
        if not (uses_var(item.min, self.dom) or uses_var(item.extent, self.dom)):
            return item
        _, relaxer, facts = self._known()
        found = _bound_one(relaxer, item, facts)
        parts = _addends(item.min)
        if len(parts) > 1 and (not isinstance(found, Range) or not is_const(found.extent, 1)):
            # Merged, the parts of a sum may have lost what each of them says alone.
            one = const(1, item.extent.dtype)
            apart = _sum(
                [_bound_one(relaxer, Range.from_min_extent(x, one), facts) for x in parts],
                item.extent,
            )
            if apart is not None and _is_narrower(apart, found):
                return apart
        return found

    def _linear(self, item: Range) -> Range | None:
        """The box around a range of constant length that starts at a sum of multiples.

        Most do, in loops from one number to another; the answer is that of ``_bound_one``.
        """
        if not self._ends or type(item.extent) is not IntImm or item.min.dtype != INDEX:
            return None
        terms: dict[Var | None, int] = {}
        if not _add_terms(item.min, 1, terms):
            return None
        start, extent = terms.pop(None, 0), item.extent.value
        if self.dom.keys().isdisjoint(terms):
            return item
        low: Poly = {}
        for var, factor in terms.items():
            assert var is not None
            if var in self._ends:
                first, last = self._ends[var]
                start += factor * (first if factor > 0 else last)
                extent += abs(factor) * (last - first)
            elif var in self.dom:
                return None
            elif factor:
                for term, count in self.analyzer.poly(var).items():
                    if not term:
                        start += factor * count
                    elif len(term) == 1 and count == 1 and term not in low:
                        low[term] = factor
                    else:
                        return None  # it stands for something else
        if start:
            low[()] = start
        lowest = self.analyzer._simplifier.from_poly_or_none(low, INDEX)
        if lowest is None or extent > _LIMITS[1]:
            return None
        return Range.from_min_extent(lowest, const(extent))


def _addends(expr: Expr) -> list[Expr]:
    """The parts of a sum that are no multiples of variables, and the rest as one part."""
    parts: list[Expr] = []
    plain: Expr | None = None
    stack: list[Any] = [expr]
    while stack:
        item = stack.pop()
        if type(item) is Add:
            stack += [item.b, item.a]
        elif _add_terms(item, 1, {}):
            plain = item if plain is None else plain + item
        else:
            parts.append(item)
    return parts if plain is None else [*parts, plain]


def _sum(parts: Sequence[Range | IntervalSet], extent: Expr) -> Range | None:
    """The box around a sum, by those of its parts, if all have known lengths."""
    if type(extent) is not IntImm:
        return None
    total, first = extent.value, None
    for part in parts:
        if not isinstance(part, Range) or type(part.extent) is not IntImm:
            return None
        total += part.extent.value - 1
        first = part.min if first is None else first + part.min
    return (
        None
        if first is None or total > _LIMITS[1]
        else Range.from_min_extent(first, const(total, first.dtype))
    )


def _is_narrower(made: Range, found: Range | IntervalSet) -> bool:
    if type(made.extent) is not IntImm:
        return False
    extent = found.extent if isinstance(found, Range) else None
    return extent is None or (type(extent) is IntImm and made.extent.value < extent.value)


def _constant_ends(dom: Mapping[Var, Range]) -> dict[Var, tuple[int, int]]:
    """First and last value of the variables that run from a number to a number."""
    return {
        var: (item.min.value, item.min.value + item.extent.value - 1)
        for var, item in dom.items()
        if type(item.min) is IntImm and type(item.extent) is IntImm and item.extent.value > 0
    }


def _add_terms(expr: Any, factor: int, terms: dict[Var | None, int]) -> bool:
    """Add the multiples in a sum, by variable (``None``: the constant); false if it is no sum."""
    kind = type(expr)
    if kind is Var:
        terms[expr] = terms.get(expr, 0) + factor
    elif kind is IntImm:
        terms[None] = terms.get(None, 0) + factor * expr.value
    elif kind is Add:
        return _add_terms(expr.a, factor, terms) and _add_terms(expr.b, factor, terms)
    elif kind is Sub:
        return _add_terms(expr.a, factor, terms) and _add_terms(expr.b, -factor, terms)
    elif kind is Mul and type(expr.b) is IntImm:
        return _add_terms(expr.a, factor * expr.b.value, terms)
    else:
        return False
    return True


def _bound_one(relaxer: Relaxer, item: Range, facts: Sequence[Poly]) -> Range | IntervalSet:
    simplifier, canonical = relaxer.simplifier, relaxer.canonical
    dtype = item.min.dtype
    first = canonical.merged(simplifier.poly(item.min))
    last = poly_sub(poly_add(first, simplifier.poly(item.extent)), {(): 1})
    low, high = relaxer.end(first, False), relaxer.end(last, True)
    for fact in facts:
        # fact >= 0 gives last <= last + fact and first >= first - fact.
        above, below = poly_add(last, fact), poly_sub(first, fact)
        if relaxer.free(above):
            high = above if high is None else canonical.minmax(MIN, high, above, dtype)
        if relaxer.free(below):
            low = below if low is None else canonical.minmax(MAX, low, below, dtype)
    low, high = unless_limit(low, dtype), unless_limit(high, dtype)
    first_expr = None if low is None else simplifier.from_poly_or_none(low, dtype)
    if low is not None and high is not None and first_expr is not None:
        extent = canonical.merged(poly_add(poly_sub(high, low), {(): 1}))
        extent_expr = simplifier.from_poly_or_none(extent, dtype)
        if extent_expr is not None:
            return Range.from_min_extent(first_expr, extent_expr)
    last_expr = None if high is None else simplifier.from_poly_or_none(high, dtype)
    return IntervalSet(
        NEG_INF if first_expr is None else first_expr, POS_INF if last_expr is None else last_expr
    )


def _is_exact(
    analyzer: Analyzer, item: Range, found: Range, dom: Mapping[Var, Range], predicate: Expr
) -> bool:
    """Whether the range's start is a bijection of its variables, or steps no wider than itself."""
    start = analyzer.simplify(item.min)
    used = {var: value for var, value in dom.items() if uses_var(start, {var})}
    detected = detect_iter_map([start], used, predicate, analyzer=analyzer)
    if detected.errors:
        return False
    (total,) = detected.indices
    if not total.args:
        return True
    # Starts are base + scale * (0 .. extent-1): dense if each range reaches the next start.
    if len(total.args) != 1 or not _is_whole(analyzer, total.args[0]):
        return False
    return analyzer.can_prove_ge(item.extent, total.args[0].scale) and analyzer.can_prove_equal(
        found.extent,
        total.args[0].scale * (total.args[0].extent - 1) + item.extent,
    )


def _is_whole(analyzer: Analyzer, split: IterSplitExpr) -> bool:
    """Whether a part of an iterator surely takes all its values, together with all others'."""
    mark = split.source
    parts = split.lower_factor * split.extent
    if not analyzer.can_prove_equal(floormod(mark.extent, parts), 0):
        return False
    inner = mark.source.args if isinstance(mark.source, IterSumExpr) else ()
    return all(_is_whole(analyzer, item) for item in inner)
