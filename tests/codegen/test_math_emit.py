"""The interface of the vector math library: texts, requests, errors. Needs no LLVM."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tilewright.codegen.llvm.math import (
    MATH_FUNCTIONS,
    collect,
    compute_dtype,
    emit_math,
    instruction_set,
    max_ulp,
)
from tilewright.support.errors import CodegenError


def test_symbol_follows_llvm_overload_names() -> None:
    assert emit_math("exp", "float32", 16).symbol == "tw_exp_v16f32"
    assert emit_math("pow", "float64", 1).symbol == "tw_pow_f64"


def test_text_is_one_inlined_function_of_the_vector_type() -> None:
    text = emit_math("tanh", "float32", 8).text
    head = "define internal <8 x float> @tw_tanh_v8f32(<8 x float> %x) alwaysinline"
    assert text.startswith(head)
    assert text.rstrip().endswith("}")


def test_predicates_return_masks() -> None:
    assert "define internal <4 x i1> @tw_isnan_v4f32" in emit_math("isnan", "float32", 4).text


def test_emission_is_cached() -> None:
    assert emit_math("log", "float32", 8) is emit_math("log", "float32", 8)


def test_collect_defines_each_function_once_and_dependencies_first() -> None:
    requests = [("sin", "float32", 16), ("cos", "float64", 8), ("sin", "float32", 16)]
    text = collect(requests)
    assert text.count("@tw_sin_v16f32(<16 x float> %x) alwaysinline") == 1
    assert text.count("define internal { double, i64 } @tw_reduce_huge_f64") == 1
    assert text.index("@tw_sin_huge_f64(double %x) noinline") < text.index("@tw_sin_v16f32")
    assert collect([]) == ""


def test_avx512_looks_tables_up_in_registers() -> None:
    assert instruction_set({"avx", "fma"}) == "generic"
    assert instruction_set({"avx512f", "avx2"}) == "avx512"
    text = emit_math("erf", "float32", 16, "avx512").text
    assert text.count("vpermi2var") == 5
    assert "fdiv" not in text
    assert "x86" not in emit_math("erf", "float32", 16).text


def test_avx2_looks_tables_up_in_registers() -> None:
    assert instruction_set({"avx2", "fma"}) == "avx2"
    text = emit_math("gelu", "float32", 16, "avx2").text
    assert text.count("avx2.permps") == 2 * 8
    assert "fdiv" not in text
    assert emit_math("erf", "float32", 16, "avx2").text == emit_math("erf", "float32", 16).text


def test_other_lane_counts_call_the_function_of_whole_registers() -> None:
    text = collect([("exp", "float32", 96)], "avx512")
    assert text.count("call <64 x float> @tw_exp_v64f32") == 2
    assert text.count("alwaysinline") == 2
    assert "call <16 x float> @tw_exp_v16f32" in collect([("exp", "float32", 1)], "avx512")


def test_half_types_compute_in_float32() -> None:
    assert [compute_dtype(d) for d in ("float16", "bfloat16", "float32", "float64")] == [
        "float32",
        "float32",
        "float32",
        "float64",
    ]


def test_every_spec_states_bounds_and_domain() -> None:
    for spec in MATH_FUNCTIONS.values():
        assert set(spec.max_ulp) == {"float32", "float64"}
        assert all(0 <= bound <= 3 for bound in spec.max_ulp.values())
        assert 0 <= max_ulp(spec.name, "float32", "avx512") <= 4
        assert spec.domain
        for dtype in spec.max_ulp:
            assert emit_math(spec.name, dtype, 4).symbol.startswith(f"tw_{spec.name}_")


def test_unknown_function_names_near_matches() -> None:
    with pytest.raises(CodegenError, match=r"unknown math function 'expm'.*did you mean expm1"):
        emit_math("expm", "float32", 8)


def test_other_dtypes_are_refused_with_the_way_out() -> None:
    with pytest.raises(CodegenError, match="not 'float16': convert to 'float32' first"):
        emit_math("exp", "float16", 8)
    with pytest.raises(CodegenError, match="no vector math for dtype 'int32'"):
        emit_math("exp", "int32", 8)


def test_lane_count_must_be_positive() -> None:
    with pytest.raises(CodegenError, match="lanes must be at least 1, got 0"):
        emit_math("exp", "float32", 0)


def test_llvm_is_not_imported() -> None:
    code = (
        "import sys, tilewright.codegen.llvm.math as m; m.emit_math('exp', 'float32', 8);"
        "sys.exit('llvmlite' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
