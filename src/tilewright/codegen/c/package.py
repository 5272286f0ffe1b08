"""From C text to a module: called like any other where there is a C compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from tilewright.codegen.c.compiler import c_compiler, compile_c
from tilewright.codegen.llvm.ffi_abi import FunctionSpec
from tilewright.codegen.llvm.jit import host_triple
from tilewright.codegen.llvm.package import (
    check_specs,
    function_info,
    link_library,
    wrapper_object,
)
from tilewright.runtime import FunctionInfo, Library, Module, ModuleCode
from tilewright.support.errors import BuildError


class SourceModule(Module):
    """A module that is text only: nothing on this machine compiles it, or runs it."""

    def __init__(self, code: ModuleCode, why: str) -> None:
        super().__init__(code)
        self.why = why

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.code, self.why)

    def load(self) -> Library:
        """Raise ``BuildError``: the text has to be compiled elsewhere."""
        raise BuildError(self.why)


_NO_COMPILER = (
    "this module is C text only, since no C compiler was found when it was built; install one (cc, "
    'gcc or clang), or compile get_source("c") where there is one'
)


def build_source_module(
    kind: str,
    text: str,
    names: Sequence[str],
    *,
    target: str,
    sources: Mapping[str, str | Callable[[], str]] | None = None,
    entry_name: str | None = None,
) -> Module:
    """Make a module that holds the text of kernels in a language that isn't compiled here."""
    code = ModuleCode(
        objects=(),
        functions=tuple(FunctionInfo(name) for name in names),
        target=target,
        sources={kind: text, **(sources or {})},
        entry_name=entry_name,
    )
    why = (
        f"this module is text only: kernels for {kind} are written here, not compiled or run; "
        f'get_source("{kind}") is their text'
    )
    return SourceModule(code, why)


def build_c_module(
    text: str,
    specs: Sequence[FunctionSpec],
    *,
    target: str = "c",
    sources: Mapping[str, str | Callable[[], str]] | None = None,
    constants: Mapping[str, np.ndarray] | None = None,
    entry_name: str | None = None,
) -> Module:
    """Make a module of the functions in ``specs``, whose kernels the C text defines.

    ``get_source("c")`` is the text. Without a C compiler the module has nothing else: calling a
    function raises ``BuildError``. Raises ``BuildError`` if the compiler refuses the text.
    """
    check_specs(specs)
    able = c_compiler() is not None
    objects = (compile_c(text), wrapper_object(specs, host_triple())) if able else ()
    code = ModuleCode(
        objects=objects,
        functions=tuple(map(function_info, specs)),
        target=target,
        sources={"c": text, **(sources or {})},
        linker=partial(link_library, triple=None),
        constants=dict(constants or {}),
        entry_name=entry_name,
    )
    return Module(code) if able else SourceModule(code, _NO_COMPILER)
