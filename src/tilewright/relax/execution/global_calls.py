"""What compiled graphs call in Python: results of global functions, ``print``, assertions.

The arrays of tensors on a GPU are copies, made when what was launched before is done.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from tilewright.runtime import from_dlpack, get_global_func, numpy_dtype, register_global_func
from tilewright.support.errors import RunError

_CUDA = 2  # DLPack's number


def call_into(name: str, count: int, *args: object) -> None:
    """Call a global function and copy what it returns into the last ``count`` tensors.

    Raises ``RunError`` if the result is of another dtype or shape.
    """
    inputs, outputs = args[:-count], args[-count:]
    result = get_global_func(name)(*inputs)
    items = result if isinstance(result, (tuple, list)) else (result,)
    if len(items) != count:
        raise RunError(f"{name} must return {count} tensors, got {len(items)}")
    for item, output in zip(items, outputs):
        if not hasattr(item, "__dlpack__") and not isinstance(item, (np.ndarray, np.generic)):
            raise RunError(f"{name} must return tensors, got {type(item).__name__}")
        array, target = _array(item), _array(output)
        if array.shape != target.shape or array.dtype != target.dtype:
            raise RunError(
                f"{name} must return {target.dtype.name}{list(target.shape)}, "
                f"got {array.dtype.name}{list(array.shape)}"
            )
        target[...] = array
        copy_back(output, target)


def copy_back(tensor: Any, array: np.ndarray[Any, Any]) -> None:
    """Copy what was written into a tensor's array back, if the tensor is on a GPU."""
    kind, _ = tensor.__dlpack_device__()
    if kind == _CUDA:
        made = from_dlpack(tensor)
        made.copyfrom(array.view(numpy_dtype(str(made.dtype))).reshape(made.shape))


def show(format: str, *values: object) -> None:
    """Print values."""
    shown = list(map(_shown, values))
    sys.stdout.write((format.format(*shown) if format else " ".join(map(str, shown))) + "\n")


def assert_tensor(condition: object, format: str, *values: object) -> None:
    """Raise ``RunError`` unless the condition, one truth value, holds."""
    if not _array(condition).item():
        shown = map(_shown, values)
        raise RunError(format.format(*shown) if format else "an assertion of the graph failed")


def _array(value: object) -> Any:
    return value if isinstance(value, (np.ndarray, np.generic)) else from_dlpack(value).numpy()


def _shown(value: object) -> object:
    return _array(value) if hasattr(value, "__dlpack__") else value


for _name, _function in (
    ("relax.call_into", call_into),
    ("relax.print", show),
    ("relax.assert_tensor", assert_tensor),
):
    register_global_func(_name, _function, override=True)
