"""Rules for GPUs, most specific first.

- ``GEMV``, ``LowBatchGEMV``: products of a matrix with one vector or a few, read as vectors.
- ``Matmul``, ``Convolution``: tiles of products in shared memory and registers.
- ``Depthwise``: windows of a channel each, and pooling: several results in a thread's registers.
- ``Transpose``: elementwise steps that turn an operand, through shared memory.
- ``Reduction``: one reduction, shared by the threads of a warp or block.
- ``RMSNorm``: norms by a sum of squares.
- ``GeneralReduction``: chains of reductions over the same rows (softmax, norms), in one kernel.
- ``Fallback``: anything else: every block a kernel of its own.

A rule of the folder that isn't listed is inserted by its ``before``.
"""

from __future__ import annotations

from tilewright.dlight.gpu.convolution import Convolution
from tilewright.dlight.gpu.depthwise import Depthwise
from tilewright.dlight.gpu.fallback import Fallback
from tilewright.dlight.gpu.gemv import GEMV, LowBatchGEMV
from tilewright.dlight.gpu.general_reduction import GeneralReduction
from tilewright.dlight.gpu.matmul import Matmul
from tilewright.dlight.gpu.reduction import Reduction
from tilewright.dlight.gpu.rms_norm import RMSNorm
from tilewright.dlight.gpu.transpose import Transpose
from tilewright.scheduling import ScheduleRule, joined
from tilewright.support.folder import classes_in

__all__ = [
    "Convolution",
    "Depthwise",
    "Fallback",
    "GEMV",
    "GeneralReduction",
    "LowBatchGEMV",
    "Matmul",
    "RMSNorm",
    "Reduction",
    "Transpose",
    "rules",
]


def rules() -> tuple[ScheduleRule, ...]:
    """All GPU rules in the order in which they are tried, most specific first."""
    products = (GEMV(), LowBatchGEMV(), Matmul(), Convolution())
    moves = (Depthwise(), Transpose())
    listed = (*products, *moves, Reduction(), RMSNorm(), GeneralReduction(), Fallback())
    return joined(listed, _FOUND.values())


_FOUND = classes_in(__name__, ScheduleRule)
globals().update(_FOUND)
