"""The vector math functions stay within their stated bounds, against mpmath and float64.

All 2**32 arguments of the float32 functions were tried by ``tools/math_page.py``; here are samples
of them, and the arguments that were found to be the worst.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mpmath")
pytest.importorskip("llvmlite")

from tests.everyday import few
from tilewright.codegen.llvm.jit import assembly
from tilewright.codegen.llvm.math import (
    MATH_FUNCTIONS,
    exhaustive,
    has_variant,
    max_ulp,
    oracle,
)
from tilewright.codegen.llvm.math.measure import (
    compile_math,
    float32_errors,
    host_instruction_set,
    host_instruction_sets,
    loop_text,
)

LANES = {"float32": 16, "float64": 8}
ISA = host_instruction_set()
MEASURED = Path(__file__).parents[2] / "tools" / "math_measured.json"
EXACT = sorted(oracle.exact_functions())
UNARY = [name for name in EXACT if MATH_FUNCTIONS[name].arity == 1]
VARIANTS = [
    (name, dtype, isa)
    for name in EXACT
    for dtype in LANES
    for isa in dict.fromkeys((*host_instruction_sets(), "no-fma"))
    if isa in ("generic", "no-fma") or has_variant(name, dtype, isa)
]


@few(("name", "dtype", "isa"), VARIANTS, every=3)
def test_error_is_within_the_stated_bound(name: str, dtype: str, isa: str) -> None:
    compiled = compile_math(name, dtype, LANES[dtype], isa)
    worst, where = oracle.worst_error(compiled, oracle.arguments(name, dtype, 500))
    assert worst <= compiled.max_ulp, where


@pytest.mark.parametrize("name", UNARY)
def test_strided_float32_sweep_is_within_the_stated_bound(name: str) -> None:
    x = np.arange(0, 1 << 32, 100003, dtype=np.uint64).astype(np.uint32).view(np.float32)
    compiled = compile_math(name, "float32", 16)
    errors = float32_errors(compiled, x)
    at = int(np.argmax(errors))
    assert errors[at] <= compiled.max_ulp, x[at]


@pytest.mark.parametrize("name", sorted(json.loads(MEASURED.read_text())))
def test_worst_known_arguments_are_as_bad_as_recorded(name: str) -> None:
    for key, entry in json.loads(MEASURED.read_text())[name].items():
        dtype, isa = key.split()
        assert entry["ulp"] <= max_ulp(name, dtype, isa)
        if isa not in host_instruction_sets():
            continue
        compiled = compile_math(name, dtype, 4, isa)
        error, _ = oracle.worst_error(compiled, [np.array([v], dtype) for v in entry["at"]])
        assert error == pytest.approx(entry["ulp"], abs=1e-3)


def test_page_is_up_to_date() -> None:
    tool = MEASURED.parent / "math_page.py"
    assert subprocess.run([sys.executable, str(tool), "--check"], check=False).returncode == 0


@pytest.mark.parametrize("name", ["exp", "log", "gelu"])
def test_compiled_sweep_finds_what_the_sampled_one_does(name: str) -> None:
    start, count = 0x3F000000, 1 << 16  # from one half upwards
    found = exhaustive.worst_error(name, ISA, start=start, count=count)
    x = np.arange(start, start + count, dtype=np.uint32).view(np.float32)
    errors = float32_errors(compile_math(name, "float32", 16), x)
    assert found.ulp == pytest.approx(float(errors.max()), abs=1e-6)
    assert errors[found.bits - start] == pytest.approx(found.ulp, abs=1e-6)


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_angles_next_to_multiples_of_half_pi(name: str) -> None:
    # The float64 nearest to a multiple of pi/2 of all (6381956970095103 * 2**797), and others.
    x = np.array(
        [math.ldexp(6381956970095103, 797), math.pi, math.pi / 2, 2**29 * math.pi, 1e22, 1.5e300]
    )
    for isa in ("generic", "no-fma"):
        compiled = compile_math(name, "float64", LANES["float64"], isa)
        worst, where = oracle.worst_error(compiled, [x])
        assert worst <= compiled.max_ulp, where


@few("lanes", [1, 3, 4, 8, 16, 40, 64, 96], every=3)
@pytest.mark.parametrize("name", ["exp", "tanh", "log", "log1p", "sin", "pow", "isnan"])
def test_every_lane_count_gives_the_same_bits(name: str, lanes: int) -> None:
    rng = np.random.default_rng(3)
    args = [rng.normal(0, 30, 192).astype(np.float32) for _ in range(MATH_FUNCTIONS[name].arity)]
    args[0][5] = 3e30
    base = compile_math(name, "float32", 2)(*args)
    got = compile_math(name, "float32", lanes)(*args)
    assert np.array_equal(base, got, equal_nan=base.dtype != np.bool_)


CPUS = [
    ("x86-64-v2", "x86_64-unknown-linux-gnu", "no-fma", "xmm"),
    ("haswell", "x86_64-unknown-linux-gnu", "avx2", "ymm"),
    ("znver4", "x86_64-unknown-linux-gnu", "avx512", "zmm"),
    ("neoverse-n1", "aarch64-unknown-linux-gnu", "generic", "v0"),
    ("apple-m1", "aarch64-apple-darwin", "generic", "v0"),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("cpu", "triple", "isa", "register"), CPUS, ids=[c[0] for c in CPUS])
def test_no_libm_call_is_left(cpu: str, triple: str, isa: str, register: str, dtype: str) -> None:
    lanes = {"xmm": 4, "ymm": 8, "zmm": 16, "v0": 4}[register] * 32 // int(dtype[5:])
    for name in (*EXACT, "fmod", "round"):
        spec = MATH_FUNCTIONS[name]
        text = assembly(loop_text(name, dtype, lanes, isa), triple=triple, cpu=cpu, features="")
        called = set(re.findall(r"^\s+(?:callq?|bl)\s+_?(\w+)", text, re.MULTILINE))
        foreign = {symbol for symbol in called if not symbol.startswith("tw_")}
        assert not foreign or spec.calls_libm, (name, foreign)
        assert register in text or spec.calls_libm, name
