"""Convolutions of any layout as products of matrices whose operand is never built (implicit GEMM).

An element of the matrix of windows is read from the image as its tile is fetched, padding included.
"""

from __future__ import annotations

from tilewright.dlight.gpu.matmul import Matmul, has_windows
from tilewright.scheduling import Contraction


class Convolution(Matmul):
    """Applies to sums over windows and channels that mix channels."""

    def refuses(self, found: Contraction) -> str:
        """Say why a contraction is no convolution."""
        if not has_windows(found):
            return "no operand is read in windows"
        if not all(found.reusing(load) for load in found.loads):
            return "channels are not mixed"
        return ""
