"""Tensor intrinsics that the package brings; importing registers them."""

from __future__ import annotations

from tilewright.tir.intrin import cuda
from tilewright.tir.intrin.dot import DOT_PRODUCTS, DotProduct, dot_product_of

__all__ = ["cuda", "DOT_PRODUCTS", "DotProduct", "dot_product_of"]
