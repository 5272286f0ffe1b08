"""All kernels for GPUs: in any order with the rules, within limits, compiled without spills."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from gpu_kernel_cases import CUDA, applied, function, lowered

from tests.everyday import few
from tilewright import dlight, topi
from tilewright.codegen.cuda.emit import emit_kernels
from tilewright.codegen.cuda.nvrtc import compile_text
from tilewright.ir import IRModule, Var, structural_equal
from tilewright.kernels import ApplyKernels
from tilewright.kernels.gpu import GPU_KERNELS
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import KERNELS

needs_nvrtc = pytest.mark.skipif(
    importlib.util.find_spec("cuda.bindings") is None, reason="needs the extra 'cuda'"
)


def attention(queries: int, dtype: str, **options: Any) -> PrimFunc:
    """Eight heads that share two heads of 2048 keys."""
    return function(
        lambda q, k, v: topi.nn.scaled_dot_product_attention(q, k, v, **options),
        ((1, 8, queries, 128), dtype),
        *[((1, 2, 2048, 128), dtype)] * 2,
    )


def paged(queries: int) -> PrimFunc:
    """Eight heads that share two heads of at most 2048 keys, in pages of 16."""
    return function(
        topi.nn.paged_attention,
        ((4, queries, 8, 128), "float16"),
        ((Var("n"), 2, 2, 16, 128), "float16"),
        ((4, 128), "int32"),
        ((4,), "int32"),
    )


#: The usual sizes of each kernel.
CASES = {
    "arg_extremum": lambda: function(lambda x: topi.argmax(x, 1), ((64, 32000), "float16")),
    "attention": lambda: attention(2048, "float32", causal_mask="BottomRight"),
    "attention of halves": lambda: attention(2048, "float16"),
    "attention of a few": lambda: attention(1, "float16"),
    "attention of windows": lambda: attention(
        2048, "float16", causal_mask="BottomRight", window_size=512
    ),
    "attention of pages": lambda: paged(1),
    "attention of many in pages": lambda: paged(256),
    "scan": lambda: function(lambda x: topi.cumsum(x, 1), ((64, 32000), "float32")),
    "scan of extrema": lambda: function(lambda x: topi.cummax(x, 0), ((64, 32000), "int64")),
    "scan of a row": lambda: function(lambda x: topi.cumsum(x, 0), ((Var("n"),), "int32")),
    "sort": lambda: function(
        lambda x: topi.argsort(x, axis=1, dtype="int64"), ((64, 1000), "float32")
    ),
    "sort of long rows": lambda: function(
        lambda x: topi.sort(x, 1), ((Var("n"), Var("m")), "float64")
    ),
    "sort for the first": lambda: function(lambda x: topi.topk(x, 8), ((64, 32000), "float16")),
}


#: Those that are compiled for an older GPU.
OLDER = ("attention", "scan of a row")


def test_each_kernel_has_its_case() -> None:
    assert {name.split(" of ")[0].split(" for ")[0] for name in CASES} == set(GPU_KERNELS)
    assert all(name in KERNELS for _, kernel in GPU_KERNELS.items() for name in kernel.forms)


@pytest.mark.parametrize("case", ["arg_extremum", "attention", "scan", "sort"])
def test_kernels_and_rules_come_in_any_order(case: str) -> None:
    mod = IRModule({"main": CASES[case]()})
    kernel = ApplyKernels(target=CUDA)(mod)
    rules = dlight.ApplyDefaultSchedule(target=CUDA)
    assert not structural_equal(kernel, rules(mod)), "the rules did not need the kernel"
    assert structural_equal(rules(kernel), kernel)
    assert structural_equal(dlight.default_schedule(CUDA)(mod), kernel)


@needs_nvrtc
@few("case", CASES, every=3)
def test_nothing_spills(case: str) -> None:
    arch = "sm_75" if case in OLDER else "sm_90a"
    target = Target(f"cuda -arch={arch}")
    code = emit_kernels(lowered(applied(CASES[case](), target), target), target)
    for resources in compile_text(code.text, arch).resources.values():
        # Turing has no conversions of pairs of halves, and so a little more to keep.
        assert resources.spill_bytes <= (16 if arch == "sm_75" else 0)
