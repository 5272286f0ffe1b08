"""Small floats on hardware without them: every value converts as NumPy's does."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from transform_cases import applied, body, lowered, module, unchanged

from tilewright import driver, tir
from tilewright.ir import IRModule, Sequential
from tilewright.ir.float_formats import FLOAT_FORMATS as FORMATS
from tilewright.ir.float_formats import FloatFormat
from tilewright.script import parse
from tilewright.support.errors import LowerError
from tilewright.target import Target
from tilewright.tir import transform
from tilewright.tir.analysis import verify
from tilewright.tir.interpreter import run as interpret

NUMPY = {name: getattr(ml_dtypes, name, np.float16) for name in FORMATS}
WHOLE_BYTES = [name for name in FORMATS if FORMATS[name].bits >= 8]
IN_MEMORY = """
@T.prim_func
def main(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
    B = T.alloc_buffer((64,), "DT")
    for i in range(64):
        B[i] = T.Cast("DT", A[i])
    for i in range(64):
        C[i] = T.Cast("float32", B[i])
"""
BOTH = Sequential(
    [transform.FloatComputeLegalize(native=()), transform.FloatStorageLegalize(native=())]
)

CONVERT = """
@T.prim_func
def main(A: T.Buffer(({size},), "{source}"), C: T.Buffer(({size},), "{target}")):
    for i in range({size}):
        C[i] = T.Cast("{target}", A[i])
"""


def every_value(dtype: str) -> np.ndarray:
    bits = FORMATS[dtype].bits
    return np.arange(1 << bits, dtype=f"uint{max(8, bits)}").view(NUMPY[dtype])


def awkward_floats(dtype: str) -> np.ndarray:
    """Values of a format, those half-way between neighbours, and their neighbours."""
    with np.errstate(all="ignore"):
        values = every_value(dtype).astype("float32")
        values = np.unique(values[np.isfinite(values)])
        middle = (values[1:].astype("float64") + values[:-1]) / 2
        middle = middle.astype("float32")
    around = [np.nextafter(middle, np.float32(x)) for x in (-np.inf, np.inf)]
    rng = np.random.default_rng(0)
    some = rng.integers(0, 2**32, 2000, dtype=np.uint32).view("float32")
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1e30, 1e-30, 465, 480, 6e4, 7e4])
    found = np.concatenate([values, middle, *around, some, special.astype("float32")])
    return rng.permutation(found)[:3000] if dtype in ("bfloat16", "float16") else found


def assert_same_floats(a: np.ndarray, b: np.ndarray) -> None:
    """Equal up to the payload of NaNs; zeros have signs."""
    with np.errstate(all="ignore"):
        wide_a, wide_b = a.astype("float32"), b.astype("float32")
    np.testing.assert_array_equal(wide_a, wide_b)
    numbers = ~np.isnan(wide_a)
    np.testing.assert_array_equal(np.signbit(wide_a[numbers]), np.signbit(wide_b[numbers]))


@pytest.mark.parametrize("dtype", WHOLE_BYTES)
@pytest.mark.parametrize("compiled", [False, True], ids=["interpreted", "compiled"])
def test_widening_is_exact_for_every_value(dtype, compiled):
    a = every_value(dtype)
    if not compiled and len(a) > 256:
        a = a[:: len(a) // 1024]
    run(CONVERT.format(size=len(a), source=dtype, target="float32"), a, "float32", compiled)


@pytest.mark.parametrize("dtype", WHOLE_BYTES)
@pytest.mark.parametrize("compiled", [False, True], ids=["interpreted", "compiled"])
def test_rounding_is_to_nearest_even(dtype, compiled):
    a = awkward_floats(dtype)
    run(CONVERT.format(size=len(a), source="float32", target=dtype), a, dtype, compiled)


def run(text: str, a: np.ndarray, target: str, compiled: bool) -> None:
    kind = NUMPY.get(target, np.float32)
    made = BOTH(transform.FlattenBuffer()(transform.LowerOpaqueBlock()(module(text))))
    with np.errstate(all="ignore"):
        expected = a.astype(kind)
    c = np.zeros(len(a), kind)
    if not compiled:
        verify(made)
        with np.errstate(all="ignore"):
            interpret(made, a, c)
    else:
        driver.build(made, Target("native"))["main"](a, c)
    assert_same_floats(c, expected)


ARITHMETIC = """
@T.prim_func
def main(A: T.Buffer((64,), "DT"), B: T.Buffer((64,), "DT"), C: T.Buffer((64,), "DT"),
         D: T.Buffer((64,), "bool")):
    for i in range(64):
        x: T.DT = A[i] * B[i]
        C[i] = T.if_then_else(x < T.DT(0.3), T.exp(x) + T.max(A[i], B[i]), T.DT(0.1) - x)
        D[i] = T.isnan(A[i]) or A[i] < B[i]
"""


@pytest.mark.parametrize("dtype", [d for d in WHOLE_BYTES if d != "float8_e8m0fnu"])
def test_arithmetic_is_in_float32(dtype):
    mod = lowered(ARITHMETIC.replace("DT", dtype))
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(64).astype(NUMPY[dtype]) for _ in range(2))
    arrays = a, b, np.zeros(64, NUMPY[dtype]), np.zeros(64, bool)
    wide = transform.FloatComputeLegalize(native=())(mod)
    text = applied(transform.FloatComputeLegalize(native=()), mod, *arrays)
    assert "x: T.float32" in text and f"T.{dtype}(" not in text
    bits = applied(transform.FloatStorageLegalize(native=()), wide, *arrays)
    rest = bits[bits.index("for i") :]
    assert dtype not in rest


CHAIN = """
@T.prim_func
def main(A: T.Buffer((64,), "DT"), C: T.Buffer((64,), "DT"), D: T.Buffer((64,), "bool")):
    for i in range(64):
        C[i] = T.max(A[i] * T.DT(3), T.DT(-300)) / T.DT(3) * T.DT(0.7) + A[i]
        D[i] = A[i] + T.DT(0.01) == A[i]
"""


@pytest.mark.parametrize("dtype", WHOLE_BYTES)
def test_each_operation_rounds(dtype):
    rng = np.random.default_rng(0)
    kind = NUMPY[dtype]
    with np.errstate(all="ignore"):
        a = (rng.standard_normal(64) * 10 ** rng.uniform(-2, 5, 64)).astype(kind)
        three, lowest, part, little = (kind(x) for x in (3, -300, 0.7, 0.01))
        expected = (np.maximum(a * three, lowest) / three * part + a).astype(kind)
        same = a + little == a
    for compiled in (False, True):
        c, d = np.zeros(64, kind), np.zeros(64, bool)
        mod = lowered(CHAIN.replace("DT", dtype))
        if compiled:
            driver.build(BOTH(mod), Target("native"))["main"](a, c, d)
        else:
            interpret(mod, a, c, d)
        assert_same_floats(c, expected)
        np.testing.assert_array_equal(d, same)


def test_vectors():
    text = """
@T.prim_func
def main(A: T.Buffer((16,), "bfloat16"), C: T.Buffer((16,), "bfloat16")):
    C[T.Ramp(0, 1, 16)] = A[T.Ramp(0, 1, 16)] * T.Broadcast(T.bfloat16(3), 16)
"""
    a = np.random.default_rng(0).standard_normal(16).astype(ml_dtypes.bfloat16)
    made = applied(BOTH, lowered(text), a, np.zeros(16, ml_dtypes.bfloat16))
    assert "uint16" in made and "bfloat16" not in made[made.index("C_1 = ") :].replace(
        "decl_buffer", ""
    )


def test_what_the_program_rounds_stays_rounded():
    text = """
@T.prim_func
def main(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
    for i in range(64):
        C[i] = T.Cast("float32", T.Cast("bfloat16", A[i]) + T.bfloat16(1))
"""
    a = np.random.default_rng(0).standard_normal(64).astype("float32")
    made = applied(BOTH, lowered(text), a, np.zeros(64, "float32"))
    assert "bfloat16" not in made


def test_copies_move_bits():
    text = CONVERT.format(size=8, source="bfloat16", target="bfloat16")
    a = np.arange(8).astype(ml_dtypes.bfloat16)
    made = applied(BOTH, lowered(text), a, np.zeros(8, ml_dtypes.bfloat16))
    assert "C_1[i] = A_1[i]" in made or "[i] = A" in made
    assert "float32" not in made


def test_allocations_and_bits_seen_by_the_program():
    text = """
@T.prim_func
def main(A: T.Buffer((8,), "uint16"), C: T.Buffer((8,), "uint16")):
    B = T.allocate((8,), "bfloat16")
    for i in range(8):
        B[i] = T.reinterpret(A[i], dtype="bfloat16")
    for i in range(8):
        C[i] = T.reinterpret(B[i], dtype="uint16")
"""
    a = np.arange(8, dtype="uint16") + 16000
    made = applied(BOTH, lowered(text), a, np.zeros(8, "uint16"))
    assert "bfloat16" not in made and "reinterpret" not in made


def test_native_types_stay():
    mod = lowered(CONVERT.format(size=8, source="bfloat16", target="float32"))
    assert unchanged(transform.FloatComputeLegalize(native=("bfloat16",)), mod)
    assert unchanged(transform.FloatStorageLegalize(native=("bfloat16",)), mod)
    assert "float32" in body(mod)


def test_arithmetic_left_over_is_an_error():
    mod = lowered(ARITHMETIC.replace("DT", "bfloat16"))
    with pytest.raises(LowerError, match="run FloatComputeLegalize first"):
        transform.FloatStorageLegalize()(mod)


def test_scalars_and_wrong_options_are_errors():
    text = """
@T.prim_func
def main(x: T.bfloat16, C: T.Buffer((8,), "float32")):
    C[0] = T.Cast("float32", x)
"""
    mod = transform.FlattenBuffer()(transform.LowerOpaqueBlock()(module(text)))
    with pytest.raises(LowerError, match="pass a buffer"):
        BOTH(mod)
    with pytest.raises(LowerError, match="native types are floats"):
        transform.FloatComputeLegalize(native=("int8",))


@pytest.mark.parametrize("dtype", [name for name in FORMATS if name not in WHOLE_BYTES])
def test_elements_of_less_than_a_byte_are_kept_in_bytes(dtype):
    mod = driver.lower(parse(IN_MEMORY.replace("DT", dtype)), Target("native"))
    a = np.concatenate([awkward_floats(dtype)[:58], [np.inf, -np.inf, np.nan, -np.nan, 0, -0.0]])
    a = a.astype("float32")
    c = np.zeros(64, "float32")
    driver.build(mod, Target("native"))["main"](a, c)
    with np.errstate(all="ignore"):
        assert_same_floats(c, a.astype(NUMPY[dtype]))
    text = CONVERT.format(size=8, source=dtype, target="float32")
    with pytest.raises(LowerError, match="'A' share bytes"):
        driver.lower(parse(text), Target("native"))


@pytest.mark.parametrize("dtype", FORMATS)
def test_limits_are_numbers_of_the_format(dtype):
    limits = [tir.min_value(dtype).value, tir.max_value(dtype).value]
    found = ml_dtypes.finfo(NUMPY[dtype])
    assert limits == [float(found.min), float(found.max)]


def test_the_formats_of_nan_and_infinity():
    assert FloatFormat(8, 7).overflow == 0x7F80 and FloatFormat(8, 7).nan == 0x7FC0
    assert FORMATS["float8_e4m3fn"].overflow == FORMATS["float8_e4m3fn"].nan == 0x7F
    assert FORMATS["float8_e5m2"].overflow == 0x7C and FORMATS["float8_e5m2"].nan == 0x7E


def test_the_script_knows_the_types():
    for dtype in (*FORMATS, "int4", "uint4"):
        text = f"@T.prim_func\ndef main(A: T.Buffer((8,), '{dtype}')):\n    A[0] = T.{dtype}(1)\n"
        made = IRModule({"main": parse(text)})
        assert parse(body(made)).buffers[0].dtype == dtype


def test_floors_are_rounded_where_there_is_no_zero() -> None:
    mod = IRModule(
        {
            "main": parse("""
@T.prim_func
def main(X: T.Buffer((2,), "float8_e8m0fnu"), O: T.Buffer((2,), "float8_e8m0fnu")):
    for i in range(2):
        O[i] = T.floor(X[i]) + X[i]
""")
        }
    )
    x = np.array([0.25, 4], ml_dtypes.float8_e8m0fnu)
    for made in (mod, transform.FP8ComputeLegalize()(mod)):
        out = np.ones(2, x.dtype)
        interpret(made["main"], x, out)
        np.testing.assert_array_equal(out.astype("float32"), [np.nan, 8])


def test_what_overflows_to_nan_is_not_the_greater_one() -> None:
    for dtype in ("float8_e4m3fn", "float8_e4m3b11fnuz", "float8_e5m2fnuz"):
        mod = IRModule(
            {
                "main": parse(f"""
@T.prim_func
def main(X: T.Buffer((2,), "{dtype}"), O: T.Buffer((2,), "{dtype}")):
    for i in range(2):
        O[i] = T.min(X[i] * X[i], X[i])
""")
            }
        )
        x = np.array([ml_dtypes.finfo(dtype).max, 2], dtype)
        for made in (mod, transform.FP8ComputeLegalize()(mod)):
            out = np.ones(2, x.dtype)
            interpret(made["main"], x, out)
            np.testing.assert_array_equal(out.astype("float32"), [np.nan, 2], err_msg=dtype)


def test_functions_of_blocks_stay_well_formed() -> None:
    func = parse("""
@T.prim_func
def main(X: T.Buffer((4,), "bfloat16"), O: T.Buffer((4,), "bfloat16")):
    for i in range(4):
        with T.block("o"):
            v = T.axis.spatial(4, i)
            O[v] = X[v] + X[v]
""")
    mod = transform.BF16ComputeLegalize()(IRModule({"main": func}))
    made = transform.BF16StorageLegalize()(mod)["main"]
    verify(made)
    x = np.array([1, -2, 3, np.inf], ml_dtypes.bfloat16)
    out = np.zeros_like(x)
    interpret(made, x, out)
    np.testing.assert_array_equal(out.astype("float32"), (x + x).astype("float32"))
