"""Rules for CPUs, most specific first.

- ``Scan`` (``annotated_rows``): running sums and products, and sorts without a kernel: rows in
  parallel.
- ``RowStages`` (there, too): rows that are made in stages (Fourier transforms): all stages of a row
  together.
- ``TimeSteps``: loops over time: each step is scheduled like a function.
- ``contraction``: sums of products and windows, in many forms: tiles of results in registers.
- ``RowWise``: chains that share rows (softmax, norms): one pass over rows, everything in cache.
- ``Resize``: resized images.
- ``Fallback``: anything else: every block parallel and vectorised separately.

A rule of the folder that isn't listed is inserted by its ``before``. ``GEMV`` and ``Reduction`` are
TVM's names of ``MatrixVector`` and ``RowWise``.
"""

from __future__ import annotations

from tilewright.dlight.cpu.annotated_rows import RowStages, Scan
from tilewright.dlight.cpu.contraction import (
    BlockedConvolution,
    BlockedWindow,
    DotProductTile,
    GroupedReduction,
    MatrixVector,
    Plan,
    PointwiseConvolution,
    PromotedOperand,
    SlidingWindow,
    Strassen,
    StridedAxes,
    TiledReduction,
    Winograd,
    WinogradGradient,
    forms,
    rank_plans,
    schedule_plan,
)
from tilewright.dlight.cpu.fallback import Fallback
from tilewright.dlight.cpu.resize import Resize
from tilewright.dlight.cpu.row_wise import RowWise
from tilewright.dlight.cpu.time_steps import TimeSteps
from tilewright.scheduling import ScheduleRule, joined
from tilewright.support.folder import classes_in

__all__ = [
    "BlockedConvolution",
    "BlockedWindow",
    "DotProductTile",
    "Fallback",
    "GEMV",
    "GroupedReduction",
    "MatrixVector",
    "Plan",
    "PointwiseConvolution",
    "PromotedOperand",
    "Reduction",
    "Strassen",
    "StridedAxes",
    "Resize",
    "RowWise",
    "Scan",
    "SlidingWindow",
    "TiledReduction",
    "TimeSteps",
    "Winograd",
    "WinogradGradient",
    "rank_plans",
    "rules",
    "schedule_plan",
]

GEMV, Reduction = MatrixVector, RowWise


def rules() -> tuple[ScheduleRule, ...]:
    """All CPU rules in the order in which they are tried, most specific first."""
    listed = (Scan(), RowStages(), TimeSteps(), *forms(), RowWise(), Resize(), Fallback())
    return joined(listed, _FOUND.values())


_FOUND = classes_in(__name__, ScheduleRule)
globals().update(_FOUND)
