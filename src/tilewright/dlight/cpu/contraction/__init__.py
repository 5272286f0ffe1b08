"""Contractions on CPUs: sums of products, and other reductions that use what they read often.

``scheduling.contraction`` describes them. All forms do the same then: a tile of results stays in
registers while steps of the reduction pass, and what the steps read lies in the order in which they
read it. ``register_tile`` says how large a tile is, ``plan`` which axes it lies along, ``packing``
lays operands out, ``form`` puts loops in order. What is left to a form is where it applies, and
what it does otherwise:

- ``winograd``: the stages of Winograd convolutions, fused over groups of tiles. It comes before the
  forms that inline: transforms of transforms are large formulas.
- ``dot_product``: int8, int16, bf16 operands: dot instructions, register tiles; what follows the
  sums is in ``dot_epilogue``.
- ``grouped_reduction``: sums of scaled sums (weights quantised by groups).
- ``promoted_operand``: 16-bit floats: converted once, then the forms that follow.
- ``blocked_images``: convolutions and windows of images with channels in blocks.
- ``pointwise``: 1 x 1 convolutions with pixels, across rows, as lanes.
- ``matrix_vector``: matrices used once: streams of rows at the memory's speed.
- ``strided_axes``: grouped and transposed convolutions, taken apart for the forms that follow.
- ``tiled_reduction``: anything with reuse (matmul, convolution); ``tile_order`` decides how tiles
  go, ``image_axes`` and ``padded_taps`` are what images need besides.
- ``sliding_window``: small windows without other reuse (depthwise convolution, pooling).
"""

from __future__ import annotations

from tilewright.dlight.cpu.contraction.blocked_images import BlockedConvolution, BlockedWindow
from tilewright.dlight.cpu.contraction.dot_product import DotProductTile
from tilewright.dlight.cpu.contraction.grouped_reduction import GroupedReduction
from tilewright.dlight.cpu.contraction.matrix_vector import MatrixVector
from tilewright.dlight.cpu.contraction.plan import Plan, rank_plans
from tilewright.dlight.cpu.contraction.pointwise import PointwiseConvolution
from tilewright.dlight.cpu.contraction.promoted_operand import PromotedOperand
from tilewright.dlight.cpu.contraction.sliding_window import SlidingWindow
from tilewright.dlight.cpu.contraction.strided_axes import StridedAxes
from tilewright.dlight.cpu.contraction.tiled_reduction import TiledReduction, schedule_plan
from tilewright.dlight.cpu.contraction.winograd import Winograd
from tilewright.scheduling import ScheduleRule

__all__ = [
    "BlockedConvolution",
    "BlockedWindow",
    "DotProductTile",
    "GroupedReduction",
    "MatrixVector",
    "Plan",
    "PointwiseConvolution",
    "PromotedOperand",
    "StridedAxes",
    "SlidingWindow",
    "TiledReduction",
    "Winograd",
    "forms",
    "rank_plans",
    "schedule_plan",
]


def forms() -> tuple[ScheduleRule, ...]:
    """All forms in the order in which they are tried, most specific first."""
    plain = (
        BlockedConvolution(),
        BlockedWindow(),
        PointwiseConvolution(),
        MatrixVector(),
        StridedAxes(),
        TiledReduction(),
    )
    narrow = (DotProductTile(), GroupedReduction(), PromotedOperand(*plain))
    return (Winograd(), *narrow, *plain, SlidingWindow())
