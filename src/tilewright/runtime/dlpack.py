"""DLPack at the level of its C structures: data types, and capsules over any numpy array.

numpy itself refuses to export read-only arrays and the ``ml_dtypes`` (bfloat16, float8, ...), so
capsules for those are made here. The argument binder of compiled functions and the tensors of this
package use the same table of types.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from tilewright.support.errors import RunError

_CODES = {"int": 0, "uint": 1, "float": 2, "handle": 3, "bfloat": 4, "complex": 5}
_SPECIAL = {
    "bool": (6, 8),
    "float8_e3m4": (7, 8),
    "float8_e4m3": (8, 8),
    "float8_e4m3b11fnuz": (9, 8),
    "float8_e4m3fn": (10, 8),
    "float8_e4m3fnuz": (11, 8),
    "float8_e5m2": (12, 8),
    "float8_e5m2fnuz": (13, 8),
    "float8_e8m0fnu": (14, 8),
    "float4_e2m1fn": (17, 4),
}
_SIZES = {
    "int": (4, 8, 16, 32, 64),
    "uint": (1, 4, 8, 16, 32, 64),
    "float": (16, 32, 64),
    "bfloat": (16,),
    "complex": (64, 128),
    "handle": (64,),
}

#: Every scalar type that has a DLPack code: name -> (code, bits).
DLPACK_DTYPES: dict[str, tuple[int, int]] = {
    **{f"{base}{bits}": (_CODES[base], bits) for base, sizes in _SIZES.items() for bits in sizes},
    **_SPECIAL,
}
_NAMES = {value: name for name, value in DLPACK_DTYPES.items()}


@cache
def dlpack_dtype(dtype: str) -> tuple[int, int, int]:
    """Return ``(code, bits, lanes)`` of a data type such as ``"float32"`` or ``"bfloat16x8"``.

    Raises ``RunError`` for a type that DLPack doesn't have.
    """
    name, lanes = dtype, 1
    if name not in DLPACK_DTYPES:
        base, sep, count = name.rpartition("x")
        if sep and count.isdigit() and base in DLPACK_DTYPES and 0 < int(count) < 1 << 16:
            name, lanes = base, int(count)
    if name not in DLPACK_DTYPES:
        raise RunError(
            f"data type {dtype!r} has no DLPack code; known are {', '.join(sorted(DLPACK_DTYPES))}"
        )
    code, bits = DLPACK_DTYPES[name]
    return code, bits, lanes


def dtype_name(code: int, bits: int, lanes: int = 1) -> str:
    """Return the name of a DLPack type, the inverse of :func:`dlpack_dtype`.

    Raises ``RunError`` for a type that has no name here.
    """
    name = _NAMES.get((code, bits))
    if name is None:
        raise RunError(f"DLPack type (code {code}, {bits} bits) has no name here")
    return name if lanes == 1 else f"{name}x{lanes}"


@cache
def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """Return the numpy (or ``ml_dtypes``) type that stores elements of ``dtype``.

    Raises ``RunError`` for vectors and types of less than a byte.
    """
    code, bits, lanes = dlpack_dtype(dtype)
    if lanes != 1 or bits < 8 or code == 3:
        raise RunError(f"numpy arrays can't hold elements of type {dtype!r}")
    try:
        return np.dtype(dtype)
    except TypeError:
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, dtype))
        return found


class DLTensor(ctypes.Structure):
    """``DLTensor`` of DLPack."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_ = [
        ("tensor", DLTensor),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


# Exports that somebody still holds, by number: the array with the memory and our structures.
_live: dict[int, tuple[Any, ...]] = {}
_numbers = itertools.count(1)


def _release(managed: Any) -> None:
    _live.pop(managed.contents.manager_ctx, None)


_delete = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))(_release)


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
# A deleter may run while the interpreter shuts down, after the globals of this module are gone:
# its closure must never be freed.
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_delete))
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_live))
_DELETE_ADDRESS = ctypes.cast(_delete, ctypes.c_void_p).value


def numpy_capsule(array: np.ndarray[Any, Any]) -> Any:
    """Export any numpy array as an (old style) DLPack capsule without a copy.

    Unlike ``array.__dlpack__()`` this also takes read-only arrays, whose consumer must not write
    to them, and arrays of ``ml_dtypes``. The capsule must be consumed: an unconsumed one keeps the
    array alive.

    Raises ``RunError`` for strides that are not multiples of the element size.
    """
    itemsize = array.dtype.itemsize
    if any(stride % itemsize for stride in array.strides):
        raise RunError(
            f"strides {array.strides} of the array are no multiples of its {itemsize}-byte elements"
        )
    strides = tuple(stride // itemsize for stride in array.strides)
    address = array.__array_interface__["data"][0]
    return capsule(address, array.shape, array.dtype.name, strides=strides, owner=array)


def capsule(
    address: int,
    shape: Sequence[int],
    dtype: str,
    device: tuple[int, int] = (1, 0),
    *,
    strides: Sequence[int] | None = None,
    owner: object = None,
) -> Any:
    """Export memory as an (old style) DLPack capsule, which must be consumed.

    ``device`` is DLPack's kind and the number; ``strides`` are in elements, compact ones if left
    out. ``owner`` is kept alive for as long as somebody has the tensor.
    """
    code, bits, lanes = dlpack_dtype(dtype)
    dims = ctypes.c_int64 * max(len(shape), 1)
    extents = dims(*shape)
    if strides is None:
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    steps = dims(*strides)
    managed = _Managed()
    managed.tensor = DLTensor(address, *device, len(shape), code, bits, lanes, extents, steps, 0)
    number = next(_numbers)
    managed.manager_ctx = number
    managed.deleter = _DELETE_ADDRESS
    _live[number] = (owner, managed, extents, steps)
    return _new_capsule(ctypes.addressof(managed), b"dltensor", None)
