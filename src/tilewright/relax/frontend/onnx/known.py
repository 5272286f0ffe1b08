"""Tensors known at import: shapes, and what models compute of them.

Exporters compute sizes between operators (``Shape``, ``Gather``, ``Concat``, ``Reshape``), so their
elements are numbers or formulas of the inputs' symbolic extents. These are evaluated here, by a
function for each operator over NumPy arrays, of ``object`` where an element is an ``Expr``. One
that can't tell its result returns ``None``; then the operator is converted like any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from tilewright.ir import (
    Add,
    Expr,
    FloorDiv,
    IntImm,
    Mul,
    Var,
    as_expr,
    as_int,
    dtypes,
    maximum,
    minimum,
)
from tilewright.relax.expr import Constant, RelaxExpr
from tilewright.relax.frontend.onnx.model import NARROW, dtype_of, element_name
from tilewright.relax.frontend.onnx.values import Numbers, Value, numbers
from tilewright.relax.struct_info import prove_different, prove_equal
from tilewright.relax.values import const, numpy_dtype

Array = NDArray[Any]
Attributes = Mapping[str, Any]

#: Tensors with more elements are computed by the compiled model, not here.
MOST_ELEMENTS = 4096


#: The key under which attributes have the number of results.
OUTPUTS = "outputs"


class Unknown(Exception):
    """The result can't be told from what is known."""


Element = Expr | int | float
Evaluator = Callable[..., Array | list[Array]]
EVALUATORS: dict[str, Evaluator] = {}


def evaluates(*names: str) -> Callable[[Evaluator], Evaluator]:
    """Register a function of arrays as the evaluator of operators."""

    def register(function: Evaluator) -> Evaluator:
        for name in names:
            EVALUATORS[name] = function
        return function

    return register


def evaluate(
    name: str, attributes: Attributes, inputs: Sequence[Value], arrays: Sequence[Array | None]
) -> list[Value] | None:
    """The results of an operator whose inputs are known; ``None`` if they can't be told.

    ``arrays`` are the elements of ``inputs``, where known.
    """
    if name in ("Shape", "Size"):
        return _of_extents(name, attributes, inputs[0] if inputs else None)
    if name == "CastLike" and len(inputs) == 2 and isinstance(inputs[1], (RelaxExpr, Numbers)):
        return _cast_known(arrays[0], inputs[1].dtype)
    function = EVALUATORS.get(name)
    if function is None or not inputs or (name == "Div" and _has_float_formulas(inputs)):
        return None
    given: list[Array | None] = []
    for value, array in zip(inputs, arrays):
        if value is not None and (array is None or array.size > MOST_ELEMENTS):
            return None
        given.append(array)
    while given and given[-1] is None:
        given.pop()
    if not given or given[0] is None or all(array is None for array in given):
        return None
    try:
        made = function(attributes, *given)
    except (Unknown, ArithmeticError, ValueError, IndexError, TypeError, KeyError):
        # Whatever is wrong with the node, its converter says so.
        return None
    dtype = _result_dtype(name, attributes, inputs)
    results = made if isinstance(made, list) else [made]
    return [_value(item, dtype) for item in results]


def _has_float_formulas(inputs: Sequence[Value]) -> bool:
    """Whether there are formulas that count as floats: their quotients may not be whole."""
    return any(isinstance(item, Numbers) and dtypes.is_float(item.dtype) for item in inputs)


def _cast_known(array: Array | None, dtype: str) -> list[Value] | None:
    if array is None or array.size > MOST_ELEMENTS:
        return None
    try:
        return [_value(_converted(array, dtype), dtype)]
    except Unknown:
        return None


def _value(array: Array, dtype: str | None) -> RelaxExpr | Numbers:
    array = np.asarray(array)
    if array.dtype == object:
        return numbers(array, dtype or "int64")
    return const(np.ascontiguousarray(array).reshape(array.shape), dtype)


def _result_dtype(name: str, attributes: Attributes, inputs: Sequence[Value]) -> str | None:
    """The dtype of results: that of the last input is right for ``Where`` too."""
    if name == "Cast":
        return dtype_of(attributes["to"])
    if name in _TESTS:
        return "bool"
    if name == "ConstantOfShape":
        return None
    chosen = inputs[1] if name == "Where" else inputs[0]
    return chosen.dtype if isinstance(chosen, (RelaxExpr, Numbers)) else None


def _of_extents(name: str, attributes: Attributes, x: Value) -> list[Value] | None:
    if isinstance(x, Numbers):
        shape: tuple[Expr | int, ...] = x.shape
    elif isinstance(x, RelaxExpr):
        shape = x.shape
    else:
        return None
    if name == "Size":
        return [numbers(np.asarray(math.prod(shape), object), "int64")]
    chosen = shape[slice(attributes.get("start", 0), attributes.get("end"))]
    return [numbers(_vector(chosen), "int64")]


def _vector(items: Sequence[object]) -> Array:
    made = np.empty(len(items), object)
    for at, item in enumerate(items):
        made[at] = item
    return made


def _ints(array: Array) -> list[int]:
    """Elements that are numbers."""
    if any(isinstance(item, Expr) for item in array.reshape(-1)):
        raise Unknown
    return [int(item) for item in array.reshape(-1)]


def _limited(shape: Sequence[int]) -> tuple[int, ...]:
    if any(extent < 0 for extent in shape) or math.prod(shape) > MOST_ELEMENTS:
        raise Unknown
    return tuple(shape)


def _each(function: Callable[..., object], *arrays: Array) -> Array:
    """Apply a function element by element; arrays of numbers stay such."""
    together = np.broadcast_arrays(*arrays)
    _limited(together[0].shape)
    made = np.empty(together[0].shape, object)
    for at in np.ndindex(made.shape):
        made[at] = function(*(item[at] for item in together))
    return made


# ---- elementwise ---------------------------------------------------------------------------------


def _arithmetic(
    name: str, on_numbers: Callable[..., Array], on_formulas: Callable[..., object]
) -> None:
    @evaluates(name)
    def function(attributes: Attributes, *arrays: Array) -> Array:
        if any(array.dtype == object for array in arrays):
            return _each(on_formulas, *arrays)
        _limited(np.broadcast_shapes(*(array.shape for array in arrays)))
        with np.errstate(all="ignore"):
            return on_numbers(*arrays)


def _whole(value: Element) -> Expr | int:
    """A number beside a formula: formulas are integers."""
    if isinstance(value, Expr):
        return value
    if int(value) != value:
        raise Unknown
    return int(value)


def _divided(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f" or a.dtype.kind not in "iu":
        return np.divide(a, b).astype(a.dtype)
    if np.any(b == 0):
        raise Unknown
    quotient = np.abs(a) // np.abs(b)
    return (quotient * np.sign(a) * np.sign(b)).astype(a.dtype)


def _quotient(a: Element, b: Element) -> Expr | int:
    """A quotient of integers, rounded towards zero."""
    x, y = _whole(a), _whole(b)
    if not isinstance(x, Expr) and not isinstance(y, Expr):
        return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
    if not _is_extent(as_expr(y)) or as_int(as_expr(y)) == 0:
        raise Unknown
    over, zero = as_expr(x), as_expr(0)
    made: Expr = over // y
    if not _is_extent(over):
        made = maximum(over, zero) // y - maximum(zero - over, zero) // y
    return made


_arithmetic("Add", np.add, lambda a, b: _whole(a) + _whole(b))
_arithmetic("Sub", np.subtract, lambda a, b: _whole(a) - _whole(b))
_arithmetic("Mul", np.multiply, lambda a, b: _whole(a) * _whole(b))
_arithmetic("Neg", np.negative, lambda a: 0 - _whole(a))
_arithmetic("Floor", np.floor, _whole)
_arithmetic("Ceil", np.ceil, _whole)
_arithmetic("Sqrt", np.sqrt, lambda a: _unknown())
_arithmetic("Abs", np.abs, lambda a: _unknown())
_arithmetic("Relu", lambda a: np.maximum(a, a.dtype.type(0)), lambda a: _unknown())
_arithmetic("Identity", lambda a: a, lambda a: a)
_arithmetic("Not", np.logical_not, lambda a: _unknown())
_arithmetic("And", np.logical_and, lambda a, b: _unknown())
_arithmetic("Or", np.logical_or, lambda a, b: _unknown())


def _unknown() -> NoReturn:
    raise Unknown


@evaluates("Div")
def _div(attributes: Attributes, a: Array, b: Array) -> Array:
    if object not in (a.dtype, b.dtype):
        _limited(np.broadcast_shapes(a.shape, b.shape))
        with np.errstate(all="ignore"):
            return _divided(a, b)
    if "f" in (a.dtype.kind, b.dtype.kind):
        raise Unknown
    return _each(_quotient, a, b)


@evaluates("Mod")
def _mod(attributes: Attributes, a: Array, b: Array) -> Array:
    if attributes.get("fmod", 0) or "f" in (a.dtype.kind, b.dtype.kind):
        raise Unknown
    if object not in (a.dtype, b.dtype):
        if np.any(b == 0):
            raise Unknown
        return np.mod(a, b)
    return _each(lambda x, y: _whole(x) % _whole(y), a, b)


def _extreme(
    name: str, on_numbers: Callable[..., Array], on_formulas: Callable[[Expr, Expr], Expr]
) -> None:
    @evaluates(name)
    def function(attributes: Attributes, *arrays: Array) -> Array:
        made = arrays[0]
        for array in arrays[1:]:
            if object in (made.dtype, array.dtype):
                made = _each(
                    lambda a, b: on_formulas(as_expr(_whole(a)), as_expr(_whole(b))), made, array
                )
            else:
                made = on_numbers(made, array)
        return made


_extreme("Max", np.maximum, maximum)
_extreme("Min", np.minimum, minimum)


def _is_equal(a: Element, b: Element) -> bool:
    x, y = as_expr(_whole(a)), as_expr(_whole(b))
    if prove_equal(x, y):
        return True
    if prove_different(x, y) or _differ_in_sign(x, y) or _differ_in_sign(y, x):
        return False
    raise Unknown


def _differ_in_sign(x: Expr, y: Expr) -> bool:
    """Whether ``x`` is an extent, or made of extents, and ``y`` a negative number such as -1."""
    number = as_int(y)
    return number is not None and number < 0 and _is_extent(x)


def _is_extent(x: Expr) -> bool:
    if isinstance(x, IntImm):
        return x.value >= 0
    return isinstance(x, Var) or (
        isinstance(x, (Add, Mul, FloorDiv)) and _is_extent(x.a) and _is_extent(x.b)
    )


def _ordered(a: object, b: object) -> NoReturn:
    raise Unknown


_arithmetic("Equal", np.equal, _is_equal)
_arithmetic("Less", np.less, _ordered)
_arithmetic("LessOrEqual", np.less_equal, _ordered)
_arithmetic("Greater", np.greater, _ordered)
_arithmetic("GreaterOrEqual", np.greater_equal, _ordered)
_TESTS = frozenset("Equal Less LessOrEqual Greater GreaterOrEqual Not And Or".split())


@evaluates("Where")
def _where(attributes: Attributes, condition: Array, x: Array, y: Array) -> Array:
    _limited(np.broadcast_shapes(condition.shape, x.shape, y.shape))
    return np.where(condition.astype(bool), x, y)


#: Dtypes that have all extents there may be, and integers below 0.
_EXACT = ("int32", "int64", "float32", "float64")


@evaluates("Cast")
def _cast(attributes: Attributes, x: Array) -> Array:
    if element_name(attributes["to"]) in NARROW:
        raise Unknown
    return _converted(x, dtype_of(attributes["to"]))


def _converted(x: Array, dtype: str) -> Array:
    if x.dtype.name == "bfloat16":
        x = x.astype(np.float32)
    if x.dtype == object:
        if dtype not in _EXACT:
            raise Unknown
        return x
    kind = numpy_dtype(dtype).kind
    if (
        x.dtype.kind not in "iubf"
        or kind not in "iubf"
        or (x.dtype.kind == "f" and not np.all(np.isfinite(x)))
    ):
        raise Unknown
    with np.errstate(all="ignore"):
        return x.astype(numpy_dtype(dtype))


# ---- moves ---------------------------------------------------------------------------------------


@evaluates("Concat")
def _concat(attributes: Attributes, *arrays: Array) -> Array:
    return np.concatenate(arrays, attributes["axis"])


@evaluates("Gather")
def _gather(attributes: Attributes, data: Array, indices: Array) -> Array:
    axis = attributes.get("axis", 0)
    places = np.asarray(_ints(indices), np.int64).reshape(indices.shape)
    return np.take(data, places, axis)


@evaluates("Slice")
def _slice(attributes: Attributes, data: Array, *bounds: Array) -> Array:
    if not bounds:
        starts, ends = attributes["starts"], attributes["ends"]
        axes, steps = attributes.get("axes", range(len(starts))), [1] * len(starts)
    else:
        starts, ends = _ints(bounds[0]), _ints(bounds[1])
        given = len(bounds) > 2 and bounds[2] is not None
        axes = _ints(bounds[2]) if given else range(len(starts))
        steps = _ints(bounds[3]) if len(bounds) > 3 else [1] * len(starts)
    index = [slice(None)] * data.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps):
        stop = None if step < 0 and end <= -data.shape[axis] - 1 else end
        index[axis] = slice(start, stop, step)
    part: Array = data[tuple(index)]
    return part


def _axes(attributes: Attributes, given: Sequence[Array]) -> tuple[int, ...] | None:
    if given:
        return tuple(_ints(given[0]))
    return attributes.get("axes")


@evaluates("Squeeze")
def _squeeze(attributes: Attributes, data: Array, *axes: Array) -> Array:
    return np.squeeze(data, _axes(attributes, axes))


@evaluates("Unsqueeze")
def _unsqueeze(attributes: Attributes, data: Array, *axes: Array) -> Array:
    return np.expand_dims(data, _axes(attributes, axes))  # type: ignore[arg-type]


@evaluates("Reshape")
def _reshape(attributes: Attributes, data: Array, shape: Array) -> Array:
    if attributes.get("allowzero", 0):
        raise Unknown
    extents = [data.shape[at] if e == 0 else e for at, e in enumerate(_ints(shape))]
    return data.reshape(extents)


@evaluates("Flatten")
def _flatten(attributes: Attributes, data: Array) -> Array:
    axis = attributes.get("axis", 1)
    axis = axis + data.ndim if axis < 0 else axis
    return data.reshape(math.prod(data.shape[:axis]), -1)


@evaluates("Transpose")
def _transpose(attributes: Attributes, data: Array) -> Array:
    return np.transpose(data, attributes.get("perm"))


@evaluates("Expand")
def _expand(attributes: Attributes, data: Array, shape: Array) -> Array:
    made = np.broadcast_shapes(data.shape, tuple(_ints(shape)))
    return np.broadcast_to(data, _limited(made))


@evaluates("Tile")
def _tile(attributes: Attributes, data: Array, repeats: Array) -> Array:
    counts = _ints(repeats)
    _limited([extent * count for extent, count in zip(data.shape, counts)])
    return np.tile(data, counts)


@evaluates("Split")
def _split(attributes: Attributes, data: Array, *sizes: Array) -> list[Array]:
    axis = attributes.get("axis", 0)
    count = attributes.get("num_outputs", attributes[OUTPUTS])
    given = _ints(sizes[0]) if sizes else attributes.get("split")
    _limited([count])
    if given is None:
        size = -(-data.shape[axis] // count)
        given = [min(size, data.shape[axis] - start) for start in range(0, count * size, size)]
    if len(given) != count or min(given) < 0 or sum(given) != data.shape[axis]:
        raise Unknown
    return np.split(data, np.cumsum(given)[:-1].tolist(), axis)


@evaluates("ConstantOfShape")
def _constant_of_shape(attributes: Attributes, shape: Array) -> Array:
    value = attributes.get("value", np.zeros(1, np.float32))
    return np.full(_limited(_ints(shape)), value.reshape(-1)[0])


@evaluates("Range")
def _range(attributes: Attributes, start: Array, limit: Array, delta: Array) -> Array:
    if object in (start.dtype, limit.dtype, delta.dtype):
        raise Unknown
    first, last, step = (item.reshape(-1)[0] for item in (start, limit, delta))
    count = max(math.ceil((float(last) - float(first)) / float(step)), 0)
    _limited([count])
    made: Array = first + np.arange(count, dtype=start.dtype) * step
    return made.astype(start.dtype)


# ---- reductions ----------------------------------------------------------------------------------


def _reduces(name: str, function: Evaluator) -> None:
    @evaluates(name)
    def reduce(attributes: Attributes, data: Array, *axes: Array) -> Array:
        if data.dtype.kind not in "iuO":
            raise Unknown
        found = _axes(attributes, axes)
        if not found and attributes.get("noop_with_empty_axes", 0):
            return data
        keep = bool(attributes.get("keepdims", 1))
        return np.asarray(function(data, axis=found or None, keepdims=keep))


_reduces("ReduceProd", np.prod)
_reduces("ReduceSum", np.sum)


def elements(value: Value, held: Mapping[RelaxExpr, Array]) -> Array | None:
    """The elements of a value as far as they may be evaluated.

    Parameters of the model that are kept as inputs count only if they are integers: these decide
    sizes, and numbers that are trained may be replaced.
    """
    if isinstance(value, Numbers):
        return value.array
    if isinstance(value, Constant):
        return value.data
    found = held.get(value) if isinstance(value, RelaxExpr) else None
    return found if found is not None and found.dtype.kind in "iub" else None
