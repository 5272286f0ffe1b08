"""Let the last tile of an axis overlap the one before, so that all tiles are whole.

Where tiles don't divide an extent, the last one computes under masks, or is code of its own. In a
loop that is annotated with ``pragma_overlap_last``, it starts earlier instead, and computes a few
elements again:

    for j0 in range(5):                          for j0 in range(5):
        for j1 in T.vectorized(16):                  for j1 in T.vectorized(16):
            with T.block("C"):                           with T.block("C"):
                T.where(j0 * 16 + j1 < 77)
                vj = T.axis.spatial(77, j0 * 16 + j1)        vj = T.axis.spatial(
                C[vj] = A[vj] * B[vj]                            77, min(j0 * 16, 61) + j1)
                                                             C[vj] = A[vj] * B[vj]

What is computed twice is the same both times: that is so if all that an iteration reads of what it
writes is its own, and if each block goes by the axis, not by the tile. A loop where that can't be
seen stays as it is.

An extent that comes with the call may be less than a tile, so there are two versions of the loop.
If it says ``pragma_cut_masks``, tiles at both ends are code of their own, where the edges of an
image are at known places of the tile, and so is the only tile of an axis as wide as that; those
between stay as far from the end as padding reaches, here by 2:

    for j0 in range((n + 6) // 7):    if n >= 9:
        tile(j0 * 7)                      tile(0)
                                          for j0 in range(1, (n + 6) // 7 - 1):
                                              tile(min(j0 * 7, n - 9))
                                          tile(n - 7)
                                      elif n == 7: tile(0)
                                      else: the loop as it was
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.arith import Analyzer, conjuncts, int_set, linear_coefficients
from tilewright.ir import (
    LT,
    Call,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Mul,
    Node,
    Var,
    and_,
    as_int,
    collect,
    const,
    dtypes,
    expr_equal,
    floordiv,
    free_vars,
    maximum,
    minimum,
    pre_order,
    rewrite_top_down,
    uses_var,
)
from tilewright.tir.attr_values import is_flagged
from tilewright.tir.attrs import CUT_MASKS, KEEP_WHOLE, OVERLAP_LAST
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.rewrite import renew_definitions
from tilewright.tir.stmt import (
    SERIAL,
    Allocate,
    Block,
    BlockRealize,
    BufferStore,
    For,
    IfThenElse,
    SeqStmt,
    Stmt,
    seq,
)
from tilewright.tir.transform.base import FunctionTransform, StmtMutator
from tilewright.tir.transform.loop_partition import slack_of

# More places beside an image than any tile has.
_MOST_BESIDE = 1 << 16


class OverlapTiles(FunctionTransform):
    """Move the last tiles of annotated loops back to where they are whole."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        return func.map_children(_Overlapper().visit)


class _Overlapper(StmtMutator):
    def __init__(self) -> None:
        self.versions: set[Stmt] = set()
        """Versions of loops by their extent."""

    def visit_BufferStore(self, node: BufferStore) -> BufferStore:
        return node

    def visit_For(self, node: For) -> Stmt:
        if not is_flagged(node.annotations, OVERLAP_LAST):
            made: For = self.generic_visit(node)
            return self._hoisted(made)
        kept = {key: v for key, v in node.annotations.items() if key != OVERLAP_LAST}
        plain = node.replace(annotations=kept)
        tiles = _moved(plain)
        if tiles is None:
            return plain
        tile = next(iter(tiles.values()))
        edges = _edges(tiles) if is_flagged(kept, CUT_MASKS) and tile.is_counted_by(plain) else None
        if edges is not None and sum(edges) <= tile.lanes:
            return self._cut_at_edges(plain, tiles, edges)
        moved = plain.replace(body=_moved_to(plain, tiles, tile.early))
        if as_int(tile.end) is not None:
            return moved
        return self._version(IfThenElse(tile.end >= tile.lanes, moved, renew_definitions(plain)))

    def _cut_at_edges(
        self, loop: For, tiles: dict[BlockRealize, _Tile], edges: tuple[int, int]
    ) -> Stmt:
        """The versions of a loop with tiles of their own at both edges."""
        tile = next(iter(tiles.values()))
        end, lanes, (low, high) = tile.end, tile.lanes, edges
        zero, one = const(0, end.dtype), const(1, loop.loop_var.dtype)
        first, middle, last, only = (
            renew_definitions(_moved_to(loop, tiles, origin))
            for origin in (zero, minimum(tile.origin, end - lanes - high), end - lanes, zero)
        )
        between = loop.replace(min=one, extent=maximum(loop.extent - 2, 0), body=middle)
        marks = {key: v for key, v in loop.annotations.items() if key != CUT_MASKS}
        small = renew_definitions(loop.replace(annotations={**marks, KEEP_WHOLE: 1}))
        rest = self._version(IfThenElse(end.equal(lanes), only, small))
        enough = end >= lanes + max(low, high, 1)
        whole = seq(first, renew_definitions(between), last)
        if as_int(enough) is not None:
            return whole if as_int(enough) else loop
        return self._version(IfThenElse(enough, whole, rest))

    def _version(self, made: Stmt) -> Stmt:
        self.versions.add(made)
        return made

    def _hoisted(self, loop: For) -> Stmt:
        """Test sizes before a loop around versions: what one computes ahead is no other's work."""
        test = loop.body
        if test not in self.versions or not isinstance(test, IfThenElse) or loop.kind != SERIAL:
            return loop
        other = test.else_case
        if other is not None:
            other = self._hoisted(self._renewed(loop.replace(body=other), other))
        return self._version(IfThenElse(test.condition, loop.replace(body=test.then_case), other))

    def _renewed(self, loop: For, body: Stmt) -> For:
        made: For = renew_definitions(loop)
        if body in self.versions:
            self.versions.add(made.body)
        return made


def _moved_to(loop: For, tiles: dict[BlockRealize, _Tile], origin: Expr) -> Stmt:
    """A loop's body, where tiles are whole and begin at ``origin``."""
    made: Stmt = _Moving(tiles, origin).visit(loop.body)
    return made


def _edges(tiles: dict[BlockRealize, _Tile]) -> tuple[int, int] | None:
    """How many places at the beginning and the end are beside what masks let through."""
    analyzer, low, high = Analyzer(), 0, 0
    for realize, tile in tiles.items():
        items = realize.block.iter_vars
        place = items[tile.axis].var
        others = {item.var: item.dom for item in items if item.var is not place}
        for call in collect(realize.block.body, Call):
            parts = conjuncts(call.args[0]) if call.op.name == "if_then_else" else ()
            for part in parts:
                if not uses_var(part, {place}):
                    continue
                room = slack_of(part)
                linear = None if room is None else linear_coefficients(room, [place])
                factor = None if linear is None else as_int(linear[0])
                if linear is None or not factor:
                    return None
                least = int_set(linear[1], others, analyzer=analyzer).min
                if not isinstance(least, Expr) or uses_var(least, set(others)):
                    return None
                missing = -least if factor > 0 else -factor * (tile.end - 1) - least
                bound = analyzer.const_int_bound(analyzer.simplify(missing)).max
                if not bound <= _MOST_BESIDE:
                    return None
                places = -(-int(max(0, bound)) // abs(factor))
                low, high = (max(low, places), high) if factor > 0 else (low, max(high, places))
    return low, high


@dataclass(frozen=True)
class _Tile:
    """What one of a block's axes is in a tile: ``origin + lane < end``, of so many lanes."""

    axis: int
    origin: Expr
    lane: Var
    lanes: int
    end: Expr
    guard: Expr

    @property
    def early(self) -> Expr:
        """Where the tile begins if it may not reach beyond the end."""
        return minimum(self.origin, self.end - self.lanes)

    def same(self, other: _Tile) -> bool:
        """Whether two blocks have the same tile."""
        return (
            self.lanes == other.lanes
            and expr_equal(self.origin, other.origin)
            and Analyzer().can_prove_equal(self.end, other.end)
        )

    def is_counted_by(self, loop: For) -> bool:
        """Whether the iterations of a serial loop are the tiles, from the first one to the last."""
        linear = linear_coefficients(self.origin, [loop.loop_var])
        counts = linear is not None and [as_int(item) for item in linear] == [self.lanes, 0]
        tiles = floordiv(self.end + (self.lanes - 1), self.lanes)
        whole = as_int(loop.min) == 0 and Analyzer().can_prove_equal(loop.extent, tiles)
        return counts and whole and loop.kind == SERIAL


class _Moving(StmtMutator):
    """Moves blocks to tiles that are whole, and begin at ``origin``."""

    def __init__(self, tiles: dict[BlockRealize, _Tile], origin: Expr) -> None:
        self.tiles, self.origin = tiles, origin

    def visit_BlockRealize(self, node: BlockRealize) -> Stmt:
        tile = self.tiles.get(node)
        if tile is None:  # it only holds an allocation
            made: Stmt = self.generic_visit(node)
            return made
        values = list(node.iter_values)
        values[tile.axis] = self.origin + tile.lane
        left = [part for part in conjuncts(node.predicate) if part is not tile.guard]
        return node.replace(iter_values=tuple(values), predicate=and_(*left))


def _moved(loop: For) -> dict[BlockRealize, _Tile] | None:
    """The tiles of all blocks in a loop; ``None`` if they can't be moved."""
    tiles: dict[BlockRealize, _Tile] = {}
    first: _Tile | None = None
    for realize, inner in _blocks(loop.body, ()):
        tile = _tile_of(realize, inner)
        if tile is None or not _is_plain(realize.block):
            return None
        first = first or tile
        if not tile.same(first) or not _is_apart(realize, tile, loop.loop_var):
            return None
        tiles[realize] = tile
    if first is None:
        return None
    whole = Analyzer()
    whole.assume(first.end >= first.lanes)
    return tiles if _repeats(loop, [realize.block for realize in tiles], whole) else None


def _blocks(stmt: Stmt, loops: tuple[For, ...]) -> Iterator[tuple[BlockRealize, tuple[For, ...]]]:
    """Blocks that compute, with the loops around them."""
    if isinstance(stmt, BlockRealize) and stmt.block.iter_vars:
        yield stmt, loops
        return
    inner = (*loops, stmt) if isinstance(stmt, For) else loops
    for item in stmt.child_nodes():
        if isinstance(item, Stmt):
            yield from _blocks(item, inner)


def _is_plain(block: Block) -> bool:
    """Whether a block only computes elements from others."""
    body = block.body.seq if isinstance(block.body, SeqStmt) else (block.body,)
    plain = all(isinstance(item, BufferStore) for item in body) and block.init is None
    impure = (type(x) is Call and x.op.effect != "pure" for x in pre_order(block.body))
    return plain and not block.alloc_buffers and not block.match_buffers and not any(impure)


def _tile_of(realize: BlockRealize, inner: tuple[For, ...]) -> _Tile | None:
    """The only tile of a block that is cut off: a guard ends the innermost of its two loops."""
    analyzer, found = Analyzer(), []
    variables = {item.loop_var for item in inner}
    for guard in conjuncts(realize.predicate):
        if not isinstance(guard, LT) or collect(guard.b, BufferLoad):
            continue
        end = as_int(guard.b)
        for loop in inner:
            linear = linear_coefficients(guard.a, [loop.loop_var])
            lanes = as_int(loop.extent) or 0
            if linear is None or as_int(linear[0]) != 1 or as_int(loop.min) != 0:
                continue
            origin = analyzer.simplify(linear[1])
            if uses_var(origin, variables) or not lanes or as_int(origin) is not None:
                continue
            if uses_var(guard.b, variables) or (end is not None and lanes > end):
                continue
            for axis, value in enumerate(realize.iter_values):
                if analyzer.can_prove_equal(value, guard.a):
                    found.append(
                        _Tile(axis, origin, loop.loop_var, lanes, analyzer.simplify(guard.b), guard)
                    )
    return found[0] if len(found) == 1 else None


def _is_apart(realize: BlockRealize, tile: _Tile, outer: Var) -> bool:
    """Whether neither a block's other axes nor its conditions depend on which tile it is."""
    tested = [part for part in conjuncts(realize.predicate) if part is not tile.guard]
    values = [value for axis, value in enumerate(realize.iter_values) if axis != tile.axis]
    which = tile.origin.a if isinstance(tile.origin, Mul) else tile.origin
    own = _digits(which, outer)

    def without_others(node: Node) -> Expr | None:
        # Of loops that were fused, other digits of the number say nothing about the tile.
        found = _digits(node, outer) if own is not None else None
        if own is None or found is None:
            return None
        before = found[1] is not None and own[0] % found[1] == 0
        after = own[1] is not None and found[0] % own[1] == 0
        return IntImm("int64", 0) if before or after else None

    free = {*free_vars(tile.origin), tile.lane}
    return not any(
        uses_var(rewrite_top_down(item, without_others), free) for item in values + tested
    )


def _digits(node: Node, var: Var) -> tuple[int, int | None] | None:
    """Which digits of a variable a term is: ``var // low``, or ``var % high // low``."""
    if node is var:
        return 1, None
    if type(node) not in (FloorDiv, FloorMod):
        return None
    inner, by = _digits(node.a, var), as_int(node.b)  # type: ignore[attr-defined]
    if inner is None or not by or by < 0:
        return None
    low, high = inner
    if type(node) is FloorDiv:
        return low * by, high
    end = low * by
    if high is None or high % end == 0:
        return low, end
    return (low, high) if end % high == 0 else None


def _repeats(loop: For, blocks: list[Block], analyzer: Analyzer) -> bool:
    """Whether an iteration that is run again writes the same.

    What it writes for others it doesn't read, not even as another argument that is the same memory:
    a caller may have a result in the place of what is only read where that is written. ``analyzer``
    knows what holds where tiles begin early.
    """
    own = {item.buffer for item in pre_order(loop.body) if type(item) is Allocate}
    for block in blocks:
        written = {item.buffer for item in pre_order(block.body) if type(item) is BufferStore} - own
        read = {item.buffer for item in pre_order(block.body) if type(item) is BufferLoad} - own
        if any(may_be_in_place_of(b, a, analyzer) for a in written for b in read):
            return False
    return True


def may_be_in_place_of(read: Buffer, written: Buffer, analyzer: Analyzer | None = None) -> bool:
    """Whether a caller may have written elements in the memory of those that are read for them.

    That takes as many of the same width, whatever their shape and kind.
    """
    if dtypes.bits_of(read.dtype) != dtypes.bits_of(written.dtype):
        return False
    known = Analyzer() if analyzer is None else analyzer
    extents, others = list(written.shape), []
    for extent in read.shape:
        same = [item for item in extents if known.can_prove_equal(item, extent)]
        if same:
            extents.remove(same[0])
        else:
            others.append(as_int(extent))
    if None in others:
        return True
    # Where some extent is zero nothing is written at all.
    least = (max(1, known.const_int_bound(known.simplify(item)).min) for item in extents)
    return math.prod(item or 0 for item in others) >= math.prod(least)
