"""Modules as executables: linking by others, timing with TVM's arguments."""

from __future__ import annotations

import pickle
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright import runtime, te
from tilewright.runtime import Module, timing
from tilewright.support.errors import BuildError, RunError

A = np.arange(8, dtype="float32")


@pytest.fixture(scope="module")
def module() -> Module:
    a = te.placeholder((8,), name="A")
    w = te.placeholder((8,), name="W")
    b = te.compute((8,), lambda i: te.tanh(a[i]) + w[i], name="B")
    made: Module = tilewright.compile(te.create_prim_func([a, w, b]), "llvm")
    return made


def result(module: runtime.Executable) -> np.ndarray:
    made = np.empty_like(A)
    module(A, A, made)
    return made


def test_modules_are_executables(module: Module) -> None:
    assert isinstance(module, runtime.Executable)
    assert module.mod is module
    assert module.jit() is module
    again = module.jit(force_recompile=True)
    assert again is not module
    handle = runtime.Executable(module)
    assert handle.jit() is module
    assert handle["main"] is module["main"]
    for each in (again, handle):
        np.testing.assert_array_equal(result(each), result(module))


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_others_link(module: Module, tmp_path: Path) -> None:
    seen: list[list[str]] = []

    def link(file_name: str, files: list[str], options: tuple[str, ...] = ()) -> None:
        seen.append(files)
        command = ["cc", "-shared", "-o", file_name, *files, *options, "-lm"]
        subprocess.run(command, check=True)

    work = tmp_path / "work"
    path = module.export_library(
        tmp_path / "lib.so", fcompile=link, workspace_dir=work, options=("-g",)
    )
    assert {file.name for file in work.iterdir()} == {Path(name).name for name in seen[0]}
    for made in (runtime.load_module(path), module.jit(fcompile=link)):
        np.testing.assert_allclose(result(made), result(module), rtol=1e-6)
    with pytest.raises(BuildError, match="has not written its library"):
        module.export_library(tmp_path / "none.so", fcompile=lambda name, files: None)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_object_files_are_added(module: Module, tmp_path: Path) -> None:
    source, extra = tmp_path / "extra.c", tmp_path / "extra.o"
    source.write_text("int an_addition(void) { return 3; }\n")
    subprocess.run(["cc", "-c", "-fPIC", "-O1", str(source), "-o", str(extra)], check=True)
    plain = module.export_library(tmp_path / "plain.so")
    more = module.export_library(tmp_path / "more.so", addons=[str(extra)])
    assert more.stat().st_size >= plain.stat().st_size
    np.testing.assert_array_equal(result(runtime.load_module(more)), result(module))


def test_what_cannot_be_exported(module: Module, tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    with pytest.raises(BuildError, match="nothing for fpack_imports"):
        module.export_library(path, fpack_imports=lambda *args: "")
    with pytest.raises(BuildError, match="options of fcompile"):
        module.export_library(path, cc="gcc")
    with pytest.raises(BuildError, match="can't read the object file"):
        module.export_library(path, addons=[str(tmp_path / "none.o")])
    loaded = runtime.load_module(module.export_library(path))
    with pytest.raises(BuildError, match="a library already"):
        loaded.export_library(tmp_path / "again.so")


def test_no_option_is_ignored(module: Module, tmp_path: Path) -> None:
    for handle in (module, runtime.Executable(module), module.jit(force_recompile=True)):
        with pytest.raises(BuildError, match="options of fcompile"):
            handle.jit(cc="gcc")
    work = tmp_path / "work"
    module.export_library(tmp_path / "lib.so", workspace_dir=work)
    assert [file.read_bytes() for file in sorted(work.iterdir())] == list(module.code.objects)
    with pytest.raises(BuildError, match="can't write object files"):
        module.export_library(tmp_path / "lib.so", workspace_dir=tmp_path / "lib.so")
    with pytest.raises(TypeError, match="a module or an executable"):
        runtime.Executable(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "x" * 300, "a\0b", "none/lib.so"])
def test_hostile_paths(module: Module, tmp_path: Path, name: str) -> None:
    with pytest.raises(BuildError, match="can't write"):
        module.export_library(tmp_path / name)
    with pytest.raises(BuildError, match="can't read the object file"):
        module.export_library(tmp_path / "lib.so", addons=[str(tmp_path / name)])
    assert not list(tmp_path.iterdir())


def test_threads_export_the_same_file(module: Module, tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: module.export_library(path), range(40))) == {path}
    assert list(tmp_path.iterdir()) == [path]
    np.testing.assert_array_equal(result(runtime.load_module(path)), result(module))


def test_what_a_library_does_not_hold(module: Module, tmp_path: Path) -> None:
    path = module.export_library(tmp_path / "lib.so")
    library = runtime.load_module(path)
    with pytest.raises(RunError, match="holds no 'll' source"):
        library.inspect_source()
    path.unlink()
    with pytest.raises(BuildError, match="is gone"):
        pickle.dumps(library)


def test_functions_are_called_before_each_repeat(module: Module) -> None:
    seen: list[int] = []
    tilewright.register_global_func("test.before", lambda *args: seen.append(len(args)), True)
    made = module.time_evaluator(
        "main", tilewright.cpu(), 2, 3, 0, 10, 0, 1, 0, f_preproc="test.before"
    )(A, A, np.empty_like(A))
    assert (len(made.results), seen) == (3, [3, 3, 3])
    with pytest.raises(RunError, match=r"test\.behind"):
        module.time_evaluator("main", f_preproc="test.behind")


def test_measuring_ends_if_no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing.time, "perf_counter", lambda: 1.0)
    calls: list[None] = []
    timing.measure(
        lambda: calls.append(None),
        min_repeat_ms=1,
        repeat=1,
        limit_zero_time_iterations=3,
        warmup=0,
    )
    assert len(calls) == 1 + 11 + 111
    with pytest.raises(RunError, match="negative"):
        timing.measure(lambda: None, limit_zero_time_iterations=-1)
