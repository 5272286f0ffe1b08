"""Sorting and top-k of rows: networks of vector minima and maxima."""

from __future__ import annotations

from tilewright.kernels.cpu.sort.kernel import SortKernel

__all__ = ["KERNEL", "SortKernel"]

KERNEL = SortKernel()
