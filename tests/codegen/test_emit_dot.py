"""``dot_accumulate``: the right instruction where there is one, the same result where not."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

from tilewright.codegen.llvm import jit
from tilewright.codegen.llvm.emit import emit_module
from tilewright.driver import compile, lower
from tilewright.script import parse
from tilewright.support.errors import CodegenError
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.interpreter import run

WIDTH = {"int8": 4, "uint8": 4, "int16": 2, "uint16": 2, "bfloat16": 2}
KINDS = [("uint8", "int8"), ("int8", "uint8"), ("int8", "int8"), ("uint8", "uint8"),
         ("int16", "int16"), ("bfloat16", "bfloat16")]  # fmt: skip
RUNNING = ["native", "llvm -mcpu=x86-64-v4", "llvm -mcpu=x86-64-v3",
           "llvm -mcpu=x86-64-v3 -mattr=+avxvnni", "llvm -mcpu=x86-64"]  # fmt: skip


def kernel(a: str, b: str, lanes: int, bound: str = "") -> PrimFunc:
    """``C[j] += sum_k A[k] * B[j, k]`` for ``lanes`` results at once."""
    width = WIDTH[a]
    total = "float32" if a == "bfloat16" else "int32"
    made: PrimFunc = parse(
        f"""
@T.prim_func
def main(A: T.Buffer(({width},), "{a}"), B: T.Buffer(({lanes * width},), "{b}"),
         C: T.Buffer(({lanes},), "{total}")):
    for j in T.vectorized({lanes}):
        with T.block("C"):
            v = T.axis.spatial({lanes}, j)
            {bound}
            C[v] = T.dot_accumulate(C[v], A[0:{width}], B[v * {width} : v * {width} + {width}])
"""
    )
    return made


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Random numbers of a dtype; the extreme ones of integers are among them."""
    if dtype == "bfloat16":
        return rng.standard_normal(shape).astype(ml_dtypes.bfloat16)
    info = np.iinfo(dtype)
    made = rng.integers(info.min, info.max + 1, shape).astype(dtype)
    made.flat[: made.size // 2] = rng.choice([info.min, info.max], made.size // 2)
    return made


def expected(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """The result, in wide arithmetic; sums wrap."""
    if c.dtype == np.float32:
        return c + (a.astype("float64") * b.astype("float64").reshape(len(c), -1)).sum(1)
    products = a.astype("int64") * b.astype("int64").reshape(len(c), -1)
    return (c + products.sum(1)).astype("int32")


@pytest.mark.parametrize("target", RUNNING)
@pytest.mark.parametrize(("a", "b"), KINDS)
def test_results(a: str, b: str, target: str) -> None:
    if target == "llvm -mcpu=x86-64-v4" and not Target("native").has("avx512bw"):
        pytest.skip("this CPU has no AVX-512")
    if "avxvnni" in target and not Target("native").has("avxvnni"):
        pytest.skip("this CPU has no AVX-VNNI")
    rng = np.random.default_rng(1)
    for lanes in (1, 3, 8, 64):
        func = kernel(a, b, lanes)
        x, y = numbers(rng, (WIDTH[a],), a), numbers(rng, (lanes * WIDTH[a],), b)
        c = numbers(rng, (lanes,), "int32" if a != "bfloat16" else "bfloat16")
        c = c.astype("float32") if a == "bfloat16" else c
        found = c.copy()
        compile(func, target)(x, y, found)
        np.testing.assert_allclose(found, expected(x, y, c), rtol=0 if a != "bfloat16" else 1e-5)
        interpreted = c.copy()
        run(func, x, y, interpreted)
        np.testing.assert_allclose(found, interpreted, rtol=0 if a != "bfloat16" else 1e-5)


def test_lanes_that_are_off_touch_nothing() -> None:
    func = kernel("uint8", "int8", 16, "T.where(j < 11)")
    rng = np.random.default_rng(2)
    x, y = numbers(rng, (4,), "uint8"), numbers(rng, (64,), "int8")
    c = np.arange(16, dtype="int32")
    compile(func, "native")(x, y, c)
    np.testing.assert_array_equal(c[:11], expected(x, y, np.arange(16, dtype="int32"))[:11])
    np.testing.assert_array_equal(c[11:], np.arange(11, 16))


# Names of vector registers: of one width, or NEON's and SVE's.
VECTORS = {"zmm": "zmm", "ymm": "ymm", "vz": r"v\d+\.4s|z\d+\.s"}
INSTRUCTIONS = [
    ("llvm -mcpu=znver4", "uint8", "int8", "vpdpbusd", "zmm"),
    ("llvm -mcpu=znver4", "bfloat16", "bfloat16", "vdpbf16ps", "zmm"),
    ("llvm -mcpu=znver4", "int8", "int8", "vpdpbusd", "zmm"),
    ("llvm -mcpu=znver4", "uint8", "uint8", "vpdpwssd", "zmm"),
    ("llvm -mcpu=x86-64-v3 -mattr=+avxvnni", "uint8", "int8", "vpdpbusd", "ymm"),
    ("llvm -mcpu=x86-64-v3 -mattr=+avxvnniint8", "int8", "int8", "vpdpbssd", "ymm"),
    ("llvm -mcpu=x86-64-v3 -mattr=+avxvnniint8", "uint8", "uint8", "vpdpbuud", "ymm"),
    ("llvm -mcpu=x86-64-v3", "uint8", "int8", "vpmaddwd", "ymm"),
    ("llvm -mcpu=x86-64-v3", "bfloat16", "bfloat16", "vfmadd", "ymm"),
    ("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1", "int8", "int8", "sdot", "vz"),
    ("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1", "uint8", "uint8", "udot", "vz"),
    ("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1", "uint8", "int8", "usdot", "vz"),
    ("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1", "bfloat16", "bfloat16", "bfdot", "vz"),
    ("llvm -mtriple=aarch64-linux-gnu", "int8", "int8", "mla", "vz"),
]  # fmt: skip


@pytest.mark.parametrize(("target", "a", "b", "mnemonic", "register"), INSTRUCTIONS)
def test_instruction(target: str, a: str, b: str, mnemonic: str, register: str) -> None:
    chosen = Target(target)
    text = emit_module(lower(kernel(a, b, 32), chosen), chosen).text
    assembly = jit.assembly(
        text, triple=chosen.triple or None, cpu=chosen.mcpu, features=chosen.feature_string
    )
    lines = [line for line in assembly.splitlines() if mnemonic in line]
    assert lines and any(re.search(VECTORS[register], line) for line in lines)
    if mnemonic == "vpmaddwd":
        assert "pmaddubsw" not in assembly  # it saturates


def test_operands_without_code_are_refused() -> None:
    with pytest.raises(CodegenError, match="no code for int16 times uint16"):
        compile(kernel("int16", "uint16", 4), "native")


def masked(mask: int, lanes: int = 24) -> PrimFunc:
    """``C[j] += sum_k (W[j] & mask)[k] * A[k]``, with words seen as unsigned bytes."""
    made: PrimFunc = parse(
        f"""
@T.prim_func
def main(A: T.Buffer((4,), "int8"), W: T.Buffer(({lanes},), "uint32"),
         C: T.Buffer(({lanes},), "int32")):
    C[0:{lanes}] = T.dot_accumulate(
        C[0:{lanes}],
        T.reinterpret(
            T.bitwise_and(W[0:{lanes}], T.Broadcast(T.uint32({mask}), {lanes})),
            dtype="uint8x{4 * lanes}",
        ),
        A[0:4],
    )
"""
    )
    return made


@pytest.mark.parametrize("mask", [0x0F0F0F0F, 0x7F7F7F7F, 0x7F007F7F, 0x807F7F7F, 0xFFFFFFFF])
@pytest.mark.parametrize("target", [*RUNNING, "llvm -mcpu=x86-64-v2"])
def test_masked_bytes(target: str, mask: int) -> None:
    """Bytes below 128 are multiplied by an instruction that saturates beyond."""
    if "v4" in target and not Target("native").has("avx512bw"):
        pytest.skip("this CPU has no AVX-512")
    if "avxvnni" in target and not Target("native").has("avxvnni"):
        pytest.skip("this CPU has no AVX-VNNI")
    rng = np.random.default_rng(3)
    c = numbers(rng, (24,), "int32")
    for x in (numbers(rng, (4,), "int8"), np.full(4, -128, "int8"), np.full(4, 127, "int8")):
        words = rng.integers(0, 1 << 32, 24).astype("uint32")
        words[:8] = 0xFFFFFFFF
        found = c.copy()
        compile(masked(mask), target)(x, words, found)
        wide = (words & np.uint32(mask)).view("uint8")
        np.testing.assert_array_equal(found, expected(x, wide, c))


@pytest.mark.parametrize(("mask", "saturates"), [(0x7F7F7F7F, True), (0x7F807F7F, False)])
@pytest.mark.parametrize("cpu", ["x86-64-v4", "x86-64-v3", "x86-64-v2"])
def test_only_small_bytes_are_multiplied_with_saturation(
    cpu: str, mask: int, saturates: bool
) -> None:
    chosen = Target(f"llvm -mcpu={cpu}")
    text = emit_module(lower(masked(mask), chosen), chosen).text
    assert ("pmadd.ub.sw" in text or "pmaddubs" in text) == saturates
