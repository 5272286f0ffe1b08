"""Dictionaries of tensors as bytes: the format of TVM's ``save_param_dict``.

All numbers are little-endian. The file has two words (``_MAGIC``, 0), the names (a count; each a
length and UTF-8), and the tensors (a count). Each tensor has two words (``_TENSOR_MAGIC``, 0), a
device, the number of axes, DLPack's data type, the extents, and the size and bytes of the elements.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tilewright.runtime.dlpack import dlpack_dtype, dtype_name, numpy_dtype
from tilewright.runtime.tensor import Tensor, as_array, tensor
from tilewright.support.errors import RunError

_MAGIC = 0xF7E58D4F05049CB7
_TENSOR_MAGIC = 0xDD5E40F096B4A13F
_WORDS = struct.Struct("<QQ")
_WORD = struct.Struct("<Q")
# The CPU (DLPack's kind 1, number 0), the number of axes, and DLPack's code, bits and lanes.
_KIND = struct.Struct("<iiiBBH")


def save_param_dict(params: Mapping[str, object]) -> bytes:
    """Return the bytes of tensors (or arrays) by name."""
    names = [name.encode() for name in params]
    parts = [_WORDS.pack(_MAGIC, 0), _WORD.pack(len(names))]
    for name in names:
        parts += [_WORD.pack(len(name)), name]
    parts.append(_WORD.pack(len(names)))
    for value in params.values():
        array = np.asarray(as_array(value), order="C")
        code = dlpack_dtype(array.dtype.name)
        parts += [_WORDS.pack(_TENSOR_MAGIC, 0), _KIND.pack(1, 0, array.ndim, *code)]
        parts += [struct.pack(f"<{array.ndim}q", *array.shape), _WORD.pack(array.nbytes)]
        parts.append(array.tobytes())
    return b"".join(parts)


def save_param_dict_to_file(params: Mapping[str, object], path: str | os.PathLike[str]) -> None:
    """Write tensors (or arrays) by name into a file."""
    Path(path).write_bytes(save_param_dict(params))


def load_param_dict(param_bytes: bytes | bytearray) -> dict[str, Tensor]:
    """Return the tensors by name that :func:`save_param_dict`, or TVM's, made bytes of.

    Raises ``RunError`` if the bytes aren't those.
    """
    reader = _Reader(bytes(param_bytes))
    if reader.take(_WORDS)[0] != _MAGIC:
        raise RunError("these bytes are no parameters: they begin with another number")
    names = [reader.text() for _ in range(reader.word())]
    if reader.word() != len(names):
        raise RunError("these parameters are damaged: not as many tensors as names")
    return {name: reader.tensor() for name in names}


def load_param_dict_from_file(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Return the tensors by name that a file holds."""
    return load_param_dict(Path(path).read_bytes())


class _Reader:
    """Reads on from where it was; never beyond the end."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def _skip(self, size: int) -> int:
        start = self._at
        if size > len(self._data) - start:
            raise RunError(f"these parameters are damaged: they end after {len(self._data)} bytes")
        self._at += size
        return start

    def take(self, form: struct.Struct) -> tuple[int, ...]:
        """Read numbers."""
        return form.unpack_from(self._data, self._skip(form.size))

    def word(self) -> int:
        """Read a number of 64 bits."""
        return self.take(_WORD)[0]

    def block(self) -> bytes:
        """Read a length, and as many bytes."""
        size = self.word()
        start = self._skip(size)
        return self._data[start : start + size]

    def text(self) -> str:
        """Read a text."""
        try:
            return self.block().decode()
        except UnicodeDecodeError as error:
            raise RunError(f"these parameters are damaged: a name is no UTF-8: {error}") from None

    def tensor(self) -> Tensor:
        """Read a tensor."""
        magic, _ = self.take(_WORDS)
        _, _, axes, code, bits, lanes = self.take(_KIND)
        if magic != _TENSOR_MAGIC or not 0 <= axes <= 64:
            raise RunError("these parameters are damaged: a tensor begins with another number")
        shape = self.take(struct.Struct(f"<{axes}q"))
        kind = numpy_dtype(dtype_name(code, bits, lanes))
        data = self.block()
        if min(shape, default=0) < 0 or math.prod(shape) * kind.itemsize != len(data):
            raise RunError(
                f"these parameters are damaged: {len(data)} bytes for shape {shape} of {kind}"
            )
        return tensor(np.frombuffer(data, kind).reshape(shape))
