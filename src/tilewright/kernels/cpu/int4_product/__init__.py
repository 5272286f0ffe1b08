"""Products with 4-bit weights, by dot instructions for bytes."""

from __future__ import annotations

from tilewright.kernels.cpu.int4_product.kernel import Int4ProductKernel

__all__ = ["KERNEL", "Int4ProductKernel"]

KERNEL = Int4ProductKernel()
