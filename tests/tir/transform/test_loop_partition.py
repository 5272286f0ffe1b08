"""Loops cut where conditions change: whole tiles without tests, last ones no larger than needed."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import tilewright
from tilewright.ir import IRModule
from tilewright.script import parse
from tilewright.tir import transform
from tilewright.tir.schedule import Schedule

SUMS = """
@T.prim_func
def main(a: T.handle, z: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, 5), "float32")
    Z = T.match_buffer(z, (n,), "float32")
    for i, k in T.grid(n, 5):
        with T.block("Z"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                Z[vi] = T.float32(0)
            Z[vi] = Z[vi] + A[vi, vk]
"""


@pytest.mark.parametrize("kind", ["unroll", "vectorize"])
@pytest.mark.parametrize("factors", [[None, 10], [None, 3, 8], [None, 2, 2, 16]])
def test_last_tiles_of_any_number_of_rows(factors: list[int | None], kind: str) -> None:
    """Between the loop that is cut and the rows of a tile there may be others."""
    sch = Schedule(parse(SUMS))
    i, k = sch.get_loops("Z")
    *around, row = sch.split(i, factors)
    sch.cache_write("Z", 0, "local")
    sch.reverse_compute_at("Z_local", around[-1])
    sch.reorder(k, row)
    getattr(sch, kind)(row)
    getattr(sch, kind)(sch.get_loops("Z_local")[-1])
    init = sch.decompose_reduction("Z", k)
    getattr(sch, kind)(sch.get_loops(init)[-1])
    kernel = tilewright.compile(IRModule({"main": sch.mod["main"]}), "llvm")["main"]
    rng = np.random.default_rng(0)
    for n in (*range(26), 47, 48, 49, 63, 64, 65, 100):
        x, out = rng.standard_normal((n, 5), dtype=np.float32), np.full(n + 1, 7, np.float32)
        kernel(x, out[:n])
        np.testing.assert_allclose(out[:n], x.sum(1), rtol=1e-4, atol=1e-5, err_msg=str(n))
        assert out[n] == 7


def _lowered(loop: str, parameters: str = "n: T.int64, m: T.int64") -> tuple[IRModule, IRModule]:
    text = f"""
@T.prim_func
def main(a: T.handle, z: T.handle, {parameters}):
    A = T.match_buffer(a, (100,), "int64")
    Z = T.match_buffer(z, (100,), "int64")
    {loop}
"""
    mod = IRModule({"main": parse(text)})
    return mod, transform.LoopPartition()(mod)


@pytest.mark.parametrize(
    ("loop", "cut"),
    [
        ("for i in range(n):\n        for j in range(4):\n            if i * 4 + j < m:", True),
        ("for i in range(2, n):\n        for j in range(4):\n            if i * 4 + j < m:", True),
        ("for i in range(n):\n        for j in range(4):\n            if i * 4 + j >= m:", False),
        ("for i in range(n):\n        for j in range(4):\n            if j - i * 4 > -m:", True),
        (
            "for i in range(n):\n        for j in range(4):\n            "
            "if i * 4 + j < m and i + j < n:",
            True,
        ),
    ],
)
def test_ends_of_other_sizes(loop: str, cut: bool) -> None:
    """Conditions may end before the loop starts, or after it ends; more than one may."""
    index = "Z[i * 4 + j] = A[i * 4 + j] + 1"
    mod, made = _lowered(f"{loop}\n                {index}")
    assert ("else:" not in made.script()) == cut
    run = [tilewright.compile(each, "llvm")["main"] for each in (mod, made)]
    a = np.arange(100, dtype=np.int64)
    for n in range(0, 9, 2):
        for m in (0, 1, 3, 4, 7, 16, 29, 40):
            found = [np.zeros(100, np.int64) for _ in run]
            for kernel, z in zip(run, found):
                kernel(a, z, n, m)
            np.testing.assert_array_equal(*found, err_msg=f"{n}, {m}")


def test_extents_that_the_loop_may_change_are_read_once() -> None:
    """A loop whose extent is in memory stays one loop."""
    loop = """for i in range(A[0]):
        for j in range(4):
            if i * 4 + j < n:
                A[i * 4 + j] = Z[i * 4 + j]"""
    _, made = _lowered(loop, "n: T.int64")
    assert made.script().count("A[0]") <= 2  # of the loop, and of the region it declares
    kernel = tilewright.compile(made, "llvm")["main"]
    a, z = np.full(100, 5, np.int64), np.zeros(100, np.int64)
    kernel(a, z, 18)
    np.testing.assert_array_equal(a, [0] * 18 + [5] * 82)


@pytest.mark.parametrize(
    "loop",
    [
        """for i in range(n):
        t: T.int64 = i * 3
        for j in range(4):
            if t + i + j < m:
                Z[i * 4 + j] = A[i * 4 + j]""",
        """for i in range(n):
        for j in range(4):
            t: T.int64 = m - j
            Z[i * 4 + j] = T.if_then_else(i * 4 < t, A[i * 4 + j], T.int64(0))""",
    ],
)
def test_names_of_the_body_mean_nothing_before_it(loop: str) -> None:
    _, made = _lowered(loop)
    kernel = tilewright.compile(made, "llvm")["main"]
    a, z, place = np.arange(100, dtype=np.int64), np.zeros(100, np.int64), np.arange(20)
    kernel(a, z, 5, 11)
    np.testing.assert_array_equal(z[:20], np.where(place < 11, place, 0))


@pytest.mark.parametrize("size", [1, 8, 21])
def test_parallel_loops_of_vectors_are_cut_too(size: int) -> None:
    """Threads share whole vectors without tests; what is left is one iteration."""
    mod = parse(
        """
@T.prim_func
def main(a: T.handle, z: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    Z = T.match_buffer(z, (n,), "float32")
    for i in T.grid(n):
        with T.block("Z"):
            vi = T.axis.spatial(n, i)
            Z[vi] = A[vi] + T.float32(1)
"""
    )
    sch = Schedule(mod)
    outer, inner = sch.split(sch.get_loops("Z")[0], [None, 8])
    sch.parallel(outer)
    sch.vectorize(inner)
    lowered = tilewright.lower(sch.mod, "llvm")
    text = lowered.script()
    assert "for i_0 in T.parallel(n // 8):" in text
    assert text.count("T.parallel") == 1 and text.count("if ") == 1
    x, out = np.arange(size, dtype="float32"), np.zeros(size, "float32")
    tilewright.compile(sch.mod, "llvm -num-cores=2")["main"](x, out)
    np.testing.assert_array_equal(out, x + 1)


def _windows(width: int, low: int, high: int, mark: str) -> str:
    return f"""
@T.prim_func
def main(a: T.Buffer(({width},), "float32"), z: T.Buffer(({width},), "float32")):
    for i in T.serial({width // 4}{mark}):
        for j, k in T.grid(4, 3):
            z[i * 4 + j] = z[i * 4 + j] + T.if_then_else(
                {low} <= i * 4 + j + k and i * 4 + j + k < {high},
                a[T.min(T.max(i * 4 + j + k - {low}, 0), {width - 1})], T.float32(5))
"""


@pytest.mark.parametrize(
    ("width", "low", "high", "whole"),
    [
        (16, 1, 17, True),
        (16, 1, 99, True),
        (16, 0, 14, True),
        (8, 1, 9, False),
        (12, 6, 7, False),
        (16, 9, 12, False),
    ],
    ids=["both ends", "beginning", "end", "no middle", "overlapping", "little inside"],
)
def test_loops_are_cut_at_masks_if_they_say_so(
    width: int, low: int, high: int, whole: bool
) -> None:
    """Masks alone cut no loop; of an annotated one, the middle has none."""
    marked = ', annotations={"pragma_cut_masks": 1}'
    made, plain = (
        transform.LoopPartition()(IRModule({"main": parse(_windows(width, low, high, mark))}))
        for mark in (marked, "")
    )
    assert plain.script().count("for ") == 1 < made.script().count("for ")
    assert ("z[i * 4 + j] + a[" in made.script()) == whole
    a, results = np.arange(width, dtype=np.float32), []
    for mod in (made, plain):
        z = np.zeros(width, np.float32)
        tilewright.compile(mod, "llvm")["main"](a, z)
        results.append(z)
    np.testing.assert_array_equal(*results)


BRANCH = """
@T.prim_func
def main(z: T.Buffer((16,), "float32")):
    for i in T.serial(4MARK):
        for j in range(4):
            if i * 4 + j < 14:
                z[i * 4 + j] = T.float32(1)
"""


@pytest.mark.parametrize(
    ("text", "key"),
    [(_windows(16, 1, 17, "MARK"), "pragma_cut_masks"), (BRANCH, "pragma_keep_whole")],
    ids=["masks are cut", "kept whole"],
)
def test_flags_may_say_no(text: str, key: str) -> None:
    """A flag that is false is as good as none."""
    marks = "", f', annotations={{"{key}": False}}', f', annotations={{"{key}": True}}'
    plain, without, having = (
        transform.LoopPartition()(IRModule({"main": parse(text.replace("MARK", mark))})).script()
        for mark in marks
    )
    assert without.count("] = ") == plain.count("] = ") != having.count("] = ")


PRODUCT = """
@T.prim_func
def main(a: T.handle, b: T.handle, z: T.handle):
    m = T.int64()
    n = T.int64()
    A = T.match_buffer(a, (m, 5), "float32")
    B = T.match_buffer(b, (5, n), "float32")
    Z = T.match_buffer(z, (m, n), "float32")
    for i, j, k in T.grid(m, n, 5):
        with T.block("Z"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                Z[vi, vj] = T.float32(0)
            Z[vi, vj] = Z[vi, vj] + A[vi, vk] * B[vk, vj]
"""


def _tiled_product() -> IRModule:
    """Tiles of 6 x 16, those of the same columns one after another."""
    sch = Schedule(parse(PRODUCT))
    i, j, k = sch.get_loops("Z")
    (rows, row), (columns, column) = sch.split(i, [None, 6]), sch.split(j, [None, 16])
    sch.reorder(columns, rows, k, row, column)
    sch.cache_write("Z", 0, "local")
    sch.reverse_compute_at("Z_local", rows)
    sch.decompose_reduction("Z", k)
    for block in ("Z_init", "Z_update", "Z_local"):
        *_, row, column = sch.get_loops(block)
        sch.unroll(row)
        sch.vectorize(column)
    return IRModule({"main": sch.mod["main"]})


def test_last_columns_of_any_number_of_rows() -> None:
    kernel = tilewright.compile(_tiled_product(), "llvm")["main"]
    rng = np.random.default_rng(0)
    for m, n in product((0, 1, 2, 5, 6, 7, 13, 18), (0, 1, 7, 8, 9, 15, 16, 17, 33, 40)):
        x, y = (rng.standard_normal(s, dtype=np.float32) for s in ((m, 5), (5, n)))
        out = np.full((m + 1, n), 7, np.float32)
        kernel(x, y, out[:m])
        np.testing.assert_allclose(out[:m], x @ y, rtol=1e-4, atol=1e-5, err_msg=f"{m} x {n}")
        assert (out[m] == 7).all()


def test_whole_tiles_of_rows_are_apart_in_the_last_columns() -> None:
    """Of a result with few columns these are all, and rows that may be none take twice as long."""
    lowered = tilewright.driver.lower(_tiled_product(), "llvm").script()
    assert lowered.count("in range(T.truncdiv(m, 6)):") == 3  # of 16 columns, the last 8, the last
