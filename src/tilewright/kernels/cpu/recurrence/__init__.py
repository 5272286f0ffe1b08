"""Recurrent layers: sequences in groups, products with the state in registers."""

from __future__ import annotations

from tilewright.kernels.cpu.recurrence.kernel import RecurrenceKernel

__all__ = ["KERNEL", "RecurrenceKernel"]

KERNEL = RecurrenceKernel()
