"""Tensor maps: what the hardware must know of a tensor to copy boxes of it (TMA).

Each call of ``ptx_cp_async_bulk_tensor`` says all of it; calls that say the same share a map. A map
is a parameter of the kernel (``const __grid_constant__ CUtensorMap``), which the host encodes for
each launch from what the kernel is called with (``cuTensorMapEncodeTiled``, see :mod:`launch`).

Of the rules of the driver's interface those that depend on the program alone are checked by
``tir/gpu_checks.py`` (boxes up to 256 elements, rows of at most ``swizzle`` bytes that are
multiples of 16, strides that are); addresses are multiples of 16 bytes, which the binder checks.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.codegen.c.kernels import TensorMap
from tilewright.ir import Call, Expr, Var, free_vars, pre_order
from tilewright.support.errors import CodegenError, VerifyError
from tilewright.tir import PrimFunc
from tilewright.tir.gpu_ops import GPU_OPS, number_operand, tensor_box, tile_at

COPY = "ptx_cp_async_bulk_tensor"
MAP_BYTES, MAP_ALIGNMENT = 128, 64

# Numbers of cuda.h: CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion. Zeros that
# fill what is outside are zeros of any type, so bytes stand for all types of 8 bits.
DTYPES = {
    "int8": 0, "uint8": 0, "float8_e4m3fn": 0, "float8_e5m2": 0, "uint16": 1, "int16": 1,
    "uint32": 2, "int32": 3, "float16": 6, "float32": 7, "bfloat16": 9,
}  # fmt: skip
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
L2_PROMOTION = 2
"""Lines of 128 bytes: the length of a row of a box."""


class Maps(NamedTuple):
    """The maps of a kernel, and which of them each copy uses, by its operands."""

    maps: tuple[TensorMap, ...]
    numbers: dict[tuple[int, ...], int]


def operands_key(operands: dict[str, Expr]) -> tuple[int, ...]:
    """What a call is known by: its operands are nodes."""
    return tuple(map(id, operands.values()))


def tensor_maps(original: PrimFunc, narrowed: PrimFunc) -> Maps:
    """Return the maps of a kernel.

    ``narrowed`` is what code is generated from; the host computes sizes as ``original`` has them.
    """
    found: dict[object, TensorMap] = {}
    numbers: dict[tuple[int, ...], int] = {}
    positions = {
        original.buffer_map[var].data: n
        for n, var in enumerate(original.params)
        if var in original.buffer_map
    }
    for call, own in zip(_copies(original), _copies(narrowed)):
        try:
            made = _map(call, positions, set(original.params))
        except VerifyError as error:
            raise CodegenError(error.message) from error
        key = made.position, repr(made.sizes), repr(made.strides), made.box, made.swizzle
        found.setdefault(key, made)
        numbers[operands_key(GPU_OPS[COPY].named(own))] = list(found).index(key)
    return Maps(tuple(found.values()), numbers)


def _copies(func: PrimFunc) -> list[Call]:
    return [item for item in pre_order(func.body) if type(item) is Call and item.op.name == COPY]


def _map(call: Call, positions: dict[Var, int], params: set[Var]) -> TensorMap:
    operands = GPU_OPS[COPY].named(call)
    buffer = tile_at(operands["source"]).along.buffer
    boxes = tensor_box(call)
    sizes, strides = tuple(item.size for item in boxes), tuple(item.stride for item in boxes)
    if buffer.data not in positions:
        raise CodegenError(f"{COPY} copies from {buffer.name}, which is no parameter of the kernel")
    if buffer.dtype not in DTYPES:
        raise CodegenError(f"{COPY} copies no {buffer.dtype}; it knows {', '.join(DTYPES)}")
    for value in (*sizes, *strides):
        if unknown := set(free_vars(value)) - params:
            raise CodegenError(f"{COPY}: {value!r} is not known at the launch: {unknown}")
    return TensorMap(
        positions[buffer.data],
        buffer.dtype,
        sizes,
        strides,
        tuple(item.box for item in boxes),
        number_operand(operands, "swizzle"),
    )
