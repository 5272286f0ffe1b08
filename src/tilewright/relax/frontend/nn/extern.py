"""Functions of other libraries in a model: ``ExternModule``, ``ObjectModule``, ``SourceModule``.

    kernels = nn.SourceModule({"scale": infer}, source, "cpp")

    def forward(self, x):
        nn.add_extern(kernels)
        return kernels["scale"](x)

A function is called with its inputs, then the tensors that it writes. It is a function of
``T.call_packed``'s kind (tvm-ffi), registered by name or exported by the library.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.relax import ops
from tilewright.relax.frontend.nn.tensor import emit, unwrapped
from tilewright.runtime import register_global_func
from tilewright.runtime.ffi import tvm_ffi
from tilewright.support.errors import BuildError, VerifyError


class ExternModule:
    """Functions that are there when the model runs, by name.

    ``symbols`` has for each name a function that takes what the call takes and returns the result's
    ``Tensor``, or a tuple of them: ``lambda x: nn.Tensor.placeholder(x.shape, x.dtype)``.
    """

    def __init__(self, symbols: Mapping[str, Callable[..., Any]]) -> None:
        self._symbols = dict(symbols)

    def __getitem__(self, func_name: str) -> Callable[..., Any]:
        """Return what emits a call of a function.

        Raises ``VerifyError`` if the module has none of that name.
        """
        if func_name not in self._symbols:
            raise VerifyError(f"no function {func_name!r}; there is {', '.join(self._symbols)}")

        def call(*args: object) -> Any:
            described = self._symbols[func_name](*args)
            several = isinstance(described, (tuple, list))
            infos = [item._expr.struct_info for item in (described if several else [described])]
            made = ops.call_dps_packed(
                func_name, unwrapped(list(args)), infos if several else infos[0]
            )
            return emit(made, func_name)

        return call

    def load(self) -> Any:
        """Make the functions available; here they are registered already."""
        return None


class ObjectModule(ExternModule):
    """Functions of a compiled object file (``.o``) or shared library (``.so``)."""

    def __init__(self, symbols: Mapping[str, Callable[..., Any]], filepath: str | Path) -> None:
        super().__init__(symbols)
        self.filepath = Path(filepath)
        if not self.filepath.is_file():
            raise BuildError(f"there is no file {self.filepath}")

    def load(self) -> Any:
        """Load the library and register its functions; returns the loaded module.

        Raises ``BuildError`` if it can't be linked or loaded.
        """
        path = self.filepath
        with tempfile.TemporaryDirectory() as folder:
            if path.suffix == ".o":
                path = Path(folder) / "library.so"
                _run([_compiler(None), "-shared", "-o", str(path), str(self.filepath)])
            try:
                library = tvm_ffi.load_module(str(path))
            except (RuntimeError, OSError) as error:
                raise BuildError(f"{self.filepath} can't be loaded: {error}") from None
        for name in self._symbols:
            register_global_func(name, library.get_function(name), override=True)
        return library


class SourceModule(ExternModule):
    """Functions of C++ or CUDA source, compiled by the machine's compiler.

    The source exports each of them: ``TVM_FFI_DLL_EXPORT_TYPED_FUNC(name, function)``.
    """

    def __init__(
        self,
        symbols: Mapping[str, Callable[..., Any]],
        source_code: str | Path,
        source_format: str,
        compile_options: Sequence[str] | None = None,
        compiler: str | None = None,
        output_format: str = "obj",
    ) -> None:
        super().__init__(symbols)
        if source_format not in ("cpp", "cu"):
            raise VerifyError(f"source_format must be 'cpp' or 'cu', got {source_format!r}")
        if output_format not in ("obj", "wasm"):
            raise VerifyError(f"output_format must be 'obj', got {output_format!r}")
        if output_format == "wasm":
            raise VerifyError("output_format must be 'obj': there is no target for WebAssembly")
        is_file = isinstance(source_code, Path) or (
            "\n" not in source_code and Path(source_code).is_file()
        )
        self.source_code = Path(source_code).read_text() if is_file else str(source_code)
        self.source_format = source_format
        given = self.get_compile_options(source_format)
        self.compile_options = given if compile_options is None else list(compile_options)
        self.compiler = _compiler(compiler, "nvcc" if source_format == "cu" else "")
        self.output_format = output_format

    @staticmethod
    def get_includes(tvm_pkg: Sequence[str] | None = None) -> list[Path]:
        """Folders of headers: tvm-ffi's and DLPack's.

        Raises ``VerifyError`` for packages of TVM's own sources.
        """
        if tvm_pkg:
            raise VerifyError(f"there are no sources of TVM here: tvm_pkg={list(tvm_pkg)!r}")
        paths = tvm_ffi.libinfo.find_include_path(), tvm_ffi.libinfo.find_dlpack_include_path()
        return [Path(path) for path in paths]

    @staticmethod
    def get_compile_options(source_format: str, tvm_pkg: Sequence[str] | None = None) -> list[str]:
        """Options of the compiler for an optimised library that tvm-ffi can load."""
        includes = [f"-I{path}" for path in SourceModule.get_includes(tvm_pkg)]
        if source_format == "cu":
            return ["-O3", "-std=c++17", "-Xcompiler", "-fPIC", *includes]
        return ["-O3", "-std=c++17", "-fPIC", *includes]

    def compile(self, output_path: str | Path) -> None:
        """Compile to an object file.

        Raises ``BuildError`` with the compiler's message.
        """
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / f"source.{self.source_format}"
            source.write_text(self.source_code)
            _run([self.compiler, "-c", str(source), *self.compile_options, "-o", str(output_path)])

    def load(self) -> Any:
        """Compile, load and register the functions; returns the loaded module.

        Raises ``BuildError`` if that fails.
        """
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "source.o"
            self.compile(path)
            return ObjectModule(self._symbols, path).load()


def _compiler(given: str | None, default: str = "") -> str:
    names = [given] if given else [default] if default else ["c++", "g++", "clang++"]
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    raise BuildError(f"there is no compiler {' or '.join(names)} on this machine")


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{' '.join(command[:2])} failed:\n{done.stderr[-2000:]}")
