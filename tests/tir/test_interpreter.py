"""The reference interpreter: what programs mean, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilewright import driver, script, te, tir
from tilewright.ir import Mutator, Var, pre_order
from tilewright.script import tir as T
from tilewright.support.errors import RunError, VerifyError
from tilewright.tir import PrimFunc
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Schedule


def unary(function: object, dtype: str, size: int = 4) -> PrimFunc:
    x = te.placeholder((size,), dtype, "x")
    return te.create_prim_func([x, te.compute((size,), lambda i: function(x[i]), name="y")])  # type: ignore[operator]


def test_narrow_integers_wrap() -> None:
    x = np.array([127, -128, 5, 0], "int8")
    out = np.zeros(4, "int8")
    run(unary(lambda v: v + 1, "int8"), x, out)
    np.testing.assert_array_equal(out, x + np.int8(1))


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_choices_may_have_a_condition_for_each_lane(dtype: str) -> None:
    """Of what isn't chosen nothing is read: the vector ends behind its buffer."""

    @T.prim_func
    def chosen(A: T.Buffer((5,), dtype), B: T.Buffer((8,), dtype)):
        B[0:8] = T.if_then_else(
            T.Ramp(0, 1, 8) < T.Broadcast(5, 8), A[0:8], T.Broadcast(T.Cast(dtype, 9), 8)
        ) + T.Broadcast(T.Cast(dtype, 1), 8)

    a, b = np.arange(5).astype(dtype), np.zeros(8, dtype)
    run(chosen, a, b)
    np.testing.assert_array_equal(b, [1, 2, 3, 4, 5, 10, 10, 10])


def test_integer_division_rounds_down() -> None:
    x = np.array([-7, 7, -1, 0])
    out = np.zeros(4, "int64")
    run(unary(lambda v: v // 2 * 100 + v % 2, "int64"), x, out)
    np.testing.assert_array_equal(out, x // 2 * 100 + x % 2)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "float64"])
def test_stores_round_to_the_dtype(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = np.array([0.1, 1.7, -3.3, 100.0]).astype(kind)
    out = np.zeros(4, kind)
    run(unary(lambda v: v * 3, dtype), x, out)
    expected = (x.astype("float64") * 3).astype(kind)
    np.testing.assert_array_equal(out.astype("float64"), expected.astype("float64"))


@pytest.mark.parametrize("lanes", [1, 8])
def test_doubles_are_rounded_to_halves_once(lanes: int) -> None:
    ties = [1 + 2**-11, 1 + 3 * 2**-11, 65520.0, 2**-25, 2**-24 * 1.5]
    x = np.array([np.nextafter(t, t * s) for t in ties for s in (0.5, 1, 2)])
    x = np.concatenate(
        [x, -x, [0.0, -0.0, 1e300, 1e-320, np.inf, np.nan, 3.4e38, -np.inf, 1 / 3, 7]]
    )
    func = unary(lambda v: v.astype("float16"), "float64", len(x))
    if lanes > 1:
        sch = Schedule(func)
        (loop,) = sch.get_loops(sch.get_block("y"))
        sch.vectorize(sch.split(loop, [None, lanes])[1])
        func = sch.mod["main"]
    with np.errstate(over="ignore"):
        expected = x.astype("float16")
    for function in (lambda *a: run(func, *a), driver.compile(func, "llvm -num-cores=1")):
        out = np.zeros(len(x), "float16")
        function(x, out)
        np.testing.assert_array_equal(out, expected)


def test_casts_of_floats_truncate_and_saturate() -> None:
    x = np.array([1.9, -1.9, 300.5, math.nan], "float32")
    out = np.zeros(4, "uint8")
    run(unary(lambda v: v.astype("uint8"), "float32"), x, out)
    np.testing.assert_array_equal(out, [1, 0, 255, 0])


def test_special_values() -> None:
    x = np.array([0.0, -0.0, math.inf, math.nan], "float32")
    out = np.zeros(4, "float32")
    run(unary(lambda v: 1.0 / v, "float32"), x, out)
    np.testing.assert_array_equal(out, [math.inf, -math.inf, 0.0, math.nan])


def test_rounding_functions() -> None:
    x = np.array([0.5, 1.5, -2.5, 0.49999997], "float32")
    out = np.zeros(4, "float32")
    for function in (tir.op.nearbyint, tir.op.round):
        run(unary(function, "float32"), x, out)
        np.testing.assert_array_equal(out, [0, 2, -2, 0])


def test_reads_out_of_bounds_are_errors() -> None:
    x = te.placeholder((4,), name="x")
    func = te.create_prim_func([x, te.compute((4,), lambda i: x[i + 1], name="y")])
    with pytest.raises(RunError, match="index 4 is outside dimension 0 of x"):
        run(func, np.zeros(4, "float32"), np.zeros(4, "float32"))


def test_memory_read_before_written_is_not_a_number() -> None:
    @T.prim_func
    def func(y: T.Buffer((4,), "float32")):
        buffer = T.alloc_buffer((4,), "float32")
        for i in range(4):
            with T.block("y"):
                vi = T.axis.spatial(4, i)
                y[vi] = buffer[vi]

    out = np.zeros(4, "float32")
    run(func, out)
    assert np.isnan(out).all()


def test_predicates_branches_and_while() -> None:
    @T.prim_func
    def func(y: T.Buffer((8,), "int64")):
        count = T.alloc_buffer((1,), "int64")
        for i in range(8):
            with T.block("y"):
                vi = T.axis.spatial(8, i)
                T.where(i < 6)
                T.reads()
                T.writes(y[vi])
                count[0] = 0
                while count[0] < vi:
                    count[0] = count[0] + 1
                if vi % 2 == 0:
                    y[vi] = count[0]
                else:
                    y[vi] = -count[0]

    out = np.full(8, 9)
    run(func, out)
    np.testing.assert_array_equal(out, [0, -1, 2, -3, 4, -5, 9, 9])


def test_matched_buffers_see_their_part() -> None:
    @T.prim_func
    def func(x: T.Buffer((4, 6), "float32")):
        for i in range(4):
            with T.block("row"):
                vi = T.axis.spatial(4, i)
                T.reads()
                T.writes(x[vi, 2:5])
                part = T.match_buffer(x[vi, 2:5], (3,), "float32")
                for j in range(3):
                    part[j] = T.cast(vi * 10 + j, "float32")

    x = np.zeros((4, 6), "float32")
    run(func, x)
    expected = np.zeros((4, 6))
    expected[:, 2:5] = np.arange(4)[:, None] * 10 + np.arange(3)
    np.testing.assert_array_equal(x, expected)


def test_deep_nests_run() -> None:
    extents = (1, 2, 1) * 9
    x = te.placeholder(extents, name="x")
    func = te.create_prim_func([x, te.compute(extents, lambda *i: x(*i) + 1.0, name="y")])
    values = np.random.default_rng(0).random(extents, "float32")
    out = np.zeros(extents, "float32")
    run(func, values, out)
    np.testing.assert_array_equal(out, values + 1)


def test_arrays_that_are_not_contiguous_are_written_back() -> None:
    whole = np.zeros((4, 2), "float32")
    run(unary(lambda v: v + 1, "float32"), np.arange(8, dtype="float32")[::2], whole[:, 1])
    np.testing.assert_array_equal(whole, [[0, 1], [0, 3], [0, 5], [0, 7]])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((np.zeros(4, "float32"),), "expected 2 arguments, got 1"),
        ((np.zeros(4, "float64"), np.zeros(4, "float32")), "'x': expected float32, got float64"),
        ((np.zeros(5, "float32"), np.zeros(4, "float32")), "'x': expected extent 4"),
        ((np.zeros((4, 1), "float32"), np.zeros(4, "float32")), "'x': expected 1 dimensions"),
        (([0.0] * 4, np.zeros(4, "float32")), "'x': expected a NumPy array, got list"),
    ],
)
def test_wrong_arguments(args: tuple[object, ...], message: str) -> None:
    with pytest.raises(RunError, match=message):
        run(unary(lambda v: v, "float32"), *args)


def test_unknown_intrinsics_are_named() -> None:
    func = unary(lambda v: tir.op.call("call_pure_extern", "sinf", v, dtype="float32"), "float32")
    with pytest.raises(VerifyError, match="doesn't know the intrinsic call_pure_extern"):
        run(func, np.zeros(4, "float32"), np.zeros(4, "float32"))


STRIDED = """
from tilewright.script import tir as T

@T.prim_func
def main(a: T.handle, b: T.handle):
    s = T.int64()
    r = T.int64()
    A = T.match_buffer(a, (4, 3), "float32", strides=(s, r))
    B = T.match_buffer(b, (4, 3), "float32")
    for i, j in T.grid(4, 3):
        with T.block("B"):
            v, w = T.axis.remap("SS", [i, j])
            TO = FROM + 1.0
"""


@pytest.mark.parametrize("lowered", [False, True])
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[3::-1, 2::-1],
        lambda x: x[6::-2, :3],
        lambda x: x[:3, :4].T[::-1],
        lambda x: x[:4, ::2],
        lambda x: x[7:3:-1, 1:4],
    ],
)
def test_arrays_of_negative_strides(view: Any, lowered: bool) -> None:
    memory = np.arange(48, dtype="float32").reshape(8, 6)
    for to, value in (("B[v, w]", "A[v, w]"), ("A[v, w]", "B[v, w]")):
        func = script.parse(STRIDED.replace("TO", to).replace("FROM", value))
        program = driver.lower(func, "llvm -num-cores=1") if lowered else func
        strided, plain = memory.copy(), np.full((4, 3), 7, "float32")
        expected = memory.copy()
        run(program, view(strided), plain)
        if to.startswith("B"):
            np.testing.assert_array_equal(plain, view(memory) + 1)
        else:
            view(expected)[...] = 8
        np.testing.assert_array_equal(strided, expected)


def test_an_empty_array_has_no_last_element() -> None:
    func = script.parse(
        STRIDED.replace("(4, 3)", "(0, 3)")
        .replace("grid(4,", "grid(0,")
        .replace("TO", "B[v, w]")
        .replace("FROM", "A[v, w]")
    )
    run(func, np.zeros((0, 3), "float32")[::-1], np.zeros((0, 3), "float32"))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a", "\uff41"),  # Python takes the wide letter for the same name
        ("\u00b2", "\u2488"),  # digits to some
        ("0", "1"),
        ("x y", "x\ny"),
        ("n" * 5000, "n" * 5001),
        ("class", "None"),
    ],
)
def test_variables_may_have_any_names(first: str, second: str) -> None:
    out = te.compute((3, 4), lambda i, j: i * 10 + j, name="out")
    func = te.create_prim_func([out])
    loops = [node for node in pre_order(func.body) if isinstance(node, tir.For)]
    names = {
        loop.loop_var: Var(name, loop.loop_var.dtype) for loop, name in zip(loops, (first, second))
    }
    func = func.replace(body=_Renamed(names).visit(func.body))
    expected = np.arange(3)[:, None] * 10 + np.arange(4)
    interpreted, compiled = np.zeros((3, 4), "int64"), np.zeros((3, 4), "int64")
    run(func, interpreted)
    driver.compile(func, "llvm -num-cores=1")(compiled)
    np.testing.assert_array_equal(interpreted, expected)
    np.testing.assert_array_equal(compiled, expected)


class _Renamed(Mutator):
    def __init__(self, names: dict[Var, Var]) -> None:
        self.names = names

    def visit_Var(self, node: Var) -> Var:
        return self.names.get(node, node)

    def visit_For(self, node: tir.For) -> tir.For:
        made: tir.For = self.generic_visit(node)
        return made.replace(loop_var=self.names[node.loop_var])


def test_symbols_of_formulas_alone_are_found():
    func = script.parse("""
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n * 4 + 2,), "float32")
    B = T.match_buffer(b, (n * 4,), "float32")
    for i in range(n * 4):
        B[i] = A[i + 2]
""")
    a, b = np.arange(14, dtype="float32"), np.zeros(12, "float32")
    run(func, a, b)
    np.testing.assert_array_equal(b, a[2:])
    with pytest.raises(RunError, match="which is 14, in dimension 0, got 15"):
        run(func, np.zeros(15, "float32"), b)


def test_what_is_compared_is_rounded_before() -> None:
    """What was stored is equal to what it was computed from, computed again."""
    func = script.parse("""
@T.prim_func
def main(A: T.Buffer((2,), "float32"), B: T.Buffer((3,), "float32"), C: T.Buffer((3,), "bool")):
    B[0] = T.sqrt(A[0]) * A[1]
    C[0] = B[0] == T.sqrt(A[0]) * A[1]
    C[1] = B[0] < T.sqrt(A[0]) * A[1] or T.sqrt(A[0]) * A[1] < B[0]
    x: T.float32 = T.sqrt(A[0]) * A[1]
    C[2] = x == B[0]
""")
    for run_it in (lambda *arrays: run(func, *arrays), driver.compile(func)):
        for value in range(2, 40):
            a = np.array([value, 3.1], "float32")
            b, c = np.zeros(3, "float32"), np.zeros(3, "bool")
            run_it(a, b, c)
            assert c.tolist() == [True, False, True]


def test_what_becomes_a_whole_number_is_rounded_before() -> None:
    """(1 + e) (1 - e) is 1 in float32 and less in float64."""
    func = script.parse("""
@T.prim_func
def main(A: T.Buffer((2,), "float32"), B: T.Buffer((1,), "int32")):
    B[0] = T.Cast("int32", A[0] * A[1])
""")
    step = np.float32(2) ** -23
    a, b = np.array([1 + step, 1 - step], "float32"), np.zeros(1, "int32")
    run(func, a, b)
    assert b[0] == 1
    b[0] = 0
    driver.compile(func)(a, b)
    assert b[0] == 1
