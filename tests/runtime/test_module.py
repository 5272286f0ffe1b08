"""Modules: calling, errors, timing, export and loading."""

from __future__ import annotations

import errno
import os
import pickle
import platform
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilewright import runtime
from tilewright.codegen.llvm.ffi_abi import FunctionSpec, TensorArg
from tilewright.codegen.llvm.package import Machine, build_module
from tilewright.runtime import module as module_file
from tilewright.support.errors import BuildError, CodegenError, RunError


def scale_kernel(name: str, factor: float) -> str:
    """LLVM IR of ``B[i] = factor * A[i]``."""
    return f"""
define i32 @{name}(ptr %A, ptr %B, i64 %n) {{
entry:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %loop, label %out
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %pa = getelementptr float, ptr %A, i64 %i
  %pb = getelementptr float, ptr %B, i64 %i
  %a = load float, ptr %pa
  %b = fmul float %a, {factor:.6e}
  store float %b, ptr %pb
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %n
  br i1 %more, label %loop, label %out
out:
  ret i32 0
}}
"""


def scale_spec(name: str, dtype: str = "float32") -> FunctionSpec:
    args = TensorArg("A", dtype, ("n",), written=False), TensorArg("B", dtype, ("n",))
    return FunctionSpec(name, args)


@pytest.fixture(scope="module")
def module() -> runtime.Module:
    return build_module(scale_kernel("twice", 2.0), [scale_spec("twice")], target="llvm")


def test_call_with_numpy_tensors_and_torch(module: runtime.Module) -> None:
    a = np.arange(5, dtype="float32")
    b = np.zeros(5, "float32")
    assert module["twice"](a, b) is None
    np.testing.assert_array_equal(b, 2 * a)
    out = runtime.empty((5,))
    module(runtime.tensor(a), out)  # the only function is the entry
    np.testing.assert_array_equal(out.numpy(), 2 * a)


def test_call_with_torch(module: runtime.Module) -> None:
    torch = pytest.importorskip("torch")
    a, b = torch.arange(4.0), torch.zeros(4)
    module["twice"](a, b)
    assert b.tolist() == [0, 2, 4, 6]


def test_read_only_array_is_taken_where_it_is_only_read(module: runtime.Module) -> None:
    a, b = np.ones(3, "float32"), np.zeros(3, "float32")
    a.flags.writeable = False
    module["twice"](a, b)
    assert (b == 2).all()
    with pytest.raises(ValueError, match=r"twice: argument #1 'B': the function writes to it"):
        module["twice"](b, a)


def test_bfloat16_arrays_are_taken() -> None:
    kernel = """
define i32 @first(ptr %A, ptr %B, i64 %n) {
  %v = load i16, ptr %A
  store i16 %v, ptr %B
  ret i32 0
}
"""
    module = build_module(kernel, [scale_spec("first", "bfloat16")])
    a, b = np.full(2, 1.5, ml_dtypes.bfloat16), np.zeros(2, ml_dtypes.bfloat16)
    module(a, b)
    assert b[0] == 1.5


def test_unknown_function_names_those_there(module: runtime.Module) -> None:
    with pytest.raises(RunError, match="no function 'thrice'; it has twice"):
        module["thrice"]
    assert module.implements_function("twice") and not module.implements_function("thrice")


def test_sources(module: runtime.Module) -> None:
    assert "define i32 @twice" in module.get_source("ll")
    assert "twice:" in module.get_source("asm")
    with pytest.raises(RunError, match="no 'cuda' source; it has: asm, ll"):
        module.get_source("cuda")


def test_texts_can_be_left_out_or_given(module: runtime.Module) -> None:
    bare = module.with_sources({})
    with pytest.raises(RunError, match="no 'll' source; it has: none"):
        bare.get_source("ll")
    b = np.zeros(2, "float32")
    bare["twice"](np.ones(2, "float32"), b)
    assert (b == 2).all()
    assert len(pickle.dumps(bare)) < len(pickle.dumps(module))
    made = module.with_sources({"tir": lambda: "text"})
    assert made.get_source("tir") == "text" and "ll" in module.code.sources


def test_module_can_be_pickled(module: runtime.Module) -> None:
    copy = pickle.loads(pickle.dumps(module))
    b = np.zeros(2, "float32")
    copy["twice"](np.ones(2, "float32"), b)
    assert (b == 2).all() and copy.target == "llvm"


def test_functions_outlive_their_module() -> None:
    function = build_module(scale_kernel("f", 3.0), [scale_spec("f")])["f"].ffi
    b = np.zeros(2, "float32")
    function(np.ones(2, "float32"), b)
    assert (b == 3).all()


def test_threads_that_load_at_once_share_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    module = build_module(scale_kernel("f", 3.0), [scale_spec("f")])
    made: list[Any] = []
    all_there = threading.Barrier(4)

    def library(*args: Any, **options: Any) -> Any:
        made.append(real(*args, **options))
        return made[-1]

    def load() -> None:
        all_there.wait()
        found.append(module.load())

    real = module_file.Library
    monkeypatch.setattr(module_file, "Library", library)
    found: list[Any] = []
    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1 and found == made * 4


def test_several_functions_and_the_entry() -> None:
    kernels = scale_kernel("f", 3.0) + scale_kernel("g", 4.0)
    module = build_module(kernels, [scale_spec("f"), scale_spec("g")], entry_name="g")
    b = np.zeros(2, "float32")
    module(np.ones(2, "float32"), b)
    assert (b == 4).all() and module.function_names == ("f", "g")
    with pytest.raises(CodegenError, match="'tw_bind' is the name of a support function"):
        build_module("", [scale_spec("tw_bind")])
    with pytest.raises(CodegenError, match="must differ"):
        build_module(kernels, [scale_spec("f"), scale_spec("f")])


def test_time_evaluator(module: runtime.Module) -> None:
    a, b = np.ones(8, "float32"), np.zeros(8, "float32")
    result = module.time_evaluator("twice", number=3, repeat=2)(a, b)
    assert len(result.results) == 2 and result.min > 0


def test_undefined_symbol_is_an_error() -> None:
    kernel = """
declare i32 @no_such_function_anywhere()
define i32 @f(ptr %A, ptr %B, i64 %n) {
  %r = call i32 @no_such_function_anywhere()
  ret i32 %r
}
"""
    with pytest.raises(BuildError, match="no_such_function_anywhere"):
        build_module(kernel, [scale_spec("f")]).load()


def test_export_and_load(module: runtime.Module, tmp_path: Path) -> None:
    path = module.export_library(tmp_path / "twice.so")
    library = runtime.load_module(path)
    a, b = np.arange(4, dtype="float32"), np.zeros(4, "float32")
    a.flags.writeable = False
    library["twice"](a, b)
    np.testing.assert_array_equal(b, 2 * a)
    assert library["twice"].info.arg_names == ("A", "B")
    with pytest.raises(ValueError, match=r"twice: argument #1 'B': expected shape \(n,\), got"):
        library["twice"](a, b[:2])
    with pytest.raises(RunError, match="has no function 'once'"):
        library["once"]


def test_a_path_that_was_exported_again_gives_the_new_code(tmp_path: Path) -> None:
    b = np.zeros(1, "float32")
    for factor in (2.0, 5.0):
        module = build_module(scale_kernel("f", factor), [scale_spec("f")])
        library = runtime.load_module(module.export_library(tmp_path / "same.so"))
        library["f"](np.ones(1, "float32"), b)
        assert b[0] == factor


def test_library_runs_without_tilewright(module: runtime.Module, tmp_path: Path) -> None:
    path = module.export_library(tmp_path / "twice.so")
    script = f"""
import sys
sys.modules["tilewright"] = sys.modules["llvmlite"] = None
import numpy as np, tvm_ffi
lib = tvm_ffi.load_module({str(path)!r})
b = np.zeros(3, "float32")
lib.twice(np.ones(3, "float32"), b)
assert (b == 2).all(), b
try:
    lib.twice(b, None)
except TypeError as err:
    print(err)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "twice: argument #1 'B': expected a Tensor, got None" in done.stdout


def test_missing_and_broken_libraries(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="no library at"):
        runtime.load_module(tmp_path / "none.so")
    (tmp_path / "broken.so").write_bytes(b"not a library")
    with pytest.raises(BuildError, match="can't be loaded"):
        runtime.load_module(tmp_path / "broken.so")


def test_unwritable_path_is_an_error(module: runtime.Module, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="can't write"):
        module.export_library(tmp_path / "missing" / "x.so")


def test_importing_the_runtime_does_not_import_torch_or_llvm() -> None:
    script = """
import sys, tilewright.runtime
assert not {"torch", "llvmlite", "xgboost"} & set(sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_module_for_another_machine_is_exported_but_not_loaded(tmp_path: Path) -> None:
    module = build_module(
        scale_kernel("f", 2.0), [scale_spec("f")], machine=Machine("aarch64-unknown-linux-gnu")
    )
    data = module.export_library(tmp_path / "f.so").read_bytes()
    assert data[18:20] == b"\xb7\x00"
    if platform.machine() == "aarch64":
        pytest.skip("this is the other machine")
    with pytest.raises(BuildError, match="compiled for aarch64, this process runs on"):
        module["f"]


def test_parallel_function_runs_from_an_exported_library(tmp_path: Path) -> None:
    kernel = """
declare i32 @tw_parallel_launch(ptr, ptr, i64, i32)
define internal i32 @body(ptr %c, i64 %b, i64 %e) {
entry:
  br label %loop
loop:
  %i = phi i64 [ %b, %entry ], [ %i1, %loop ]
  %p = getelementptr float, ptr %c, i64 %i
  %f = sitofp i64 %i to float
  store float %f, ptr %p
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %e
  br i1 %more, label %loop, label %out
out:
  ret i32 0
}
define i32 @iota(ptr %A, ptr %B, i64 %n) {
  %r = call i32 @tw_parallel_launch(ptr @body, ptr %B, i64 %n, i32 0)
  ret i32 %r
}
"""
    module = build_module(kernel, [scale_spec("iota")])
    library = runtime.load_module(module.export_library(tmp_path / "iota.so"))
    for functions in (module, library):
        b = np.zeros(1000, "float32")
        functions["iota"](b, b)
        np.testing.assert_array_equal(b, np.arange(1000))


def test_constants_are_shared_and_exported(tmp_path: Path) -> None:
    kernel = """
@weights = external constant [12 x i8]
@"bias" = external constant [4 x i8]
define i32 @f(ptr %A, ptr %B, i64 %n) {
  %p = getelementptr float, ptr @weights, i64 2
  %w = load float, ptr %p
  %b = load float, ptr @bias
  %s = fadd float %w, %b
  store float %s, ptr %B
  ret i32 0
}
"""
    constants = {"weights": np.arange(3, dtype="float32"), "bias": np.full(1, 40, "float32")}
    module = build_module(kernel, [scale_spec("f")], constants=constants)
    library = runtime.load_module(module.export_library(tmp_path / "f.so"))
    for functions in (module, library, pickle.loads(pickle.dumps(module))):
        b = np.zeros(1, "float32")
        functions["f"](b, b)
        assert b[0] == 42
    broken = build_module(
        kernel, [scale_spec("f")], constants={**constants, "weights": np.zeros((3, 2))[:, 0]}
    )
    with pytest.raises(BuildError, match="constant 'weights' must be a compact array"):
        broken["f"]


def damaged(data: bytes) -> Iterator[bytes]:
    """Libraries cut off, with a flipped bit, with a part of themselves elsewhere, or grown."""
    for place in range(0, len(data), len(data) // 12):
        yield data[:place]
        yield data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :]
        yield data[place:] + data[:place] if place else data + b"\0"
    yield data[:-1]
    yield data[:-48]
    yield data[:-48] + data


def test_damaged_libraries_are_refused(module: runtime.Module, tmp_path: Path) -> None:
    data = module.export_library(tmp_path / "twice.so").read_bytes()
    for number, content in enumerate(damaged(data)):
        path = tmp_path / f"damaged{number}.so"
        path.write_bytes(content)
        with pytest.raises(BuildError, match=r"can't be loaded: it .* copy or export it again"):
            runtime.load_module(path)


def test_a_library_that_changes_while_it_is_used_stays_what_it_was(
    module: runtime.Module, tmp_path: Path
) -> None:
    path = module.export_library(tmp_path / "twice.so")
    library = runtime.load_module(path)
    with path.open("r+b") as file:  # in place: a mapped file would lose its code
        file.truncate(0)
    b = np.zeros(3, "float32")
    library["twice"](np.ones(3, "float32"), b)
    assert (b == 2).all()


def test_a_library_without_a_seal_is_loaded_when_asked(
    module: runtime.Module, tmp_path: Path
) -> None:
    path = module.export_library(tmp_path / "twice.so")
    path.write_bytes(path.read_bytes()[:-48])
    with pytest.raises(BuildError, match=r"load_module\(path, checked=False\)"):
        runtime.load_module(path)
    b = np.zeros(3, "float32")
    runtime.load_module(path, checked=False)["twice"](np.ones(3, "float32"), b)
    assert (b == 2).all()


def test_libraries_load_where_files_in_memory_are_forbidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EPERM, "forbidden")

    monkeypatch.setattr(os, "memfd_create", refuse)
    path = build_module(scale_kernel("f", 7.0), [scale_spec("f")]).export_library(tmp_path / "f.so")
    b = np.zeros(1, "float32")
    runtime.load_module(path)["f"](np.ones(1, "float32"), b)
    assert b[0] == 7
