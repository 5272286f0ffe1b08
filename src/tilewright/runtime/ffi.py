"""The only module that imports ``tvm_ffi``.

``import tvm_ffi`` imports PyTorch if it is installed, which takes over a second and isn't needed:
PyTorch's tensors come with a DLPack exchange table. So PyTorch is hidden during that import, unless
the program has already loaded it (or ``tvm_ffi``).
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, cast


def _import_without_torch() -> ModuleType:
    hide = "torch" not in sys.modules and "tvm_ffi" not in sys.modules
    if hide:
        # None makes `import torch` raise ImportError, which tvm_ffi is prepared for.
        sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        import tvm_ffi
    finally:
        if hide and sys.modules.get("torch", ...) is None:
            del sys.modules["torch"]
    return cast(ModuleType, tvm_ffi)


if TYPE_CHECKING:
    import tvm_ffi
else:
    tvm_ffi = _import_without_torch()

# What TVM's `runtime` takes from there, too.
DataType = tvm_ffi.dtype
DataTypeCode = tvm_ffi._dtype.DataTypeCode
Object = tvm_ffi.Object
ShapeTuple = tvm_ffi.Shape
convert = tvm_ffi.convert

__all__ = ["DataType", "DataTypeCode", "Object", "ShapeTuple", "convert", "tvm_ffi"]
