"""Calls of tensor functions that write over operands which nothing needs any more."""

# ruff: noqa: F821
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import agree, graph_of, random, values
from tilewright import relax, script
from tilewright.dlight import default_schedule
from tilewright.ir import IRModule, Sequential, assert_structural_equal
from tilewright.relax import op
from tilewright.relax import transform as t
from tilewright.script import ir as I
from tilewright.script import relax as R
from tilewright.script import tir as T
from tilewright.support.errors import VerifyError
from tilewright.target import Target
from tilewright.testing.graphs.check import whole_case
from tilewright.testing.graphs.draw import draw_case
from tilewright.testing.graphs.graph import module_of
from tilewright.tir import Schedule


@I.ir_module
class Before:
    @T.prim_func
    def exp(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("y"):
                v = T.axis.spatial(8, i)
                y[v] = T.exp(x[v])

    @R.function
    def main(x: R.Tensor((8,), "float32")):
        with R.dataflow():
            a = R.call_tir(cls.exp, (x,), out_sinfo=R.Tensor((8,), "float32"))
            b = R.call_tir(cls.exp, (a,), out_sinfo=R.Tensor((8,), "float32"))
            R.output(b)
        return b


@I.ir_module
class After:
    @T.prim_func
    def exp(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("y"):
                v = T.axis.spatial(8, i)
                y[v] = T.exp(x[v])

    @T.prim_func
    def exp_inplace(x: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("y"):
                v = T.axis.spatial(8, i)
                x[v] = T.exp(x[v])

    @R.function
    def main(x: R.Tensor((8,), "float32")):
        with R.dataflow():
            a = R.call_tir(cls.exp, (x,), out_sinfo=R.Tensor((8,), "float32"))
            b = R.call_tir_inplace(
                cls.exp_inplace, (a,), inplace_indices=(0,), out_sinfo=R.Tensor((8,), "float32")
            )
            R.output(b)
        return b


def legal(body: Any, *arrays: np.ndarray) -> IRModule:
    return t.LegalizeOps()(graph_of(body, *arrays))


def test_results_take_the_place_of_operands() -> None:
    made = t.DataflowUseInplaceCalls()(Before)
    assert_structural_equal(made, After)
    assert_structural_equal(script.parse(made.script()), made)
    agree(Before, made, random(8))
    assert t.DataflowUseInplaceCalls()(made) is made
    executable = relax.build(made, "llvm")
    x = random(8)
    np.testing.assert_allclose(executable["main"](x).numpy(), np.exp(np.exp(x)), rtol=1e-5)
    machine = relax.VirtualMachine(executable)
    machine.set_instrument(lambda *_: relax.VMInstrumentReturnKind.NO_OP)
    np.testing.assert_allclose(machine["main"](x).numpy(), np.exp(np.exp(x)), rtol=1e-5)
    assert "workspace" not in t.StaticPlanBlockMemory()(t.CallTIRRewrite()(made)).script()


@pytest.mark.parametrize(
    ("body", "names"),
    [
        # Used later, a parameter, another shape, another order, a reduction, a view of it.
        (lambda x: op.add(op.exp(op.tanh(x)), op.tanh(x)), None),
        (op.exp, ["exp"]),
        (lambda x: op.sum(op.exp(x), [0]), ["exp", "sum"]),
        (lambda x: op.permute_dims(op.exp(x)), ["exp", "permute_dims"]),
        (lambda x: op.matmul(op.exp(x), x), ["exp", "matmul"]),
        (lambda x: op.tanh(op.reshape(op.exp(x), (16,))), ["exp", "reshape", "tanh"]),
        (lambda x: op.nn.softmax(op.exp(x)), None),
    ],
)
def test_what_stays(body: Any, names: list[str] | None) -> None:
    mod = legal(body, random(4, 4))
    made = t.DataflowUseInplaceCalls()(mod)
    if names is not None:
        assert values(made) == names
    agree(mod, made, random(4, 4))


def test_the_operand_may_be_any_and_is_used_once() -> None:
    def body(x: Any, y: Any) -> Any:
        a = op.exp(x)
        b = op.add(y, a)  # over a
        return op.multiply(b, op.add(b, b))  # over the sum, b is needed

    mod = legal(body, random(4, 4), random(4, 4))
    made = t.DataflowUseInplaceCalls()(mod)
    assert values(made) == ["exp", "add_inplace", "add_1", "multiply_inplace"]
    places = [b.value.attrs.get("inplace_indices") for b in made["main"].bindings]
    assert places[1] == (1,) and places[3] in ((0,), (1,))
    agree(mod, made, random(4, 4), random(4, 4, seed=1))


def test_overlapping_tiles_are_not_written_over() -> None:
    sch = Schedule(Before["exp"])
    (loop,) = sch.get_loops("y")
    sch.split(loop, [None, 5], tail="overlap")
    mod = Before.with_function("exp", sch.mod["main"])
    assert "min(" in mod["exp"].script()
    made = t.DataflowUseInplaceCalls()(mod)
    agree(mod, made, random(8))
    assert made is mod


def test_functions_that_take_pointers_stay() -> None:
    @T.prim_func
    def opaque(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("y"):
                v = T.axis.spatial(8, i)
                T.reads(x[v])
                T.writes(y[v])
                y[v] = x[v] + T.call_pure_extern(
                    "other", T.address_of(x[0], dtype="handle"), dtype="float32"
                )

    mod = Before.with_function("exp", opaque)
    assert t.DataflowUseInplaceCalls()(mod) is mod


def test_scheduled_functions_keep_their_schedule() -> None:
    target = Target("llvm -mcpu=haswell")
    mod = legal(lambda x, w: op.tanh(op.exp(op.matmul(x, w))), random(16, 16), random(16, 16))
    mod = default_schedule(target)(mod)
    made = t.DataflowUseInplaceCalls()(mod)
    assert values(made)[1:] == ["exp_inplace", "tanh_inplace"]
    assert made["exp_inplace"].attrs["tir.is_scheduled"]
    arrays = random(16, 16), random(16, 16, seed=1)
    agree(mod, made, *arrays, tolerance=1e-4)
    schedule = Sequential([default_schedule(Target("native")), t.DataflowUseInplaceCalls()])
    found = relax.build(t.LegalizeOps()(mod), schedule=schedule)["main"](*arrays).numpy()
    np.testing.assert_allclose(found, np.tanh(np.exp(arrays[0] @ arrays[1])), rtol=1e-3)


def test_parameters_and_views_are_copied_first() -> None:
    module = After.with_function("main", After["main"])
    block = module["main"].body.blocks[0]
    call = block.bindings[1].value
    x = module["main"].params[0]
    direct = call.replace(args=(call.args[0], relax.Tuple((x,))))
    binding = block.bindings[1].replace(value=direct)
    body = module["main"].body.replace(blocks=(block.replace(bindings=(binding,)),))
    module = module.with_function("main", module["main"].replace(body=body))
    x_array = random(8)
    kept = x_array.copy()
    found = relax.build(module, "llvm")["main"](x_array).numpy()
    np.testing.assert_allclose(found, np.exp(kept), rtol=1e-5)
    np.testing.assert_array_equal(x_array, kept)


def test_wrong_calls_are_refused() -> None:
    gvar = After["main"].bindings[1].value.args[0].callee
    x = relax.Var("x", relax.TensorStructInfo((8,)))
    info = relax.TensorStructInfo((8,))
    for places, infos, message in (
        ([0, 0], [info] * 2, "different positions of arguments"),
        ([1], [info], "different positions of arguments"),
        ([-1], [info], "different positions of arguments"),
        ([0], [info] * 2, "2 outputs need as many inplace_indices"),
        (0, relax.TensorStructInfo((9,)), "in place of argument 0"),
    ):
        with pytest.raises(VerifyError, match=message):
            op.call_tir_inplace(gvar, (x,), places, infos)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [1, 2, 6])
def test_random_graphs_keep_their_meaning(seed: int) -> None:
    case = whole_case(draw_case(f"partitions-{seed}"))
    mod = relax.get_pipeline("zero")(
        module_of(case.inputs, case.constants, case.steps, case.outputs)
    )
    arrays = [np.asarray(case.given[0][value]) for value in case.inputs]
    made = t.DataflowUseInplaceCalls()(mod)
    agree(mod, made, *arrays)


@I.ir_module
class NeededLater:
    """The operand of each call in place is used again: later, by another name, or beside it."""

    @T.prim_func
    def double(x: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("x"):
                v = T.axis.spatial(8, i)
                x[v] = x[v] * 2.0

    @T.prim_func
    def mirrored(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("x"):
                v = T.axis.spatial(8, i)
                x[v] = x[v] + y[7 - v]

    @R.function
    def main(x: R.Tensor((8,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            held = (a, x)
            view = R.reshape(a, (2, 4))
            b = R.call_tir_inplace(
                cls.double, (a,), inplace_indices=[0], out_sinfo=R.Tensor((8,), "float32")
            )
            item = held[0]
            c = R.exp(b)
            d = R.call_tir_inplace(
                cls.mirrored, (c, c), inplace_indices=[0], out_sinfo=R.Tensor((8,), "float32")
            )
            e = R.tanh(x)
            f = R.call_tir_inplace(
                cls.double, (e,), inplace_indices=[0], out_sinfo=R.Tensor((8,), "float32")
            )
            g = R.add(R.add(item, d), f)
            R.output(b, e, g, view)
        return (b, e, g, view)


def test_operands_that_are_needed_are_copied_first() -> None:
    x = random(8)
    want = relax.interpreter.run(NeededLater, x)
    for found, right in zip(relax.build(NeededLater, "llvm")["main"](x), want):
        np.testing.assert_allclose(found.numpy(), right, rtol=1e-5)


def test_values_that_are_merged_are_not_written_over() -> None:
    block = Before["main"].body.blocks[0]
    again = block.bindings[0].replace(var=relax.DataflowVar("c", block.bindings[0].var.struct_info))
    over = After["main"].bindings[1].value
    b = relax.DataflowVar("b", again.var.struct_info)
    both = relax.Var("both", again.var.struct_info)
    bindings = (
        block.bindings[0],
        again.replace(
            var=b, value=over.replace(args=(over.args[0], relax.Tuple((block.bindings[0].var,))))
        ),
        again,
        again.replace(var=both, value=op.add(b, again.var)),
    )
    body = Before["main"].body.replace(blocks=(block.replace(bindings=bindings),), body=both)
    mod = After.with_function("main", Before["main"].replace(body=body))
    merged = t.EliminateCommonSubexpr()(mod)
    assert values(merged) == ["exp", "exp_inplace", "add"]
    x = random(8)
    found = relax.build(merged, "llvm")["main"](x).numpy()
    np.testing.assert_allclose(found, np.exp(np.exp(x)) + np.exp(x), rtol=1e-5)
