"""BlockBuilder, verification and struct info."""

from __future__ import annotations

import numpy as np
import pytest

from tests.relax.helpers import graph, symbol, tensor
from tilewright import relax, te, topi
from tilewright.relax import interpreter, op
from tilewright.support.errors import VerifyError
from tilewright.tir import PrimFunc


def test_nested_operands_are_bound_first() -> None:
    mod = graph(lambda x: op.exp(op.negative(op.sqrt(x))), tensor((4,)))
    assert [binding.var.name for binding in mod["main"].bindings] == ["lv", "lv1", "gv"]
    assert isinstance(mod["main"].bindings[0].var, relax.DataflowVar)
    assert not isinstance(mod["main"].bindings[2].var, relax.DataflowVar)


def test_emit_te() -> None:
    builder = relax.BlockBuilder()
    n = symbol("n")
    x = relax.Var("x", tensor((n, 3)))
    with builder.function("main", [x]):
        with builder.dataflow():
            doubled = builder.emit_te(lambda a: te.compute(a.shape, lambda i, j: a[i, j] * 2.0), x)
            out = builder.emit_output(
                builder.call_te(topi.concatenate, [x, doubled], axis=1, primfunc_name_hint="join")
            )
        builder.emit_func_output(out)
    mod = builder.get()
    relax.verify_graph(mod)
    assert isinstance(mod["join"], PrimFunc)
    assert out.struct_info.shape[1].value == 6
    array = np.arange(6, dtype="float32").reshape(2, 3)
    np.testing.assert_array_equal(
        interpreter.run(mod, array), np.concatenate([array, array * 2], 1)
    )


def test_calls_of_one_key_share_what_is_made() -> None:
    made: list[object] = []

    def scaled_sum(a: te.Tensor, b: te.Tensor, factor: float) -> te.Tensor:
        made.append((a, b, factor))
        return te.compute(a.shape, lambda *i: a(*i) + b(*i) * factor, name="scaled_sum")

    builder = relax.BlockBuilder()
    x, y = relax.Var("x", tensor((3, 2))), relax.Var("y", tensor((3, 2)))
    z = relax.Var("z", tensor((symbol("n"), 2)))

    def call(a, b, factor):
        return builder.emit(builder.call_te(scaled_sum, a, b, factor, primfunc_key="scaled_sum"))

    with builder.function("main", [x, y, z]):
        with builder.dataflow():
            first = call(x, y, 2.0)
            again = call(first, x, 2.0)
            assert len(made) == 1
            square = call(again, again, 2.0)  # one operand: another function
            other = call(square, y, 3.0)
            assert len(made) == 3
            builder.emit_output(call(call(z, z, 2.0), z, 2.0))
            assert len(made) == 5  # extents that aren't known can't be told apart
            builder.emit_output(other)
            out = builder.emit_output(call(other, y, 2))  # 2 is another factor than 2.0
        builder.emit_func_output(out)
    assert len(made) == 6
    mod = builder.get()
    relax.verify_graph(mod)
    a, b = (np.arange(6, dtype="float32").reshape(3, 2) + i for i in range(2))
    found = interpreter.run(mod, a, b, np.zeros((4, 2), "float32"))
    np.testing.assert_array_equal(found, 9 * a + 11 * b)


def test_multiple_outputs() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", tensor((4, 2)))
    with builder.function("main", [x]):
        pair = builder.emit(op.split(x, 2))
        total = builder.emit(op.add(pair[0], pair[1]))
        builder.emit_func_output(relax.Tuple((total, pair[1])))
    mod = builder.get()
    array = np.arange(8, dtype="float32").reshape(4, 2)
    first, second = relax.build(mod, schedule=None)(array)
    np.testing.assert_array_equal(first, array[:2] + array[2:])
    np.testing.assert_array_equal(second, array[2:])


def test_match_cast_defines_and_checks_extents() -> None:
    n, m = symbol("n"), symbol("m")
    builder = relax.BlockBuilder()
    x, y = relax.Var("x", tensor((n, 2))), relax.Var("y", tensor((m,)))
    with builder.function("main", [x, y]):
        flat = builder.emit(op.reshape(x, (-1,)))
        same = builder.match_cast(flat, tensor((m,)))
        out = builder.emit(op.add(same, y))
        builder.emit_func_output(out)
    mod = builder.get()
    relax.verify_graph(mod)
    run = relax.build(mod, schedule=None)
    array = np.arange(6, dtype="float32").reshape(3, 2)
    np.testing.assert_array_equal(run(array, np.ones(6, "float32")), array.reshape(-1) + 1)
    with pytest.raises(RuntimeError, match="match_cast"):
        run(array, np.ones(5, "float32"))


def test_errors_of_use() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", tensor((4,)))
    with pytest.raises(VerifyError, match="outside `with builder"):
        builder.emit(op.exp(x))
    with pytest.raises(VerifyError, match="has no result"), builder.function("main", [x]):
        builder.emit(op.exp(x))
    with pytest.raises(VerifyError, match="belongs inside"), builder.function("main", [x]):
        builder.emit_output(op.exp(x))


def test_verify_finds_unbound_variables() -> None:
    x, y = relax.Var("x", tensor((4,))), relax.Var("y", tensor((4,)))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(op.add(x, y)))
    with pytest.raises(VerifyError, match="uses y, which is not bound"):
        relax.verify_graph(builder.get())


def test_verify_finds_dataflow_variables_that_leave() -> None:
    x = relax.Var("x", tensor((4,)))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            lv = builder.emit(op.exp(x))
        builder.emit_func_output(lv)
    with pytest.raises(VerifyError, match="the result uses lv"):
        relax.verify_graph(builder.get())


def test_struct_info() -> None:
    n = symbol("n")
    assert repr(tensor((n * 2 + n, 4))) == "Tensor(((n * 3), 4), float32)"
    assert not relax.TensorStructInfo(None, "float32", ndim=2).has_shape
    with pytest.raises(VerifyError, match="unknown dtype"):
        tensor((1,), "floaty")
    with pytest.raises(VerifyError, match="ndim is 3"):
        relax.TensorStructInfo((1, 2), "float32", ndim=3)
