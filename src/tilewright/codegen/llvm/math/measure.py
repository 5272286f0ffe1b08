"""Compile single math functions and measure their error, for tests and ``tools/math_page.py``.

Needs llvmlite (imported when used). The code generator does not use this module.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.codegen.llvm.math.builder import FORMATS
from tilewright.codegen.llvm.math.spec import (
    GENERIC,
    MATH_FUNCTIONS,
    collect,
    emit_math,
    instruction_set,
    max_ulp,
)
from tilewright.target import host

Array = npt.NDArray[Any]
_session = itertools.count()


@dataclass
class CompiledMath:
    """A math function as a callable on arrays of its dtype (any length; padded to the lanes)."""

    name: str
    dtype: str
    lanes: int
    isa: str
    address: int
    keep: Any = field(repr=False)

    @property
    def max_ulp(self) -> float:
        """The stated bound."""
        return max_ulp(self.name, self.dtype, self.isa)

    def __call__(self, *args: npt.ArrayLike) -> Array:
        given = [np.ascontiguousarray(a, dtype=self.dtype).ravel() for a in args]
        size = given[0].size
        padded = -(-size // self.lanes) * self.lanes
        inputs = [np.concatenate([a, np.zeros(padded - size, self.dtype)]) for a in given]
        result_type = np.bool_ if MATH_FUNCTIONS[self.name].result == "bool" else self.dtype
        out = np.empty(padded, dtype=result_type)
        pointers = [a.ctypes.data for a in (*inputs, out)]
        prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(pointers), ctypes.c_int64)
        prototype(self.address)(*pointers, padded)
        return out[:size]


def loop_text(name: str, dtype: str, lanes: int, isa: str = GENERIC) -> str:
    """Return a module with ``void run(in..., out, n)`` that applies the function to arrays."""
    function, spec, fmt = emit_math(name, dtype, lanes, isa), MATH_FUNCTIONS[name], FORMATS[dtype]
    type_ = fmt.llvm if lanes == 1 else f"<{lanes} x {fmt.llvm}>"
    mask, byte = ("i1", "i8") if lanes == 1 else (f"<{lanes} x i1>", f"<{lanes} x i8>")
    inputs = range(spec.arity)
    params = ", ".join(f"ptr %in{i}" for i in inputs)
    loads = "\n".join(
        f"  %p{i} = getelementptr {fmt.llvm}, ptr %in{i}, i64 %i\n"
        f"  %v{i} = load {type_}, ptr %p{i}, align 4"
        for i in inputs
    )
    args = ", ".join(f"{type_} %v{i}" for i in inputs)
    result, element, stored, widen = type_, fmt.llvm, f"{type_} %r", ""
    if spec.result == "bool":
        result, element, stored = mask, "i8", f"{byte} %b"
        widen = f"  %b = zext {mask} %r to {byte}\n"
    return f"""{collect([(name, dtype, lanes)], isa)}
define void @run({params}, ptr %out, i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{loads}
  %r = call {result} @{function.symbol}({args})
{widen}  %q = getelementptr {element}, ptr %out, i64 %i
  store {stored}, ptr %q, align 1
  %next = add i64 %i, {lanes}
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""


@cache
def host_instruction_sets() -> tuple[str, ...]:
    """Return which formulas this machine can run, those that it uses first."""
    features, _ = host.cpu_features()
    narrower = {key for key in features if not key.startswith("avx512")}
    return tuple(dict.fromkeys((instruction_set(features), instruction_set(narrower), GENERIC)))


def host_instruction_set() -> str:
    """Return which formulas this machine uses."""
    return host_instruction_sets()[0]


def compile_run(text: str) -> tuple[int, Any]:
    """Compile a module for this machine; return the address of ``run``, and what keeps it."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple().create_target_machine(
        cpu=host.cpu_name(), features=host.feature_text(), opt=2
    )
    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    builder = llvm.create_pass_builder(target, options)
    builder.getModulePassManager().run(module, builder)
    engine = llvm.create_lljit_compiler(target, use_jit_link=True)
    tracker = (
        llvm.JITLibraryBuilder()
        .add_object_img(target.emit_object(module))
        .add_current_process()
        .export_symbol("run")
        .link(engine, f"math{next(_session)}")
    )
    return tracker["run"], (engine, tracker)


def compile_math(name: str, dtype: str, lanes: int, isa: str | None = None) -> CompiledMath:
    """Compile a function for this machine, by its own formulas or those of ``isa``."""
    isa = isa or host_instruction_set()
    address, keep = compile_run(loop_text(name, dtype, lanes, isa))
    return CompiledMath(name, dtype, lanes, isa, address, keep)


def _scalarwise(function: Callable[[float], float]) -> Callable[..., Array]:
    return lambda x: np.asarray(np.frompyfunc(function, 1, 1)(x), np.float64)


def _gelu_tanh(x: Array) -> Array:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return np.asarray(x * (1 / (1 + np.exp(-2 * inner))))


def _gelu(x: Array) -> Array:
    tail = _scalarwise(math.erfc)(-x * math.sqrt(0.5))
    return np.asarray(0.5 * x * tail)


REFERENCES: dict[str, Callable[..., Array]] = {
    **{
        name: getattr(np, name)
        for name in (
            "exp exp2 expm1 log log2 log10 log1p sqrt tanh sin cos tan sinh cosh fabs floor ceil "
            "trunc fmod copysign isnan isinf isfinite"
        ).split()
    },
    "exp10": lambda x: np.power(10.0, x),
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "round": np.rint,
    "nearbyint": np.rint,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "silu": lambda x: x * (1.0 / (1.0 + np.exp(-x))),
    "erf": _scalarwise(math.erf),
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "asin": np.arcsin,
    "acos": np.arccos,
    "pow": np.power,
}
"""float64 functions against which float32 results are measured."""


def ulp_size(value: Array, dtype: str) -> Array:
    """Return the spacing of ``dtype`` at the magnitude of ``value`` (float64 values)."""
    fmt = FORMATS[dtype]
    _, exponent = np.frexp(np.abs(value))
    lowest = 1 - fmt.bias - fmt.mantissa
    return np.asarray(np.ldexp(1.0, np.maximum(exponent - 1 - fmt.mantissa, lowest)))


def float32_errors(compiled: CompiledMath, *args: Array) -> Array:
    """Return the error of each result in ulp; infinite where a special value is wrong."""
    spec = MATH_FUNCTIONS[compiled.name]
    with np.errstate(all="ignore"):
        got = compiled(*args).astype(np.float64)
        want = REFERENCES[compiled.name](*(a.astype(np.float64) for a in args))
        top = float(np.finfo(np.float32).max)
        scale = np.abs(want)
        if spec.scale == "operand":
            scale = np.maximum(scale, np.abs(args[0].astype(np.float64)))
        size = ulp_size(np.minimum(scale, top), "float32")
        # A result that rounds past the largest number is infinity, at distance 0.
        beyond = np.abs(want) >= top + size / 2
        error = np.abs(got - want) / size
        error = np.where(beyond | np.isinf(got), np.where(got == want, 0.0, error), error)
        finite_got = np.where(np.isinf(got), np.copysign(top + size, got), got)
        error = np.where(
            np.isinf(got) & np.isfinite(want) | beyond & np.isfinite(got),
            np.abs(finite_got - np.clip(want, -top - size, top + size)) / size,
            error,
        )
        error = np.where(np.isnan(want), np.where(np.isnan(got), 0.0, np.inf), error)
        error = np.where(np.isnan(got) & ~np.isnan(want), np.inf, error)
        error = np.where((want == 0) & (np.signbit(want) != np.signbit(got)), np.inf, error)
    return np.asarray(error, dtype=np.float64)
