"""From boxes to axes: which of a block's instances write, or read, a box of a buffer.

``compute_at`` asks for the axes of the block whose instances write a required box,
``reverse_compute_at`` for those whose instances read only what a box provides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.arith.polynomial import (
    Poly,
    constant_of,
    linear_in,
    poly_add,
    poly_atoms,
    poly_sub,
)
from tilewright.ir import Expr, Range, Var, as_int, free_vars, uses_var
from tilewright.tir import Block, BlockRealize, Buffer, BufferRegion, For
from tilewright.tir.index_map_solve import solve_indices
from tilewright.tir.schedule.primitives._destination import Destination
from tilewright.tir.schedule.primitives._linear import Span
from tilewright.tir.schedule.primitives._regions import Regions


def axes_of_outputs(
    regions: Regions, block: Block, required: dict[Buffer, list[Span | None] | None]
) -> dict[Var, Span | None]:
    """Which range of each axis computes the required boxes (``None`` or missing: all of it)."""
    domain = {iter_var.var: iter_var.dom for iter_var in block.iter_vars}
    found: dict[Var, Span | None] = {}
    first: Buffer | None = None
    for region in block.writes:
        spans = required.get(region.buffer)
        if spans is None:
            continue
        mine: dict[Var, Span | None] = {}
        hard: list[tuple[Range, Span]] = []
        for item, span in zip(region.region, spans):
            var, solved = _solve_output(regions, item, span, domain)
            if var is not None:
                # An axis in two dimensions of one buffer: one of them bounds it well enough.
                mine[var] = solved if mine.get(var) is None else mine[var]
            elif span is not None:
                hard.append((item, span))
        mine.update(_invert(regions, hard, domain, set(mine)) or {})
        if first is None:
            first, found = region.buffer, mine
            continue
        # Several outputs: each axis runs through what any of them needs.
        for var in domain:
            a, b = found.get(var), mine.get(var)
            found[var] = None if a is None or b is None else regions.union(a, b)
    return found


def _solve_output(
    regions: Regions, item: Range, span: Span | None, domain: dict[Var, Range]
) -> tuple[Var | None, Span | None]:
    """Solve ``[c*v + b, +w)`` covering ``span`` for the axis ``v``."""
    index = item.min
    if type(index) is Var and index in domain and (as_int(item.extent) == 1 or span is None):
        return index, span
    used = [var for var in free_vars(index) if var in domain]
    if len(used) != 1 or span is None:
        return None, None
    var = used[0]
    split = linear_in(regions.poly(index), regions.table.var(var))
    if split is None or not split[0]:
        return None, None
    coefficient, offset = constant_of(split[0]), split[1]
    width = as_int(item.extent)
    if coefficient is None or coefficient <= 0 or width is None:
        return var, None
    low = poly_sub(span.min, offset)
    if coefficient == 1:
        # Any of the windows [v, v+w) that meets the box. Wide ones all do.
        most = as_int(domain[var].extent)
        if most is not None and 1 < most <= width:
            return var, None
        return var, Span(
            poly_sub(low, {(): width - 1} if width > 1 else {}),
            poly_add(span.extent, {(): width - 1} if width > 1 else {}),
        )
    exact = all(value % coefficient == 0 for value in (*low.values(), *span.extent.values()))
    if exact and width <= coefficient:
        scale = coefficient
        return var, Span(
            {mono: value // scale for mono, value in low.items()},
            {mono: value // scale for mono, value in span.extent.items()},
        )
    return var, None


def axes_of_inputs(
    place: Destination, realize: BlockRealize, provided: dict[Buffer, list[Span | None] | None]
) -> dict[Var, Span | None]:
    """Which range of each axis reads only what is provided; refuse if that is unknown."""
    state, regions, block = place.state, place.regions, realize.block
    found: dict[Var, Span] = {}
    parts: list[dict[Var, Span]] = []
    for region in block.reads:
        spans = provided.get(region.buffer)
        if spans is None:
            continue
        mine = _solve_inputs(place, realize, region, spans)
        parts.append(mine)
        for var, span in mine.items():
            known = found.get(var)
            if known is None:
                found[var] = span
            elif not (
                regions.same(known.min, span.min) and regions.same(known.extent, span.extent)
            ):
                raise state.error(
                    f"the inputs of block {block.name!r} ask for different ranges of its axis "
                    f"{var.name} under loop {place.loop.loop_var.name}",
                    realize,
                    place.loop,
                    remedy="tile the producers alike, or choose an outer loop",
                )
    _check_no_diagonal(place, realize, parts)
    return dict(found)


def _check_no_diagonal(
    place: Destination, realize: BlockRealize, parts: Sequence[dict[Var, Span]]
) -> None:
    """Refuse if inputs fix different axes by one loop: only their diagonal would run."""
    loops = {place.regions.table.var(loop.loop_var): loop for loop in place.counted}
    for number, one in enumerate(parts):
        for other in parts[:number]:
            mine = _loops_of_spans(place.regions, loops, one, other)
            theirs = _loops_of_spans(place.regions, loops, other, one)
            for shared in mine & theirs:
                raise place.state.error(
                    f"the inputs of block {realize.block.name!r} fix different axes of it in one "
                    f"iteration of loop {loops[shared].loop_var.name}; that leaves others out",
                    realize,
                    place.loop,
                    remedy="choose an outer loop",
                )


def _loops_of_spans(
    regions: Regions, loops: Mapping[int, For], spans: dict[Var, Span], without: dict[Var, Span]
) -> set[int]:
    """Return the loops that fix axes in ``spans`` which are not in ``without``."""
    starts = [span.min for var, span in spans.items() if var not in without]
    return {
        number
        for number in loops
        if any(regions.depends(atom, {number}) for start in starts for atom in poly_atoms(start))
    }


def _solve_inputs(
    place: Destination, realize: BlockRealize, region: BufferRegion, spans: Sequence[Span | None]
) -> dict[Var, Span]:
    regions, block = place.regions, realize.block
    domain = {iter_var.var: iter_var.dom for iter_var in block.iter_vars}
    found: dict[Var, Span] = {}
    hard: list[tuple[Range, Span]] = []
    covered: list[tuple[Range, Span]] = []
    for item, span, size in zip(region.region, spans, region.buffer.shape):
        if span is None:
            raise _unknown(place, realize, region)
        index = item.min
        if not uses_var(index, domain):
            span = _at_one_place(regions, span)
        if _covers(regions, span, size):
            covered.append((item, span))
            continue
        if not span.exact:
            raise place.state.error(
                f"what is made of {region.buffer.name} in one iteration of loop "
                f"{place.loop.loop_var.name} has holes",
                realize,
                place.loop,
                remedy="choose an outer loop, or reorder the producer's loops",
            )
        width = as_int(item.extent)
        if type(index) is Var and index in domain and width == 1:
            if index in found:
                raise _unknown(place, realize, region)
            found[index] = span
            continue
        used = [var for var in free_vars(index) if var in domain]
        if len(used) == 1 and used[0] not in found and width is not None:
            solved = _solve_input(regions, index, width, used[0], span)
            if solved is not None:
                found[used[0]] = solved
                continue
        hard.append((item, span))
    if hard:
        # A dimension that is there as a whole asks for nothing, but helps to solve the others.
        axes = {var for item, _ in hard for var in free_vars(item.min) if var in domain}
        hard += [entry for entry in covered if uses_var(entry[0].min, axes)]
        solved_all = _invert(regions, hard, domain, set(found))
        if solved_all is None or any(not span.exact for span in solved_all.values()):
            raise _unknown(place, realize, region)
        found.update(solved_all)
    return found


def _solve_input(regions: Regions, index: Expr, width: int, var: Var, span: Span) -> Span | None:
    """Solve ``[c*v + b, +w)`` inside ``span`` for ``v``, where exactly whole windows fit."""
    split = linear_in(regions.poly(index), regions.table.var(var))
    if split is None:
        return None
    coefficient = constant_of(split[0])
    if coefficient is None or coefficient < 1:
        return None
    low = poly_sub(span.min, split[1])
    if coefficient == 1 and width == 1:
        return Span(low, span.extent)
    # Windows must tile the box: [c*v, c*v + w) with w <= c, and c divides start and extent.
    if width > coefficient:
        return None
    if any(value % coefficient for value in (*low.values(), *span.extent.values())):
        return None
    return Span(
        {mono: value // coefficient for mono, value in low.items()},
        {mono: value // coefficient for mono, value in span.extent.items()},
    )


def _invert(
    regions: Regions,
    hard: Sequence[tuple[Range, Span]],
    domain: dict[Var, Range],
    known: set[Var],
) -> dict[Var, Span] | None:
    """Solve indices that split or fuse axes for those not ``known``; relax over the box."""
    if any(uses_var(item.min, known) for item, _ in hard):
        return None
    used = {var: None for item, _ in hard for var in free_vars(item.min) if var in domain}
    if not used or any(as_int(item.extent) != 1 for item, _ in hard):
        return None
    outputs = [Var(f"u{number}") for number in range(len(hard))]
    solved = solve_indices([item.min for item, _ in hard], {v: domain[v] for v in used}, outputs)
    if solved is None:
        return None
    offsets = [Var(f"{var.name}_offset") for var in outputs]
    inner: dict[int, tuple[Poly, Poly]] = {}
    env: dict[Var, Poly] = {}
    for var, offset, (_, span) in zip(outputs, offsets, hard):
        number = regions.table.var(offset)
        inner[number] = ({}, span.extent)
        regions.know_range(number, {}, span.extent)
        env[var] = poly_add(span.min, {(number,): 1})
    made = {}
    for var, value in solved.items():
        span_or_none = regions.relax(regions.poly(value, env), inner)
        if span_or_none is None:
            return None
        made[var] = span_or_none
    return made


def _at_one_place(regions: Regions, span: Span) -> Span:
    """Say where a span begins without loops, if all their iterations agree on it."""
    low, high = regions.bounds(span.min)
    return Span(low, span.extent, span.exact) if low is not None and low == high else span


def _covers(regions: Regions, span: Span, size: Expr) -> bool:
    """Whether all of a dimension is provided in every iteration."""
    whole = regions.poly(size)
    if not span.exact:
        return False
    if not span.min and regions.same(span.extent, whole):
        return True
    start = constant_of(span.min)
    if start is None or start > 0:
        return False
    rest = regions.difference(poly_add(span.min, span.extent), whole)
    return rest is not None and rest >= 0


def _unknown(place: Destination, realize: BlockRealize, region: BufferRegion) -> Exception:
    return place.state.error(
        f"the part of block {realize.block.name!r} that reads only what loop "
        f"{place.loop.loop_var.name} has made of {region.buffer.name} can't be told from its "
        "access",
        realize,
        place.loop,
        remedy="choose an outer loop under which the dimension is made as a whole",
    )
