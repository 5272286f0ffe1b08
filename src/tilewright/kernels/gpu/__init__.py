"""Kernels for GPUs, a folder each: ``FOLDER.KERNEL`` is the kernel, named after its folder."""

from __future__ import annotations

from typing import Any

from tilewright.kernels.kernel import Kernel
from tilewright.support.folder import modules_in
from tilewright.support.registry import Registry

__all__ = ["GPU_KERNELS", "kernels"]

GPU_KERNELS: Registry[Kernel[Any]] = Registry("GPU kernel")


def kernels() -> tuple[Kernel[Any], ...]:
    """All kernels, in any order: at most one recognises a function."""
    return tuple(kernel for _, kernel in GPU_KERNELS.items())


for _folder in modules_in(__name__):
    if hasattr(_folder, "KERNEL"):  # else it is for kernels to import
        _name = _folder.__name__.rpartition(".")[2]
        GPU_KERNELS.register(_name, _folder.KERNEL).register_forms()
