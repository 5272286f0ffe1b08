"""Which grid a product's tiles get: a block for each, or as many blocks as run at once.

A grid of one block per tile leaves processors idle in its last round, and most of them if tiles are
hardly more than processors. Blocks that divide the last tiles' steps evenly (``tile_streams``) are
all done at the same time, but sums of parts go through memory and a second kernel. Estimated, in
clocks of the busiest processor, as tiles are (``roofs``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Generic, Protocol, TypeVar

from tilewright.ir import dtypes
from tilewright.scheduling.contraction import Contraction
from tilewright.scheduling.gpu import roofs
from tilewright.scheduling.gpu.limits import limits_of
from tilewright.scheduling.gpu.matrix_form import MatrixForm, extents_of
from tilewright.scheduling.gpu.simt_tile import SimtTile, rank_tiles, simt_clocks
from tilewright.scheduling.gpu.tensor_core_tile import (
    TensorCoreTile,
    rank_tensor_core_tiles,
    tensor_core_clocks,
)
from tilewright.scheduling.gpu.tile_streams import TILE_STREAM
from tilewright.scheduling.gpu.warpgroup_tile import (
    Cluster,
    WarpgroupTile,
    rank_warpgroup_tiles,
    warpgroup_clocks,
)
from tilewright.target import Target
from tilewright.tir.schedule import Schedule

LAUNCH_CLOCKS = 5000.0
"""What one more kernel takes to start and to drain."""
SHORTEST = 256
"""Elements that a block adds up of a part, at least: some steps of a pipeline."""
_UNTOLD = 1.05
"""So much longer than estimated blocks may take that divide steps: where a tile's parts meet in
the level-2 cache, and what index arithmetic costs, is not in the estimate."""
_OTHER_REGISTERS = 64
"""Registers of a thread besides its sums."""


@dataclass(frozen=True)
class Grid:
    """How blocks go through tiles: one each, or so many ``blocks`` in turn (persistent ones).

    Of blocks in clusters these are the clusters.
    These divide the steps of the last ``streamed`` tiles evenly among themselves (stream-K).
    """

    blocks: int | None = None
    streamed: int = 0

    def apply(self, sch: Schedule, tile: Tile) -> None:
        """Let the blocks of a scheduled product go through its tiles.

        Raises ``ScheduleError`` if they can't.
        """
        if self.blocks is not None:
            shape = [tile.rows, tile.columns]
            options = {"blocks": self.blocks, "streamed": self.streamed, "tile": shape}
            sch.use_kernel("root", TILE_STREAM, options)


class Tile(Protocol):
    """What is asked of a tile here."""

    @property
    def rows(self) -> int:
        """Rows of results."""

    @property
    def columns(self) -> int:
        """Columns of results."""

    @property
    def thread_shape(self) -> tuple[int, int]:
        """Threads along ``threadIdx.y`` and ``threadIdx.x``."""


T = TypeVar("T", bound=Tile)
T_contra = TypeVar("T_contra", bound=Tile, contravariant=True)


@dataclass(frozen=True)
class Sizes:
    """A product's sizes, ``None`` where they come with the call, and bytes of one of its sums."""

    m: int | None
    n: int | None
    batch: int | None
    k: int | None
    sum_bytes: int = 4

    @staticmethod
    def of(found: Contraction, form: MatrixForm) -> Sizes:
        """The sizes of a contraction as a product."""
        m, n, batch, k = (extents_of(found.block, form, role) for role in "mnbk")
        return Sizes(m, n, batch, k, dtypes.bytes_of(found.store.buffer.dtype))

    def tiles(self, tile: Tile) -> int | None:
        """How many tiles its results have."""
        if self.m is None or self.n is None or self.batch is None:
            return None
        return -(-self.m // tile.rows) * -(-self.n // tile.columns) * self.batch


class Clocks(Protocol[T_contra]):
    """What a product takes for each element that is summed over, by its tile and sizes."""

    def __call__(self, tile: T_contra, m: int | None, n: int | None, batch: int | None, /) -> float:
        """Return clocks."""


def grid_options(
    tile: T, shared_bytes: int, sizes: Sizes, clocks: Clocks[T], target: Target
) -> list[tuple[float, Grid]]:
    """Return the grids that a tile may have and the clocks that each takes, the fastest first."""
    whole = clocks(tile, sizes.m, sizes.n, sizes.batch)
    blocks = _blocks_at_once(tile, shared_bytes, target)
    count, k = sizes.tiles(tile), sizes.k
    if count is None or k is None:
        return [(whole, Grid()), (whole, Grid(blocks))]
    options = [(whole * k, Grid())]
    if count > blocks:  # else no block has a second turn
        options.append((whole * k, Grid(blocks)))
    rest = count % blocks
    one = clocks(tile, tile.rows, tile.columns, 1)
    # With a whole round of tiles besides, few blocks share one.
    for streamed in {count, rest, min(count, rest + blocks)} if rest else ():
        if streamed % blocks != rest or streamed * k < blocks * SHORTEST:
            continue
        joining = _joining_clocks(tile, streamed, blocks, sizes, target)
        even = count / limits_of(target).processors * one * k
        options.append((_UNTOLD * (even + joining), Grid(blocks, streamed)))
    return sorted(options, key=lambda option: (option[0], option[1].streamed))


def grids_by_maps(
    tile: WarpgroupTile, sizes: Sizes, cluster: Cluster, target: Target, *, in_turn: bool
) -> list[Grid]:
    """Return the grids of a tile whose operands come by tensor maps, the best first.

    Blocks in turn copy the next tile's operands while results are written, so they are better
    where there is more than one round of tiles; ``in_turn`` says whether it costs them nothing.
    Where there are known to be no more tiles than blocks, each block has one anyway.
    """
    each, processors = prod(cluster), limits_of(target).processors
    resident = _blocks_at_once(tile, tile.shared_bytes(), target) // processors
    turns = Grid(max(1, roofs.processors_for(each, processors) * resident // each))
    if sizes.m is None or sizes.n is None or sizes.batch is None:
        return [Grid(), turns]
    rows, columns = -(-sizes.m // tile.rows), -(-sizes.n // tile.columns)
    clusters = -(-rows // cluster[0]) * -(-columns // cluster[1]) * sizes.batch
    if clusters <= (turns.blocks or 0):
        return [Grid()]
    return [turns, Grid()] if in_turn else [Grid(), turns]


def _blocks_at_once(tile: Tile, shared_bytes: int, target: Target) -> int:
    threads = prod(tile.thread_shape)
    registers = tile.rows * tile.columns // threads + _OTHER_REGISTERS
    launch = roofs.Launch(1, threads, shared_bytes, registers)
    return max(1, int(launch.resident(target))) * limits_of(target).processors


def _joining_clocks(tile: Tile, streamed: int, blocks: int, sizes: Sizes, target: Target) -> float:
    """What it takes to write parts, of which a block has two at most, and to add them up."""
    moved = tile.rows * tile.columns * sizes.sum_bytes
    own = -(-blocks // limits_of(target).processors)
    parts = blocks / streamed + 1  # of one tile, which one block adds up
    read = max(parts, 2.0 * own) * moved
    return (2 * own * moved + read) / roofs.L2_BYTES_PER_CLOCK + LAUNCH_CLOCKS


@dataclass(frozen=True)
class Ranked(Generic[T]):
    """A tile, its grids, the best first, and what it takes in the best of them."""

    tile: T
    grids: list[Grid]
    clocks: float


def _ranked(
    tiles: Sequence[T],
    shared_bytes: Callable[[T], int],
    sizes: Sizes,
    clocks: Clocks[T],
    target: Target,
) -> list[Ranked[T]]:
    found = []
    for tile in tiles:
        options = grid_options(tile, shared_bytes(tile), sizes, clocks, target)
        found.append(Ranked(tile, [grid for _, grid in options], options[0][0]))
    return sorted(found, key=lambda item: item.clocks)


def warpgroup_tiles(
    sizes: Sizes, target: Target, element_bytes: int
) -> list[Ranked[WarpgroupTile]]:
    """Return tiles on warpgroups with their grids, the best first."""

    def clocks(tile: WarpgroupTile, m: int | None, n: int | None, batch: int | None) -> float:
        return warpgroup_clocks(tile, m, n, batch, target, element_bytes)

    tiles = rank_warpgroup_tiles(sizes.m, sizes.n, sizes.batch, target, element_bytes)
    return _ranked(tiles, lambda tile: tile.shared_bytes(), sizes, clocks, target)


def tensor_core_tiles(
    sizes: Sizes, target: Target, element_bytes: int
) -> list[Ranked[TensorCoreTile]]:
    """Return tiles on tensor cores with their grids, the best first."""

    def clocks(tile: TensorCoreTile, m: int | None, n: int | None, batch: int | None) -> float:
        return tensor_core_clocks(tile, m, n, batch, target, element_bytes)

    tiles = rank_tensor_core_tiles(sizes.m, sizes.n, sizes.batch, target, element_bytes)
    return _ranked(tiles, lambda tile: tile.shared_bytes(element_bytes), sizes, clocks, target)


def simt_tiles(sizes: Sizes, target: Target, element_bytes: int) -> list[Ranked[SimtTile]]:
    """Return tiles on plain threads with their grids, the best first."""
    limits = limits_of(target)

    def clocks(tile: SimtTile, m: int | None, n: int | None, batch: int | None) -> float:
        return simt_clocks(tile, m, n, batch, limits)

    tiles = rank_tiles(sizes.m, sizes.n, sizes.batch, limits, element_bytes)
    return _ranked(
        tiles, lambda tile: tile.shared_bytes(element_bytes, element_bytes), sizes, clocks, target
    )
