"""The one place that imports ``tvm_ffi``.

``import tvm_ffi`` imports PyTorch wherever that is installed, for over a second, though it doesn't
need it: PyTorch's tensors bring a DLPack exchange table with them. So PyTorch is hidden for the
moment of that import, unless the program has loaded it (or ``tvm_ffi``) already.
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

__all__ = ["tvm_ffi"]
