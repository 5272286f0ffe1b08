"""Does a block run its whole domain and nothing else? Predicates, and loops that cover axes.

A block can get new loops only if its predicate does no more than keep the axes in their ranges, and
often only if the loops around it reach every value of these.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.arith import detect_iter_map
from tilewright.arith.polynomial import Poly, constant_of, poly_add, poly_atoms
from tilewright.ir import LT, TRUE, Expr, Var, and_, as_int, expr_equal
from tilewright.tir import BlockRealize
from tilewright.tir.analysis.footprint import loop_ranges, restricting_conjuncts
from tilewright.tir.schedule.primitives._regions import Regions
from tilewright.tir.schedule.primitives._scope import Scope


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
    rest = restricting_conjuncts(realize, lambda: scope.state.analyzer_of_instances(realize))
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
    """Refuse if the loops around a block don't run all of its domain."""
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
        rest = restricting_conjuncts(realize, lambda: scope.state.analyzer(scope.func_name))
    elif _is_one_to_one(scope, realize):
        return True
    return _covers_domain(scope, realize, rest) or _is_bijective(scope, realize)


def _is_one_to_one(scope: Scope, realize: BlockRealize) -> bool:
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
    ranges = found.ranges()
    if found.errors or ranges is None:
        return False
    return all(
        analyzer.can_prove_equal(span.extent, iter_var.dom.extent)
        and analyzer.can_prove_equal(span.min, iter_var.dom.min)
        for span, iter_var in zip(ranges, realize.block.iter_vars)
    )


def _covers_domain(scope: Scope, realize: BlockRealize, rest: Iterable[Expr]) -> bool:
    """Whether the block runs its whole domain, possibly repeatedly, despite ``rest``.

    A condition ``i0*4 + i1 < 7`` turns the two loops into one over ``[0, 7)``. After that, each
    axis must be covered by loops that no other axis uses.
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
    """Replace the loops that ``condition`` bounds together by one loop.

    Updates ``loops``; returns the values in terms of it, or ``None`` if the condition is not of
    that form, or a value needs the single loops.
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
    """Merge conditions without duplicates."""
    found: list[Expr] = []
    for group in groups:
        for condition in group:
            if not any(expr_equal(condition, other) for other in found):
                found.append(condition)
    return and_(*found)
