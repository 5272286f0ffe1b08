"""Products of matrices: tiles in shared memory and registers, fetched one step ahead.

Operands may be stored either way, padded, or decoded where they are fetched (weights of fewer
bits); what follows for each result is computed as results are written.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

from tilewright.ir import Expr, FloorMod, Var, as_int, dtypes, pass_option, pre_order, uses_var
from tilewright.scheduling import (
    Contraction,
    GPUScheduleRule,
    NotApplicable,
    contraction_of,
    describe,
    dimensions_of,
    divisors_of,
)
from tilewright.scheduling.gpu import (
    AHEAD,
    ALONE,
    Grid,
    MatrixForm,
    Ranked,
    Sizes,
    Tile,
    WarpgroupTile,
    bring_into_form,
    first_lowered,
    grids_by_maps,
    limits_of,
    matrix_form_of,
    part_options,
    rank_clusters,
    schedule_rest,
    schedule_tensor_core_tiles,
    schedule_tiles,
    schedule_warpgroup_tiles,
    simt_tiles,
    split_sums,
    tensor_core_tiles,
    warpgroup_tiles,
    why_not_tensor_cores,
    why_not_warpgroups,
)
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir.schedule import Schedule

logger = logging.getLogger("tilewright.dlight")

TENSOR_MAPS = pass_option(
    "dlight.tensor_maps",
    bool,
    False,
    "Whether products on Hopper copy their operands by tensor maps (TMA), where these can.",
)
_NOT_TOLD = ("main", "tile", "limits")
_LONGEST = 1 << 12
"""Nodes of another block's formula: each primitive looks at all of them."""
_WHOLE_SECTORS = 4
"""Bytes of a result from which on two of each of four neighbouring threads are a sector."""
_LEAST_MEMBERS, _LEAST_DEPTH = 8, 16
"""Members of a group, and terms of their sums, from which on a product of a group is worth a tile.
"""
_ATTEMPTS = 3
"""Tiles that are tried: what refuses one mostly refuses all."""


class Matmul(GPUScheduleRule):
    """Applies to sums of products of two operands, each with axes of its own.

    The tile is chosen by estimate (``rank_tiles``).
    """

    def apply_to(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Bring the product into the form of matrices, and tile it."""
        found = describe(sch)
        if isinstance(found, NotApplicable):
            return found
        found = with_groups_apart(sch, found)
        form = matrix_form_of(sch, found)
        if isinstance(form, NotApplicable):
            return form
        if refused := self.refuses(found):
            return NotApplicable(refused)
        sizes = (sum(1 for _ in pre_order(sch.get(rv).body)) for rv in found.others)
        if max(sizes, default=0) > _LONGEST:
            return NotApplicable("its operands' formulas are too long to be looked at again")
        for parts in part_options(sch, found, form, target):
            if parts == 1:
                break
            made = _tiled_in_parts(sch.copy(), found, parts, target)
            if isinstance(made, Schedule):
                return made
            logger.debug("%s: %d parts: %s", sch.choices.function, parts, made.reason)
        return tiled(sch, found, form, target)

    def refuses(self, found: Contraction) -> str:
        """Say why a contraction is none of this rule's."""
        if has_windows(found):
            return "it is a convolution"
        if not all(found.reusing(load) for load in found.loads):
            return "it is the product of a matrix with a vector"
        return ""


def with_groups_apart(sch: Schedule, found: Contraction) -> Contraction:
    """Split the axis whose elements share an operand by groups, as filters do in convolutions.

    Within a group both operands are reused, then. What would be a product of few rows stays.
    """
    depth = [as_int(axis.extent) for axis in found.steps]
    if all(found.reusing(load) for load in found.loads) or len(found.loads) != 2:
        return found
    if None in depth or prod(n or 1 for n in depth) < _LEAST_DEPTH:
        return found
    axes = {item.var: as_int(item.dom.extent) or 1 for item in found.block.iter_vars}
    members = {
        var: n
        for var, n in divisors_of(found).items()
        if n >= _LEAST_MEMBERS and axes[var] % n == 0 and not _is_read_by_rest(found, var)
    }
    if len(members) != 1:
        return found

    def split(*i: Expr) -> list[Expr]:
        pairs = [(i[n] // members[v], i[n] % members[v]) if v in members else (i[n],)
                 for n, v in enumerate(axes)]  # fmt: skip
        return [item for pair in pairs for item in pair]

    attempt = sch.copy()
    try:
        attempt.transform_block_layout(found.main, split)
    except ScheduleError:
        return found
    made = contraction_of(attempt, found.main)
    if isinstance(made, NotApplicable) or not all(made.reusing(load) for load in made.loads):
        return found
    sch.become(attempt)
    return made


def _is_read_by_rest(found: Contraction, var: Var) -> bool:
    """Whether an operand is read at the remainder of an axis, as in transposed convolutions."""
    return any(
        type(item) is FloorMod and uses_var(item, {var})
        for load in found.loads
        for index in load.indices
        for item in pre_order(index)
    )


def has_windows(found: Contraction) -> bool:
    """Whether an operand is read at the sum of an axis of results and a reduced one."""
    return any(
        set(dimensions_of(load, result)) & set(dimensions_of(load, step))
        for load in found.loads
        for result in found.spatial
        for step in found.steps
    )


def _tiled_in_parts(
    sch: Schedule, found: Contraction, parts: int, target: Target
) -> Schedule | NotApplicable:
    """Let several blocks share each sum; a second kernel joins them."""
    try:
        product = split_sums(sch, found, parts, target)
    except ScheduleError as error:
        return NotApplicable(error.summary)
    if isinstance(product, NotApplicable):
        return product
    form = matrix_form_of(sch, product)
    return form if isinstance(form, NotApplicable) else tiled(sch, product, form, target)


def tiled(
    sch: Schedule, found: Contraction, form: MatrixForm, target: Target
) -> Schedule | NotApplicable:
    """Schedule a contraction as a product of matrices, in the first tile that it may have.

    Tiles for tensor cores come first, where they have the operands' dtype.
    """

    def schedule(attempt: Schedule, way: _Way) -> None:
        bring_into_form(attempt, found.main, form)
        way.schedule(attempt)
        schedule_rest(attempt, target)
        way.grid.apply(attempt, way.tile)

    ways = ((way, partial(schedule, way=way)) for way in _ways(sch, found, form, target))
    return first_lowered(sch, ways, target, "no tile fits the GPU")


class _Way(NamedTuple):
    """A tile, the grid for it, and what schedules it."""

    tile: Tile
    grid: Grid
    schedule: partial[None]

    def __str__(self) -> str:
        options = {k: v for k, v in self.schedule.keywords.items() if k not in _NOT_TOLD}
        return f"{self.tile}, {self.grid}, {options}"


def _ways(sch: Schedule, found: Contraction, form: MatrixForm, target: Target) -> Iterator[_Way]:
    """Yield ways to schedule a product in matrix form, the best first."""
    limits, name, main = limits_of(target), found.block.name, found.main
    sizes = Sizes.of(found, form)
    size = max(dtypes.bytes_of(load.buffer.dtype) for load in found.loads)
    lacking = why_not_tensor_cores(sch, main, target)
    cores = () if lacking else (True, False)
    for on_cores in sch.choices.preferring(f"{name}.tensor_cores", cores) if cores else (False,):
        if not on_cores:
            break
        yield from _warpgroup_ways(sch, found, form, target)
        tiles = tensor_core_tiles(sizes, target, size)
        for tile, grid in _in_turn(sch, name, "tensor_core_tile", tiles):
            for ahead in sch.choices.preferring(f"{name}.ahead", AHEAD):
                schedule = partial(
                    schedule_tensor_core_tiles, main=main, tile=tile, limits=limits, ahead=ahead
                )
                yield _Way(tile, grid, schedule)
    plain = simt_tiles(sizes, target, size)
    for choice, grid in _in_turn(sch, name, "tile", plain):
        for staged in sch.choices.preferring(f"{name}.staged", (True, False)):
            schedule = partial(schedule_tiles, main=main, tile=choice, limits=limits, staged=staged)
            yield _Way(choice, grid, schedule)


def _in_turn(
    sch: Schedule, name: str, key: str, tiles: Sequence[Ranked[Any]], *others: None
) -> Iterator[tuple[Any, Grid]]:
    """Yield tiles and their grids, the best first; a search may prefer others."""
    grids = {item.tile: item.grids for item in tiles}
    for tile in sch.choices.preferring(f"{name}.{key}", [*grids, *others])[:_ATTEMPTS]:
        options = sch.choices.preferring(f"{name}.{key}.grid", grids.get(tile, [Grid()]))
        # One block for each tile is possible where any grid is.
        for grid in options[: options.index(Grid()) + 1]:
            yield tile, grid


def _warpgroup_ways(
    sch: Schedule, found: Contraction, form: MatrixForm, target: Target
) -> Iterator[_Way]:
    """Yield ways on Hopper's warpgroups, the best first."""
    name, main = found.block.name, found.main
    if why := why_not_warpgroups(sch, main, target):
        logger.debug("%s: %s", sch.choices.function, why)
        return
    sizes = Sizes.of(found, form)
    size = dtypes.bytes_of(found.loads[0].buffer.dtype)
    tiles = warpgroup_tiles(sizes, target, size)
    if TENSOR_MAPS.value():
        tiles = [item for item in tiles if item.tile.goes_by_maps]
    for tile, grid in _in_turn(sch, name, "warpgroup_tile", tiles, None):
        if tile is None:
            return
        options = (True, False) if TENSOR_MAPS.value() else (False, True)
        ways = sch.choices.preferring(
            f"{name}.tensor_maps", options if tile.goes_by_maps else (False,)
        )
        # Not instead of copies by threads that are impossible, unless maps are asked for.
        for maps in ways[: ways.index(False) + 1]:
            if maps:
                yield from _ways_by_maps(sch, found, sizes, tile, target)
                continue
            schedule = partial(
                schedule_warpgroup_tiles, main=main, tile=tile, limits=limits_of(target)
            )
            yield _Way(tile, grid, schedule)


def _ways_by_maps(
    sch: Schedule, found: Contraction, sizes: Sizes, tile: WarpgroupTile, target: Target
) -> Iterator[_Way]:
    """Yield ways to fetch operands by tensor maps: clusters, blocks in turn, where sums leave."""
    name, size = found.block.name, dtypes.bytes_of(found.loads[0].buffer.dtype)
    last = [found.main, *found.consumers][-1]
    # From registers, threads side by side fill sectors with results of 4 bytes.
    whole = dtypes.bytes_of(sch.get(last).writes[0].buffer.dtype) >= _WHOLE_SECTORS
    best = rank_clusters(tile, (sizes.m, sizes.n, sizes.batch), target, size)
    clusters = sch.choices.preferring(f"{name}.cluster", best)
    for cluster in clusters[: clusters.index(ALONE) + 1]:
        grids = grids_by_maps(tile, sizes, cluster, target, in_turn=whole)
        grids = sch.choices.preferring(f"{name}.turns", grids)
        for grid in grids[: grids.index(Grid()) + 1]:
            # A producer can only go on where consumers meet at no barrier of the block.
            leaving = (True,) if grid.blocks is not None else (whole, not whole)
            for direct in sch.choices.preferring(f"{name}.from_registers", leaving):
                schedule = partial(
                    schedule_warpgroup_tiles,
                    main=found.main,
                    tile=tile,
                    limits=limits_of(target),
                    tensor_maps=True,
                    cluster=cluster,
                    from_registers=direct,
                )
                yield _Way(tile, grid, schedule)
