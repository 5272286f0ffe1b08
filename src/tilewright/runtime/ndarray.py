"""Tensors by the names of TVM's earlier versions: ``tilewright.nd``.

x = tvm.nd.array(np.ones(4, "float32"), tvm.cpu())
x.numpy()
"""

from __future__ import annotations

from tilewright.runtime.device import cpu, cuda, device
from tilewright.runtime.tensor import Tensor, empty, from_dlpack
from tilewright.runtime.tensor import tensor as array

NDArray = Tensor
gpu = cuda

__all__ = ["NDArray", "array", "cpu", "cuda", "device", "empty", "from_dlpack", "gpu"]
