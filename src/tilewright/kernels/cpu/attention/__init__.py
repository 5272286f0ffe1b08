"""Scaled dot-product attention, as an online softmax."""

from __future__ import annotations

from tilewright.kernels.cpu.attention.kernel import AttentionKernel

__all__ = ["KERNEL", "AttentionKernel"]

KERNEL = AttentionKernel()
