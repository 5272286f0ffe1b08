"""Compiled modules: functions to call, text to read, a library to export.

:class:`Module` is what a build returns. It holds object code and a description of its functions;
the code is loaded into the process when a function is first requested, so that a module can be made
in one process, pickled, and run in another. :func:`load_module` opens an exported library, which
any tvm-ffi host can open too.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tilewright.runtime.beside import check_beside, has_beside, read_beside, statistics_in
from tilewright.runtime.compiled_function import CompiledFunction, FunctionInfo
from tilewright.runtime.device import Device, device
from tilewright.runtime.executable import Executable, FCompile
from tilewright.runtime.external_link import ExternalLink, write_objects
from tilewright.runtime.ffi import tvm_ffi
from tilewright.runtime.global_functions import get_global_func
from tilewright.runtime.gpu.graphs import device_of
from tilewright.runtime.loader import Library, support_objects_for
from tilewright.runtime.package import SUFFIX, is_package, packed, write_file
from tilewright.runtime.seal import checked_copy, seal
from tilewright.runtime.tensor import as_argument
from tilewright.runtime.timing import TimingResult, check_pauses, measure_with_pauses
from tilewright.support.errors import BuildError, RunError

if TYPE_CHECKING:
    from typing_extensions import Self

_LOADING = threading.RLock()  # a library that goes meanwhile may run other code

#: Name of the function that calling a module calls.
ENTRY_NAME = "main"
#: Name of the function that tells what the graphs of a library run, unless a graph has that name.
STATISTICS = "stats"


Link = Callable[[Sequence[bytes], Sequence[str]], bytes]
"""Makes a shared library's bytes from objects that are complete, and what it exports."""


class Linker(Protocol):
    """Makes a shared library from object code: see ``codegen.elf.link_shared``."""

    def __call__(
        self,
        objects: Sequence[bytes],
        exports: Sequence[str],
        constants: Mapping[str, bytes],
        *,
        link: Link | None = None,
    ) -> bytes:
        """Return the library's bytes; only the symbols ``exports`` are visible from outside.

        ``link`` does the last step, in place of our own linker.
        """


class BaseModule(Executable):
    """The base of built and loaded modules: function look-up, calls, timing."""

    entry_name = ENTRY_NAME

    def __init__(self) -> None:
        self._functions: dict[str, CompiledFunction] = {}

    @property
    def mod(self) -> Self:
        """The module itself."""
        return self

    def jit(
        self,
        *,
        fcompile: FCompile | None = None,
        addons: Sequence[str] | None = None,
        force_recompile: bool = False,
        **kwargs: Any,
    ) -> BaseModule:
        """Return the module; see ``Executable.jit`` for the options.

        Raises ``BuildError`` as ``export_library`` does.
        """
        if fcompile is None and not addons:
            _check_options(kwargs)
            return self.reloaded() if force_recompile else self
        with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
            path = Path(folder, "library.so")
            self.export_library(path, fcompile=fcompile, addons=addons, **kwargs)
            return load_module(path)

    def reloaded(self) -> BaseModule:
        """Return a module of the same code that is loaded anew; a library stays loaded."""
        return self

    def export_library(
        self,
        file_name: str | os.PathLike[str],
        *,
        fcompile: FCompile | None = None,
        fpack_imports: Callable[..., Any] | None = None,
        addons: Sequence[str] | None = None,
        workspace_dir: str | os.PathLike[str] | None = None,
        **kwargs: Any,
    ) -> Path:
        """Write a shared library.

        Raises ``BuildError``: only what was built in this process can be exported.
        """
        raise BuildError(f"{self!r} is a library already: copy its file")

    def _lookup(self, name: str) -> CompiledFunction:
        raise NotImplementedError(f"{type(self).__name__} must define _lookup")

    def __getitem__(self, name: str) -> CompiledFunction:
        """Return the function ``name``."""
        found = self._functions.get(name)
        if found is None:
            found = self._functions[name] = self._lookup(name)
        return found

    def get_function(self, name: str) -> CompiledFunction:
        """Return the function ``name``; the same as ``module[name]``."""
        return self[name]

    def __call__(self, *args: Any) -> Any:
        """Call the entry function."""
        return self[self.entry_name](*args)

    def time_evaluator(
        self,
        func_name: str | None = None,
        dev: Device | str | None = None,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 0.0,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: float = 0.0,
        repeats_to_cooldown: int = 1,
        cache_flush_bytes: int = 0,
        f_preproc: str = "",
    ) -> Callable[..., TimingResult]:
        """Return a function that takes arguments and measures calls with them.

        The calls run where the arguments are; ``dev`` says so, and is checked. With
        ``cache_flush_bytes`` the caches are flushed before each repeat. ``f_preproc`` names a
        global function that is called with the arguments before each repeat. Where
        ``min_repeat_ms`` is more than a measurement may take, and the clock sees no time pass at
        all, measuring ends after ``limit_zero_time_iterations`` tries.

        >>> module.time_evaluator("main", repeat=5, min_repeat_ms=20)(a, b, c).median
        """
        function = self[func_name or self.entry_name]
        before = get_global_func(f_preproc) if f_preproc else None
        check_pauses(cooldown_interval_ms, repeats_to_cooldown)
        expected = None if dev is None else device(dev)

        def evaluate(*args: object) -> TimingResult:
            # Arrays are converted once, so that the conversion is not measured.
            tensors = [as_argument(arg) for arg in args]
            gpu = device_of(tensors)
            where = device("cpu") if gpu is None else device(f"cuda:{gpu}")
            if expected not in (None, where):
                raise RunError(f"the arguments are on {where}, not on {expected}")
            function(*args)  # refuses read-only arrays that would be written
            return measure_with_pauses(
                function.ffi,
                tensors,
                number=number,
                repeat=repeat,
                min_repeat_ms=min_repeat_ms,
                limit_zero_time_iterations=limit_zero_time_iterations,
                flush_cache_bytes=cache_flush_bytes,
                before=before,
                cooldown_interval_ms=cooldown_interval_ms,
                repeats_to_cooldown=repeats_to_cooldown,
            )

        return evaluate


@dataclass
class ModuleCode:
    """The contents of a module, as values that can be pickled.

    ``sources`` are texts by format ("ll", "asm", "tir", …) or functions that make them.
    ``constants`` are compact arrays that the objects refer to by symbol. ``release`` is the symbol
    of a function that frees what the code holds elsewhere, as on a device.
    """

    objects: tuple[bytes, ...]
    functions: tuple[FunctionInfo, ...]
    target: str = ""
    sources: Mapping[str, str | Callable[[], str]] = field(default_factory=dict)
    constants: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    linker: Linker | None = None
    entry_name: str | None = None
    release: str | None = None


def _compact(name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if not array.flags.c_contiguous:
        raise BuildError(f"constant {name!r} must be a compact array; use np.ascontiguousarray")
    return array


class Module(BaseModule):
    """Compiled code with its functions."""

    def __init__(self, code: ModuleCode) -> None:
        super().__init__()
        self.code = code
        self._library: Library | None = None
        self._infos = {info.name: info for info in code.functions}
        names = tuple(self._infos)
        if code.entry_name is not None:
            self.entry_name = code.entry_name
        elif len(names) == 1:
            self.entry_name = names[0]

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.code,)

    def __repr__(self) -> str:
        return f"<Module of {', '.join(self.function_names)} for {self.target or 'the host'}>"

    @property
    def function_names(self) -> tuple[str, ...]:
        """Names of the functions."""
        return tuple(self._infos)

    @property
    def target(self) -> str:
        """The target that the code was compiled for."""
        return self.code.target

    def implements_function(self, name: str) -> bool:
        """Tell whether the module has the function."""
        return name in self._infos

    def load(self) -> Library:
        """Load the code into the process, if it isn't loaded yet; threads share it."""
        with _LOADING:
            if self._library is None:
                symbols = [f"__tvm_ffi_{name}" for name in self._infos]
                constants = {name: _compact(name, a) for name, a in self.code.constants.items()}
                self._library = Library(
                    self.code.objects,
                    symbols,
                    {name: array.ctypes.data for name, array in constants.items()},
                    keep_alive=constants,
                    release=self.code.release,
                )
            return self._library

    def _lookup(self, name: str) -> CompiledFunction:
        if name not in self._infos:
            raise RunError(
                f"the module has no function {name!r}; it has {', '.join(self._infos) or 'none'}"
            )
        return CompiledFunction(self.load().function(name), self._infos[name])

    def get_source(self, fmt: str = "ll") -> str:
        """Return the module's text in a format: ``"ll"`` or ``"asm"``.

        Raises ``RunError`` if the module doesn't hold it.
        """
        if fmt not in self.code.sources:
            known = ", ".join(sorted(self.code.sources)) or "none"
            raise RunError(f"the module holds no {fmt!r} source; it has: {known}")
        source = self.code.sources[fmt]
        return source if isinstance(source, str) else source()

    inspect_source = get_source

    def with_sources(self, sources: Mapping[str, str | Callable[[], str]]) -> Module:
        """Return a module of the same code with these texts; without any, it pickles smaller."""
        return Module(replace(self.code, sources=dict(sources)))

    def reloaded(self) -> Module:
        """Return a module of the same code that is linked anew."""
        return type(self)(self.code)

    def export_library(
        self,
        file_name: str | os.PathLike[str],
        *,
        fcompile: FCompile | None = None,
        fpack_imports: Callable[..., Any] | None = None,
        addons: Sequence[str] | None = None,
        workspace_dir: str | os.PathLike[str] | None = None,
        **kwargs: Any,
    ) -> Path:
        """Write a shared library that any tvm-ffi host can load, without Tilewright.

        The file ends in its length and checksum, which :func:`load_module` checks. With the suffix
        ``.tar`` it is a tar of this library, which ``load_module`` takes as well. ``addons`` are
        further object files to link. ``fcompile(file_name, object files, **kwargs)`` links in place
        of our own linker. The object files are left in ``workspace_dir``, if it is given.

        Raises ``BuildError`` if the target has no linker, the file can't be written, or an object
        file of ``addons`` needs what our linker doesn't do; and for ``fpack_imports``: a module
        imports no others.
        """
        if fpack_imports is not None:
            raise BuildError("a module imports no others, so there is nothing for fpack_imports")
        if fcompile is None:
            _check_options(kwargs)
        linker = self.code.linker
        if linker is None:
            raise BuildError(f"a module for {self.target or 'this target'} can't be exported")
        exports = [f"__tvm_ffi_{name}" for name in self._infos]
        exports += [f"__tvm_ffi__metadata_{name}" for name in self._infos]
        constants = {name: _compact(name, a).tobytes() for name, a in self.code.constants.items()}
        path = Path(file_name)
        objects = [*self.code.objects, *(_read(Path(addon)) for addon in addons or ())]
        link = None if fcompile is None else ExternalLink(fcompile, workspace_dir, kwargs)
        if link is None and workspace_dir is not None:
            write_objects(Path(workspace_dir), objects)
        data = linker(objects, exports, constants, link=link)
        if path.suffix == SUFFIX:
            write_file(path, packed(data + seal(data)))
        else:
            write_file(path, data, seal(data))
        return path


def _check_options(options: Mapping[str, Any]) -> None:
    """Raise for options that only ``fcompile`` would take."""
    if options:
        raise BuildError(f"these are options of fcompile, which isn't given: {list(options)}")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", error)
        raise BuildError(f"can't read the object file {path}: {why}") from None


Accept = Callable[[bytes], None]

# Libraries by checksum. Their code stays in the process, with a thread pool in each: once will do.
_checked: dict[bytes, tvm_ffi.Module] = {}

# The file behind each path that was loaded as it is, as (device, inode).
_opened: dict[str, tuple[int, int]] = {}


def _load_checked(path: Path, accept: Accept | None) -> tuple[tvm_ffi.Module, bytes]:
    """Load an exported library from a checked copy, so that it can't be changed in between."""
    with checked_copy(path) as (checksum, copy):
        if accept is not None:
            accept(checksum)
        if checksum not in _checked:
            _checked[checksum] = tvm_ffi.load_module(str(copy))
        return _checked[checksum], checksum


def _load_as_is(path: Path) -> tvm_ffi.Module:
    """Load a library; a path loaded before whose file has changed gives the new one."""
    if is_package(path):
        raise BuildError(f"{path} is a package, which is checked always: leave out checked=False")
    status = path.stat()
    identity = status.st_dev, status.st_ino
    if _opened.setdefault(str(path), identity) == identity:
        return tvm_ffi.load_module(str(path))
    # The system's loader would find the path among the loaded libraries and return the old one.
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        alias = Path(folder, path.name)
        alias.symlink_to(path)
        return tvm_ffi.load_module(str(alias))


class LibraryModule(BaseModule):
    """A shared library that was exported, or made by another tvm-ffi compiler.

    ``accept`` gets the checksum of what is loaded, before any of it runs; it raises for another
    library than the one that is meant.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        checked: bool = True,
        accept: Accept | None = None,
    ) -> None:
        super().__init__()
        self.path = Path(path)
        if not self.path.is_file():
            raise BuildError(f"no library at {self.path}")
        #: The checksum that the file ends in; none if it wasn't checked.
        self.checksum: bytes | None = None
        try:
            if checked:
                self._module, self.checksum = _load_checked(self.path.absolute(), accept)
            else:
                self._module = _load_as_is(self.path.absolute())
        except (RuntimeError, OSError) as err:
            raise BuildError(f"{self.path} can't be loaded: {err}") from err

    def __repr__(self) -> str:
        return f"<LibraryModule {self.path}>"

    def __reduce__(self) -> tuple[object, ...]:
        if not self.path.is_file():  # as of what `jit` has linked
            raise BuildError(
                f"{self.path} is gone: pickle the module that it was made of, or export_library"
            )
        return partial(LibraryModule, checked=self.checksum is not None), (self.path,)

    @property
    def target(self) -> str:
        """Empty: a library doesn't tell for which target it was built."""
        return ""

    def with_sources(self, sources: Mapping[str, str | Callable[[], str]]) -> LibraryModule:
        """Return the library: it holds no texts."""
        return self

    def get_source(self, fmt: str = "ll") -> str:
        """Raise ``RunError``: a library holds no texts."""
        raise RunError(f"{self!r} holds no {fmt!r} source: ask the module that was exported")

    inspect_source = get_source

    def implements_function(self, name: str) -> bool:
        """Tell whether the library has the function."""
        if self._module.implements_function(name):
            return True
        return name == STATISTICS and self._statistics() is not None

    def _statistics(self) -> str | None:
        """What the graphs of the library run, if it was written beside it."""
        if self.checksum is None or not has_beside(self.path):
            return None
        data = read_beside(self.path)
        check_beside(self.path, data, self.checksum)
        return statistics_in(self.path, data)

    def _lookup(self, name: str) -> CompiledFunction:
        try:
            call = self._module.get_function(name)
        except AttributeError as err:
            text = self._statistics() if name == STATISTICS else None
            if text is None:
                raise RunError(f"{self.path} has no function {name!r}") from err
            return CompiledFunction(tvm_ffi.convert(lambda: text), FunctionInfo(name))
        described = self._module.get_function_metadata(name) or {}
        arguments = described.get("arguments", [])
        info = FunctionInfo(
            name,
            tuple(argument["name"] for argument in arguments),
            tuple(bool(argument["written"]) for argument in arguments),
        )
        return CompiledFunction(call, info)


def load_module(path: str | os.PathLike[str], *, checked: bool = True) -> LibraryModule:
    """Load a library that :meth:`Module.export_library` wrote.

    Raises ``BuildError`` if it is damaged: if its content does not match the checksum at its end.
    Libraries of other tvm-ffi compilers have none; ``checked=False`` loads them unchecked. Then
    damage crashes the process or gives wrong results.
    """
    return LibraryModule(path, checked=checked)


def linked_objects(code: Sequence[bytes], build_for: str | None = None) -> list[bytes]:
    """Return ``code`` and the support objects that it refers to, for linking into a library."""
    objects = list(code)
    pending = support_objects_for(objects)
    taken: set[str] = set()
    while pending:
        support = pending.pop()
        if support.name not in taken:
            taken.add(support.name)
            objects.append(support.build(build_for))
            pending.extend(support_objects_for(objects[-1:]))
    return objects
