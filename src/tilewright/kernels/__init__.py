"""Kernels written by hand, for operators that no order of loops makes fast.

Each has a folder below the kind of its target. It recognises its operator in a function and gives
the operator's better form, made of blocks, by its name in ``tir.schedule.KERNELS``.
"""

from __future__ import annotations

from tilewright.kernels import cpu

__all__ = ["cpu"]
