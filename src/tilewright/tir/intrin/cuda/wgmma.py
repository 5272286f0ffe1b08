"""Intrinsics by ``wgmma`` (Hopper): 64 x n x 128 bytes, by four warps, from shared memory.

``wgmma_64x128x64_f16f16f32`` adds the product of A (64 x 64) and the transposed B (128 x 64) in
shared memory, whose rows of 128 bytes the copies must permute (annotation ``permuted_layout``), to
accumulators in the registers of a warpgroup: a buffer of scope ``warpgroup`` of 128 rows, one for
each thread, which a schedule lays out by ``wgmma_accumulator_layout``. An intrinsic waits for its
products.
"""

from __future__ import annotations

from tilewright.ir import dtypes
from tilewright.tir.fragments import DTYPES, wgmma_accumulator_layout
from tilewright.tir.intrin.cuda.pairs import Operand, nest, register
from tilewright.tir.intrin.cuda.text import Text

ROW_BYTES = 128
SIZES = (8, 16, 32, 64, 128, 256)
KINDS = {
    "fp16": ("f16", "fp32"), "bf16": ("bf16", "fp32"), "e4m3": ("e4m3", "fp32"),
    "e5m2": ("e5m2", "fp32"), "int8": ("s8", "int32"),
}  # fmt: skip
_TX = 'for tx in T.thread_binding(128, thread="threadIdx.x"):'
_SHORT = {"fp32": "f32", "int32": "s32"}


def _element(buffer: str, row: str, column: str) -> str:
    thread, element = wgmma_accumulator_layout(Text(row), Text(column))
    return f"{buffer}[{thread}, {element}]"


def _product(n: int, kind: str, scope: str) -> str:
    short, total = KINDS[kind]
    dtype, total_dtype = DTYPES[kind], DTYPES[total]
    depth = ROW_BYTES // dtypes.bytes_of(dtype)
    step = depth // 4
    a = Operand("A", (64, depth), dtype, scope, "r")
    b = Operand("B", (n, depth), dtype, scope, "r")
    c = Operand("C", (128, n // 2), total_dtype, "warpgroup", "rw")
    sums = _element("C", "vi", "vj")
    operands = f'T.Cast("{total_dtype}", A[vi, vk]) * T.Cast("{total_dtype}", B[vj, vk])'
    calls = "".join(
        f'''
    T.evaluate(T.ptx_wgmma("m64n{n}k{step}", "{kind}", "{kind}", "{total}",
        T.tile_of(A[T.Ramp(0, 1, 64), {at}], A[0, {at}:{at + step}]),
        T.tile_of(B[T.Ramp(0, 1, {n}), {at}], B[0, {at}:{at + step}]),
        T.address_of(C[tx, 0:{n // 2}]), 0))'''
        for at in range(0, depth, step)
    )
    return register(
        f"wgmma_64x{n}x{depth}_{short}{short}{_SHORT[total]}{'_dyn' if scope != 'shared' else ''}",
        (a, b, c),
        nest({"i": 64, "j": n, "k": depth}, "SSR", "mma", f"{sums} = {sums} + {operands}"),
        f"{_TX}\n    T.evaluate(T.ptx_wgmma_fence()){calls}\n"
        "    T.evaluate(T.ptx_wgmma_commit_group())\n"
        "    T.evaluate(T.ptx_wgmma_wait_group(0))",
    )


def _fill(n: int, total: str) -> str:
    dtype = DTYPES[total]
    c = Operand("C", (128, n // 2), dtype, "warpgroup", "w")
    zero = f"T.{dtype}(0)"
    return register(
        f"wgmma_fill_64x{n}_{_SHORT[total]}",
        (c,),
        nest({"i": 64, "j": n}, "SS", "init", f"{_element('C', 'vi', 'vj')} = {zero}"),
        f"{_TX}\n    T.evaluate(T.mma_fill(T.address_of(C[tx, 0:{n // 2}]), {zero}))",
    )


def _store(n: int, total: str, scope: str) -> str:
    dtype = DTYPES[total]
    source = Operand("W", (128, n // 2), dtype, "warpgroup", "r")
    target = Operand("C", (64, n), dtype, scope, "w")
    row = "tx // 32 * 16 + tx % 32 // 4 + e % 2 * 8"
    return register(
        f"wgmma_store_64x{n}_{_SHORT[total]}_{scope.replace('.', '_')}",
        (source, target),
        nest({"i": 64, "j": n}, "SS", "store", f"C[vi, vj] = {_element('W', 'vi', 'vj')}"),
        f"{_TX}\n    for e in T.unroll({n // 4}):\n"
        f"        for v in T.vectorized(2):\n"
        f"            C[{row}, e // 2 * 8 + tx % 4 * 2 + v] = W[tx, e * 2 + v]",
    )


WGMMA_NAMES = (
    *(_product(n, kind, scope) for n in SIZES for kind in KINDS if kind != "int8" or n > 8
      for scope in ("shared", "shared.dyn")),
    *(_fill(n, total) for n in SIZES for total in _SHORT),
    *(_store(n, total, scope) for n in SIZES for total in _SHORT
      for scope in ("global", "shared", "shared.dyn")),
)  # fmt: skip
"""Names of all of them."""
