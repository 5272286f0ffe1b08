"""Scaled dot-product attention on GPUs, as an online softmax."""

from __future__ import annotations

from tilewright.kernels.gpu.attention.kernel import AttentionKernel

__all__ = ["KERNEL", "AttentionKernel"]

KERNEL = AttentionKernel()
