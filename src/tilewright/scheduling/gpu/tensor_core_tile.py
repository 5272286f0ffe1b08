"""Tiles of a matrix product on tensor cores: ``mma`` from shared memory that ``ldmatrix`` reads.

A block of threads computes a tile of results, each of its warps a part of that. Operands come into
shared memory by asynchronous copies, some steps ahead, lie there permuted so that no two rows of a
16 by 16 tile meet in a bank, and go to registers by ``ldmatrix``. Sums leave the registers through
shared memory, from which all threads write results, and what follows for each result, in vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilewright.scheduling.gpu import roofs
from tilewright.scheduling.gpu.block_tile import (
    fetch_at,
    operand_positions,
    product_dtypes,
    share_fetch,
    write_results,
)
from tilewright.scheduling.gpu.fetches import is_turned
from tilewright.scheduling.gpu.limits import GPULimits, limits_of
from tilewright.scheduling.gpu.reduction import ROWS_OF_THREADS
from tilewright.scheduling.gpu.simt_tile import (
    bind_grid,
    keep_sums,
)
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir.attrs import (
    PERMUTED_LAYOUT,
    PERMUTED_ROWS,
    PIPELINE_ASYNC_STAGES,
    PIPELINE_ORDER,
    PIPELINE_STAGE,
)
from tilewright.tir.intrin.cuda import (
    MAPS,
    mma_depth,
    mma_group,
)
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV, LoopRV

AHEAD = ("async", "sync", "no")
"""How operands are fetched: some steps ahead and asynchronously, one step ahead, or when needed."""
_UNIT = 16
"""Rows and columns of what an intrinsic computes."""
_MMA_CAPABILITY, _FLOAT8_CAPABILITY = 80, 89
_UNKNOWN = 512


@dataclass(frozen=True)
class TensorCoreTile:
    """A block's tile, ``rows`` by ``columns`` by ``depth``, and its warps along rows and columns.

    ``stages`` of operands are in shared memory at once.
    """

    rows: int
    columns: int
    depth: int
    warps: tuple[int, int]
    stages: int

    @property
    def row_factors(self) -> tuple[int, int, int]:
        """Warps along rows, units of a warp, rows of a unit."""
        return self.warps[0], self.rows // self.warps[0] // _UNIT, _UNIT

    @property
    def column_factors(self) -> tuple[int, int, int]:
        """The same of columns."""
        return self.warps[1], self.columns // self.warps[1] // _UNIT, _UNIT

    @property
    def thread_shape(self) -> tuple[int, int]:
        """Warps of a block, and lanes of a warp."""
        return prod(self.warps), 32

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return prod(self.thread_shape)

    def shared_bytes(self, element_bytes: int) -> int:
        """Bytes of the operands' stages, or of the sums, whichever is more."""
        operands = (self.rows + self.columns) * self.depth * element_bytes * self.stages
        return max(operands, self.rows * self.columns * 4)

    def loads_per_product(self) -> float:
        """Units of operands that a warp loads for each unit product."""
        own_rows, own_columns = self.row_factors[1], self.column_factors[1]
        return (own_rows + own_columns) / (own_rows * own_columns)


TILES = (
    TensorCoreTile(128, 256, 32, (2, 4), 3),
    TensorCoreTile(128, 128, 32, (2, 4), 4),
    TensorCoreTile(128, 64, 32, (4, 2), 4),
    TensorCoreTile(64, 128, 32, (2, 4), 4),
    TensorCoreTile(64, 64, 32, (2, 2), 4),
    TensorCoreTile(32, 64, 64, (1, 4), 3),
    TensorCoreTile(16, 64, 64, (1, 4), 3),
)


def rank_tensor_core_tiles(
    m: int | None, n: int | None, batch: int | None, target: Target, element_bytes: int
) -> list[TensorCoreTile]:
    """Return the tiles that a block may have, by estimate of the time, the fastest first.

    The busiest processor has whole blocks, and each takes what its slowest part does: tensor cores,
    shared memory or fetches (``roofs``).
    """
    limits = limits_of(target)
    fitting = [
        tile
        for tile in TILES
        if tile.shared_bytes(element_bytes) <= limits.max_shared_memory
        and tile.threads <= limits.max_threads
    ]
    return sorted(
        fitting, key=lambda tile: tensor_core_clocks(tile, m, n, batch, target, element_bytes)
    )


def tensor_core_clocks(
    tile: TensorCoreTile,
    m: int | None,
    n: int | None,
    batch: int | None,
    target: Target,
    element_bytes: int,
) -> float:
    """Return the clocks that a product takes for each element that is summed over."""
    rows, columns = -(-(m or _UNKNOWN) // tile.rows), -(-(n or _UNKNOWN) // tile.columns)
    blocks = max(1, rows * columns * (batch or 1))
    products = tile.rows * tile.columns / _UNIT**2
    brought = (tile.rows + tile.columns) * _UNIT * element_bytes
    unit_bytes = _UNIT * _UNIT * element_bytes
    clocks = (
        products * 2 * _UNIT**3 / target.gpu.tensor_flops,
        (products * tile.loads_per_product() * unit_bytes + brought) / roofs.SHARED_BYTES_PER_CLOCK,
        brought / roofs.L2_BYTES_PER_CLOCK,
    )
    return roofs.rounds_clocks(blocks, clocks, limits_of(target).processors) / _UNIT


def why_not_tensor_cores(sch: Schedule, main: BlockRV, target: Target) -> str:
    """Return why a product can't be computed by ``mma``; empty if it can."""
    if target.gpu.capability < _MMA_CAPABILITY:
        return f"{target.arch} lacks what tiles for tensor cores use; sm_80 has it"
    dtype, other, total = product_dtypes(sch.get(main))
    if mma_depth(dtype, total, other) is None:
        return f"tensor cores don't add products of {dtype} and {other} up in {total}"
    if dtype.startswith("float8") and target.gpu.capability < _FLOAT8_CAPABILITY:
        return f"{target.arch} doesn't multiply {dtype} on tensor cores; sm_89 does"
    return ""


def schedule_tensor_core_tiles(
    sch: Schedule,
    main: BlockRV,
    tile: TensorCoreTile,
    limits: GPULimits,
    ahead: str = "async",
) -> None:
    """Schedule a product in matrix form (``bring_into_form``), its operands' copies and epilogue.

    ``ahead`` is one of ``AHEAD``. Raises ``ScheduleError`` if a primitive refuses.
    """
    block = sch.get(main)
    *operands, total = product_dtypes(block)
    dtype, other = (operands[n] for n in operand_positions(block))
    unit_depth = mma_depth(dtype, total, other)
    assert unit_depth is not None
    sch.pad_einsum(main, [1, tile.rows, tile.columns, tile.depth])
    writer = keep_sums(sch, main, "shared")
    sums = sch.cache_write(main, 0, "warp")
    batch, row, column, step = sch.get_loops(main)
    rows = sch.split(row, [None, *tile.row_factors])
    columns = sch.split(column, [None, *tile.column_factors])
    steps = sch.split(step, [None, tile.depth // unit_depth, unit_depth])
    sch.reorder(
        batch, rows[0], columns[0], rows[1], columns[1], steps[0], steps[1],
        rows[2], columns[2], rows[3], columns[3], steps[2],
    )  # fmt: skip
    # What is made under the loops of warps is known better before these are joined.
    sch.reverse_compute_at(sums, columns[1])
    sch.reverse_compute_at(writer, columns[0])
    warps = sch.fuse(rows[1], columns[1])
    bind_grid(sch, batch, rows[0], columns[0], limits)
    sch.bind(warps, ROWS_OF_THREADS)
    fetched = [
        _fetch(sch, main, operand, steps[0], steps[1])
        for operand in operand_positions(sch.get(main))
    ]
    copies = [share_fetch(sch, shared, steps[0], tile) for shared, _, _ in fetched]
    for shared, _, turned in fetched:
        if turned and unit_depth == 32 and PERMUTED_LAYOUT in sch.get(shared).annotations:
            # Turned bytes come one by one: a thread reads the four rows that make a register.
            sch.annotate(shared, PERMUTED_ROWS, 4)
    write_results(sch, writer, tile)
    _lay_out(sch, main, [load for _, load, _ in fetched], unit_depth)
    group = mma_group(
        dtype,
        total,
        a_trans=fetched[0][2],
        b_trans=not fetched[1][2],
        store_scope="shared",
        other=other,
    )
    _tensorize(sch, main, steps[0], group)
    for (_, load, turned), name in zip(fetched, ("load_a", "load_b")):
        sch.tensorize(_unit(sch, load, (_UNIT, unit_depth), turned), group[name])
    store = sch.blockize(_unit(sch, sums, (_UNIT, _UNIT), False))
    # Rows of sums begin in other banks, so that a unit's rows are written at once.
    sch.storage_align(store, 0, 1, 32, 4)
    sch.tensorize(store, group["store"])
    for loop in (rows[2], columns[2], steps[1]):
        sch.unroll(loop)
    if ahead == "async" and not all(copies):
        raise ScheduleError("what is computed of an operand where it is fetched can't be awaited")
    if ahead != "no":
        last = tile.stages - 1 if ahead == "async" else 1
        sch.annotate(steps[0], PIPELINE_STAGE, [0, 0, last])
        sch.annotate(steps[0], PIPELINE_ORDER, [0, 1, 2])
        if ahead == "async":
            sch.annotate(steps[0], PIPELINE_ASYNC_STAGES, [0])


def _fetch(
    sch: Schedule, main: BlockRV, operand: int, outer: LoopRV, inner: LoopRV
) -> tuple[BlockRV, BlockRV, bool]:
    """Copy an operand's tile into shared memory, and into fragments.

    Also returns whether it lies there with ``k`` outermost, as where it comes from.
    """
    shared = sch.cache_read(main, operand, "shared")
    load = sch.cache_read(main, operand, "warp")
    sch.compute_at(load, inner)
    fetch_at(sch, shared, outer)
    turned = is_turned(sch.get(shared))
    if turned:
        sch.transform_layout(shared, ("write", 0), lambda b, i, k: (b, k, i))
    return shared, load, turned


def _lay_out(sch: Schedule, main: BlockRV, loads: list[BlockRV], unit_depth: int) -> None:
    """Lay fragments out as registers: a lane and its element in place of row and column."""
    a, b, c = MAPS["a", unit_depth], MAPS["b", unit_depth], MAPS["c", 16]
    sch.transform_layout(
        main, ("write", 0), lambda z, i, j: (z, i // 16, j // 16, *c(i % 16, j % 16))
    )
    sch.transform_layout(
        loads[0],
        ("write", 0),
        lambda z, i, k: (z, i // 16, k // unit_depth, *a(i % 16, k % unit_depth)),
    )
    sch.transform_layout(
        loads[1],
        ("write", 0),
        lambda z, j, k: (z, j // 16, k // unit_depth, *b(k % unit_depth, j % 16)),
    )


def _tensorize(sch: Schedule, main: BlockRV, outer: LoopRV, group: dict[str, str]) -> None:
    init = sch.decompose_reduction(main, outer)
    sch.tensorize(sch.get_loops(init)[-2], group["fill"])
    sch.tensorize(sch.get_loops(main)[-3], group["compute"])


def _unit(sch: Schedule, copy: BlockRV, sizes: tuple[int, int], turned: bool) -> LoopRV:
    """The loop over the rows of one unit of a copy, in the order of memory."""
    first, second = sch.get_loops(copy)[-2:]
    first, inner_first = sch.split(first, [None, sizes[0]])
    second, inner_second = sch.split(second, [None, sizes[1]])
    if turned:
        inner_first, inner_second = inner_second, inner_first
    sch.reorder(first, second, inner_first, inner_second)
    made: LoopRV = inner_first
    return made
