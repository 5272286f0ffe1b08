"""Compiling with a libLLVM of the system in place of llvmlite's."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llvm_texts import ADD, UNDOMINATED

import tilewright
from tilewright import driver, te
from tilewright.codegen.llvm import jit, object_cache
from tilewright.codegen.llvm.shared_llvm import BrokenModule, SharedLLVM, load_llvm
from tilewright.runtime import Library
from tilewright.support.errors import CodegenError

VERSION = tuple(jit._llvm().llvm_version_info)


def _candidates() -> list[str]:
    """Where a libLLVM of the right version may be: told, installed, or a Rust compiler's."""
    found = ctypes.util.find_library(f"LLVM-{VERSION[0]}")
    compilers = Path.home().glob(f".rustup/toolchains/*/lib/libLLVM.so.{VERSION[0]}*")
    return [
        name
        for name in (
            os.environ.get("TILEWRIGHT_LLVM_LIBRARY", ""),
            found or "",
            *map(str, sorted(compilers)),
        )
        if name
    ]


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a library, which compiles during the test."""
    for name in _candidates():
        try:
            load_llvm(name, VERSION)
        except CodegenError:
            continue
        monkeypatch.setenv("TILEWRIGHT_LLVM_LIBRARY", name)
        return name
    pytest.skip(f"no libLLVM of version {VERSION[0]} on this machine")


@pytest.mark.parametrize("passes", jit.PASS_SETS)
def test_compiled_code_runs(shared: str, passes: str) -> None:
    library = Library([jit.compile_ll(ADD, passes=passes)], ["add"])
    add = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(library.addresses["add"])
    assert add(40, 2) == 42


@pytest.mark.parametrize("triple", ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"])
def test_code_is_that_of_the_bindings(
    shared: str, triple: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = jit.assembly(ADD, triple=triple)
    text = jit.optimized_ll(ADD, triple=triple)
    assert "alloca" not in text
    monkeypatch.setenv("TILEWRIGHT_LLVM_LIBRARY", "")
    assert jit.assembly(ADD, triple=triple) == same


def test_kernels_run(shared: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    a = te.placeholder((37, 19), name="a")
    b = te.compute((37, 19), lambda i, j: a[i, j] * 2.0 + 1.0, name="b")
    module = driver.compile(te.create_prim_func([a, b]))
    x, y = np.random.default_rng(0).random((37, 19), "float32"), np.zeros((37, 19), "float32")
    module(x, y)
    np.testing.assert_allclose(y, x * 2 + 1, rtol=1e-6)


def test_what_passes_break_is_compiled_without_them(
    shared: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LLVM's ``sroa`` uses a vector of this graph before it is made: the process ended."""
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))

    class Inverse(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return torch.fft.irfft(x)

    x = torch.randn(31, generator=torch.Generator().manual_seed(0))
    found = tilewright.compile(Inverse().eval(), example_inputs=(x,))(x)
    torch.testing.assert_close(found, torch.fft.irfft(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("passes", jit.PASS_SETS)
@pytest.mark.parametrize("broken", [1, 2])
@pytest.mark.parametrize("own", [True, False])
def test_passes_that_break_are_left_out(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    passes: str,
    broken: int,
    own: bool,
) -> None:
    asked: list[object] = []

    def fails(*_: object) -> bool:
        asked.append(None)
        return len(asked) <= broken

    if own:
        monkeypatch.setattr(jit, "_is_valid", lambda _: not fails())
    else:
        request.getfixturevalue("shared")
        real = SharedLLVM._verify

        def verify(self: SharedLLVM, module: object, fault: type[CodegenError]) -> None:
            real(self, module, fault)
            if fault is BrokenModule and fails():
                raise fault("broken")

        monkeypatch.setattr(SharedLLVM, "_verify", verify)
    library = Library([jit.compile_ll(ADD, passes=passes)], ["add"])
    add = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(library.addresses["add"])
    assert add(40, 2) == 42
    if passes == "none":
        assert not asked
        return
    # The slot in memory goes with sroa; without it, it stays.
    asked.clear()
    assert "alloca" in jit.optimized_ll(ADD, passes=passes)
    assert asked


def test_faults_show_the_line(shared: str) -> None:
    with pytest.raises(CodegenError, match=r"6 \|   %r = add i64 %x, %nothing"):
        jit.compile_ll(ADD.replace("add i64 %x, %b", "add i64 %x, %nothing"))
    with pytest.raises(CodegenError, match="verifier refuses"):
        jit.compile_ll(UNDOMINATED)
    with pytest.raises(CodegenError, match="z80"):
        jit.compile_ll(ADD, triple="z80-unknown-linux-gnu")
    with pytest.raises(CodegenError, match="knows no CPU or feature"):
        jit.compile_ll(ADD, cpu="nothing-known", triple="x86_64-unknown-linux-gnu")


def test_unknown_passes_are_named(shared: str) -> None:
    library = load_llvm(shared, VERSION)
    machine = ("x86_64-unknown-linux-gnu", "x86-64", "")
    with pytest.raises(CodegenError, match="no-such-pass"):
        library.compile(ADD, machine, 1, "no-such-pass", output="object")
    code = library.compile(ADD, machine, 1, "", output="object")
    assert struct.unpack_from("<4sB", code) == (b"\x7fELF", 2)


def test_objects_of_two_compilers_are_kept_apart(
    shared: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    options = {"triple": "x86_64-unknown-linux-gnu", "cpu": "x86-64"}
    object_cache.compile_cached(ADD, **options)
    monkeypatch.setenv("TILEWRIGHT_LLVM_LIBRARY", "")
    object_cache.compile_cached(ADD, **options)
    assert len(list((tmp_path / "objects").glob("*.o"))) == 2


@pytest.mark.parametrize("name", ["/nowhere/libLLVM.so", ctypes.util.find_library("c")])
def test_what_is_no_llvm_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_LLVM_LIBRARY", name)
    with pytest.raises(CodegenError, match=f"{name}.* is no LLVM that can be used"):
        jit.compile_ll(ADD)


def test_another_version_is_refused(shared: str) -> None:
    with pytest.raises(CodegenError, match=r"is LLVM \d+\.\d+\.\d+; .* for LLVM 7"):
        SharedLLVM(shared, (7, 0, 0))
