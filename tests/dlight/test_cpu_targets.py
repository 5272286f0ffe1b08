"""Rules serve CPUs other than this one: full vectors, few spills, no calls in what they make.

Where the code can't run, its assembly is read; where it can, its results are checked as well.
"""

from __future__ import annotations

import math
import platform
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import tilewright
from tests.everyday import few
from tilewright import dlight, te, topi
from tilewright.ir import IRModule
from tilewright.target import Target

LINUX_ARM = "llvm -mtriple=aarch64-unknown-linux-gnu"
TARGETS = {
    "x86-64-v2": "llvm -mcpu=x86-64-v2",
    "haswell": "llvm -mcpu=haswell",
    "znver4": "llvm -mcpu=znver4",
    "neoverse-n1": f"{LINUX_ARM} -mcpu=neoverse-n1",
    "neoverse-v1": f"{LINUX_ARM} -mcpu=neoverse-v1",
    "apple-m1": "llvm -mtriple=aarch64-apple-darwin -mcpu=apple-m1",
}


def _tensors(*shapes: tuple[int, ...], dtype: str = "float32") -> list[te.Tensor]:
    return [te.placeholder(shape, dtype, name=f"x{i}") for i, shape in enumerate(shapes)]


def _gemm():
    a, b = _tensors((96, 128), (128, 192))
    return [a, b, topi.nn.matmul(a, b)], lambda a, b: a @ b


def _conv():
    x, w = _tensors((1, 16, 32, 32), (64, 16, 3, 3))

    def reference(x, w):
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        views = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
        return np.einsum("nchwij,ocij->nohw", views, w)

    return [x, w, topi.nn.conv2d(x, w, 1, 1)], reference


def _softmax():
    (x,) = _tensors((16, 512))

    def reference(x):
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    return [x, topi.nn.softmax(x)], reference


def _layer_norm():
    x, gamma, beta = _tensors((16, 768), (768,), (768,))

    def reference(x, gamma, beta):
        centered = x - x.mean(-1, keepdims=True)
        return centered / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * gamma + beta

    return [x, gamma, beta, topi.nn.layer_norm(x, gamma, beta)], reference


def _gelu():
    (x,) = _tensors((16, 1024))
    erf = np.vectorize(math.erf)
    return [x, topi.nn.gelu(x)], lambda x: 0.5 * x * (1 + erf(x * math.sqrt(0.5)))


def _int8():
    a, b = _tensors((64, 128), (128, 64), dtype="int8")
    return [a, b, topi.nn.matmul(a, b, out_dtype="int32")], lambda a, b: a @ b


WORKLOADS = {
    "gemm": _gemm,
    "conv": _conv,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "gelu": _gelu,
    "int8": _int8,
}
CONTRACTIONS = ("gemm", "conv", "int8")


@dataclass(frozen=True)
class Cpu:
    """How a CPU's assembly looks: full registers, and arithmetic on single floats."""

    register: str
    scalar: str
    dot: str


X86_SCALAR = r"^\s*v?(?:add|sub|mul|div|max|min|fn?m(?:add|sub)\d+)ss\b"
ARM_SCALAR = r"^\s*f(?:add|sub|mul|div|max|min|madd)\w*\s+s\d"
NEON = r"\bv\d+\.(?:4s|16b|2d)|\.4s\s+v|\.16b\s+v"
CPUS = {
    "x86-64-v2": Cpu("%xmm", X86_SCALAR, r"pmaddwd|pmulld"),
    "haswell": Cpu("%ymm", X86_SCALAR, r"vpmaddwd\s.*%ymm"),
    "znver4": Cpu("%zmm", X86_SCALAR, r"vpdpbusd.*%zmm"),
    "neoverse-n1": Cpu(NEON, ARM_SCALAR, r"sdot\s+v"),
    "neoverse-v1": Cpu(r"\bz\d+\.[sbd]", ARM_SCALAR, r"sdot\s+z"),
    "apple-m1": Cpu(NEON, ARM_SCALAR, r"sdot\.4s\s+v"),
}
MULTIPLY_ADD = r"^\s*(?:vfmadd\w+ps|mulps|fmla|fmad)\b"


@cache
def _built(name: str, cpu: str) -> tuple[tilewright.runtime.Module, Target, Callable[..., object]]:
    arguments, reference = WORKLOADS[name]()
    target = Target(f"{TARGETS[cpu]} -num-cores=1")
    mod = IRModule({"main": te.create_prim_func(arguments)})
    scheduled = dlight.default_schedule(target)(mod)
    return tilewright.compile(scheduled, target), target, reference


def innermost_loops(text: str) -> list[list[str]]:
    """Return the lines of loops that hold no other loop."""
    lines = text.splitlines()
    labels: dict[str, int] = {}
    loops: list[tuple[int, int]] = []
    for number, line in enumerate(lines):
        if label := re.match(r"^(\.?LBB\w+):", line):
            labels[label[1]] = number
            continue
        jump = re.match(r"^\s+(?:j\w+|b|b\.\w+|cbn?z\s+\w+,|tbn?z\s.*,)\s*(\.?LBB\w+)", line)
        if jump and jump[1] in labels:
            loops.append((labels[jump[1]], number))
    return [
        lines[start : end + 1]
        for start, end in loops
        if not any(start < first and last < end for first, last in loops)
    ]


def hot_loop(name: str, cpu: str) -> list[str]:
    """Return the innermost loop with the most arithmetic on full registers."""
    kind = CPUS[cpu]
    wanted = kind.dot if name == "int8" else MULTIPLY_ADD
    text = _built(name, cpu)[0].get_source("asm")
    return max(
        innermost_loops(text),
        key=lambda loop: sum(bool(re.search(wanted, line)) for line in loop),
    )


EACH = [(name, cpu) for name in WORKLOADS for cpu in TARGETS]


@few(("name", "cpu"), EACH, every=2)
def test_hot_loop_computes_in_full_vectors(name: str, cpu: str) -> None:
    loop, kind = hot_loop(name, cpu), CPUS[cpu]
    arithmetic = [line for line in loop if re.search(MULTIPLY_ADD + "|" + kind.dot, line)]
    assert arithmetic
    assert all(re.search(kind.register, line) for line in arithmetic), arithmetic
    assert not [line for line in loop if re.search(kind.scalar, line)]


@pytest.mark.parametrize(("name", "cpu"), EACH)
def test_nothing_foreign_is_called(name: str, cpu: str) -> None:
    text = _built(name, cpu)[0].get_source("asm")
    called = set(re.findall(r"^\s+(?:callq?|bl)\s+(\S+)", text, re.MULTILINE))
    own = re.compile(r"_?(?:__)?(?:tw|TVMFFI)|_?main\b|\"?_?main|\*")
    assert not {symbol for symbol in called if not own.match(symbol)}


@pytest.mark.parametrize("cpu", TARGETS)
@pytest.mark.parametrize("name", CONTRACTIONS)
def test_contractions_fill_the_registers(name: str, cpu: str) -> None:
    loop = hot_loop(name, cpu)
    wanted = CPUS[cpu].dot if name == "int8" else MULTIPLY_ADD
    products = sum(bool(re.search(wanted, line)) for line in loop)
    registers = _built(name, cpu)[1].vector_registers
    assert products >= registers // 2
    spills = sum(bool(re.search(r"\(%r[sb]p\)|\[sp\b", line)) for line in loop)
    assert spills <= len(loop) // 8, "\n".join(loop)


@pytest.mark.parametrize("cpu", ["x86-64-v2", "haswell", "znver4"])
@pytest.mark.parametrize("name", WORKLOADS)
def test_results_where_the_code_can_run(name: str, cpu: str) -> None:
    module, target, reference = _built(name, cpu)
    here = platform.machine() == "x86_64" and target.features <= Target("native").features
    if not here:
        pytest.skip(f"this machine is no {cpu}")
    rng = np.random.default_rng(5)
    arguments = WORKLOADS[name]()[0]
    shapes = [tuple(int(extent.value) for extent in t.shape) for t in arguments]
    if name == "int8":
        inputs = [rng.integers(-128, 128, shape).astype("int8") for shape in shapes[:-1]]
        exact = reference(*(x.astype("int32") for x in inputs))
    else:
        inputs = [rng.normal(size=shape).astype("float32") for shape in shapes[:-1]]
        exact = reference(*(x.astype("float64") for x in inputs))
    out = np.empty(shapes[-1], arguments[-1].dtype)
    module(*inputs, out)
    if name == "int8":
        assert np.array_equal(out, exact)
    else:
        np.testing.assert_allclose(out, exact, rtol=2e-5, atol=2e-5)


def test_length_of_sve_registers() -> None:
    assert Target(f"{LINUX_ARM} -mcpu=neoverse-v1").vector_bits == 256
    assert Target(f"{LINUX_ARM} -mcpu=neoverse-v2").vector_bits == 128
    assert Target(f"{LINUX_ARM} -mcpu=neoverse-v2 -sve-vector-bits=512").vector_bits == 512
    for wrong in ("-mcpu=neoverse-n1 -sve-vector-bits=256", "-mcpu=a64fx -sve-vector-bits=200"):
        with pytest.raises(tilewright.support.errors.TargetError, match="multiple of 128"):
            Target(f"{LINUX_ARM} {wrong}")
