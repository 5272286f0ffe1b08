"""Loads relocatable objects into the process and finds their symbols.

Compiled modules are object code. The loader links it in memory with what it references: libraries
of the process, tvm-ffi, and *support objects*, native code of Tilewright itself (the thread pool,
the argument binder) that is loaded once per process on first use. Code generators register their
support objects here; an exported library carries copies of them.
"""

from __future__ import annotations

import ctypes
import itertools
import platform
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tilewright.runtime.ffi import tvm_ffi
from tilewright.support.errors import BuildError


@dataclass(frozen=True)
class SupportObject:
    """Native code that modules may refer to: its name, its symbols, and how to compile it.

    ``build(triple)`` returns the object for a triple, or for this process without one.
    """

    name: str
    symbols: tuple[str, ...]
    build: Callable[[str | None], bytes]


# Machine numbers of ELF headers, by the name that `platform.machine()` has for them.
_MACHINES = {62: "x86_64", 183: "aarch64"}

_support: dict[str, SupportObject] = {}
_loaded_support: dict[str, Mapping[str, int]] = {}
_after_load: dict[str, list[Callable[[Mapping[str, int]], None]]] = {}
_names = itertools.count()
# Reentrant: loading a module may load a support object, which is a module too.
_lock = threading.RLock()


def register_support_object(support: SupportObject) -> None:
    """Register a support object; its code is compiled when a module first refers to it."""
    _support[support.name] = support


def support_objects_for(code: Iterable[bytes]) -> list[SupportObject]:
    """Return the support objects that object code refers to by name."""
    blobs = list(code)
    return [
        support
        for support in _support.values()
        # A symbol's name stands in the object's string table, ended by a zero.
        if any(symbol.encode() + b"\0" in blob for symbol in support.symbols for blob in blobs)
    ]


def when_loaded(name: str, action: Callable[[Mapping[str, int]], None]) -> None:
    """Call ``action`` with the addresses of a support object as soon as it is loaded."""
    with _lock:
        if name in _loaded_support:
            action(_loaded_support[name])
        else:
            _after_load.setdefault(name, []).append(action)


def support_addresses(name: str) -> Mapping[str, int]:
    """Load a support object, if it isn't loaded yet, and return its symbols' addresses.

    Raises ``BuildError`` if it isn't registered.
    """
    with _lock:
        if name not in _loaded_support:
            if name not in _support:
                raise BuildError(f"no support object {name!r}; registered are {sorted(_support)}")
            support = _support[name]
            library = Library([support.build(None)], support.symbols)
            # Threads of the pool run this code until the process ends: it is never unloaded.
            library.leak()
            _loaded_support[name] = library.addresses
            for action in _after_load.pop(name, ()):
                action(library.addresses)
        return _loaded_support[name]


@lru_cache(maxsize=1)
def _engine() -> Any:
    """The linker, one per process; never freed, since its memory holds running code.

    It is JITLink, which puts the sections of an object side by side. LLVM's older linker maps each
    alone, and ends the process when two that refer to one another come to lie more than 2 GB apart:
    where the gaps of a process that maps much are too small for one of them.
    """
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    engine = llvm.create_lljit_compiler(use_jit_link=True, suppress_errors=True)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(engine))
    return engine


@lru_cache(maxsize=1)
def ffi_addresses() -> Mapping[str, int]:
    """Addresses of the tvm-ffi functions that generated code calls."""
    names = (
        "TVMFFIStringFromByteArray",
        "TVMFFIFunctionCall",
        "TVMFFIFunctionGetGlobal",
        "TVMFFIObjectDecRef",
        "TVMFFITensorFromDLPack",
        "TVMFFIEnvGetDLPackManagedTensorAllocator",
        "TVMFFIEnvGetStream",
        "TVMFFIEnvTensorAlloc",
    )
    found = {name: getattr(tvm_ffi.LIB, name) for name in names}
    found["TVMFFIErrorSetRaisedFromCStr"] = _set_raised_pointer
    return {name: ctypes.cast(item, ctypes.c_void_p).value or 0 for name, item in found.items()}


class _Bytes(ctypes.Structure):
    _fields_ = (("data", ctypes.c_char_p), ("size", ctypes.c_size_t))


def _set_raised(kind: bytes, message: bytes) -> None:
    """Set the error of a failed call, as ``TVMFFIErrorSetRaisedFromCStr`` does.

    That function adds a native backtrace, for which it reads the debug information of all libraries
    in the process: two seconds and 40 MB at the first error, only to report that a kernel was
    called.
    """
    parts = [_Bytes(text, len(text)) for text in (kind, message, b"")]
    error = ctypes.c_void_p()
    if tvm_ffi.LIB.TVMFFIErrorCreate(*map(ctypes.byref, parts), ctypes.byref(error)) == 0:
        tvm_ffi.LIB.TVMFFIErrorSetRaised(error)
        tvm_ffi.LIB.TVMFFIObjectDecRef(error)


_set_raised_pointer = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p)(_set_raised)


def _check_machine(code: Iterable[bytes]) -> None:
    for blob in code:
        found = _MACHINES.get(int.from_bytes(blob[18:20], "little"), "another machine")
        if found != platform.machine():
            raise BuildError(
                f"the module is compiled for {found}, this process runs on {platform.machine()}; "
                f"export it and load it there"
            )


def _missing_symbols(code: Iterable[bytes], known: Mapping[str, int]) -> list[str]:
    """The symbols that objects need but neither they, nor ``known``, nor the process define."""
    needed: dict[str, None] = {}
    defined = set(known)
    for blob in code:
        (table,) = struct.unpack_from("<Q", blob, 40)
        size, count = struct.unpack_from("<HH", blob, 58)
        headers = [struct.unpack_from("<IIQQQQI", blob, table + i * size) for i in range(count)]
        for header in headers:
            if header[1] != 2:  # SHT_SYMTAB
                continue
            names = headers[header[6]][4]
            symbols = blob[header[4] : header[4] + header[5]]
            for name, _, _, section, _, _ in struct.iter_unpack("<IBBHQQ", symbols):
                text = blob[names + name : blob.index(b"\0", names + name)].decode()
                if section:
                    defined.add(text)
                elif text:
                    needed[text] = None
    process = ctypes.CDLL(None)
    return [name for name in needed if name not in defined and not hasattr(process, name)]


class _Release:
    """Calls a function of a library when nobody can call another one any more."""

    def __init__(self, address: int, alive: object) -> None:
        self._function, self._alive = ctypes.CFUNCTYPE(None)(address), alive

    def __del__(self) -> None:
        if not sys.is_finalizing():  # what a process holds is freed when it ends
            self._function()


class Library:
    """Object code in memory. The code lives as long as this object."""

    def __init__(
        self,
        objects: Iterable[bytes],
        exports: Iterable[str],
        symbols: Mapping[str, int] | None = None,
        *,
        keep_alive: object = None,
        release: str | None = None,
    ) -> None:
        """Link ``objects``; ``symbols`` gives addresses of further symbols that they reference.

        ``keep_alive`` owns the memory that ``symbols`` point to. ``release`` is a function
        ``void()`` that is called before the code is dropped.
        """
        import llvmlite.binding as llvm

        code = list(objects)
        _check_machine(code)
        exported = list(dict.fromkeys((*exports, *filter(None, (release,)))))
        imported = dict(ffi_addresses())
        for support in support_objects_for(code):
            if not set(support.symbols) & set(exported):
                imported.update(support_addresses(support.name))
        imported.update(symbols or {})
        builder = llvm.JITLibraryBuilder()
        for blob in code:
            builder.add_object_img(blob)
        for name, address in imported.items():
            builder.import_symbol(name, address)
        for name in exported:
            builder.export_symbol(name)
        builder.add_current_process()
        with _lock:
            try:
                self._tracker = builder.link(_engine(), f"tilewright.{next(_names)}")
            except RuntimeError as err:
                missing = _missing_symbols(code, imported)
                reason = f"nothing defines {', '.join(missing)}" if missing else str(err)
                raise BuildError(f"the module can't be loaded: {reason}") from err
        self.addresses: dict[str, int] = {name: self._tracker[name] for name in exported}
        self._alive: tuple[object, ...] = (self._tracker, keep_alive)
        if release is not None:
            self._alive = (*self._alive, _Release(self.addresses[release], self._alive))

    def leak(self) -> None:
        """Keep the code until the process ends."""
        self._tracker.detach()

    def function(self, name: str) -> tvm_ffi.Function:
        """Wrap the tvm-ffi function ``name``, whose symbol ``__tvm_ffi_NAME`` must be exported.

        Raises ``BuildError`` if it isn't.
        """
        symbol = f"__tvm_ffi_{name}"
        if symbol not in self.addresses:
            raise BuildError(f"no symbol {symbol!r} was exported when the module was loaded")
        return tvm_ffi.Function.__from_extern_c__(
            self.addresses[symbol], keep_alive_object=self._alive
        )
