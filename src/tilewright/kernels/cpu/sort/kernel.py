"""Sorting by rule: recognised as ``topi`` defines it, replaced by a kernel for the lengths.

- whole rows: :mod:`.rows`, a network of vector minima and maxima;
- the first few of long rows: :mod:`.top_k`, which looks at most elements only once or twice.

What no kernel is for (places of float64 elements) runs as the definition, rows in parallel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tilewright import te
from tilewright.ir import (
    annotated,
    as_int,
    contains,
    pre_order,
    structural_equal,
)
from tilewright.kernels.cpu.sort.rows import Sorting, SortRows, SortTiles, key_bits
from tilewright.kernels.cpu.sort.top_k import TopK, TopKTiles
from tilewright.scheduling import NotApplicable, ScheduleRule
from tilewright.scheduling.cpu import PARALLEL_WORK
from tilewright.target import Target
from tilewright.tir import Block, PrimFunc, make_root_block
from tilewright.tir.schedule import KERNELS, Schedule
from tilewright.topi.sort import SORT, SortOptions, define_sort

ROWS, TOP_K = "sort_rows", "top_k"

# Rows that are worth more than sorting them, and how many elements are few.
_LONG_ROW, _MOST_WANTED = 512, 4096
_GROUPS_PER_ELEMENT = 2
# Elements of a row that threads share, if there are fewer rows than threads.
_SHARED_ROW = 1 << 17
_SEGMENT = 4096
# An extent that isn't known counts as that much.
_UNKNOWN = 64


class SortRule(ScheduleRule):
    """Applies to functions that are a sort, and nothing else."""

    def apply(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Put the kernel in; run rows in parallel."""
        sorting = read_sorting(sch.mod["main"])
        if isinstance(sorting, str):
            return NotApplicable(sorting)
        chosen = choose(sorting, target)
        name = "sort"
        if chosen is not None:
            name, options = chosen
            sch.use_kernel("root", name, options)
        loops = sch.get_loops(name)
        if loops:
            fused = sch.fuse(*loops)
            shares_rows = chosen is None or not chosen[1].get("is_shared")
            if shares_rows and target.num_cores > 1 and _work(sorting) >= PARALLEL_WORK:
                sch.parallel(fused)
        return sch


def _work(sorting: Sorting) -> int:
    known = (as_int(extent) for extent in sorting.x.shape)
    return 4 * math.prod(_UNKNOWN if n is None else n for n in known)


_has_sort = contains(annotated(SORT))


def read_sorting(func: PrimFunc) -> Sorting | str:
    """Read buffers and options from a function; or say why it is no sort."""
    if not _has_sort(func.body):
        return "the function is not one sort"
    blocks = [item for item in pre_order(func.body) if isinstance(item, Block)]
    found = [item for item in blocks if SORT in item.annotations]
    if len(found) != 1 or len(blocks) != 2 or not found[0].reads:
        return "the function is not one sort"
    options = SortOptions.from_annotation(found[0].annotations[SORT])
    outputs = [region.buffer for region in found[0].writes]
    x = found[0].reads[0].buffer
    if options.axis >= x.ndim:
        return f"{x!r} has no axis {options.axis} to sort"
    extent = as_int(x.shape[options.axis])
    if extent is not None and extent < (options.count or 0):
        return f"{x!r} has fewer than {options.count} elements to sort"
    wanted = 2 if options.returns == "both" else 1
    if len(outputs) != wanted or any(b not in func.buffers for b in (x, *outputs)):
        return "the sort isn't of arguments"
    values = outputs[0] if options.returns != "indices" else None
    indices = outputs[-1] if options.returns != "values" else None
    sorting = Sorting(x, values, indices, options)
    return sorting if _is_definition(func, sorting) else "the function is more or less than a sort"


def _is_definition(func: PrimFunc, sorting: Sorting) -> bool:
    """Whether a function is what ``topi`` defines for this operand and these options."""
    x = te.placeholder(sorting.x.shape, sorting.x.dtype, sorting.x.name)
    outputs = [item for item in (sorting.values, sorting.indices) if item is not None]
    tensors = {sorting.x: x, **dict(zip(outputs, define_sort(x, sorting.options)))}
    if set(func.buffers) != set(tensors):
        return False
    args = [
        tensors[func.buffer_map[param]] if param in func.buffer_map else param
        for param in func.params
    ]
    wanted = te.create_prim_func(args)
    return structural_equal(func.replace(attrs={}), wanted.replace(attrs={}))


# ---- choosing -----------------------------------------------------------------------------------


def choose(sorting: Sorting, target: Target) -> tuple[str, dict[str, Any]] | None:
    """Return the kernel's name and options for a sort; ``None`` if there is none."""
    few = top_k_tiles(sorting, target)
    if few is not None and few.fault(sorting) is None:
        return TOP_K, asdict(few)
    tiles = sort_tiles(sorting, target)
    return None if tiles.fault(sorting) else (ROWS, asdict(tiles))


def sort_tiles(sorting: Sorting, target: Target) -> SortTiles:
    """Tiles of half the registers; smaller ones for short rows. Threads share a few long rows."""
    lanes = target.vector_bits // key_bits(sorting)
    tile = max(lanes, target.vector_registers // 2)
    extent = as_int(sorting.extent)
    while extent is not None and tile > lanes and tile // 2 * lanes >= extent:
        tile //= 2
    rows = [as_int(n) for n in sorting.rows]
    few = None not in rows and math.prod(n or 0 for n in rows) < target.num_cores
    return SortTiles(target.vector_bits, tile, few and extent is not None and extent >= _SHARED_ROW)


def top_k_tiles(sorting: Sorting, target: Target) -> TopKTiles | None:
    """Some groups for each element that is wanted; ``None`` where a sort takes no longer."""
    lanes, count = target.vector_lanes(32), sorting.options.count
    extent = as_int(sorting.extent)
    tile = max(2, lanes // 2)
    if not count or count > _MOST_WANTED or (extent is not None and extent < _LONG_ROW):
        return None
    # They are sorted as 64-bit integers.
    few = tile * lanes // 2
    groups = -(-_GROUPS_PER_ELEMENT * count // few) * few
    if extent is not None and 2 * groups > extent:
        return None
    return TopKTiles(target.vector_bits, tile, groups, max(_SEGMENT, groups))


# ---- kernels ------------------------------------------------------------------------------------


@KERNELS.decorator(ROWS)
def rows(func: PrimFunc, options: Mapping[str, Any]) -> Block | str:
    """The network; options are the fields of ``SortTiles``."""
    sorting = read_sorting(func)
    if isinstance(sorting, str):
        return sorting
    tiles = SortTiles(**options)
    return tiles.fault(sorting) or make_root_block(SortRows(sorting, tiles).build()).block


@KERNELS.decorator(TOP_K)
def top_k(func: PrimFunc, options: Mapping[str, Any]) -> Block | str:
    """The first few; options are the fields of ``TopKTiles``."""
    sorting = read_sorting(func)
    if isinstance(sorting, str):
        return sorting
    tiles = TopKTiles(**options)
    return tiles.fault(sorting) or make_root_block(TopK(sorting, tiles).build()).block
