"""Does a block run all of its domain, and no more? Predicates, and loops that cover the axes.

A block can be given other loops only if its predicate says nothing else than that the axes stay in
their ranges, and often only if the loops around it reach every value of these.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.arith import Analyzer, conjuncts, detect_iter_map
from tilewright.arith.polynomial import Poly, constant_of, poly_add, poly_atoms
from tilewright.ir import GE, GT, LE, LT, TRUE, Expr, Var, and_, as_int, const, expr_equal
from tilewright.tir import BlockRealize
from tilewright.tir.schedule.footprint import loop_ranges
from tilewright.tir.schedule.primitives._regions import Regions
from tilewright.tir.schedule.primitives._scope import Scope


def restricting_conjuncts(realize: BlockRealize, analyzer: Analyzer | None = None) -> list[Expr]:
    """Return the parts of a block's predicate that say more than "inside the block's domain".

    Splitting with a remainder, and windows that reach over an edge, give predicates which only keep
    the iteration variables inside their domains; these hold wherever the block is moved to.
    """
    return [
        condition
        for condition in conjuncts(realize.predicate)
        if not _keeps_domain(condition, realize, analyzer)
    ]


def _keeps_domain(condition: Expr, realize: BlockRealize, analyzer: Analyzer | None) -> bool:
    if isinstance(condition, (LT, LE)):
        low, high, slack = condition.a, condition.b, 0 if isinstance(condition, LT) else 1
    elif isinstance(condition, (GT, GE)):
        low, high, slack = condition.b, condition.a, 0 if isinstance(condition, GT) else 1
    else:
        return False
    # The condition is low < high + slack.
    for value, iter_var in zip(realize.iter_values, realize.block.iter_vars):
        dom = iter_var.dom
        end = dom.min + dom.extent
        if expr_equal(low, value):  # value < high + slack: fine if end <= high + slack
            known, limit = as_int(end), as_int(high)
            if known is not None and limit is not None:
                if known <= limit + slack:
                    return True
            elif expr_equal(end, high + slack):
                return True
        elif expr_equal(high, value):  # low < value + slack: fine if low - slack < dom.min
            known, limit = as_int(dom.min), as_int(low)
            if known is not None and limit is not None and limit - slack < known:
                return True
    analyzer = analyzer or Analyzer()
    gap = high - low + slack  # must be >= 1
    for value, iter_var in zip(realize.iter_values, realize.block.iter_vars):
        dom = iter_var.dom
        # Inside the domain dom.min <= value <= end - 1.
        over = as_int(analyzer.simplify(gap - (dom.min + dom.extent - value)))
        under = as_int(analyzer.simplify(gap - (value - dom.min)))
        if (over is not None and over >= 0) or (under is not None and under >= 1):
            return True
    return False


def check_predicate_is_domain(scope: Scope, realize: BlockRealize) -> None:
    """Refuse if a block's predicate does more than keep its axes inside their domains.

    Those must be the same wherever the block runs.
    """
    for iter_var in realize.block.iter_vars:
        if not scope.is_fixed(realize, iter_var):
            raise scope.state.error(
                f"the range of axis {iter_var.var.name} of block {realize.block.name!r} depends on "
                "the loops around it",
                realize,
            )
    if realize in scope.branches:
        raise scope.state.error(
            f"block {realize.block.name!r} runs under a branch, which tells where it runs",
            realize,
            scope.branches[realize],
        )
    if realize.predicate is TRUE:
        return
    rest = restricting_conjuncts(realize, scope.state.analyzer(scope.func_name))
    if rest and not is_whole(scope, realize):
        raise scope.state.error(
            lambda: (
                f"the predicate of block {realize.block.name!r} restricts it beyond its domain: "
                f"`{rest[0]!r}`"
            ),
            realize,
            remedy="only predicates that come from splitting with a remainder can be rebuilt",
        )


def is_whole(scope: Scope, realize: BlockRealize) -> bool:
    """Whether the loops around a block and its predicate run all of its domain."""
    found = scope.whole.get(realize)
    if found is None:
        found = scope.whole[realize] = _runs_whole_domain(scope, realize)
    return found


def check_runs_whole(scope: Scope, realize: BlockRealize) -> None:
    """Refuse if the loops around a block leave out a part of its domain."""
    check_predicate_is_domain(scope, realize)
    if not is_whole(scope, realize):
        raise scope.state.error(
            f"the loops around block {realize.block.name!r} don't run all of its domain",
            realize,
            remedy="an axis that runs over a part of a buffer must have that part as its range",
        )


def _runs_whole_domain(scope: Scope, realize: BlockRealize) -> bool:
    rest: list[Expr] = []
    if realize in scope.branches:
        return False
    if realize.predicate is not TRUE:
        rest = restricting_conjuncts(realize, scope.state.analyzer(scope.func_name))
    elif _is_plain(scope, realize):
        return True
    return _covers_domain(scope, realize, rest) or _is_bijective(scope, realize)


def _is_plain(scope: Scope, realize: BlockRealize) -> bool:
    """Whether each axis is bound to a loop of its own with the axis's range."""
    loops = {loop.loop_var: loop for loop in scope.loops(realize)}
    for value, iter_var in zip(realize.iter_values, realize.block.iter_vars):
        dom = iter_var.dom
        if type(value) is Var:
            loop = loops.pop(value, None)
            if loop is None or not (
                expr_equal(loop.extent, dom.extent) and expr_equal(loop.min, dom.min)
            ):
                return False
        elif as_int(dom.extent) != 1:
            return False
    return True


def _is_bijective(scope: Scope, realize: BlockRealize) -> bool:
    """Whether loops under the predicate and the block's domain correspond one to one."""
    analyzer = scope.state.analyzer(scope.func_name)
    found = detect_iter_map(
        realize.iter_values,
        loop_ranges(scope.loops(realize)),
        realize.predicate,
        require_bijective=True,
        analyzer=analyzer,
    )
    if found.errors:
        return False
    for total, iter_var in zip(found.indices, realize.block.iter_vars):
        extent: Expr = const(1)
        if total.args:
            if len(total.args) > 1 or as_int(total.args[0].scale) != 1:
                return False
            extent = total.args[0].extent
        if not analyzer.can_prove_equal(extent, iter_var.dom.extent):
            return False
        if not analyzer.can_prove_equal(total.base, iter_var.dom.min):
            return False
    return True


def _covers_domain(scope: Scope, realize: BlockRealize, rest: Iterable[Expr]) -> bool:
    """Whether the block runs its whole domain, some of it repeatedly, in spite of ``rest``.

    A condition ``i0*4 + i1 < 7`` makes one loop over ``[0, 7)`` of the two. With such loops in
    their place, each axis must be covered by loops that no other axis uses.
    """
    regions = Regions(scope.state, scope.func_name, ())
    regions.add_block_axes(scope.block)
    loops = regions.inner_loops(scope.loops(realize))
    values = [regions.poly(value) for value in realize.iter_values]
    for number, condition in enumerate(rest):
        made = _with_joint_loop(regions, loops, values, condition, Var(f"u{number}"))
        if made is None:
            return False
        values = made
    used: set[int] = set()
    for value, iter_var in zip(values, realize.block.iter_vars):
        own = {atom for atom in loops if any(regions.depends(a, {atom}) for a in poly_atoms(value))}
        if own & used:
            return False
        used |= own
        span = regions.relax(value, loops)
        if span is None or not span.exact:
            return False
        start, extent = regions.poly(iter_var.dom.min), regions.poly(iter_var.dom.extent)
        below = regions.difference(start, span.min)
        above = regions.difference(poly_add(span.min, span.extent), poly_add(start, extent))
        if below is None or below < 0 or above is None or above < 0:
            return False
    return True


def _with_joint_loop(
    regions: Regions,
    loops: dict[int, tuple[Poly, Poly]],
    values: list[Poly],
    condition: Expr,
    joint_var: Var,
) -> list[Poly] | None:
    """Put one loop in the place of those that ``condition`` cuts short together.

    Takes their place in ``loops``; returns the values written with it, ``None`` if the condition
    is not of that form, or a value needs the single loops.
    """
    if type(condition) is not LT:
        return None
    limit = as_int(condition.b)  # type: ignore[attr-defined]
    index = regions.poly(condition.a)  # type: ignore[attr-defined]
    mine = {atom: loops[atom] for atom in poly_atoms(index) if atom in loops}
    span = regions.relax(index, mine)
    if limit is None or span is None or span.min or not span.exact:
        return None
    reach = constant_of(span.extent)
    if reach is None or reach < limit:
        return None
    joint = regions.table.var(joint_var)
    regions.know_range(joint, {}, {(): limit})
    made = []
    for value in values:
        new = regions.replace_form(value, index, joint)
        if new is None or any(regions.depends(atom, mine) for atom in poly_atoms(new)):
            return None
        made.append(new)
    for atom in mine:
        del loops[atom]
    loops[joint] = ({}, {(): limit})
    return made


def merge_conditions(*groups: Iterable[Expr]) -> Expr:
    """Join conditions, each once."""
    found: list[Expr] = []
    for group in groups:
        for condition in group:
            if not any(expr_equal(condition, other) for other in found):
                found.append(condition)
    return and_(*found)
