"""Loads and stores under masks: what lies beyond an edge is another value, and is not touched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import driver
from tilewright.runtime import guarded
from tilewright.runtime.dlpack import numpy_dtype
from tilewright.script import parse
from tilewright.script import tir as T
from tilewright.target import Target

TARGET = Target("native").with_options(num_cores=1)


@T.prim_func
def shifted(A: T.Buffer((20,), "float32"), C: T.Buffer((4, 32), "float32"), s: T.int64):
    for r in range(4):
        for i in T.vectorized(32):
            C[r, i] = T.if_then_else(
                i + r * 2 >= s and i + r * 2 - s < 20, A[i + r * 2 - s], T.float32("-inf")
            )


@T.prim_func
def every_second(A: T.Buffer((37,), "float32"), C: T.Buffer((3, 16), "float32")):
    for r in range(3):
        for i in T.vectorized(16):
            C[r, i] = T.if_then_else(
                i * 2 + r * 3 >= 2 and i * 2 + r * 3 < 39, A[i * 2 + r * 3 - 2], T.float32(0)
            )


@T.prim_func
def nested(A: T.Buffer((16,), "float64"), C: T.Buffer((8,), "float64"), n: T.int64, m: T.int64):
    for i in T.vectorized(8):
        C[i] = T.if_then_else(i < n, T.if_then_else(m <= i, A[i], T.float64(0)), T.float64(0))


@T.prim_func
def apart(A: T.Buffer((16,), "float32"), C: T.Buffer((64,), "float32")):
    for i in T.vectorized(16):
        C[i * 3 + 5] = A[i] * T.float32(2)


@T.prim_func
def differ(A: T.Buffer((36,), "int64"), B: T.Buffer((36,), "int64"), R: T.Buffer((8,), "bool")):
    found = T.alloc_buffer((8,), "bool")
    for i in T.vectorized(8):
        found[i] = T.bool(False)
    for k in T.unroll(5, annotations={"pragma_keep_whole": 1}):
        for i in T.vectorized(8):
            if k * 8 + i < 36:
                found[i] = found[i] or ((A[k * 8 + i] != 0) != (B[k * 8 + i] != 0))
    for i in range(8):
        R[i] = found[i]


@pytest.mark.parametrize("cpu", ["native", "x86-64-v3", "x86-64-v2"])
def test_registers_that_are_known_to_be_off_are_not_read(cpu: str) -> None:
    target = Target(cpu if cpu == "native" else f"llvm -mcpu={cpu}").with_options(num_cores=1)
    a, b = guarded(np.arange(36) % 3), guarded(np.arange(36) % 5)
    differs = np.zeros(40, "bool")
    differs[:36] = (a != 0) != (b != 0)
    found = np.zeros(8, "bool")
    driver.compile(differ, target)(a, b, found)
    np.testing.assert_array_equal(found, differs.reshape(5, 8).any(0))


def call(func: Any, *args: Any) -> None:
    driver.compile(func, TARGET)(*args)


@pytest.mark.parametrize("shift", [0, 1, 7, 31, 40, 1 << 40])
def test_neighbours_under_a_mask(shift: int) -> None:
    a, c = np.arange(20, dtype="float32"), np.zeros((4, 32), "float32")
    call(shifted, a, c, shift)
    place = np.arange(32) + 2 * np.arange(4)[:, None] - shift
    inside = (place >= 0) & (place < 20)
    np.testing.assert_array_equal(c, np.where(inside, a[np.clip(place, 0, 19)], -np.inf))


def test_every_second_element_under_a_mask() -> None:
    a, c = np.arange(37, dtype="float32") + 1, np.zeros((3, 16), "float32")
    call(every_second, a, c)
    place = 2 * np.arange(16) + 3 * np.arange(3)[:, None] - 2
    inside = (place >= 0) & (place < 37)
    np.testing.assert_array_equal(c, np.where(inside, a[np.clip(place, 0, 36)], 0))


@pytest.mark.parametrize(("n", "m"), [(8, 0), (5, 2), (2, 5), (-3, 0), (100, -100)])
def test_conditions_inside_one_another(n: int, m: int) -> None:
    a, c = np.arange(16, dtype="float64") + 1, np.zeros(8)
    call(nested, a, c, n, m)
    lane = np.arange(8)
    np.testing.assert_array_equal(c, np.where((lane < n) & (lane >= m), a[:8], 0))


def test_lanes_stored_apart() -> None:
    a, c = np.arange(16, dtype="float32"), np.full(64, -1, "float32")
    call(apart, a, c)
    expected = np.full(64, -1, "float32")
    expected[5:53:3] = 2 * a
    np.testing.assert_array_equal(c, expected)


@T.prim_func
def fixed_edges(A: T.Buffer((20,), "float32"), C: T.Buffer((5, 16), "float32")):
    for i in T.vectorized(16):
        # Edges inside of the vector, one that all lanes pass, one that none does, two at once.
        C[0, i] = T.if_then_else(i < 13, A[i + 7], T.float32(-1))
        C[1, i] = T.if_then_else(i < 40, A[i], T.float32(-1))
        C[2, i] = T.if_then_else(i >= 30, A[i], T.float32(-1))
        C[3, i] = T.if_then_else(i >= 2 and i < 9, A[i - 2], T.float32(-1))
        C[4, i] = T.if_then_else(i < 9, T.if_then_else(i < 20, A[i], T.float32(5)), T.float32(-1))


def test_masks_that_are_known_are_constants() -> None:
    module = driver.compile(fixed_edges, TARGET)
    a, c = np.arange(20, dtype="float32"), np.zeros((5, 16), "float32")
    module(a, c)
    lane = np.arange(16)
    first = a[lane]
    expected = [
        np.where(lane < 13, a[np.minimum(lane + 7, 19)], -1),
        first,
        np.full(16, -1),
        np.where((lane >= 2) & (lane < 9), a[np.abs(lane - 2)], -1),
        np.where(lane < 9, first, -1),
    ]
    np.testing.assert_array_equal(c, expected)
    assert "icmp sgt <16" not in module.get_source("ll")
    assert "and <16 x i1>" not in module.get_source("ll")


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        *(("int32", "int8"), ("int32", "uint16"), ("int64", "int32"), ("int64", "uint8")),
        *(("float32", "bfloat16"), ("float32", "float16"), ("int16", "int8")),
    ],
)
@pytest.mark.parametrize("lanes", [3, 8, 16, 32, 64])
@pytest.mark.parametrize("stored", [1, 2, -1])
def test_what_lies_behind_a_truncated_number_is_not_touched(
    wide: str, narrow: str, lanes: int, stored: int
) -> None:
    # The last round of a loop, as vectorisation leaves it: a mask that is known.
    stored %= lanes
    program = parse(f"""
@T.prim_func
def main(A: T.Buffer(({lanes},), "{wide}"), B: T.Buffer(({lanes},), "{narrow}")):
    if T.Ramp({lanes}, 1, {lanes}) < T.Broadcast({lanes + stored}, {lanes}):
        B[T.Ramp(0, 1, {lanes})] = T.Cast("{narrow}x{lanes}", A[T.Ramp(0, 1, {lanes})])
""")
    a = (np.arange(lanes) * 3 + (1 << 20)).astype(numpy_dtype(wide))
    b = np.full(lanes, 55).astype(numpy_dtype(narrow))
    with np.errstate(over="ignore"):
        expected = np.where(np.arange(lanes) < stored, a.astype(b.dtype), b)
    call(program, a, b)
    np.testing.assert_array_equal(b.view("uint8"), expected.view("uint8"))


@T.prim_func
def looked_up(
    A: T.Buffer((4, 5), "float32"), rows: T.Buffer((3,), "int64"), C: T.Buffer((6, 8), "float32")
):
    for r in range(6):
        for i in T.vectorized(8):
            C[r, i] = T.if_then_else(r < 3 and i < 5, A[rows[r], i], T.float32(0))


@T.prim_func
def tested(
    A: T.Buffer((3,), "float32"), limits: T.Buffer((3,), "int64"), C: T.Buffer((3, 8), "float32")
):
    for i in T.vectorized(8):
        C[0, i] = T.if_then_else(
            i < 3, T.if_then_else(limits[i] > 0, A[i], T.float32(0)), T.float32(0)
        )
    for i in T.vectorized(8):
        C[1, i] = T.if_then_else(i < 3 and limits[i] > 0, A[i], T.float32(0))
    for i in T.vectorized(8):
        C[2, i] = T.if_then_else(i >= 3 or limits[i] <= 0, T.float32(0), A[i])


@pytest.mark.parametrize("target", ["native", "llvm -mcpu=x86-64"])
def test_nothing_is_read_where_a_test_fails(target: str) -> None:
    made = Target(target).with_options(num_cores=1)
    a, rows = guarded(np.arange(20, dtype="float32").reshape(4, 5)), guarded(np.array([3, 0, 2]))
    c = np.ones((6, 8), "float32")
    driver.compile(looked_up, made)(a, rows, c)
    np.testing.assert_array_equal(c[:3, :5], a[rows])
    assert not c[3:].any() and not c[:, 5:].any()
    a, limits = guarded(np.array([1, 2, 3], "float32")), guarded(np.array([4, -1, 5]))
    c = np.ones((3, 8), "float32")
    driver.compile(tested, made)(a, limits, c)
    np.testing.assert_array_equal(c, [[1, 0, 3, 0, 0, 0, 0, 0]] * 3)


@T.prim_func
def chosen(
    A: T.Buffer((8,), "float32"), B: T.Buffer((40,), "int32"), C: T.Buffer((2, 16), "int32")
):
    for r in range(2):
        for i in T.vectorized(16):
            if r * 5 + i < 12:
                C[r, i] = T.Select(
                    A[(r + i * 3) % 8] < T.float32(0)
                    or (A[i * i % 8] != A[(r + i * 3) % 8] and B[i * i * 5 % 40] < B[r + i * 2]),
                    T.Cast("int32", i),
                    T.int32(-1),
                )


@pytest.mark.parametrize("cpu", ["native", "llvm -mcpu=x86-64-v3"])
def test_conditions_of_looked_up_elements_under_a_mask(cpu: str) -> None:
    rng = np.random.default_rng(3)
    r, i = np.mgrid[:2, :16]
    compiled = driver.compile(chosen, Target(cpu).with_options(num_cores=1))
    for _ in range(8):
        a, b = rng.integers(-2, 3, 8).astype("float32"), rng.integers(0, 9, 40).astype("int32")
        c = np.full((2, 16), 77, "int32")
        compiled(a, b, c)
        first, other = a[(r + i * 3) % 8], a[i * i % 8]
        small = b[i * i * 5 % 40] < b[np.minimum(r + i * 2, 39)]
        wanted = np.where((first < 0) | (other != first) & small, i, -1)
        np.testing.assert_array_equal(c, np.where(r * 5 + i < 12, wanted, 77))


@T.prim_func
def on_a_diagonal(A: T.Buffer((5,), "float32"), C: T.Buffer((2, 8, 13), "float32")):
    for r in range(8):
        for i in T.vectorized(16):
            if i < 13:
                C[0, r, i] = T.if_then_else(i == r + 8, A[r], T.float32(0))
        for i in T.vectorized(16):
            if i < 13:  # noqa: SIM102 - one inside the other, not both at once
                if i == r + 8:
                    C[1, r, i] = A[r]


@pytest.mark.parametrize("cpu", ["native", "llvm -mcpu=x86-64-v3"])
def test_an_inner_condition_holds_within_the_outer_one_only(cpu: str) -> None:
    a, c = guarded(np.arange(1, 6, dtype="float32")), np.zeros((2, 8, 13), "float32")
    driver.compile(on_a_diagonal, Target(cpu).with_options(num_cores=1))(a, c)
    np.testing.assert_array_equal(c, [np.eye(8, 13, 8, "float32") * np.r_[a, 0, 0, 0][:, None]] * 2)


@T.prim_func
def greater(
    A: T.Buffer((8, 16), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((16,), "float32")
):
    for r in range(8):
        for i in T.vectorized(16):
            C[i] = T.max(
                C[i],
                T.if_then_else(A[r, i] - B[r] <= T.float32(1), A[r, i] - B[r], T.float32(-9)),
            )


def test_what_a_condition_has_computed_needs_no_mask():
    module = driver.compile(greater, TARGET)
    assert "masked" not in module.get_source("ll")
    a, b = np.float32([[0.5, 3, np.nan, -2] * 4] * 8), np.arange(8, dtype="float32")
    c = np.full(16, -20, "float32")
    expected = c
    for row, number in zip(a, b):
        expected = np.maximum(expected, np.where(row - number <= 1, row - number, np.float32(-9)))
    module(a, b, c)
    np.testing.assert_array_equal(c, expected)


@T.prim_func
def after_a_guard(A: T.Buffer((8,), "float32"), C: T.Buffer((16,), "float32"), n: T.int64):
    for i in T.vectorized(16):
        C[i] = T.if_then_else(i < n and A[i] > T.float32(0), A[i] * T.float32(2), T.float32(-1))


@pytest.mark.parametrize("n", [0, 3, 8])
def test_what_only_a_part_of_a_condition_reads_stays_masked(n):
    a = guarded(np.float32([1, -1, 2, -2, 3, -3, 4, -4]))  # reading behind its end faults
    c = np.zeros(16, "float32")
    call(after_a_guard, a, c, n)
    expected = np.full(16, -1, "float32")
    expected[:n] = np.where(a[:n] > 0, 2 * a[:n], -1)
    np.testing.assert_array_equal(c, expected)


@T.prim_func
def short_circuits(n: T.int64, a: T.handle, b: T.handle, C: T.Buffer((5, 16), "bool")):
    """What may be read where: only lanes before ``n`` are in A and B."""
    A = T.match_buffer(a, (n,), "int32")
    B = T.match_buffer(b, (n,), "int32")
    for i in T.vectorized(16):
        C[0, i] = i < n and A[i] > 0 and A[i] < 5
    for i in T.vectorized(16):
        C[1, i] = i >= n or A[i] > 0 or A[i] < -5
    for i in T.vectorized(16):
        C[2, i] = (i < n and A[i] > 0) or (i < n and (B[i] > A[i] or A[i] == -3))
    for i in T.vectorized(16):
        C[3, i] = i < n and (A[i] + B[i] > 0 or (B[i] != 2 and A[i] + B[i] == -1))
    for i in T.vectorized(16):
        C[4, i] = T.if_then_else(i < n, A[i] == 1, T.bool(False)) or (i < n and A[i] == B[i])


def short_circuit(a: int, b: int) -> list[bool]:
    return [
        a > 0 and a < 5,
        a > 0 or a < -5,
        a > 0 or b > a or a == -3,
        a + b > 0 or (b != 2 and a + b == -1),
        a in (1, b),
    ]


@pytest.mark.parametrize("count", [0, 1, 10, 11])
@pytest.mark.parametrize("cpu", ["native", "x86-64-v4", "x86-64-v3", "x86-64-v2"])
def test_what_one_side_reads_is_read_by_the_other_where_it_may_be(cpu: str, count: int) -> None:
    if cpu == "x86-64-v4" and not TARGET.has("avx512f"):
        pytest.skip("needs AVX-512")
    target = Target(cpu if cpu == "native" else f"llvm -mcpu={cpu}").with_options(num_cores=1)
    made = driver.compile(short_circuits, target)
    for seed in range(6):
        draw = np.random.default_rng(seed)
        a, b = (draw.integers(-7, 7, count).astype("int32") for _ in range(2))
        found = np.zeros((5, 16), "bool")
        made(count, guarded(a), guarded(b), found)
        for lane in range(count):
            assert found[:, lane].tolist() == short_circuit(int(a[lane]), int(b[lane]))
        beyond = np.array([[False], [True], [False], [False], [False]])
        np.testing.assert_array_equal(found[:, count:], beyond.repeat(16 - count, 1))


@T.prim_func
def counted(A: T.Buffer((66,), "int32"), C: T.Buffer((64,), "bool")):
    for i in T.vectorized(64):
        C[i] = A[i] + A[i + 2] == 3 or (A[i + 1] == 1 and A[i] + A[i + 2] == 2)


def test_sums_of_what_has_been_read_are_not_made_again() -> None:
    text = driver.compile(counted, Target("llvm -mcpu=x86-64-v4 -num-cores=1")).get_source("asm")
    assert text.count("vpaddd") == 4  # of 16 lanes each
    a = np.random.default_rng(0).integers(0, 2, 66).astype("int32")
    c = np.zeros(64, "bool")
    call(counted, a, c)
    around = a[:-2] + a[2:]
    np.testing.assert_array_equal(c, (around == 3) | ((a[1:-1] == 1) & (around == 2)))
