"""The fuzzer's oracle: NumPy's scalars, from the text of a program."""

from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.everyday import few
from tilewright.script import parse
from tilewright.testing.fuzz import session as watched
from tilewright.testing.fuzz.hard_programs import PROGRAMS
from tilewright.testing.fuzz.oracle import numpy_function
from tilewright.testing.fuzz.oracle_syntax import NotCovered
from tilewright.testing.fuzz.oracle_values import FILLS
from tilewright.testing.fuzz.programs import Program
from tilewright.testing.fuzz.session import Fault, Session
from tilewright.testing.fuzz.stages import generate
from tilewright.testing.fuzz.stages_hard import hard_program
from tilewright.tir.interpreter import run


def elementwise(expr: str, dtype: str, *values: Any) -> Any:
    """Evaluate an expression of ``A[i]`` and ``B[i]`` over arrays."""
    arrays = [np.asarray(v, ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype) for v in values]
    n = len(arrays[0])
    params = "".join(f'{"AB"[k]}: T.Buffer(({n},), "{dtype}"), ' for k in range(len(arrays)))
    text = f"""
@T.prim_func
def main({params}C: T.Buffer(({n},), "{dtype}")):
    for i in T.serial({n}):
        with T.block("C"):
            v = T.axis.spatial({n}, i)
            C[v] = {expr}
"""
    out = np.zeros(n, arrays[0].dtype)
    numpy_function(text)(*arrays, out)
    return out.tolist()


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_integers_wrap_and_quotients_are_those_of_numpy(dtype: str) -> None:
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    one = f"T.{dtype}(1)"
    assert elementwise(f"A[v] + {one}", dtype, [high, 3]) == [low, 4]
    assert elementwise(f"A[v] * T.{dtype}(2) // T.{dtype}(2)", dtype, [high, 3]) == [-1, 3]
    quotients = elementwise("A[v] // B[v]", dtype, [low, 5, -7], [-1, 0, 2])
    assert quotients == [low, 0, -4]
    assert elementwise("A[v] % B[v]", dtype, [low, 5, -7], [-1, 0, 2]) == [0, 0, 1]
    assert elementwise("T.truncdiv(A[v], B[v])", dtype, [low, 5, -7], [-1, 0, 2]) == [low, 0, -3]
    assert elementwise("T.truncmod(A[v], B[v])", dtype, [low, 5, -7], [-1, 0, 2]) == [0, 0, -1]


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_unsigned_integers_wrap(dtype: str) -> None:
    high = int(np.iinfo(dtype).max)
    assert elementwise("A[v] - B[v]", dtype, [0, 3], [1, 1]) == [high, 2]
    assert elementwise("A[v] // B[v]", dtype, [high, 3], [0, 2]) == [0, 1]


def test_halves_round_after_each_operation() -> None:
    text = "A[v] * T.{0}(3) / T.{0}(3)"
    assert elementwise(text.format("float16"), "float16", [65504, 2]) == [float("inf"), 2]
    assert elementwise("A[v] + B[v] - A[v]", "float16", [2048], [1]) == [0]
    assert elementwise("A[v] + B[v] - A[v]", "bfloat16", [256, 4], [1, 1]) == [0, 1]


EMPTY = """
@T.prim_func
def main(A: T.Buffer((2, 3), "float32"), B: T.Buffer((2,), "float32")):
    for k in T.serial({first}):
        for i in T.serial(2):
            for l in T.serial({second}):
                with T.block("B"):
                    vi = T.axis.spatial(2, i)
                    vk, vl = T.axis.remap("RR", [k, l])
                    {where}
                    with T.init():
                        B[vi] = T.float32(5)
                    B[vi] = B[vi] + A[vi, vk + vl]
"""


@pytest.mark.parametrize(
    ("first", "second", "where", "expected"),
    [
        (0, 2, "T.reads(A[vi, 0:3])", [5, 5]),
        (2, 0, "T.reads(A[vi, 0:3])", [5, 5]),
        (0, 0, "T.where(i < 1)", [5, 9]),
        (2, 1, "T.reads(A[vi, 0:3])", [7, 7]),
        (2, 0, "T.where(k < 5 and i < 1)", [5, 9]),
    ],
)
def test_a_reduction_over_nothing_is_what_it_starts_with(
    first: int, second: int, where: str, expected: list[float]
) -> None:
    text = EMPTY.format(first=first, second=second, where=where)
    for function in (numpy_function(text), lambda *arrays: run(parse(text), *arrays)):
        result = np.full(2, 9, "float32")
        function(np.ones((2, 3), "float32"), result)
        assert result.tolist() == expected


MODULE = """
@I.ir_module
class Module:
    @T.prim_func
    def double(a: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        for i in T.serial(n):
            with T.block("double"):
                v = T.axis.spatial(n, i)
                A[v] = A[v] * T.float32(2)

    @T.prim_func
    def main(B: T.Buffer((4,), "float32")):
        T.evaluate(T.call_extern("double", B.data, T.int64(4), dtype="int32"))
"""


def test_functions_call_each_other() -> None:
    array = np.arange(4, dtype="float32")
    numpy_function(MODULE)(array)
    assert array.tolist() == [0, 2, 4, 6]


def test_what_is_not_covered_says_so() -> None:
    with pytest.raises(NotCovered, match="lattice"):
        elementwise("T.lattice(A[v])", "int32", [1])


def agree(program: Program) -> None:
    text, func = program.text(), program.build()
    for dims in program.sizes():
        ours, theirs = program.arrays(1, dims), program.arrays(1, dims)
        numpy_function(text)(*ours)
        run(func, *theirs)
        for a, b in zip(ours, theirs):
            assert np.array_equal(a, b) or (not program.exact and np.allclose(a, b, 2e-4, 2e-4))


@few("label", sorted(PROGRAMS), every=4)
def test_oracle_and_interpreter_agree_on_hard_programs(label: str) -> None:
    agree(hard_program(random.Random(label), label, label))


@pytest.mark.parametrize("part", range(4))
def test_oracle_and_interpreter_agree_on_random_programs(part: int) -> None:
    for seed in range(15):
        agree(generate(f"oracle-{part}-{seed}"))


def test_a_session_notices_that_they_disagree(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*arrays: Any) -> None:
        arrays[-1][...] = 99

    monkeypatch.setattr(watched, "numpy_function", lambda text: wrong)
    with pytest.raises(Fault) as caught:
        Session(generate(1)).check_start()
    assert caught.value.kind == "oracle"


def test_sizes_that_show_what_memory_held_before_are_not_compared() -> None:
    unwritten = """
@T.prim_func
def main(a: T.handle, Z: T.Buffer((1,), "float32")):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.alloc_buffer((1,), "float32")
    for i in range(n):
        with T.block("B"):
            v = T.axis.spatial(n, i)
            B[0] = A[v]
    Z[0] = B[0]
"""
    results = [np.zeros(1, "float32") for _ in FILLS]
    for fill, result in zip(FILLS, results):
        numpy_function(unwritten, fill=fill)(np.zeros(0, "float32"), result)
    assert results[0] != results[1]
