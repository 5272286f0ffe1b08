"""Axes of images: which ones contractions fuse, split, and keep close in memory.

A convolution's tile takes pixels of one row of the image, and its reduction goes through channels.
That is inefficient where rows are short, and where consecutive steps read from different memory
pages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.dlight.cpu.contraction.register_tile import MOST_ROWS
from tilewright.ir import Expr, FloorDiv, FloorMod, Var, as_int
from tilewright.scheduling import Contraction, Reduction
from tilewright.scheduling.cpu import Axis, loads_of
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV


def join_rows(sch: Schedule, found: Contraction, column: Axis | None) -> int | None:
    """Fuse the rows and columns of a small image, whose rows fill only half a tile.

    Tiles of several rows read panels less often. Returns the number of elements of the rows in a
    tile, ``None`` if nothing is changed.
    """
    main, store, consumers = found.main, found.store, found.consumers
    above = store.indices[max(-2, -store.buffer.ndim)]
    row = next((axis for axis in found.axes if axis.var is above), None)
    if column is None or row is None or store.indices[-1] is not column.var:
        return None
    extents = [as_int(extent) for extent in store.buffer.shape[-2:]]
    if (
        [row.extent, column.extent] != extents
        or column.extent is None
        or row.extent in (None, 1)
        or 2 * column.extent > MOST_ROWS
        or found.along(row) != found.along(column)
        or phases_of(sch, found)
        or any(_extents(sch, rv) != [as_int(e) for e in store.buffer.shape] for rv in consumers)
    ):
        return None
    width = column.extent
    places = [item.var for item in found.block.iter_vars]
    first, second = places.index(row.var), places.index(column.var)

    rank = store.buffer.ndim
    epilogue = consumers[0] if consumers else sch.cache_write(main, 0, "global")
    sch.transform_layout(main, ("write", 0), _joined(rank - 2, rank - 1, width))
    sch.transform_block_layout(main, _joined(first, second, width))
    sch.transform_block_layout(epilogue, _joined(rank - 2, rank - 1, width))
    return min(MOST_ROWS // width, row.extent or 1) * width


def join_pixels(
    sch: Schedule, copies: Sequence[BlockRV], main: BlockRV, epilogue: BlockRV, width: int
) -> None:
    """Fuse rows and columns, the third and fourth dimensions of results and copies."""
    joined = _joined(2, 3, width)
    for rv in (*copies, main):
        sch.transform_layout(rv, ("write", 0), joined)
    for rv in (*copies, main, epilogue):
        sch.transform_block_layout(rv, joined)


def _joined(a: int, b: int, width: int) -> Callable[..., tuple[Expr, ...]]:
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
