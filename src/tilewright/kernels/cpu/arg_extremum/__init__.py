"""Places of extrema of rows (argmax, argmin): one pass, a place in each lane."""

from __future__ import annotations

from tilewright.kernels.cpu.arg_extremum.kernel import ArgExtremumKernel

__all__ = ["KERNEL", "ArgExtremumKernel"]

KERNEL = ArgExtremumKernel()
