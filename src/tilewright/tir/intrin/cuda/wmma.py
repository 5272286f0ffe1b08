"""Intrinsics by ``wmma``: a warp loads, multiplies and stores tiles as one.

Fragments of A and B keep the order of the memory that they are loaded from; those with ``trans`` in
their name hold the transposed matrix, and ``…_a_trans`` or ``…_b_trans`` products take them so.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.tir.intrin.cuda.pairs import SHORT, Operand, nest, register

SHAPES = ((16, 16, 16), (8, 32, 16), (32, 8, 16))
INPUTS = ("float16", "bfloat16", "int8", "uint8")
PRODUCTS = (
    ("float16", "float32"), ("float16", "float16"), ("bfloat16", "float32"), ("int8", "int32"),
    ("uint8", "int32"),
)  # fmt: skip
"""Dtypes of operands and of sums."""
SCOPES = ("shared", "shared.dyn", "global")
Shape = tuple[int, int, int]


def _prefix(action: str, shape: Shape) -> str:
    return f"wmma_{action}_{'x'.join(map(str, shape))}"


def _layout(trans: bool) -> str:
    return "col_major" if trans else "row_major"


def _load(shape: Shape, dtype: str, which: str, trans: bool, scope: str) -> str:
    m, n, k = shape
    extents = (m, k) if which == "a" else (k, n)
    extents = extents[::-1] if trans else extents
    source = Operand("A", extents, dtype, scope, "r")
    fragment = Operand("C", extents, dtype, f"wmma.matrix_{which}", "w")
    name = f"{_prefix('load', shape)}_{SHORT[dtype]}_{which}{'_trans' if trans else ''}"
    return register(
        f"{name}_{scope.replace('.', '_')}",
        (source, fragment),
        nest({"i": extents[0], "j": extents[1]}, "SS", "load", "C[vi, vj] = A[vi, vj]"),
        f"T.evaluate(T.tvm_load_matrix_sync({fragment.tile}, {m}, {n}, {k}, {source.tile}, "
        f'"{_layout(trans)}"))',
    )


def _fill(shape: Shape, dtype: str) -> str:
    m, n, k = shape
    fragment = Operand("C", (m, n), dtype, "wmma.accumulator", "w")
    zero = f"T.{dtype}(0)"
    return register(
        f"{_prefix('fill', shape)}_{SHORT[dtype]}",
        (fragment,),
        nest({"i": m, "j": n}, "SS", "init", f"C[vi, vj] = {zero}"),
        f"T.evaluate(T.tvm_fill_fragment({fragment.tile}, {m}, {n}, {k}, {zero}))",
    )


def _sync(shape: Shape, dtype: str, total: str, a_trans: bool, b_trans: bool) -> str:
    m, n, k = shape
    a = Operand("A", (k, m) if a_trans else (m, k), dtype, "wmma.matrix_a", "r")
    b = Operand("B", (n, k) if b_trans else (k, n), dtype, "wmma.matrix_b", "r")
    c = Operand("C", (m, n), total, "wmma.accumulator", "rw")
    left = "A[vk, vi]" if a_trans else "A[vi, vk]"
    right = "B[vj, vk]" if b_trans else "B[vk, vj]"
    if dtype != total:
        left, right = f'T.Cast("{total}", {left})', f'T.Cast("{total}", {right})'
    kinds = SHORT[dtype] * 2 + SHORT[total]
    # TVM's plain ``trans`` is of B.
    turned = {(False, True): "_trans", (True, False): "_trans_a", (True, True): "_trans_a_trans_b"}
    layouts = f'"{_layout(a_trans)}", "{_layout(b_trans)}"'
    return register(
        f"{_prefix('sync', shape)}_{kinds}{turned.get((a_trans, b_trans), '')}",
        (a, b, c),
        nest({"i": m, "j": n, "k": k}, "SSR", "mma", f"C[vi, vj] = C[vi, vj] + {left} * {right}"),
        f"T.evaluate(T.tvm_mma_sync({c.tile}, {a.tile}, {b.tile}, {c.tile}, {m}, {n}, {k}, "
        f"{layouts}))",
    )


def _store(shape: Shape, dtype: str, scope: str) -> str:
    m, n, k = shape
    fragment = Operand("A", (m, n), dtype, "wmma.accumulator", "r")
    target = Operand("C", (m, n), dtype, scope, "w")
    return register(
        f"{_prefix('store', shape)}_{SHORT[dtype]}_{scope.replace('.', '_')}",
        (fragment, target),
        nest({"i": m, "j": n}, "SS", "store", "C[vi, vj] = A[vi, vj]"),
        f"T.evaluate(T.tvm_store_matrix_sync({fragment.tile}, {m}, {n}, {k}, {target.tile}, "
        '"row_major"))',
    )


def _all() -> Iterator[str]:
    for shape in SHAPES:
        for dtype in INPUTS:
            for which in "ab":
                for trans in (False, True):
                    for scope in SCOPES:
                        yield _load(shape, dtype, which, trans, scope)
        for dtype, total in PRODUCTS:
            for a_trans in (False, True):
                for b_trans in (False, True):
                    yield _sync(shape, dtype, total, a_trans, b_trans)
        for total in dict.fromkeys(total for _, total in PRODUCTS):
            yield _fill(shape, total)
            for scope in SCOPES:
                yield _store(shape, total, scope)


WMMA_NAMES = tuple(_all())
"""Names of all of them."""


def wmma_group(
    dtype: str, total: str, *, a_trans: bool = False, b_trans: bool = False,
    shape: Shape = (16, 16, 16), load_scope: str = "shared", store_scope: str = "shared",
) -> dict[str, str]:  # fmt: skip
    """Return names of the intrinsics of one product: ``load_a``, ``load_b``, ``compute``, …

    ``fill`` sets the accumulator to zero and ``store`` writes it to memory of ``store_scope``.
    """
    kinds = SHORT[dtype] * 2 + SHORT[total]
    turned = {(False, True): "_trans", (True, False): "_trans_a", (True, True): "_trans_a_trans_b"}
    end = load_scope.replace(".", "_")
    operand = f"{_prefix('load', shape)}_{SHORT[dtype]}"
    return {
        "fill": f"{_prefix('fill', shape)}_{SHORT[total]}",
        "load_a": f"{operand}_a{'_trans' if a_trans else ''}_{end}",
        "load_b": f"{operand}_b{'_trans' if b_trans else ''}_{end}",
        "compute": f"{_prefix('sync', shape)}_{kinds}{turned.get((a_trans, b_trans), '')}",
        "store": f"{_prefix('store', shape)}_{SHORT[total]}_{store_scope.replace('.', '_')}",
    }
