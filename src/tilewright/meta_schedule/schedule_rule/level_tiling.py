"""Tiling by a structure and what is reused where, as rules for GPUs and intrinsics want it.

A structure such as ``SSSRRSRS`` has a level of loops for each letter: S for all spatial axes, R for
all reduction axes. The loops of the first levels may be fused and bound to a GPU's blocks, virtual
threads and threads. Results are kept in a buffer of their own under the loops of a level, and tiles
of the operands are copied there under those of another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir import as_int, dtypes
from tilewright.meta_schedule.schedule_rule.patterns import elementwise_consumer
from tilewright.support.errors import TuneError
from tilewright.target import Target
from tilewright.tir import REDUCE
from tilewright.tir.attrs import COOPERATIVE_FETCH, TILED
from tilewright.tir.schedule import BlockRV, LoopRV, Schedule

_REQUIREMENTS = ("no", "may", "must")


@dataclass(frozen=True)
class ReuseType:
    """Whether data is kept in memory of a ``scope``, and under which ``levels`` of loops.

    ``req`` is ``"no"``, ``"must"``, or ``"may"``: schedules with and without it. Levels are counted
    from 1 on; several of them are several ways to keep results, and several copies of operands.
    """

    req: str
    levels: tuple[int, ...] = ()
    scope: str = "local"

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(self.levels))
        if self.req not in _REQUIREMENTS:
            raise TuneError(f"req is one of {', '.join(_REQUIREMENTS)}, not {self.req!r}")
        if self.req != "no" and not self.levels:
            raise TuneError(f"reuse that {self.req!r} be needs levels of loops")

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return {"req": self.req, "levels": list(self.levels), "scope": self.scope}


NO_REUSE = ReuseType("no")


@dataclass(frozen=True)
class Levels:
    """How to tile: see the module's docstring.

    ``tile_binds`` are the thread tags of the first levels, ``vector_load_lens`` the lengths of
    vectors with which copies of operands may be fetched. With ``vector_bits``, the innermost loop
    along the result's memory has as many elements as a vector of that size, if that divides it.
    """

    structure: str
    tile_binds: tuple[str, ...] = ()
    max_innermost_factor: int = 64
    vector_load_lens: tuple[int, ...] = ()
    reuse_read: ReuseType = NO_REUSE
    reuse_write: ReuseType = NO_REUSE
    vector_bits: int = 0

    def __post_init__(self) -> None:
        if not self.structure or set(self.structure) - {"S", "R"}:
            raise TuneError(f"a structure is made of S and R, got {self.structure!r}")
        if "R" in self.structure[: len(self.tile_binds)]:
            raise TuneError(
                f"tile_binds {list(self.tile_binds)} would bind a level of reduction loops of "
                f"{self.structure!r}"
            )
        for reuse in (self.reuse_read, self.reuse_write):
            wrong = [n for n in reuse.levels if not 1 <= n <= len(self.structure)]
            if wrong:
                raise TuneError(f"level {wrong[0]} is none of the structure {self.structure!r}")


def make_levels(
    structure: str,
    *,
    tile_binds: Sequence[str] | None = None,
    max_innermost_factor: int = 64,
    vector_load_lens: Sequence[int] | None = None,
    reuse_read: ReuseType | None = None,
    reuse_write: ReuseType | None = None,
    vector_bits: int = 0,
) -> Levels:
    """Return levels from the options of a rule, where ``None`` is none of it.

    Raises ``TuneError`` if they contradict each other.
    """
    return Levels(
        structure,
        tuple(tile_binds or ()),
        max_innermost_factor,
        tuple(vector_load_lens or ()),
        reuse_read or NO_REUSE,
        reuse_write or NO_REUSE,
        vector_bits,
    )


GPU = Levels(
    "SSSRRSRS",
    tile_binds=("blockIdx.x", "vthread.x", "threadIdx.x"),
    vector_load_lens=(1, 2, 4),
    reuse_read=ReuseType("must", (4,), "shared"),
    reuse_write=ReuseType("must", (3,), "local"),
)
"""Each thread sums a tile in registers; its block fetches tiles of operands into shared memory."""


def levels_of(target: Target) -> Levels | None:
    """Return how a kind of target is tiled by levels, if it is."""
    return GPU if target.kind == "cuda" else None


def tile_by_levels(
    sch: Schedule, block: BlockRV, levels: Levels, write_back: BlockRV | None = None
) -> list[Schedule]:
    """Return the schedules of all ways to tile a block.

    ``write_back`` is given if the block's result is in memory of its own already, as
    ``keep_result`` makes it. Raises ``ScheduleError`` if a primitive refuses.
    """
    made = []
    for level in _choices(levels.reuse_write):
        for read in _read_choices(levels.reuse_read):
            fork = sch.copy(seed=sch.fork_seed())
            _tile(fork, block, levels, level, read, write_back)
            made.append(fork)
    return made


def _choices(reuse: ReuseType) -> list[int | None]:
    without: list[int | None] = [] if reuse.req == "must" else [None]
    return [*without, *(reuse.levels if reuse.req != "no" else ())]


def _read_choices(reuse: ReuseType) -> list[tuple[int, ...]]:
    without: list[tuple[int, ...]] = [] if reuse.req == "must" else [()]
    return [*without, *([reuse.levels] if reuse.req != "no" else [])]


def keep_result(sch: Schedule, block: BlockRV, scope: str) -> BlockRV:
    """Keep a block's result in memory of a scope; return the block that takes it from there."""
    consumer = elementwise_consumer(sch, block)
    if consumer is None:
        return sch.cache_write(block, 0, scope)
    sch.set_scope(block, 0, scope)
    return sch.get_block(consumer, block.func)


def _tile(
    sch: Schedule,
    block: BlockRV,
    levels: Levels,
    write: int | None,
    read: Sequence[int],
    write_back: BlockRV | None,
) -> None:
    if write is not None and write_back is None:
        write_back = keep_result(sch, block, levels.reuse_write.scope)
    loops = bind_levels(sch, levels, split_levels(sch, block, levels))
    if write is not None and write_back is not None:
        sch.reverse_compute_at(write_back, loops[write - 1][-1], preserve_unit_loops=True)
    for level in read:
        _fetch(sch, block, levels, loops[level - 1][-1])
    sch.annotate(block, TILED, levels.structure)


def split_levels(sch: Schedule, block: BlockRV, levels: Levels) -> list[list[LoopRV]]:
    """Split the loops of all axes; return those of each level."""
    made: list[list[LoopRV]] = [[] for _ in levels.structure]
    item = sch.get(block)
    lanes = levels.vector_bits // dtypes.bits_of(item.writes[0].buffer.dtype)
    last = item.writes[0].region[-1].min
    for loop, iter_var in zip(sch.get_loops(block), item.iter_vars):
        letter = "R" if iter_var.kind == REDUCE else "S"
        slots = [n for n, level in enumerate(levels.structure) if level == letter]
        extent = as_int(iter_var.dom.extent)
        if lanes and iter_var.var is last and extent is not None and extent % lanes == 0:
            outer, inner = sch.split(loop, [None, lanes])
            parts = [inner]
            if len(slots) > 1:
                factors = sch.sample_perfect_tile(outer, len(slots) - 1, 0)
                parts = [*sch.split(outer, factors), inner]
            else:
                made[slots[0]].append(outer)
        else:
            factors = sch.sample_perfect_tile(loop, len(slots), levels.max_innermost_factor)
            parts = list(sch.split(loop, factors))
        for slot, part in zip(slots, parts):
            made[slot].append(part)
    sch.reorder(*[loop for level in made for loop in level])
    return made


def bind_levels(sch: Schedule, levels: Levels, loops: list[list[LoopRV]]) -> list[list[LoopRV]]:
    """Fuse the loops of the first levels, and bind them; return the loops of each level."""
    for level, tag in enumerate(levels.tile_binds):
        fused = sch.fuse(*loops[level]) if len(loops[level]) > 1 else loops[level][0]
        sch.bind(fused, tag)
        loops[level] = [fused]
    return loops


def _fetch(sch: Schedule, block: BlockRV, levels: Levels, loop: LoopRV) -> None:
    """Copy tiles of the operands under a loop; where threads are, they share the work."""
    written = {region.buffer for region in sch.get(block).writes}
    buffers = [r.buffer for r in sch.get(block).reads if r.buffer not in written]
    for buffer in dict.fromkeys(buffers):
        places = [n for n, r in enumerate(sch.get(block).reads) if r.buffer is buffer]
        copy = sch.cache_read(block, places[0], levels.reuse_read.scope, [block])
        sch.compute_at(copy, loop, preserve_unit_loops=True)
        if not levels.tile_binds:
            continue
        above = {sch.get(item).loop_var for item in sch.get_loops(block)}
        own = [item for item in sch.get_loops(copy) if sch.get(item).loop_var not in above]
        if len(own) > 1:
            sch.fuse(*own)
        lengths = levels.vector_load_lens or (1,)
        chosen = (
            sch.sample_categorical(list(lengths), [1.0 / len(lengths)] * len(lengths))
            if len(lengths) > 1
            else lengths[0]
        )
        sch.annotate(copy, COOPERATIVE_FETCH, chosen)
