"""Pointwise convolutions: neighbouring pixels are lanes, across rows.

A 1 x 1 convolution of stride one is a matrix product: filters times channels by channels times
pixels. Pixels are contiguous in the input and in the result across rows of the image, so with rows
and columns fused, vectors are always full, the input is read and the result written in place, and
nothing is transposed. Filters are packed by rows of the register tile, when the program is built if
they are constant. A tile of pixels stays in the cache while all filters are applied to it.

The lines of all channels, whole images apart, map to few sets of the L1 cache and to a page each.
Where these don't hold them, or a tile is only a line wide, so that each comes alone and unforeseen,
they are copied, two tiles at a time if the image has an even number; if the epilogue reads other
images, it reads and writes several tiles of a row at a time. Wider tiles of an image from far
caches that are read in place are fetched while the one before is computed.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.arith import Analyzer
from tilewright.dlight.cpu.contraction.form import Form, Nest, sum_in_registers
from tilewright.dlight.cpu.contraction.image_axes import join_pixels
from tilewright.dlight.cpu.contraction.packing import Panels, copy_operand, pack_operand
from tilewright.dlight.cpu.contraction.register_tile import (
    Tile,
    chain_cycles,
    rows_in_cache,
    step_cycles,
    tile_registers,
)
from tilewright.ir import Add, Expr, Var, as_int, dtypes
from tilewright.scheduling import Contraction, NotApplicable, others_after
from tilewright.scheduling.cpu import (
    element_bits,
    fused_epilogue,
    loads_of,
    parallelize,
    size_of,
    work_of,
)
from tilewright.target import Target
from tilewright.tir.attrs import PREFETCH_NEXT
from tilewright.tir.schedule import Schedule

# Vectors of a tile along the pixels: with more, fewer filters fit the registers.
_VECTORS = 2
# Fewer filters than these per tile leave the multiply-add units waiting for loads; with fewer tiles
# than these in an image, the last one, which is cut off, costs too much. Tiles of a line may be
# fewer on one core: the last one is small.
_LEAST_ROWS, _LEAST_TILES, _LEAST_LINES = 4, 16, 3
# How much larger than the second-level cache an image may be: pixels of one channel after the other
# lie far apart, and what comes from memory is waited for.
_MOST_OF_CACHE = 2
# How many times the lines that the L1 cache holds come from the next one without being waited for.
_HIDDEN = 4
# Bytes of a cache line; tiles of pixels that are copied together, and where others are read too.
_LINE, _PAIR, _TOGETHER = 64, 2, 4


class PointwiseConvolution(Form):
    """Applies to 1 x 1 convolutions of stride one and their epilogue."""

    def tile(self, sch: Schedule, found: Contraction, target: Target) -> tuple[()] | NotApplicable:
        """Fuse rows and columns, tile pixels and filters, fuse the epilogue."""
        if not found.has_one_epilogue:
            return NotApplicable("what follows is more than an epilogue")
        tile = _choose(sch, found, target)
        if isinstance(tile, NotApplicable):
            return tile
        main, width = found.main, found.block.iter_vars[3].dom.extent
        together = _tiles_copied(sch, found, tile, target)
        epilogue = fused_epilogue(sch, main, found.consumers)
        pack_operand(sch, main, found.loads[1].buffer, Panels(0, tile.rows), target)
        copies = [copy_operand(sch, main, found.loads[0].buffer)] if together else []
        join_pixels(sch, copies, main, epilogue, width)
        batch, row, pixel, *steps = sch.get_loops(main)
        rows, row = sch.split(row, [None, tile.rows])
        shared, *pixels, pixel = sch.split(
            pixel, [None, *([together] if together > 1 else ()), tile.columns]
        )
        nest = Nest([batch, shared, rows, *pixels], steps, [row, pixel])
        sum_in_registers(sch, main, epilogue, nest)
        if not together and _image_bytes(found) > target.costs.columns_share * target.l2_bytes:
            sch.annotate(shared, PREFETCH_NEXT, 2)
        for copy in copies:
            sch.compute_at(copy, shared, preserve_unit_loops=True)
            sch.vectorize(sch.get_loops(copy)[-1])
        images = as_int(sch.get(batch).extent) or 1
        shared = batch if images >= target.num_cores else shared
        parallelize(sch, [shared], target, target.costs.parallel_work)
        return ()


# ---- choosing -------------------------------------------------------------------------------


def _choose(sch: Schedule, found: Contraction, target: Target) -> Tile | NotApplicable:
    """Choose how many filters and pixels a tile has."""
    if not is_pointwise(found):
        return NotApplicable("no 1 x 1 convolution of stride one")
    _, filters, height, width = (as_int(item.dom.extent) for item in found.block.iter_vars[:4])
    if not filters or 0 in (height, width):
        return NotApplicable("filters are symbolic, or sizes zero")
    vectors = sch.choices.choose("pointwise.vectors", others_after(_VECTORS, (1, 3, 4)))
    pixels = vectors * target.vector_lanes(max(8, element_bits(found.block)))
    most = (tile_registers(target) - 1 - vectors) // vectors
    slab = pixels * dtypes.bytes_of(found.loads[0].dtype) * work_of(found.steps)
    wait = target.costs.slab_wait * vectors if 2 * slab > target.l1_bytes else 0.0
    cycles = {n: _cycles(filters, n, vectors, wait, target) for n in range(most, 0, -1)}
    rows = sch.choices.choose("pointwise.rows", sorted(cycles, key=lambda n: cycles[n]))
    known = height and width and height * width
    tile, size = Tile(rows, pixels), _image_bytes(found)
    few = _is_line(tile, found) and target.num_cores == 1
    least = _LEAST_LINES if few else _LEAST_TILES
    if rows < _LEAST_ROWS or (known and known < least * pixels):
        return NotApplicable("too few filters or pixels")
    if size > _MOST_OF_CACHE * target.l2_bytes and not _is_line(tile, found):
        return NotApplicable("the image is too large to be read pixel by pixel")
    return tile


def _cycles(filters: int, rows: int, vectors: int, wait: float, target: Target) -> float:
    """Cycles of a step for all filters, in tiles of so many, the last of which may be cut off.

    Each tile has to ``wait`` for its pixels.
    """
    costs = target.costs
    tiles, more = divmod(filters, rows)
    spent = tiles * (max(chain_cycles(costs), step_cycles(rows, vectors, costs)) + wait)
    if not more:
        return spent
    last = max(chain_cycles(costs), step_cycles(more, vectors, costs)) + wait
    return (spent + last) / costs.cut_rows


def _image_bytes(found: Contraction) -> int:
    """The size of the image; 0 if it comes with the call."""
    return size_of(found.loads[0].buffer) or 0


def _is_line(tile: Tile, found: Contraction) -> bool:
    """Whether a tile's pixels fit in a cache line."""
    return tile.columns * dtypes.bytes_of(found.loads[0].dtype) <= _LINE


def _is_evicted(tile: Tile, found: Contraction, target: Target) -> bool:
    """Whether the lines of a tile of pixels evict each other before the next filters read them."""
    extents = [as_int(extent) for extent in found.loads[0].buffer.shape]
    if None in extents[2:]:
        return False
    _, channels, height, width = (extent or 0 for extent in extents)
    size = dtypes.bytes_of(found.loads[0].dtype)
    return channels > _HIDDEN * rows_in_cache(height * width * size, target, tile.columns * size)


def _tiles_copied(sch: Schedule, found: Contraction, tile: Tile, target: Target) -> int:
    """How many tiles of pixels are copied at a time; 0 if they are read in place.

    So they are from a near cache, and whole vectors from any, for few filters. If the epilogue
    reads other images from far caches, several tiles are written contiguously.
    """
    line = _is_line(tile, found)
    if not line and not _is_evicted(tile, found, target):
        return 0
    image, reads = found.loads[0].buffer, 0
    for rv in found.consumers:
        buffers = {load.buffer for load in loads_of(sch.get(rv))} - {found.store.buffer}
        reads += sum(size_of(buffer) or 0 for buffer in buffers if buffer.ndim == image.ndim)
    far = _image_bytes(found) + reads > target.l2_bytes
    if not (far and line) and (as_int(found.store.buffer.shape[1]) or 1) < target.costs.copy_uses:
        return 0
    pixels = (as_int(image.shape[2]) or 1) * (as_int(image.shape[3]) or 1)
    tiles = -(-pixels // tile.columns)
    most = 2 * _TOGETHER if pixels % tile.columns == 0 else 2
    divisors = [count for count in range(1, most) if tiles % count == 0]
    goal = _TOGETHER if far and reads else _PAIR
    wanted = min(divisors, key=lambda count: abs(count - goal))
    return sch.choices.choose("pointwise.copied", others_after(wanted, (*divisors, 0)))


def is_pointwise(found: Contraction) -> bool:
    """Whether a block is ``y[n, f, h, w] += x[n, c, h, w] * k[f, c]``, unit axes aside.

    The input must be as large as the result: else neighbouring pixels aren't contiguous.
    """
    spatial = [item.var for item in found.block.iter_vars if item.kind == "spatial"]
    steps = [item for item in found.block.iter_vars if item.kind != "spatial"]
    channels = [item.var for item in steps if as_int(item.dom.extent) != 1]
    if len(spatial) != 4 or len(found.loads) != 2 or len(channels) != 1:
        return False
    if [item.var for item in found.block.iter_vars[:4]] != spatial:
        return False
    unit = {item.var for item in steps if item.var is not channels[0]}
    data, weight = found.loads
    n, f, h, w = spatial
    return (
        _reads(found.store.indices, [n, f, h, w], set())
        and _reads(data.indices, [n, channels[0], h, w], unit)
        and _reads(weight.indices[:2], [f, channels[0]], unit)
        and all(_reads([index], [None], unit) for index in weight.indices[2:])
        and all(
            map(Analyzer().can_prove_equal, data.buffer.shape[2:], found.store.buffer.shape[2:])
        )
    )


def _reads(indices: Sequence[Expr], wanted: Sequence[Var | None], unit: set[Var]) -> bool:
    """Whether indices are these variables, except for variables that are always zero."""
    if len(indices) != len(wanted):
        return False
    for index, var in zip(indices, wanted):
        terms: list[Expr] = [index]
        found: list[Expr] = []
        while terms:
            item = terms.pop()
            if isinstance(item, Add):
                terms += [item.a, item.b]
            elif item not in unit and as_int(item) != 0:
                found.append(item)
        if found != ([] if var is None else [var]):
            return False
    return True
