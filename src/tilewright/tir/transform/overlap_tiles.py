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
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.arith import Analyzer, conjuncts, linear_coefficients
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
    dtypes,
    expr_equal,
    free_vars,
    minimum,
    pre_order,
    product,
    rewrite_top_down,
    uses_var,
)
from tilewright.tir.attr_values import is_flagged
from tilewright.tir.attrs import OVERLAP_LAST
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import (
    Allocate,
    Block,
    BlockRealize,
    BufferStore,
    For,
    SeqStmt,
    Stmt,
)
from tilewright.tir.transform.base import FunctionTransform, StmtMutator


class OverlapTiles(FunctionTransform):
    """Move the last tiles of annotated loops back to where they are whole."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        return func.map_children(_Overlapper().visit)


class _Overlapper(StmtMutator):
    def visit_BufferStore(self, node: BufferStore) -> BufferStore:
        return node

    def visit_For(self, node: For) -> Stmt:
        if not is_flagged(node.annotations, OVERLAP_LAST):
            made: Stmt = self.generic_visit(node)
            return made
        kept = {key: v for key, v in node.annotations.items() if key != OVERLAP_LAST}
        plain = node.replace(annotations=kept)
        moved = _moved(plain)
        return plain if moved is None else plain.replace(body=_Moving(moved).visit(plain.body))


@dataclass(frozen=True)
class _Tile:
    """What one of a block's axes is in a tile: ``origin + lane < end``, of so many lanes."""

    axis: int
    origin: Expr
    lane: Var
    lanes: int
    end: int
    guard: Expr

    def same(self, other: _Tile) -> bool:
        """Whether two blocks have the same tile."""
        sizes = (self.lanes, self.end) == (other.lanes, other.end)
        return sizes and expr_equal(self.origin, other.origin)


class _Moving(StmtMutator):
    """Moves blocks to the tiles that begin early enough to be whole."""

    def __init__(self, tiles: dict[BlockRealize, _Tile]) -> None:
        self.tiles = tiles

    def visit_BlockRealize(self, node: BlockRealize) -> Stmt:
        tile = self.tiles.get(node)
        if tile is None:  # it only holds an allocation
            made: Stmt = self.generic_visit(node)
            return made
        values = list(node.iter_values)
        values[tile.axis] = minimum(tile.origin, tile.end - tile.lanes) + tile.lane
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
    if not tiles or not _repeats(loop, [realize.block for realize in tiles]):
        return None
    return tiles


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
        if not isinstance(guard, LT):
            continue
        end = as_int(guard.b) or 0
        for loop in inner:
            linear = linear_coefficients(guard.a, [loop.loop_var])
            lanes = as_int(loop.extent) or 0
            if linear is None or as_int(linear[0]) != 1 or as_int(loop.min) != 0:
                continue
            origin = analyzer.simplify(linear[1])
            if uses_var(origin, variables) or not 0 < lanes <= end or as_int(origin) is not None:
                continue
            for axis, value in enumerate(realize.iter_values):
                if analyzer.can_prove_equal(value, guard.a):
                    found.append(_Tile(axis, origin, loop.loop_var, lanes, end, guard))
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


def _repeats(loop: For, blocks: list[Block]) -> bool:
    """Whether an iteration that is run again writes the same.

    What it writes for others it doesn't read, not even as another argument that is the same memory:
    a caller may have a result in the place of what is only read where that is written.
    """
    own = {item.buffer for item in pre_order(loop.body) if type(item) is Allocate}
    for block in blocks:
        written = {item.buffer for item in pre_order(block.body) if type(item) is BufferStore} - own
        read = {item.buffer for item in pre_order(block.body) if type(item) is BufferLoad} - own
        if any(may_be_in_place_of(b, a) for a in written for b in read):
            return False
    return True


def may_be_in_place_of(read: Buffer, written: Buffer) -> bool:
    """Whether a caller may have written elements in the memory of those that are read for them.

    That takes as many of the same width, whatever their shape and kind.
    """
    if dtypes.bits_of(read.dtype) != dtypes.bits_of(written.dtype):
        return False
    return not Analyzer().can_prove(product(read.shape) < product(written.shape))
