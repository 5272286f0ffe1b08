"""Padding by a tensor's own elements, as ONNX and PyTorch have it."""

from __future__ import annotations

from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.values import const


def extended(x: RelaxExpr, axis: int, before: int, after: int, mode: str) -> RelaxExpr:
    """Continue an axis at both ends by its own elements: ``wrap``, ``edge`` or ``reflect``."""
    if not (before or after):
        return x
    extent = x.shape[axis]
    places: RelaxExpr = op.arange(-before, extent + after, 1, "int64")
    size = op.reshape(op.arange(extent, extent + 1), ())
    one = const(1, "int64")
    if mode == "wrap":
        places = op.floor_mod(places, size)
    elif mode == "edge":
        places = op.clip(places, const(0, "int64"), op.subtract(size, one))
    else:
        # Back and forth between the ends, which are not repeated.
        last = op.subtract(size, one)
        period = op.maximum(op.multiply(last, const(2, "int64")), one)
        around = op.floor_mod(places, period)
        places = op.minimum(around, op.subtract(period, around))
        places = op.minimum(places, last)
    made: RelaxExpr = op.take(x, places, axis)
    return made
