"""Functions over arrays in machine code, for what a search does for each of many candidates."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

from tilewright.codegen.llvm import jit
from tilewright.codegen.llvm.builder import Callee, module_text
from tilewright.codegen.llvm.object_cache import compile_cached
from tilewright.codegen.llvm.values import PTR
from tilewright.runtime import Library


def compiled(callee: Callee) -> Callable[..., None]:
    """Compile a function for this machine (once: the cache on disk keeps it), and return it.

    Its arguments are integers, and contiguous arrays of whatever type it takes them for.
    """
    cpu, features = jit.host_cpu()
    text = module_text([callee])
    code = compile_cached(text, triple=jit.host_triple(), cpu=cpu, features=features)
    library = Library([code], [callee.name])
    kinds = [ctypes.c_void_p if k is PTR else ctypes.c_int64 for k in callee.parameters.values()]
    function = ctypes.CFUNCTYPE(None, *kinds)(library.addresses[callee.name])

    def call(*arguments: object) -> None:
        # The library is named here so that its code lives as long as the function.
        assert library is not None and all(
            not isinstance(item, np.ndarray) or item.flags.c_contiguous for item in arguments
        )
        function(*(x.ctypes.data if isinstance(x, np.ndarray) else x for x in arguments))

    return call
