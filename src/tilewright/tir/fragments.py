"""How matrices lie in the registers of a warp: fragments of ``ptx_mma`` and ``ldmatrix``.

A fragment is ``lanes x elements``: which elements of a matrix each lane holds, in the order of its
registers. All shapes of ``mma.sync`` follow one scheme (PTX ISA, "Matrix fragments for mma"): with
``p`` elements in a register, group ``g = lane // 4`` and ``t = lane % 4``,

- of A (row major) register ``r`` holds row ``g + 8 * (r % 2)``, columns from
  ``t * p + 4 * p * (r // 2)``;
- of B (column major) it holds column ``g``, rows from ``t * p + 4 * p * r``;
- of C elements ``2r, 2r + 1`` are row ``g + 8 * r``, columns ``2t`` and ``2t + 1``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tilewright.ir import dtypes
from tilewright.support.errors import VerifyError

WARP_SIZE = 32
Array = np.ndarray[Any, Any]

DTYPES = {
    "fp16": "float16", "bf16": "bfloat16", "tf32": "float32", "fp32": "float32",
    "int8": "int8", "uint8": "uint8", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2",
    "int32": "int32",
}  # fmt: skip
"""Dtypes by the names that ``ptx_mma`` uses."""


@dataclass(frozen=True)
class MmaShape:
    """A family of instructions: types of operands, of accumulators, and since which GPUs."""

    operands: tuple[str, ...]
    accumulators: tuple[str, ...]
    shapes: tuple[str, ...]
    arch: int


MMA_SHAPES = (
    MmaShape(("fp16",), ("fp16", "fp32"), ("m16n8k8",), 75),
    MmaShape(("fp16",), ("fp16", "fp32"), ("m16n8k16",), 80),
    MmaShape(("bf16",), ("fp32",), ("m16n8k8", "m16n8k16"), 80),
    MmaShape(("tf32",), ("fp32",), ("m16n8k4", "m16n8k8"), 80),
    MmaShape(("int8", "uint8"), ("int32",), ("m8n8k16",), 75),
    MmaShape(("int8", "uint8"), ("int32",), ("m16n8k16", "m16n8k32"), 80),
    MmaShape(("e4m3", "e5m2"), ("fp32",), ("m16n8k32",), 89),
)
"""What ``ptx_mma`` knows."""


def sizes(shape: str) -> tuple[int, int, int]:
    """Return m, n and k of a shape like ``m16n8k16``."""
    found = re.fullmatch(r"m(\d+)n(\d+)k(\d+)", shape)
    if not found:
        raise VerifyError(f"a shape is written like m16n8k16, got {shape!r}")
    m, n, k = map(int, found.groups())
    return m, n, k


@cache
def mma_shape(shape: str, a_type: str, b_type: str, c_type: str) -> MmaShape:
    """Return the family of an instruction; ``VerifyError`` lists what there is."""
    for item in MMA_SHAPES:
        mixed = a_type == b_type or item.operands[0] in ("int8", "e4m3")
        if (
            shape in item.shapes
            and a_type in item.operands
            and b_type in item.operands
            and mixed
            and c_type in item.accumulators
        ):
            return item
    known = "; ".join(
        f"{'/'.join(item.operands)} to {'/'.join(item.accumulators)}: {', '.join(item.shapes)}"
        for item in MMA_SHAPES
    )
    raise VerifyError(
        f"there is no ptx_mma of shape {shape} for {a_type} * {b_type} + {c_type}; there is {known}"
    )


@cache
def operand_map(rows: int, columns: int, bits: int, which: str) -> tuple[Array, Array]:
    """Return row and column of each element of a fragment, as two arrays ``lanes x elements``.

    ``which`` is ``a`` (rows x columns = m x k), ``b`` (k x n) or ``c`` (m x n).
    """
    lane = np.arange(WARP_SIZE)[:, None]
    element = np.arange(rows * columns // WARP_SIZE)[None, :]
    group, member = lane // 4, lane % 4
    if which == "c":
        row = group + 8 * (element // 2)
        column = member * 2 + element % 2
    else:
        packed = 32 // bits
        register, inside = element // packed, element % packed
        along = member * packed + inside
        if which == "b":
            row, column = along + 4 * packed * register, group + 0 * register
        else:
            halves = rows // 8
            row = group + 8 * (register % halves)
            column = along + 4 * packed * (register // halves)
    return np.broadcast_arrays(row, column)  # type: ignore[return-value]


@cache
def mma_maps(shape: str, a_type: str, c_type: str) -> dict[str, tuple[Array, Array]]:
    """Return the maps of ``a``, ``b`` and ``c`` of an instruction."""
    m, n, k = sizes(shape)
    bits = dtypes.bits_of(DTYPES[a_type])
    return {
        "a": operand_map(m, k, bits, "a"),
        "b": operand_map(k, n, bits, "b"),
        "c": operand_map(m, n, 32, "c"),
    }


def fragment_sizes(shape: str) -> dict[str, int]:
    """How many elements of ``a``, ``b`` and ``c`` each lane holds."""
    m, n, k = sizes(shape)
    return {"a": m * k // WARP_SIZE, "b": k * n // WARP_SIZE, "c": m * n // WARP_SIZE}


# ---- wgmma --------------------------------------------------------------------------------------

WARPGROUP_SIZE = 128
BYTES = ("int8", "uint8")
"""Integers whose products by ``wgmma`` have columns in steps of 16, not 8."""
WGMMA_TYPES = {
    "fp16": ("fp16", "fp32"), "bf16": ("fp32",), "e4m3": ("fp32",), "e5m2": ("fp32",),
    "int8": ("int32",), "uint8": ("int32",),
}  # fmt: skip
"""Accumulators of ``ptx_wgmma`` by the type of its operands, which take 32 bytes of k."""


@cache
def wgmma_accumulator_map(n: int) -> tuple[Array, Array]:
    """Row and column of each element of an accumulator: threads of a warpgroup x n / 2 elements.

    Each of the four warps holds 16 rows, laid out as C of ``ptx_mma`` for each 8 columns.
    """
    thread = np.arange(WARPGROUP_SIZE)[:, None]
    element = np.arange(n // 2)[None, :]
    lane = thread % WARP_SIZE
    row = thread // WARP_SIZE * 16 + lane // 4 + 8 * (element % 4 // 2)
    column = element // 4 * 8 + lane % 4 * 2 + element % 2
    return np.broadcast_arrays(row, column)  # type: ignore[return-value]


TURNED = {"": (False, False), "a": (True, False), "b": (False, True), "ab": (True, True)}
"""Texts that name the operands of ``ptx_wgmma`` with ``k`` outermost, and whether each is one."""
TURNED_DEPTH, TURNED_WIDTH = 16, 64
"""Rows of a block of a turned operand, one for each ``k``, and elements of a row."""


def wgmma_turned_tile(extent: int) -> tuple[int, int]:
    """Rows and columns of a turned operand of ``extent`` rows (or columns of the product)."""
    width = min(extent, TURNED_WIDTH)
    return extent // width * TURNED_DEPTH, width


def wgmma_turned_layout(row: Any, k: Any) -> tuple[Any, Any, Any]:
    """Where an element of a turned operand lies: step of the product, row of its tile, column."""
    return (
        k // TURNED_DEPTH,
        row // TURNED_WIDTH * TURNED_DEPTH + k % TURNED_DEPTH,
        row % TURNED_WIDTH,
    )


def swizzled(byte: Any, swizzle: int) -> Any:
    """Where a byte lies in shared memory whose rows of 32, 64 or 128 bytes are permuted.

    The number of the 16 bytes is joined by exclusive or with that of the 128 bytes, modulo the
    chunks of a row: what ``permuted_layout``, ``wgmma`` and TMA have in common.
    """
    return byte ^ ((byte >> 7 & swizzle // 16 - 1) << 4)


def wgmma_accumulator_layout(i: Any, j: Any) -> tuple[Any, Any]:
    """Thread of the warpgroup and element by row (of 64) and column."""
    return (
        i // 16 * 32 + i % 8 * 4 + j % 8 // 2,
        j // 8 * 4 + i % 16 // 8 * 2 + j % 2,
    )


# ---- fragments of wmma ------------------------------------------------------------------------

WMMA_SHAPES: dict[str, tuple[tuple[int, int, int], ...]] = {
    "float16": ((16, 16, 16), (8, 32, 16), (32, 8, 16)),
    "bfloat16": ((16, 16, 16), (8, 32, 16), (32, 8, 16)),
    "int8": ((16, 16, 16), (8, 32, 16), (32, 8, 16)),
    "uint8": ((16, 16, 16), (8, 32, 16), (32, 8, 16)),
    "float32": ((16, 16, 8),),
}
"""Shapes of ``wmma`` by the dtype of its operands (float32: tf32)."""

WMMA_ARCH = {"float16": 70, "int8": 72, "uint8": 72, "bfloat16": 80, "float32": 80}
"""The first GPUs (``sm_``) that have them."""


def wmma_registers(dtype: str, scope: str, m: int, n: int, k: int) -> int:
    """How many 32-bit registers of each lane a fragment of ``wmma`` takes."""
    part = scope.partition(".")[2]
    if part == "accumulator":
        return m * n * dtypes.bits_of(dtype) // 32 // WARP_SIZE
    if dtype == "float16":
        return 8  # whatever the shape: some lanes hold the same elements
    elements = m * k if part == "matrix_a" else k * n
    return elements * dtypes.bits_of(dtype) // 32 // WARP_SIZE


# ---- layouts that schedules give to buffers in registers ----------------------------------------


def shared_16x16_to_ldmatrix_32x8_layout(i: Any, j: Any) -> tuple[Any, Any]:
    """Lane and element of a 16x16 tile of 16-bit numbers that ``ldmatrix`` loads as A."""
    return 4 * (i % 8) + (j % 8) // 2, 4 * (j // 8) + (i // 8) * 2 + (j % 2)


def shared_16x32_to_ldmatrix_32x16_layout(i: Any, j: Any) -> tuple[Any, Any]:
    """Lane and element of a 16x32 tile of 8-bit numbers that ``ldmatrix`` loads as A."""
    return 4 * (i % 8) + (j % 16) // 4, 8 * (j // 16) + (i // 8) * 4 + j % 4


def operand_b_32x8_layout(k: Any, n: Any) -> tuple[Any, Any]:
    """Lane and element of a 16x16 tile (k, n) of 16-bit numbers: B of two neighbouring ``mma``."""
    return 4 * (n % 8) + (k % 8) // 2, 4 * (n // 8) + (k // 8) * 2 + (k % 2)


def operand_b_32x16_layout(k: Any, n: Any) -> tuple[Any, Any]:
    """Lane and element of a 32x16 tile (k, n) of 8-bit numbers: B of two neighbouring ``mma``."""
    return 4 * (n % 8) + (k % 16) // 4, 8 * (n // 8) + (k // 16) * 4 + k % 4


def accumulator_32x8_layout(i: Any, j: Any) -> tuple[Any, Any]:
    """Lane and element of a 16x16 tile of sums: C of two neighbouring ``mma``."""
    return 4 * (i % 8) + (j % 8) // 2, 4 * (j // 8) + (i // 8) * 2 + (j % 2)
