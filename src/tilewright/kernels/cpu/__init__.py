"""Kernels for CPUs, a folder each."""

from __future__ import annotations

from tilewright.kernels.cpu.arg_extremum import ExtremumPlaces
from tilewright.kernels.cpu.attention import FusedAttention
from tilewright.kernels.cpu.int4_product import Int4Dot
from tilewright.kernels.cpu.sort import SortRule

__all__ = ["ExtremumPlaces", "FusedAttention", "Int4Dot", "SortRule"]
