"""Last tiles that begin early: only where computing elements twice does no harm."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import driver, te, tir, topi
from tilewright.dlight import ApplyDefaultSchedule
from tilewright.ir import Expr, IRModule
from tilewright.runtime import guarded
from tilewright.script import parse
from tilewright.target import Target
from tilewright.tir.interpreter import run
from tilewright.tir.transform import LowerInitBlock, OverlapTiles, PlanBufferAllocation

ROWS = """
@T.prim_func
def main(A: T.Buffer((3, 21), "float32"), S: T.Buffer((3,), "float32"),
         R: T.Buffer((3, 21), "float32"), C: T.Buffer((3, 21), "float32")):
    B = T.alloc_buffer((3, 21), "float32")
    for LOOPS:
        for j1 in range(8):
            with T.block("B"):
                vi = T.axis.spatial(3, ROW)
                vj = T.axis.spatial(21, COLUMN * 8 + j1)
                T.where(COLUMN * 8 + j1 < 21)
                B[vi, vj] = A[vi, vj] * S[vi]
        for j1 in range(8):
            with T.block("C"):
                vi = T.axis.spatial(3, ROW)
                vj = T.axis.spatial(21, COLUMN * 8 + j1)
                T.where(COLUMN * 8 + j1 < 21)
                C[vi, vj] = VALUE
"""
PLAIN = {"LOOPS": "j0, i in T.grid(3, 3)", "ROW": "i", "COLUMN": "j0", "VALUE": "B[vi, vj] + S[vi]"}


def _overlapped(changed: dict[str, str], flag: bool = True) -> tuple[tir.PrimFunc, bool]:
    """A function after the pass, and whether tiles were moved in its outermost loop."""
    text = ROWS
    for name, value in {**PLAIN, **changed}.items():
        text = text.replace(name, value)
    func = parse(text)
    body = func.body.block.body  # type: ignore[union-attr]
    marked = body.replace(annotations={"pragma_overlap_last": flag})
    block = func.body.block.replace(body=marked)  # type: ignore[union-attr]
    mod = IRModule({"main": func.replace(body=func.body.replace(block=block))})
    for step in (LowerInitBlock(), PlanBufferAllocation(), OverlapTiles()):
        mod = step(mod)
    made = mod["main"]
    assert ("pragma_overlap_last" in made.script()) != flag
    return made, "T.min(" in made.script()


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"LOOPS": "f in range(9)", "ROW": "f % 3", "COLUMN": "(f // 3)"},
        {"LOOPS": "f in range(9)", "ROW": "f // 3", "COLUMN": "(f % 3)"},
    ],
)
def test_the_last_tile_begins_early_enough_to_be_whole(changed: dict[str, str]) -> None:
    made, moved = _overlapped(changed)
    assert moved
    assert "T.where" not in made.script()
    a, s = np.random.default_rng(0).random((3, 21), "float32"), np.arange(3, dtype="float32")
    out = np.zeros_like(a)
    run(made, a, s, a, out)
    np.testing.assert_array_equal(out, a * s[:, None] + s[:, None])


@pytest.mark.parametrize(
    "changed",
    [
        # A caller may have the result in the place of this operand.
        {"VALUE": "B[vi, vj] + R[vi, vj]"},
        # An iteration reads what it wrote before.
        {"VALUE": "B[vi, vj] + C[vi, vj]"},
        # Rows depend on which tile it is.
        {"LOOPS": "j0 in range(3)", "ROW": "j0", "COLUMN": "j0"},
        {"LOOPS": "f in range(9)", "ROW": "f // 3", "COLUMN": "(f // 3)"},
        {"LOOPS": "f in range(9)", "ROW": "f % 3", "COLUMN": "(f % 3)"},
    ],
)
def test_tiles_stay_where_elements_must_not_be_computed_twice(changed: dict[str, str]) -> None:
    _, moved = _overlapped(changed)
    assert not moved


@pytest.mark.parametrize("cores", [1, 3])
@pytest.mark.parametrize("shape", [(17, 77, 33), (40, 29, 130), (130, 333, 16)])
def test_products_write_nothing_beyond_their_ends(shape: tuple[int, int, int], cores: int) -> None:
    target = Target(f"llvm -mcpu=x86-64-v3 -num-cores={cores}")
    n, m, k = shape
    a, b = (te.placeholder(size, "float32", name) for size, name in (((n, k), "a"), ((k, m), "b")))
    bias = te.placeholder((m,), "float32", "bias")
    result = topi.nn.relu(topi.add(topi.matmul(a, b), bias))
    func = te.create_prim_func([a, b, bias, result])
    mod = ApplyDefaultSchedule(target=target)(IRModule({"main": func}))
    assert "pragma_overlap_last" in mod.script()
    rng = np.random.default_rng(0)
    data = [rng.integers(-4, 5, s).astype("float32") for s in ((n, k), (k, m), (m,))]
    expected = np.maximum(data[0] @ data[1] + data[2], 0)
    out = guarded(np.zeros((n, m), "float32"))
    driver.compile(mod, target)(*map(guarded, data), out)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("kind", ["float32", "int32"])
@pytest.mark.parametrize("flat", [False, True])
def test_a_residual_in_place_is_read_once(flat: bool, kind: str) -> None:
    """Of whatever shape and kind: its elements are where the result's are written."""
    n, m, k = 333, 77, 33
    a, b = (te.placeholder(size, "float32", name) for size, name in (((n, k), "a"), ((k, m), "b")))
    residual = te.placeholder((n * m,) if flat else (n, m), kind, "residual")
    total = topi.matmul(a, b)

    def added(i: Expr, j: Expr) -> Expr:
        own = residual(i * m + j) if flat else residual(i, j)
        return total(i, j) + own.astype("float32")

    func = te.create_prim_func([a, b, residual, te.compute((n, m), added, name="sum")])
    target = Target("llvm -mcpu=x86-64-v3 -num-cores=1")
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-4, 5, size).astype("float32") for size in ((n, k), (k, m)))
    before = rng.integers(-9, 9, n * m).astype(kind)
    place = before.copy()
    out = place.view("float32").reshape(n, m)
    driver.compile(ApplyDefaultSchedule(target=target)(IRModule({"main": func})), target)(
        x, y, place if flat else place.reshape(n, m), out
    )
    np.testing.assert_array_equal(out, x @ y + before.reshape(n, m))


def test_a_false_flag_moves_nothing() -> None:
    assert _overlapped({})[1] and not _overlapped({}, flag=False)[1]


SYMBOLIC = """
@T.prim_func
def main(a: T.handle, S: T.Buffer((3,), "float32"), c: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (3, n), "float32")
    C = T.match_buffer(c, (3, n), "float32")
    B = T.alloc_buffer((3, n), "float32")
    for i in range(3):
        for j0 in T.serial((n + 6) // 7, annotations=MARKS):
            for j1 in range(7):
                with T.block("zero"):
                    vi = T.axis.spatial(3, i)
                    vj = T.axis.spatial(n, j0 * 7 + j1)
                    T.where(j0 * 7 + j1 < n)
                    B[vi, vj] = T.float32(0)
            for k, j1 in T.grid(TAPS, 7):
                with T.block("B"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    vj = T.axis.spatial(n, j0 * 7 + j1)
                    T.where(j0 * 7 + j1 < n)
                    B[vi, vj] = B[vi, vj] + T.if_then_else(
                        LOW <= vj + vk and vj + vk < n + LOW,
                        A[vi, vj + vk - LOW], T.float32(0))
            for j1 in range(7):
                with T.block("C"):
                    vi = T.axis.spatial(3, i)
                    vj = T.axis.spatial(n, j0 * 7 + j1)
                    T.where(j0 * 7 + j1 < n)
                    C[vi, vj] = VALUE
"""


def _symbolic(marks: str, low: int, taps: int, value: str) -> tuple[tir.PrimFunc, tir.PrimFunc]:
    """A function before and after the pass."""
    text = SYMBOLIC.replace("MARKS", marks).replace("VALUE", value)
    mod = IRModule({"main": parse(text.replace("LOW", str(low)).replace("TAPS", str(taps)))})
    plain = mod["main"]
    for step in (LowerInitBlock(), PlanBufferAllocation(), OverlapTiles()):
        mod = step(mod)
    return plain, mod["main"]


@pytest.mark.parametrize("marks", ['"pragma_cut_masks": 1, "pragma_overlap_last": 1',
                                   '"pragma_overlap_last": 1'])  # fmt: skip
@pytest.mark.parametrize(("low", "taps"), [(0, 1), (1, 3), (2, 3), (0, 3), (2, 5), (9, 3), (4, 12)])
def test_extents_that_come_with_the_call(marks: str, low: int, taps: int) -> None:
    plain, made = _symbolic("{" + marks + "}", low, taps, "B[vi, vj] * S[vi]")
    high = taps - 1 - low
    cut = "cut" in marks and low + max(0, high) <= 7
    assert f"n >= {7 + max(low, high, 1) if cut else 7}" in made.script()
    kernel = driver.compile(IRModule({"main": plain}), "llvm -num-cores=1")["main"]
    for n in range(32):
        a, s = np.random.default_rng(n).random((3, n), "float32"), np.arange(3, dtype="float32")
        padded = np.pad(a, ((0, 0), (low, taps)))
        expected = sum(padded[:, k : k + n] for k in range(taps)) * s[:, None]
        results = [guarded(np.zeros_like(a)) for _ in range(2)]
        kernel(guarded(a), s, results[0])
        run(made, a, s, results[1])
        for found in results:
            np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_residual_of_the_same_extents_may_be_in_the_place_of_the_result() -> None:
    marks = '{"pragma_overlap_last": 1}'
    _, made = _symbolic(marks, 1, 3, "B[vi, vj] + A[vi, vj]")
    assert "n >= 7" not in made.script() and "T.where" in made.script()
