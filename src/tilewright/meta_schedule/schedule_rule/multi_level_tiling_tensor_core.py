"""Tile products for the tensor cores of GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tilewright.ir import dtypes
from tilewright.meta_schedule.schedule_rule.base import NotApplicable, ScheduleRule
from tilewright.meta_schedule.schedule_rule.level_tiling import (
    Levels,
    ReuseType,
    bind_levels,
    make_levels,
    split_levels,
)
from tilewright.meta_schedule.schedule_rule.patterns import (
    elementwise_consumer,
    why_not_tiled,
)
from tilewright.support.errors import ScheduleError, TuneError
from tilewright.tir import Block
from tilewright.tir.attrs import (
    AUTO_TENSORIZE,
    AUTO_TENSORIZE_INIT,
    COOPERATIVE_FETCH,
    PIPELINE_ORDER,
    PIPELINE_STAGE,
    TILED,
    WARP_EXECUTION,
)
from tilewright.tir.intrin.cuda import wmma_group
from tilewright.tir.schedule import (
    BlockRV,
    LoopRV,
    Schedule,
    get_tensorize_loop_mapping,
    tile_with_tensor_intrin,
)
from tilewright.tir.tensor_intrin import TensorIntrin

_PARTS = ("init", "load_a", "load_b", "compute", "store")
_TILE = 16
_FRAGMENTS = ("wmma.matrix_a", "wmma.matrix_b")
_SUMS = "wmma.accumulator"


def wmma_groups() -> tuple[dict[str, str], ...]:
    """Return the groups of all products that tensor cores have, with B as it is and turned.

    The names of the parts are TVM's: ``init``, ``load_a``, ``load_b``, ``compute``, ``store``.
    """
    groups = []
    for dtype, total in (
        ("float16", "float32"),
        ("float16", "float16"),
        ("bfloat16", "float32"),
        ("int8", "int32"),
    ):
        for b_trans in (False, True):
            group = wmma_group(dtype, total, b_trans=b_trans)
            groups.append({"init": group.pop("fill"), **group})
    return tuple(groups)


class MultiLevelTilingTensorCore(ScheduleRule):
    """Tile products for tensor cores; each of ``intrin_groups`` that fits makes schedules.

    A group names intrinsics for ``init``, ``load_a``, ``load_b``, ``compute`` and ``store``, of
    tiles of 16 by 16; by default these are all of ``wmma``. Blocks of threads are bound to the
    first levels of ``structure``, and warps to the last of ``tile_binds``. Operands are fetched
    into shared memory (``reuse_read``) with vectors of ``vector_load_lens``, and sums leave their
    fragments through memory of the scope of ``reuse_write``. With ``use_software_pipeline`` the
    next tiles are fetched while the present ones are multiplied. Extents that 16 doesn't divide are
    padded.
    """

    name = "multi-level-tiling-tensor-core"

    def __init__(
        self,
        intrin_groups: Sequence[Mapping[str, str]] | None = None,
        structure: str = "SSSRRSRS",
        tile_binds: Sequence[str] = ("blockIdx.y", "blockIdx.x", "threadIdx.y"),
        max_innermost_factor: int = 4,
        vector_load_lens: Sequence[int] = (1, 2, 4, 8),
        reuse_read: ReuseType | None = None,
        reuse_write: ReuseType | None = None,
        use_software_pipeline: bool = False,
        *,
        filter_fn: Callable[[Block], bool] | None = None,
    ) -> None:
        self.intrin_groups = tuple(intrin_groups) if intrin_groups is not None else wmma_groups()
        for group in self.intrin_groups:
            missing = [part for part in _PARTS if part not in group]
            if missing:
                raise TuneError(
                    f"a group of intrinsics names {', '.join(_PARTS)}; {missing[0]} is missing in "
                    f"{dict(group)}"
                )
        read = reuse_read or ReuseType("must", (4,), "shared")
        write = reuse_write or ReuseType("must", (3,), "shared")
        self.levels: Levels = make_levels(
            structure,
            tile_binds=tile_binds,
            max_innermost_factor=max_innermost_factor,
            vector_load_lens=vector_load_lens,
            reuse_read=read,
            reuse_write=write,
        )
        if not tile_binds or tile_binds[-1] == "threadIdx.x":
            raise TuneError("the last of tile_binds are warps, whose threads are threadIdx.x")
        for what, reuse in (("reuse_read", read), ("reuse_write", write)):
            if reuse.req != "must" or len(reuse.levels) != 1:
                raise TuneError(f"{what} must be at one level, got {reuse}")
        self.filter_fn = filter_fn
        self.use_software_pipeline = use_software_pipeline

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule] | NotApplicable:
        """Return a schedule for each group of intrinsics that computes what the block does."""
        if why := why_not_tiled(sch, block, self.filter_fn):
            return NotApplicable(why)
        made, reasons = [], []
        for group in self.intrin_groups:
            fork = sch.copy(seed=sch.fork_seed())
            try:
                if self._tile(fork, block, group):
                    made.append(fork)
            except ScheduleError as error:
                reasons.append(error.message)
        return made or NotApplicable(
            reasons[0] if reasons else "it isn't a product that tensor cores compute"
        )

    def _tile(self, sch: Schedule, block: BlockRV, group: Mapping[str, str]) -> bool:
        item = sch.get(block)
        dtypes_of = [r.buffer.dtype for r in item.reads if r.buffer is not item.writes[0].buffer]
        if [item.writes[0].buffer.dtype, *dtypes_of] != _dtypes_of(group["compute"]):
            return False
        compute = TensorIntrin.get(group["compute"]).desc
        trial = sch.copy(seed=0)
        self._keep(trial, block)
        found = get_tensorize_loop_mapping(trial, block, compute, allow_padding=True)
        if found is None:
            return False
        padding: list[BlockRV] = []
        if found.block_iter_paddings is not None:
            sch.pad_einsum(block, list(found.block_iter_paddings))
            padding = list(sch.get_producers(block))
        final, sums, fragments = self._keep(sch, block)
        loop = tile_with_tensor_intrin(sch, block, group["compute"])
        if loop is None:
            return False
        outer = sch.blockize(loop)
        sch.annotate(outer, AUTO_TENSORIZE, group["compute"])
        sch.annotate(outer, AUTO_TENSORIZE_INIT, group["init"])
        sch.annotate(block, TILED, self.levels.structure)
        levels, warps = split_levels(sch, outer, self.levels), len(self.levels.tile_binds) - 1
        sch.reverse_compute_at(
            sums, levels[self.levels.reuse_write.levels[0] - 1][-1], preserve_unit_loops=True
        )
        # All threads write the result together when all warps have put their sums down. The loops
        # of blocks and warps are joined later: what is made under them is known better so.
        sch.reverse_compute_at(final, levels[warps - 1][-1], preserve_unit_loops=True)
        loops = bind_levels(sch, self.levels, levels)
        sch.annotate(loops[warps][-1], WARP_EXECUTION, 1)
        whole = loops[warps - 1][-1]
        self._share(sch, final, whole)
        self._pad_rows(sch, self._tensorize(sch, sums, group["store"]))
        fetch = loops[self.levels.reuse_read.levels[0] - 1][-1]
        self._operands(sch, fragments, (fetch, loops[self._fragments_level()][-1]), group)
        for item in padding:
            sch.compute_inline(item)
        sch.annotate(outer, TILED, self.levels.structure)
        if self.use_software_pipeline:
            sch.annotate(fetch, PIPELINE_STAGE, [0, 0, 1])
            sch.annotate(fetch, PIPELINE_ORDER, [0, 1, 2])
        return True

    def _keep(
        self, sch: Schedule, block: BlockRV
    ) -> tuple[BlockRV, BlockRV, tuple[BlockRV, BlockRV]]:
        """Keep sums and operands in fragments.

        Return the block that writes the result, the one that takes sums from fragments to memory
        that threads share, from which it does so, and those that fill the fragments of operands.
        """
        consumer = elementwise_consumer(sch, block)
        if consumer is None:
            final = sch.cache_write(block, 0, self.levels.reuse_write.scope)
        else:
            sch.set_scope(block, 0, self.levels.reuse_write.scope)
            final = sch.get_block(consumer, block.func)
        sums = sch.cache_write(block, 0, _SUMS)
        a, b = (sch.cache_read(block, operand, scope) for operand, scope in enumerate(_FRAGMENTS))
        return final, sums, (a, b)

    def _fragments_level(self) -> int:
        """The level of the inner reduction loops, at which operands go to fragments."""
        structure = self.levels.structure
        first = self.levels.reuse_read.levels[0] - 1
        later = [n for n in range(first + 1, len(structure)) if structure[n] == "R"]
        return later[0] if later else first

    def _operands(
        self,
        sch: Schedule,
        fragments: Sequence[BlockRV],
        places: tuple[LoopRV, LoopRV],
        group: Mapping[str, str],
    ) -> None:
        """Fetch operands into shared memory at one loop, into fragments at another."""
        fetch, load = places
        for fragment, part in zip(fragments, ("load_a", "load_b")):
            shared = sch.cache_read(fragment, 0, self.levels.reuse_read.scope)
            sch.compute_at(fragment, load, preserve_unit_loops=True)
            sch.compute_at(shared, fetch, preserve_unit_loops=True)
            self._share(sch, shared, fetch)
            self._pad_rows(sch, shared)
            self._tensorize(sch, fragment, group[part])

    def _pad_rows(self, sch: Schedule, copy: BlockRV) -> None:
        """Let the rows of a tile in shared memory begin in other banks, to be accessed at once."""
        bits = dtypes.bits_of(sch.get(copy).writes[0].buffer.dtype)
        sch.storage_align(copy, 0, -2, 32 * 32 // bits, 16 * 8 // bits)

    def _share(self, sch: Schedule, copy: BlockRV, below: LoopRV) -> None:
        """Let all threads of a block share the work of a copy."""
        loops = sch.get_loops(copy)
        place = next(n for n, loop in enumerate(loops) if loop.var is below.var)
        own = loops[place + 1 :]
        if len(own) > 1:
            sch.fuse(*own)
        lengths = list(self.levels.vector_load_lens)
        chosen = sch.sample_categorical(lengths, [1.0 / len(lengths)] * len(lengths))
        sch.annotate(copy, COOPERATIVE_FETCH, chosen)

    def _tensorize(self, sch: Schedule, copy: BlockRV, intrin: str) -> BlockRV:
        """Split a copy into tiles, each of which an intrinsic copies; return the block of one."""
        rows, columns = sch.get_loops(copy)[-2:]
        rows, inner_rows = sch.split(rows, [None, _TILE])
        columns, inner_columns = sch.split(columns, [None, _TILE])
        sch.reorder(rows, columns, inner_rows, inner_columns)
        tile = sch.blockize(inner_rows)
        sch.annotate(tile, AUTO_TENSORIZE, intrin)
        return tile


def _dtypes_of(compute: str) -> list[str]:
    """Return the dtypes of the sums and of both operands of an intrinsic."""
    a, b, total = (x.dtype for x in TensorIntrin.get(compute).desc.buffer_map.values())
    return [total, a, b]
