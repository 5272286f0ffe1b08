"""Runs TensorIR functions on NumPy arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.ir import IRModule, Var, as_int
from tilewright.support.errors import RunError
from tilewright.tir.function import PrimFunc
from tilewright.tir.interpreter import values
from tilewright.tir.interpreter.emit import python_source


def compile_function(func: PrimFunc) -> Callable[..., None]:
    """Return a Python function that runs ``func`` in place on NumPy arrays and numbers."""
    source, intrinsics = python_source(func)
    scope: dict[str, Any] = {
        name: getattr(values, name)
        for name in (
            "allocate", "check_vector", "convert", "divide", "floor_divide", "maximum", "minimum",
            "out_of_bounds", "reinterpret", "select", "trunc_divide", "view", "wrap",
        )
    }  # fmt: skip
    scope.update(np=np, nan=math.nan, inf=math.inf, fail=_fail)
    for name in intrinsics:
        scope["intrinsic_" + name] = values.float_intrinsic(name)
    exec(compile(source, "<interpreter>", "exec"), scope)
    program = scope["program"]

    def call(*args: Any) -> None:
        memory, symbols, written_back = _bind(func, args)
        program(memory, symbols)
        for original, copy in written_back:
            original[...] = copy.reshape(original.shape)

    return call


def run(func: PrimFunc | IRModule, *args: Any, name: str = "main") -> None:
    """Run a function (or function ``name`` of a module) in place on NumPy arrays and numbers.

    Raises ``RunError`` for arguments that don't fit, accesses out of bounds and failed assertions.
    """
    if isinstance(func, IRModule):
        if name not in func and len(func) == 1:
            name = next(iter(func))
        chosen: PrimFunc = func[name]
    else:
        chosen = func
    compile_function(chosen)(*args)


def _fail(message: str) -> None:
    raise RunError(message)


def _bind(
    func: PrimFunc, args: tuple[Any, ...]
) -> tuple[dict[int, Any], dict[int, Any], list[tuple[Any, Any]]]:
    """Match arguments with parameters; find the values of symbolic extents."""
    if len(args) != len(func.params):
        raise RunError(f"expected {len(func.params)} arguments, got {len(args)}")
    memory: dict[int, Any] = {}
    symbols: dict[int, Any] = {}
    written_back: list[tuple[Any, Any]] = []
    for var, arg in zip(func.params, args):
        if var not in func.buffer_map:
            symbols[id(var)] = arg
    for number, (var, arg) in enumerate(zip(func.params, args)):
        buffer = func.buffer_map.get(var)
        if buffer is None:
            continue
        if not isinstance(arg, np.ndarray):
            raise RunError(
                f"argument {buffer.name!r}: expected a NumPy array, got {type(arg).__name__}"
            )
        expected = values.numpy_dtype(buffer.dtype)
        if arg.dtype != expected:
            raise RunError(f"argument {buffer.name!r}: expected {expected}, got {arg.dtype}")
        if arg.ndim != buffer.ndim:
            raise RunError(
                f"argument {buffer.name!r}: expected {buffer.ndim} dimensions, got {arg.ndim}"
            )
        for axis, (extent, actual) in enumerate(zip(buffer.shape, arg.shape)):
            if type(extent) is Var:
                known = symbols.setdefault(id(extent), actual)
            else:
                constant = as_int(extent)
                known = actual if constant is None else constant
            if known != actual:
                raise RunError(
                    f"argument {buffer.name!r}: expected extent {known} "
                    f"in dimension {axis}, got {actual}"
                )
        if buffer.strides:
            # Strided parameters see their elements where the strides say.
            arg = _strided_memory(buffer, arg, symbols, written_back)
        flat = arg
        if not (arg.flags.c_contiguous and arg.flags.writeable):
            flat = np.ascontiguousarray(arg).copy()
            if arg.flags.writeable:
                written_back.append((arg, flat))
        memory[number] = (values.view(flat, buffer.dtype), flat.reshape(-1))
    return memory, symbols, written_back


def _strided_memory(
    buffer: Any, arg: Any, symbols: dict[int, Any], written_back: list[tuple[Any, Any]]
) -> Any:
    strides = []
    for stride, actual in zip(buffer.strides, arg.strides):
        elements = actual // arg.itemsize
        strides.append(
            symbols.setdefault(id(stride), elements) if type(stride) is Var else as_int(stride)
        )
    if buffer.elem_offset is not None and type(buffer.elem_offset) is Var:
        symbols.setdefault(id(buffer.elem_offset), 0)
    if any(stride is None for stride in strides):
        raise RunError(f"argument {buffer.name!r}: strides must be numbers or variables")
    size = sum((n - 1) * s for n, s in zip(arg.shape, strides)) + 1
    memory = np.zeros(size, arg.dtype)
    window = np.lib.stride_tricks.as_strided(
        memory, arg.shape, [stride * arg.itemsize for stride in strides]
    )
    window[...] = arg
    if arg.flags.writeable:
        written_back.append((arg, window))
    return memory
