"""Sums of products of small numbers, as dot instructions take them."""

from __future__ import annotations

from tilewright.dlight.cpu.blocks import stores_of
from tilewright.ir import Add, Cast, Mul
from tilewright.tir import Block, BufferLoad
from tilewright.tir.intrin import DotProduct, dot_product_of


def dot_operands(block: Block) -> tuple[DotProduct, BufferLoad, BufferLoad] | None:
    """The two factors of a sum of products that there is an intrinsic for."""
    stores = stores_of(block)
    if block.init is None or len(stores) != 1 or not isinstance(stores[0].value, Add):
        return None
    store = stores[0]
    total, product = store.value.a, store.value.b  # type: ignore[attr-defined]
    if isinstance(total, Mul):
        total, product = product, total
    if not isinstance(total, BufferLoad) or total.buffer is not store.buffer:
        return None
    if not isinstance(product, Mul):
        return None
    factors = [side.value if isinstance(side, Cast) else side for side in (product.a, product.b)]
    a, b = factors
    if not isinstance(a, BufferLoad) or not isinstance(b, BufferLoad) or a.buffer is b.buffer:
        return None
    dot = dot_product_of(a.dtype, b.dtype, store.buffer.dtype)
    return None if dot is None else (dot, a, b)
