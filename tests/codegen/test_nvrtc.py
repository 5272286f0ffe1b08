"""NVRTC and nvdisasm: results, the cache on disk, and errors that say what to do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tilewright import driver
from tilewright.codegen.cuda import nvrtc, sass
from tilewright.script import parse
from tilewright.support.errors import CodegenError, MissingExtraError

KERNEL = """
extern "C" __global__ void scale(float* x, float by) {
  __shared__ float tile[32];
  tile[threadIdx.x] = x[threadIdx.x] * by;
  __syncthreads();
  x[threadIdx.x] = tile[31 - threadIdx.x];
}
"""
PROGRAM = """
@T.prim_func
def main(A: T.Buffer((64,), "float32")):
    for t in T.thread_binding(64, thread="threadIdx.x"):
        A[t] = A[t] * T.float32(3)
"""


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache of the test's own."""
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_machine_code_and_what_it_takes() -> None:
    made = nvrtc.compile_text(KERNEL, "sm_80")
    assert made.cubin[:4] == b"\x7fELF" and ".target sm_80" in made.ptx
    used = made.resources["scale"]
    assert used.registers > 0 and used.spill_bytes == 0 and used.shared_bytes == 128
    assert used.barriers == 1


def test_what_was_compiled_is_found_again(
    monkeypatch: pytest.MonkeyPatch, empty_cache: Path
) -> None:
    first = nvrtc.compile_text(KERNEL, "sm_80")
    monkeypatch.setattr(nvrtc, "_compile", lambda *_: pytest.fail("compiled again"))
    assert nvrtc.compile_text(KERNEL, "sm_80") == first
    (entry,) = empty_cache.rglob("*.o")
    entry.write_bytes(entry.read_bytes()[:-1])  # a damaged file is made again
    with pytest.raises(pytest.fail.Exception, match="compiled again"):
        nvrtc.compile_text(KERNEL, "sm_80")


def test_wrong_text_is_shown_with_its_line() -> None:
    with pytest.raises(
        CodegenError, match=r"refused the kernels for sm_80:[\s\S]*line 3: .*tile\["
    ):
        nvrtc.compile_text(KERNEL.replace("float tile", "flat tile"), "sm_80")


def test_an_architecture_that_nvrtc_does_not_know() -> None:
    with pytest.raises(CodegenError, match=r"doesn't compile for sm_999; it knows .*sm_80"):
        nvrtc.compile_text(KERNEL, "sm_999")


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc._nvrtc.cache_clear()
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'tilewright\[cuda\]'"):
        nvrtc.compile_text(KERNEL, "sm_80")
    nvrtc._nvrtc.cache_clear()


@pytest.mark.skipif(sass.nvdisasm() is None, reason="needs nvdisasm")
def test_machine_code_as_text() -> None:
    text = driver.compile(parse(PROGRAM), "cuda -arch=sm_90a").get_source("sass")
    (code,) = (own for name, own in sass.kernels_in(text).items() if name == "main_kernel")
    counts = sass.instructions(code)
    assert counts["FMUL"] == 1 and any(name.startswith("STG") for name in counts)


def test_without_nvdisasm(monkeypatch: pytest.MonkeyPatch) -> None:
    module = driver.compile(parse(PROGRAM), "cuda")
    monkeypatch.setattr(sass, "nvdisasm", lambda: None)
    with pytest.raises(CodegenError, match="pip install nvidia-cuda-nvdisasm"):
        module.get_source("sass")
    assert ".target sm_80" in module.get_source("ptx")


def test_what_is_no_machine_code() -> None:
    if sass.nvdisasm() is None:
        pytest.skip("needs nvdisasm")
    with pytest.raises(CodegenError, match="nvdisasm can't read the machine code"):
        sass.disassemble(b"nothing")
