"""Memory as operators, inserted by ``CallTIRRewrite`` and ``StaticPlanBlockMemory``.

``memory.empty`` allocates a tensor that nothing else shares; ``memory.workspace`` is a function's
single block of scratch memory, ``memory.alloc_tensor`` a tensor inside it; ``memory.view`` is the
same memory under another shape.
"""

from __future__ import annotations

from tilewright.relax.registry import Prim, Shape, Tensor, operator
from tilewright.relax.struct_info import StructInfo, TensorStructInfo
from tilewright.support.errors import VerifyError


@operator("memory.empty", effect="update")
def empty(shape: Shape, dtype: str = "float32") -> StructInfo:
    """Fresh memory for a tensor."""
    return TensorStructInfo(shape, dtype)


@operator("memory.workspace", effect="update")
def workspace(size: Prim) -> StructInfo:
    """The function's scratch memory, in bytes, aligned to 64."""
    return TensorStructInfo((size,), "uint8")


@operator("memory.alloc_tensor", effect="update")
def alloc_tensor(storage: Tensor, offset: Prim, shape: Shape, dtype: str = "float32") -> StructInfo:
    """A tensor that starts at byte ``offset`` of the workspace.

    Raises ``VerifyError`` if the workspace doesn't consist of bytes.
    """
    if storage.dtype != "uint8":
        raise VerifyError(f"storage must be uint8, got {storage.dtype}")
    return TensorStructInfo(shape, dtype)


@operator("memory.view")
def view(x: Tensor, shape: Shape) -> StructInfo:
    """The same memory under another shape."""
    return TensorStructInfo(shape, x.dtype)
