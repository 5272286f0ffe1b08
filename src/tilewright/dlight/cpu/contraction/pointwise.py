"""Pointwise convolutions: neighbouring pixels are lanes, across rows.

A 1 x 1 convolution of stride one is a matrix product: filters times channels by channels times
pixels. Pixels are contiguous in the input and in the result across rows of the image, so with rows
and columns fused, vectors are always full, the input is read and the result written in place, and
nothing is transposed. Filters are packed by rows of the register tile, when the program is built if
they are constant. A tile of pixels stays in the cache while all filters are applied to it.

The lines of all channels, whole images apart, map to few sets of the L1 cache and to a page each.
Where these don't hold them, or a tile isn't even two lines wide, so that each comes alone and
unforeseen, they are copied, two tiles at a time if the image has an even number; if the epilogue
reads other images, it reads and writes several tiles of a row at a time. Wider tiles of an image
from far caches that are read in place are fetched while the one before is computed, and so are
pixels of few channels before they are copied.

Of a small image much of the last tile may be empty. Then filters are lanes, as in other products
(``tiled_reduction``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.arith import Analyzer
from tilewright.dlight.cpu.contraction.form import Form, Nest, sum_in_registers
from tilewright.dlight.cpu.contraction.joined_axes import REUSED, join_pixels
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

# Vectors of a tile along the pixels: with more, fewer filters fit the registers. One more where
# fewer filters are left over then, so that the whole is so many times as fast.
_VECTORS, _CLEARLY = 2, 1.015
# Fewer filters than these per tile leave the multiply-add units waiting for loads; with fewer tiles
# than these in an image, the last one, which is cut off, costs too much. On one core there may be
# fewer vectors of pixels, where tiles are narrow: the last one is small.
_LEAST_ROWS, _LEAST_TILES, _LEAST_NARROW = 4, 16, 6
# Where the last pixels make narrow tiles slower than this, filters had better be the lanes.
_FULL = 0.9
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
            if _fits_beside(tile, together, found, target):
                sch.annotate(shared, PREFETCH_NEXT, 4)
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
    known = height and width and height * width
    product = _Product(found, filters, known or None, target)
    vectors = sch.choices.choose("pointwise.vectors", others_after(product.width(), (1, 2, 3, 4)))
    ranked = product.ranked(vectors)
    rows = sch.choices.choose("pointwise.rows", [tile.rows for tile in ranked])
    tile = next(tile for tile in ranked if tile.rows == rows)
    narrow = _is_narrow(tile.columns, found)
    few = narrow and target.num_cores == 1
    least = _LEAST_NARROW * product.lanes if few else _LEAST_TILES * tile.columns
    if rows < _LEAST_ROWS or (known and known < least):
        return NotApplicable("too few filters or pixels")
    if few and filters >= REUSED and product.fullness(tile) < _FULL:
        return NotApplicable("the last pixels take too long: filters fill the lanes better")
    if _image_bytes(found) > _MOST_OF_CACHE * target.l2_bytes and not narrow:
        return NotApplicable("the image is too large to be read pixel by pixel")
    return tile


@dataclass(frozen=True)
class _Product:
    """What tiles are chosen for: the numbers of filters and pixels, if these are known."""

    found: Contraction
    filters: int
    pixels: int | None
    target: Target

    @property
    def lanes(self) -> int:
        return self.target.vector_lanes(max(8, element_bits(self.found.block)))

    def width(self) -> int:
        """The vectors of a tile's pixels: more than usual if clearly fewer filters are left."""
        usual, wider = (self.ranked(vectors)[0] for vectors in (_VECTORS, _VECTORS + 1))
        able = wider.rows >= _LEAST_ROWS and _is_narrow(wider.columns, self.found)
        better = able and wider.score > _CLEARLY * usual.score
        return (wider if better else usual).columns // self.lanes

    def ranked(self, vectors: int) -> list[Tile]:
        """Tiles of so many vectors of pixels, by the share of the peak."""
        columns = vectors * self.lanes
        most = max(1, (tile_registers(self.target) - 1 - vectors) // vectors)
        pixels = self.pixels or columns
        done = self.filters * pixels / (self.lanes * self.target.costs.multiply_adds)
        tiles = [Tile(rows, columns) for rows in range(most, 0, -1)]
        scored = [replace(t, score=done / self._cycles(t, self.filters, pixels)) for t in tiles]
        return sorted(scored, key=lambda tile: tile.score, reverse=True)

    def fullness(self, tile: Tile) -> float:
        """The share of the cycles that an image would take if its last tile was full."""
        pixels = self.pixels or tile.columns
        whole = self._cycles(tile, tile.rows, tile.columns) * pixels / tile.columns
        return whole / self._cycles(tile, tile.rows, pixels)

    def _cycles(self, tile: Tile, filters: int, pixels: int) -> float:
        """Cycles of a step in all tiles of filters and pixels, the last of which are cut off."""
        count, more = divmod(pixels, tile.columns)
        spent = count * self._column(tile.rows, filters, tile.columns)
        return spent + self._column(tile.rows, filters, more) if more else spent

    def _column(self, rows: int, filters: int, columns: int) -> float:
        """The same for so many pixels, in tiles of so many filters."""
        count, more = divmod(filters, rows)
        spent = count * self._step(rows, columns)
        if not more:
            return spent
        return (spent + self._step(more, columns)) / self.target.costs.cut_rows

    def _step(self, rows: int, columns: int) -> float:
        """Cycles of a step in a tile, which waits for pixels that are read in place."""
        costs, channels = self.target.costs, work_of(self.found.steps)
        vectors = columns // self.lanes + bin(columns % self.lanes).count("1")
        slab = columns * dtypes.bytes_of(self.found.loads[0].dtype) * channels
        far = 2 * slab > self.target.l1_bytes and not _is_narrow(columns, self.found)
        wait = costs.slab_wait * vectors if far else 0.0
        return max(chain_cycles(costs), step_cycles(rows, vectors, costs)) + wait


def _image_bytes(found: Contraction) -> int:
    """The size of the image; 0 if it comes with the call."""
    return size_of(found.loads[0].buffer) or 0


def _is_narrow(columns: int, found: Contraction) -> bool:
    """Whether so many pixels are less than two cache lines."""
    return columns * dtypes.bytes_of(found.loads[0].dtype) < 2 * _LINE


def _fits_beside(tile: Tile, together: int, found: Contraction, target: Target) -> bool:
    """Whether the L1 cache holds narrow tiles that are copied, and those that come next."""
    size = dtypes.bytes_of(found.loads[0].dtype) * work_of(found.steps)
    slab = tile.columns * together * size
    return _is_narrow(tile.columns, found) and 2 * slab <= target.l1_bytes


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
    narrow = _is_narrow(tile.columns, found)
    if not narrow and not _is_evicted(tile, found, target):
        return 0
    image, reads = found.loads[0].buffer, 0
    for rv in found.consumers:
        buffers = {load.buffer for load in loads_of(sch.get(rv))} - {found.store.buffer}
        reads += sum(size_of(buffer) or 0 for buffer in buffers if buffer.ndim == image.ndim)
    far = _image_bytes(found) + reads > target.l2_bytes
    if not (far and narrow) and (as_int(found.store.buffer.shape[1]) or 1) < target.costs.copy_uses:
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
