"""Checks of ``reverse_compute_at``: what each iteration makes may be consumed at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.arith.polynomial import (
    Poly,
    constant_of,
    linear_in,
    poly_add,
    poly_atoms,
    poly_mul,
    poly_sub,
)
from tilewright.ir import (
    Expr,
    Var,
    as_int,
    free_vars,
    substitute,
    uses_var,
)
from tilewright.tir import (
    PARALLEL,
    REDUCE,
    SPATIAL,
    THREAD_BINDING,
    VECTORIZED,
    BlockRealize,
    For,
)
from tilewright.tir.analysis.footprint import restricting_conjuncts
from tilewright.tir.analysis.update_order import check_updates_commute
from tilewright.tir.schedule.instance_order import check_axes_in_order
from tilewright.tir.schedule.iterations import loops_between
from tilewright.tir.schedule.primitives._destination import Destination, fit_span
from tilewright.tir.schedule.primitives._index_arithmetic import ONE
from tilewright.tir.schedule.primitives._input_dependences import (
    check_not_awaited,
    keeps_values,
)
from tilewright.tir.schedule.primitives._linear import Span
from tilewright.tir.schedule.primitives._regions import Regions
from tilewright.tir.schedule.primitives._scope import regions_buffers
from tilewright.tir.schedule.zero_trips import surely_runs


def check_ready(
    place: Destination, realize: BlockRealize, producers: Sequence[BlockRealize]
) -> None:
    """Refuse if the block would run before its inputs are ready, or change what others read."""
    state, scope = place.state, place.scope
    inside = set(producers)
    around = {place.loop, *state.loops_above(place.loop)}
    first = min(scope.position[item] for item in place.paths)
    place_now = scope.position[realize]
    for buffer in regions_buffers(realize.block.reads):
        writers = [item for item in scope.writers(buffer) if item is not realize]
        within = [item for item in writers if item in inside]
        for writer in writers:
            if writer in inside:
                if scope.position[writer] > place_now:
                    raise state.error(
                        f"block {realize.block.name!r} reads {buffer.name} before block "
                        f"{writer.block.name!r} writes it: its value would be another",
                        realize,
                        writer,
                    )
                continue
            if within or scope.position[writer] > first:
                raise state.error(
                    f"block {realize.block.name!r} also reads {buffer.name}, which block "
                    f"{writer.block.name!r} outside of loop {place.loop.loop_var.name} writes",
                    realize,
                    writer,
                    remedy="choose a loop that all producers are under, or one after them",
                )
            now = scope.loops(realize)
            for outer in scope.loops(writer):
                if outer in around and outer not in now and as_int(outer.extent) != 1:
                    raise state.error(
                        f"block {realize.block.name!r} also reads {buffer.name}, which block "
                        f"{writer.block.name!r} goes on to write in later iterations of loop "
                        f"{outer.loop_var.name}",
                        realize,
                        writer,
                        remedy="choose a loop that all producers are under",
                    )
    check_not_awaited(scope, realize, place_now)


def check_others_made(
    place: Destination,
    realize: BlockRealize,
    producers: Sequence[BlockRealize],
    spans: dict[Var, Span | None],
) -> None:
    """Refuse if an iteration of a shared loop would run more of the block than now.

    Inputs that are not under ``place.loop`` may compute only what such an iteration needs now.
    """
    scope = place.scope
    around = [place.loop, *place.state.loops_above(place.loop)]
    for buffer in regions_buffers(realize.block.reads):
        for writer in scope.writers(buffer):
            if writer is realize or writer in producers:
                continue
            shared = {
                x.loop_var for x in scope.loops(writer) if x in around and as_int(x.extent) != 1
            }
            for item, value in zip(realize.block.iter_vars, realize.iter_values):
                if spans.get(item.var) is None and uses_var(value, shared):
                    raise place.state.error(
                        f"block {realize.block.name!r} would run all of its axis "
                        f"{item.var.name} in each iteration, but block {writer.block.name!r} "
                        f"makes {buffer.name} one iteration after the other",
                        realize,
                        writer,
                        remedy="choose a loop that all producers are under",
                    )


def check_finished(place: Destination, producer: BlockRealize) -> None:
    """Refuse if a reduction of the producer continues over the loop, or a branch may skip it."""
    outer = {loop.loop_var: loop for loop in place.outer}
    for iter_var, value in zip(producer.block.iter_vars, producer.iter_values):
        if iter_var.kind != REDUCE:
            continue
        for var in free_vars(value):
            if var in outer:
                raise place.state.error(
                    f"loop {var.name} is part of the reduction of block "
                    f"{producer.block.name!r}: its result is not complete inside",
                    producer,
                    outer[var],
                    remedy="choose a loop outside of the reduction",
                )
    if not keeps_values(place.scope, producer, place.counted):
        raise place.state.error(
            f"block {producer.block.name!r} may change in later iterations of loop "
            f"{place.loop.loop_var.name} what it has made: it is neither complete nor a reduction",
            producer,
            place.loop,
        )
    if producer in place.branches:
        raise place.state.error(
            f"block {producer.block.name!r} runs under a branch inside loop "
            f"{place.loop.loop_var.name}",
            producer,
        )
    counted = {item.loop_var for item in place.counted}
    scope = place.scope
    for inner in loops_between(place.state, producer, place.loop):
        drives = any(uses_var(value, {inner.loop_var}) for value in producer.iter_values)
        if drives or not uses_var(inner.extent, counted):
            continue
        if not surely_runs(place.state, inner):
            raise place.state.error(
                f"loop {inner.loop_var.name!r} around block {producer.block.name!r} may have no "
                f"iterations in some of loop {place.loop.loop_var.name} and those around it",
                producer,
                inner,
                remedy="choose a loop around those that its extent is about",
            )
    conditions = restricting_conjuncts(producer, lambda: scope.state.analyzer(scope.func_name))
    if conditions and _begins_everywhere(place, producer, conditions):
        return
    for condition in conditions:
        if uses_var(condition, counted):
            raise place.state.error(
                f"block {producer.block.name!r} runs in some iterations of loop "
                f"{place.loop.loop_var.name} and those around it only: `{condition!r}`",
                producer,
                place.loop,
                remedy="choose a loop around those that the condition is about",
            )
        if _cuts_tiles(producer, set(free_vars(condition)), outer):
            raise place.state.error(
                f"block {producer.block.name!r} leaves out iterations of loops inside of "
                f"{place.loop.loop_var.name}: `{condition!r}`",
                producer,
                place.loop,
                remedy="split by factors that divide, or move the block before splitting again",
            )


def _begins_everywhere(
    place: Destination, producer: BlockRealize, conditions: Sequence[Expr]
) -> bool:
    """Whether the conditions hold where the loops of a producer's reduction begin.

    Then each element is made in all iterations, of fewer terms where others don't hold.
    """
    first: dict[Var, Expr] = {}
    for inner in loops_between(place.state, producer, place.loop):
        told = any(
            item.kind != REDUCE and uses_var(value, {inner.loop_var})
            for item, value in zip(producer.block.iter_vars, producer.iter_values)
        )
        if not told and surely_runs(place.state, inner):
            first[inner.loop_var] = inner.min
    if not first:
        return False
    analyzer = place.state.analyzer_at(producer)
    return all(analyzer.can_prove(substitute(item, first)) for item in conditions)


def _cuts_tiles(producer: BlockRealize, cond: set[Var], outer: Mapping[Var, For]) -> bool:
    """Whether a condition on inner loops cuts off the end of an outer iteration's tile.

    The tile is then smaller than its loops would give, and a later one computes the rest.
    """
    moving = {var for var, loop in outer.items() if as_int(loop.extent) != 1}
    return any(
        item.kind == SPATIAL and uses_var(value, cond) and uses_var(value, moving)
        for item, value in zip(producer.block.iter_vars, producer.iter_values)
    )


def check_all_run(place: Destination, realize: BlockRealize, spans: dict[Var, Span | None]) -> None:
    """Refuse unless all iterations together run the whole block, and reductions only once."""
    regions, block = place.regions, realize.block
    for iter_var in block.iter_vars:
        span = spans.get(iter_var.var)
        if span is None:
            continue
        whole = regions.relax(span.min, regions.outer, span.extent)
        dom_min, dom_extent = regions.poly(iter_var.dom.min), regions.poly(iter_var.dom.extent)
        if whole is not None:
            covered = regions.proves_at_least(dom_min, whole.min) and regions.proves_at_least(
                poly_add(whole.min, whole.extent), poly_add(dom_min, dom_extent)
            )
            if covered and (iter_var.kind != REDUCE or whole.exact):
                continue
        elif _covers_by_division(regions, span, dom_extent):
            continue
        raise place.state.error(
            f"moving block {block.name!r} under loop {place.loop.loop_var.name} would not run all "
            f"of its axis {iter_var.var.name}: the producers there don't make all it reads",
            realize,
            place.loop,
        )
    reduced = [
        iter_var
        for iter_var in block.iter_vars
        if iter_var.kind == REDUCE
        and spans.get(iter_var.var) is not None
        and not regions.is_outer_free(spans[iter_var.var].min)  # type: ignore[union-attr]
    ]
    if reduced:
        _check_reduced_once(place, realize, spans)


def check_still_runs(
    place: Destination, realize: BlockRealize, spans: dict[Var, Span | None]
) -> None:
    """Refuse loops that may be empty around a block, unless its axes are then empty too.

    Without an init, loops that are already around the block may be empty.
    """
    regions, block = place.regions, realize.block
    kept: list[For] = []
    if block.init is None:
        kept = place.state.loops_above(realize)
    else:
        _check_nothing_cut_off(place, realize, spans)
    for around in (place.loop, *place.state.loops_above(place.loop)):
        if around in kept or surely_runs(place.state, around):
            continue
        if not any(
            (span := spans.get(item.var)) and _goes_along(regions, item.kind, span, around)
            for item in block.iter_vars
        ):
            what = "block" if block.init is None else "the init of block"
            raise place.state.error(
                f"loop {around.loop_var.name!r} may have no iterations: {what} {block.name!r} "
                "would not run then",
                realize,
                around,
                remedy="choose a loop that the block's axes go along with",
            )


def _goes_along(regions: Regions, kind: str, span: Span, loop: For) -> bool:
    """Whether an axis of a kind, which ``loop`` runs by ``span``, is over nothing where it is."""
    number, atoms = regions.table.var(loop.loop_var), poly_atoms(span.min)
    if kind != REDUCE:
        return number in atoms  # What is in a remainder may be all of the axis at once.
    # No threads stand for no init, as a loop over nothing does.
    return loop.thread is None and any(regions.depends(atom, {number}) for atom in atoms)


def _check_nothing_cut_off(
    place: Destination, realize: BlockRealize, spans: dict[Var, Span | None]
) -> None:
    """Refuse conditions on a reduction that may be empty: they would guard the init."""
    regions = place.regions
    for item in realize.block.iter_vars:
        span, extent = spans.get(item.var), regions.poly(item.dom.extent)
        if item.kind != REDUCE or span is None or regions.proves_at_least(extent, ONE):
            continue
        if fit_span(regions, span, item.dom, strict=True)[2]:
            raise place.state.error(
                f"axis {item.var.name!r} may be over nothing: what cuts the loop there off at its "
                f"end would leave the init of block {realize.block.name!r} out",
                realize,
                place.loop,
                remedy="choose a loop that the reduction lies inside of",
            )


def check_no_race(place: Destination, realize: BlockRealize, spans: dict[Var, Span | None]) -> None:
    """Refuse if iterations that run at the same time would update the same elements."""
    regions = place.regions
    marked = {
        regions.table.var(loop.loop_var): loop
        for loop in place.counted
        if loop.kind in (PARALLEL, VECTORIZED)
        or (loop.kind == THREAD_BINDING and not (loop.thread or "").startswith("threadIdx"))
    }
    for iter_var in realize.block.iter_vars:
        span = spans.get(iter_var.var)
        if iter_var.kind != REDUCE or span is None:
            continue
        for number, loop in marked.items():
            if any(regions.depends(atom, {number}) for atom in poly_atoms(span.min)):
                raise place.state.error(
                    f"loop {loop.loop_var.name} is {loop.kind}: its iterations would update the "
                    f"same elements in block {realize.block.name!r}",
                    realize,
                    loop,
                    remedy="move the block first, and mark the loop afterwards if that is allowed",
                )


def check_same_order(
    place: Destination, realize: BlockRealize, spans: dict[Var, Span | None]
) -> None:
    """Refuse if a reduction whose updates don't commute would run in another order."""
    what = "computing it elsewhere"
    check_axes_in_order(place.state, realize, place.scope.loops(realize), what)
    cut = [
        item
        for item in realize.block.iter_vars
        if item.kind == REDUCE
        and (span := spans.get(item.var)) is not None
        and not place.regions.is_outer_free(span.min)
    ]
    why = check_updates_commute(realize.block) if cut else ""
    if why:
        raise place.state.error(
            f"the updates of reduction block {realize.block.name!r} don't commute: {why}; the "
            f"iterations of loop {place.loop.loop_var.name} and those around it would each do a "
            f"part of its axis {cut[0].var.name}",
            realize,
            place.loop,
            remedy="choose a loop that makes all that the reduction reads",
        )


def _covers_by_division(regions: Regions, span: Span, extent: Poly) -> bool:
    """Coverage for starts such as ``fused // 4 * 8``: compare maximum and minimum."""
    low, high = regions.bounds(span.min)
    if low is None or high is None:
        return False
    below = constant_of(low)
    rest = regions.difference(poly_add(high, span.extent), extent)
    return below is not None and below <= 0 and rest is not None and rest >= 0


def _check_reduced_once(
    place: Destination, realize: BlockRealize, spans: dict[Var, Span | None]
) -> None:
    """A reduction divided by outer loops must visit each of its elements exactly once."""
    regions = place.regions
    used: set[int] = set()
    for span in spans.values():
        if span is None:
            continue
        steps: list[tuple[Poly, Poly]] = []
        again = False
        for number, (_, count) in regions.outer.items():
            split = linear_in(span.min, number)
            again = again or split is None or (bool(split[0]) and number in used)
            if split is not None and split[0]:
                used.add(number)
                steps.append((split[0], count))
        if again or not _without_overlap(regions, steps, span.extent):
            raise place.state.error(
                f"block {realize.block.name!r} would add elements of its reduction more than "
                f"once under loop {place.loop.loop_var.name}",
                realize,
                place.loop,
            )
    for number, (_, extent) in regions.outer.items():
        if number not in used and extent != ONE:
            raise place.state.error(
                f"block {realize.block.name!r} would repeat parts of its reduction: a loop around "
                f"{place.loop.loop_var.name} doesn't tell them apart",
                realize,
                place.loop,
                remedy="choose an outer loop",
            )


def _without_overlap(regions: Regions, steps: list[tuple[Poly, Poly]], width: Poly) -> bool:
    """Whether windows of some width lie apart if loops of ``(step, count)`` move them.

    Each step must be at least as large as what the windows of the smaller steps cover together.
    """
    left = list(steps)
    covered = width
    while left:
        gaps = [regions.difference(step, covered) for step, _ in left]
        fitting = [(gap, n) for n, gap in enumerate(gaps) if gap is not None and gap >= 0]
        if not fitting:
            return False
        step, count = left.pop(min(fitting)[1])
        covered = poly_add(covered, poly_mul(step, poly_sub(count, ONE)))
    return True
