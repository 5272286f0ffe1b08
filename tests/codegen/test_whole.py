"""Division and shifts of integers have a result for all operands: that of NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.everyday import few
from tilewright import compile, te
from tilewright.driver import lower
from tilewright.ir import (
    call,
    const,
    const_value,
    floordiv,
    floormod,
    structural_equal,
    truncdiv,
    truncmod,
)
from tilewright.script import parse
from tilewright.script import tir as T
from tilewright.tir import PrimFunc, Schedule
from tilewright.tir.interpreter import run

DTYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def _truncated(a: Any, b: Any) -> Any:
    whole = np.floor_divide(a, b)
    rest = np.fmod(a, b)
    return whole + ((rest != 0) & ((a < 0) != (b < 0))).astype(a.dtype)


OPERATIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "floordiv": (floordiv, np.floor_divide),
    "floormod": (floormod, np.remainder),
    "truncdiv": (truncdiv, _truncated),
    "truncmod": (truncmod, np.fmod),
    "shift_left": (lambda a, b: call("shift_left", a, b), np.left_shift),
    "shift_right": (lambda a, b: call("shift_right", a, b), np.right_shift),
}


def numpy_result(name: str, a: Any, b: Any) -> Any:
    with np.errstate(all="ignore"):
        return OPERATIONS[name][1](a, b)


def pairs(dtype: str) -> tuple[Any, Any]:
    """All pairs of the numbers where something happens, as two columns of 16 * n lanes."""
    info = np.iinfo(dtype)
    some = {info.min, info.min + 1, 0, 1, 2, 3, 7, 8, 31, 32, 63, 64, info.max - 1, info.max}
    some |= {-1, -2, -7, -8, -32} if info.min < 0 else set()
    some = {value for value in some if info.min <= value <= info.max}
    columns = np.array(list(itertools.product(sorted(some), repeat=2)), dtype)
    size = -(-len(columns) // 16) * 16
    return np.resize(columns[:, 0], size), np.resize(columns[:, 1], size)


def program(dtype: str, size: int, build: Callable[[Any, Any], Any], lanes: bool) -> PrimFunc:
    a, b = (te.placeholder((size,), dtype, name) for name in "ab")
    made = te.compute((size,), lambda i: build(a[i], b[i]), name="c")
    sch = Schedule(te.create_prim_func([a, b, made]))
    loop = sch.get_loops(sch.get_child_blocks(sch.get_block("root"))[0])[0]
    if lanes:
        sch.vectorize(sch.split(loop, [None, 16])[1])
    func: PrimFunc = sch.mod["main"]
    return func


@pytest.mark.parametrize("lanes", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_pair_of_operands_has_a_result(name: str, dtype: str, lanes: bool) -> None:
    a, b = pairs(dtype)
    func = program(dtype, len(a), OPERATIONS[name][0], lanes)
    expected, found = numpy_result(name, a, b), np.zeros_like(a)
    compile(func)(a, b, found)
    np.testing.assert_array_equal(found, expected)
    for mod in (func, lower(func)):
        found = np.zeros_like(a)
        run(mod, a, b, found)
        np.testing.assert_array_equal(found, expected)


@few("dtype", DTYPES, every=3)
@pytest.mark.parametrize("name", OPERATIONS)
def test_constant_second_operands(name: str, dtype: str) -> None:
    a, _ = pairs(dtype)
    a = np.resize(np.unique(a), 32)
    operands = [*(value for value in (-3, -2, -1) if dtype.startswith("i")), 0, 1, 4, 7, 100]
    for lanes, b in itertools.product((False, True), operands):
        func = program(dtype, 32, lambda x, _: OPERATIONS[name][0](x, const(b, dtype)), lanes)  # noqa: B023
        found = np.zeros_like(a)
        compile(func)(a, a, found)
        expected = numpy_result(name, a, np.full_like(a, b))
        np.testing.assert_array_equal(found, expected, err_msg=f"{b} {lanes}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["floordiv", "floormod"])
def test_folding_agrees(name: str, dtype: str) -> None:
    a, b = pairs(dtype)
    build = OPERATIONS[name][0]
    found = [
        const_value(build(const(x, dtype), const(y, dtype))) for x, y in zip(a.tolist(), b.tolist())
    ]
    np.testing.assert_array_equal(np.array(found, dtype), numpy_result(name, a, b))


def test_divisors_that_are_known_need_no_guard() -> None:
    @T.prim_func
    def main(a: T.handle, c: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 3), "float32")
        C = T.match_buffer(c, (3, n), "float32")
        for i in range(n * 3):
            with T.block("c"):
                v = T.axis.spatial(n * 3, i)
                C[v // n, v % n] = A[v % n, v // n]

    text = lower(main).script()
    assert "T.indexdiv(" in text and "T.indexmod(" in text
    assert structural_equal(parse(text), lower(main))
    A, C = np.arange(15, dtype="float32").reshape(5, 3), np.zeros((3, 5), "float32")
    compile(main)(A, C)
    np.testing.assert_array_equal(C, A.T)
