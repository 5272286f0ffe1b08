"""Running sums, products and extrema on GPUs."""

from __future__ import annotations

from tilewright.kernels.gpu.scan.kernel import ScanKernel

__all__ = ["KERNEL", "ScanKernel"]

KERNEL = ScanKernel()
