"""The dialect R: printing and parsing are inverse, errors point at the text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import graph, random, symbol, tensor
from tilewright import relax, script
from tilewright.ir import IRModule, assert_structural_equal
from tilewright.relax import interpreter, op
from tilewright.relax.script import metadata_of
from tilewright.script import ir as I
from tilewright.script import relax as R
from tilewright.script import tir as T
from tilewright.support.errors import ParseError


def round_trip(mod: IRModule) -> str:
    text = mod.script()
    assert_structural_equal(script.parse(text, {"metadata": metadata_of(mod)}), mod)
    return text


def mlp() -> IRModule:
    def body(x: Any, w: Any, b: Any) -> Any:
        hidden = op.nn.relu(op.linear(x, w, b)) * 0.5
        return op.nn.softmax(op.matmul(hidden, relax.const(random(6, 3))), axis=-1)

    return graph(body, tensor((symbol("n"), 4)), tensor((6, 4)), tensor((6,)))


def test_golden_text() -> None:
    mod = graph(lambda x, w: op.nn.relu(op.matmul(x, w)), tensor((symbol("n"), 4)), tensor((4, 3)))
    assert (
        mod.script().split("\n\n\n")[1]
        == """\
@I.ir_module
class Module:
    @R.function
    def main(
        x: R.Tensor(("n", 4), "float32"),
        y: R.Tensor((4, 3), "float32"),
    ) -> R.Tensor(("n", 3), "float32"):
        with R.dataflow():
            lv: R.Tensor((n, 3), "float32") = R.matmul(x, y)
            gv: R.Tensor((n, 3), "float32") = R.nn.relu(lv)
            R.output(gv)
        return gv
"""
    )
    round_trip(mod)


@pytest.mark.parametrize("stage", range(16))
def test_round_trip_after_every_pass(stage: int) -> None:
    passes = [
        *relax.get_pipeline("zero").passes,  # type: ignore[attr-defined]
        *relax.get_pipeline("lower_graph").passes,  # type: ignore[attr-defined]
    ]
    mod = mlp()
    for item in passes[:stage]:
        mod = item(mod)
    round_trip(mod)


def test_every_kind_of_value() -> None:
    n, m = symbol("n"), symbol("m")
    builder = relax.BlockBuilder()
    x = relax.Var("x", tensor((n, 2)))
    k = relax.Var("k", relax.PrimStructInfo("int64", symbol("k")))
    with builder.function("main", [x, k], {"num_input": 1, "names": ("a", "b")}):
        parts = builder.emit(op.split(x, [1], 1))
        flat = builder.emit(op.reshape(parts[0], (-1,)))
        cast = builder.match_cast(flat, tensor((m,)))
        with builder.dataflow():
            lv = builder.emit(op.take(cast, op.arange(0, 4), 0))
            wide = builder.emit(op.strided_slice(x, [0], [0], [1]))
            out = builder.emit_output(relax.Tuple((lv, wide, relax.const(float("inf")))))
        builder.emit_func_output(relax.Tuple((out, cast)))
    mod = builder.get()
    relax.verify_graph(mod)
    text = round_trip(mod)
    assert 'R.match_cast(gv2, R.Tensor(("m",), "float32"))' in text
    assert 'R.const(float("inf"), "float32")' in text


def test_an_element_of_a_tuple_that_is_no_variable() -> None:
    pair = lambda x, y: relax.TupleGetItem(relax.Tuple((x, y)), 0)
    text = round_trip(graph(pair, tensor((2,)), tensor((3,))))
    assert "R.tuple(x, y)[0]" in text
    single = lambda x: relax.TupleGetItem(relax.Tuple((relax.Tuple((x,)),)), 0)
    round_trip(graph(single, tensor((2,))))


def test_several_outputs_and_groups() -> None:
    x = relax.Var("x", tensor((symbol("n"), 4)))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            a, b = (builder.emit(op.split(x, 2, 1)[i]) for i in range(2))
            out = builder.emit_output(op.exp(op.add(a, b)))
        builder.emit_func_output(out)
    mod = builder.get()
    for item in (
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FuseOps(),
    ):
        mod = item(mod)
        text = round_trip(mod)
    assert 'R.func_attr({"Primitive": True})' in text
    assert "R.call(cls.fused_add_exp, (" in text


@I.ir_module
class Written:
    @T.prim_func
    def double(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 4), "float32")
        B = T.match_buffer(b, (n, 4), "float32")
        for i, j in T.grid(n, 4):
            with T.block("double"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 3), "float32")):
        n = T.int64()
        with R.dataflow():
            lv = R.call_tir(Written.double, (x,), out_sinfo=R.Tensor((n, 4), "float32"))
            gv = R.nn.relu(R.matmul(lv, w) + R.const(1.0, "float32"))
            R.output(gv)
        return gv


def test_written_by_hand() -> None:
    relax.verify_graph(Written)
    x, w = random(2, 4), random(4, 3)
    expected = np.maximum(x * 2 @ w + 1, 0)
    np.testing.assert_allclose(interpreter.run(Written, x, w), expected, rtol=1e-5)
    np.testing.assert_allclose(relax.build(Written)(x, w), expected, rtol=1e-5)
    round_trip(Written)


@pytest.mark.parametrize(
    ("body", "message", "line"),
    [
        ("    lv = R.matmul(x, x)\n    return lv", "inner extents differ", 3),
        ("    lv = R.nonsense(x)\n    return lv", "R has no 'nonsense'", 3),
        ("    lv = R.exp(y)\n    return lv", "undefined variable 'y'", 3),
        ("    lv = R.exp(x)", "ends with return", 2),
        ("    for i in range(3):\n        pass\n    return x", "For is not part of", 3),
        (
            "    with R.dataflow():\n        lv, m = R.exp(x)\n    return x",
            "2 names for a value",
            4,
        ),
    ],
)
def test_errors_point_at_the_text(body: str, message: str, line: int) -> None:
    text = f'@R.function\ndef main(x: R.Tensor((2, 3), "float32")):\n{body}\n'
    with pytest.raises(ParseError, match=message) as caught:
        script.parse(text)
    assert f":{line}:" in str(caught.value)


@I.ir_module
class Aliased:
    @T.prim_func
    def negate(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("negate"):
                vi = T.axis.spatial(4, i)
                y[vi] = T.float32(0) - x[vi]

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        module = Aliased
        with R.dataflow():
            inner = module
            lv = R.call_tir(module.negate, (x,), out_sinfo=R.Tensor((4,), "float32"))
            gv = R.call_tir(inner.negate, (lv,), out_sinfo=R.Tensor((4,), "float32"))
            R.output(gv)
        return gv


def test_the_module_may_have_another_name() -> None:
    x = random(4)
    np.testing.assert_array_equal(interpreter.run(Aliased, x), x)
    round_trip(Aliased)
    text = script.script(Aliased).replace(
        "with R.dataflow", "m: R.Object() = cls\n        with R.dataflow"
    )
    with pytest.raises(ParseError, match="cannot use a ModuleReference as a graph value"):
        script.parse(text)


def test_header_needs_annotations() -> None:
    with pytest.raises(ParseError, match="needs an annotation"):
        script.parse("@R.function\ndef main(x):\n    return x\n")
    with pytest.raises(ParseError, match="undefined variable 'n'"):
        script.parse('@R.function\ndef main(x: R.Tensor(("n * m",), "float32")):\n    return x\n')
