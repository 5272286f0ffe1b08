"""From the text of kernels to a module that can be called: the end of the LLVM backend.

Adds the tvm-ffi wrappers to a generator's kernels, compiles, and packs the result. Kernels and
wrappers are objects of their own: wrappers depend on the signature alone, so that candidates for
one workload share theirs, and need no optimisation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from tilewright.codegen.elf import data_object, link_shared
from tilewright.codegen.llvm.binder import BINDER_SYMBOLS
from tilewright.codegen.llvm.ffi_abi import (
    FunctionSpec,
    check_function_name,
    emit_ffi_wrappers,
    kernel_declaration,
)
from tilewright.codegen.llvm.jit import assembly, host_triple, resolve_cpu
from tilewright.codegen.llvm.object_cache import compile_cached, compile_portable, oldest_cpu
from tilewright.codegen.llvm.packed import PACKED_SYMBOLS
from tilewright.codegen.llvm.pool import POOL_SYMBOLS
from tilewright.codegen.llvm.workspace import WORKSPACE_SYMBOLS
from tilewright.runtime import FunctionInfo, Link, Module, ModuleCode, linked_objects
from tilewright.support.errors import CodegenError

#: What modules may refer to without defining it. Each of the support objects makes itself
#: known to the loader when it is imported.
SUPPORT_SYMBOLS = frozenset((*BINDER_SYMBOLS, *PACKED_SYMBOLS, *POOL_SYMBOLS, *WORKSPACE_SYMBOLS))


def link_library(
    objects: Sequence[bytes],
    exports: Sequence[str],
    constants: Mapping[str, bytes] | None = None,
    *,
    triple: str | None = None,
    link: Link | None = None,
) -> bytes:
    """Link modules with the support objects that they refer to into a shared library.

    ``constants`` are contents by symbol. ``triple`` is what the objects were compiled for (this
    process's when left out). ``link`` does it in place of our own linker.
    """
    linked = linked_objects(objects, triple)
    if constants:
        machine = (triple or host_triple()).partition("-")[0]
        linked.append(data_object(constants, machine=machine))
    return (link or link_shared)(linked, exports)


class _Assembly:
    """Makes the assembly text when somebody asks for it; can be pickled."""

    def __init__(self, text: str, options: Mapping[str, str | None]) -> None:
        self._text, self._options = text, dict(options)

    def __call__(self) -> str:
        return assembly(self._text, passes="fast", **self._options)


def function_info(spec: FunctionSpec) -> FunctionInfo:
    """Return what the runtime keeps about a function."""
    return FunctionInfo(spec.name, tuple(arg.name for arg in spec.args), spec.written())


@lru_cache(maxsize=64)
def _wrappers(specs: tuple[FunctionSpec, ...]) -> tuple[str, str]:
    """The wrappers of functions, the same for all candidates of a workload, and what they call."""
    declared = "\n".join(dict.fromkeys(kernel_declaration(spec) for spec in specs))
    return emit_ffi_wrappers(specs), declared


@dataclass(frozen=True)
class Machine:
    """What code is compiled for, in LLVM's words; what is left out is this process's."""

    triple: str | None = None
    cpu: str | None = None
    features: str | None = None

    @classmethod
    def oldest(cls, triple: str) -> Machine:
        """Return the oldest CPU of an architecture."""
        return cls(triple, oldest_cpu(triple), "")


def check_specs(specs: Sequence[FunctionSpec]) -> None:
    """Raise ``CodegenError`` for names that functions of a module can't have."""
    names = [spec.name for spec in specs]
    if len(set(names)) != len(names):
        raise CodegenError(f"function names of a module must differ, got {names}")
    for spec in specs:
        check_function_name(spec.name)
        if spec.kernel in SUPPORT_SYMBOLS:
            raise CodegenError(f"{spec.kernel!r} is the name of a support function; choose another")


def wrapper_object(specs: Sequence[FunctionSpec], triple: str) -> bytes:
    """Return the object code through which functions are called by tvm-ffi."""
    wrappers, declared = _wrappers(tuple(specs))
    return compile_portable(f"{wrappers}\n{declared}\n", triple, passes="O0")


def build_module(
    kernels: str,
    specs: Sequence[FunctionSpec],
    *,
    machine: Machine = Machine(),
    target: str = "",
    sources: Mapping[str, str | Callable[[], str]] | None = None,
    constants: Mapping[str, np.ndarray] | None = None,
    entry_name: str | None = None,
    release: str | None = None,
) -> Module:
    """Compile kernels and make a module of the functions in ``specs``.

    ``kernels`` is LLVM IR text that defines each spec's kernel symbol. ``sources`` are further
    texts for ``Module.get_source``, besides "ll" and "asm". ``constants`` are compact arrays that
    the kernels refer to as ``@symbol = external constant [N x i8]``; they aren't copied until the
    module is exported. ``release`` is the symbol of a function ``void()`` of theirs that frees what
    they hold when the module is dropped.
    """
    check_specs(specs)
    wrappers, _ = _wrappers(tuple(specs))
    text = f"{kernels}\n{wrappers}"
    triple, cpu, features = resolve_cpu(machine.triple, machine.cpu, machine.features)
    options = {"triple": triple, "cpu": cpu, "features": features}
    code = compile_cached(kernels, passes="fast", **options)
    return Module(
        ModuleCode(
            objects=(code, wrapper_object(specs, triple)),
            functions=tuple(function_info(spec) for spec in specs),
            target=target,
            sources={"ll": text, "asm": _Assembly(text, options), **(sources or {})},
            linker=partial(link_library, triple=machine.triple),
            constants=dict(constants or {}),
            entry_name=entry_name,
            release=release,
        )
    )
