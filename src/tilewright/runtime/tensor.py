"""Tensors as arguments of compiled functions.

Any DLPack object can be an argument; :class:`Tensor` adds what numpy lacks: aligned memory, calls
without a conversion, and every data type. It is a ``tvm_ffi.Tensor``, so every tvm-ffi host accepts
it too.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.runtime.device import DEVICE_TYPES, Device, cpu, device
from tilewright.runtime.device import device as parse_device
from tilewright.runtime.dlpack import (
    DLTensor,
    capsule,
    dlpack_dtype,
    dtype_name,
    numpy_capsule,
    numpy_dtype,
)
from tilewright.runtime.ffi import tvm_ffi
from tilewright.runtime.gpu import memory
from tilewright.support.errors import RunError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CUDA = 2  # DLPack's number

#: Memory of :func:`empty` starts at a multiple of this: a cache line, and the widest vector.
ALIGNMENT = 64


class _Memory:
    """Lends a tensor's memory to numpy, and keeps the tensor alive for as long as it is lent."""

    def __init__(self, tensor: Tensor, dtype: np.dtype[Any]) -> None:
        self._tensor = tensor
        strides = tuple(stride * dtype.itemsize for stride in tensor.strides)
        # numpy knows ml_dtypes' types only as bytes; the view in `numpy()` names them.
        self.__array_interface__ = {
            "version": 3,
            "shape": tensor.shape,
            "typestr": dtype.str if dtype.isbuiltin == 1 else f"|V{dtype.itemsize}",
            "strides": strides,
            "data": (tensor.data_ptr(), False),
        }


class Tensor(tvm_ffi.Tensor):  # type: ignore[misc]  # the base is a Cython class
    """An n-dimensional array on a device; made by :func:`empty`, :func:`tensor`, …"""

    __slots__ = ()

    @property
    def device(self) -> Any:
        """The device that holds it: ``tensor.device == cpu()``.

        Of kinds that no program here runs on it is tvm-ffi's.
        """
        kind, number = self.__dlpack_device__()
        return device(kind, number) if kind in DEVICE_TYPES.values() else super().device

    def numpy(self) -> NDArray[Any]:
        """Return a numpy array over the same memory; of a tensor on a GPU, a copy.

        Such a copy is made when the current stream is done with what it has so far.

        Raises ``RunError`` for other devices, and for tensors on a GPU that aren't compact.
        """
        kind, number = self.__dlpack_device__()
        if kind == _CUDA:
            made = np.empty(self.shape, numpy_dtype(str(self.dtype)))
            memory.download(_compact_address(self), made, number)
            return made
        if kind != 1:
            raise RunError(f"a tensor on {self.device} has no numpy view; copy it to the CPU first")
        dtype = numpy_dtype(str(self.dtype))
        if 0 in self.shape:
            return np.empty(self.shape, dtype)
        return np.asarray(_Memory(self, dtype)).view(dtype)

    def copyfrom(self, source_array: object) -> Tensor:
        """Copy what an array or tensor of the same shape and dtype holds into this one.

        Raises ``RunError`` if shape or dtype differ, or a tensor on a GPU isn't compact.
        """
        given: Any = source_array if _is_tensor(source_array) else np.asarray(source_array)
        have, want = ((tuple(item.shape), _name_of_dtype(item.dtype)) for item in (given, self))
        if have != want:
            raise RunError(
                f"can't copy: expected shape {want[0]} and dtype {want[1]}, got {have[0]} and "
                f"{have[1]}"
            )
        kind, number = self.__dlpack_device__()
        if kind != _CUDA:
            self.numpy()[...] = as_array(given)
        elif _is_on_gpu(given):
            tensor = from_dlpack(given)
            size = math.prod(self.shape) * numpy_dtype(want[1]).itemsize
            memory.copy(_compact_address(tensor), _compact_address(self), size, number)
        else:
            array = np.ascontiguousarray(as_array(given))
            memory.upload(array, _compact_address(self), number)
        return self

    def __setitem__(self, in_slice: Any, value: object) -> None:
        """Write elements: ``t[:] = array``; on a GPU all of them.

        Raises ``RunError`` for a part of a tensor on a GPU.
        """
        if self.__dlpack_device__()[0] != _CUDA:
            self.numpy()[in_slice] = as_array(value)
        elif in_slice is Ellipsis or (isinstance(in_slice, slice) and in_slice == slice(None)):
            wanted = numpy_dtype(str(self.dtype))
            given = value if _is_on_gpu(value) else as_array(value).astype(wanted, copy=False)
            self.copyfrom(given)
        else:
            raise RunError(f"of a tensor on {self.device} only all is written: t[:] = value")

    def copyto(self, target: Tensor | Device | str, mem_scope: str | None = None) -> Tensor:
        """Copy into a tensor, or into a new one on a device; return that."""
        if isinstance(target, (Device, str)):
            target = empty(self.shape, str(self.dtype), target, mem_scope)
        return target.copyfrom(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        array = self.numpy()
        if dtype is not None and np.dtype(dtype) != array.dtype:
            if copy is False:
                raise ValueError(f"a {dtype} array of a {array.dtype} tensor needs a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __repr__(self) -> str:
        shape = ", ".join(map(str, self.shape))
        return f"Tensor(({shape}), {str(self.dtype)!r}, {str(self.device)!r})"


_import_lock = threading.Lock()

# The class of what tvm_ffi makes is a setting of the process. Nobody has set another one: whoever
# gets a `Tensor` of ours gets a `tvm_ffi.Tensor` all the same.
if tvm_ffi.core._CLASS_TENSOR is tvm_ffi.Tensor:
    tvm_ffi.core._set_class_tensor(Tensor)


def is_native_class() -> bool:
    """Whether tvm_ffi makes tensors of our class."""
    return tvm_ffi.core._CLASS_TENSOR is Tensor


def from_dlpack(ext_tensor: object) -> Tensor:
    """Take over memory from a DLPack object, or a DLPack capsule, without a copy."""
    if tvm_ffi.core._CLASS_TENSOR is Tensor:
        return tvm_ffi.from_dlpack(ext_tensor)  # type: ignore[no-any-return]
    with _import_lock:
        before = tvm_ffi.core._CLASS_TENSOR
        tvm_ffi.core._set_class_tensor(Tensor)
        try:
            result: Tensor = tvm_ffi.from_dlpack(ext_tensor)
        finally:
            tvm_ffi.core._set_class_tensor(before)
    return result


def _check_device(place: Device) -> None:
    if place.kind not in ("cpu", "cuda"):
        raise RunError(
            f"memory on {place} can't be allocated here; make the tensor with the library of that "
            f"device (for example PyTorch) and pass it, or tilewright.runtime.from_dlpack(it)"
        )


def _is_tensor(value: object) -> bool:
    return hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray)


def _is_on_gpu(value: Any) -> bool:
    return _is_tensor(value) and value.__dlpack_device__()[0] == _CUDA


def _name_of_dtype(dtype: object) -> str:
    """The name of a data type of NumPy, tvm-ffi or PyTorch."""
    name = dtype.name if isinstance(dtype, np.dtype) else str(dtype)
    return name.rpartition(".")[2]


def _compact_address(tensor: Any) -> int:
    """Where the elements of a compact tensor lie."""
    extents = [*map(int, tensor.shape)]
    wanted = [math.prod(extents[axis + 1 :]) for axis in range(len(extents))]
    strides = [*map(int, tensor.strides)]
    off = any(have != want for n, have, want in zip(extents, strides, wanted) if n != 1)
    if off and 0 not in extents:
        raise RunError(
            f"only compact tensors are copied to and from GPUs, this one of shape {extents} has "
            f"strides {strides}"
        )
    return int(tensor.data_ptr())


def as_array(value: object) -> NDArray[Any]:
    """Return a numpy array of what an array or tensor holds; of memory on a GPU, a copy."""
    if _is_tensor(value) and not isinstance(value, Tensor):
        value = from_dlpack(value)
    return value.numpy() if isinstance(value, Tensor) else np.asarray(value)


def _check_scope(mem_scope: str | None) -> None:
    if mem_scope not in (None, "", "global"):
        raise RunError(f"tensors are in global memory, not in {mem_scope!r}")


def empty(
    shape: Sequence[int],
    dtype: str = "float32",
    device: Device | str | None = None,
    mem_scope: str | None = None,
) -> Tensor:
    """Allocate a tensor without setting its elements; the memory is aligned to 64 bytes.

    Memory of a GPU is allocated in the order of the current stream, and freed there.

    ``device`` is the CPU unless given; the only memory there is ``"global"``.

    Raises ``RunError`` for negative extents, and for a device that isn't there; ``MemoryError`` if
    it has no memory.
    """
    place = cpu() if device is None else parse_device(device)
    _check_device(place)
    if mem_scope is not None:
        _check_scope(mem_scope)
    if any(extent < 0 for extent in shape):
        raise RunError(f"extents must not be negative, got shape {tuple(shape)}")
    kind = numpy_dtype(dtype)
    extents = tuple(map(int, shape))
    if place.kind == "cuda":
        owner = memory.DeviceMemory(math.prod(extents) * kind.itemsize, place.index)
        where = place.type_code, place.index
        return from_dlpack(capsule(owner.address, extents, dtype, where, owner=owner))
    raw = np.empty(math.prod(extents) * kind.itemsize + ALIGNMENT, np.uint8)
    # A graph's results are made here at every call: numpy alone takes 0.8 us to tell an address.
    start = -tvm_ffi.from_dlpack(raw).data_ptr() % ALIGNMENT
    return from_numpy(np.ndarray(extents, kind, raw, start))


def from_numpy(array: NDArray[Any]) -> Tensor:
    """Share a numpy array of any data type; the tensor may be written only if the array may."""
    if array.dtype.isbuiltin == 1:
        try:
            return from_dlpack(array)
        except BufferError:
            pass  # a read-only array, which only our own capsule exports
    return from_dlpack(numpy_capsule(array))


def tensor(
    arr: object,
    device: Device | str | None = None,
    mem_scope: str | None = None,
    *,
    dtype: str | None = None,
) -> Tensor:
    """Copy anything that numpy or DLPack understands into a new, aligned tensor.

    ``device`` is the result's device (default: the CPU); the only memory there is ``"global"``.

    Raises ``RunError`` for a device that isn't there.
    """
    place = cpu() if device is None else parse_device(device)
    _check_device(place)
    _check_scope(mem_scope)
    if place.kind == "cuda" and dtype is None and _is_on_gpu(arr):
        given = from_dlpack(arr)
        return empty(given.shape, str(given.dtype), place).copyfrom(given)
    array = as_array(arr)
    kind = numpy_dtype(dtype) if dtype is not None else array.dtype
    result = empty(array.shape, dtype_name(*dlpack_dtype(kind.name)), place)
    if place.kind == "cuda":
        return result.copyfrom(array.astype(kind, copy=False))
    result.numpy()[...] = array
    return result


def as_argument(value: object) -> Any:
    """Turn a numpy array, or a tensor on a GPU, into a tensor over its memory.

    Anything else is returned unchanged. A call with tensors of PyTorch uses its current stream;
    with these, that of ``with Stream(...)``.
    """
    if isinstance(value, np.ndarray):
        return from_numpy(value)
    return from_dlpack(value) if _is_on_gpu(value) else value


# Where a tensor of tvm-ffi has its data type: in the DLTensor behind the header that all objects
# have (``c_api.h``).
_TYPE_AT = 24 + DLTensor.code.offset


@cache
def _stand_in(dtype: np.dtype[Any]) -> tuple[np.dtype[Any], int, int]:
    """A type of equal size that numpy exports, and both as 32-bit DLPack types."""
    same = np.dtype(f"uint{8 * dtype.itemsize}")
    words = []
    for kind in (same, dtype):
        code, bits, lanes = dlpack_dtype(kind.name)
        words.append(code | bits << 8 | lanes << 16)
    return same, words[0], words[1]


def numpy_tensor(array: np.ndarray[Any, Any]) -> Any:
    """Return a tensor of tvm-ffi over an array of ``ml_dtypes``, which numpy can't export.

    numpy exports it as unsigned integers, which is far faster than a capsule of ours; then the
    dtype of the still private tensor is corrected.
    """
    if array.flags.writeable and array.dtype.itemsize <= 2:
        same, exported, wanted = _stand_in(array.dtype)
        made = tvm_ffi.from_dlpack(array.view(same))
        word = ctypes.c_uint32.from_address(made.__chandle__() + _TYPE_AT)
        if word.value == exported:
            word.value = wanted
            return made
    return tvm_ffi.from_dlpack(numpy_capsule(array))
