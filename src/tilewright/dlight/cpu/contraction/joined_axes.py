"""Axes of results that are iterated as one, and images laid out for it.

A tile takes rows of a product, or pixels of a convolution, along one axis only. Along the columns
of a small image there are few; along either of two axes of unknown size (``[batch, length,
width]``) there may be. Such axes are joined, where whatever depends on them holds their elements
one after another. A reduction through channels that lie apart reads from another memory page at
each step: these are put close to each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.dlight.cpu.contraction.register_tile import MOST_ROWS, Tile
from tilewright.ir import Expr, FloorDiv, FloorMod, Var, as_int
from tilewright.scheduling import (
    Contraction,
    NotApplicable,
    Reduction,
    contraction_of,
    depends,
    dimensions_of,
    longest,
)
from tilewright.scheduling.cpu import (
    Axis,
    are_contiguous,
    are_equal,
    coefficient_of,
    element_bits,
    fused_indices,
    loads_of,
    parallelize,
    size_of,
    work_of,
)
from tilewright.target import Target
from tilewright.tir import BufferLoad, BufferStore
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV

#: Fewest results that share a pixel for copying those that are read to pay.
REUSED = 64
# Vectors of sums in a tile whose multiply-adds hide how slowly pixels are read.
_HIDING = 16
# Channels of pixels that are copied together: cache lines in flight.
_CHANNELS = 16


def join_symbolic_axes(sch: Schedule, found: Contraction) -> Contraction:
    """Fuse neighbouring axes of a result of which one is symbolic; describe what was made."""
    while len(found.consumers) <= 1 and (pair := _pair(sch, found)) is not None:
        _join(sch, found, *pair)
        again = contraction_of(sch, found.main)
        assert not isinstance(again, NotApplicable), again.reason
        found = again
    return found


def _pair(sch: Schedule, found: Contraction) -> tuple[Axis, Axis] | None:
    """Two axes that are contiguous together in all operands, the result, and the epilogue."""
    shape = found.store.buffer.shape
    for rv in found.consumers:
        extents = [item.dom.extent for item in sch.get(rv).iter_vars]
        if len(extents) != len(shape) or not all(map(are_equal, extents, shape)):
            return None
    for outer, inner in zip(found.axes, found.axes[1:]):
        if outer.is_reduce or inner.is_reduce or (outer.extent and inner.extent):
            continue
        if outer.extent == 1 or inner.extent == 1:
            continue
        if all(depends(load, outer) for load in found.loads):
            continue  # no operand is reused along them
        accesses: tuple[BufferLoad | BufferStore, ...] = (found.store, *found.loads)
        if all(_contiguous(access, outer, inner, found) for access in accesses):
            return outer, inner
    return None


def _contiguous(
    access: BufferLoad | BufferStore, outer: Axis, inner: Axis, found: Contraction
) -> bool:
    """Whether an access depends on neither axis, or on both by two dimensions in succession."""
    whole = {item.var: item.dom.extent for item in found.block.iter_vars}
    joined = are_contiguous(access, outer.var, inner.var, whole[inner.var])
    return access is not found.store if joined is None else joined


def _join(sch: Schedule, found: Contraction, outer: Axis, inner: Axis) -> None:
    main, places = found.main, [item.var for item in found.block.iter_vars]
    width = found.block.iter_vars[places.index(inner.var)].dom.extent
    dim = list(found.store.indices).index(outer.var)
    epilogue = found.consumers[0] if found.consumers else sch.cache_write(main, 0, "global")
    sch.transform_layout(main, ("write", 0), fused_indices(dim, width))
    sch.transform_block_layout(main, fused_indices(places.index(outer.var), width))
    sch.transform_block_layout(epilogue, fused_indices(dim, width))


def join_rows(sch: Schedule, found: Contraction, column: Axis | None) -> int | None:
    """Fuse the rows and columns of a small image, whose rows fill only half a tile.

    Tiles of several rows read panels less often. Returns the number of elements of the rows in a
    tile, ``None`` if nothing is changed.
    """
    row = _row_of(sch, found, column)
    if (
        column is None
        or row is None
        or column.extent is None
        or 2 * column.extent > MOST_ROWS
        or found.along(row) != found.along(column)
    ):
        return None
    _join_image(sch, found, row, column)
    return min(MOST_ROWS // column.extent, row.extent or 1) * column.extent


def _row_of(sch: Schedule, found: Contraction, column: Axis | None) -> Axis | None:
    """The axis of an image's rows, if all of results and epilogue can be fused with columns."""
    store = found.store
    row = next((axis for axis in found.axes if axis.var in store.indices[-2:-1]), None)
    if column is None or row is None or store.indices[-1] is not column.var:
        return None
    extents = [as_int(extent) for extent in store.buffer.shape]
    if (
        [row.extent, column.extent] != extents[-2:]
        or column.extent is None
        or row.extent in (None, 1)
        or phases_of(sch, found)
        or any(_extents(sch, rv) != extents for rv in found.consumers)
    ):
        return None
    return row


def _join_image(sch: Schedule, found: Contraction, row: Axis, column: Axis) -> None:
    """Fuse rows and columns of a result, in the block that sums up and in its epilogue."""
    main, rank, width = found.main, found.store.buffer.ndim, column.extent or 1
    places = [item.var for item in found.block.iter_vars]
    first, second = places.index(row.var), places.index(column.var)
    epilogue = found.consumers[0] if found.consumers else sch.cache_write(main, 0, "global")
    sch.transform_layout(main, ("write", 0), _joined(rank - 2, rank - 1, width))
    sch.transform_block_layout(main, _joined(first, second, width))
    sch.transform_block_layout(epilogue, _joined(rank - 2, rank - 1, width))


def join_pixels(
    sch: Schedule, copies: Sequence[BlockRV], main: BlockRV, epilogue: BlockRV, width: Expr | int
) -> None:
    """Fuse rows and columns, the third and fourth dimensions of results and copies."""
    joined = _joined(2, 3, width)
    for rv in (*copies, main):
        sch.transform_layout(rv, ("write", 0), joined)
    for rv in (*copies, main, epilogue):
        sch.transform_block_layout(rv, joined)


def _joined(a: int, b: int, width: Expr | int) -> Callable[..., tuple[Expr, ...]]:
    """Fuse the indices at positions ``a`` and ``b`` into one, at the former's position."""

    def indices(*i: Expr) -> tuple[Expr, ...]:
        pairs = enumerate(i)
        return tuple(i[a] * width + i[b] if d == a else item for d, item in pairs if d != b)

    return indices


def lay_channels_close(sch: Schedule, found: Contraction) -> bool:
    """In a copy that is made anyway, store what a row of an image reads of all channels together.

    In a copy of whole images each step of the reduction would read from another page. Returns
    whether a copy's layout was changed.
    """
    reduced, changed = {axis.var for axis in found.steps}, False
    for rv in sch.get_producers(found.main):
        written = sch.get(rv).writes[0].buffer
        loads = [load for load in found.loads if load.buffer is written]
        if len(loads) != 1 or len(sch.get_consumers(rv)) != 1 or written in sch.mod["main"].buffers:
            continue
        dims = range(written.ndim - 1)
        channels = [d for d in dims if loads[0].indices[d] in reduced]
        order = [*(d for d in dims if d not in channels), *channels, written.ndim - 1]
        if order != list(range(written.ndim)):
            sch.transform_layout(rv, ("write", 0), _permutation(order))
            changed = True
    return changed


@dataclass(frozen=True)
class PixelsApart:
    """An image whose channels, which a 1 x 1 convolution sums up, lie far apart.

    For each tile of filters it uses a part of each cache line, and reads the lines again. With a
    stride of two, it ``skips`` three quarters of the pixels and half of each line.
    """

    found: Contraction
    image: BufferLoad
    row: Axis
    column: Axis
    skips: bool

    def is_hidden(self, tile: Tile, target: Target) -> bool:
        """Whether the multiply-adds of a tile hide the lines that are read again.

        Those of tiles that fill 32 registers do (measured on Zen 4), but not if most of each line
        is skipped and the image is from far caches (measured on an Emerald Rapids).
        """
        lanes = target.vector_lanes(element_bits(self.found.block))
        size = size_of(self.image.buffer) or 0
        near = not self.skips or size <= target.costs.columns_share * target.l2_bytes
        return near and tile.rows * tile.columns >= _HIDING * lanes

    def pays(self, before: Tile, after: Tile, target: Target) -> bool:
        """Whether tiles of a copy are faster, with what making it costs.

        Without a stride, whole lines are copied.
        """
        costs, uses = target.costs, work_of(self.found.reusing(self.image))
        worth = uses / (uses + (costs.gather_uses if self.skips else costs.copy_uses))
        return after.score * worth > before.score * (1.0 if self.skips else costs.scattered)

    def copy(self, sch: Schedule, target: Target) -> None:
        """Copy the pixels that are read, channels innermost; fuse rows and columns of the result.

        A few channels are copied at a time, so that what is read stays in the cache.
        """
        found, row, column = self.found, self.row, self.column
        buffers = [region.buffer for region in sch.get(found.main).reads]
        copied = sch.reindex(found.main, ("read", buffers.index(self.image.buffer)))
        used = [axis for axis in found.axes if depends(self.image, axis)]
        joined = _joined(used.index(row), used.index(column), column.extent or 1)
        sch.transform_layout(copied, ("write", 0), joined)
        _join_image(sch, found, row, column)
        loops = sch.get_loops(copied)
        longest_step = longest([axis for axis in used if axis.is_reduce])
        if longest_step is None:
            return
        channels = loops[used.index(longest_step)]
        outer, inner = sch.split(channels, [None, _CHANNELS])
        sch.reorder(outer, *(loop for loop in loops if loop is not channels), inner)
        sch.vectorize(inner)
        parallelize(sch, [outer], target, work_of(used))


def pixels_apart(sch: Schedule, found: Contraction) -> PixelsApart | None:
    """The image whose channels lie apart, if many results share each of its pixels."""
    last = found.store.indices[-1:]
    column = next((axis for axis in found.places if axis.var in last), None)
    row = _row_of(sch, found, column)
    if row is None or column is None:
        return None
    reading = found.along(column)
    if len(reading) != 1:
        return None
    (image,) = reading
    if image.buffer in found.constants or work_of(found.reusing(image)) < REUSED:
        return None
    steps = [_step_along(image, axis, found) for axis in (row, column)]
    if steps != [1, 1] and min(steps) < 2:
        return None
    return PixelsApart(found, image, row, column, skips=steps != [1, 1])


def _step_along(load: BufferLoad, axis: Axis, found: Reduction) -> int:
    """How far an axis moves along a dimension that it alone indexes; 0 if it doesn't."""
    dims = dimensions_of(load, axis)
    others = [a for a in found.axes if a is not axis and a.extent != 1]
    if len(dims) != 1 or any(dims[0] in dimensions_of(load, other) for other in others):
        return 0
    return abs(coefficient_of(load.indices[dims[0]], axis.var) or 0)


def _permutation(order: Sequence[int]) -> Callable[..., tuple[Expr, ...]]:
    def permuted(*i: Expr) -> tuple[Expr, ...]:
        return tuple(i[d] for d in order)

    return permuted


def _extents(sch: Schedule, rv: BlockRV) -> list[int | None]:
    return [as_int(item.dom.extent) for item in sch.get(rv).iter_vars]


def phases_of(sch: Schedule, reduction: Reduction) -> dict[int, int]:
    """Axes that the block's only consumer fuses: positions of quotients, and of remainders."""
    store, consumers = reduction.store, sch.get_consumers(reduction.main)
    if len(consumers) != 1:
        return {}
    variables: list[Expr] = [axis.var for axis in reduction.axes]
    places = {d: variables.index(v) for d, v in enumerate(store.indices) if v in variables}
    found: dict[int, int] = {}
    for load in loads_of(sch.get(consumers[0])):
        if load.buffer is not store.buffer:
            continue
        parts = {
            (type(item), item.a, as_int(item.b)): d
            for d, item in enumerate(load.indices)
            if isinstance(item, (FloorDiv, FloorMod)) and isinstance(item.a, Var) and d in places
        }
        for (kind, var, number), d in parts.items():
            rest = parts.get((FloorMod, var, number))
            if kind is FloorDiv and rest is not None and as_int(load.buffer.shape[rest]) == number:
                found[places[d]] = places[rest]
    return found
