"""Dot products of a few neighbours: what CPUs have instructions for.

``dot_u8s8s32`` and its kin add the products of ``width`` neighbouring small numbers to one wide
one. The implementation is the operator ``dot_accumulate``, by itself one result; loops around it
can be vectorised, and the code generator takes the target's instruction or widens the operands. So
these fit every CPU, and every vector length.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.script import parse
from tilewright.tir.function import PrimFunc
from tilewright.tir.tensor_intrin import TensorIntrin


@dataclass(frozen=True)
class DotProduct:
    """One intrinsic: the dtypes of operands and sum, and how many neighbours it takes.

    ``scope`` is where the sum is kept.
    """

    a: str
    b: str
    sum: str
    width: int
    scope: str = "local"

    @property
    def name(self) -> str:
        """The name it is registered by."""
        kinds = "".join(_SHORT[dtype] for dtype in (self.a, self.b, self.sum))
        return f"dot_{kinds}" + ("" if self.scope == "local" else f"_{self.scope}")


_SHORT = {
    "uint8": "u8", "int8": "s8", "int16": "s16", "int32": "s32", "bfloat16": "bf16",
    "float32": "f32",
}  # fmt: skip

DOT_PRODUCTS = tuple(
    DotProduct(a, b, total, width, scope)
    for a, b, total, width in (
        ("uint8", "int8", "int32", 4),
        ("int8", "int8", "int32", 4),
        ("uint8", "uint8", "int32", 4),
        ("int16", "int16", "int32", 2),
        ("bfloat16", "bfloat16", "float32", 2),
    )
    for scope in ("local", "global")
)


def dot_product_of(a: str, b: str, total: str, scope: str = "local") -> DotProduct | None:
    """Return the intrinsic for operands ``a`` and ``b``, in either order, and this sum."""
    for item in DOT_PRODUCTS:
        if sorted((item.a, item.b)) == sorted((a, b)) and (item.sum, item.scope) == (total, scope):
            return item
    return None


def _header(item: DotProduct) -> str:
    return f'''
from tilewright.script import tir as T

@T.prim_func
def main(
    A: T.Buffer(({item.width},), "{item.a}"),
    B: T.Buffer(({item.width},), "{item.b}"),
    C: T.Buffer((1,), "{item.sum}", scope="{item.scope}"),
):
    with T.block("root"):
        T.reads(C[0:1], A[0:{item.width}], B[0:{item.width}])
        T.writes(C[0:1])'''


def _description(item: DotProduct) -> PrimFunc:
    made: PrimFunc = parse(
        f"""{_header(item)}
        for k in range({item.width}):
            with T.block("dot"):
                vk = T.axis.reduce({item.width}, k)
                C[0] = C[0] + T.Cast("{item.sum}", A[vk]) * T.Cast("{item.sum}", B[vk])
"""
    )
    return made


def _implementation(item: DotProduct) -> PrimFunc:
    lanes = f"T.Ramp(0, 1, {item.width})"
    made: PrimFunc = parse(
        f"""{_header(item)}
        C[0] = T.dot_accumulate(C[0], A[{lanes}], B[{lanes}])
"""
    )
    return made


for _item in DOT_PRODUCTS:
    TensorIntrin.register(_item.name, _description(_item), _implementation(_item))
