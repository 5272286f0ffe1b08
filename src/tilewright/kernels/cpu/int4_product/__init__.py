"""Products with 4-bit weights, by dot instructions for bytes."""

from __future__ import annotations

from tilewright.kernels.cpu.int4_product.kernel import Int4Dot

__all__ = ["Int4Dot"]
