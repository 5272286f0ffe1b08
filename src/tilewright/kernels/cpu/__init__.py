"""Kernels for CPUs, a folder each: ``FOLDER.KERNEL`` is the kernel, named after its folder."""

from __future__ import annotations

from typing import Any

from tilewright.kernels.kernel import Kernel
from tilewright.support.folder import modules_in
from tilewright.support.registry import Registry

__all__ = ["CPU_KERNELS", "kernels"]

CPU_KERNELS: Registry[Kernel[Any]] = Registry("CPU kernel")


def kernels() -> tuple[Kernel[Any], ...]:
    """All kernels, in any order: at most one recognises a function."""
    return tuple(kernel for _, kernel in CPU_KERNELS.items())


for _folder in modules_in(__name__):
    if hasattr(_folder, "KERNEL"):  # else it is for rules to put in
        _name = _folder.__name__.rpartition(".")[2]
        CPU_KERNELS.register(_name, _folder.KERNEL).register_forms()
