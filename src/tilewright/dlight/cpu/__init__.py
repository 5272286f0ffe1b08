"""Rules for CPUs, most specific first.

- ``Winograd``: the stages of Winograd convolutions, fused over groups of tiles. It comes before the
  rules that inline: transforms of transforms are large formulas.
- ``Scan``: running sums and products, and sorts that no kernel is for: rows in parallel.
- ``DotProductTile``: contractions of int8, int16, bf16 operands: dot instructions, register tiles.
- ``GroupedReduction``: sums of scaled sums (weights quantised by groups).
- ``PromotedOperand``: contractions of 16-bit floats: converted once, then the rules that follow.
- ``QuotientAxes``: grouped and transposed convolutions, taken apart for the two rules that follow.
- ``BlockedConvolution``: convolutions of images with channels in blocks.
- ``BlockedWindow``: depthwise convolution and pooling of such images.
- ``MatrixVector``: matrices used once: streams of rows at the memory's speed.
- ``PointwiseConvolution``: 1 x 1 convolutions with pixels, across rows, as lanes.
- ``TiledReduction``: contractions with reuse (matmul, convolution): register tiles.
- ``SlidingWindow``: small windows without other reuse (depthwise convolution, pooling).
- ``RowWise``: chains that share rows (softmax, norms): one pass over rows, everything in cache.
- ``Resize``: images of another size.
- ``Fallback``: anything else: every block parallel and vectorised on its own.

A rule of the folder that isn't listed joins where its ``before`` says.
"""

from __future__ import annotations

from tilewright.dlight.cpu.blocked_convolution import BlockedConvolution
from tilewright.dlight.cpu.blocked_window import BlockedWindow
from tilewright.dlight.cpu.convolution import PointwiseConvolution
from tilewright.dlight.cpu.dot_product import DotProductTile
from tilewright.dlight.cpu.fallback import Fallback
from tilewright.dlight.cpu.grouped_reduction import GroupedReduction
from tilewright.dlight.cpu.matrix_vector import MatrixVector
from tilewright.dlight.cpu.promoted_operand import PromotedOperand
from tilewright.dlight.cpu.quotient_axes import QuotientAxes
from tilewright.dlight.cpu.resize import Resize
from tilewright.dlight.cpu.row_wise import RowWise
from tilewright.dlight.cpu.scan import Scan
from tilewright.dlight.cpu.sliding_window import SlidingWindow
from tilewright.dlight.cpu.tiled_reduction import Plan, TiledReduction, rank_plans, schedule_plan
from tilewright.dlight.cpu.winograd import Winograd
from tilewright.scheduling import ScheduleRule, joined
from tilewright.support.folder import classes_in

__all__ = [
    "Fallback",
    "BlockedConvolution",
    "BlockedWindow",
    "DotProductTile",
    "GroupedReduction",
    "MatrixVector",
    "Plan",
    "PointwiseConvolution",
    "QuotientAxes",
    "Resize",
    "RowWise",
    "Scan",
    "SlidingWindow",
    "TiledReduction",
    "PromotedOperand",
    "Winograd",
    "rank_plans",
    "rules",
    "schedule_plan",
]


def rules() -> tuple[ScheduleRule, ...]:
    """All CPU rules in the order in which they are tried, most specific first."""
    contractions = (
        BlockedConvolution(),
        BlockedWindow(),
        PointwiseConvolution(),
        MatrixVector(),
        QuotientAxes(),
        TiledReduction(),
    )
    listed = (
        Scan(),
        Winograd(),
        DotProductTile(),
        GroupedReduction(),
        PromotedOperand(*contractions),
        *contractions,
        SlidingWindow(),
        RowWise(),
        Resize(),
        Fallback(),
    )
    return joined(listed, _FOUND.values())


_FOUND = classes_in(__name__, ScheduleRule)
globals().update(_FOUND)
