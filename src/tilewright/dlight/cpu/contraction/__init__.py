"""Contractions on CPUs: sums of products, and other reductions that reuse their operands.

``scheduling.contraction`` describes them. All forms have in common that a tile of results stays in
registers during the reduction, and operands are laid out in the order in which they are read.
``register_tile`` chooses the tile's size, ``plan`` its axes, ``packing`` lays out operands,
``form`` orders the loops. Each form defines where it applies, and its differences:

- ``winograd``: the stages of Winograd convolutions (``winograd_stages``), fused over groups of
  tiles; ``winograd_filters`` where filters come with the call, ``winograd_gradient`` for their
  gradients. They come before the forms that inline: transforms of transforms are large
  formulas.
- ``strassen``: the stages of Strassen's products, fused over groups of rows; before the others for
  the same reason.
- ``dot_product``: int8, int16, bf16 operands: dot instructions, register tiles; epilogues are in
  ``dot_epilogue``.
- ``grouped_reduction``: sums of scaled sums (weights quantised by groups).
- ``promoted_operand``: 16-bit floats: converted once, then the forms below.
- ``blocked_images``: convolutions and windows of images with channels in blocks.
- ``pointwise``: 1 x 1 convolutions with pixels, across rows, as lanes.
- ``matrix_vector``: matrices used once: rows are streamed at memory bandwidth.
- ``strided_axes``: grouped and transposed convolutions, decomposed for the forms below.
- ``tiled_reduction``: anything with reuse (matmul, convolution); ``tile_order`` orders the tiles,
  ``joined_axes`` makes one axis of several, ``padded_taps`` skips products with zeros of padding,
  ``scheduling.cpu.shared_work`` finds results that share arithmetic instead of operands.
- ``sliding_window``: small windows without other reuse (depthwise convolution, pooling, costs of
  shifted images).
"""

from __future__ import annotations

from tilewright.dlight.cpu.contraction.blocked_images import BlockedConvolution, BlockedWindow
from tilewright.dlight.cpu.contraction.dot_product import DotProductTile
from tilewright.dlight.cpu.contraction.form import Form
from tilewright.dlight.cpu.contraction.grouped_reduction import GroupedReduction
from tilewright.dlight.cpu.contraction.matrix_vector import MatrixVector
from tilewright.dlight.cpu.contraction.packing import Panels, lay_out, schedule_packing
from tilewright.dlight.cpu.contraction.plan import Plan, rank_plans
from tilewright.dlight.cpu.contraction.pointwise import PointwiseConvolution
from tilewright.dlight.cpu.contraction.promoted_operand import PromotedOperand
from tilewright.dlight.cpu.contraction.register_tile import MOST_ROWS
from tilewright.dlight.cpu.contraction.sliding_window import SlidingWindow
from tilewright.dlight.cpu.contraction.strassen import Strassen
from tilewright.dlight.cpu.contraction.strided_axes import StridedAxes
from tilewright.dlight.cpu.contraction.tiled_reduction import TiledReduction, schedule_plan
from tilewright.dlight.cpu.contraction.winograd import Winograd
from tilewright.dlight.cpu.contraction.winograd_gradient import WinogradGradient
from tilewright.scheduling import ScheduleRule

__all__ = [
    "BlockedConvolution",
    "BlockedWindow",
    "DotProductTile",
    "Form",
    "GroupedReduction",
    "MOST_ROWS",
    "MatrixVector",
    "Panels",
    "Plan",
    "PointwiseConvolution",
    "PromotedOperand",
    "Strassen",
    "StridedAxes",
    "SlidingWindow",
    "TiledReduction",
    "Winograd",
    "WinogradGradient",
    "forms",
    "lay_out",
    "rank_plans",
    "schedule_packing",
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
    return (Winograd(), WinogradGradient(), Strassen(), *narrow, *plain, SlidingWindow())
