"""From host functions and compiled kernels to a module: the end of the CUDA backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tilewright.codegen.cuda.host import IMAGE, RELEASE, Kernel, emit_host
from tilewright.codegen.llvm.jit import host_triple
from tilewright.codegen.llvm.package import Machine, build_module
from tilewright.ir import IRModule
from tilewright.runtime import Module


def link_kernels(
    host: IRModule,
    kernels: Mapping[str, Kernel],
    image: bytes,
    arch: str,
    *,
    target: str = "",
    sources: Mapping[str, str | Callable[[], str]] | None = None,
    constants: Mapping[str, np.ndarray] | None = None,
    entry_name: str | None = None,
) -> Module:
    """Compile the host's functions and make a module of them and the image with the kernels.

    ``image`` is what the driver loads (a cubin), ``arch`` what it is for. ``sources`` are texts for
    ``Module.get_source``, ``constants`` compact arrays that the host passes to kernels.
    """
    data = dict(constants or {})
    sizes = {symbol: array.nbytes for symbol, array in data.items()}
    code = emit_host(host, kernels, sizes, arch)
    return build_module(
        code.text,
        code.specs,
        machine=Machine.oldest(host_triple()),
        target=target,
        sources=sources,
        constants={IMAGE: np.frombuffer(image, np.uint8), **data},
        entry_name=entry_name,
        release=RELEASE,
    )
