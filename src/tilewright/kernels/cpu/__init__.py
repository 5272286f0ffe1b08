"""Kernels for CPUs, a folder each: ``FOLDER.KERNEL`` is the one, and the folder its name."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from tilewright.kernels.kernel import Kernel
from tilewright.support.registry import Registry

__all__ = ["CPU_KERNELS", "kernels"]

CPU_KERNELS: Registry[Kernel[Any]] = Registry("CPU kernel")


def kernels() -> tuple[Kernel[Any], ...]:
    """All kernels. They come in any order: a function has at most one's operator."""
    return tuple(kernel for _, kernel in CPU_KERNELS.items())


for _folder in pkgutil.iter_modules(__path__):
    _kernel = getattr(importlib.import_module(f"{__name__}.{_folder.name}"), "KERNEL", None)
    if _kernel is not None:  # else it is for rules to put in
        CPU_KERNELS.register(_folder.name, _kernel).register_forms()
