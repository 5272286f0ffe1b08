"""Functions that update a copy of an operand are called as the update alone."""

# ruff: noqa: F821
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import agree, graph_of, random, values
from tilewright import relax, script
from tilewright.ir import IRModule
from tilewright.relax import op
from tilewright.relax import transform as t
from tilewright.script import ir as I
from tilewright.script import relax as R
from tilewright.script import tir as T

PLACES = np.array([[4], [1], [-6], [9]], "int64")


def rewritten(body: Any, *arrays: np.ndarray) -> IRModule:
    mod = t.LegalizeOps()(graph_of(body, *arrays))
    made = t.DeadCodeElimination()(t.UpdateInPlace()(mod))
    agree(mod, made, *arrays)
    return made


def scatter(x: Any, i: Any, v: Any) -> Any:
    return op.scatter_nd(x, i, v, "add")


def test_the_update_is_left() -> None:
    made = rewritten(scatter, random(6, 3), PLACES, random(4, 3, seed=1))
    assert values(made) == ["scatter_nd_inplace"]
    text = made.script()
    assert 'T.block("scatter_nd_data")' not in text and "inplace_indices=(0,)" in text
    script.parse(text)
    assert t.UpdateInPlace()(made) is made


@pytest.mark.parametrize("rows", [0, 1, 6])
def test_results_are_the_same(rows: int) -> None:
    arrays = random(rows, 3), PLACES, random(4, 3, seed=1)
    mod = graph_of(scatter, *arrays)
    expected = np.asarray(relax.interpreter.run(mod, *arrays))
    executable = relax.build(mod)
    given = arrays[0].copy()
    np.testing.assert_allclose(executable(*arrays).numpy(), expected, rtol=1e-6)
    np.testing.assert_array_equal(arrays[0], given)
    executable["main"].run_into([given, *arrays[1:]], [given])
    np.testing.assert_allclose(given, expected, rtol=1e-6)


def test_several_updates_of_one_memory() -> None:
    def body(x: Any, i: Any, v: Any) -> Any:
        return scatter(scatter(op.exp(x), i, v), i, op.negative(v))

    arrays = random(6, 3), PLACES, random(4, 3, seed=1)
    executable = relax.build(graph_of(body, *arrays))
    assert executable.planned is not None
    assert "copy" not in values(executable.planned)
    np.testing.assert_allclose(executable(*arrays).numpy(), np.exp(arrays[0]), rtol=1e-4)


def test_an_operand_that_is_given_twice_is_copied() -> None:
    x = random(4, 3)

    def body(x: Any, i: Any) -> Any:
        return scatter(x, i, x)

    mod = graph_of(body, x, PLACES)
    executable = relax.build(mod)
    expected = np.asarray(relax.interpreter.run(mod, x, PLACES))
    np.testing.assert_allclose(executable(x, PLACES).numpy(), expected, rtol=1e-6)
    assert executable.overwritable["main"] == ()


@I.ir_module
class Others:
    """Functions that do more with the operand, or less than copy it."""

    @T.prim_func
    def reads_it(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("copy"):
                v = T.axis.spatial(8, i)
                y[v] = x[v]
        for i in range(4):
            with T.block("update"):
                v = T.axis.spatial(4, i)
                y[v] = x[v + 4]

    @T.prim_func
    def copies_half(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        for i in range(4):
            with T.block("copy"):
                v = T.axis.spatial(4, i)
                y[v] = x[v]
        for i in range(4):
            with T.block("rest"):
                v = T.axis.spatial(4, i)
                y[v + 4] = T.float32(1)

    @T.prim_func
    def turns_it(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("copy"):
                v = T.axis.spatial(8, i)
                y[7 - v] = x[v]
        for i in range(2):
            with T.block("update"):
                v = T.axis.spatial(2, i)
                y[v] = T.float32(1)

    @T.prim_func
    def writes_before(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        for i in range(2):
            with T.block("update"):
                v = T.axis.spatial(2, i)
                y[v] = T.float32(1)
        for i in range(8):
            with T.block("copy"):
                v = T.axis.spatial(8, i)
                y[v] = x[v]

    @T.prim_func
    def only_copies(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("copy"):
                v = T.axis.spatial(8, i)
                y[v] = x[v]

    @T.prim_func
    def has_a_schedule(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        T.func_attr({"tir.is_scheduled": 1})
        for i in range(8):
            with T.block("copy"):
                v = T.axis.spatial(8, i)
                y[v] = x[v]
        for i in range(2):
            with T.block("update"):
                v = T.axis.spatial(2, i)
                y[v] = T.float32(1)

    @R.function
    def main(x: R.Tensor((8,), "float32")):
        with R.dataflow():
            a = R.call_tir(cls.reads_it, (x,), out_sinfo=R.Tensor((8,), "float32"))
            b = R.call_tir(cls.copies_half, (a,), out_sinfo=R.Tensor((8,), "float32"))
            c = R.call_tir(cls.turns_it, (b,), out_sinfo=R.Tensor((8,), "float32"))
            d = R.call_tir(cls.writes_before, (c,), out_sinfo=R.Tensor((8,), "float32"))
            e = R.call_tir(cls.only_copies, (d,), out_sinfo=R.Tensor((8,), "float32"))
            f = R.call_tir(cls.has_a_schedule, (e,), out_sinfo=R.Tensor((8,), "float32"))
            R.output(f)
        return f


def test_what_stays() -> None:
    assert t.UpdateInPlace()(Others) is Others


@I.ir_module
class Namesakes:
    """A library's function has the name of one of the module, another one that made of it."""

    @T.prim_func
    def update(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("copy"):
                v = T.axis.spatial(8, i)
                y[v] = x[v]
        for i in range(2):
            with T.block("update"):
                v = T.axis.spatial(2, i)
                y[v] = T.float32(1)

    @T.prim_func
    def update_inplace(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("negative"):
                v = T.axis.spatial(8, i)
                y[v] = -x[v]

    @R.function
    def main(x: R.Tensor((8,), "float32")):
        with R.dataflow():
            a = R.call_tir(cls.update, (x,), out_sinfo=R.Tensor((8,), "float32"))
            b = R.call_tir(R.ExternFunc("update"), (a,), out_sinfo=R.Tensor((8,), "float32"))
            c = R.call_tir(cls.update_inplace, (b,), out_sinfo=R.Tensor((8,), "float32"))
            d = R.call_tir(R.ExternFunc("update"), (c,), out_sinfo=R.Tensor((8,), "float32"))
            e = R.call_tir(cls.update, (d,), out_sinfo=R.Tensor((8,), "float32"))
            R.output(e)
        return e


def test_a_library_function_of_the_same_name_stays() -> None:
    made = t.UpdateInPlace()(Namesakes)
    calls = [binding.value for binding in made["main"].bindings]
    names = [call.args[0].name for call in calls]
    new = names[0]
    assert new not in ("update", "update_inplace")
    assert names == [new, "update", "update_inplace", "update", new]
    kinds = [call.op_name for call in calls]
    assert kinds == ["call_tir_inplace", "call_tir", "call_tir", "call_tir", "call_tir_inplace"]
    assert [type(call.args[0].callee).__name__ for call in calls[1:4:2]] == ["ExternFunc"] * 2
    assert made["update_inplace"] is Namesakes["update_inplace"]
