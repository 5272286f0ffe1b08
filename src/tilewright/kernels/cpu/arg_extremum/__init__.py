"""Argmax and argmin of rows: one pass, with an index per lane."""

from __future__ import annotations

from tilewright.kernels.cpu.arg_extremum.kernel import ArgExtremumKernel

__all__ = ["KERNEL", "ArgExtremumKernel"]

KERNEL = ArgExtremumKernel()
