"""Tensor-core operators as PTX: every helper compiles for the first GPUs that have it."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from tilewright.codegen.cuda.dialect import cuda_dialect
from tilewright.codegen.cuda.emit import emit_kernels
from tilewright.codegen.cuda.ptx import PTX, PTX_HELPERS
from tilewright.ir import IRModule
from tilewright.script import parse
from tilewright.support.errors import CodegenError, VerifyError
from tilewright.target import Target
from tilewright.tir.gpu_ops import GPU_OPS
from tilewright.tir.interpreter import run
from tilewright.tir.transform import gpu_pipeline

sys.path.insert(0, str(Path(__file__).parents[2] / "tir" / "intrin"))
from gemm_cases import mma_gemm, wgmma_gemm, wmma_gemm

pytest.importorskip("cuda.bindings.nvrtc")
from tilewright.codegen.cuda.nvrtc import Resources, compile_text

_SINCE = (
    (r"mma_.*_(e4m3|e5m2)_", 89), (r"stmatrix|wgmma|.*barrier|cp_async_bulk|.*_cluster", 90),
    (r"mma_m16n8k8_fp16", 75),
    (r"mma_m8n8k16", 75), (r"ldmatrix", 75), (r"wmma_.*_(bf16|tf32)", 80), (r"wmma_.*k8_", 80),
    (r"wmma_", 75), (r"", 80),
)  # fmt: skip


def _since(family: str) -> int:
    """The lowest capability that has an instruction (of those that the compiler knows)."""
    return next(arch for pattern, arch in _SINCE if re.match(pattern, family))


def _kernel(family: str) -> str:
    """A kernel that calls a helper on arguments of its own."""
    text = PTX_HELPERS[family](cuda_dialect(90), "uint32").text
    found = re.search(r"void (\w+)\(([^)]*)\)", text)
    assert found is not None
    name, parameters = found.groups()
    names = ", ".join(item.split()[-1].lstrip("*") for item in parameters.split(",") if item)
    return (
        f'{text}\nextern "C" __global__ void k_{family}({parameters}) {{\n  {name}({names});\n}}\n'
    )


def test_all_helpers_compile_for_the_first_gpus_that_have_them() -> None:
    groups: dict[int, list[str]] = defaultdict(list)
    for family in PTX_HELPERS:
        if not re.match(r"wmma(?!.*(m16n16|_s8))|wgmma_m64n(?!8k|64k|256k)|tensor_map", family):
            groups[_since(family)].append(family)
    assert set(groups) >= {75, 80, 89, 90}
    for capability, families in groups.items():
        arch = f"sm_{capability}{'a' if capability == 90 else ''}"
        made = compile_text("".join(map(_kernel, families)), arch)
        assert len(made.resources) == len(families)
        assert not any(item.spill_bytes for item in made.resources.values())


def test_every_operator_has_a_text() -> None:
    assert set(PTX) == set(GPU_OPS)


def _compiled(arch: str, module: IRModule) -> tuple[str, Resources]:
    target = Target(f"cuda -arch={arch}")
    code = emit_kernels(gpu_pipeline(target)(module), target)
    (resources,) = compile_text(code.text, arch).resources.values()
    return code.text, resources


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_gemms_compile_without_spills_or_local_memory(arch: str) -> None:
    for sch in (wmma_gemm(), mma_gemm(), mma_gemm(permuted=False, stages=1)):
        text, resources = _compiled(arch, sch.mod)
        assert resources.spill_bytes == resources.stack_bytes == 0
        assert resources.registers <= 128
        assert "tw_wmma_mma" in text or "tw_mma_m16n8k16" in text


def test_products_of_a_warpgroup_are_of_hopper_alone() -> None:
    text, resources = _compiled("sm_90a", wgmma_gemm().mod)
    assert resources.spill_bytes == resources.stack_bytes == 0
    assert "tw_wgmma_m64n64k16_fp16_fp32_swizzle128" in text
    assert "__align__(1024)" in text
    assert text.count("fence.proxy.async") == text.count("__syncthreads")
    for arch in ("sm_80", "sm_90", "sm_100a"):
        with pytest.raises(CodegenError, match=f"needs sm_90a; the target is {arch}"):
            _compiled(arch, wgmma_gemm().mod)


def test_wmma_is_there_on_older_gpus() -> None:
    _, resources = _compiled("sm_75", wmma_gemm().mod)
    assert resources.stack_bytes == 0


def test_an_older_gpu_is_refused_by_name() -> None:
    with pytest.raises(CodegenError, match="ptx_mma m16n8k16 of fp16 needs sm_80 or newer"):
        _compiled("sm_75", mma_gemm().mod)


CALL = """
@T.prim_func
def main(A: T.Buffer((64,), "float16"), B: T.Buffer((64,), "float16")):
    for tx in T.thread_binding(32, thread="threadIdx.x"):
        S = T.allocate((512,), "float16", scope="shared")
        R = T.allocate((8,), "float16", scope="local")
        F = T.allocate((8,), "float32", scope="local")
        {call}
        B[tx] = R[0]
"""


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ('T.ptx_ldmatrix(0, 3, ".b16", T.address_of(R[0:8]), T.address_of(S[0:8]))', "num is 1, 2"),
        (
            'T.ptx_ldmatrix(0, 4, ".b16", T.address_of(R[0:4]), T.address_of(S[0:8]))',
            "a lane's fragment is 16 bytes; got 8",
        ),
        (
            'T.ptx_ldmatrix(0, 4, ".b16", T.address_of(R[0:8]), T.address_of(A[0:8]))',
            "source lies in shared memory; got 'global'",
        ),
        (
            'T.ptx_mma("m16n8k4", "row", "col", "fp16", "fp16", "fp32", T.address_of(R[0:8]), '
            "T.address_of(R[0:4]), T.address_of(F[0:4]))",
            "there is no ptx_mma of shape m16n8k4 for fp16",
        ),
        (
            'T.ptx_mma("m16n8k16", "row", "col", "fp16", "fp16", "fp32", T.address_of(R[0:8]), '
            "T.address_of(R[0:8]), T.address_of(F[0:4]))",
            "b of m16n8k16 is 4 neighbouring elements",
        ),
        ("T.ptx_cp_async(T.address_of(S[0:3]), T.address_of(A[0:3]), 6)", "bytes is 4, 8 or 16"),
        ("T.ptx_wait_group(tx)", "in_flight is a constant"),
        ("T.ptx_wait_group()", r"takes \(in_flight\), got 0 operands"),
    ],
)  # fmt: skip
def test_calls_that_mean_nothing_are_refused(call: str, message: str) -> None:
    func = parse(CALL.format(call=f"T.evaluate({call})"))
    with pytest.raises((CodegenError, VerifyError), match=message):
        _compiled("sm_90a", IRModule({"main": func}))
    with pytest.raises(VerifyError, match=message):
        run(func, np.zeros(64, "float16"), np.zeros(64, "float16"))
