"""Argmax and argmin of rows: pairs of element and index, joined by threads."""

from __future__ import annotations

from tilewright.kernels.gpu.arg_extremum.kernel import ArgExtremumKernel

__all__ = ["KERNEL", "ArgExtremumKernel"]

KERNEL = ArgExtremumKernel()
