"""What blocks touch in one iteration of a loop, and what iterations hand on to later ones.

An iteration depends on no other if it writes itself whatever it reads (``makes_all``), or if it
touches other elements than any other iteration (``apart``). Primitives ask that of the blocks that
they move, and PlanBufferAllocation of a buffer that may live inside of the loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any

from tilewright.arith import Analyzer, conjuncts, simplify, sum_terms
from tilewright.ir import (
    TRUE,
    Expr,
    Range,
    Var,
    add,
    const,
    expr_equal,
    free_vars,
    is_const,
    not_,
    substitute,
)
from tilewright.tir import (
    NO_OP,
    SERIAL,
    Block,
    BlockRealize,
    Buffer,
    BufferRegion,
    BufferStore,
    For,
)
from tilewright.tir.analysis.accesses import detect_accesses
from tilewright.tir.analysis.boxes import merge_boxes
from tilewright.tir.analysis.enumeration import enumerate_points
from tilewright.tir.analysis.footprint import (
    box_at,
    covers_buffer,
    differ,
    disjoint,
    filled_box,
    fills_box,
    inside_box,
    loop_ranges,
    region_below,
    restricting_conjuncts,
    tiles_densely,
)

Box = list[Range]
Known = Callable[[], Analyzer]
"""Makes, or gives again, an analyzer that knows the loop in question and what is around it."""


class Touched:
    """A region that a block below a loop reads or writes, with the loops between."""

    __slots__ = ("inner", "realize", "region")

    def __init__(self, region: BufferRegion, realize: BlockRealize, inner: list[For]) -> None:
        self.region, self.realize, self.inner = region, realize, inner

    def below(self, shared: int) -> Touched:
        """The same in one iteration of the outermost ``shared`` loops between."""
        return Touched(self.region, self.realize, self.inner[shared:]) if shared else self

    def places(self) -> list[tuple[Expr, Expr]]:
        """Start and extent per dimension in terms of the loops."""
        axes = dict(zip((v.var for v in self.realize.block.iter_vars), self.realize.iter_values))
        return [(substitute(r.min, axes), substitute(r.extent, axes)) for r in self.region.region]

    def box(self, known: Known, condition: Expr) -> Box:
        """A box around what one iteration of the loop touches under a condition."""
        ranges, buffer = self.region.region, self.region.buffer
        return region_below(ranges, self.realize, self.inner, buffer, condition, known)

    def surely_runs(self, known: Analyzer) -> bool:
        """Whether loops below that only repeat the block run at all."""
        used = {var for place in self.places() for part in place for var in free_vars(part)}
        return all(
            loop.loop_var in used or known.can_prove_ge(loop.extent, 1) for loop in self.inner
        )

    def filled(self, conditions: Sequence[Expr], known: Known) -> Box | None:
        """The box that one iteration fills under conditions; ``None`` if it may leave holes."""
        if not conditions and self._fills_box(known):
            return self.box(known, TRUE)
        return self._counted_box(conditions, known())

    def _elements(self) -> tuple[list[Expr], list[For]]:
        """Indices of single elements, with loops: those below, and one along each side of a box."""
        indices, loops = [], list(self.inner)
        for low, extent in self.places():
            index = low
            if not is_const(extent, 1):
                lane = Var("lane", low.dtype)
                index = add(low, lane)
                loops.append(For(lane, const(0), extent, SERIAL, NO_OP))
            indices.append(index)
        return indices, loops

    def _fills_box(self, known: Known) -> bool:
        """Whether what is touched in all iterations of the loops below is a box without holes."""
        if tiles_densely(self.region):
            return fills_box(self.realize.iter_values, self.inner, known)
        indices, loops = self._elements()
        return fills_box([simplify(index) for index in indices], loops, known)

    def _counted_box(self, conditions: Sequence[Expr], known: Analyzer) -> Box | None:
        """The box that the instances under ``conditions`` fill, found by counting them.

        ``None`` if they leave a hole, are too many, or depend on more than the loops below.
        """
        places, loops = self._elements()
        domain = loop_ranges(loops)
        starts, indices = [], []
        for place in places:
            found = _split_sum(known.simplify(place), {*domain})
            if found is None:
                return None
            starts.append(found[0])
            indices.append(found[1])
        points = enumerate_points(domain, conditions, indices)
        if points is None or not points.count:
            return None
        first, last = points.places.min(axis=0), points.places.max(axis=0)
        if len(points.places) != math.prod(map(int, last - first + 1)):
            return None
        ends = zip(starts, map(int, first), map(int, last))
        return [
            Range.from_min_extent(start + low, const(high - low + 1)) for start, low, high in ends
        ]

    def runs_with(self, other: Touched, conditions: Sequence[Expr]) -> bool:
        """Whether this runs wherever another does, on the same elements, under ``conditions``.

        That is seen by form: loop by loop from the inside, with the same places and conditions.
        """
        renamed = {
            theirs.loop_var: mine.loop_var
            for mine, theirs in zip(reversed(self.inner), reversed(other.inner))
            if expr_equal(mine.extent, theirs.extent) and expr_equal(mine.min, theirs.min)
        }
        holding = [substitute(item, renamed) for item in conjuncts(other.realize.predicate)]
        places = zip(self.places(), other.places())
        return all(
            expr_equal(a, substitute(b, renamed)) for x, y in places for a, b in zip(x, y)
        ) and all(any(expr_equal(one, item) for item in holding) for one in conditions)


def _split_sum(value: Expr, loops: set[Var]) -> tuple[Expr, Expr] | None:
    """Split a sum into what is free of some loops and what depends on nothing else."""
    rest: Expr = const(0)
    moving: Expr = const(0)
    for item, factor in sum_terms(value):
        used = set(free_vars(item))
        if used and used <= loops:
            moving = moving + item * factor
        elif used & loops:
            return None
        else:
            rest = rest + item * factor
    return rest, moving


def makes_all(write: Touched, read: Touched, known: Known, cache: MutableMapping[Any, Any]) -> bool:
    """Whether in one iteration of the loop ``write`` makes all that ``read`` may read after it.

    Loops below that both are in take turns between them, so it is asked of one iteration of these.
    ``cache`` keeps what was found of blocks, for a function in which they are.
    """
    key = ("writes_all_declared", write.realize, write.region)
    if key not in cache:
        cache[key] = _writes_all_declared(write, known)
    if not cache[key]:
        return False
    shared = [a for a, b in zip(write.inner, read.inner) if a is b]
    write, read = write.below(len(shared)), read.below(len(shared))
    analyzer = known()
    with _inside(shared, analyzer):
        if not write.surely_runs(analyzer):
            return False
        conditions = _restricting(write, analyzer)
        if conditions and write.runs_with(read, conditions):
            return True
        filled = write.filled(conditions, lambda: analyzer)
        if filled is None:
            return False
        box = read.box(lambda: analyzer, read.realize.predicate)
        return inside_box(box, filled, write.region.buffer, lambda: analyzer)


def _restricting(write: Touched, known: Analyzer) -> list[Expr]:
    """The conditions of a block that may keep it from writing elements of the buffer.

    A condition that leaves out only what is outside of the block's domain, or of the buffer, as
    that of a cut-off tile does, is not one of them. That of an axis that says nothing of the place
    is one: the place is inside of the buffer wherever the axis is.
    """
    realize, buffer = write.realize, write.region.buffer
    if realize.predicate is TRUE:
        return []
    left = []
    with _inside(write.inner, known):
        conditions = (
            restricting_conjuncts(realize, lambda: known)
            if covers_buffer(realize, buffer) and _all_axes_tell(write)
            else conjuncts(realize.predicate)
        )
        for condition in conditions:
            if known.can_prove(condition):
                continue
            with known.constraint(not_(condition)):
                outside = any(
                    known.can_prove(low >= extent)
                    for (low, _), extent in zip(write.places(), buffer.shape)
                )
            if not outside:
                left.append(condition)
    return left


def _all_axes_tell(write: Touched) -> bool:
    """Whether all axes of a block that vary are in the place where it writes."""
    used = {var for item in write.region.region for var in free_vars(item.min)}
    axes = zip(write.realize.block.iter_vars, write.realize.iter_values)
    return all(axis.var in used or not free_vars(value) for axis, value in axes)


@contextmanager
def _inside(loops: Iterable[For], known: Analyzer) -> Iterator[None]:
    """Let an analyzer know loops, for as long as it is asked about their iterations."""
    with known.constraint(TRUE):
        for loop in loops:
            known.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent))
        yield


def _writes_all_declared(write: Touched, known: Known) -> bool:
    """Whether one instance writes all of a box that it declares, not just elements in it."""
    region, block = write.region, write.realize.block
    if _is_plain_store(block, region):
        return True
    own = tuple(axis.var for axis in block.iter_vars)
    analyzer = known()
    with _inside(write.inner, analyzer):
        for axis in block.iter_vars:
            analyzer.bind(axis.var, axis.dom)
        boxes = [
            filled_box(access, access.domain, analyzer)
            for access in detect_accesses(BlockRealize(own, TRUE, block))
            if access.is_write and access.buffer is region.buffer and not access.repeats
        ]
        made = merge_boxes([tuple(box) for box in boxes if box is not None], analyzer)
        return any(inside_box(region.region, box, region.buffer, lambda: analyzer) for box in made)


def _is_plain_store(block: Block, region: BufferRegion) -> bool:
    """Whether a block is one store of one element, as most are."""
    body = block.body
    return (
        type(body) is BufferStore
        and body.buffer is region.buffer
        and all(is_const(item.extent, 1) for item in region.region)
    )


def apart(
    first: tuple[Sequence[Box], Sequence[For]],
    second: tuple[Sequence[Box], Sequence[For]],
    buffer: Buffer,
    known: Known,
    *,
    ordered: bool = False,
) -> bool:
    """Whether boxes are of different elements in different iterations of a nest of loops.

    Each side gives its boxes in terms of its loops (of both sides equally many, with equal extents:
    the same loops, or two nests that shall become one). With ``ordered`` it is enough that what is
    ``first`` in an iteration is not ``second`` in an earlier one. ``known`` makes analyzers anew.
    """
    loops = first[1]
    for level in range(len(loops)):
        analyzer = known()
        earlier: list[Expr] = []
        later: list[Expr] = []
        for position, loop in enumerate(loops):
            # Two iterations that agree above ``level`` and differ there.
            var = Var(f"e{position}", loop.loop_var.dtype)
            analyzer.bind(var, Range.from_min_extent(loop.min, loop.extent))
            earlier.append(var)
            other: Expr = var
            if position >= level:
                other = Var(f"l{position}", loop.loop_var.dtype)
                low = add(var, const(1, var.dtype)) if position == level else loop.min
                analyzer.bind(other, Range.from_min_extent(low, add(loop.min, loop.extent) - low))
            later.append(other)
        orders = [(later, earlier)] if ordered else [(later, earlier), (earlier, later)]
        for values in orders:
            mine, theirs = (
                [box_at(box, side[1], numbers) for box in side[0]]
                for side, numbers in zip((first, second), values)
            )
            pairs = [(a, b) for a in mine for b in theirs]
            if not all(
                disjoint(a, b, analyzer) or differ(a, b, buffer, analyzer) for a, b in pairs
            ):
                return False
    return True
