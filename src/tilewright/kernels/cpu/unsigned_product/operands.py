"""Operands of sums of products for dot instructions."""

from __future__ import annotations

from tilewright.ir import Cast, Mul
from tilewright.tir import Block, BufferLoad
from tilewright.tir.analysis import match_reduction
from tilewright.tir.intrin import DotProduct, dot_product_of


def dot_operands(block: Block) -> tuple[DotProduct, BufferLoad, BufferLoad] | None:
    """The two factors of a sum of products that has an intrinsic."""
    found = match_reduction(block)
    if found is None or found.name != "sum" or not isinstance(found.values[0], Mul):
        return None
    product = found.values[0]
    factors = [side.value if isinstance(side, Cast) else side for side in (product.a, product.b)]
    a, b = factors
    if not isinstance(a, BufferLoad) or not isinstance(b, BufferLoad) or a.buffer is b.buffer:
        return None
    dot = dot_product_of(a.dtype, b.dtype, found.targets[0].dtype)
    return None if dot is None else (dot, a, b)
