"""What the Python that the interpreter emits calls: memory, rounding, intrinsics.

Scalars are Python numbers: floats are computed in double precision and rounded when stored,
compared or cast (to whole numbers too), those narrower than 32 bits after each operation; integers
wrap to their width after each operation. Vectors are NumPy arrays of the same meaning.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from ctypes import c_float
from typing import Any, Union

import ml_dtypes
import numpy as np

from tilewright.ir import Expr, dtypes, integers
from tilewright.ir.float_formats import FLOAT_FORMATS
from tilewright.support.errors import RunError

_EXTENSION = {
    dtype: getattr(ml_dtypes, dtype)
    for dtype in (*FLOAT_FORMATS, "int4", "uint4")
    if dtype != "float16"
}
# Formats of ``memoryview`` that Python indexes quickly.
_VIEW_FORMAT = {
    "float32": "f",
    "float64": "d",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "bool": "?",
}


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """Return the NumPy dtype of one element."""
    element = dtypes.element_of(dtype)
    made: np.dtype[Any] = np.dtype(_EXTENSION.get(element, element))
    return made


Memory = Union[memoryview, "np.ndarray[Any, Any]"]
"""What a buffer's elements are accessed through."""

Data = Union[float, "np.ndarray[Any, Any]"]
"""A scalar, or the lanes of a vector."""


def is_view_dtype(dtype: str) -> bool:
    """Whether elements are accessed through a ``memoryview`` (others through NumPy)."""
    return dtype in _VIEW_FORMAT


def view(array: np.ndarray[Any, Any], dtype: str) -> Any:
    """Return flat, writable memory of a contiguous array, indexable by element."""
    flat = array.reshape(-1)
    code = _VIEW_FORMAT.get(dtype)
    if code is None or flat.size == 0:
        return flat
    memory: Any = memoryview(flat)  # type: ignore[arg-type]  # arrays are buffers
    return memory.cast("B").cast(code)


def allocate(size: int, dtype: str) -> np.ndarray[Any, Any]:
    """Return new memory filled with values that show up when they are read before written.

    A negative extent is that of a loop without iterations: no memory is needed.
    """
    array = np.empty(max(size, 0), numpy_dtype(dtype))
    if dtypes.is_float(dtype):
        array.fill(math.nan)
    elif dtypes.is_bool(dtype):
        array.fill(True)
    else:
        low, high = dtypes.integer_limits(dtypes.element_of(dtype))
        array.fill(high - 3 if low == 0 else low + 3)
    return array


def undefined(dtype: str) -> Any:
    """A scalar that shows up when something depends on it."""
    return allocate(1, dtype)[0].item()


def recast(array: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """Return the same bytes as elements of another dtype, as many as fit."""
    made = numpy_dtype(dtype)
    raw = array.view(np.uint8)
    return raw[: raw.size // made.itemsize * made.itemsize].view(made)


def fetch_add(memory: Any, place: int, value: object, dtype: str) -> float:
    """Add to an element and return what it was before."""
    before = memory[place]
    source = "float64" if dtypes.is_float(dtype) else "int64"
    memory[place] = convert(before + value, source, dtype)
    return float(before) if dtypes.is_float(dtype) else int(before)


def misalignment(memory: np.ndarray[Any, Any], place: int, size: int) -> int:
    """Return the bytes from a multiple of ``size`` to an element."""
    return int((memory.ctypes.data + place * memory.itemsize) % size)


def out_of_bounds(name: str, axis: int, index: object, extent: object) -> int:
    """Report an access outside a buffer."""
    raise RunError(f"index {index} is outside dimension {axis} of {name} (extent {extent})")


def check_index(name: str, axis: int, index: int, extent: int) -> int:
    """Return an index after checking it."""
    return index if 0 <= index < extent else out_of_bounds(name, axis, index, extent)


PLACES = 1 << 16
"""How many places of a dimension are remembered."""


class Places(dict[int, int]):
    """The places of a dimension that were looked up so far; one outside of it raises."""

    def __init__(self, name: str, axis: int, extent: int) -> None:
        self.name, self.axis, self.extent = name, axis, extent

    def __missing__(self, index: int) -> int:
        check_index(self.name, self.axis, index, self.extent)
        if len(self) < PLACES:
            self[index] = index
        return index


def check_vector(name: str, axis: int, index: object, extent: int) -> np.ndarray[Any, Any]:
    """Return a vector index after checking all lanes."""
    index = np.asarray(index)
    if index.min() < 0 or index.max() >= extent:
        out_of_bounds(name, axis, index, extent)
    return index


def wrap(value: Any, bits: int, signed: bool) -> Any:
    """Wrap an integer (or a vector of them) to a width."""
    if isinstance(value, np.ndarray):
        value = value.astype(object)
    if signed:
        half = 1 << (bits - 1)
        wrapped = (value + half) % (1 << bits) - half
    else:
        wrapped = value % (1 << bits)
    return (
        wrapped.astype(np.int64 if signed else np.uint64)
        if isinstance(value, np.ndarray)
        else wrapped
    )


_ROUND: dict[str, Callable[[float], float]] = {
    "float64": lambda value: value,
    "float32": lambda value: c_float(value).value,
}


def convert(value: object, source: str, dtype: str) -> Any:
    """Cast between dtypes: see ``ir.Cast``."""
    kind = dtypes.kind_of(dtype)
    if kind == "float":
        if type(value) is float and dtype in _ROUND:
            return _ROUND[dtype](value)
        with np.errstate(over="ignore", invalid="ignore"):
            rounded = np.asarray(value).astype(numpy_dtype(dtype)).astype(np.float64)
        return rounded if isinstance(value, np.ndarray) else float(rounded)
    if kind == "bool":
        return (value != 0) if isinstance(value, np.ndarray) else bool(value)
    if kind not in ("int", "uint"):
        raise RunError(f"cannot convert {source} to {dtype}")
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "f":
            element = dtypes.element_of(dtype)
            limit = np.int64 if kind == "int" else np.uint64
            return np.array([integers.whole_number(v, element) for v in value.tolist()], limit)
        value = value.astype(np.int64) if value.dtype.kind == "b" else value
    elif isinstance(value, float):
        return integers.whole_number(value, dtype)
    return wrap(
        int(value) if isinstance(value, bool) else value, dtypes.bits_of(dtype), kind == "int"
    )


def whole(function: Callable[[int, int], int]) -> Callable[[Any, Any], Any]:
    """A function of two integers, for vectors too."""
    lanes = np.frompyfunc(function, 2, 1)

    def compute(a: Any, b: Any) -> Any:
        if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
            return lanes(np.asarray(a).astype(object), np.asarray(b).astype(object))
        return function(a, b)

    return compute


floor_divide = whole(integers.floor_quotient)
floor_modulo = whole(integers.floor_remainder)
trunc_divide = whole(integers.trunc_quotient)
trunc_modulo = whole(integers.trunc_remainder)


def shift(name: str, a: Data, by: Data, dtype: str) -> Any:
    """``shift_left`` or ``shift_right``."""
    function = integers.INTEGER_CALLS[name]
    return whole(lambda value, amount: function(value, amount, dtype))(a, by)


def divide(a: Data, b: Data) -> float | np.ndarray[Any, Any]:
    """Float division with IEEE results for zero divisors."""
    with np.errstate(all="ignore"):
        result = np.divide(a, b)
    return result if isinstance(result, np.ndarray) else float(result)


def select(condition: Expr, a: Data, b: Data) -> Any:
    """Lane-wise choice."""
    return (
        np.where(condition, a, b) if isinstance(condition, np.ndarray) else (a if condition else b)
    )


def lanes_from(vector: np.ndarray[Any, Any], start: int, count: int) -> Any:
    """Some neighbouring lanes; a number if it is one."""
    return vector[start : start + count] if count > 1 else vector[start].item()


def joined(a: Data, b: Data) -> np.ndarray[Any, Any]:
    """The lanes of two vectors, or two numbers as lanes."""
    return np.concatenate([np.atleast_1d(a), np.atleast_1d(b)])


def dot_accumulate(total: Data, a: Data, b: Data, width: int) -> Any:
    """Add to each lane the dot product of ``width`` neighbours, not wrapped or rounded yet."""
    x, y = (np.asarray(value).reshape(-1, width) for value in (a, b))
    if x.dtype.kind != "f":
        x, y = x.astype(np.int64), y.astype(np.int64)
    with np.errstate(all="ignore"):
        made = total + (x * y).sum(axis=1)
    return made if isinstance(total, np.ndarray) else made.item()


def _erf(x: np.ndarray[Any, Any]) -> Any:
    return np.vectorize(math.erf, otypes=[float])(x)


def _sigmoid(x: np.ndarray[Any, Any]) -> Any:
    return np.where(np.asarray(x) >= 0, 1.0 / (1.0 + np.exp(-np.abs(x))),
                    np.exp(-np.abs(x)) / (1.0 + np.exp(-np.abs(x))))  # fmt: skip


def _silu(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray(x * _sigmoid(x))


def _gelu(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    # By erfc, so that nothing cancels on the left.
    tail = np.vectorize(math.erfc, otypes=[float])(np.asarray(x) * -math.sqrt(0.5))
    return np.asarray(0.5 * x * tail)


def _gelu_tanh(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return np.asarray(x * _sigmoid(2 * inner))


FLOAT_INTRINSICS: dict[str, Callable[..., Any]] = {
    "exp10": lambda x: np.power(10.0, x),
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sigmoid": _sigmoid,
    "silu": _silu,
    "erf": _erf,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "round": np.rint,
    "nearbyint": np.rint,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "atan2": np.arctan2,
    "pow": np.power,
    "hypot": np.hypot,
    "logaddexp": np.logaddexp,
    # An exponent beyond these is as good as they are.
    "ldexp": lambda x, n: np.ldexp(x, np.clip(n, -4096, 4096).astype(np.int32)),
    "fma": lambda a, b, c: a * b + c,
}
"""What intrinsics mean that NumPy has by another name, on arrays of float64."""


def float_intrinsic(name: str) -> Callable[..., Any]:
    """Return the meaning of a floating-point intrinsic, in double precision."""
    function = FLOAT_INTRINSICS.get(name) or getattr(np, name)

    def compute(*args: object) -> Any:
        with np.errstate(all="ignore"):
            result = function(*(np.asarray(arg, dtype=np.float64) for arg in args))
        if any(isinstance(arg, np.ndarray) and arg.ndim for arg in args):
            return result
        return result.item() if hasattr(result, "item") else result

    return compute


def minimum(a: Data, b: Data) -> Any:
    """The lesser, NaN if either is NaN; ``a`` of equals."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.where(np.less(b, a) | np.not_equal(b, b), b, a)
    return b if b < a or b != b else a


def maximum(a: Data, b: Data) -> Any:
    """The greater, NaN if either is NaN; ``a`` of equals."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.where(np.greater(b, a) | np.not_equal(b, b), b, a)
    return b if b > a or b != b else a


def reinterpret(value: Any, source: str, dtype: str) -> Any:
    """Same bits, other dtype."""
    result = np.atleast_1d(value).astype(numpy_dtype(source)).view(numpy_dtype(dtype))
    wide = result.astype(np.float64) if dtypes.is_float(dtype) else result
    return wide if dtypes.lanes_of(dtype) > 1 else wide.item()
