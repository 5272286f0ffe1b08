"""The kinds of inputs that candidates are checked with.

``KINDS`` is a table: a kind says what floats and integers are drawn, and what results' memory holds
before the call. An input that decides where memory is accessed (an index, a number of iterations)
or that something is divided by keeps the values of ``random_arguments``, whatever the kind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tilewright.ir import dtypes
from tilewright.meta_schedule.arg_info import ArgInfo, TensorInfo, random_arguments
from tilewright.tir.interpreter.values import numpy_dtype

Array = np.ndarray[Any, Any]
Draw = Callable[[np.random.Generator, tuple[int, ...], str], Array]

# So many elements of an input of special values are of each of them: rows and columns without any
# are left over, whose results are compared as closely as those of other kinds.
_PLANTED = 2


@dataclass(frozen=True)
class InputKind:
    """What inputs hold; ``overflows`` if intermediate results may become infinite in some orders.

    Where the unscheduled program's result of such a kind isn't finite, nothing is demanded.
    """

    name: str
    floats: Draw
    integers: Draw
    overflows: bool = False


def limits(dtype: str) -> Any:
    """The limits of a float type: ``max``, ``tiny``, ``smallest_subnormal``, ``eps``."""
    kind = numpy_dtype(dtype)
    return np.finfo(kind) if kind.kind == "f" else ml_dtypes.finfo(kind)


def _uniform(low: float, high: float) -> Draw:
    def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
        floats = rng.random(shape, dtype=np.float32) * np.float32(high - low) + np.float32(low)
        return np.asarray(floats, numpy_dtype(dtype), order="C")

    return draw


def _scaled(direction: int) -> Draw:
    """Both signs, as large or small as leaves room for products of three."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
        exponent = direction * int(np.log2(float(limits(dtype).max)) / 3)
        floats = np.ldexp(rng.random(shape, dtype=np.float64) * 2.0 - 1.0, exponent)
        return np.asarray(floats, numpy_dtype(dtype), order="C")

    return draw


def _constant(value: int) -> Draw:
    def draw(_: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
        return np.full(shape, value, numpy_dtype(dtype))

    return draw


def _special_floats(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    made = _uniform(-0.5, 1.0)(rng, shape, dtype)
    about = limits(dtype)
    values = [np.nan, 0.0, -0.0, about.smallest_subnormal, -about.tiny]
    if np.isinf(np.asarray(np.inf, made.dtype).astype(np.float32)):
        values[1:1] = [np.inf, -np.inf]
    flat = made.reshape(-1)
    count = min(_PLANTED, flat.size // (4 * len(values)) + 1)
    places = rng.permutation(flat.size)[: count * len(values)]
    flat[places] = np.resize(np.asarray(values, made.dtype), len(places))
    return made


def _any_integers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """All values of the type, a quarter of them its limits."""
    if dtypes.is_bool(dtype):
        return np.asarray(rng.random(shape) < 0.5)
    low, high = dtypes.integer_limits(dtype)
    wide = np.uint64 if high > np.iinfo(np.int64).max else np.int64
    made = np.asarray(rng.integers(low, high, shape, wide, endpoint=True))
    ends = np.where(rng.random(shape) < 0.5, wide(low), wide(high))
    made = np.where(rng.random(shape) < 0.25, ends, made)
    return np.asarray(made, numpy_dtype(dtype), order="C")


def _limit(which: int) -> Draw:
    def draw(_: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
        value = bool(which) if dtypes.is_bool(dtype) else dtypes.integer_limits(dtype)[which]
        return np.full(shape, value, numpy_dtype(dtype))

    return draw


def _small_integers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    (made,) = random_arguments([TensorInfo(dtype, shape)], int(rng.integers(2**31)))
    return np.asarray(made)


#: In the order in which they are tried; of programs that take long, only the first ones are.
KINDS: tuple[InputKind, ...] = (
    InputKind("random", _uniform(-0.5, 1.0), _small_integers),
    InputKind("special", _special_floats, _any_integers),
    InputKind("negative", _uniform(-1.5, -0.5), _limit(0)),
    InputKind("huge", _scaled(1), _limit(1), overflows=True),
    InputKind("zeros", _constant(0), _constant(0)),
    InputKind("ones", _constant(1), _constant(1)),
    InputKind("tiny", _scaled(-1), _small_integers),
)


def arguments_of(
    number: int,
    infos: Sequence[ArgInfo],
    seed: int,
    fixed: Collection[int] = (),
    written: Collection[int] = (),
    masks: bool = False,
    pads: bool = False,
) -> list[Any]:
    """Make the arguments of kind ``number``, determined by the seed.

    The arguments ``fixed`` may not hold just anything and are drawn by ``random_arguments``; those
    that are ``written`` are filled with NaN, or bytes of a pattern. The first kind draws all as
    ``random_arguments`` does. With ``masks`` nothing is infinite or NaN, with ``pads`` nothing is
    infinite.
    """
    made = random_arguments(infos, seed + number)
    if number == 0:
        return made
    rng = np.random.default_rng((seed, number))
    for position, info in enumerate(infos):
        if not isinstance(info, TensorInfo) or position in fixed:
            continue
        if position in written:
            made[position] = poisoned(info)
            continue
        draw = KINDS[number].floats if dtypes.is_float(info.dtype) else KINDS[number].integers
        array = made[position] = draw(rng, info.shape, info.dtype)
        if masks and dtypes.is_float(info.dtype):
            array[~np.isfinite(array)] = 0
        elif pads and dtypes.is_float(info.dtype):
            array[np.isinf(array)] = np.nan
    return made


def poisoned(info: TensorInfo) -> Array:
    """Return what no result looks like: NaN, or a pattern of bits."""
    kind = numpy_dtype(info.dtype)
    if dtypes.is_float(info.dtype):
        return np.full(info.shape, np.nan, kind)
    if dtypes.is_bool(info.dtype):
        return np.full(info.shape, True)
    low, high = dtypes.integer_limits(info.dtype)
    return np.full(info.shape, high - (high - low) // 3, kind)
