"""Models as they come from files: nothing in them is believed that their bytes don't bear out.

Sizes are compared with the bytes that are there before anything is allocated, and external data are
read only from the model's own folder.
"""

from __future__ import annotations

import importlib
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tilewright.support.errors import ImportModelError, MissingExtraError
from tilewright.support.registry import near_matches

if TYPE_CHECKING:
    import onnx

#: Elements that a tensor stored sparsely may have.
_MOST_SPARSE = 1 << 28

# ONNX's names of element types, and ours; those that tensors here don't have are widened.
_DTYPES = {
    "FLOAT": "float32",
    "DOUBLE": "float64",
    "FLOAT16": "float16",
    "BFLOAT16": "bfloat16",
    "FLOAT8E4M3FN": "float8_e4m3fn",
    "FLOAT8E5M2": "float8_e5m2",
    "FLOAT8E4M3FNUZ": "float16",
    "FLOAT8E5M2FNUZ": "float16",
    "FLOAT8E8M0": "float32",
    "FLOAT4E2M1": "float16",
    "BOOL": "bool",
    "INT2": "int8",
    "INT4": "int8",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "UINT2": "uint8",
    "UINT4": "uint8",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
}
NARROW = frozenset(name for name in _DTYPES if name.startswith(("FLOAT4", "FLOAT8"))) | {
    "INT2", "UINT2", "INT4", "UINT4",
}  # fmt: skip
"""Types that conversions must round or cut to, as their dtype here is wider or has other limits."""
_BITS = {name: int(re.findall(r"\d+", name)[0]) for name in NARROW}


def require_onnx() -> ModuleType:
    """Import ``onnx``.

    Raises ``MissingExtraError``, which names the extra, if it isn't installed.
    """
    try:
        module = importlib.import_module("onnx")
        importlib.import_module("onnx.numpy_helper")
        importlib.import_module("onnx.external_data_helper")
        importlib.import_module("onnx.defs")
    except ModuleNotFoundError as error:
        raise MissingExtraError("onnx", "onnx", "importing ONNX models") from error
    return module


def load_model(path: str | os.PathLike[str]) -> onnx.ModelProto:
    """Read a model's file; the tensors that it keeps in other files stay there.

    Raises ``ImportModelError`` if there is none, or it is damaged.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ImportModelError(f"{os.fspath(path)}: {error.strerror or error}") from None
    return parse_model(data, os.fspath(path))


def parse_model(data: bytes, name: str = "the data") -> onnx.ModelProto:
    """Read a model from its bytes; ``name`` says in error messages where they are from.

    Raises ``ImportModelError`` if they are no model.
    """
    model = require_onnx().ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:  # protobuf's own classes, which differ between its versions
        raise ImportModelError(f"{name} is no ONNX model: {error}") from error
    return model


def element_name(element: int) -> str:
    """ONNX's name of an element type.

    Raises ``ImportModelError`` for a number that stands for none.
    """
    onnx = require_onnx()
    try:
        return str(onnx.TensorProto.DataType.Name(element))
    except ValueError:
        raise ImportModelError(f"there is no element type {element}") from None


def dtype_of(element: int) -> str:
    """The dtype of tensors of an ONNX element type; those that tensors don't have are wider.

    Raises ``ImportModelError`` for those that have none, such as strings.
    """
    return dtype_named(element_name(element))


def dtype_named(name: str) -> str:
    """The dtype of tensors of an ONNX element type, by ONNX's name.

    Raises ``ImportModelError`` for those that have none.
    """
    if name not in _DTYPES:
        raise ImportModelError(
            f"tensors of {name} are not supported; supported: {', '.join(_DTYPES)}"
        )
    return _DTYPES[name]


def to_numpy(tensor: onnx.TensorProto, folder: Path | None = None) -> NDArray[Any]:
    """The values of a stored tensor, in the dtype that it has here.

    Raises ``ImportModelError`` if the bytes are not as many as its shape needs.
    """
    onnx = require_onnx()
    what = f"tensor {tensor.name!r}" if tensor.name else "a tensor"
    dtype = dtype_of(tensor.data_type)
    shape = _shape(what, tensor.dims)
    count = math.prod(shape)
    bits = _BITS.get(element_name(tensor.data_type), np.dtype(_numpy(dtype)).itemsize * 8)
    size = -(-count * bits // 8)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        plain = onnx.TensorProto()
        plain.CopyFrom(tensor)
        plain.ClearField("external_data")
        plain.data_location = onnx.TensorProto.DEFAULT
        plain.raw_data = _external(what, tensor, size, folder)
        tensor = plain
    if tensor.HasField("raw_data"):
        if len(tensor.raw_data) != size:
            raise ImportModelError(
                f"{what} of the shape {list(shape)} needs {size} bytes, it has "
                f"{len(tensor.raw_data)}"
            )
    elif count > _stored(tensor, bits):
        raise ImportModelError(
            f"{what} of the shape {list(shape)} needs {count} elements, it has "
            f"{_stored(tensor, bits)}"
        )
    try:
        made = onnx.numpy_helper.to_array(tensor)
    except (ValueError, TypeError, OverflowError) as error:
        raise ImportModelError(f"{what} is damaged: {error}") from None
    return np.ascontiguousarray(made.astype(_numpy(dtype))).reshape(shape)


def _numpy(dtype: str) -> Any:
    try:
        return np.dtype(dtype)
    except TypeError:
        import ml_dtypes  # slow to load

        return np.dtype(getattr(ml_dtypes, dtype))


def _shape(what: str, dims: Sequence[int]) -> tuple[int, ...]:
    shape = tuple(int(extent) for extent in dims)
    if any(extent < 0 for extent in shape):
        raise ImportModelError(f"{what} has the shape {list(shape)}: extents must not be negative")
    return shape


def _stored(tensor: onnx.TensorProto, bits: int) -> int:
    """How many elements are in the fields for typed numbers."""
    fields = "float_data", "double_data", "int32_data", "int64_data", "uint64_data"
    most = max(len(getattr(tensor, field)) for field in fields)
    return most * (8 // bits) if bits < 8 else most


def _external(what: str, tensor: onnx.TensorProto, size: int, folder: Path | None) -> bytes:
    """Read a tensor's bytes from the file that it names, which must be in the model's folder."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if folder is None:
        raise ImportModelError(
            f"{what} is stored in the file {entries.get('location')!r}: give the path of the "
            "model instead, or load it with onnx.load, which reads such files"
        )
    root = folder.resolve()
    try:
        path = (root / entries.get("location", "")).resolve()
        found = path.is_relative_to(root) and path.is_file()
    except (OSError, RuntimeError, ValueError):  # too long, links in a circle, a zero byte
        found = False
    if not found:
        raise ImportModelError(
            f"{what} is stored in {entries.get('location')!r}, which is no file in the model's "
            f"folder {os.fspath(root)!r}"
        )
    try:
        offset = int(entries.get("offset", "0"))
        length = int(entries.get("length", size))
    except ValueError:
        raise ImportModelError(f"{what} has a damaged entry of external data: {entries}") from None
    if length != size or offset < 0 or offset + length > path.stat().st_size:
        raise ImportModelError(
            f"{what} needs {size} bytes, but it has {length} bytes from {offset} of {path.name}, "
            f"a file of {path.stat().st_size}"
        )
    with path.open("rb") as file:
        file.seek(offset)
        made: bytes = file.read(length)
        return made


def sparse_to_numpy(tensor: onnx.SparseTensorProto, folder: Path | None = None) -> NDArray[Any]:
    """The values of a tensor that is stored sparsely.

    Raises ``ImportModelError`` if indices are outside, or the tensor is larger than can be useful.
    """
    what = f"sparse tensor {tensor.values.name!r}"
    shape = _shape(what, tensor.dims)
    values = to_numpy(tensor.values, folder).reshape(-1)
    indices = to_numpy(tensor.indices, folder)
    total = math.prod(shape)
    if total > _MOST_SPARSE:
        raise ImportModelError(f"{what} has {total} elements, more than {_MOST_SPARSE}")
    if indices.ndim == 2:
        inside = np.all((indices >= 0) & (indices < np.asarray(shape)))
        if indices.shape != (len(values), len(shape)) or not inside:
            raise ImportModelError(f"{what} has indices that don't fit {list(shape)}")
        indices = np.ravel_multi_index(tuple(indices.T), shape)
    if indices.shape != values.shape or np.any((indices < 0) | (indices >= total)):
        raise ImportModelError(f"{what} has indices that don't fit {list(shape)}")
    made = np.zeros(total, values.dtype)
    made[indices] = values
    return made.reshape(shape)


def attribute_value(attribute: onnx.AttributeProto, folder: Path | None = None) -> Any:
    """The value of an attribute: numbers, text, tuples of them, arrays, graphs.

    Raises ``ImportModelError`` for kinds that no operator here has.
    """
    onnx = require_onnx()
    kind = onnx.AttributeProto.AttributeType.Name(attribute.type)
    read = {
        "FLOAT": lambda a: float(a.f),
        "INT": lambda a: int(a.i),
        "STRING": lambda a: _text(a.s),
        "FLOATS": lambda a: tuple(map(float, a.floats)),
        "INTS": lambda a: tuple(map(int, a.ints)),
        "STRINGS": lambda a: tuple(map(_text, a.strings)),
        "TENSOR": lambda a: to_numpy(a.t, folder),
        "SPARSE_TENSOR": lambda a: sparse_to_numpy(a.sparse_tensor, folder),
        "GRAPH": lambda a: a.g,
        "TYPE_PROTO": lambda a: a.tp,
    }
    if kind not in read:
        raise ImportModelError(
            f"attribute {attribute.name!r} is of the kind {kind}; {near_matches(kind, [*read])}"
        )
    reader: Any = read[kind]
    return reader(attribute)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
