"""Sampling of images at given places, for all frontends: several tensor functions in a graph."""

from __future__ import annotations

import math

from tilewright.ir import as_int
from tilewright.relax import ops as op
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.transform.annotate_pattern import OpPattern
from tilewright.support.errors import VerifyError
from tilewright.tir.attrs import OP_PATTERN
from tilewright.topi.sampling import Sampling

#: Attributes of a tensor function whose result is read from memory, not computed again by others.
OPAQUE = {OP_PATTERN: int(OpPattern.OPAQUE)}


def grid_sample(
    builder: BlockBuilder, x: RelaxExpr, grid: RelaxExpr, mode: str, padding: str, align: bool
) -> RelaxExpr:
    """Values of images ``[N, C, …]`` at the places ``[N, …, axes]``, from -1 to 1.

    ``mode`` is ``nearest``, ``linear`` or, for two axes, ``cubic``; ``padding`` is ``zeros``,
    ``border`` or ``reflection``.

    Raises ``VerifyError`` if the grid's shape doesn't fit, or an extent isn't known.
    """
    count = x.ndim - 2
    if count < 1 or grid.ndim != x.ndim or as_int(grid.shape[-1]) != count:
        raise VerifyError(
            f"the grid needs {count} numbers for each place, its shape is {list(grid.shape)}"
        )
    if mode == "cubic" and count != 2:
        raise VerifyError("cubic sampling is of two axes")
    extents = [as_int(extent) for extent in x.shape[2:]]
    if None in extents:
        raise VerifyError(f"extents of the image must be constant, got {list(x.shape[2:])}")
    sizes = [extent or 0 for extent in extents]
    sampling = Sampling(sizes, mode, padding, align)
    kind = x.dtype if x.dtype in ("float32", "float64") else "float32"
    grid = grid if grid.dtype == kind else op.astype(grid, kind)

    def table(function: object, *operands: RelaxExpr) -> RelaxExpr:
        return builder.emit_te(function, *operands, primfunc_attrs=OPAQUE)  # type: ignore[arg-type]

    places = table(sampling.places, grid)
    index = table(sampling.index, places)
    flat = op.reshape(x, (x.shape[0], x.shape[1], math.prod(sizes)))
    if mode == "nearest":
        return builder.call_te(sampling.nearest, flat, index, primfunc_name_hint="grid_sample")
    weight = table(sampling.weight, places)
    return builder.call_te(sampling.weighted, flat, index, weight, primfunc_name_hint="grid_sample")
