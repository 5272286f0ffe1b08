"""How many: instances of a loop nest under conditions, and different elements that they touch.

Counts are expressions of whatever is symbolic, and say whether they are exact; if not, they are
upper bounds. Structure is used first: an index is a sum of loops with coefficients, and the values
of such a sum are a run without gaps, or runs side by side. Small nests that have no such structure
are enumerated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import Any

import numpy as np

from tilewright.arith import Analyzer, detect_iter_map, detect_linear_equation
from tilewright.ir import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    TRUE,
    And,
    Expr,
    Not,
    Or,
    Range,
    Var,
    add,
    as_int,
    const,
    is_const,
    maximum,
    minimum,
    mul,
    pre_order,
    sub,
    substitute,
    uses_var,
)
from tilewright.tir.analysis.enumeration import ENUMERATION_LIMIT, enumerate_points
from tilewright.tir.buffer import BufferLoad

Domain = Mapping[Var, Range]


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
    parts = list(_conjuncts(conditions))
    if any(is_const(part, 0) for part in parts):
        return ZERO
    total = ONE
    for variables, own in _independent(domain, parts):
        total = total * _instances(variables, own, known)
    return Count(known.simplify(total.value), total.exact)


def _instances(domain: Domain, conditions: list[Expr], known: Analyzer) -> Count:
    """Count instances of variables that hang together."""
    if not domain:
        return ONE if all(known.can_prove(c) for c in conditions) else ONE.bound()
    rectangular = not any(_depends(item, domain) for item in domain.values())
    if rectangular:
        everything = Count(_product(domain.values(), known))
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
    if _gap(first) is None:
        return None
    index = first.a if uses_var(first.a, domain) else first.b
    form = _linear(index, domain, known)
    if form is None or len(form.terms) != len(_wide(domain)):
        return None
    run = _run(form, known)
    if run is None or not run.dense:
        return None
    if not known.can_prove_equal(_product(domain.values(), known), run.count):
        return None  # some values come more than once
    clipped = _clipped(index, conditions, domain, form, run, known)
    return None if clipped is None else Count(clipped.extent)


def _at_start(domain: Domain, conditions: list[Expr], known: Analyzer) -> Count | None:
    """Count under ``sum == its least value``: all its variables are at their start."""
    pinned: set[Var] = set()
    for condition in conditions:
        if type(condition) is EQ:
            index, limit = condition.a, condition.b  # type: ignore[attr-defined]
            form = _linear(index, domain, known)
            if form is None or not all(known.can_prove_ge(factor, 1) for factor, _ in form.terms):
                return None
            if not known.can_prove_equal(form.base, limit):
                return None
            pinned.update(var for var in domain if uses_var(index, {var}))
    if not pinned.issuperset(_wide(domain)):
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
    parts = list(_conjuncts(conditions))
    used = [part for part in parts if uses_var(part, domain)]
    # A condition on something fixed outside holds or doesn't for all; counted as if it holds.
    maybe = any(not known.can_prove(part) for part in parts if part not in used)
    for item in domain.values():
        if is_const(item.extent, 0) or any(is_const(part, 0) for part in parts):
            return Footprint(ZERO, None)
        maybe = maybe or not (_depends(item, domain) or known.can_prove_ge(item.extent, 1))
    domain = _related(domain, box, used)
    whole = not any(_depends(item, domain) for item in domain.values())
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


def _box_footprint(
    box: Sequence[Range], domain: Domain, conditions: list[Expr], known: Analyzer
) -> Footprint | None:
    """Axes that are sums of different variables make a box, or a grid with steps."""
    taken: set[Var] = set()
    left = list(conditions)
    total = ONE
    ranges: list[Range] | None = []
    for item in box:
        if uses_var(item.extent, domain):
            return None
        form = _linear(item.min, domain, known)
        if form is None:
            return None
        mine = {var for var in _wide(domain) if uses_var(item.min, {var})}
        if mine & taken:
            return None
        taken |= mine
        own = [part for part in left if uses_var(part, mine)]
        left = [part for part in left if part not in own]
        # The extent of the box itself is a loop over neighbours.
        form.terms.append((const(1), item.extent))
        run = _run(form, known)
        if run is None:
            return None
        if own:
            if not run.dense or run.step != 1 or not is_const(item.extent, 1):
                return None
            alone = not any(uses_var(part, set(domain) - mine) for part in own)
            clipped = _clipped(item.min, own, domain, form, run, known) if alone else None
            if clipped is None:
                return None
            total = total * Count(clipped.extent)
            side: Range | None = clipped
        else:
            total = total * Count(run.count)
            side = None
            if run.dense and run.step == 1:
                side = Range(known.simplify(form.least()), known.simplify(run.count))
        if side is None or ranges is None:
            ranges = None
        else:
            ranges.append(side)
    if left:
        # Conditions on variables that no index uses: do they hold for any?
        rest = {var: item for var, item in domain.items() if var not in taken}
        if any(uses_var(part, taken) for part in left):
            return None
        some = count_instances(rest, left, analyzer=known)
        if not some.exact or not known.can_prove_ge(some.value, 1):
            return None
    count = Count(known.simplify(total.value), total.exact)
    return Footprint(count, None if ranges is None else tuple(ranges))


def _mapped_footprint(box: Sequence[Range], domain: Domain, known: Analyzer) -> Footprint | None:
    """Axes that take variables apart: the pieces that an iteration map finds are independent."""
    if not all(is_const(item.extent, 1) for item in box):
        return None
    found = detect_iter_map([item.min for item in box], dict(domain), TRUE, analyzer=known)
    if found.errors or not is_const(found.padding_predicate, 0):
        return None
    value: Expr = const(1)
    for total in found.indices:
        for piece in total.args:
            value = mul(value, piece.extent)
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
    if any(_depends(item, domain) for item in used.values()):
        used = dict(domain)
    instances = count_instances(
        used,
        [part for part in conditions if not uses_var(part, set(domain) - set(used))],
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


def union(parts: Sequence[Footprint], whole: Count | None, analyzer: Analyzer) -> Footprint:
    """Count the elements of several footprints in one buffer of ``whole`` elements together."""
    left = list(parts)
    boxes = [item.box for item in left if item.box is not None]
    if len(boxes) == len(left) and boxes:
        constant = _constant_union(boxes)
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
    parts: Sequence[tuple[Sequence[Range], Domain, Sequence[Expr]]],
) -> Count | None:
    """Count the elements that accesses touch together by running through them; if few enough."""
    places = []
    for box, domain, conditions in parts:
        if not all(is_const(item.extent, 1) for item in box):
            return None
        points = enumerate_points(domain, conditions, [item.min for item in box])
        if points is None:
            return None
        places.append(points.places)
    return Count(const(len(np.unique(np.concatenate(places), axis=0))))


def _constant_union(boxes: Sequence[tuple[Range, ...]]) -> int | None:
    """Count the elements of boxes with constant ends, by the grid that all ends make."""
    ends: list[list[tuple[int, int]]] = []
    for box in boxes:
        sides = []
        for side in box:
            low, extent = as_int(side.min), as_int(side.extent)
            if low is None or extent is None:
                return None
            sides.append((low, low + extent))
        ends.append(sides)
    axes = [sorted({end for sides in ends for end in sides[n]}) for n in range(len(boxes[0]))]
    if prod(len(axis) for axis in axes) > ENUMERATION_LIMIT:
        return None
    grid = np.zeros([max(len(axis) - 1, 1) for axis in axes], bool)
    for sides in ends:
        grid[tuple(slice(a.index(lo), a.index(hi)) for a, (lo, hi) in zip(axes, sides))] = True
    sizes = np.ones((), np.int64)
    for axis in axes:
        sizes = np.multiply.outer(sizes, np.diff(axis) if len(axis) > 1 else np.zeros(1, np.int64))
    return int((sizes * grid).sum())


def merge_boxes(boxes: Sequence[tuple[Range, ...]], known: Analyzer) -> list[tuple[Range, ...]]:
    """Join boxes that differ in one axis, along which they touch."""
    left: list[tuple[Range, ...]] = []
    for box in boxes:
        current = box
        changed = True
        while changed:
            changed = False
            for other in left:
                joined = _join(other, current, known)
                if joined is not None:
                    left.remove(other)
                    current, changed = joined, True
                    break
        left.append(current)
    return left


def _join(a: tuple[Range, ...], b: tuple[Range, ...], known: Analyzer) -> tuple[Range, ...] | None:
    different = [
        n
        for n, (x, y) in enumerate(zip(a, b))
        if not (known.can_prove_equal(x.min, y.min) and known.can_prove_equal(x.extent, y.extent))
    ]
    if not different:
        return a
    if len(different) > 1:
        return None
    axis = different[0]
    x, y = a[axis], b[axis]
    if not known.can_prove_ge(y.min, x.min):
        x, y = y, x
    x_end, y_end = add(x.min, x.extent), add(y.min, y.extent)
    if not (known.can_prove_ge(y.min, x.min) and known.can_prove_ge(x_end, y.min)):
        return None
    if known.can_prove_ge(y_end, x_end):
        end = y_end
    elif known.can_prove_ge(x_end, y_end):
        end = x_end
    else:
        return None
    made = list(a)
    made[axis] = Range(x.min, known.simplify(sub(end, x.min)))
    return tuple(made)


# ---- sums of variables --------------------------------------------------------------------------


class _Form:
    """``base + sum(factor * (0 … extent-1))``; variables that don't move are in the base."""

    def __init__(self, terms: list[tuple[Expr, Expr]], base: Expr) -> None:
        self.terms = terms
        self.base = base

    def least(self) -> Expr:
        """The least value, where no factor is symbolic and negative."""
        low = self.base
        for factor, extent in self.terms:
            known = as_int(factor)
            if known is not None and known < 0:
                low = add(low, mul(factor, sub(extent, 1)))
        return low


@dataclass(frozen=True)
class _Run:
    """The values of a sum: how many, from first to last, in steps, and whether without gaps."""

    count: Expr
    span: Expr
    step: int
    dense: bool


def _wide(domain: Domain) -> list[Var]:
    """The variables that take more than one value."""
    return [var for var, item in domain.items() if not is_const(item.extent, 1)]


def _linear(index: Expr, domain: Domain, known: Analyzer) -> _Form | None:
    variables = [var for var in domain if uses_var(index, {var})]
    if any(type(item) is BufferLoad for item in pre_order(index)):
        return None
    found = detect_linear_equation(index, variables, analyzer=_unbound(known, variables))
    if found is None:
        return None
    base = found[-1]
    terms = []
    for var, factor in zip(variables, found):
        item = domain[var]
        base = add(base, mul(factor, item.min))
        if not is_const(item.extent, 1) and not is_const(factor, 0):
            terms.append((factor, item.extent))
    return _Form(terms, known.simplify(base))


def _unbound(known: Analyzer, variables: Iterable[Var]) -> Analyzer:
    """An analyzer that doesn't replace the variables by values it knows."""
    if any(var in known._context.substitutions for var in variables):
        return Analyzer()
    return known


def _run(form: _Form, known: Analyzer) -> _Run | None:
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
    form: _Form,
    run: _Run,
    known: Analyzer,
) -> Range | None:
    """Cut a run without gaps by conditions below or above."""
    if run.step != 1:
        return None
    low = form.least()
    end = add(low, run.count)
    for condition in conditions:
        gap = _gap(condition)
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
        return Range(known.simplify(low), size)
    value = as_int(size)
    return Range(low, const(0)) if value is not None and value < 0 else None


def _gap(condition: Any) -> Expr | None:
    """Read an inequality as ``gap >= 0``."""
    kind = type(condition)
    if kind not in (LT, LE, GT, GE):
        return None
    a, b = condition.a, condition.b  # type: ignore[attr-defined]
    gap: Expr = sub(b, a) if kind in (LT, LE) else sub(a, b)
    return sub(gap, 1) if kind in (LT, GT) else gap


def _product(ranges: Iterable[Range], known: Analyzer) -> Expr:
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


def _conjuncts(conditions: Iterable[Any]) -> Iterable[Any]:
    stack: list[Any] = list(conditions)[::-1]
    while stack:
        item = stack.pop()
        denied: Any = item.a if type(item) is Not else None
        if type(item) is And:
            stack += [item.b, item.a]
        elif type(denied) is Or:
            stack += [Not(denied.b), Not(denied.a)]
        elif type(denied) in _NEGATED:
            stack.append(_NEGATED[type(denied)](denied.a, denied.b))
        elif not is_const(item, 1):
            yield item


_NEGATED: dict[type, Callable[[Any, Any], Expr]] = {LT: GE, GE: LT, LE: GT, GT: LE, EQ: NE, NE: EQ}


def _depends(item: Range, domain: Domain) -> bool:
    return uses_var(item.min, domain) or uses_var(item.extent, domain)


def _independent(
    domain: Domain, conditions: list[Expr]
) -> list[tuple[dict[Var, Range], list[Expr]]]:
    """Part variables into groups that share no condition and no range."""
    group = {var: {var} for var in domain}
    links = [{v for v in domain if uses_var(part, {v})} for part in conditions]
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
        if not _depends(item, domain):
            total = mul(total, item.extent)
            continue
        most = known.int_set(item.extent, dict(domain)).max
        if not isinstance(most, Expr) or uses_var(most, domain):
            high = known.const_int_bound(item.extent).max
            most = item.extent if high == float("inf") else const(int(high))
        total = mul(total, most)
    return known.simplify(total)
