"""Resizing of one axis of a graph tensor, for ``image.resize`` and the importers.

Where both extents are known, places and weights are constants. Otherwise they are tables that the
graph computes first, by functions of their own: a look-up at a long formula would take long.
"""

from __future__ import annotations

import numpy as np

from tilewright.relax import ops as op
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.transform.annotate_pattern import OPAQUE
from tilewright.relax.values import const
from tilewright.topi.resampling import (
    Extents,
    Filter,
    index_table,
    known_taps,
    weight_table,
    weighted_taps,
)


def resized(
    builder: BlockBuilder, x: RelaxExpr, number: int, axis: Extents, how: Filter
) -> RelaxExpr:
    """Resize the axis of that ``number``; a filter that doesn't pick wants floats of its dtype."""
    index: RelaxExpr
    weight: RelaxExpr
    if not axis.is_known:
        index = builder.emit_te(index_table, axis, how, primfunc_attrs=OPAQUE)
        if how.picks:
            return op.take(x, index, number, "fast")
        weight = builder.emit_te(weight_table, axis, how, x.dtype, primfunc_attrs=OPAQUE)
    else:
        found = known_taps(axis, how)
        if how.picks:
            return op.take(x, const(np.ascontiguousarray(found.index[:, 0])), number, "fast")
        extent = axis.have
        if extent == axis.want and np.array_equal(found.matrix(extent), np.eye(extent)):
            return x
        index = const(np.ascontiguousarray(found.index))
        weight = const(np.ascontiguousarray(found.weight), x.dtype)
    return builder.emit_te(
        weighted_taps, x, index, weight, axis=number, primfunc_name_hint="resize"
    )
