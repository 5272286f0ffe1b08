"""What blocks say of their accesses holds: declared regions leave out nothing that is accessed.

Primitives and passes go by ``Block.reads`` and ``Block.writes``: a producer computes what they
name, a buffer shrinks to it. So all that a block's body accesses must be in there:

- an index that data decides needs its own form as the region, or all places it may take;
- no index leaves the buffer, so what lies beyond needs no region;
- what the block itself wrote before it reads it is in ``writes``, and may be left out of ``reads``;
- of accesses through pointers nothing is known but what is declared;
- the root block declares nothing, for nothing is around it.

Blocks annotated with ``TRUSTED_REGIONS`` are taken at their word: ``unsafe_...`` primitives leave
them, and those that know how the data came about by which a block indexes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any
from weakref import WeakKeyDictionary

from tilewright.arith import Analyzer, can_prove_by_cases, conjuncts
from tilewright.ir import (
    TRUE,
    Call,
    Expr,
    Range,
    Var,
    add,
    and_,
    as_int,
    const,
    expr_equal,
    maximum,
    minimum,
    not_,
    pre_order,
    substitute,
    uses_var,
)
from tilewright.tir.analysis.data_variables import know_lets
from tilewright.tir.analysis.regions import (
    Accesses,
    block_accesses,
    covers_box,
    same_box,
    union_box,
)
from tilewright.tir.attrs import TRUSTED_REGIONS
from tilewright.tir.buffer import Buffer, BufferLoad, BufferRegion
from tilewright.tir.stmt import Block, BufferStore, IfThenElse, IterVar

Box = tuple[Range, ...]


def left_out(block: Block, around: Sequence[IterVar]) -> str | None:
    """Say in words what a block accesses outside of what it declares, ``None`` if nothing.

    ``around`` are the axes of the blocks that it is inside of.
    """
    if TRUSTED_REGIONS in block.annotations:
        return None
    for verb, buffer, box in undeclared_accesses(block, around):
        declared = _declared(block, verb).get(buffer, [])
        said = f"; of {buffer.name} they name {', '.join(map(_text, declared))}" if declared else ""
        return (
            f"block {block.name!r} {verb} {buffer.name}{_text(box)}, which its T.{verb}() leave "
            f"out{said}"
        )
    return None


def undeclared_accesses(
    block: Block, around: Sequence[IterVar]
) -> Sequence[tuple[str, Buffer, Box]]:
    """Return what a block accesses outside of what it declares: "reads" or "writes", and where.

    ``around`` are the axes of the blocks that it is inside of.
    """
    # A primitive leaves most blocks as they are, yet each is asked about again.
    known = _undeclared.setdefault(block, {})
    key = tuple(around)
    if key not in known:
        known[key] = _find_undeclared(block, key)
    return known[key]


_undeclared: WeakKeyDictionary[
    Block, dict[tuple[IterVar, ...], tuple[tuple[str, Buffer, Box], ...]]
] = WeakKeyDictionary()


def _find_undeclared(
    block: Block, around: tuple[IterVar, ...]
) -> tuple[tuple[str, Buffer, Box], ...]:
    if not _missing(block, block_accesses(block, Accesses, None, (), {})):
        return ()
    # Conditions and order are looked at only where the boxes alone say too much.
    analyzer = Analyzer()
    know_lets(analyzer, block)
    for axis in (*around, *block.iter_vars):
        analyzer.bind(axis.var, axis.dom)
    found = block_accesses(block, _AccessesInContext, analyzer, (), {})
    outside = []
    for verb, buffer, box in _missing(block, found):
        declared = _declared(block, verb).get(buffer, [])
        with analyzer.constraint(found.condition_of(box)):
            boxes = found.boxes_of(box)
            inside = any(_holds(item, boxes, buffer, analyzer) for item in declared)
        if not inside:
            outside.append((verb, buffer, box))
    return tuple(outside)


class _AccessesInContext(Accesses):
    """Knows under which condition a box is accessed; leaves out what was written before."""

    def __init__(self, analyzer: Analyzer | None = None) -> None:
        super().__init__(analyzer)
        self.conditions: list[tuple[Box, Expr]] = []
        self.guards = 0
        self.surely_written: list[Box] = []
        # What the domains of an inner block's axes tell of a box that its bindings tell of too.
        self.by_axes: Box | None = None
        self.others: list[tuple[Box, Box]] = []

    def condition_of(self, box: Box) -> Expr:
        return next((condition for known, condition in self.conditions if known is box), TRUE)

    def boxes_of(self, box: Box) -> list[Box]:
        """Boxes that all hold what is accessed by one of them."""
        return [box, *(other for known, other in self.others if known is box)]

    def walk(self, node: Any) -> None:
        kind = type(node)
        if kind is BufferStore:
            # A value is read before it is written.
            for item in (*node.indices, node.value):
                self.walk(item)
            super().walk(node)
        elif kind is IfThenElse:
            self.branches(node.condition, node.then_case, node.else_case)
        elif kind is Call and node.op.name == "if_then_else":
            self.branches(*node.args)
        else:
            super().walk(node)

    def declared(
        self,
        table: dict[Buffer, list[Box]],
        region: BufferRegion,
        axes: Sequence[IterVar],
        mapping: Mapping[Any, Expr],
    ) -> None:
        """Of an inner block two things are known: its bindings, and the domains of its axes."""
        around, condition, alone = self.domain, self.condition, dict[Buffer, list[Box]]()
        self.domain = {**around, **{axis.var: axis.dom for axis in axes}}
        self.condition = _about_axes(condition, axes, mapping, around)
        Accesses.access(self, alone, region.buffer, list(region.region))
        self.domain, self.condition = around, condition
        self.by_axes = next((boxes[0] for boxes in alone.values()), None)
        super().declared(table, region, axes, mapping)
        self.by_axes = None

    def relaxed(self, ranges: list[Range], buffer: Buffer) -> list[Range]:
        # What data says, and no loop changes, is what it is: an end like any other.
        loads = {
            item: Var("loaded", item.dtype)
            for part in ranges
            for side in (part.min, part.extent)
            for item in pre_order(side)
            if type(item) is BufferLoad and not uses_var(item, self.domain)
        }
        found = super().relaxed([_replaced(part, loads) for part in ranges], buffer)
        if loads:
            found = [substitute(part, {var: load for load, var in loads.items()}) for part in found]
        if self.by_axes is None:
            return found
        return [
            self.smaller(item, other, extent)
            for item, other, extent in zip(found, self.by_axes, buffer.shape)
        ]

    def smaller(self, item: Range, other: Range, extent: Expr) -> Range:
        """One of two ranges that both hold all; all of a dimension is said where none is found."""
        whole = Range.from_min_extent(const(0), extent)
        if same_box([item], [whole]):
            return item if covers_box([other], [item], self.analyzer) else other
        return other if covers_box([item], [other], self.analyzer) else item

    def branches(self, condition: Expr, chosen: Any, other: Any) -> None:
        self.walk(condition)
        self.guards += 1
        self.under(condition, chosen)
        if other is not None:
            self.under(not_(condition), other)
        self.guards -= 1

    def access(self, table: dict[Buffer, list[Box]], buffer: Buffer, ranges: list[Range]) -> None:
        before = {place: len(boxes) for place, boxes in table.items()}
        super().access(table, buffer, ranges)
        for place, boxes in table.items():
            if len(boxes) == before.get(place, 0):
                continue
            self.others += [(boxes[-1], other) for other in self.known_otherwise(buffer, ranges)]
            if table is self.reads and self.was_written(place, boxes[-1]):
                boxes.pop()
            else:
                self.conditions.append((boxes[-1], self.reached()))
            if table is self.writes and not self.guards:
                self.surely_written.append(boxes[-1])
            return
        # The same box as before, perhaps under another condition, or of another block.
        found = list(self.known_otherwise(buffer, ranges))
        self.others = [
            (box, other) for box, other in self.others if any(same_box(other, x) for x in found)
        ]
        reached = self.reached()
        self.conditions = [
            (box, old if expr_equal(old, reached) else TRUE) for box, old in self.conditions
        ]

    def reached(self) -> Expr:
        """What holds where an access happens: conditions, and loops around it have iterations.

        Boxes are relaxed knowing that, so what they are compared with must be, too.
        """
        extents = (item.extent for item in self.domain.values())
        return and_(self.condition, *(x >= 1 for x in extents if as_int(x) is None))

    def known_otherwise(self, buffer: Buffer, ranges: list[Range]) -> Iterator[Box]:
        """Boxes that hold the same access, found in other ways."""
        if self.by_axes is not None:
            yield self.by_axes
        if self.domain and self.condition is not TRUE:
            condition, alone = self.condition, dict[Buffer, list[Box]]()
            self.condition = TRUE
            Accesses.access(self, alone, buffer, ranges)
            self.condition = condition
            yield from (boxes[0] for boxes in alone.values())

    def was_written(self, buffer: Buffer, box: Box) -> bool:
        own = [
            known
            for known in self.writes.get(buffer, ())
            if any(known is item for item in self.surely_written)
        ]
        # Parts that were split off write next to each other: what is around them counts.
        around = reduce(lambda a, b: union_box(a, b, self.analyzer), own) if own else None
        return around is not None and any(
            covers_box(around, item, self.analyzer) for item in self.boxes_of(box)
        )


def _replaced(node: Range, loads: Mapping[Any, Var]) -> Any:
    """Put variables in the place of loads."""
    if not loads:
        return node
    return loads[node] if node in loads else node.map_children(lambda x: _replaced(x, loads))


def _declared(block: Block, verb: str) -> dict[Buffer, list[Box]]:
    regions: Sequence[BufferRegion] = block.reads if verb == "reads" else block.writes
    found: dict[Buffer, list[Box]] = {}
    for item in regions:
        found.setdefault(item.buffer, []).append(item.region)
    return found


def _missing(block: Block, accesses: Accesses) -> list[tuple[str, Buffer, Box]]:
    """What is accessed and declared nowhere in the same words."""
    found = []
    for verb, table in (("reads", accesses.reads), ("writes", accesses.writes)):
        declared = _declared(block, verb)
        for buffer, boxes in table.items():
            own = declared.get(buffer, ())
            left = [box for box in boxes if not any(same_box(box, item) for item in own)]
            if left and own:  # perhaps the box around all, as regions are inferred
                around = reduce(lambda a, b: union_box(a, b, accesses.analyzer), boxes)
                if any(same_box(around, item) for item in own):
                    continue
            found += [(verb, buffer, box) for box in left]
    return found


def _holds(declared: Box, boxes: Sequence[Box], buffer: Buffer, analyzer: Analyzer) -> bool:
    """Whether a declared box holds the part in the buffer of what all of ``boxes`` hold."""
    return all(
        any(_holds_range(said, real, extent, analyzer) for real in sides)
        for said, extent, *sides in zip(declared, buffer.shape, *boxes)
    )


def _holds_range(said: Range, real: Range, extent: Expr, analyzer: Analyzer) -> bool:
    low, high = said.min, add(said.min, said.extent)
    real_low, real_high = real.min, add(real.min, real.extent)
    inside_low, inside_high = maximum(real_low, 0), minimum(real_high, extent)
    if not (analyzer.can_prove(low <= real_low) or can_prove_by_cases(analyzer, low <= inside_low)):
        return False
    return any(can_prove_by_cases(analyzer, end <= high) for end in (real_high, inside_high))


def _about_axes(
    condition: Expr,
    axes: Sequence[IterVar],
    mapping: Mapping[Any, Expr],
    loops: Mapping[Var, object],
) -> Expr:
    """What a block's predicate says of its axes, where it has the values these are bound to."""
    bound = [(mapping[axis.var], axis.var) for axis in axes]
    values = [(value, var) for value, var in bound if uses_var(value, loops)]

    def go(node: Expr) -> Expr:
        for value, var in values:
            if expr_equal(node, value):
                return var
        return node.map_children(go)

    said = (go(item) for item in conjuncts(condition))
    return and_(*(item for item in said if not uses_var(item, loops)))


def _text(box: Box) -> str:
    parts = (f"{item.min!r}:{add(item.min, item.extent)!r}" for item in box)
    return f"[{', '.join(parts)}]"
