"""The order of a plan's tiles, and the steps that are skipped.

Tiles are processed column by column, so that a panel stays in the L1 cache, or row by row if the
reduction is so short that writing takes longer. Remainders of positions (``strided_axes``) are
processed for a row of an image, or for a whole image if panels are large. Rows that don't fit in
the last-level cache are split into blocks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.dlight.cpu.contraction.joined_axes import phases_of
from tilewright.dlight.cpu.contraction.padded_taps import padded_axes, skipped, uneven_taps
from tilewright.dlight.cpu.contraction.plan import (
    TASKS_PER_CORE,
    Plan,
    leaves_few_columns,
    pass_by_rows,
)
from tilewright.ir import dtypes
from tilewright.scheduling import Choices, Reduction, depends, others_after, stride
from tilewright.scheduling.cpu import work_of
from tilewright.target import Target
from tilewright.tir.schedule import Schedule

# Most steps of a reduction that hardly hide how results are written.
_SHORT = 256
# With fewer rows in a block, panels pass by faster than far caches give them.
_FEWEST_ROWS = 64


@dataclass(frozen=True)
class Order:
    """The order of tiles; axes are identified by position, since padding replaces their loops.

    ``phases`` are positions of quotients and their remainders. Steps of the ``taps`` are skipped
    where they read only padding, or where a remainder has fewer than others. The operand in panels
    depends on the axes ``with_panel``. Rows are split into ``row_blocks`` blocks.
    """

    vector: int
    row: int | None
    phases: Mapping[int, int]
    with_panel: frozenset[int]
    taps: tuple[int, ...]
    by_rows: bool
    by_images: bool
    row_blocks: int

    @property
    def remainders(self) -> list[int]:
        """The positions of the remainders, that of the row last."""
        return [self.phases[n] for n in sorted(self.phases, key=lambda n: n == self.row)]

    @property
    def held(self) -> int:
        """How many loops compute tiles that are only written once all of them are complete.

        These are all tiles of a row or of an image, for all remainders.
        """
        return 2 * len(self.phases) if self.by_images else 2 if self.phases else 0


def order_of(sch: Schedule, found: Reduction, plan: Plan, target: Target) -> Order:
    """Decide the order of a plan's tiles."""
    places = {axis.var: place for place, axis in enumerate(found.axes)}
    phases, packed = phases_of(sch, found), plan.packed
    by_rows = not phases and _writes_by_rows(sch.choices, found, plan, target)
    if phases:
        left_out = uneven_taps(found, [found.axes[place] for place in phases.values()])
    else:
        left_out = [axis.tap for axis in skipped(plan, padded_axes(sch, found))]
    if left_out and not sch.choices.choose("tiled_reduction.skip_padding", (True, False)):
        left_out = []
    row_blocks = 1
    if plan.row is not None and plan.constant and not phases and not by_rows:
        tiles = -(-(plan.row.extent or 1) // plan.tile.rows)
        divisors = [count for count in (1, 2, 4, 8) if tiles % count == 0]
        wanted = _row_blocks(found, plan, target)
        row_blocks = sch.choices.choose(
            "tiled_reduction.row_blocks", others_after(wanted, divisors)
        )
    return Order(
        vector=places[plan.vector.var],
        row=None if plan.row is None else places[plan.row.var],
        phases=phases,
        with_panel=frozenset(
            place
            for place, axis in enumerate(found.axes)
            if packed is not None and depends(packed, axis)
        ),
        taps=tuple(places[tap.var] for tap in left_out),
        by_rows=by_rows,
        by_images=bool(phases) and _writes_by_images(found, plan, phases, target),
        row_blocks=row_blocks,
    )


def _writes_by_rows(choices: Choices, found: Reduction, plan: Plan, target: Target) -> bool:
    """Whether the result is written by whole rows.

    Processing by columns reads the panel from the L1 cache but writes a little of each row: if the
    reduction is short, that takes longer than the arithmetic.
    """
    store, width, reduce = found.store, plan.vector.extent, work_of(found.steps)
    if plan.transposed or plan.row is None or width is None:
        return False
    if stride(store, plan.row) != width or plan.row.extent == plan.tile.rows:
        return False
    size = dtypes.bytes_of(store.buffer.dtype)
    if not pass_by_rows(size * width * reduce, target):
        return False
    result = size * work_of(found.spatial)
    short = reduce <= _SHORT and result > target.l2_bytes
    # Threads share whole rows rather than tiles some of which are cut off.
    whole = plan.padded or plan.overlapped
    estimate = short or (not whole and leaves_few_columns(plan.tile, width, target))
    return choices.choose("tiled_reduction.by_rows", (estimate, not estimate))


def _writes_by_images(
    found: Reduction, plan: Plan, phases: Mapping[int, int], target: Target
) -> bool:
    """Whether remainders of positions are processed in turn for a whole image.

    A panel that doesn't fit the nearer caches would be reloaded from far caches for each row. Each
    remainder's share of it is smaller; the results of all must fit beside it.
    """
    axes, caches = found.axes, target.l2_bytes
    if plan.packed is None or not plan.constant:
        return False
    if [axis.var for axis in axes].index(plan.vector.var) > min(phases):
        return False  # the result isn't stored column by column
    places = [*phases, *phases.values()]
    size = dtypes.bytes_of(plan.packed.buffer.dtype) * plan.tile.columns
    image = size * math.prod(axes[place].extent or caches for place in places)
    panel = size * work_of(found.steps)
    panel *= math.prod(axes[place].extent or 1 for place in phases.values())
    columns = (plan.vector.extent or 1) // plan.tile.columns
    cores = target.num_cores
    shared = cores == 1 or columns >= TASKS_PER_CORE * cores
    small = image <= target.costs.image_share * caches
    return shared and small and panel > target.costs.remainder_share * caches


def _row_blocks(found: Reduction, plan: Plan, target: Target) -> int:
    """The number of blocks of rows, such that those of a block stay in the cache.

    All panels are read for each block, so they should have been packed beforehand.
    """
    row, costs = plan.row, target.costs
    if plan.packed is None or row is None or row.extent is None:
        return 1
    size = row.extent * work_of(found.steps) * dtypes.bytes_of(plan.packed.buffer.dtype)
    tiles = -(-row.extent // plan.tile.rows)
    near = _near_blocks(found, plan, size, target)
    if near is not None:
        wanted = near
    elif size <= target.l3_bytes * costs.rows_share:
        return 1
    else:
        wanted = -(-size // int(target.l3_bytes * costs.block_share))
    return -(-tiles // -(-tiles // min(wanted, tiles)))


def _near_blocks(found: Reduction, plan: Plan, size: int, target: Target) -> int | None:
    """Into how many blocks ``size`` bytes of rows are split for the second-level cache.

    ``None`` where that doesn't pay: each panel passes by fewer rows, and is read for each block.
    """
    rows, columns = work_of([plan.row] if plan.row else []), plan.vector.extent or 0
    cache = target.l2_bytes
    if work_of(found.spatial) != rows * columns or size <= cache * target.costs.near_rows_share:
        return None
    block = max(int(cache * target.costs.near_block_share), size // rows * _FEWEST_ROWS)
    blocks, panels = -(-size // block), -(-columns // plan.tile.columns)
    panel = size // rows * plan.tile.columns
    fits = block + panel <= cache * target.costs.near_rows_share
    return blocks if fits and size * (panels - 1) > panel * panels * (blocks - 1) else None
