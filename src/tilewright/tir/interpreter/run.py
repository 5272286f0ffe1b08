"""Runs TensorIR functions, and the functions of their module that they call, on NumPy arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from types import CodeType
from typing import Any

import numpy as np

from tilewright.arith import simplify
from tilewright.ir import (
    MAX_VSCALE,
    IRModule,
    Var,
    as_int,
    const,
    dtypes,
    free_vars,
    substitute,
    with_vscale,
)
from tilewright.support.errors import RunError
from tilewright.tir.function import PrimFunc
from tilewright.tir.interpreter import values
from tilewright.tir.interpreter.emit import python_source
from tilewright.tir.interpreter.races import Races, Written
from tilewright.tir.interpreter.thread_ops import run_unwatched
from tilewright.tir.interpreter.threads import run_threads
from tilewright.tir.interpreter.traffic import MemoryReport, Traffic
from tilewright.tir.interpreter.warp_matrix import run_alone
from tilewright.tir.returned_values import returned_dtype

Program = Callable[[dict[int, Any], dict[int, Any]], Any]


def compile_function(
    func: PrimFunc,
    mod: IRModule | None = None,
    *,
    check_races: bool = False,
    warp_size: int = 32,
    backwards: bool = False,
    vscale: int = 1,
) -> Callable[..., Any]:
    """Return a Python function that runs ``func`` in place on NumPy arrays and numbers.

    It gives what ``func`` returns, ``None`` if it has no result or ended without one.

    ``mod`` holds the functions that it may call by name. With ``check_races`` accesses of threads
    to shared and global memory are followed; see ``run``. With ``backwards``, parallel and
    vectorized loops run from the end: nobody may notice. ``vscale`` is what the program finds
    ``T.vscale()`` to be.
    """
    program = _Linker(mod, check_races, warp_size, backwards, vscale=vscale).compiled(func)

    return lambda *args: _call(program, func, args, vscale)


def run(
    func: PrimFunc | IRModule,
    *args: object,
    name: str = "main",
    check_races: bool = False,
    warp_size: int = 32,
    vscale: int = 1,
) -> Any:
    """Run a function (or function ``name`` of a module) in place on NumPy arrays and numbers.

    Gives what the function returns, ``None`` if it has no result or ended without one.

    ``check_races`` raises an error when two threads use one element of shared or global memory,
    one of them to write, and no barrier orders them; programs must have been through
    ``UnifyThreadBinding``. ``vscale`` is the length of scalable vectors, by the least one.

    Raises ``RunError`` for arguments that don't fit, accesses out of bounds, failed assertions,
    races, and barriers that not all threads reach.
    """
    mod = func if isinstance(func, IRModule) else None
    if mod is not None and name not in mod and len(mod) == 1:
        name = next(iter(mod))
    chosen: Any = func if mod is None else mod[name]
    program = compile_function(
        chosen, mod, check_races=check_races, warp_size=warp_size, vscale=vscale
    )
    return program(*args)


def simulate(
    func: PrimFunc | IRModule,
    *args: object,
    name: str = "main",
    check_races: bool = True,
    warp_size: int = 32,
) -> MemoryReport:
    """Run a lowered program as ``run`` does, and return how its threads use memory.

    Accesses of shared memory come with their bank conflicts, those of global memory with the
    sectors that they move. Raises ``RunError`` as ``run``, and if ``name`` is not in the module.
    """
    mod = func if isinstance(func, IRModule) else None
    if mod is not None and name not in mod:
        raise RunError(f"the module has no function {name!r}; it has {', '.join(mod.functions)}")
    chosen: Any = func if mod is None else mod[name]
    linker = _Linker(mod, check_races, warp_size, False, report=True)
    _call(linker.compiled(chosen), chosen, args)
    return MemoryReport(tuple(item for one in linker.traffic for item in one.report().accesses))


class Returned(Exception):
    """Ends a program by ``return``, with its value."""


def _call(program: Program, func: PrimFunc, args: tuple[object, ...], vscale: int = 1) -> Any:
    memory, symbols, written_back = _bind(func, args, vscale)
    result = program(memory, symbols)
    for original, copy in written_back:
        original[...] = copy.reshape(original.shape)
    return None if returned_dtype(func) == "void" else result


def _fail(message: str, *values: object, kind: type[Exception] = RunError) -> None:
    raise kind(message.format(*values) if values else message)


_NAMES = (
    "Places", "allocate", "check_index", "check_vector", "convert", "divide", "dot_accumulate",
    "fetch_add", "floor_divide", "floor_modulo", "joined", "lanes_from", "maximum", "minimum",
    "misalignment",
    "out_of_bounds", "recast", "reinterpret", "select", "shift", "trunc_divide", "trunc_modulo",
    "undefined", "view", "wrap",
)  # fmt: skip


@lru_cache(maxsize=512)
def _code(piece: str) -> CodeType:
    return compile(piece, "<interpreter>", "exec")


class _Linker:
    """Compiles functions, and those that they call when they are first called."""

    def __init__(
        self,
        mod: IRModule | None,
        check_races: bool,
        warp_size: int,
        backwards: bool,
        report: bool = False,
        vscale: int = 1,
    ) -> None:
        if type(vscale) is not int or not 1 <= vscale <= MAX_VSCALE:
            raise RunError(f"vscale is a number from 1 to {MAX_VSCALE}, got {vscale!r}")
        self.vscale = vscale
        self.mod = mod
        self.backwards = backwards
        self.warp_size = warp_size
        self.check_races = check_races
        self.report = report
        self.traffic: list[Traffic] = []
        self.programs: dict[str, Program] = {}
        self.written = Written()

    def compiled(self, func: PrimFunc) -> Program:
        source = python_source(
            func,
            functions=self.mod or (),
            check_races=self.check_races,
            backwards=self.backwards,
            report=self.report,
        )
        known: dict[str, Any] = {name: getattr(values, name) for name in _NAMES}
        known.update(np=np, nan=math.nan, inf=math.inf, fail=_fail, Races=Races, Returned=Returned)
        known.update(written=self.written, vscale=self.vscale)
        known["run_threads"] = partial(run_threads, warp_size=self.warp_size)
        known.update(run_alone=run_alone, run_unwatched=run_unwatched)
        known["call_function"] = self.call
        if self.report:
            self.traffic.append(Traffic(source.accesses))
            known["traffic"] = self.traffic[-1]
        for name in source.intrinsics:
            known["intrinsic_" + name] = values.float_intrinsic(name)
        for name, check in source.checks.items():
            known[name] = values.Places(*check)
        pieces = [_code(piece) for piece in source.pieces]

        def program(memory: dict[int, Any], symbols: dict[int, Any]) -> Any:
            scope = {**known, "memory": memory, "symbols": symbols}
            before = len(self.written.alive)
            try:
                for piece in pieces:
                    exec(piece, scope)
            except Returned as end:
                return end.args[0]
            finally:
                self.written.keep(before)
                scope.clear()  # functions in there refer to it: arrays would stay for a while
            return None

        return program

    def call(self, name: str, pointers: list[Any], scalars: list[Any], needed: bool) -> Any:
        """Call a function of the module as kernels are called: see ``codegen``.

        Pointers of tensors come first, then scalars, then symbolic extents. Gives the function's
        value, or 0 if it has none; ``needed`` says that it must not end without.
        """
        assert self.mod is not None
        func: PrimFunc = self.mod[name]
        if name not in self.programs:
            self.programs[name] = self.compiled(func)
        tensors = [index for index, var in enumerate(func.params) if var in func.buffer_map]
        names = [var for var in func.params if var not in func.buffer_map]
        names += func.symbolic_vars()
        if len(pointers) != len(tensors) or len(scalars) != len(names):
            raise RunError(
                f"{name!r} takes {len(tensors)} pointers and {len(names)} numbers, "
                f"it is called with {len(pointers)} and {len(scalars)}"
            )
        memory = {}
        for index, array in zip(tensors, pointers):
            dtype = func.buffer_map[func.params[index]].dtype
            if array.dtype != values.numpy_dtype(dtype):
                array = values.recast(array, dtype)
            memory[index] = (values.view(array, dtype), array)
        values_of = {id(var): value for var, value in zip(names, scalars)}
        found = self.programs[name](memory, values_of)
        if returned_dtype(func) == "void":
            return 0
        if found is None and needed:
            raise RunError(f"{name} ended without returning its {returned_dtype(func)}")
        return found


def _bind(
    func: PrimFunc, args: tuple[object, ...], vscale: int
) -> tuple[dict[int, Any], dict[int, Any], list[tuple[Any, Any]]]:
    """Match arguments with parameters; find the values of symbolic extents."""
    if len(args) != len(func.params):
        raise RunError(f"expected {len(func.params)} arguments, got {len(args)}")
    memory: dict[int, Any] = {}
    symbols: dict[int, Any] = {}
    written_back: list[tuple[Any, Any]] = []
    for var, arg in zip(func.params, args):
        if var not in func.buffer_map:
            symbols[id(var)] = _scalar(var, arg)
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
            arg, base = _strided_memory(buffer, arg, symbols, written_back)
            symbols[id(buffer)] = base
        flat = arg
        if not (arg.flags.c_contiguous and arg.flags.writeable):
            flat = np.ascontiguousarray(arg).copy()
            if arg.flags.writeable:
                written_back.append((arg, flat))
        memory[number] = (values.view(flat, buffer.dtype), flat.reshape(-1))
    _solve_formulas(func, args, symbols)
    _check_formulas(func, args, symbols, vscale)
    return memory, symbols, written_back


def _solve_formulas(func: PrimFunc, args: tuple[Any, ...], symbols: dict[int, Any]) -> None:
    """Find symbols that no extent is, but ones like ``n * 4`` are made of, as compiled code does.

    What comes of it is checked afterwards: nothing else is asked of the formula here.
    """
    for var, arg in zip(func.params, args):
        buffer = func.buffer_map.get(var)
        for axis, extent in enumerate(() if buffer is None else buffer.shape):
            used = free_vars(extent)
            unknown = [v for v in used if id(v) not in symbols]
            if len(unknown) != 1:
                continue
            known = {v: const(symbols[id(v)], v.dtype) for v in used if v is not unknown[0]}
            first, second = (
                as_int(
                    simplify(substitute(extent, {**known, unknown[0]: const(n, unknown[0].dtype)}))
                )
                for n in (0, 1)
            )
            if first is not None and second is not None and first != second:
                symbols[id(unknown[0])] = (arg.shape[axis] - first) // (second - first)


def _check_formulas(
    func: PrimFunc, args: tuple[Any, ...], symbols: dict[int, Any], vscale: int
) -> None:
    """Compare extents that are formulas (``n * 2``) with those of the arguments."""
    for var, arg in zip(func.params, args):
        buffer = func.buffer_map.get(var)
        for axis, extent in enumerate(() if buffer is None else buffer.shape):
            if type(extent) is Var or as_int(extent) is not None:
                continue
            known = {
                v: const(symbols[id(v)], v.dtype) for v in free_vars(extent) if id(v) in symbols
            }
            wanted = as_int(simplify(with_vscale(substitute(extent, known), vscale)))
            if wanted is not None and wanted != arg.shape[axis]:
                assert buffer is not None
                raise RunError(
                    f"argument {buffer.name!r}: expected extent {extent!r}, which is {wanted}, "
                    f"in dimension {axis}, got {arg.shape[axis]}"
                )


def _scalar(var: Var, value: object) -> object:
    if isinstance(value, (int, np.integer)) and dtypes.is_integer(var.dtype):
        low, high = dtypes.integer_limits(var.dtype)
        if not low <= value <= high:
            raise RunError(f"argument {var.name!r}: expected a value of {var.dtype}, got {value}")
        return int(value)
    return value


def _strided_memory(
    buffer: Any, arg: Any, symbols: dict[int, Any], written_back: list[tuple[Any, Any]]
) -> tuple[Any, int]:
    """Memory in which the elements lie as the strides say, and the place of the first one."""
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
    if 0 in arg.shape:
        return np.zeros(1, arg.dtype), 0
    # Elements may lie before the first one: the pointer then points into the middle of memory.
    ends = [(extent - 1) * stride for extent, stride in zip(arg.shape, strides)]
    base = -sum(min(end, 0) for end in ends)
    memory = np.zeros(base + sum(max(end, 0) for end in ends) + 1, arg.dtype)
    window = np.lib.stride_tricks.as_strided(
        memory[base:], arg.shape, [stride * arg.itemsize for stride in strides]
    )
    window[...] = arg
    if arg.flags.writeable:
        written_back.append((arg, window))
    return memory, base
