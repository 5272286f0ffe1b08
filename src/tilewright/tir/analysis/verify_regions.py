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

from collections.abc import Sequence
from functools import reduce
from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir import (
    TRUE,
    Call,
    Expr,
    Range,
    add,
    expr_equal,
    maximum,
    minimum,
    not_,
)
from tilewright.tir.analysis.regions import (
    Accesses,
    block_accesses,
    covers_box,
    same_box,
    union_box,
)
from tilewright.tir.buffer import Buffer, BufferRegion
from tilewright.tir.stmt import Block, BufferStore, IfThenElse, IterVar

TRUSTED_REGIONS = "trusted_regions"

Box = tuple[Range, ...]


def left_out(block: Block, around: Sequence[IterVar]) -> str | None:
    """Say in words what a block accesses outside of what it declares, ``None`` if nothing.

    ``around`` are the axes of the blocks that it is inside of.
    """
    if TRUSTED_REGIONS in block.annotations:
        return None
    if not _missing(block, block_accesses(block, Accesses, None, (), {})):
        return None
    # Conditions and order are looked at only where the plain boxes say too much.
    analyzer = Analyzer()
    for axis in (*around, *block.iter_vars):
        analyzer.bind(axis.var, axis.dom)
    found = block_accesses(block, _AccessesInContext, analyzer, (), {})
    for verb, buffer, box in _missing(block, found):
        declared = _declared(block, verb).get(buffer, [])
        with analyzer.constraint(found.condition_of(box)):
            if any(_holds(item, box, buffer, analyzer) for item in declared):
                continue
        said = f"; of {buffer.name} they name {', '.join(map(_text, declared))}" if declared else ""
        return (
            f"block {block.name!r} {verb} {buffer.name}{_text(box)}, which its T.{verb}() leave "
            f"out{said}"
        )
    return None


class _AccessesInContext(Accesses):
    """Knows under which condition a box is accessed; leaves out what was written before."""

    def __init__(self, analyzer: Analyzer | None = None) -> None:
        super().__init__(analyzer)
        self.conditions: list[tuple[Box, Expr]] = []
        self.guards = 0
        self.surely_written: list[Box] = []

    def condition_of(self, box: Box) -> Expr:
        return next((condition for known, condition in self.conditions if known is box), TRUE)

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
            if table is self.reads and self.was_written(place, boxes[-1]):
                boxes.pop()
            else:
                self.conditions.append((boxes[-1], self.condition))
            if table is self.writes and not self.guards:
                self.surely_written.append(boxes[-1])
            return
        # The same box as before, perhaps under another condition.
        self.conditions = [
            (box, old if expr_equal(old, self.condition) else TRUE) for box, old in self.conditions
        ]

    def was_written(self, buffer: Buffer, box: Box) -> bool:
        own = [
            known
            for known in self.writes.get(buffer, ())
            if any(known is item for item in self.surely_written)
        ]
        # Parts that were split off write next to each other: what is around them counts.
        around = reduce(lambda a, b: union_box(a, b, self.analyzer), own) if own else None
        return around is not None and covers_box(around, box, self.analyzer)


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


def _holds(declared: Box, box: Box, buffer: Buffer, analyzer: Analyzer) -> bool:
    """Whether a declared box holds all of another one that is inside of the buffer."""
    for said, real, extent in zip(declared, box, buffer.shape):
        low, high = said.min, add(said.min, said.extent)
        real_low, real_high = real.min, add(real.min, real.extent)
        inside_low, inside_high = maximum(real_low, 0), minimum(real_high, extent)
        if not (analyzer.can_prove(low <= real_low) or analyzer.can_prove(low <= inside_low)):
            return False
        if not (analyzer.can_prove(real_high <= high) or analyzer.can_prove(inside_high <= high)):
            return False
    return True


def _text(box: Box) -> str:
    parts = (f"{item.min!r}:{add(item.min, item.extent)!r}" for item in box)
    return f"[{', '.join(parts)}]"
