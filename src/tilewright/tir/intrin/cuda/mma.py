"""Intrinsics by ``mma`` and ``ldmatrix``: 16x16 tiles in registers whose layout programs see.

A tile is a buffer of scope ``warp`` with 32 rows, one for each lane (``LowerWarpMemory`` gives each
lane its row). A schedule lays buffers out so by ``transform_layout`` with the maps of ``MAPS``.
In registers nothing is transposed: ``…_trans`` loads turn the tile, and products with ``trans`` in
their name are the plain ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from tilewright.tir.fragments import (
    accumulator_32x8_layout,
    operand_b_32x8_layout,
    operand_b_32x16_layout,
    shared_16x16_to_ldmatrix_32x8_layout,
    shared_16x32_to_ldmatrix_32x16_layout,
)
from tilewright.tir.intrin.cuda.pairs import Operand, nest, register
from tilewright.tir.intrin.cuda.text import Text


@dataclass(frozen=True)
class Kind:
    """Operands of one dtype: what names and ``ptx_mma`` call it, and how deep a product is."""

    dtype: str
    name: str
    ptx: str
    k: int
    totals: tuple[str, ...]


KINDS = (
    Kind("float16", "f16", "fp16", 16, ("float32", "float16")),
    Kind("bfloat16", "bf16", "bf16", 16, ("float32",)),
    Kind("int8", "i8", "int8", 32, ("int32",)),
    Kind("uint8", "u8", "uint8", 32, ("int32",)),
    Kind("float8_e4m3fn", "e4m3", "e4m3", 32, ("float32",)),
    Kind("float8_e5m2", "e5m2", "e5m2", 32, ("float32",)),
)
TOTALS = {"float32": ("f32", "fp32"), "float16": ("f16", "fp16"), "int32": ("i32", "int32")}
SHARED = {"shared": "", "shared.dyn": "_dyn"}
_TX = 'for tx in T.thread_binding(32, thread="threadIdx.x"):'
Layout = Callable[[Any, Any], tuple[Any, Any]]
MAPS: dict[tuple[str, int], Layout] = {
    ("a", 16): shared_16x16_to_ldmatrix_32x8_layout,
    ("a", 32): shared_16x32_to_ldmatrix_32x16_layout,
    ("b", 16): operand_b_32x8_layout,
    ("b", 32): operand_b_32x16_layout,
    ("c", 16): accumulator_32x8_layout,
}
"""Lane and element by row and column: of A (m, k), B (k, n), by depth, and the sums (m, n)."""


def _at(buffer: str, which: str, depth: int, row: str, column: str) -> str:
    """Text of an element of a tile in registers."""
    lane, element = MAPS[which, depth](Text(row), Text(column))
    return f"{buffer}[{lane}, {element}]"


def _load(kind: Kind, which: str, trans: bool, scope: str) -> str:
    extents = (16, kind.k) if which == "a" else (kind.k, 16)
    memory = extents[::-1] if trans else extents
    shared = Operand("shared", memory, kind.dtype, scope, "r")
    warp = Operand("warp", (32, kind.k // 2), kind.dtype, "warp", "w")
    row, column = ("vj", "vi") if trans else ("vi", "vj")
    element = _at("warp", which, kind.k, row, column)
    return register(
        f"mma_ldmatrix_{kind.name}_{which}{'_trans' if trans else ''}{SHARED[scope]}",
        (warp, shared),
        nest({"i": memory[0], "j": memory[1]}, "SS", "load", f"{element} = shared[vi, vj]"),
        _load_body(kind, which, trans),
    )


def _load_body(kind: Kind, which: str, trans: bool) -> str:
    """Each lane brings the address of a row of 16 bytes; rows of a matrix run as registers ask."""
    width = 16 if kind.k == 32 else 8  # elements in 16 bytes
    if which == "b" and not trans and kind.k == 32:
        # ldmatrix turns pairs of bytes, not bytes: lanes read their elements one by one.
        return f"""
{_TX}
    for e in range(16):
        warp[tx, e] = shared[e % 8 // 4 * 16 + tx % 4 * 4 + e % 4, e // 8 * 8 + tx // 4]"""
    turn = trans if which == "a" else not trans
    # Matrices lie below each other first, where memory has the rows of the fragment's registers.
    if (which == "a" and not trans) or (which == "b" and not trans):
        row, column = "tx % 16", f"tx // 16 * {width}"
    else:
        row, column = "tx // 16 * 8 + tx % 8", f"tx % 16 // 8 * {width}"
    return f"""
{_TX}
    T.evaluate(T.ptx_ldmatrix({int(turn)}, 4, ".b16", T.address_of(warp[tx, 0:{kind.k // 2}]),
        T.address_of(shared[{row}, T.Ramp({column}, 1, {width})])))"""


def _partners(kind: Kind) -> list[Kind]:
    """What a kind may be multiplied by: itself, and bytes by those of another sign or format."""
    others = (item for item in KINDS if item.k == kind.k == 32 and item.totals == kind.totals)
    return [kind, *(item for item in others if item is not kind)]


def _product(kind: Kind, other: Kind, total: str, ending: str) -> str:
    short, ptx = TOTALS[total]
    count = kind.k // 2
    a = Operand("A", (32, count), kind.dtype, "warp", "r")
    b = Operand("B", (32, count), other.dtype, "warp", "r")
    c = Operand("C", (32, 8), total, "warp", "rw")
    sums = _at("C", "c", 16, "vi", "vj")
    left, right = _at("A", "a", kind.k, "vi", "vk"), _at("B", "b", kind.k, "vk", "vj")
    if kind.dtype != total:
        left, right = f'T.Cast("{total}", {left})', f'T.Cast("{total}", {right})'
    calls = "".join(
        f'''
    T.evaluate(T.ptx_mma("m16n8k{kind.k}", "row", "col", "{kind.ptx}", "{other.ptx}", "{ptx}",
        T.address_of(A[tx, 0:{count}]),
        T.address_of(B[tx, {half * count // 2}:{(half + 1) * count // 2}]),
        T.address_of(C[tx, {half * 4}:{half * 4 + 4}])))'''
        for half in range(2)
    )
    return register(
        f"mma_{kind.name}{other.name}{short}{ending}",
        (a, b, c),
        nest({"i": 16, "j": 16, "k": kind.k}, "SSR", "mma", f"{sums} = {sums} + {left} * {right}"),
        f"{_TX}{calls}",
    )


def _fill(total: str) -> str:
    c = Operand("C", (32, 8), total, "warp", "w")
    zero = f"T.{total}(0)"
    return register(
        f"mma_fill_16x16_{TOTALS[total][0]}",
        (c,),
        nest({"i": 16, "j": 16}, "SS", "init", f"{_at('C', 'c', 16, 'vi', 'vj')} = {zero}"),
        f"{_TX}\n    T.evaluate(T.mma_fill(T.address_of(C[tx, 0:8]), {zero}))",
    )


def _store(total: str, scope: str) -> str:
    warp = Operand("W", (32, 8), total, "warp", "r")
    target = Operand("C", (16, 16), total, scope, "w")
    element = _at("W", "c", 16, "vi", "vj")
    return register(
        f"mma_store_16x16_{TOTALS[total][0]}_{scope.replace('.', '_')}_",
        (warp, target),
        nest({"i": 16, "j": 16}, "SS", "store", f"C[vi, vj] = {element}"),
        f"{_TX}\n    T.evaluate(T.mma_store(16, 16, {target.tile}, T.address_of(W[tx, 0:8])))",
    )


_ENDINGS = ("", "_trans_a", "_trans_b", "_trans_a_trans_b")


def _all() -> Iterator[str]:
    for kind in KINDS:
        for scope in SHARED:
            yield _load(kind, "a", False, scope)
            if kind.k == 16:
                yield _load(kind, "a", True, scope)
            yield _load(kind, "b", False, scope)
            yield _load(kind, "b", True, scope)
        for other, total, ending in product(_partners(kind), kind.totals, _ENDINGS):
            yield _product(kind, other, total, ending)
    for total in TOTALS:
        yield _fill(total)
        for scope in ("shared", "shared.dyn", "global"):
            yield _store(total, scope)


MMA_NAMES = tuple(_all())
"""Names of all of them."""


def mma_depth(dtype: str, total: str, other: str | None = None) -> int | None:
    """Return how deep a product of one instruction is; ``None`` without one of these dtypes.

    ``other`` is the second operand's dtype, if it isn't the first one's.
    """
    for item in KINDS:
        if item.dtype == dtype and total in item.totals:
            partners = {found.dtype for found in _partners(item)}
            return item.k if (other or dtype) in partners else None
    return None


def mma_group(
    dtype: str, total: str, *, a_trans: bool = False, b_trans: bool = False,
    load_scope: str = "shared", store_scope: str = "global", other: str | None = None,
) -> dict[str, str]:  # fmt: skip
    """Return names of the intrinsics of one product: ``fill``, ``load_a``, ``load_b``, …

    ``other`` is the second operand's dtype, if it isn't the first one's.
    """
    kinds = {item.dtype: item for item in KINDS}
    kind, second = kinds[dtype], kinds[other or dtype]
    short, end = TOTALS[total][0], SHARED[load_scope]
    turned = f"{'_trans_a' if a_trans else ''}{'_trans_b' if b_trans else ''}"
    return {
        "fill": f"mma_fill_16x16_{short}",
        "load_a": f"mma_ldmatrix_{kind.name}_a{'_trans' if a_trans else ''}{end}",
        "load_b": f"mma_ldmatrix_{second.name}_b{'_trans' if b_trans else ''}{end}",
        "compute": f"mma_{kind.name}{second.name}{short}{turned}",
        "store": f"mma_store_16x16_{short}_{store_scope.replace('.', '_')}_",
    }
