"""Products with few results and long sums (split-k): several blocks share each tile's sums.

::

    sums[b, m, n] = sum over k          parts[s, b, m, n] = sum over the s-th part of k
                                        sums[b, m, n]     = sum over s of parts, and what follows

The product of the parts is a batch of products, which any tile computes; a second, small kernel
adds the parts up. That is worth it where tiles are fewer than processors: estimated, in clocks,
beside other grids of the product itself (``grids``).
"""

from __future__ import annotations

from typing import Any

from tilewright.ir import dtypes
from tilewright.scheduling.contraction import Contraction, contraction_of, longest
from tilewright.scheduling.gpu import roofs
from tilewright.scheduling.gpu.grids import (
    LAUNCH_CLOCKS,
    SHORTEST,
    Ranked,
    Sizes,
    simt_tiles,
    tensor_core_tiles,
    warpgroup_tiles,
)
from tilewright.scheduling.gpu.limits import limits_of
from tilewright.scheduling.gpu.matrix_form import MatrixForm, extents_of
from tilewright.scheduling.gpu.reduction import bind_shared, shapes_of
from tilewright.scheduling.gpu.tensor_core_tile import why_not_tensor_cores
from tilewright.scheduling.gpu.warpgroup_tile import why_not_warpgroups
from tilewright.scheduling.rule import NotApplicable
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir.schedule import Schedule, others_after

_PARTS = (1, 2, 4, 8, 16)


def part_options(sch: Schedule, found: Contraction, form: MatrixForm, target: Target) -> list[int]:
    """Return how many parts the sums of a product may have, the fastest number first."""
    length = longest(found.steps)
    sizes = [extents_of(found.block, form, role) for role in "mnbk"]
    if length is None or length.extent is None or None in sizes:
        return [1]
    # Parts are whole rows of what tensor cores take, where the whole is.
    unit = 64 if length.extent % 64 == 0 else 1
    fitting = [
        parts
        for parts in _PARTS
        if parts == 1
        or (length.extent % (parts * unit) == 0 and length.extent // parts >= SHORTEST)
    ]
    m, n, batch, k = (size or 1 for size in sizes)

    def clocks(parts: int) -> float:
        if parts == 1:
            return _clocks(sch, found, Sizes.of(found, form), target)
        own = _clocks(sch, found, Sizes(m, n, batch * parts, None), target) * k / parts
        moved = 2 * parts * m * n * batch * dtypes.bytes_of(found.store.buffer.dtype)
        processors = limits_of(target).processors
        return own + moved / (roofs.L2_BYTES_PER_CLOCK * processors) + LAUNCH_CLOCKS

    best = min(fitting, key=clocks)
    return sch.choices.preferring(f"{found.block.name}.parts", others_after(best, fitting))


def _clocks(sch: Schedule, found: Contraction, sizes: Sizes, target: Target) -> float:
    """Clocks of the best tile in its best grid; for each step if ``sizes`` have no depth."""
    size = max(dtypes.bytes_of(load.buffer.dtype) for load in found.loads)
    ranked: list[Ranked[Any]] = []
    if not why_not_warpgroups(sch, found.main, target):
        ranked = warpgroup_tiles(sizes, target, size)
    if not ranked and not why_not_tensor_cores(sch, found.main, target):
        ranked = tensor_core_tiles(sizes, target, size)
    if not ranked:
        ranked = simt_tiles(sizes, target, size)
    return ranked[0].clocks if ranked else 0.0


def split_sums(
    sch: Schedule, found: Contraction, parts: int, target: Target
) -> Contraction | NotApplicable:
    """Divide the longest reduced axis, and bind what joins the parts; return their product.

    Raises ``ScheduleError`` if a primitive refuses.
    """
    axis = longest(found.steps)
    assert axis is not None, "there is something to divide"
    outer, _ = sch.split(axis.loop, [parts, None])
    made = sch.rfactor(outer, 0)
    joined = contraction_of(sch, found.main)
    if isinstance(joined, NotApplicable):
        return joined
    name, limits = joined.block.name, limits_of(target)
    for shape in shapes_of(sch, name, joined.spatial, joined.steps, False, limits):
        attempt = sch.copy()
        try:
            spatial, steps = joined.spatial, joined.steps
            bind_shared(attempt, found.main, spatial, steps, shape, False, joined.consumers)
        except ScheduleError:
            continue
        sch.become(attempt)
        return contraction_of(sch, made)
    return NotApplicable("no shape of threads joins the parts")
