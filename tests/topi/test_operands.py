"""Which dtypes functions take: those of floats refuse integers where they are written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import compile, relax, te, tir, topi
from tilewright.ir import Add, Call, Cast, IntImm, Sub, Var, as_expr, as_int, call
from tilewright.ir.op import OPS, UNARY_FLOAT, UNARY_NUMBER
from tilewright.relax import op
from tilewright.script import parse
from tilewright.script import tir as T
from tilewright.support.errors import TilewrightError, VerifyError
from tilewright.tir.analysis import verify
from tilewright.tir.interpreter import run

INTEGERS = ["int8", "int32", "int64", "uint8", "uint64"]


def computed(outputs: Any, *arrays: Any) -> Any:
    """Results of compiled code, after comparing it with the interpreter's."""
    func, x, made = outputs
    prim = te.create_prim_func([x, made])
    first, second = (
        np.zeros([int(n) for n in map(as_int, made.shape)], made.dtype) for _ in range(2)
    )
    compile(prim)(*arrays, first)
    run(prim, *arrays, second)
    np.testing.assert_array_equal(first, second, err_msg=str(func))
    return first


@pytest.mark.parametrize("name", UNARY_FLOAT)
@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_functions_of_floats_refuse_integers(name: str, dtype: str) -> None:
    with pytest.raises(VerifyError, match=f"{name} takes floating-point numbers, got {dtype}"):
        call(name, Var("x", dtype))
    if name in topi.elementwise.UNARY:
        with pytest.raises(VerifyError, match=f"{name} takes floating-point numbers, got {dtype}"):
            topi.elementwise.UNARY[name](te.placeholder((4,), dtype, "x"))


@pytest.mark.parametrize("name", ["pow", "atan2", "fmod", "hypot", "copysign", "nextafter"])
def test_functions_of_two_floats_refuse_integers(name: str) -> None:
    x = Var("x", "int32")
    with pytest.raises(VerifyError, match=f"{name} takes floating-point numbers, got int32"):
        call(name, x, x)
    with pytest.raises(VerifyError, match="fma takes floating-point numbers, got int32"):
        call("fma", x, x, x)
    with pytest.raises(VerifyError, match="truncdiv takes integers, got float32"):
        call("truncdiv", Var("f", "float32"), 2)


def test_numbers_of_python_become_floats() -> None:
    assert call("sqrt", 2).dtype == "float32"
    assert call("pow", Var("x", "float16"), 2).dtype == "float16"
    assert call("pow", Var("f", "float32"), Var("i", "int32")).dtype == "float32"


def test_graphs_and_scripts_refuse_too() -> None:
    x = relax.Var("x", relax.TensorStructInfo((4,), "int32"))
    for build in (op.sqrt, op.exp, lambda v: op.atan2(v, v)):
        with pytest.raises(TilewrightError, match="int32"):
            build(x)
    with pytest.raises(TilewrightError, match="sqrt takes floating-point numbers, got int32"):
        parse(
            "from tilewright.script import tir as T\n"
            "@T.prim_func\n"
            'def main(A: T.Buffer((4,), "int32")):\n'
            "    for i in range(4):\n"
            "        A[i] = T.sqrt(A[i])\n"
        )


def test_nodes_made_by_hand_are_verified() -> None:
    A = tir.decl_buffer((4,), "int32", "A")
    x = A[0]
    wrong = Call.of_fields(OPS.get("sqrt"), (as_expr(x),), "int32")
    store = tir.BufferStore(A, wrong, (IntImm("int64", 0),))
    param = Var("a", "handle")
    with pytest.raises(VerifyError, match="sqrt takes floating-point numbers, got int32"):
        tir.analysis.verify(tir.PrimFunc((param,), store, buffer_map={param: A}))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", [*UNARY_NUMBER, "sign", "isnan", "isfinite"])
def test_integers_are_whole_numbers_already(name: str, dtype: str) -> None:
    info = np.iinfo(dtype)
    values = np.array([0, 1, 5, info.max, info.min, info.min + 1], dtype)
    x = te.placeholder((6,), dtype, "x")
    if name == "isfinite":
        made = te.compute((6,), lambda i: call("isfinite", x[i]).astype("int8"))
    else:
        function = getattr(topi, name, None) or topi.elementwise.UNARY[name]
        made = function(x)
    expected = {
        "abs": np.abs,
        "fabs": np.abs,
        "sign": np.sign,
        "isnan": lambda v: np.zeros(6, bool),
        "isfinite": lambda v: np.ones(6, "int8"),
    }.get(name, lambda v: v)(values)
    np.testing.assert_array_equal(computed((name, x, made), values), expected)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("target", ["native", "llvm -mcpu=x86-64"])
def test_rounding_is_to_even(dtype: str, target: str) -> None:
    values = np.array([0.5, 1.5, 2.5, -0.5, -2.5, 3.49, -0.0, 1024.5] * 4, dtype)
    x = te.placeholder((32,), dtype, "x")
    for made in (topi.round(x), te.compute((32,), lambda i: T.round(x[i]), name="y")):
        prim = te.create_prim_func([x, made])
        sch = tir.Schedule(prim)
        scalar = compile(prim, target)
        sch.vectorize(sch.get_loops(sch.get_child_blocks(sch.get_block("root"))[0])[0])
        found = np.zeros((3, 32), dtype)
        scalar(values, found[0])
        compile(sch.mod, target)(values, found[1])
        run(prim, values, found[2])
        np.testing.assert_array_equal(found, np.broadcast_to(np.round(values), (3, 32)))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("source", ["float32", "float64"])
def test_floats_become_the_nearest_integer(dtype: str, source: str) -> None:
    values = np.array([1.9, -1.9, 300.5, -1e30, 1e30, np.nan, np.inf, -np.inf], source)
    info = np.iinfo(dtype)
    expected = [
        0
        if v != v
        else int(min(max(v, float(info.min)), float(info.max)))
        if abs(v) < 1e9
        else (info.max if v > 0 else info.min)
        for v in values.tolist()
    ]
    x = te.placeholder((8,), source, "x")
    made = te.compute((8,), lambda i: Cast(dtype, x[i]), name="y")
    np.testing.assert_array_equal(computed((dtype, x, made), values), np.array(expected, dtype))


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap_when_they_are_cast(source: str, dtype: str) -> None:
    info = np.iinfo(source)
    values = np.array([0, 1, info.max, info.min, info.max - 5, 127], source)
    x = te.placeholder((6,), source, "x")
    made = te.compute((6,), lambda i: x[i].astype(dtype), name="y")
    np.testing.assert_array_equal(computed((dtype, x, made), values), values.astype(dtype))


TRUTHS = np.array([True, True, False, False]), np.array([True, False, True, False])


def test_sums_of_truth_values_are_disjunctions() -> None:
    """As NumPy's: never parities, compiled or interpreted."""
    x, y = (te.placeholder((4,), "bool", name) for name in "xy")
    for made, expected in (
        (topi.add(x, y), TRUTHS[0] + TRUTHS[1]),
        (te.compute((4,), lambda i: (x[i] + y[i]).astype("int32")), TRUTHS[0] + TRUTHS[1]),
        (te.compute((4,), lambda i: x[i] ^ y[i]), TRUTHS[0] ^ TRUTHS[1]),
        (te.compute((4,), lambda i: call("bitwise_not", x[i]) & y[i]), ~TRUTHS[0] & TRUTHS[1]),
        (topi.sum(x, axis=0, keepdims=True), TRUTHS[0].any(keepdims=True)),
        (topi.cumsum(x, axis=0), np.logical_or.accumulate(TRUTHS[0])),
    ):
        prim = te.create_prim_func([x, y, made])
        for execute in (lambda *args: compile(prim)(*args), lambda *args: run(prim, *args)):  # noqa: B023
            got = np.zeros(expected.shape, made.dtype)
            execute(*TRUTHS, got)
            np.testing.assert_array_equal(got, expected)


def test_sums_of_truth_values_in_graphs_and_text() -> None:
    graph = parse("""
@R.function
def main(x: R.Tensor((4,), "bool"), y: R.Tensor((4,), "bool")):
    z = R.add(R.add(x, y), R.sum(x, axis=[0], keepdims=True))
    return z
""")
    np.testing.assert_array_equal(np.asarray(relax.build(graph)["main"](*TRUTHS)), True)
    text = """
@T.prim_func
def main(A: T.Buffer((4,), "bool")):
    for i in range(4):
        A[i] = A[i] {} A[3 - i]
"""
    data = np.array([True, False, False, True])
    run(parse(text.format("+")), data)
    assert data.tolist() == [True, False, False, True]
    with pytest.raises(TilewrightError, match="`-` needs numbers, got bool"):
        parse(text.format("-"))


def test_truth_values_have_no_differences() -> None:
    x = Var("x", "bool")
    for wrong in (lambda: x - x, lambda: -x, lambda: topi.negative(te.placeholder((4,), "bool"))):
        with pytest.raises(VerifyError, match="`-` needs numbers, got bool"):
            wrong()


def test_verify_refuses_sums_of_truth_values() -> None:
    x = Var("x", "bool")
    for kind in (Add, Sub):
        with pytest.raises(VerifyError, match="is of numbers, not of bool"):
            verify(tir.PrimFunc((x,), tir.Evaluate(kind(x, x))))


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"])
def test_bits_are_of_integers_and_truth_values(name: str) -> None:
    for dtype in ("float32", "bfloat16"):
        x = Var("x", dtype)
        with pytest.raises(VerifyError, match=f"{name} takes integers or truth values, got"):
            call(name, *[x] * (OPS.get(name).arity or 0))
