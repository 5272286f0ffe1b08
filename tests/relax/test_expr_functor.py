"""Visitors and mutators of graph functions, as passes written for TVM use them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import random, values
from tilewright import relax
from tilewright.ir import GlobalVar, IRModule
from tilewright.relax import op
from tilewright.relax.expr_functor import PyExprMutator, PyExprVisitor, mutator, visitor

INFO = relax.TensorStructInfo((2, 3), "float32")


def example() -> IRModule:
    builder = relax.BlockBuilder()
    x, flag = relax.Var("x", INFO), relax.Var("flag", relax.TensorStructInfo((), "bool"))
    with builder.function("main", [x, flag]):
        with builder.dataflow():
            lv = builder.emit(op.square(x))
            out = builder.emit_output(op.add(lv, relax.const(np.ones((2, 3), "float32"))))
        made = builder.emit_if(flag, lambda: op.square(out), lambda: out)
        pair = builder.emit((made, out))
        builder.emit_func_output(builder.emit(op.maximum(pair[0], pair[1])))
    return builder.get()


@visitor
class Names(PyExprVisitor):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def visit_op_(self, op: Any) -> None:
        self.seen.append(op.name)

    def visit_var_def_(self, var: relax.Var) -> None:
        self.seen.append(f"def {var.name}")

    def visit_dataflow_var_def_(self, var: relax.Var) -> None:
        self.seen.append(f"dataflow {var.name}")

    def visit_generic_const_(self, op: relax.Constant) -> None:
        self.seen.append("const")

    def visit_if_(self, op: relax.If) -> None:
        self.seen.append("if")
        super().visit_if_(op)

    def visit_tuple_getitem_(self, op: relax.TupleGetItem) -> None:
        self.seen.append(f"item {op.index}")


def test_a_visitor_sees_everything_in_order() -> None:
    names = Names()
    names.visit_expr(example()["main"])
    assert names.seen == [
        "def x", "def flag", "relax.square", "dataflow lv", "relax.add", "const", "def gv", "if",
        "relax.square", "def gv1", "def gv2", "def gv3", "item 0", "def gv4", "item 1", "def gv5",
        "relax.maximum", "def gv6",
    ]  # fmt: skip


@mutator
class Squares(PyExprMutator):
    """x * x for square(x), and the new value is looked up."""

    def __init__(self, mod: IRModule | None = None) -> None:
        super().__init__(mod)
        self.found: list[str] = []

    def visit_call_(self, op: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(op)
        if call.op_name == "add":
            self.found.append(self.lookup_binding(call.args[0]).op_name)
        if call.op_name != "square":
            return call
        one = self.builder_.emit(relax.op.abs(call.args[0]), "size")
        return relax.op.multiply(one, one)


def test_a_mutator_rebuilds_blocks_and_branches() -> None:
    mod = example()
    squares = Squares(mod)
    for name, function in mod.functions.items():
        squares.builder_.update_func(GlobalVar(name), squares.visit_expr(function))
    made = squares.builder_.get()
    relax.verify_graph(made)
    assert squares.found == ["multiply"]
    assert "square" not in values(made) and "square" not in made.script()
    kinds = [type(block) for block in made["main"].body.blocks]
    assert kinds == [relax.DataflowBlock, relax.BindingBlock]
    x = random(2, 3)
    for flag in (True, False):
        expected = relax.interpreter.run(mod, x, np.array(flag))
        np.testing.assert_allclose(
            relax.interpreter.run(made, x, np.array(flag)), expected, rtol=1e-6
        )


def test_what_nothing_changes_stays() -> None:
    function = example()["main"]
    assert PyExprMutator().visit_expr(function) is function


@mutator
class Wider(PyExprMutator):
    def visit_var_def_(self, var: relax.Var) -> relax.Var:
        if var.name != "x":
            return var
        return self.with_type(var, relax.TensorStructInfo((4, 3), "float32"))


def test_struct_info_follows_new_parameters() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", INFO)
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(op.exp(builder.emit(op.abs(x)))))
    made = Wider().visit_expr(builder.get()["main"])
    assert [int(n) for n in map(str, made.ret_struct_info.shape)] == [4, 3]
    relax.verify_graph(IRModule({"main": made}))


def test_decorators_are_for_their_classes() -> None:
    with pytest.raises(TypeError, match="subclass of PyExprMutator"):
        mutator(Names)
    with pytest.raises(TypeError, match="subclass of PyExprVisitor"):
        visitor(Squares)
