"""Tensor intrinsics of NVIDIA GPUs, by the names that TVM gives them.

- ``wmma_*`` (``wmma.py``): fragments in a layout of the compiler, ``wmma_sync_16x16x16_f16f16f32``
- ``mma_*`` (``mma.py``): fragments in registers by ``ldmatrix``, ``mma_f16f16f32``
- ``wgmma_*`` (``wgmma.py``): products of a warpgroup from shared memory (Hopper)
- ``dp4a_*`` (``dp4a.py``): dot products of four bytes

Descriptions and implementations are made from tables when they are first used; the interpreter then
compares them. Layouts of registers are what the PTX ISA says (``tir/fragments.py``); TVM's own
descriptions give B another order, in which a description does not say what the hardware does.
"""

from __future__ import annotations

from tilewright.tir.fragments import (
    accumulator_32x8_layout,
    operand_b_32x8_layout,
    operand_b_32x16_layout,
    shared_16x16_to_ldmatrix_32x8_layout,
    shared_16x32_to_ldmatrix_32x16_layout,
    wgmma_accumulator_layout,
    wgmma_turned_layout,
)
from tilewright.tir.intrin.cuda.dp4a import DP4A_NAMES
from tilewright.tir.intrin.cuda.mma import MAPS, MMA_NAMES, mma_depth, mma_group
from tilewright.tir.intrin.cuda.wgmma import WGMMA_NAMES, wgmma_group
from tilewright.tir.intrin.cuda.wmma import WMMA_NAMES, wmma_group

__all__ = [
    "DP4A_NAMES",
    "MAPS",
    "MMA_NAMES",
    "WGMMA_NAMES",
    "WMMA_NAMES",
    "accumulator_32x8_layout",
    "mma_depth",
    "mma_group",
    "operand_b_32x8_layout",
    "operand_b_32x16_layout",
    "shared_16x16_to_ldmatrix_32x8_layout",
    "shared_16x32_to_ldmatrix_32x16_layout",
    "wgmma_accumulator_layout",
    "wgmma_group",
    "wgmma_turned_layout",
    "wmma_group",
]
