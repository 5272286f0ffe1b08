"""Axes of symbolic size that are iterated as one: the rows of ``[batch, length, width]``.

A tile takes rows along one axis only. Along either of two axes of unknown size there may be few
rows, and most of a tile empty; all of them together are enough. Axes are joined where whatever
depends on them holds their elements one after another, so that the joined axis has one stride.
"""

from __future__ import annotations

from tilewright.scheduling import Contraction, NotApplicable, contraction_of, depends
from tilewright.scheduling.cpu import Axis, are_contiguous, are_equal, fused_indices
from tilewright.tir import BufferLoad, BufferStore
from tilewright.tir.schedule import Schedule


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
