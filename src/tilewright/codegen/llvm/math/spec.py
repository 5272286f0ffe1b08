"""What the vector math library offers, and how a function's text is made from its formula.

A formula is a plain function ``(Builder, *Value) -> Value`` registered with :func:`math_function`;
:func:`emit_math` runs it for one format and lane count and caches the text, and :func:`collect`
joins the texts that one LLVM module needs.

Where an instruction set offers more than LLVM's portable operations, a formula of its own
(:func:`math_variant`) takes the place of the portable one. It is written for one to four whole
registers; other lane counts are cut up or filled up to these, so that a function gives the same
bits at every width.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from tilewright.codegen.llvm.math.builder import FORMATS, Builder, Value
from tilewright.support.errors import CodegenError

Formula = Callable[..., Value]
HelperMaker = Callable[[bool], "MathFunction"]  # from whether the target has fused multiply-add
MathRequest = tuple[str, str, int]  # name, dtype, lanes

GENERIC, NO_FMA, AVX2, AVX512 = "generic", "no-fma", "avx2", "avx512"
UNFUSED_ULP = 0.5
"""What the second roundings add to bounds on targets without fused multiply-add."""

REGISTER_BITS = {AVX2: 256, AVX512: 512}
"""Instruction sets that have formulas of their own, with the width of their registers."""


@dataclass(frozen=True)
class MathSpec:
    """One function of the library.

    ``max_ulp`` is the stated bound on the error per dtype, in units in the last place of the
    result; the tests hold the implementation to it. With ``scale="operand"`` the unit is that of
    the larger of result and first operand (functions whose result cancels by definition).
    """

    name: str
    arity: int
    max_ulp: Mapping[str, float]
    domain: str
    formula: Formula
    result: str = "float"  # or "bool": one i1 per lane
    scale: str = "result"
    calls_libm: bool = False


@dataclass(frozen=True)
class MathFunction:
    """The LLVM IR text of one function. ``depends`` are requests for functions that it calls.

    No ``declare`` lines are needed: LLVM declares intrinsics by itself when it reads a call.
    """

    symbol: str
    text: str
    depends: tuple[MathRequest, ...] = ()


@dataclass(frozen=True)
class _Variant:
    formula: Formula
    ulp: float
    registers: int  # the most vectors that it computes side by side


_SPECS: dict[str, MathSpec] = {}
_HELPERS: dict[str, HelperMaker] = {}
_VARIANTS: dict[tuple[str, str, str], _Variant] = {}  # by name, dtype, instruction set

MATH_FUNCTIONS: Mapping[str, MathSpec] = MappingProxyType(_SPECS)
"""Every public function by name."""


def math_function(
    *,
    ulp: tuple[float, float],
    domain: str = "all reals",
    arity: int = 1,
    result: str = "float",
    scale: str = "result",
    calls_libm: bool = False,
    name: str | None = None,
) -> Callable[[Formula], Formula]:
    """Register a formula under its own name; ``ulp`` is the bound for (float32, float64)."""

    def register(formula: Formula) -> Formula:
        key = name or formula.__name__
        bounds = MappingProxyType({"float32": ulp[0], "float64": ulp[1]})
        _SPECS[key] = MathSpec(key, arity, bounds, domain, formula, result, scale, calls_libm)
        return formula

    return register


def math_variant(
    *, isa: str, ulp: float, dtype: str = "float32", registers: int = 4
) -> Callable[[Formula], Formula]:
    """Register an instruction set's own formula for the function of the same name.

    Up to ``registers`` vectors are computed side by side, which hides latency until they spill.
    """

    def register(formula: Formula) -> Formula:
        _VARIANTS[formula.__name__, dtype, isa] = _Variant(formula, ulp, registers)
        return formula

    return register


def instruction_set(features: Collection[str]) -> str:
    """Return which formulas a CPU with these features (LLVM's names) uses."""
    if "avx512f" in features:
        return AVX512
    if {"avx2", "fma"} <= set(features):
        return AVX2
    return GENERIC if {"fma", "neon"} & set(features) else NO_FMA


def max_ulp(name: str, dtype: str, isa: str = GENERIC) -> float:
    """Return the stated bound of a function on an instruction set."""
    variant = _VARIANTS.get((name, dtype, isa))
    if variant:
        return variant.ulp
    bound = _SPECS[name].max_ulp[dtype]
    return bound + UNFUSED_ULP if isa == NO_FMA and bound > 0.5 else bound


def has_variant(name: str, dtype: str, isa: str) -> bool:
    """Whether an instruction set has a formula of its own for a function."""
    return (name, dtype, isa) in _VARIANTS


def math_helper(name: str) -> Callable[[HelperMaker], HelperMaker]:
    """Register the maker of a scalar float64 function that formulas call on rare lanes."""

    def register(make: HelperMaker) -> HelperMaker:
        _HELPERS[name] = make
        return make

    return register


def compute_dtype(dtype: str) -> str:
    """Return the dtype in which to evaluate functions of ``dtype``: half types widen to float32."""
    if dtype in ("float16", "bfloat16"):
        return "float32"
    if dtype in FORMATS:
        return dtype
    raise CodegenError(
        f"no vector math for dtype '{dtype}': supported are float32 and float64, "
        "and float16 and bfloat16 by way of float32"
    )


def _check(name: str, dtype: str, lanes: int) -> None:
    if name not in _SPECS:
        near = difflib.get_close_matches(name, _SPECS, n=3)
        hint = f"; did you mean {', '.join(near)}?" if near else "."
        raise CodegenError(
            f"unknown math function '{name}'{hint} Supported: {', '.join(sorted(_SPECS))}"
        )
    if dtype not in FORMATS:
        wide = compute_dtype(dtype)
        raise CodegenError(
            f"math functions are emitted for float32 and float64, not '{dtype}': "
            f"convert to '{wide}' first (see compute_dtype)"
        )
    if lanes < 1:
        raise CodegenError(f"lanes must be at least 1, got {lanes}")


@cache
def emit_math(name: str, dtype: str, lanes: int, isa: str = GENERIC) -> MathFunction:
    """Emit one function as LLVM IR text, by the formulas of an instruction set.

    The symbol is ``tw_<name>_<overload>`` with LLVM's overload spelling, e.g. ``tw_exp_v16f32`` for
    ``<16 x float>`` and ``tw_exp_f64`` for ``double``. It is ``internal`` and ``alwaysinline``.
    """
    if name in _HELPERS:
        return _HELPERS[name](isa != NO_FMA)
    _check(name, dtype, lanes)
    builder = Builder(FORMATS[dtype], lanes, fused=isa != NO_FMA)
    formula = _SPECS[name].formula
    variant = _VARIANTS.get((name, dtype, isa))
    if variant is not None:
        formula = variant.formula
        register = REGISTER_BITS[isa] // builder.fmt.bits
        width = min(-(-lanes // register), variant.registers) * register
        if lanes != width:
            formula = _by_call(name, dtype, width, isa)
    return _emit(_SPECS[name], formula, builder)


def _by_call(name: str, dtype: str, width: int, isa: str) -> Formula:
    """Return a formula that calls the function of ``width`` lanes on parts."""
    symbol = emit_math(name, dtype, width, isa).symbol
    result = f"<{width} x {FORMATS[dtype].llvm}>"

    def formula(b: Builder, *args: Value) -> Value:
        b.depends.append((name, dtype, width))
        return b.by_parts(width, lambda *a: f"call {result} @{symbol}({', '.join(a)})", "f", *args)

    return formula


def _emit(spec: MathSpec, formula: Formula, builder: Builder) -> MathFunction:
    type_ = builder.types["f"]
    names = ("%x", "%y", "%z")[: spec.arity]
    value = formula(builder, *(builder.value("f", arg) for arg in names))
    symbol = f"tw_{spec.name}_{builder.overload}"
    params = ", ".join(f"{type_} {arg}" for arg in names)
    result = value.type
    text = "\n".join(
        (
            f"define internal {result} @{symbol}({params}) alwaysinline nounwind memory(none) {{",
            "entry:",
            *builder.lines,
            f"  ret {result} {value.text}",
            "}",
        )
    )
    return MathFunction(symbol, text, tuple(builder.depends))


def collect(requests: Iterable[MathRequest], isa: str = GENERIC) -> str:
    """Return one text with each requested function and all that they call, each once."""
    texts: dict[str, str] = {}

    def add(request: MathRequest) -> None:
        function = emit_math(*request, isa)
        if function.symbol in texts:
            return
        for needed in function.depends:
            add(needed)
        texts[function.symbol] = function.text

    for request in requests:
        add(request)
    return "\n\n".join(texts.values()) + "\n" if texts else ""
