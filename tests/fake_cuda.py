"""A CUDA driver without a GPU: memory of the device is the host's, the interpreter runs kernels.

It is a real ``libcuda.so.1``, a library whose functions call into Python, so all code is tested
that calls the driver, however it finds it. Work of a stream is done when somebody waits for it;
memory is NaN before it is written and gone when it is freed; what touches anything else is a fault
that, as on a GPU, everybody is told of from then on. Launches are checked: sizes, shared memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from fake_cuda_functions import CALLS, Functions
from fake_cuda_state import FakeDriver, Refused

from tilewright.codegen.cuda import package
from tilewright.codegen.elf import link_shared
from tilewright.codegen.llvm.jit import host_triple
from tilewright.codegen.llvm.object_cache import compile_portable
from tilewright.ir import IRModule

_KINDS = {"i": ("i32", ctypes.c_int), "l": ("i64", ctypes.c_int64), "p": ("ptr", ctypes.c_void_p)}


def _library_text(calls: dict[str, str]) -> str:
    lines = [f"@table = internal global [{len(calls)} x ptr] zeroinitializer"]
    for index, (name, kinds) in enumerate(calls.items()):
        types = [_KINDS[kind][0] for kind in kinds]
        params = ", ".join(f"{kind} %a{i}" for i, kind in enumerate(types))
        place = f"getelementptr ([{len(calls)} x ptr], ptr @table, i64 0, i64 {index})"
        lines += [
            f"define i32 @{name}({params}) {{",
            f"  %f = load ptr, ptr {place}",
            f"  %r = call i32 %f({params})",
            "  ret i32 %r",
            "}",
        ]
    place = f"getelementptr [{len(calls)} x ptr], ptr @table, i64 0, i64 %i"
    lines += [
        "define void @fake_cuda_set(i64 %i, ptr %f) {",
        f"  %p = {place}",
        "  store ptr %f, ptr %p",
        "  ret void",
        "}",
    ]
    return "\n".join(lines) + "\n"


def write_library(folder: Path, calls: dict[str, str] = CALLS) -> Path:
    """Write the library into a folder, under the name that programs look for."""
    code = compile_portable(_library_text(calls), host_triple())
    path = folder / "libcuda.so.1"
    path.write_bytes(link_shared([code], [*calls, "fake_cuda_set"], soname="libcuda.so.1"))
    return path


def _callback(driver: FakeDriver, name: str, body: Callable[..., None]) -> Callable[..., int]:
    quiet = name.startswith("cuGetError")

    def call(*args: int) -> int:
        if sys.is_finalizing():
            return 4  # CUDA_ERROR_DEINITIALIZED
        if not quiet:
            driver.log.append((name, args))
        if name in driver.failing:
            return driver.failing[name]
        try:
            body(*(arg or 0 for arg in args))
        except Refused as error:
            return error.code
        except BaseException:
            driver.errors.append(traceback.format_exc())
            return 999
        return 0

    return call


_alive: list[Any] = []


def load() -> FakeDriver:
    """Load the library into this process, once."""
    if _alive:
        return _alive[0]
    driver = FakeDriver()
    functions = Functions(driver)
    folder = tempfile.TemporaryDirectory(prefix="fake-cuda-")
    library = ctypes.CDLL(str(write_library(Path(folder.name))))
    library.fake_cuda_set.argtypes = [ctypes.c_int64, ctypes.c_void_p]
    _alive.extend([driver, folder, library])
    for index, (name, kinds) in enumerate(CALLS.items()):
        kind = ctypes.CFUNCTYPE(ctypes.c_int, *(_KINDS[item][1] for item in kinds))
        made = kind(_callback(driver, name, getattr(functions, name)))
        # The last tensors may be dropped when this module is gone.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
        library.fake_cuda_set(index, ctypes.cast(made, ctypes.c_void_p))
    return driver


@contextlib.contextmanager
def watched(driver: FakeDriver) -> Iterator[None]:
    """Tell the driver of all kernels that are compiled meanwhile."""
    emit, compile_text = package.emit_kernels, package.compile_text
    texts: dict[str, IRModule] = {}

    def emit_kernels(lowered: IRModule, target: Any) -> Any:
        code = emit(lowered, target)
        texts[code.text] = lowered
        return code

    def compiled(text: str, arch: str) -> Any:
        made = compile_text(text, arch)
        driver.add_image(made.cubin, texts[text])
        return made

    with (
        mock.patch.object(package, "emit_kernels", emit_kernels),
        mock.patch.object(package, "compile_text", compiled),
    ):
        yield


@contextlib.contextmanager
def fake_driver(devices: int = 1) -> Iterator[FakeDriver]:
    """The driver, as it is after it was started; what failed in it fails the test."""
    driver = load()
    driver.reset(devices)
    with watched(driver):
        yield driver
    assert not driver.errors, "\n".join(driver.errors)
