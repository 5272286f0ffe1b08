"""LLVM as a shared library of the system, called by its C API in place of llvmlite's.

The LLVM inside llvmlite's wheels is built with assertions, which cost more than a third of the time
that it takes to compile a kernel. The one that Linux distributions and other compilers install has
none. Where the setting ``llvm_library`` names it, :mod:`jit` compiles with it: same text, same
passes, same version, in a fraction of the time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from tilewright.support.errors import CodegenError

_POINTER, _TEXT, _INT, _SIZE = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t
_OUT, _OUT_TEXT = ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_char_p)

#: What is called: result and parameters by name, without the prefix ``LLVM``.
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "ContextCreate": (_POINTER, ()),
    "ContextDispose": (None, (_POINTER,)),
    "CreateMemoryBufferWithMemoryRangeCopy": (_POINTER, (_TEXT, _SIZE, _TEXT)),
    "ParseIRInContext": (_INT, (_POINTER, _POINTER, _OUT, _OUT)),
    "VerifyModule": (_INT, (_POINTER, _INT, _OUT)),
    "DisposeModule": (None, (_POINTER,)),
    "PrintModuleToString": (_POINTER, (_POINTER,)),
    "DisposeMessage": (None, (_POINTER,)),
    "GetErrorMessage": (_POINTER, (_POINTER,)),
    "DisposeErrorMessage": (None, (_POINTER,)),
    "GetTargetFromTriple": (_INT, (_TEXT, _OUT, _OUT)),
    "CreateTargetMachine": (_POINTER, (_POINTER, _TEXT, _TEXT, _TEXT, _INT, _INT, _INT)),
    "CreateTargetDataLayout": (_POINTER, (_POINTER,)),
    "SetTarget": (None, (_POINTER, _TEXT)),
    "SetModuleDataLayout": (None, (_POINTER, _POINTER)),
    "CreatePassBuilderOptions": (_POINTER, ()),
    "DisposePassBuilderOptions": (None, (_POINTER,)),
    "PassBuilderOptionsSetLoopVectorization": (None, (_POINTER, _INT)),
    "PassBuilderOptionsSetSLPVectorization": (None, (_POINTER, _INT)),
    "RunPasses": (_POINTER, (_POINTER, _TEXT, _POINTER, _POINTER)),
    "TargetMachineEmitToMemoryBuffer": (_INT, (_POINTER, _POINTER, _INT, _OUT, _OUT)),
    "GetBufferStart": (_POINTER, (_POINTER,)),
    "GetBufferSize": (_SIZE, (_POINTER,)),
    "DisposeMemoryBuffer": (None, (_POINTER,)),
    "ParseCommandLineOptions": (None, (_INT, _OUT_TEXT, _TEXT)),
    "GetVersion": (None, (_OUT, _OUT, _OUT)),
}
_TARGETS = ("X86", "AArch64")
_TARGET_PARTS = ("TargetInfo", "Target", "TargetMC", "AsmPrinter", "AsmParser")
# Of LLVM's enumerations: position independent code, the small code model, what a verifier does.
_PIC, _SMALL, _RETURN_STATUS = 2, 3, 2
_FILE_KINDS = {"assembly": 0, "object": 1}


class RefusedText(CodegenError):
    """The library finds a fault in a module."""


class BrokenModule(CodegenError):
    """A module isn't valid any more after the passes: to generate code would end the process."""


class SharedLLVM:
    """A loaded library. Not safe to be used by several threads at once."""

    def __init__(self, name: str, version: Sequence[int]) -> None:
        """Load the library ``name``, which must have the major number of ``version``."""
        self.name = name
        try:
            library = ctypes.CDLL(name)
            self._call = {key: getattr(library, f"LLVM{key}") for key in _FUNCTIONS}
        except (OSError, AttributeError) as error:
            raise CodegenError(
                f"TILEWRIGHT_LLVM_LIBRARY={name!r} is no LLVM that can be used: {error}; name a "
                f"libLLVM of version {version[0]}, or leave it empty for the one in llvmlite"
            ) from error
        for key, (result, parameters) in _FUNCTIONS.items():
            self._call[key].restype, self._call[key].argtypes = result, parameters
        numbers = [ctypes.c_void_p() for _ in range(3)]
        self._call["GetVersion"](*map(ctypes.byref, numbers))
        self.version = tuple((number.value or 0) & 0xFFFFFFFF for number in numbers)
        if self.version[0] != version[0]:
            raise CodegenError(
                f"TILEWRIGHT_LLVM_LIBRARY={name!r} is LLVM {'.'.join(map(str, self.version))}; "
                f"the text that Tilewright writes here is for LLVM {version[0]}, as in llvmlite"
            )
        for target in _TARGETS:
            for part in _TARGET_PARTS:
                initialize = getattr(library, f"LLVMInitialize{target}{part}", None)
                if initialize is not None:  # else a triple of it is refused when it is asked for
                    initialize()
        self._machine = lru_cache(maxsize=64)(self._make_machine)

    def compile(
        self,
        text: str,
        machine: tuple[str, str, str],
        level: int,
        pipeline: str,
        *,
        output: str,
        vectorizes: bool = False,
        switches: Mapping[str, tuple[str, str]] | None = None,
    ) -> bytes:
        """Compile a module for ``machine`` (triple, CPU, features) at a level from 0 to 3.

        ``pipeline`` names passes as LLVM's ``opt`` takes them. ``output`` is ``"object"``,
        ``"assembly"``, or ``"ll"`` for the module's text after the passes. ``switches`` of the
        library are set while code is generated: to their first value, and back to their second.
        Raises :class:`BrokenModule` if the passes leave one that isn't valid.
        """
        target, layout = self._machine(*machine, level)
        with self._parsed(text) as module:
            self._call["SetTarget"](module, machine[0].encode())
            self._call["SetModuleDataLayout"](module, layout)
            if pipeline:
                self._run(module, target, pipeline, vectorizes)
                self._verify(module, BrokenModule)
            if output == "ll":
                return self._message(self._call["PrintModuleToString"](module))
            for name, (value, _) in (switches or {}).items():
                self._set_option(f"-{name}={value}")
            try:
                return self._emitted(module, target, output)
            finally:
                for name, (_, value) in (switches or {}).items():
                    self._set_option(f"-{name}={value}")

    @contextmanager
    def _parsed(self, text: str) -> Iterator[object]:
        """A module in a context of its own, which ends with it."""
        data = text.encode()
        context = self._call["ContextCreate"]()
        module, error = ctypes.c_void_p(), ctypes.c_void_p()
        try:
            buffer = self._call["CreateMemoryBufferWithMemoryRangeCopy"](
                data, len(data), b"<string>"
            )
            if self._call["ParseIRInContext"](
                context, buffer, ctypes.byref(module), ctypes.byref(error)
            ):
                raise RefusedText(self._message(error.value).decode())
            try:
                self._verify(module, RefusedText)
                yield module
            finally:
                self._call["DisposeModule"](module)
        finally:
            self._call["ContextDispose"](context)

    def _verify(self, module: object, fault: type[CodegenError]) -> None:
        error = ctypes.c_void_p()
        refused = self._call["VerifyModule"](module, _RETURN_STATUS, ctypes.byref(error))
        message = self._message(error.value).decode()  # an empty one if it is valid
        if refused:
            raise fault(message)

    def _run(self, module: object, machine: object, pipeline: str, vectorizes: bool) -> None:
        options = self._call["CreatePassBuilderOptions"]()
        try:
            self._call["PassBuilderOptionsSetLoopVectorization"](options, vectorizes)
            self._call["PassBuilderOptionsSetSLPVectorization"](options, vectorizes)
            error = self._call["RunPasses"](module, pipeline.encode(), machine, options)
        finally:
            self._call["DisposePassBuilderOptions"](options)
        if error:
            message = self._call["GetErrorMessage"](error)
            said = ctypes.string_at(message).decode()
            self._call["DisposeErrorMessage"](message)
            raise CodegenError(f"{self.name} can't run the passes {pipeline!r}: {said}")

    def _emitted(self, module: object, machine: object, output: str) -> bytes:
        error, buffer = ctypes.c_void_p(), ctypes.c_void_p()
        if self._call["TargetMachineEmitToMemoryBuffer"](
            machine, module, _FILE_KINDS[output], ctypes.byref(error), ctypes.byref(buffer)
        ):
            said = self._message(error.value).decode()
            raise CodegenError(f"{self.name} can't generate code: {said}")
        try:
            start = self._call["GetBufferStart"](buffer)
            return ctypes.string_at(start, self._call["GetBufferSize"](buffer))
        finally:
            self._call["DisposeMemoryBuffer"](buffer)

    def _make_machine(
        self, triple: str, cpu: str, features: str, level: int
    ) -> tuple[object, object]:
        """A target machine and its data layout; both live as long as the process."""
        target, error = ctypes.c_void_p(), ctypes.c_void_p()
        if self._call["GetTargetFromTriple"](
            triple.encode(), ctypes.byref(target), ctypes.byref(error)
        ):
            said = self._message(error.value).decode()
            raise CodegenError(f"{self.name} has no target for triple {triple!r}: {said}")
        machine = self._call["CreateTargetMachine"](
            target, triple.encode(), cpu.encode(), features.encode(), level, _PIC, _SMALL
        )
        return machine, self._call["CreateTargetDataLayout"](machine)

    def _message(self, address: int | None) -> bytes:
        """Take a text that LLVM has made for us."""
        if not address:
            return b""
        text = ctypes.string_at(address)
        self._call["DisposeMessage"](address)
        return text

    def _set_option(self, option: str) -> None:
        arguments = (ctypes.c_char_p * 2)(b"tilewright", option.encode())
        self._call["ParseCommandLineOptions"](2, arguments, None)


@lru_cache(maxsize=8)
def load_llvm(name: str, version: tuple[int, ...]) -> SharedLLVM:
    """Return the (cached) library of a name; its major version must be that of ``version``."""
    return SharedLLVM(name, version)
