"""From a lowered module with kernels to one that can be called: the end of the CUDA backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from tilewright.codegen.cuda.emit import KernelCode, KernelInfo, emit_kernels, kernels_of
from tilewright.codegen.cuda.host import IMAGE, RELEASE, emit_host
from tilewright.codegen.cuda.nvrtc import compile_text
from tilewright.codegen.cuda.sass import disassemble
from tilewright.codegen.llvm.jit import host_triple
from tilewright.codegen.llvm.package import Machine, build_module
from tilewright.ir import IRModule, as_int
from tilewright.runtime import Module
from tilewright.support.errors import BuildError
from tilewright.target import Target

Sources = Mapping[str, str | Callable[[], str]]


def build_cuda_module(
    lowered: IRModule,
    target: Target,
    *,
    sources: Sources | None = None,
    constants: Mapping[str, np.ndarray] | None = None,
    entry_name: str | None = None,
    max_lines: int | None = None,
) -> Module:
    """Compile kernels and the functions that launch them.

    ``sources`` are further texts for ``Module.get_source``, besides "cuda", "ptx", "sass" and those
    of the host's code. ``constants`` are compact arrays by symbol, which each device that is used
    gets a copy of.

    Raises ``BuildError`` for a function that computes outside of kernels, for blocks with more
    threads than the target has and for more than ``max_lines`` lines of CUDA; ``CodegenError`` for
    kernels that have no code, and ``MissingExtraError`` where NVRTC isn't installed.
    """
    kernels = kernels_of(lowered)
    functions = {name: f for name, f in lowered.functions.items() if name not in kernels}
    code = emit_kernels(lowered, target)
    _check_threads(code, target)
    if max_lines is not None and (lines := code.text.count("\n")) > max_lines:
        raise BuildError(f"the code has {lines} lines of CUDA, more than {max_lines}")
    data = dict(constants or {})
    sizes = {symbol: array.nbytes for symbol, array in data.items()}
    # Before the kernels are compiled: this takes no time, and says what isn't scheduled.
    host = emit_host(lowered.replace(functions=functions), code.kernels, sizes, target.arch)
    compiled = compile_text(code.text, target.arch)
    return build_module(
        host.text,
        host.specs,
        machine=Machine.oldest(host_triple()),
        target=str(target),
        sources={
            "cuda": code.text,
            "ptx": compiled.ptx,
            "sass": partial(disassemble, compiled.cubin),
            **(sources or {}),
        },
        constants={IMAGE: np.frombuffer(compiled.cubin, np.uint8), **data},
        entry_name=entry_name,
        release=RELEASE,
    )


def _check_threads(code: KernelCode, target: Target) -> None:
    """Refuse blocks that are too large for the target, where that is known."""
    most = int(target.options.get("max-threads", target.gpu.max_threads))
    for name, kernel in code.kernels.items():
        threads = _threads(kernel)
        if threads > most:
            raise BuildError(
                f"kernel {name} has blocks of {threads} threads, the target {target.kind} "
                f"-arch={target.arch} has at most {most}: bind fewer, and let each do more"
            )


def _threads(kernel: KernelInfo) -> int:
    total = 1
    for tag, extent in kernel.launch.items():
        if tag.startswith("threadIdx"):
            total *= as_int(extent) or 1
    return total
