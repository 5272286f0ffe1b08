"""The backend of ``torch.compile``. Needs the extra ``tilewright[torch]``.

    compiled = torch.compile(model, backend="tilewright")
    compiled = tilewright.torch.compile(model, mode="tune", work_dir="tuned", trials=500)

Forward and backward graphs are compiled; parameters are inputs, seen in place. PyTorch is imported
when a model is compiled, not with this package.
"""

from __future__ import annotations

from tilewright.torch.dynamo import backend, compile
from tilewright.torch.options import Options

__all__ = ["Options", "backend", "compile"]
