"""Which updates of a reduction commute: by law, by proof, and which don't."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import te
from tilewright.ir import pre_order
from tilewright.script import parse
from tilewright.tir import Block, PrimFunc, register_reducer
from tilewright.tir.analysis import check_updates_commute, updates_commute
from tilewright.tir.interpreter import run
from tilewright.tir.reducer import REDUCERS


def reduction(
    body: str, dtype: str = "float32", second: str = "float32", order: str = "k"
) -> PrimFunc:
    """``B`` (and ``C``) reduced from ``A`` over ``r``, by the given statements."""
    lines = "\n            ".join(body.strip().split("\n"))
    return parse(f"""
@T.prim_func
def main(
    A: T.Buffer((3, 6), "{dtype}"), B: T.Buffer((3,), "{dtype}"), C: T.Buffer((3,), "{second}")
):
    for i, k in T.grid(3, 6):
        with T.block("B"):
            v = T.axis.spatial(3, i)
            r = T.axis.reduce(6, {order})
            T.reads(A[v, r], B[v], C[v])
            T.writes(B[v], C[v])
            {lines}
""")


def block_of(func: PrimFunc, name: str = "B") -> Block:
    (found,) = [x for x in pre_order(func.body) if isinstance(x, Block) and x.name == name]
    return found


def any_order(body: str, dtype: str = "float32") -> bool:
    """Whether several orders of six updates give the same, tried on data without rounding."""
    funcs = [reduction(body, dtype, order=order) for order in ORDERS]
    rng = np.random.default_rng(0)
    for _ in range(4):
        values = rng.integers(-3, 4, (3, 6)).astype(dtype)
        start = [rng.integers(-3, 4, 3).astype(buffer.dtype) for buffer in funcs[0].buffers[1:]]
        results = set()
        for func in funcs:
            made = [item.copy() for item in start]
            run(func, values, *made)
            results.add(tuple(item.tobytes() for item in made))
        if len(results) > 1:
            return False
    return True


ORDERS = ["k", "5 - k", "k * 5 % 6", "(k + 2) % 6", "k % 2 * 3 + k // 2"]

COMMUTE = [
    "B[v] = B[v] + A[v, r]",
    "B[v] = A[v, r] * T.float32(2) + B[v]",
    "B[v] = B[v] - A[v, r]",
    "B[v] = B[v] * A[v, r]",
    "B[v] = T.max(B[v], A[v, r])",
    "B[v] = T.min(T.min(A[v, r], B[v]), T.float32(1))",
    "B[v] = B[v] + A[v, r] - T.float32(1)",
    "B[v] = T.Select(A[v, r] > B[v], A[v, r], B[v])",
    "B[v] = T.if_then_else(A[v, r] > T.float32(0), B[v] + A[v, r], B[v])",
    "if A[v, r] > T.float32(0):\n    B[v] = B[v] + A[v, r]\nelse:\n    B[v] = B[v] - T.float32(1)",
    "B[v] = T.float32(2)",
    "B[v] = B[v] + A[v, r]\nC[v] = T.max(C[v], A[v, r])",
    "C[v] = C[v] * A[v, r]\nB[v] = B[v]",
    "for j in range(2):\n    B[v] = B[v] + A[v, r] * T.Cast('float32', j)",
    "B[v] = T.fma(A[v, r], A[v, r], B[v])",
]


@pytest.mark.parametrize("body", COMMUTE)
def test_updates_that_commute(body: str) -> None:
    func = reduction(body)
    assert check_updates_commute(block_of(func)) == ""
    assert any_order(body)


ORDERED = {
    "B[v] = B[v] * T.float32(3) + A[v, r]": "no reduction by a known reducer",
    "B[v] = A[v, r] - B[v]": "no reduction by a known reducer",
    "B[v] = A[v, r]": "the last value that B is given stays",
    "if r > 2:\n    B[v] = T.float32(1)\nelse:\n    B[v] = T.float32(2)": "the last value",
    "if B[v] > T.float32(0):\n    B[v] = B[v] - A[v, r]": "decides what it does",
    "B[v] = B[v] + A[v, r]\nB[v] = T.max(B[v], T.float32(0))": "updated by sum and by max",
    "B[v] = B[v] + A[v, r]\nC[v] = C[v] + B[v]": "made of another part",
    "C[v] = C[v] + B[v]\nB[v] = B[v] + A[v, r]": "made of another part",
    "B[v] = T.if_then_else(A[v, r] > T.float32(0), B[v] + A[v, r], B[v] * T.float32(2))": "known",
    "B[v] = T.if_then_else(A[v, r] > T.float32(0), A[v, r], B[v])": "known reducer",
    "for j in range(2):\n    B[v] = B[v] * A[v, r] + T.float32(1)": "known reducer",
}


@pytest.mark.parametrize("body", ORDERED)
def test_updates_whose_order_matters(body: str) -> None:
    func = reduction(body)
    assert ORDERED[body] in check_updates_commute(block_of(func))
    assert not any_order(body)


@pytest.mark.parametrize(
    ("dtype", "update", "commutes"),
    [
        ("int32", "B[v] * A[v, r]", True),
        ("int8", "B[v] + A[v, r] * T.int8(77)", True),
        ("int8", "T.Cast('int8', T.Cast('int32', B[v]) + T.Cast('int32', A[v, r]) * 99)", True),
        ("int32", "T.Cast('int32', T.Cast('int8', B[v]) + T.int8(100))", False),
        ("int8", "T.Cast('int8', T.max(T.Cast('int32', B[v]), T.Cast('int32', A[v, r])))", False),
        ("int32", "T.bitwise_xor(B[v], A[v, r])", True),
        ("int32", "T.bitwise_or(A[v, r], T.bitwise_or(B[v], 4))", True),
        ("int32", "T.bitwise_and(B[v], A[v, r]) + 1", False),
        ("int32", "T.shift_left(B[v], 1)", False),
    ],
)
def test_whole_numbers_wrap(dtype: str, update: str, commutes: bool) -> None:
    body = f"B[v] = {update}"
    assert updates_commute(block_of(reduction(body, dtype))) == commutes
    assert not commutes or any_order(body, dtype)


def test_tuples_commute_as_a_whole() -> None:
    n = te.reduce_axis((0, 6), "n")
    data = te.placeholder((3, 6), name="A")
    best = te.compute((3,), lambda i: te.argmin((n, data[i, n]), axis=n), name="B")
    func = te.create_prim_func([data, *best])
    assert updates_commute(block_of(func))
    # Without comparing places, the first of equals stays: that depends on the order.
    func = reduction(
        "if A[v, r] > B[v]:\n    C[v] = T.Cast('int32', r)\n    B[v] = A[v, r]", second="int32"
    )
    assert not updates_commute(block_of(func))


def test_a_reducer_must_keep_its_laws() -> None:
    func = reduction("B[v] = B[v] - A[v, r] * T.float32(2) + A[v, r] * B[v]")
    assert not updates_commute(block_of(func))
    try:
        register_reducer("odd_difference", lambda x, y: x - y * 2 + y * x, lambda t: te.const(0, t))
        assert "reducer 'odd_difference' is none" in check_updates_commute(block_of(func))
    finally:
        REDUCERS._entries.pop("odd_difference", None)


def test_a_reducer_that_comes_later_is_known() -> None:
    func = reduction("B[v] = B[v] + A[v, r] + B[v] * A[v, r]")
    assert not updates_commute(block_of(func))
    try:
        register_reducer("sum_and_product", lambda x, y: x + y + x * y, lambda t: te.const(0, t))
        assert updates_commute(block_of(func))
    finally:
        REDUCERS._entries.pop("sum_and_product", None)


def test_memory_of_one_instance_is_no_update() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((3, 6, 2), "float32"), B: T.Buffer((3,), "float32")):
    for i, k in T.grid(3, 6):
        with T.block("B"):
            v, r = T.axis.remap("SR", [i, k])
            T.reads(A[v, r, 0:2], B[v])
            T.writes(B[v])
            t = T.alloc_buffer((1,), "float32", scope="local")
            t[0] = T.float32(0)
            for j in range(2):
                t[0] = t[0] * T.float32(3) + A[v, r, j]
            B[v] = B[v] + t[0]
""")
    assert updates_commute(block_of(func))
    text, other = func.script(), "t[0] = B[v]"
    text = text.replace("t[0] = T.float32(0.0)", other)
    assert other in text
    assert not updates_commute(block_of(parse(text)))


def test_spatial_axes_need_no_order() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((3,), "float32"), B: T.Buffer((3,), "float32")):
    for i in range(3):
        with T.block("B"):
            v = T.axis.spatial(3, i)
            B[v] = B[v] * T.float32(3) + A[v]
""")
    assert updates_commute(block_of(func))
