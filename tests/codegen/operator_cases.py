"""Functions of one operator each, for every dtype and width, with operands that are awkward.

What tests of code generators for C-like languages share: the reference is the interpreter.
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from tilewright.ir import IRModule, dtypes
from tilewright.script import parse
from tilewright.tir import PrimFunc
from tilewright.tir.interpreter import run

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = (*SIGNED, *UNSIGNED)
FLOATS = ("float16", "bfloat16", "float32", "float64")
FP8 = ("float8_e4m3fn", "float8_e5m2")
WIDTHS = (1, 2, 4, 8)


class Case(NamedTuple):
    """An expression of ``A[i]``, ``B[i]``, ``C[i]`` and dtypes of those and of the result."""

    name: str
    inputs: tuple[str, ...]
    output: str
    text: str
    ulp: float = 0.0  # of the result's dtype
    lanes: int = 1


def _same(name: str, kinds: Any, text: str, count: int = 2, ulp: float = 0.0) -> list[Case]:
    made = []
    for dtype in kinds:
        body = text.replace("DT", dtype)
        made.append(Case(f"{name}_{dtype}", (dtype,) * count, dtype, body, ulp))
    return made


def _to(name: str, kinds: Any, output: str, text: str, count: int = 2) -> list[Case]:
    return [Case(f"{name}_{k}", (k,) * count, output, text.replace("DT", k)) for k in kinds]


NUMBERS = (*INTEGERS, *FLOATS)
ARITHMETIC = [
    *_same("add", (*NUMBERS, *FP8), "A[i] + B[i]"),
    *_same("sub", (*NUMBERS, *FP8), "A[i] - B[i]"),
    *_same("mul", (*NUMBERS, *FP8), "A[i] * B[i]"),
    *_same("div", FLOATS, "A[i] / B[i]"),
    *_same("floordiv", INTEGERS, "A[i] // B[i]"),
    *_same("floormod", INTEGERS, "A[i] % B[i]"),
    *_same("floordiv3", INTEGERS, "A[i] // T.DT(3)", 1),
    *_same("floordiv8", INTEGERS, "A[i] // T.DT(8)", 1),
    *_same("floormod8", INTEGERS, "A[i] % T.DT(8)", 1),
    *_same("floormod7", SIGNED, "A[i] % T.DT(7)", 1),
    *_same("floordivm1", SIGNED, "A[i] // T.DT(-1)", 1),
    *_same("floordivm4", SIGNED, "A[i] // T.DT(-4)", 1),
    *_same("truncdiv", INTEGERS, "T.truncdiv(A[i], B[i])"),
    *_same("truncmod", INTEGERS, "T.truncmod(A[i], B[i])"),
    *_same("truncmod5", INTEGERS, "T.truncmod(A[i], T.DT(5))", 1),
    *_same("min", NUMBERS, "T.min(A[i], B[i])"),
    *_same("max", NUMBERS, "T.max(A[i], B[i])"),
    *_same("relu", FLOATS, "T.max(A[i], T.DT(0))", 1),
    *_same("abs", NUMBERS, "T.abs(A[i])", 1),
    *_same("and", INTEGERS, "T.bitwise_and(A[i], B[i])"),
    *_same("or", INTEGERS, "T.bitwise_or(A[i], B[i])"),
    *_same("xor", INTEGERS, "T.bitwise_xor(A[i], B[i])"),
    *_same("not", INTEGERS, "T.bitwise_not(A[i])", 1),
    *_same("shl", INTEGERS, "T.shift_left(A[i], B[i])"),
    *_same("shr", INTEGERS, "T.shift_right(A[i], B[i])"),
    *_same("shl3", INTEGERS, "T.shift_left(A[i], T.DT(3))", 1),
    *_same("shr3", INTEGERS, "T.shift_right(A[i], T.DT(3))", 1),
    *_same("shr_all", INTEGERS, "T.shift_right(A[i], T.DT(64))", 1),
    *_same("popcount", INTEGERS, "T.popcount(A[i])", 1),
    *_same("clz", INTEGERS, 'T.clz(A[i])', 1),
    # The interpreter keeps float32 in double precision until it is stored.
    *_same("chain", (*INTEGERS, "float16", "bfloat16", "float64"), "(A[i] + B[i]) * A[i] - B[i]"),
    *_same("floor", FLOATS, "T.floor(A[i])", 1),
    *_same("ceil", FLOATS, "T.ceil(A[i])", 1),
    *_same("trunc", FLOATS, "T.trunc(A[i])", 1),
    *_same("round", FLOATS, "T.round(A[i])", 1),
    *_same("copysign", FLOATS, "T.copysign(A[i], B[i])"),
]  # fmt: skip
CONDITIONS = [
    *[
        case
        for name, symbol in (("lt", "<"), ("le", "<="), ("eq", "=="), ("ne", "!="))
        for case in _to(name, NUMBERS, "bool", f"A[i] {symbol} B[i]")
    ],
    *_to("isnan", FLOATS, "bool", "T.isnan(A[i])", 1),
    *_to("isinf", FLOATS, "bool", "T.isinf(A[i])", 1),
    *_to("isfinite", FLOATS, "bool", "T.isfinite(A[i])", 1),
    *_same("select", NUMBERS, "T.Select(A[i] < B[i], A[i], B[i] + B[i])"),
    *_same("choose", NUMBERS, "T.if_then_else(A[i] < B[i], A[i] + B[i], B[i])"),
    *_same("logic", ("bool",), "T.And(A[i], T.Or(T.Not(B[i]), A[i]))"),
    *_same("bits_of_truth", ("bool",), "T.bitwise_xor(A[i], T.bitwise_not(B[i]))"),
]
CASTS = [
    Case(f"cast_{a}_{b}", (a,), b, f'T.Cast("{b}", A[i])')
    for a, b in itertools.product((*NUMBERS, *FP8, "bool"), repeat=2)
    if a != b
]
REINTERPRETS = [
    Case(f"bits_{a}_{b}", (a,), b, f'T.reinterpret(A[i], dtype="{b}")')
    for group in (
        ("int8", "uint8", *FP8),
        ("int16", "uint16", "float16", "bfloat16"),
        ("int32", "uint32", "float32"),
        ("int64", "uint64", "float64"),
    )
    for a, b in itertools.permutations(group, 2)
]
_ULP = {
    "exp": 2, "exp2": 3, "exp10": 3, "expm1": 2, "log": 2, "log2": 2, "log10": 3, "log1p": 2,
    "sqrt": 0.5, "rsqrt": 2, "tanh": 3, "sigmoid": 4, "silu": 5, "erf": 3, "gelu": 0, "sin": 3,
    "gelu_tanh": 0, "cos": 3, "tan": 5, "sinh": 4, "cosh": 3, "asin": 3, "acos": 3, "atan": 3,
    "asinh": 4, "acosh": 5, "atanh": 4, "pow": 9, "atan2": 4, "fmod": 1, "hypot": 4,
}  # fmt: skip
_SIZE = ("gelu", "gelu_tanh")
"""Functions that cancel: the unit is that of the operand."""
FUNCTIONS = [
    case
    for name, ulp in _ULP.items()
    for case in _same(
        name,
        FLOATS,
        f"T.{name}(A[i], B[i])" if name in ("pow", "atan2", "fmod", "hypot") else f"T.{name}(A[i])",
        2 if name in ("pow", "atan2", "fmod", "hypot") else 1,
        ulp or 6,
    )
]
FORMULAS = [
    *_same("logaddexp", FLOATS, "T.logaddexp(A[i], B[i])", 2, 4),
    *_same("nextafter", FLOATS, "T.nextafter(A[i], B[i])"),
    *[Case(f"ldexp_{k}", (k, "int32"), k, "T.ldexp(A[i], B[i] % 300 - 150)") for k in FLOATS],
    *[Case(f"ldexp_far_{k}", (k, "int64"), k, "T.ldexp(A[i], B[i])") for k in FLOATS],
    Case("q_multiply_shift", ("int32", "int32"), "int32", "T.q_multiply_shift(A[i], B[i], 31, -2)"),
    Case("q_multiply_up", ("int32", "int32"), "int32", "T.q_multiply_shift(A[i], B[i], 31, 3)"),
    Case(
        "q_multiply_shift_per_axis", ("int32", "int32"), "int32",
        "T.q_multiply_shift_per_axis(A[i], B[i], 3, 1, 31, T.bool(True), T.bool(True))",
    ),
    Case("undef", ("int32",), "int32", "A[i] + T.int32(0) * T.undef(dtype=\"int32\")"),
]  # fmt: skip
ALL = [*ARITHMETIC, *CONDITIONS, *CASTS, *REINTERPRETS, *FUNCTIONS, *FORMULAS]


def at_widths(cases: list[Case], widths: tuple[int, ...] = WIDTHS) -> list[Case]:
    """Cases at each width, the width in their names."""
    return [
        case._replace(name=f"{case.name}_x{lanes}", lanes=lanes)
        for case in cases
        for lanes in widths
    ]


def numpy_of(dtype: str) -> Any:
    """The NumPy dtype of an element type."""
    return np.dtype(getattr(ml_dtypes, dtype, None) or dtype)


def special(dtype: str) -> np.ndarray[Any, Any]:
    """Numbers of a dtype where operators go wrong."""
    rng = np.random.default_rng(3)
    if dtype == "bool":
        return np.array([False, True])
    if dtypes.is_integer(dtype):
        low, high = dtypes.integer_limits(dtype)
        near = [low, low + 1, high, 0, 1, 2, 3, 7, 8, -1, -2, -8, 77, -77]
        drawn = rng.integers(low, high, 4, dtype=dtype, endpoint=True).tolist()
        return np.array([n for n in (*near, *drawn) if low <= n <= high], dtype)
    drawn = [*rng.standard_normal(3).tolist(), *(rng.standard_normal(3) * 300).tolist()]
    near = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 88.0, -88.0, 65504.0, 448.0]
    far = [
        float("inf"),
        float("-inf"),
        float("nan"),
        1e-40,
        -1e-7,
        6e-8,
        1e300,
        -3e38,
        2049.0,
        464.0,
    ]
    with np.errstate(over="ignore"):
        return np.array([*near, *far, *drawn]).astype(numpy_of(dtype))


def operands(case: Case) -> list[np.ndarray[Any, Any]]:
    """All pairs of the special numbers, as many as are a multiple of the width."""
    values = [special(dtype) for dtype in case.inputs]
    if len(values) > 1:
        values = [part.reshape(-1) for part in np.meshgrid(*values, indexing="ij")]
    if "T.pow" in case.text:  # NumPy's own gives NaN for some powers of minus infinity
        values[0] = np.where(np.isneginf(values[0]), values[0].dtype.type(-2), values[0])
    size = -(-len(values[0]) // 8) * 8
    return [np.ascontiguousarray(np.resize(part, size)) for part in values]


def host_function(case: Case, size: int) -> PrimFunc:
    """The case as a function of a CPU."""
    return _function(case, size, "range({})")


def gpu_function(case: Case, size: int) -> PrimFunc:
    """The case as a kernel of one block with a thread for each vector."""
    return _function(case, size, 'T.thread_binding({}, thread="blockIdx.x")')


def _function(case: Case, size: int, loop: str) -> PrimFunc:
    buffers = [f'{name}: T.Buffer(({size},), "{d}")' for name, d in zip("ABC", case.inputs)]
    buffers.append(f'Z: T.Buffer(({size},), "{case.output}")')
    index = f"i * {case.lanes} + v"
    text = case.text.replace("[i]", f"[{index}]")
    made: PrimFunc = parse(
        f"""
@T.prim_func
def main({", ".join(buffers)}):
    for i in {loop.format(size // case.lanes)}:
        for v in T.vectorized({case.lanes}):
            Z[{index}] = {text}
"""
    )
    return made


def module_of(cases: list[Case], make: Any) -> IRModule:
    """One module of all cases, by name."""
    return IRModule({case.name: make(case, len(operands(case)[0])) for case in cases})


def expected(case: Case) -> np.ndarray[Any, Any]:
    """What the interpreter gives."""
    return _expected(case._replace(name="", lanes=1))


@cache
def _expected(case: Case) -> np.ndarray[Any, Any]:
    values = operands(case)
    result = np.zeros(len(values[0]), numpy_of(case.output))
    run(host_function(case, len(result)), *values, result)
    return result


def check(case: Case, got: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> str | None:
    """Say how a result differs from what is expected, ``None`` if it doesn't."""
    if not dtypes.is_float(case.output):
        wrong = got.astype(object) != want.astype(object)
    else:
        a, b = got.astype("float64"), want.astype("float64")
        with np.errstate(all="ignore"):
            wrong = ~((a == b) | (np.isnan(a) & np.isnan(b)))
            if case.ulp:
                size = np.abs(b)
                if case.text.startswith(tuple(f"T.{name}(" for name in _SIZE)):
                    size = np.maximum(size, np.abs(operands(case)[0].astype("float64")))
                unit = _spacing(size, case.output)
                wrong &= ~(np.abs(a - b) <= case.ulp * unit)
    if not wrong.any():
        return None
    place = int(np.argmax(wrong))
    given = ", ".join(str(part[place]) for part in operands(case))
    return f"{case.name}({given}) is {got[place]}, expected {want[place]}; {wrong.sum()} differ"


def _spacing(size: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """The unit in the last place of numbers of a dtype."""
    digits = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}.get(dtype, 4)
    least = {"float16": -24, "bfloat16": -133, "float32": -149, "float64": -1074}.get(dtype, -16)
    exponent = np.frexp(size)[1] - digits
    return np.ldexp(1.0, np.maximum(exponent, least))
