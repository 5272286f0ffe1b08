"""Scalable vectors as LLVM IR and as machine code of SVE and RVV.

That the code computes the right numbers is tested where it can be run: ``tests/emulation``.
"""

from __future__ import annotations

import re
from functools import cache

import pytest

from tilewright import driver
from tilewright.runtime import Module
from tilewright.script import parse
from tilewright.script import tir as T
from tilewright.support.errors import CodegenError, TargetError
from tilewright.tir import Schedule

SVE = "llvm -mtriple=aarch64-unknown-linux-gnu -mattr=+sve -num-cores=2"
RVV = "llvm -mtriple=riscv64-unknown-linux-gnu -mattr=+v -num-cores=2"
RAMP = "T.Ramp(i * {n} * T.vscale(), 1, {n} * T.vscale())"


def _program(body: str, dtype: str = "float32", lanes: int = 4) -> str:
    ramp = RAMP.format(n=lanes)
    return f"""
@T.prim_func
def main(
    A: T.Buffer((256,), "{dtype}"), C: T.Buffer((256,), "{dtype}"), I: T.Buffer((256,), "int32"),
    D: T.Buffer((256,), "bool"),
):
    for i in range(4):
        {body.replace("RAMP", ramp).replace("LANES", f"{lanes} * T.vscale()")}
"""


@cache
def _built(text: str, target: str = SVE) -> Module:
    return driver.compile(parse(text), target)


def _code(text: str, target: str = SVE) -> tuple[str, str]:
    """LLVM IR, and the machine code of the kernel."""
    made = _built(text, target)
    kernel = re.search(r"(?s)\nmain\.kernel:(.*?)\.Lfunc_end0", made.inspect_source("asm"))
    assert kernel is not None
    return made.inspect_source("ll"), kernel[1]


@pytest.mark.parametrize(
    ("body", "dtype", "lanes", "text", "instruction"),
    [
        ("C[RAMP] = A[RAMP] + A[RAMP]", "float32", 4, "fadd <vscale x 4 x float>", r"fadd\s+z"),
        ("C[RAMP] = A[RAMP] * A[RAMP]", "int8", 16, "mul <vscale x 16 x i8>", r"mul\s+z0.b"),
        ("C[RAMP] = A[RAMP] - A[RAMP + 1]", "float64", 2, "fsub <vscale x 2 x double>", r"z0.d"),
        (
            "C[RAMP] = A[RAMP] * A[RAMP]", "float16", 8, "fpext <vscale x 8 x half>", r"fcvt\s+z",
        ),
        (
            "C[RAMP] = T.Select(D[RAMP], A[RAMP], T.Broadcast(T.float32(i), LANES))", "float32", 4,
            "select <vscale x 4 x i1>", r"sel\s+z",
        ),
        (
            "T.masked_store(C, A[RAMP], RAMP, T.get_active_lane_mask('uint1xvscalex4', i, 9))",
            "float32", 4, "@llvm.get.active.lane.mask.nxv4i1.i64(i64 0,", r"whilelo\s+p\d.s, xzr",
        ),
        (
            "C[RAMP] = T.masked_load('float32xvscalex4', A, RAMP, "
            "T.get_active_lane_mask('uint1xvscalex4', i, 9))",
            "float32", 4, "@llvm.masked.load.nxv4f32.p0(ptr align 4", r"ld1w\s+{ z\d.s }, p\d/z",
        ),
        (
            "C[RAMP] = A[T.Ramp(i, 3, LANES)]", "float32", 4, "@llvm.masked.gather.nxv4f32.nxv4p0(",
            r"ld1w\s+{ z\d.d }, p\d/z, \[x\d+, z\d.d, lsl #2\]",
        ),
        (
            "C[T.Ramp(100 - i, -1, LANES)] = A[RAMP]", "float32", 4,
            "@llvm.masked.scatter.nxv4f32.nxv4p0(", r"st1w\s+{ z\d.d }, p\d, \[x\d+, z\d.d",
        ),
        ("C[RAMP] = A[I[RAMP]]", "float32", 4, "@llvm.masked.gather.nxv4f32", r"z\d.s, sxtw #2"),
        ("C[RAMP] = T.Cast('int32xvscalex4', RAMP)", "int32", 4, "@llvm.stepvector.nxv4i64()",
         "index"),
        ("C[RAMP] = T.Broadcast(A[i], LANES)", "int16", 8, "insertelement <vscale x 8 x i16>",
         "ld1rh"),
        ("C[i] = T.vector_reduce_max(A[RAMP], dtype='int32')", "int32", 4,
         "@llvm.vector.reduce.smax.nxv4i32", "smaxv"),
        ("C[RAMP] = A[RAMP] // A[RAMP + 1]", "int32", 4, "sdiv <vscale x 4 x i32>", r"sdiv"),
        ("C[RAMP] = T.exp(A[RAMP])", "float32", 4, "@tw_exp_nxv4f32(", r"fmla|fmad"),
        ("C[RAMP] = T.sin(A[RAMP])", "float64", 2, "@tw_sin_nxv2f64(", r"fmla|fmad"),
        ("C[i] = T.Cast('int32', T.vscale() * 4)", "int32", 4, "@llvm.vscale.i32()", "cntw"),
    ],
)  # fmt: skip
def test_code_of_sve(body: str, dtype: str, lanes: int, text: str, instruction: str) -> None:
    code, machine = _code(_program(body, dtype, lanes))
    assert text in code
    assert re.search(instruction, machine), machine


@pytest.mark.parametrize(
    ("body", "instruction"),
    [
        ("C[RAMP] = A[RAMP] + A[RAMP]", r"vfadd\.vv"),
        (
            "T.masked_store(C, A[RAMP], RAMP, T.get_active_lane_mask('uint1xvscalex4', i, 9))",
            r"vse32\.v\s+v\d+, \(\w+\), v0\.t",
        ),
        ("C[RAMP] = A[T.Ramp(i, 3, LANES)]", r"v[ls]\w+\.v"),
    ],
)
def test_code_of_rvv(body: str, instruction: str) -> None:
    code, machine = _code(_program(body), RVV)
    assert "<vscale x 4 x float>" in code and re.search(instruction, machine), machine


def test_halves_of_rvv_need_an_extension() -> None:
    text = _program("C[RAMP] = A[RAMP] * A[RAMP]", "float16", 8)
    with pytest.raises(TargetError, match=r"float16xvscalex8 is not for .*zvfhmin"):
        _built(text, RVV)
    _, machine = _code(text, RVV.replace("+v", "+v,+zvfhmin"))
    assert "vfncvt" in machine


def test_split_loops_go_by_predicates() -> None:
    sch = Schedule(
        parse("""
@T.prim_func
def main(A: T.Buffer((130,), "float32"), C: T.Buffer((130,), "float32")):
    for i in range(130):
        with T.sblock("C"):
            vi = T.axis.S(130, i)
            C[vi] = A[vi] + T.float32(1)
""")
    )
    sch.vectorize(sch.split(sch.get_loops("C")[0], [None, 4 * T.vscale()])[1])
    machine = driver.compile(sch.mod, SVE).inspect_source("asm")
    for instruction in (
        r"cntw",
        r"whilelo\s+p\d\.s, xzr",
        r"ld1w\s+{ z\d\.s }",
        r"st1w\s+{ z\d\.s }",
    ):
        assert re.search(instruction, machine)


def test_lengths_are_only_assumed_where_the_target_states_them() -> None:
    text = _program("C[RAMP] = A[RAMP] + A[RAMP]")
    assert "vscale_range" not in _built(text).inspect_source("ll")
    stated = "llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=neoverse-v1"
    assert "vscale_range(2,2)" in _built(text, stated).inspect_source("ll")


def test_threads_make_their_own_vectors() -> None:
    text = """
@T.prim_func
def main(C: T.Buffer((1 << 22,), "float32")):
    {outside}
    for i in T.parallel(1 << 16):
        {inside}
        C[T.Ramp(i * 4, 1, 4 * T.vscale())] = v + v
"""
    vector = "v = T.Cast('float32xvscalex4', T.Ramp(0, 1, 4 * T.vscale()))"
    assert "parallel" in _built(text.format(outside="pass", inside=vector)).inspect_source("ll")
    with pytest.raises(CodegenError, match="'v' is a scalable vector, which threads can't be"):
        _built(text.format(outside=vector, inside="pass"))


def test_remainders_of_floats_are_refused() -> None:
    with pytest.raises(CodegenError, match="fmod of scalable vectors has no code"):
        _built(_program("C[RAMP] = T.fmod(A[RAMP], A[RAMP])"))
