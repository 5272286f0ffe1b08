"""Passes as TVM's users write them: they ask for operators by TVM's names."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import tilewright as tvm
from tilewright import IRModule, relax
from tilewright.ir import Op, assert_structural_equal, load_json, save_json, structural_hash
from tilewright.relax.registry import OPERATORS
from tilewright.script import from_source
from tilewright.script import ir as I
from tilewright.script import relax as R
from tilewright.support.errors import TilewrightError, VerifyError


@I.ir_module
class Perceptron:
    @R.function
    def main(
        x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32"), b: R.Tensor((8,), "float32")
    ) -> R.Tensor((4, 8), "float32"):
        with R.dataflow():
            product = R.matmul(x, w)
            moved = R.add(product, b)
            out = R.nn.relu(moved)
            R.output(out)
        return out


@I.ir_module
class Replaced:
    @R.function
    def main(
        x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32"), b: R.Tensor((8,), "float32")
    ) -> R.Tensor((4, 8), "float32"):
        with R.dataflow():
            product = R.matmul(x, w)
            moved = R.subtract(product, b)
            out = R.nn.gelu(moved)
            R.output(out)
        return out


@relax.expr_functor.mutator
class ByOperator(relax.PyExprMutator):
    """Compares operators themselves."""

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if call.op == Op.get("relax.nn.relu"):
            return relax.op.nn.gelu(call.args[0])
        if call.op == tvm.ir.Op.get("relax.add"):
            return relax.op.subtract(*call.args)
        return call


@relax.expr_functor.mutator
class ByName(relax.PyExprMutator):
    """Compares their names, and builds calls by them."""

    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.mod_ = mod

    def transform(self) -> IRModule:
        for global_var, func in self.mod_.functions_items():
            if isinstance(func, relax.Function):
                self.builder_.update_func(global_var, self.visit_expr(func))
        return self.builder_.get()

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if not isinstance(call.op, Op):
            return call
        if call.op.name == "relax.nn.relu":
            return relax.op.nn.gelu(call.args[0])
        if call.op.name == "relax.add":
            return relax.Call(Op.get("relax.subtract"), call.args)
        return call


@tvm.ir.transform.module_pass(opt_level=0, name="ReplaceOperators")
class ReplaceOperators:
    def transform_module(self, mod: IRModule, ctx: Any) -> IRModule:
        return ByName(mod).transform()


@relax.transform.function_pass(opt_level=0)
class ReplaceInFunctions:
    def transform_function(self, func: relax.Function, mod: IRModule, ctx: Any) -> relax.Function:
        return ByOperator(mod).visit_expr(func)  # type: ignore[return-value]


@pytest.mark.parametrize("make", [ReplaceOperators, ReplaceInFunctions])
def test_a_pass_replaces_operators(make: Any) -> None:
    made = make()(Perceptron)
    assert_structural_equal(made, Replaced)


def test_a_visitor_counts_operators_by_name() -> None:
    @relax.expr_functor.visitor
    class Counter(relax.PyExprVisitor):
        def __init__(self) -> None:
            self.names: list[str] = []

        def visit_call_(self, call: relax.Call) -> None:
            self.names.append(call.op.name)
            super().visit_call_(call)

        def visit_op_(self, op: Op) -> None:
            self.names.append(str(op.name))

    counter = Counter()
    counter.visit_expr(Perceptron["main"])
    assert counter.names == [
        name for name in ("relax.matmul", "relax.add", "relax.nn.relu") for _ in range(2)
    ]


@pytest.mark.parametrize("key", list(OPERATORS))
def test_each_operator_is_found_by_its_whole_name(key: str) -> None:
    found = Op.get(f"relax.{key}")
    assert found is OPERATORS.get(key) and isinstance(found, Op)
    assert found.name == f"relax.{key}" and found.name in Op.list_op_names()
    assert pickle.loads(pickle.dumps(found)) is found


@pytest.mark.parametrize(
    "name", ["relax.nn.relo", "nn.relu", "relax.", "relax", "tirx.nn.relu", ""]
)
def test_other_names_are_errors(name: str) -> None:
    with pytest.raises(TilewrightError, match="unknown"):
        Op.get(name)


def test_a_name_that_operators_of_both_kinds_have_is_one_of_each() -> None:
    assert Op.get("exp") is Op.get("tirx.exp") is not Op.get("relax.exp")
    assert Op.get("relax.exp").name == "relax.exp"


def test_text_keys_and_hashes_keep_the_short_name() -> None:
    assert "R.nn.relu(moved)" in Perceptron.script()
    assert '"relax_op": "nn.relu"' in save_json(Perceptron)
    assert_structural_equal(load_json(save_json(Perceptron)), Perceptron)
    assert_structural_equal(from_source(Perceptron.script()), Perceptron)
    assert structural_hash(Perceptron) != structural_hash(Replaced)


def test_operators_of_graphs_are_none_of_loops() -> None:
    with pytest.raises(VerifyError, match="names an operator of the table"):
        tvm.ir.Call.of_fields(Op.get("relax.exp"), (tvm.tir.const(1.0, "float32"),), "float32")


def test_what_is_noted_about_an_operator_is_found() -> None:
    tvm.ir.register_op_attr("relax.nn.relu", "test.noted", 3)
    try:
        assert Op.get("relax.nn.relu").get_attr("test.noted") == 3
        assert not Op.get("relax.nn.relu6").has_attr("test.noted")
    finally:
        Op.get("relax.nn.relu").reset_attr("test.noted")
