"""The size of the tile of results in registers.

A step of the reduction multiplies ``rows`` scalars by some vectors. The cost of a step is estimated
for cores with two multiply-adds and two loads per cycle. The best of the tiles that fit into the
registers is the one that takes the fewest cycles for the whole result, including partial tiles at
its edges.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from tilewright.scheduling.cpu import Axis
from tilewright.target import Costs, Target
from tilewright.tir.transform.loop_partition import LAST_TILES

#: Registers with which tiles have many more sums than the multiply-adds need (AVX-512).
MANY_REGISTERS = 31
#: Most rows of a tile.
MOST_ROWS = 14
# Sizes that axes of images, sequences and batches often have.
_USUAL = (1, 7, 14, 28, 56, 128, 197, 512)
# Bytes after which addresses fall into the same sets of a first-level cache, and the share of the
# lines of a set that rows of a tile may take up.
_SAME_SET, _SHARE = 4096, 0.67


@dataclass(frozen=True)
class Tile:
    """Extents of the register tile along the row and the vector axis, and its score."""

    rows: int
    columns: int
    score: float = 0.0


def tile_registers(target: Target) -> int:
    """The registers for a tile: without fused multiply-adds, one less, for the product."""
    fused = target.has("fma") or not target.has("sse2")
    return target.vector_registers - (0 if fused else 1)


def step_cycles(rows: int, vectors: int, costs: Costs) -> float:
    """Cycles of one step of the reduction in a tile of so many rows and vectors."""
    busy = busy_cycles(rows, vectors, costs)
    return busy + costs.scalar_wait * rows + costs.vector_wait * vectors


def busy_cycles(rows: int, vectors: int, costs: Costs) -> float:
    """Cycles for the multiply-adds and loads of a step.

    Each sum can be in only one multiply-add at a time.
    """
    adding = rows * vectors / costs.multiply_adds
    return max(adding, (rows + vectors) / costs.loads, costs.multiply_add_latency)


def chain_cycles(costs: Costs) -> float:
    """The least cycles of a step: until each sum can be in a multiply-add again, and a little."""
    return costs.multiply_add_latency + costs.chain_wait


def loop_cycles(rows: int, vectors: int, costs: Costs) -> float:
    """Cycles for one step of the reduction in one tile, which has its own loop."""
    return max(chain_cycles(costs), busy_cycles(rows, vectors, costs)) + costs.step_wait


def rows_in_cache(pitch: int, target: Target, size: int = 1) -> int:
    """The most rows ``pitch`` bytes apart that the L1 cache holds ``size`` bytes of at once.

    Rows a large power of two apart compete for the same few lines.
    """
    ways = max(1, target.l1_bytes // _SAME_SET)
    apart = _SAME_SET // max(math.gcd(pitch, _SAME_SET), size)
    return max(4, int(ways * _SHARE) * apart)


@dataclass(frozen=True)
class Limits:
    """The limits of tiles: ``lanes`` of a vector, and registers.

    Their height is a multiple of ``row_step``, or one, and at most ``most_rows``; ``most_columns``
    limits widths of more than two vectors. ``whole``: a partial tile along the vector axis is
    computed in full, into padding; ``masked``: partial vectors are loaded and stored under masks;
    ``waits``: a tile with hardly enough sums for the multiply-adds waits for them.
    """

    lanes: int
    registers: int
    costs: Costs
    most_rows: int = MOST_ROWS
    most_columns: int | None = None
    whole: bool = False
    masked: bool = False
    row_step: int = 1
    waits: bool = True

    def vectors(self, width: int) -> int:
        """The number of vectors of a width: a partial one is split into powers of two."""
        return width // self.lanes + bin(width % self.lanes).count("1")

    def chain_wait(self, rows: int, vectors: int) -> float:
        """Cycles that a step waits if there are hardly enough sums for the multiply-adds.

        Where registers are few, such a tile is the alternative to one that just fits.
        """
        costs = self.costs
        if self.registers >= MANY_REGISTERS or not self.waits:
            return 0.0
        return max(0.0, chain_cycles(costs) - busy_cycles(rows, vectors, costs))


def choose_tile(row: Axis | None, vector: Axis, limits: Limits) -> Tile:
    """Choose the tile that takes the fewest cycles and fits in the registers.

    The score is the fraction of peak multiply-add throughput.
    """
    ranked = rank_tiles(row, vector, limits)
    return ranked[0] if ranked else Tile(1, limits.lanes)


def rank_tiles(row: Axis | None, vector: Axis, limits: Limits) -> list[Tile]:
    """Return the best tile of each width, best first."""
    return list(_ranked(_extent(row), _extent(vector), limits))


def tile_score(row: Axis | None, vector: Axis, size: tuple[int, int], limits: Limits) -> float:
    """Return the fraction of the peak for tiles of a size, including partial ones at the ends.

    Of axes whose size comes with the call it is the mean over sizes that these often have.
    """
    return _score(_extent(row), _extent(vector), size, limits)


# The extent of an axis, 0 if it comes with the call; ``None`` for no axis. A search ranks the same
# tiles for each of a rule's other choices.
_Extent = int | None
# Vectors side by side in a tile with rows, and in one without.
_MOST_VECTORS, _MOST_VECTORS_ALONE = 6, 8
# Scores that differ by less are the same.
_TIE = 1e-9
# Share of the best score from which a tile of several vectors is taken, where no size is known and
# registers are few (measured on a Zen 4 held to AVX2).
_NEAR = 0.95


def _extent(axis: Axis | None) -> _Extent:
    return None if axis is None else axis.extent or 0


@lru_cache(maxsize=1024)
def _ranked(row: _Extent, vector: _Extent, limits: Limits) -> tuple[Tile, ...]:
    made, widest = [], limits.most_columns
    most = 1 if row is None else min(row or MOST_ROWS, MOST_ROWS, limits.most_rows)
    for width in _widths(row, vector, limits):
        if widest is not None and width > max(2 * limits.lanes, widest):
            continue
        best = Tile(1, width)
        for height in sorted({1, *range(limits.row_step, most + 1, limits.row_step)}):
            if (height + 1) * limits.vectors(width) + 1 > limits.registers:
                break
            score = _score(row, vector, (height, width), limits)
            if score > best.score + _TIE:
                best = Tile(height, width, score)
        if best.score:
            made.append(best)
    # Narrow tiles win a tie.
    made = sorted(made, key=lambda tile: round(tile.score, 9), reverse=True)
    if row == vector == 0 and limits.registers < MANY_REGISTERS:
        # Of sizes that both come with the call, small ones have a say that they don't have in time:
        # with one vector, all rows' scalars are loaded for it alone, from half a cache line each.
        wide = [tile for tile in made if tile.columns > limits.lanes]
        if wide and wide[0].score > _NEAR * made[0].score:
            made = [tile for tile in made if tile in wide or tile.score < wide[0].score]
    return tuple(made)


def _widths(row: _Extent, vector: _Extent, limits: Limits) -> list[int]:
    """Extents along the vector axis that are worth trying."""
    lanes = limits.lanes
    # Without rows, only more vectors keep the multiply-add units busy.
    most = (_MOST_VECTORS if row is not None else _MOST_VECTORS_ALONE) * lanes
    widths = set(range(lanes, most + 1, lanes))
    if vector:
        widths = {c for c in widths if c <= max(-(-vector // lanes), 1) * lanes}
        if not limits.whole:
            widths = {c for c in widths if c <= vector}
            if vector <= most:
                widths.add(vector)
            widths |= {c for c in range(8, most, 4) if vector % c == 0}
    return sorted(widths)


def _score(row: _Extent, vector: _Extent, size: tuple[int, int], limits: Limits) -> float:
    down = [(1, True)] if row is None else _sizes(row)
    scores = [_score_of(high, wide, *size, limits) for high in down for wide in _sizes(vector)]
    return sum(scores) / len(scores)


def _sizes(extent: _Extent) -> list[tuple[int, bool]]:
    """Sizes of an axis, and whether it is that one."""
    return [(extent, True)] if extent else [(size, False) for size in _USUAL]


def _score_of(
    down: tuple[int, bool], across: tuple[int, bool], height: int, width: int, limits: Limits
) -> float:
    """The fraction of the peak for one size in each direction, each known beforehand or not."""
    lanes, costs = limits.lanes, limits.costs
    rows, more_rows = divmod(down[0], height)
    columns, more_columns = divmod(across[0], width)
    if more_columns and limits.whole:
        columns, more_columns = columns + 1, 0

    def cycles(high: int, wide: int) -> float:
        if not high or not wide:
            return 0.0
        step = step_cycles(high, limits.vectors(wide), costs)
        return step + limits.chain_wait(high, limits.vectors(wide))

    high = more_rows
    if more_rows and not down[1]:
        high = next((size for size in LAST_TILES if more_rows <= size < height), height)
    spent = columns * (rows * cycles(height, width) + cycles(high, width))
    if more_columns:
        # Cut-off vectors run under a mask.
        wide = -(-more_columns // lanes) * lanes
        spent += rows * cycles(height, wide) + cycles(high, wide)
    useful = down[0] * across[0]
    score = useful / (lanes * costs.multiply_adds * spent)
    last = costs.masked_columns if limits.masked else costs.cut_columns
    if not limits.masked and down[1] and limits.registers < MANY_REGISTERS:
        # One narrow vector is as good as a whole one.
        narrow = bin(more_columns % lanes).count("1") <= 1
        last = costs.cut_rows if narrow else last
    if more_rows and down[1]:
        score *= costs.cut_rows
    return score * (last if more_columns and across[1] else 1.0)


def even_size(extent: int | None, most: int) -> int:
    """The tile size along an axis: up to ``most``, such that the last tile is fullest."""
    if extent is None:
        return min(4, most)
    sizes = range(max(1, most // 2), min(most, extent) + 1) or (extent,)
    return min(reversed(sizes), key=lambda size: -(-extent // size) * size)
