"""Sorting and top-k on GPUs: merge sort, in shared memory and then over it."""

from __future__ import annotations

from tilewright.kernels.gpu.sort.kernel import SortKernel

__all__ = ["KERNEL", "SortKernel"]

KERNEL = SortKernel()
