"""Tiles of a matrix product on Hopper's tensor cores: ``wgmma``, which reads shared memory itself.

Each warpgroup (four warps) of a block computes 64 rows, or several times that, of all the tile's
columns. Both operands lie in shared memory in rows of 128 bytes along what is summed over, permuted
as the instruction expects them, and come some steps ahead by asynchronous copies; no operand passes
registers. Sums leave as those of ``tensor_core_tile`` do.

Copies have two forms. By ``cp.async`` all threads copy vectors of 16 bytes, and meet once in each
step. By tensor maps (TMA) one thread of a warpgroup of its own starts the copy of a whole box, and
barriers in memory tell when it has come (``SpecialisePipeline``); what reads no plain boxes of
tensors, or rows of another number of bytes than a multiple of 16, is refused when it is lowered.
Then blocks of neighbouring tiles may be a cluster, whose blocks fetch once what they have in
common: those along rows of tiles the columns' operand, and the other way round. Results may be
written from registers: then blocks that take tiles in turn (``tile_streams``) copy for the next one
meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilewright.scheduling.gpu import roofs
from tilewright.scheduling.gpu.binding import THREADS
from tilewright.scheduling.gpu.block_tile import (
    fetch_at,
    gather_chunks,
    operand_positions,
    product_dtypes,
    share_fetch,
    write_results,
)
from tilewright.scheduling.gpu.fetches import are_rows_neighbours, is_turned
from tilewright.scheduling.gpu.limits import GPULimits, limits_of
from tilewright.scheduling.gpu.reduction import ROWS_OF_THREADS
from tilewright.scheduling.gpu.simt_tile import bind_grid, can_vectorize_store, keep_sums
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir.attrs import (
    PERMUTED_LAYOUT,
    PIPELINE_ASYNC_STAGES,
    PIPELINE_ORDER,
    PIPELINE_SPECIALISED,
    PIPELINE_STAGE,
    TENSOR_COPY,
)
from tilewright.tir.fragments import TURNED_DEPTH, TURNED_WIDTH, WARPGROUP_SIZE
from tilewright.tir.intrin.cuda import (
    wgmma_accumulator_layout,
    wgmma_group,
    wgmma_turned_layout,
)
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV, LoopRV
from tilewright.tir.thread_scope import CLUSTER_TAGS

_ARCH = "sm_90a"
_ROWS = 64
"""Rows that an instruction computes."""
_ROW_BYTES = 128
_UNKNOWN = 512
_OTHER_REGISTERS = 63
"""Registers of a thread besides sums and what it collects for the next step."""
_REGISTERS, _MOST_REGISTERS = 65536, 255
"""Registers of a processor, and the most of a thread."""
_GROUPS_BY_MAPS = 2
"""Warpgroups that compute, at most, where another one copies: sums take 128 registers each."""


Cluster = tuple[int, int]
"""Blocks of a cluster along rows and columns of tiles."""
ALONE: Cluster = (1, 1)
CLUSTERS: tuple[Cluster, ...] = (ALONE, (2, 1), (1, 2), (2, 2))


@dataclass(frozen=True)
class WarpgroupTile:
    """A block's tile, ``rows`` by ``columns``, and how many warpgroups divide its rows.

    ``stages`` of operands are in shared memory at once, each ``depth`` elements (128 bytes) deep.
    """

    rows: int
    columns: int
    depth: int
    groups: int
    stages: int

    @property
    def goes_by_maps(self) -> bool:
        """Whether a block has room for another warpgroup that only copies."""
        return self.groups <= _GROUPS_BY_MAPS

    @property
    def thread_shape(self) -> tuple[int, int]:
        """Warpgroups of a block, and threads of one."""
        return self.groups, WARPGROUP_SIZE

    @property
    def row_factors(self) -> tuple[int, int, int]:
        """Warpgroups along rows, instructions of one, rows of an instruction."""
        return self.groups, self.rows // self.groups // _ROWS, _ROWS

    def shared_bytes(self) -> int:
        """Bytes of the operands' stages, or of the sums, whichever is more."""
        operands = (self.rows + self.columns) * _ROW_BYTES * self.stages
        return max(operands, self.rows * (self.columns + 8) * 4)


_SHAPES = (
    (192, 256, 3, 3), (128, 256, 2, 4), (128, 128, 2, 4), (64, 256, 1, 4), (64, 128, 1, 4),
    (64, 64, 1, 4),
)  # fmt: skip
"""Rows, columns, warpgroups and stages. Sums of a thread take rows * columns / threads registers:
at most 128 of 255."""


def rank_warpgroup_tiles(
    m: int | None, n: int | None, batch: int | None, target: Target, element_bytes: int
) -> list[WarpgroupTile]:
    """Return the tiles that a block may have, by estimate of the time, the fastest first.

    The busiest processor has whole blocks; each takes as long as its products, its reads of shared
    memory (each warpgroup reads its rows and all columns) or its fetches take, whichever is most.
    """
    limits = limits_of(target)
    tiles = [
        WarpgroupTile(rows, columns, _ROW_BYTES // element_bytes, groups, stages)
        for rows, columns, groups, stages in _SHAPES
    ]
    fitting = [tile for tile in tiles if tile.shared_bytes() <= limits.max_shared_memory]
    return sorted(
        fitting, key=lambda tile: warpgroup_clocks(tile, m, n, batch, target, element_bytes)
    )


def warpgroup_clocks(
    tile: WarpgroupTile,
    m: int | None,
    n: int | None,
    batch: int | None,
    target: Target,
    element_bytes: int,
    cluster: Cluster = ALONE,
) -> float:
    """Return the clocks that a product takes for each element that is summed over."""
    along_m, along_n = cluster
    blocks = _blocks(tile, m, n, batch, cluster)
    brought = (tile.rows + tile.columns) * _ROW_BYTES
    fetched = (tile.rows / along_n + tile.columns / along_m) * _ROW_BYTES
    read = (tile.rows + tile.columns * tile.rows // _ROWS) * _ROW_BYTES
    clocks = (
        2 * tile.rows * tile.columns * tile.depth / target.gpu.tensor_flops * element_bytes / 2,
        (read + brought) / roofs.SHARED_BYTES_PER_CLOCK,
        fetched / roofs.L2_BYTES_PER_CLOCK,
    )
    processors = roofs.processors_for(prod(cluster), limits_of(target).processors)
    return roofs.rounds_clocks(blocks, clocks, processors) / tile.depth


def rank_clusters(
    tile: WarpgroupTile,
    sizes: tuple[int | None, int | None, int | None],
    target: Target,
    element_bytes: int,
) -> list[Cluster]:
    """Return the clusters that blocks of a tile may form, by estimate, the fastest first.

    ``sizes`` are rows, columns and batches. Those come last of whose blocks more than an eighth
    would only fill clusters up; of equally fast ones the smallest is first.
    """
    m, n, batch = sizes
    if target.gpu.cluster_blocks < max(map(prod, CLUSTERS)):
        return [ALONE]
    alone = _blocks(tile, m, n, batch, ALONE)

    def rank(cluster: Cluster) -> tuple[bool, float, int]:
        wasteful = 8 * _blocks(tile, m, n, batch, cluster) > 9 * alone
        clocks = warpgroup_clocks(tile, m, n, batch, target, element_bytes, cluster)
        return wasteful, clocks, prod(cluster)

    return sorted(CLUSTERS, key=rank)


def _blocks(
    tile: WarpgroupTile, m: int | None, n: int | None, batch: int | None, cluster: Cluster
) -> int:
    """How many blocks there are in whole clusters."""
    along_m, along_n = cluster
    rows = -(-(m or _UNKNOWN) // (tile.rows * along_m)) * along_m
    columns = -(-(n or _UNKNOWN) // (tile.columns * along_n)) * along_n
    return max(1, rows * columns * (batch or 1))


def why_not_warpgroups(sch: Schedule, main: BlockRV, target: Target) -> str:
    """Return why a product can't be computed by ``wgmma``; empty if its dtypes allow it."""
    if target.arch != _ARCH:
        return f"wgmma is of {_ARCH} alone, not of {target.arch}"
    dtype, other, total = product_dtypes(sch.get(main))
    if dtype != other:
        return "its operands have different dtypes"
    if wgmma_group(_ROWS, dtype, total) is None:
        return f"wgmma doesn't add products of {dtype} up in {total}"
    return ""


def schedule_warpgroup_tiles(
    sch: Schedule,
    main: BlockRV,
    tile: WarpgroupTile,
    limits: GPULimits,
    *,
    tensor_maps: bool = False,
    cluster: Cluster = ALONE,
    from_registers: bool = False,
) -> None:
    """Schedule a product in matrix form (``bring_into_form``), its operands' copies and epilogue.

    ``tensor_maps`` says whether operands come by these, and ``cluster`` then which blocks fetch
    them together; ``from_registers`` whether results are written by the threads that have their
    sums, else they go through shared memory. Raises ``ScheduleError`` if a primitive refuses, or if
    operands can't come in vectors.
    """
    block = sch.get(main)
    total = block.writes[0].buffer.dtype
    dtype = next(r.buffer.dtype for r in block.reads if r.buffer is not block.writes[0].buffer)
    if tensor_maps and not tile.goes_by_maps:
        raise ScheduleError(f"{tile} leaves no registers for a warpgroup that copies")
    if cluster != ALONE and not tensor_maps:
        raise ScheduleError("blocks of a cluster have copies in common by tensor maps only")
    along_m, along_n = cluster
    sch.pad_einsum(main, [1, tile.rows * along_m, tile.columns * along_n, tile.depth])
    writer = keep_sums(sch, main, "warpgroup" if from_registers else "shared")
    sums = None if from_registers else sch.cache_write(main, 0, "warpgroup")
    batch, row, column, step = sch.get_loops(main)
    rows = sch.split(row, [None, *tile.row_factors])
    columns = sch.split(column, [None, tile.columns])
    steps = sch.split(step, [None, tile.depth])
    sch.reorder(
        batch, rows[0], columns[0], rows[1], steps[0], rows[2], rows[3], columns[1], steps[1]
    )
    rows[0], columns[0], block = _clusters(sch, rows[0], columns[0], cluster)
    if sums is not None:
        sch.reverse_compute_at(sums, rows[1])
    sch.reverse_compute_at(writer, block)
    bind_grid(sch, batch, rows[0], columns[0], limits, along_n)
    sch.bind(rows[1], ROWS_OF_THREADS)
    turned = ""
    for name, operand in zip("ab", operand_positions(sch.get(main))):
        if _fetch(sch, main, (name, operand), steps[0], tile, tensor_maps):
            turned += name
    group = wgmma_group(tile.columns, dtype, total, turned)
    if group is None:
        raise ScheduleError(f"wgmma reads {dtype} along what is summed over only")
    if sums is None:
        _write_from_registers(sch, writer, tile)
    else:
        write_results(sch, writer, tile)
    sch.transform_layout(
        main,
        ("write", 0),
        lambda z, i, j: (
            z, i // _ROWS, j // tile.columns,
            *wgmma_accumulator_layout(i % _ROWS, j % tile.columns),
        ),
    )  # fmt: skip
    init = sch.decompose_reduction(main, steps[0])
    sch.tensorize(sch.get_loops(init)[-2], group["fill"])
    sch.tensorize(sch.get_loops(main)[-3], group["compute"])
    if sums is not None:
        _store_sums(sch, sums, tile, group["store"])
    sch.unroll(rows[2])
    # One of the stages is read by the products before, which are waited for after these begin.
    sch.annotate(steps[0], PIPELINE_STAGE, [0, 0, tile.stages - 2])
    sch.annotate(steps[0], PIPELINE_ORDER, [1, 2, 0])
    sch.annotate(steps[0], PIPELINE_ASYNC_STAGES, [0, tile.stages - 2])
    if tensor_maps:
        sch.annotate(steps[0], PIPELINE_SPECIALISED, 1)


def _store_sums(sch: Schedule, sums: BlockRV, tile: WarpgroupTile, intrinsic: str) -> None:
    """Copy sums from registers to shared memory."""
    row, column = sch.get_loops(sums)[-2:]
    row, inner_row = sch.split(row, [None, _ROWS])
    column, inner_column = sch.split(column, [None, tile.columns])
    sch.reorder(row, column, inner_row, inner_column)
    store = sch.blockize(inner_row)
    # Four rows of eight neighbouring banks each are written at once.
    sch.storage_align(store, 0, 1, 32, 8)
    sch.tensorize(store, intrinsic)


def _write_from_registers(sch: Schedule, writer: BlockRV, tile: WarpgroupTile) -> None:
    """Let each thread write the results whose sums it has: two neighbours of a row at once.

    Four threads write 8 columns of a row: a sector, if results have 4 bytes.
    """
    row, column = sch.get_loops(writer)[-2:]
    groups, _, rows_of_one = tile.row_factors
    group, part, warp, half, own = sch.split(row, [groups, None, 4, 2, rows_of_one // 8])
    columns, quad, pair = sch.split(column, [None, 4, 2])
    sch.reorder(group, warp, own, quad, part, half, columns, pair)
    sch.bind(group, ROWS_OF_THREADS)
    sch.bind(sch.fuse(warp, own, quad), THREADS)
    for loop in (part, half, columns):
        sch.unroll(loop)
    if can_vectorize_store(sch.get(writer), 2):
        sch.vectorize(pair)
    else:
        sch.unroll(pair)


def _clusters(
    sch: Schedule, row: LoopRV, column: LoopRV, cluster: Cluster
) -> tuple[LoopRV, LoopRV, LoopRV]:
    """Make clusters of neighbouring tiles; return loops on clusters, and the last on blocks."""
    block = column
    loops = [row, column]
    parts: list[LoopRV] = []
    for n, (extent, tag) in enumerate(zip(cluster, CLUSTER_TAGS)):
        if extent > 1:
            loops[n], part = sch.split(loops[n], [None, extent])
            parts.append(part)
            sch.bind(part, tag)
            block = part
    if parts:
        sch.reorder(*loops, *parts)
    return loops[0], loops[1], block


def _fetch(
    sch: Schedule,
    main: BlockRV,
    operand: tuple[str, int],
    outer: LoopRV,
    tile: WarpgroupTile,
    tensor_maps: bool,
) -> bool:
    """Copy an operand's tile into shared memory; return whether it lies there turned."""
    name, position = operand
    shared = sch.cache_read(main, position, "shared")
    fetch_at(sch, shared, outer)
    block = sch.get(shared)
    rows = tile.rows if name == "a" else tile.columns
    if not tensor_maps and are_rows_neighbours(block):
        _need_registers_for(tile, rows)
        gather_chunks(sch, shared, tile)
        return False
    turned = is_turned(block)
    if turned:
        sch.transform_layout(shared, ("write", 0), lambda b, i, k: (b, *wgmma_turned_layout(i, k)))
    if tensor_maps:
        _copy_boxes(sch, shared, turned)
        return turned
    if not share_fetch(sch, shared, outer, tile, permuted_from=1):
        _need_registers_for(tile, rows)
    if PERMUTED_LAYOUT not in sch.get(shared).annotations:
        raise ScheduleError("an operand doesn't come in vectors of up to 16 bytes")
    return turned


def _need_registers_for(tile: WarpgroupTile, rows: int) -> None:
    """Refuse a tile whose sums leave no registers for rows that pass them on their way."""
    threads = prod(tile.thread_shape)
    each = (tile.rows * tile.columns + rows * tile.depth) // threads
    if each + _OTHER_REGISTERS > min(_MOST_REGISTERS, _REGISTERS // threads):
        raise ScheduleError("sums and what is collected for the next step need more registers")


def _copy_boxes(sch: Schedule, shared: BlockRV, turned: bool) -> None:
    """Copy a tile in boxes, each of which is a run of rows of 128 bytes in shared memory."""
    row, step = sch.get_loops(shared)[-2:]
    if turned:
        rows = sch.split(row, [None, TURNED_WIDTH])
        steps = sch.split(step, [None, TURNED_DEPTH])
        sch.reorder(steps[0], rows[0], steps[1], rows[1])
        row = steps[1]
    box = sch.blockize(row)
    sch.annotate(box, TENSOR_COPY, 1)
    sch.annotate(box, PERMUTED_LAYOUT, 1)
