"""How many: instances of a loop nest under conditions, and different elements that they touch.

Counts are expressions of whatever is symbolic, and say whether they are exact; if not, they are
upper bounds. Structure is used first: an index is a sum of loops with coefficients, and the values
of such a sum are a run without gaps, or runs side by side. Small nests that have no such structure
are enumerated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

from tilewright.arith import Analyzer, decided_conjuncts, detect_iter_map
from tilewright.ir import (
    EQ,
    TRUE,
    Expr,
    Range,
    Var,
    add,
    and_,
    as_int,
    const,
    is_const,
    maximum,
    minimum,
    mul,
    sub,
    substitute,
    uses_var,
)
from tilewright.tir.analysis.boxes import constant_union, merge_boxes
from tilewright.tir.analysis.enumeration import enumerate_points
from tilewright.tir.analysis.forms import (
    Domain,
    Form,
    depends,
    gap_of,
    linear_form,
    narrowed,
    wide,
)


@dataclass(frozen=True)
class Count:
    """A number of things: exact, or an upper bound."""

    value: Expr
    exact: bool = True

    def __mul__(self, other: Count) -> Count:
        return Count(mul(self.value, other.value), self.exact and other.exact)

    def __add__(self, other: Count) -> Count:
        return Count(add(self.value, other.value), self.exact and other.exact)

    def scaled(self, factor: Expr | int) -> Count:
        """The count times a number."""
        return Count(mul(self.value, factor), self.exact)

    def bound(self) -> Count:
        """The same as an upper bound."""
        return Count(self.value, False)

    @property
    def number(self) -> int | None:
        """The value if it is constant."""
        return as_int(self.value)

    def __repr__(self) -> str:
        return f"{'' if self.exact else '<= '}{self.value!r}"


ZERO, ONE = Count(const(0)), Count(const(1))


# ---- instances ----------------------------------------------------------------------------------


def count_instances(
    domain: Domain, conditions: Sequence[Expr] = (), *, analyzer: Analyzer | None = None
) -> Count:
    """Count the values of the variables for which all conditions hold."""
    known = analyzer if analyzer is not None else Analyzer()
    conjuncts = decided_conjuncts(and_(*conditions))
    total = ONE
    ranges, conjuncts, _ = narrowed(domain, conjuncts, known)
    for variables, own in _independent(ranges, conjuncts):
        total = total * _instances(variables, own, known)
    return Count(known.simplify(total.value), total.exact)


def _instances(domain: Domain, conditions: list[Expr], known: Analyzer) -> Count:
    """Count instances of variables that hang together."""
    if not domain:
        loose = [_holds(condition, known) for condition in conditions]
        return ZERO if False in loose else ONE.bound() if None in loose else ONE
    rectangular = not any(depends(item, domain) for item in domain.values())
    if rectangular:
        everything = Count(_size(domain.values(), known))
        if not conditions:
            return everything
        found = _conditional(domain, conditions, known)
        if found is not None:
            return found
    else:
        everything = Count(_widest(domain, known), False)
    points = enumerate_points(domain, conditions)
    if points is not None:
        return Count(const(points.count))
    return everything.bound()


def _conditional(domain: Domain, conditions: list[Expr], known: Analyzer) -> Count | None:
    """Count under conditions on one sum of the variables in which each value comes once."""
    if any(type(condition) is EQ for condition in conditions):
        return _at_start(domain, conditions, known)
    first: Any = conditions[0]
    if gap_of(first) is None:
        return None
    index = first.a if uses_var(first.a, domain) else first.b
    form = linear_form(index, domain, known)
    if form is None or len(form.terms) != len(wide(domain)):
        return None
    run = _run(form, known)
    if run is None or not run.dense:
        return None
    if not known.can_prove_equal(_size(domain.values(), known), run.count):
        return None  # some values come more than once
    clipped = _clipped(index, conditions, domain, form, run, known)
    return None if clipped is None else Count(clipped.extent)


def _at_start(domain: Domain, conditions: list[Expr], known: Analyzer) -> Count | None:
    """Count under ``sum == its least value``: all its variables are at their start."""
    pinned: set[Var] = set()
    for condition in conditions:
        if type(condition) is EQ:
            index, limit = condition.a, condition.b  # type: ignore[attr-defined]
            form = linear_form(index, domain, known)
            if form is None or not all(known.can_prove_ge(factor, 1) for factor, _ in form.terms):
                return None
            if not known.can_prove_equal(form.base, limit):
                return None
            pinned.update(var for var in domain if uses_var(index, {var}))
    if not pinned.issuperset(wide(domain)):
        return None
    start = {var: item.min for var, item in domain.items()}
    for condition in conditions:
        if type(condition) is not EQ and not known.can_prove(substitute(condition, start)):
            return None
    return ONE


# ---- different elements -------------------------------------------------------------------------


@dataclass(frozen=True)
class Footprint:
    """Elements that one access touches: how many, and as a box if they fill one."""

    count: Count
    box: tuple[Range, ...] | None


def footprint(
    box: Sequence[Range],
    shape: Sequence[Expr],
    domain: Domain,
    conditions: Sequence[Expr] = (),
    *,
    analyzer: Analyzer | None = None,
) -> Footprint:
    """Find the different elements that a box touches while the variables run."""
    known = analyzer if analyzer is not None else Analyzer()
    conjuncts = decided_conjuncts(and_(*conditions))
    maybe = _may_be_empty(domain, known)
    domain, conjuncts, fixed = narrowed(_related(domain, box, conjuncts), conjuncts, known)
    box = [substitute(item, fixed) for item in box] if fixed else box
    # Conditions on something fixed outside hold for all or for none; if that is not known, the
    # count is what it is if they hold.
    loose = [_holds(condition, known) for condition in conjuncts if not uses_var(condition, domain)]
    if any(is_const(item.extent, 0) for item in domain.values()) or False in loose:
        return Footprint(ZERO, None)
    maybe = maybe or None in loose or _may_be_empty(domain, known)
    used = [condition for condition in conjuncts if uses_var(condition, domain)]
    whole = not any(depends(item, domain) for item in domain.values())
    made = _box_footprint(box, domain, used, known) if whole else None
    if made is None and whole and not used:
        made = _mapped_footprint(box, domain, known)
    if made is None:
        points = enumerate_points(domain, used, [item.min for item in box])
        if points is not None and all(is_const(item.extent, 1) for item in box):
            made = Footprint(Count(const(len(points.places))), None)
    if made is None:
        return Footprint(_upper_bound(box, shape, domain, used, known), None)
    return Footprint(made.count.bound(), made.box) if maybe else made


def _holds(condition: Expr, known: Analyzer) -> bool | None:
    """Whether a condition holds; ``None`` if that is not known."""
    value = as_int(known.simplify(condition))
    return None if value is None else bool(value)


def _may_be_empty(domain: Domain, known: Analyzer) -> bool:
    """Whether a loop, of those that depend on no other, may run no time at all."""
    return any(
        not depends(item, domain) and not known.can_prove_ge(item.extent, 1)
        for item in domain.values()
    )


def _box_footprint(
    box: Sequence[Range], domain: Domain, conditions: list[Expr], known: Analyzer
) -> Footprint | None:
    """Axes that are sums of different variables make a box, or a grid with steps."""
    taken: set[Var] = set()
    indexed = {var for var in domain if any(uses_var(item.min, {var}) for item in box)}
    mixed = [condition for condition in conditions if uses_var(condition, set(domain) - indexed)]
    if not _hold_somewhere(mixed, domain, indexed, known):
        return None
    left = [condition for condition in conditions if not uses_var(condition, set(domain) - indexed)]
    total, sides = ONE, []
    for item in box:
        mine = {var for var in wide(domain) if uses_var(item.min, {var})}
        if mine & taken:
            return None
        taken |= mine
        own = [condition for condition in left if uses_var(condition, mine)]
        left = [condition for condition in left if not uses_var(condition, mine)]
        made = _extent_along(item, mine, own, domain, known)
        if made is None:
            return None
        extent, side = made
        total = total * Count(extent)
        sides.append(side)
    count = Count(known.simplify(total.value), total.exact)
    known_sides = tuple(side for side in sides if side is not None)
    return Footprint(count, known_sides if len(known_sides) == len(sides) else None)


def _extent_along(
    item: Range, mine: set[Var], own: list[Expr], domain: Domain, known: Analyzer
) -> tuple[Expr, Range | None] | None:
    """How many elements there are along a dimension, and their range if they fill one.

    ``mine`` are the variables of its index, ``own`` the conditions on these.
    """
    form = None if uses_var(item.extent, domain) else linear_form(item.min, domain, known)
    if form is None:
        return None
    # The extent of the box itself is a loop over neighbours.
    form.terms.append((const(1), item.extent))
    run = _run(form, known)
    if run is None:
        return None
    dense = run.dense and run.step == 1
    if not own:
        start = known.simplify(form.least()) if dense else None
        return run.count, None if start is None else Range.from_min_extent(
            start, known.simplify(run.count)
        )
    if not dense or not is_const(item.extent, 1):
        return None
    if any(uses_var(condition, set(domain) - mine) for condition in own):
        return None
    clipped = _clipped(item.min, own, domain, form, run, known)
    return None if clipped is None else (clipped.extent, clipped)


def _hold_somewhere(
    conditions: list[Expr], domain: Domain, indexed: set[Var], known: Analyzer
) -> bool:
    """Whether conditions hold for some values of the other variables, for all of the indexed."""
    if not conditions:
        return True
    others = {var: item for var, item in domain.items() if var not in indexed}
    if not any(uses_var(condition, indexed) for condition in conditions):
        some = count_instances(others, conditions, analyzer=known)
        if some.exact and known.can_prove_ge(some.value, 1):
            return True
    # For instance at the start of their ranges.
    inside = known.copy()
    for var in indexed:
        inside.bind(var, domain[var], override=True)
    start = {var: item.min for var, item in others.items()}
    return all(inside.can_prove(substitute(condition, start)) for condition in conditions)


def _mapped_footprint(box: Sequence[Range], domain: Domain, known: Analyzer) -> Footprint | None:
    """Axes that take variables apart: the splits that an iteration map finds are independent."""
    if not all(is_const(item.extent, 1) for item in box):
        return None
    found = detect_iter_map([item.min for item in box], dict(domain), TRUE, analyzer=known)
    if found.errors or not is_const(found.padding_predicate, 0):
        return None
    value: Expr = const(1)
    for total in found.indices:
        for item in total.args:
            value = mul(value, item.extent)
    return Footprint(Count(known.simplify(value)), None)


def _upper_bound(
    box: Sequence[Range],
    shape: Sequence[Expr],
    domain: Domain,
    conditions: list[Expr],
    known: Analyzer,
) -> Count:
    """Not more than there are instances, nor than the buffer has elements."""
    elements: Expr = const(1)
    for item in box:
        elements = mul(elements, item.extent)
    used = {var: item for var, item in domain.items() if any(uses_var(b.min, {var}) for b in box)}
    if any(depends(item, domain) for item in used.values()):
        used = dict(domain)
    instances = count_instances(
        used,
        [condition for condition in conditions if not uses_var(condition, set(domain) - set(used))],
        analyzer=known,
    )
    whole: Expr = const(1)
    for extent in shape:
        whole = mul(whole, extent)
    most = mul(instances.value, elements)
    if known.can_prove_ge(whole, most):
        return Count(known.simplify(most), False)
    if known.can_prove_ge(most, whole):
        return Count(known.simplify(whole), False)
    return Count(known.simplify(minimum(most, whole)), False)


def union(footprints: Sequence[Footprint], whole: Count | None, analyzer: Analyzer) -> Footprint:
    """Count the elements of several footprints in one buffer of ``whole`` elements together."""
    left = list(footprints)
    boxes = [item.box for item in left if item.box is not None]
    if len(boxes) == len(left) and boxes:
        constant = constant_union(boxes)
        exact = all(item.count.exact for item in left)
        if constant is not None and len(boxes) > 1:
            return Footprint(Count(const(constant), exact), None)
        merged = merge_boxes(boxes, analyzer)
        if len(merged) == 1:
            volume: Expr = const(1)
            for side in merged[0]:
                volume = mul(volume, side.extent)
            return Footprint(Count(analyzer.simplify(volume), exact), merged[0])
    if len(left) == 1:
        return left[0]
    for item in left:
        exact = item.count.exact and whole is not None
        if exact and analyzer.can_prove_equal(item.count.value, whole.value):  # type: ignore[union-attr]
            return item
    total = ZERO
    for item in left:
        total = total + item.count
    if whole is not None and not analyzer.can_prove_ge(whole.value, total.value):
        smaller = minimum(total.value, whole.value)
        if analyzer.can_prove_ge(total.value, whole.value):
            smaller = whole.value
        total = Count(smaller)
    return Footprint(Count(analyzer.simplify(total.value), False), None)


def enumerated_union(
    boxes: Sequence[tuple[Sequence[Range], Domain, Sequence[Expr]]],
) -> Count | None:
    """Count the elements that accesses touch together by running through them; if few enough."""
    places = []
    for box, domain, conditions in boxes:
        if not all(is_const(item.extent, 1) for item in box):
            return None
        points = enumerate_points(domain, conditions, [item.min for item in box])
        if points is None:
            return None
        places.append(points.places)
    return Count(const(len(np.unique(np.concatenate(places), axis=0))))


# ---- sums of variables --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Run:
    """The values of a sum: how many, from first to last, in steps, and whether without gaps."""

    count: Expr
    span: Expr
    step: int
    dense: bool


def _run(form: Form, known: Analyzer) -> _Run | None:
    """Find how many values a sum has: from the smallest factor up, runs overlap or stand apart."""
    terms = []
    for factor, extent in form.terms:
        value = as_int(factor)
        if value is not None:
            terms.append((0, abs(value), const(abs(value)), extent))
        elif known.can_prove_ge(factor, 1):
            terms.append((1, 0, factor, extent))
        else:
            return None
    terms = [item for item in terms if not is_const(item[3], 1)]
    terms.sort(key=lambda item: item[:2])
    step = 1
    if terms and all(not symbolic for symbolic, *_ in terms):
        step = gcd(*(value for _, value, _, _ in terms))
    count: Expr = const(1)
    span: Expr = const(1)
    dense = True
    for _, _, factor, extent in terms:
        unit = as_int(factor)
        scaled = factor if unit is None else const(unit // step)
        if dense and known.can_prove_ge(span, scaled):
            span = add(mul(scaled, sub(extent, 1)), span)
            count = span
        elif known.can_prove_ge(scaled, span):
            count = mul(count, extent)
            span = add(mul(scaled, sub(extent, 1)), span)
            dense = False
        else:
            return None
    return _Run(known.simplify(count), known.simplify(span), step, dense)


def _clipped(
    index: Expr,
    conditions: list[Expr],
    domain: Domain,
    form: Form,
    run: _Run,
    known: Analyzer,
) -> Range | None:
    """Cut a run without gaps by conditions below or above."""
    if run.step != 1:
        return None
    low = form.least()
    end = add(low, run.count)
    for condition in conditions:
        gap = gap_of(condition)
        if gap is None:
            return None
        upper = known.simplify(add(gap, index))
        lower = known.simplify(sub(index, gap))
        if not uses_var(upper, domain):  # index <= upper
            limit = add(upper, 1)
            if known.can_prove_ge(end, limit):
                end = limit
            elif not known.can_prove_ge(limit, end):
                end = minimum(end, limit)
        elif not uses_var(lower, domain):  # index >= lower
            if known.can_prove_ge(lower, low):
                low = lower
            elif not known.can_prove_ge(low, lower):
                return None
        else:
            return None
    size = known.simplify(sub(end, low))
    if known.can_prove_ge(size, 0):
        return Range.from_min_extent(known.simplify(low), size)
    value = as_int(size)
    return Range.from_min_extent(low, const(0)) if value is not None and value < 0 else None


def _size(ranges: Iterable[Range], known: Analyzer) -> Expr:
    total: Expr = const(1)
    for item in ranges:
        extent = item.extent
        total = mul(total, extent if known.can_prove_ge(extent, 0) else maximum(extent, 0))
    return total


def _related(domain: Domain, box: Sequence[Range], conditions: list[Expr]) -> dict[Var, Range]:
    """The variables that a box or a condition uses, and those that their ranges use."""
    wanted: set[Var] = set()
    nodes: list[Expr] = [end for item in box for end in (item.min, item.extent)] + conditions
    while nodes:
        node = nodes.pop()
        for var in domain:
            if var not in wanted and uses_var(node, {var}):
                wanted.add(var)
                nodes += [domain[var].min, domain[var].extent]
    return {var: item for var, item in domain.items() if var in wanted}


def _independent(
    domain: Domain, conditions: list[Expr]
) -> list[tuple[dict[Var, Range], list[Expr]]]:
    """Part variables into groups that share no condition and no range."""
    group = {var: {var} for var in domain}
    links = [{v for v in domain if uses_var(condition, {v})} for condition in conditions]
    links += [
        {var, *(v for v in domain if uses_var(item.min, {v}) or uses_var(item.extent, {v}))}
        for var, item in domain.items()
    ]
    for linked in links:
        joined = set().union(*(group[var] for var in linked)) if linked else set()
        for var in joined:
            group[var] = joined
    seen: set[Var] = set()
    made: list[tuple[dict[Var, Range], list[Expr]]] = []
    for var in domain:
        if var not in seen:
            seen |= group[var]
            own = {v: domain[v] for v in domain if v in group[var]}
            made.append((own, [c for c in conditions if uses_var(c, own)]))
    loose = [c for c in conditions if not uses_var(c, domain)]
    if loose:
        made.append(({}, loose))
    return made


def _widest(domain: Domain, known: Analyzer) -> Expr:
    """An upper bound of the instances of loops whose ranges depend on each other."""
    total: Expr = const(1)
    for item in domain.values():
        if not depends(item, domain):
            total = mul(total, item.extent)
            continue
        most = known.int_set(item.extent, dict(domain)).max
        if not isinstance(most, Expr) or uses_var(most, domain):
            high = known.const_int_bound(item.extent).max
            most = item.extent if high == float("inf") else const(int(high))
        total = mul(total, most)
    return known.simplify(total)
