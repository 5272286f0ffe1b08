"""The arguments with which a task is measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.arith import simplify
from tilewright.ir import IRModule, Var, as_int, const, dtypes, free_vars, substitute
from tilewright.support.errors import TuneError, VerifyError
from tilewright.tir import PrimFunc
from tilewright.tir.interpreter.values import numpy_dtype
from tilewright.tir.layout_rewrite import split_layout_rewrite


class ArgInfo:
    """What is known of an argument: ``TensorInfo`` or ``ScalarInfo``."""

    dtype: str

    def as_json(self) -> list[Any]:
        """Return JSON data."""
        raise NotImplementedError(f"{type(self).__name__} must define as_json")

    @staticmethod
    def from_json(json_obj: object) -> ArgInfo:
        """Inverse of ``as_json``; ``TuneError`` for anything else."""
        return arg_info_from_json(json_obj)

    @staticmethod
    def from_prim_func(func: PrimFunc) -> list[ArgInfo]:
        """Describe the arguments of a function, as ``arg_infos`` does."""
        return list(arg_infos(func))

    @staticmethod
    def from_entry_func(mod: IRModule, remove_preproc: bool = True) -> list[ArgInfo]:
        """Describe the arguments of a module's only function, or of ``main``.

        With ``remove_preproc``, operands that blocks bring into another layout first
        (``tir.layout_rewrite``) are described as they are then. Raises ``TuneError`` if there is no
        such function.
        """
        functions = [f for f in mod.functions.values() if isinstance(f, PrimFunc)]
        func = mod.functions.get("main") if len(functions) != 1 else functions[0]
        if not isinstance(func, PrimFunc):
            raise TuneError("from_entry_func: the module has neither one function nor a `main`")
        return ArgInfo.from_prim_func(split_layout_rewrite(func)[0] if remove_preproc else func)


@dataclass(frozen=True)
class TensorInfo(ArgInfo):
    """A tensor argument: dtype and concrete shape."""

    dtype: str
    shape: tuple[int, ...]

    def as_json(self) -> list[Any]:
        """Return JSON data."""
        return ["TENSOR", self.dtype, list(self.shape)]


@dataclass(frozen=True)
class ScalarInfo(ArgInfo):
    """A scalar argument and the value that it is measured with."""

    dtype: str
    value: float | int

    def as_json(self) -> list[Any]:
        """Return JSON data."""
        return ["SCALAR", self.dtype, self.value]


_MOST_AXES = 64


def arg_info_from_json(data: object) -> ArgInfo:
    """Inverse of ``as_json``; ``TuneError`` for anything else."""
    if not (isinstance(data, list) and len(data) == 3 and type(data[1]) is str):
        raise TuneError(f"not an argument description: {repr(data)[:200]}")
    kind, dtype, content = data
    try:
        dtypes.split_dtype(dtype)
    except VerifyError as error:
        raise TuneError(f"not an argument description: {error}") from None
    if kind == "TENSOR" and isinstance(content, list) and len(content) <= _MOST_AXES:
        if all(type(extent) is int and 0 <= extent < 2**62 for extent in content):
            return TensorInfo(dtype, tuple(content))
    elif kind == "SCALAR" and _is_scalar(content):
        return ScalarInfo(dtype, content)
    raise TuneError(f"not an argument description: {repr(data)[:200]}")


def _is_scalar(value: object) -> bool:
    if type(value) is int:
        return -(2**63) <= value < 2**64
    return type(value) is bool or (type(value) is float and math.isfinite(value))


#: What a size that isn't known is measured at: tiling matters there.
ASSUMED_SIZE = 64


def size_names(func: PrimFunc) -> list[str]:
    """The names of the variables in the extents of a function's tensors, in order of appearance."""
    return list(dict.fromkeys(var.name for var in _sizes(func)))


def scalar_names(func: PrimFunc) -> list[str]:
    """The names of a function's sizes and scalar parameters: what ``symbols`` may have values for.

    scalar_names(f(A: Buffer((n, 4)), alpha)) == ["n", "alpha"]
    """
    scalars = (var.name for var in func.params if var not in func.buffer_map)
    return list(dict.fromkeys([*size_names(func), *scalars]))


def _sizes(func: PrimFunc) -> dict[Var, None]:
    extents = (extent for buffer in func.buffer_map.values() for extent in buffer.shape)
    return dict.fromkeys(var for extent in extents for var in free_vars(extent))


def size_values(func: PrimFunc, symbols: Mapping[str, int] | None = None) -> dict[Var, int]:
    """Return what the variables in the extents of a function's tensors are measured at."""
    values = symbols or {}
    return {var: values.get(var.name, ASSUMED_SIZE) for var in _sizes(func)}


def arg_infos(func: PrimFunc, symbols: Mapping[str, int] | None = None) -> tuple[ArgInfo, ...]:
    """Describe the arguments of a function.

    ``symbols`` gives values for symbolic sizes and other scalars by name; the default is
    ``ASSUMED_SIZE`` for sizes and 1 for others.

    Raises ``TuneError`` for sizes that aren't whole numbers, and where an extent is negative.
    """
    values, sizes = dict(symbols or {}), size_values(func, symbols)
    for var, value in sizes.items():
        if type(value) is not int:
            raise TuneError(f"the size {var.name} is a whole number, not {value!r}")
    given = {var: const(value, var.dtype) for var, value in sizes.items()}
    infos: list[ArgInfo] = []
    for var in func.params:
        buffer = func.buffer_map.get(var)
        if buffer is None:
            infos.append(ScalarInfo(var.dtype, sizes.get(var, values.get(var.name, 1))))
            continue
        shape = []
        for extent in buffer.shape:
            number = as_int(simplify(substitute(extent, given)))
            if number is None or number < 0:
                raise TuneError(
                    f"buffer {buffer.name!r}: no argument can be made to measure with, since its "
                    f"extent {extent!r} would be {number} for "
                    + ", ".join(f"{size.name} = {value}" for size, value in sizes.items())
                )
            shape.append(number)
        infos.append(TensorInfo(buffer.dtype, tuple(shape)))
    return tuple(infos)


def argument_bytes(infos: Sequence[ArgInfo]) -> int:
    """Return the bytes of all tensors: the least that a call has to read or write."""
    return sum(
        math.prod(info.shape) * -(-dtypes.bits_of(info.dtype) // 8)
        for info in infos
        if isinstance(info, TensorInfo)
    )


def random_arguments(infos: Sequence[ArgInfo], seed: int = 0) -> list[Any]:
    """Make arguments for a measurement, determined by the seed.

    Floats lie in [-0.5, 1), so that both signs appear and sums are well conditioned. Integers are
    small; those of 32 and 64 bits may be used as indices, so they are non-negative and less than
    any extent of the other tensors (except extents of 1).
    """
    rng = np.random.default_rng(seed)
    tensors = [info for info in infos if isinstance(info, TensorInfo)]
    made: list[Any] = []
    for info in infos:
        if isinstance(info, ScalarInfo):
            made.append(info.value)
            continue
        assert isinstance(info, TensorInfo)
        if dtypes.is_float(info.dtype):
            floats = rng.random(info.shape, dtype=np.float32) * np.float32(1.5) - np.float32(0.5)
            made.append(np.asarray(floats, numpy_dtype(info.dtype), order="C"))
        elif dtypes.is_bool(info.dtype):
            made.append(np.asarray(rng.random(info.shape) < 0.5))
        else:
            low, high = dtypes.integer_limits(info.dtype)
            low, high = max(low, -8), min(high, 8)
            if dtypes.bits_of(info.dtype) >= 32:
                extents = [
                    n for other in tensors if other is not info for n in other.shape if n > 1
                ]
                low, high = 0, max(1, min([high, *extents]))
            values = rng.integers(low, high, info.shape)
            made.append(np.asarray(values, numpy_dtype(info.dtype), order="C"))
    return made
