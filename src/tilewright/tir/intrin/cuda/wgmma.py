"""Intrinsics by ``wgmma`` (Hopper): 64 x n x 128 bytes, by four warps, from shared memory.

``wgmma_64x128x64_f16f16f32`` adds the product of A (64 x 64) and the transposed B (128 x 64) in
shared memory, whose rows of 128 bytes the copies must permute (annotation ``permuted_layout``), to
accumulators in the registers of a warpgroup: a buffer of scope ``warpgroup`` of 128 rows, one for
each thread, which a schedule lays out by ``wgmma_accumulator_layout``. Operands of 16 bits may be
stored with ``k`` outermost (``…_trans_a``, ``…_trans_b``, ``…_trans_a_trans_b``); a schedule lays
these out by ``wgmma_turned_layout``. An intrinsic waits for its products.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir import dtypes
from tilewright.tir.fragments import (
    BYTES,
    DTYPES,
    TURNED,
    TURNED_DEPTH,
    TURNED_WIDTH,
    wgmma_accumulator_layout,
    wgmma_turned_layout,
    wgmma_turned_tile,
)
from tilewright.tir.intrin.cuda.pairs import Operand, nest, register
from tilewright.tir.intrin.cuda.text import Text

ROW_BYTES = 128
SIZES = (8, 16, 32, 64, 128, 256)
KINDS = {
    "fp16": ("f16", "fp32"), "bf16": ("bf16", "fp32"), "e4m3": ("e4m3", "fp32"),
    "e5m2": ("e5m2", "fp32"), "int8": ("s8", "int32"), "uint8": ("u8", "int32"),
}  # fmt: skip
_TX = 'for tx in T.thread_binding(128, thread="threadIdx.x"):'
_SHORT = {"fp32": "f32", "int32": "s32"}


def _element(buffer: str, row: str, column: str) -> str:
    thread, element = wgmma_accumulator_layout(Text(row), Text(column))
    return f"{buffer}[{thread}, {element}]"


def _operand(
    name: str, extent: int, kind: str, scope: str, is_turned: bool
) -> tuple[Operand, str, Callable[[int], str]]:
    """An operand of ``extent`` rows of 128 bytes, its element, and its tile of a step."""
    dtype = DTYPES[kind]
    depth = ROW_BYTES // dtypes.bytes_of(dtype)
    row = f"v{'i' if name == 'A' else 'j'}"
    if not is_turned:
        return (
            Operand(name, (extent, depth), dtype, scope, "r"),
            f"{name}[{row}, vk]",
            lambda step: (
                f"T.tile_of({name}[T.Ramp(0, 1, {extent}), {step * depth // 4}], "
                f"{name}[0, {step * depth // 4}:{(step + 1) * depth // 4}])"
            ),
        )
    rows, columns = wgmma_turned_tile(extent)
    place = ", ".join(map(str, wgmma_turned_layout(Text(row), Text("vk"))))
    return (
        Operand(name, (depth // TURNED_DEPTH, rows, columns), dtype, scope, "r"),
        f"{name}[{place}]",
        lambda step: (
            f"T.tile_of({name}[{step}, T.Ramp(0, 1, {rows}), 0], {name}[{step}, 0, 0:{columns}])"
        ),
    )


def _product(n: int, kind: str, scope: str, turned: str = "") -> str:
    short, total = KINDS[kind]
    total_dtype = DTYPES[total]
    depth = ROW_BYTES // dtypes.bytes_of(DTYPES[kind])
    step = depth // 4
    is_turned = TURNED[turned]
    a, left, a_tile = _operand("A", 64, kind, scope, is_turned[0])
    b, right, b_tile = _operand("B", n, kind, scope, is_turned[1])
    c = Operand("C", (128, n // 2), total_dtype, "warpgroup", "rw")
    sums = _element("C", "vi", "vj")
    operands = f'T.Cast("{total_dtype}", {left}) * T.Cast("{total_dtype}", {right})'
    calls = "".join(
        f'''
    T.evaluate(T.ptx_wgmma("m64n{n}k{step}", "{kind}", "{kind}", "{total}",
        {a_tile(at)},
        {b_tile(at)},
        T.address_of(C[tx, 0:{n // 2}]), "{turned}", 0))'''
        for at in range(4)
    )
    return register(
        f"wgmma_64x{n}x{depth}_{short}{short}{_SHORT[total]}{_ending(turned)}"
        f"{'_dyn' if scope != 'shared' else ''}",
        (a, b, c),
        nest({"i": 64, "j": n, "k": depth}, "SSR", "mma", f"{sums} = {sums} + {operands}"),
        f"{_TX}\n    T.evaluate(T.ptx_wgmma_fence()){calls}\n"
        "    T.evaluate(T.ptx_wgmma_commit_group())\n"
        "    T.evaluate(T.ptx_wgmma_wait_group(0))",
        check=n * depth <= 2048,
    )


def _ending(turned: str) -> str:
    return "".join(f"_trans_{name}" for name in turned)


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
    *(_product(n, kind, scope) for n in SIZES for kind in KINDS if kind not in BYTES or n > 8
      for scope in ("shared", "shared.dyn")),
    *(_product(n, kind, scope, turned) for n in SIZES for kind in ("fp16", "bf16")
      for turned in ("a", "b", "ab") if n % TURNED_WIDTH == 0 or turned == "a"
      for scope in ("shared", "shared.dyn")),
    *(_fill(n, total) for n in SIZES for total in _SHORT),
    *(_store(n, total, scope) for n in SIZES for total in _SHORT
      for scope in ("global", "shared", "shared.dyn")),
)  # fmt: skip
"""Names of all of them."""


def wgmma_group(n: int, dtype: str, total: str, turned: str = "") -> dict[str, str] | None:
    """Return names of the intrinsics of 64 x n results, whose sums leave for shared memory.

    ``turned`` names operands that have ``k`` outermost. ``None`` without an intrinsic of these
    dtypes.
    """
    for kind, (short, kind_total) in KINDS.items():
        if (DTYPES[kind], DTYPES[kind_total]) == (dtype, total):
            if turned and dtypes.bytes_of(dtype) != 2:
                return None
            depth, end = ROW_BYTES // dtypes.bytes_of(dtype), _SHORT[kind_total]
            return {
                "fill": f"wgmma_fill_64x{n}_{end}",
                "compute": f"wgmma_64x{n}x{depth}_{short}{short}{end}{_ending(turned)}",
                "store": f"wgmma_store_64x{n}_{end}_shared",
            }
    return None
