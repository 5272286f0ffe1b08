"""Tiles of a matrix product on plain threads: shared memory, registers, fetches one step ahead.

A block of threads computes a tile of results. For each step along ``k`` its threads fetch the
operands' tiles together: from global memory into registers while they multiply what was fetched
before, then into shared memory. Each thread multiplies out a tile in registers: per ``k`` it loads
``rows + columns`` elements of shared memory, in vectors, for ``rows * columns`` multiply-adds.

Threads side by side hold vectors side by side, and their further rows and columns a whole block of
threads away, so that the vectors that a warp reads at once are in different banks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tilewright.ir import as_int
from tilewright.scheduling.blocks import accesses_of, is_injective, stride_of
from tilewright.scheduling.gpu.binding import BLOCKS, THREADS
from tilewright.scheduling.gpu.fetches import fetch_lanes, is_contiguous
from tilewright.scheduling.gpu.limits import GPULimits
from tilewright.scheduling.gpu.matrix_form import inline_into
from tilewright.scheduling.gpu.reduction import ROWS_OF_THREADS
from tilewright.support.errors import ScheduleError
from tilewright.tir import Block
from tilewright.tir.attrs import MIN_BLOCKS, PIPELINE_ORDER, PIPELINE_STAGE
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV, LoopRV
from tilewright.tir.thread_scope import is_private

COLUMNS_OF_BLOCKS, BATCHES_OF_BLOCKS = "blockIdx.y", "blockIdx.z"
_VECTOR = 4
_SKEW = 4
"""Elements between rows of a transposed tile in shared memory, so that its columns, which are what
is written side by side, begin in different banks."""
_TILE_THREADS, _LARGE_TILE_THREADS = 768, 512
"""Threads of a processor: 65,536 registers are 85 or 128 for each."""


@dataclass(frozen=True)
class SimtTile:
    """A tile: of a block (``rows`` by ``columns``, ``depth`` along ``k``) and of a thread."""

    rows: int
    columns: int
    depth: int
    own_rows: int
    own_columns: int

    @property
    def threads(self) -> tuple[int, int]:
        """Threads along rows and along columns."""
        return self.rows // self.own_rows, self.columns // self.own_columns

    @property
    def thread_shape(self) -> tuple[int, int]:
        """The same, as ``threadIdx.y`` and ``threadIdx.x``."""
        return self.threads

    @property
    def row_factors(self) -> tuple[int, int, int]:
        """Vectors of rows of a thread, threads along rows, rows of a vector."""
        vector = min(_VECTOR, self.own_rows)
        return self.own_rows // vector, self.threads[0], vector

    @property
    def column_factors(self) -> tuple[int, int, int]:
        """The same of columns."""
        vector = min(_VECTOR, self.own_columns)
        return self.own_columns // vector, self.threads[1], vector

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of a block for one step along ``k``."""
        return self.rows * self.columns

    @property
    def resident(self) -> int:
        """Blocks for which a processor is to have room: 128 registers a thread, or 85.

        While threads of one block wait at a barrier, those of another one multiply.
        """
        large = self.own_rows * self.own_columns > 32
        threads = _LARGE_TILE_THREADS if large else _TILE_THREADS
        return max(1, threads // (self.threads[0] * self.threads[1]))

    def shared_bytes(self, a_bytes: int, b_bytes: int) -> int:
        """Bytes of both operands' tiles, of which two are under way."""
        a = (self.rows + _SKEW) * self.depth * a_bytes
        return 2 * (a + (self.columns + _SKEW) * self.depth * b_bytes)

    def loads_per_multiply_add(self) -> float:
        """Elements of shared memory that a thread loads for each multiply-add."""
        return (self.own_rows + self.own_columns) / (self.own_rows * self.own_columns)

    def flops_per_byte(self, element_bytes: int = 4) -> float:
        """Operations of a block for each byte that it fetches from global memory."""
        return 2 * self.multiply_adds / ((self.rows + self.columns) * element_bytes)


TILES = (
    SimtTile(128, 128, 8, 8, 8),
    SimtTile(128, 64, 8, 8, 4),
    SimtTile(64, 128, 8, 4, 8),
    SimtTile(64, 64, 16, 4, 4),
    SimtTile(32, 64, 16, 4, 4),
    SimtTile(64, 32, 16, 4, 4),
    SimtTile(32, 32, 16, 2, 4),
    SimtTile(16, 64, 16, 2, 4),
    SimtTile(16, 32, 16, 1, 4),
)
_UNKNOWN = 512
_LANES = 128
"""Multiply-adds of a processor in a clock."""
"""What an extent that comes with the call counts as."""


def rank_tiles(
    m: int | None, n: int | None, batch: int | None, limits: GPULimits, element_bytes: int
) -> list[SimtTile]:
    """Return the tiles that a block may have, by estimate of the time, the fastest first.

    The time is that of the waves of blocks: with fewer loads per multiply-add a block is faster,
    with fewer blocks than processors some are idle.
    """
    fitting = [
        tile
        for tile in TILES
        if tile.shared_bytes(element_bytes, element_bytes) <= limits.max_shared_memory
        and tile.threads[0] * tile.threads[1] <= limits.max_threads
    ]
    return sorted(fitting, key=lambda tile: simt_clocks(tile, m, n, batch, limits))


def simt_clocks(
    tile: SimtTile, m: int | None, n: int | None, batch: int | None, limits: GPULimits
) -> float:
    """Return the clocks that a product takes for each element that is summed over."""
    rows, columns = -(-(m or _UNKNOWN) // tile.rows), -(-(n or _UNKNOWN) // tile.columns)
    blocks = max(1, rows * columns * (batch or 1))
    waves = max(1.0, blocks / limits.processors)
    # Loads of shared memory, 4 elements at once, take their turn beside multiply-adds.
    step = 1 + 2 * tile.loads_per_multiply_add()
    return waves * tile.multiply_adds * step / _LANES


def schedule_tiles(
    sch: Schedule, main: BlockRV, tile: SimtTile, limits: GPULimits, staged: bool = True
) -> None:
    """Schedule a product in matrix form (``bring_into_form``), its operands' copies and epilogue.

    With ``staged`` operands are fetched one step ahead. Raises ``ScheduleError`` if a primitive
    refuses.
    """
    sch.pad_einsum(main, [1, tile.rows, tile.columns, tile.depth])
    writer = keep_sums(sch, main, "local")
    batch, row, column, step = sch.get_loops(main)
    rows, columns = _split_tile(sch, row, column, tile)
    outer, inner = sch.split(step, [None, tile.depth])
    sch.reorder(
        batch, rows[0], columns[0], outer, rows[2], columns[2], inner,
        rows[1], columns[1], rows[3], columns[3],
    )  # fmt: skip
    fetched = [_fetch(sch, main, operand, outer, inner) for operand in (0, 1)]
    sch.reverse_compute_at(writer, columns[0])
    bind_grid(sch, batch, rows[0], columns[0], limits)
    sch.bind(rows[2], ROWS_OF_THREADS)
    sch.bind(columns[2], THREADS)
    for staging, shared, own in fetched:
        _share(sch, staging, shared, outer, tile)
        if own_loops := sch.get_loops(own)[position_of(sch, inner) + 1 :]:  # else one element
            sch.vectorize(own_loops[-1])
    for loop in (rows[1], columns[1], rows[3], columns[3]):
        sch.unroll(loop)
    _write(sch, writer, outer, tile)
    sch.decompose_reduction(main, outer)
    blocks = sch.get_loops(main)[0]
    sch.annotate(blocks, MIN_BLOCKS, tile.resident)
    if staged:
        sch.annotate(outer, PIPELINE_STAGE, [0, 0, 0, 0, 1])
        # The tiles are written to shared memory last: until then their elements are under way.
        sch.annotate(outer, PIPELINE_ORDER, [0, 3, 1, 4, 2])


def _split_tile(
    sch: Schedule, row: LoopRV, column: LoopRV, tile: SimtTile
) -> tuple[list[LoopRV], list[LoopRV]]:
    """Split rows and columns into tiles, vectors of a thread, threads, and a vector's elements."""
    return sch.split(row, [None, *tile.row_factors]), sch.split(
        column, [None, *tile.column_factors]
    )


def keep_sums(sch: Schedule, main: BlockRV, scope: str) -> BlockRV:
    """Keep sums in memory of a scope; return the block that writes results.

    It computes what follows for each result by itself, too.
    """
    consumers = sch.get_consumers(main)
    if len(consumers) != 1 or not is_injective(sch, consumers[0]):
        made: BlockRV = sch.cache_write(main, 0, scope)
        return made
    writer: BlockRV = consumers[0]
    while len(later := sch.get_consumers(writer)) == 1 and is_injective(sch, later[0]):
        try:
            sch.reverse_compute_inline(later[0])
        except ScheduleError:
            break  # it needs several results: it is a kernel of its own
    sch.set_scope(main, 0, scope)
    return writer


def bind_grid(
    sch: Schedule,
    batch: LoopRV,
    rows: LoopRV,
    columns: LoopRV,
    limits: GPULimits,
    each: int = 1,
) -> None:
    """Bind rows to the long axis of the grid, columns to the second, ``each`` of so many blocks.

    Batches share an axis with the rows where one of both is known, else they have the third.
    """
    extent = as_int(sch.get(columns).extent)
    if extent is not None and extent * each > limits.max_blocks_yz:
        sch.bind(sch.fuse(batch, rows, columns), BLOCKS)
        return
    if None not in (as_int(sch.get(batch).extent), as_int(sch.get(rows).extent)):
        rows = sch.fuse(batch, rows)
    elif as_int(sch.get(batch).extent) != 1:
        sch.bind(batch, BATCHES_OF_BLOCKS)
    sch.bind(rows, BLOCKS)
    sch.bind(columns, COLUMNS_OF_BLOCKS)


def _fetch(
    sch: Schedule, main: BlockRV, operand: int, outer: LoopRV, inner: LoopRV
) -> tuple[BlockRV, BlockRV, BlockRV]:
    """Copy an operand's tile: into registers, into shared memory, and what a thread needs of it.

    What is computed of the operand (padding, decoding) is computed by the first copy.
    """
    staging = sch.cache_read(main, operand, "local")
    shared = sch.cache_read(main, operand, "shared")
    sch.transform_layout(shared, ("write", 0), lambda b, i, k: (b, k, i))
    own = sch.cache_read(main, operand, "local")
    sch.compute_at(own, inner)
    sch.compute_at(shared, outer)
    sch.compute_at(staging, outer)
    inline_into(sch, staging)
    return staging, shared, own


def _share(sch: Schedule, staging: BlockRV, shared: BlockRV, outer: LoopRV, tile: SimtTile) -> None:
    """Divide the fetch of a tile among threads: each moves the same elements in both copies."""
    depth = position_of(sch, outer) + 1
    block = sch.get(staging)
    along_k = is_contiguous(block, 2)
    along_i = not along_k and is_contiguous(block, 1)
    threads = tile.threads[0] * tile.threads[1]
    size = prod(as_int(sch.get(loop).extent) or 1 for loop in sch.get_loops(staging)[depth:])
    run = tile.depth if along_k else size // tile.depth
    lanes = fetch_lanes(block, 2 if along_k else 1, run, size // threads) if (
        along_k or along_i) else 1  # fmt: skip
    for copy in (staging, shared):
        i, k = sch.get_loops(copy)[-2:]
        lane = share_among_threads(sch, (i, k), tile.threads, lanes, turned=not along_k)
        if copy == staging or not along_k:
            sch.vectorize(lane)
        else:
            sch.unroll(lane)
    if along_k:
        sch.storage_align(shared, 0, 1, 32, _SKEW)


def share_among_threads(
    sch: Schedule, loops: tuple[LoopRV, LoopRV], threads: Sequence[int], lanes: int, *, turned: bool
) -> LoopRV:
    """Divide two loops, or these in turn, among threads; return the loop of each one's lanes."""
    outer, inner = loops[::-1] if turned else loops
    if turned:
        sch.reorder(outer, inner)
    own, row, column, lane = sch.split(sch.fuse(outer, inner), [None, *threads, lanes])
    sch.bind(row, ROWS_OF_THREADS)
    sch.bind(column, THREADS)
    sch.unroll(own)
    return lane


def position_of(sch: Schedule, loop: LoopRV) -> int:
    """How many loops are around a loop."""
    return len(sch.state.loops_above(sch.get(loop)))


def _write(sch: Schedule, writer: BlockRV, outer: LoopRV, tile: SimtTile) -> None:
    """Divide the writing of results among threads as the sums are."""
    row, column = sch.get_loops(writer)[-2:]
    rows = sch.split(row, [None, *tile.row_factors[1:]])
    columns = sch.split(column, [None, *tile.column_factors[1:]])
    sch.reorder(rows[1], columns[1], rows[0], rows[2], columns[0], columns[2])
    sch.bind(rows[1], ROWS_OF_THREADS)
    sch.bind(columns[1], THREADS)
    for loop in (rows[0], rows[2], columns[0]):
        sch.unroll(loop)
    if can_vectorize_store(sch.get(writer)):
        sch.vectorize(columns[2])
    else:
        sch.unroll(columns[2])


def can_vectorize_store(block: Block, lanes: int = 4) -> bool:
    """Whether a thread may write so many neighbouring results as one vector."""
    var = block.iter_vars[-1].var
    accesses = [x for x in accesses_of(block) if not is_private(x.buffer.scope)]
    return all(
        stride_of(x.indices, x.buffer, var) == 0
        or (x.indices[-1] is var and (as_int(x.buffer.shape[-1]) or 1) % lanes == 0)
        for x in accesses
    )
