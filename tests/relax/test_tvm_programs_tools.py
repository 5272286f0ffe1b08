"""Programs on what surrounds graphs and loops: passes, instruments, TE, patterns, numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relax, te, tir, topi
from tilewright.relax.dpl import PatternContext, is_op, rewrite_bindings, rewrite_call, wildcard
from tilewright.script import ir as I
from tilewright.script import relax as R
from tilewright.script import tirx as T


def run(mod: tvm.IRModule, *arrays: Any) -> Any:
    machine = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())
    return machine["main"](*map(tvm.runtime.tensor, arrays))


def draw(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


def test_global_functions_and_tuples_of_sizes() -> None:
    @tvm.register_global_func("test.tools.add", override=True)
    def add(x: int, y: int) -> int:
        return x + y

    assert tvm.get_global_func("test.tools.add")(1, 2) == 3
    assert tvm.get_global_func("test.tools.none", allow_missing=True) is None
    assert tvm.runtime.convert(lambda x: x * 2)(4) == 8
    sizes = tvm.runtime.ShapeTuple([1, 2, 3])
    assert (sizes[1], len(sizes), tuple(sizes)) == (2, 3, (1, 2, 3))


def add_constant() -> tvm.IRModule:
    x = relax.Var("x", relax.TensorStructInfo((3,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.add(x, relax.const(np.ones(3, "float32"))))
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    return builder.get()


def test_a_context_of_passes() -> None:
    seen: list[str] = []

    @tvm.instrument.pass_instrument
    class Watch:
        def run_before_pass(self, mod: Any, info: Any) -> None:
            seen.append(info.name)

        def should_run(self, mod: Any, info: Any) -> bool:
            return bool(info.name != "FoldConstant")

    passes = [
        relax.transform.FoldConstant(),
        relax.transform.LegalizeOps(),
        relax.transform.FuseOps(),
    ]
    watched = tvm.transform.PassContext(
        opt_level=3, instruments=[Watch()], disabled_pass=["FuseOps"]
    )
    with watched:
        assert tvm.transform.PassContext.current().opt_level == 3
        tvm.transform.Sequential(passes)(add_constant())
    assert "LegalizeOps" in seen and not {"FuseOps", "FoldConstant"} & set(seen)
    assert tvm.transform.PassContext.current().opt_level == 2
    timing = tvm.instrument.PassTimingInstrument()
    with tvm.transform.PassContext(instruments=[timing]):
        relax.transform.LegalizeOps()(add_constant())
        assert "LegalizeOps" in timing.render()


def test_passes_of_a_level_that_is_too_high_are_left_out() -> None:
    @tvm.transform.module_pass(opt_level=3, name="High")
    class High:
        def transform_module(self, mod: Any, ctx: Any) -> Any:
            return mod.with_attr("high", 1)

    for level, attrs in ((2, {}), (3, {"high": 1})):
        with tvm.transform.PassContext(opt_level=level):
            made = tvm.transform.Sequential([High()])(tvm.IRModule())
        assert dict(made.attrs) == attrs


def test_facts_about_numbers() -> None:
    analyzer, n, m = tvm.arith.Analyzer(), te.var("n"), te.var("m")
    assert str(analyzer.simplify((n * 4 + 3) // 4)) == "n"
    analyzer.bind(m, tvm.ir.Range(0, 8))
    assert analyzer.can_prove(m < 8) and not analyzer.can_prove(m < 7)
    bound = analyzer.const_int_bound(m * 2 + 1)
    assert (bound.min_value, bound.max_value) == (1, 15)
    modular = analyzer.modular_set(n * 6 + 2)
    assert (modular.coeff, modular.base) == (6, 2)
    with analyzer.constraint_scope(n > 3):
        assert analyzer.can_prove(n >= 4)
    assert not analyzer.can_prove(n >= 4)
    assert analyzer.can_prove_equal(n + m, m + n)
    assert list(map(int, tvm.arith.detect_linear_equation(n * 2 + m + 1, [n, m]))) == [2, 1, 1]


@T.prim_func
def divide(
    A: T.Buffer((4,), "int32"),
    B: T.Buffer((4,), "int32"),
    C: T.Buffer((4,), "int32"),
    D: T.Buffer((4,), "int32"),
):
    for i in range(4):
        with T.sblock("divide"):
            v = T.axis.spatial(4, i)
            B[v] = T.truncdiv(A[v], 2)
            C[v] = A[v] // 2
            D[v] = T.truncmod(A[v], 3)


def test_divisions_round_as_they_say() -> None:
    a = np.array([-3, 3, -1, 5], "int32")
    b, c, d = np.zeros((3, 4), "int32")
    tvm.compile(divide, target="llvm")(a, b, c, d)
    assert (list(b), list(c), list(d)) == ([-1, 1, 0, 2], [-2, 1, -1, 2], [0, 0, -1, 2])


def test_rows_are_summed_where_a_condition_holds() -> None:
    n = te.var("n")
    a = te.placeholder((n, n), name="A")
    k = te.reduce_axis((0, n), "k")
    b = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="B")
    c = te.compute((n,), lambda i: te.if_then_else(i > 2, b[i], te.const(0, "float32")), name="C")
    built = tvm.compile(te.create_prim_func([a, c]), target="llvm")
    for size in (1, 3, 5):
        given, out = draw(size, size), np.ones(size, "float32")
        built(given, out)
        np.testing.assert_allclose(out, np.where(np.arange(size) > 2, given.sum(1), 0), rtol=1e-5)


def test_a_reducer_of_pairs() -> None:
    def larger(x: Any, y: Any) -> Any:
        first = x[1] >= y[1]
        return te.if_then_else(first, x[0], y[0]), te.if_then_else(first, x[1], y[1])

    argmax = te.comm_reducer(
        larger, lambda t0, t1: (tir.const(-1, t0), te.min_value(t1)), name="argmax"
    )
    index, value = te.placeholder((3, 4), "int32", name="I"), te.placeholder((3, 4), name="V")
    k = te.reduce_axis((0, 4), "k")
    place, best = te.compute((3,), lambda i: argmax((index[i, k], value[i, k]), axis=k), name="T")
    built = tvm.compile(te.create_prim_func([index, value, place, best]), target="llvm")
    given, where, most = draw(3, 4), np.zeros(3, "int32"), np.zeros(3, "float32")
    built(np.tile(np.arange(4, dtype="int32"), (3, 1)), given, where, most)
    np.testing.assert_array_equal(where, given.argmax(1))
    np.testing.assert_array_equal(most, given.max(1))


def test_a_scan_adds_up() -> None:
    x, state = te.placeholder((6, 2), name="X"), te.placeholder((6, 2), name="S")
    init = te.compute((1, 2), lambda _, i: x[0, i])
    update = te.compute((6, 2), lambda t, i: state[t - 1, i] + x[t, i])
    scan = te.scan(init, update, state, inputs=[x])
    given, out = draw(6, 2), np.zeros((6, 2), "float32")
    tvm.compile(te.create_prim_func([x, scan]), target="llvm")(given, out)
    np.testing.assert_allclose(out, given.cumsum(0), rtol=1e-5)


def test_a_builder_takes_te() -> None:
    x = relax.Var("x", relax.TensorStructInfo((2, 3), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            doubled = builder.emit_te(topi.add, x, x)
            positive = builder.emit(relax.op.nn.relu(doubled))
            out = builder.emit_te(
                lambda a: te.compute((2, 3), lambda i, j: a[i, j] * 2, name="twice"),
                positive,
                primfunc_name_hint="mine",
            )
            out = builder.emit_output(out)
        builder.emit_func_output(out)
    mod = builder.get()
    assert {gv.name_hint for gv in mod.get_global_vars()} >= {"main", "mine"}
    given = draw(2, 3)
    np.testing.assert_allclose(run(mod, given).numpy(), np.maximum(given, 0) * 4, rtol=1e-6)


@R.function
def reshaped(x: R.Tensor((2, 3), "float32")):
    with R.dataflow():
        a = R.reshape(x, R.shape([3, 2]))
        b = R.reshape(a, R.shape([6]))
        c = R.add(b, b)
        R.output(c)
    return c


def test_calls_are_rewritten_by_pattern() -> None:
    given, first, second = wildcard(), wildcard(), wildcard()
    inner = is_op("relax.reshape")(given, first)
    outer = is_op("relax.reshape")(inner, second)

    def rewriter(expr: Any, matchings: Any) -> Any:
        return relax.op.reshape(matchings[given], matchings[outer].args[1])

    made = tvm.IRModule({"main": rewrite_call(outer, rewriter, reshaped)})
    made = relax.transform.DeadCodeElimination()(made)
    assert str(made).count("R.reshape") == 1
    x = draw(2, 3)
    np.testing.assert_array_equal(run(made, x).numpy(), 2 * x.ravel())


@R.function
def three(
    x: R.Tensor((2, 4, 8), "float32"),
    u: R.Tensor((8, 5), "float32"),
    v: R.Tensor((8, 5), "float32"),
    w: R.Tensor((8, 5), "float32"),
):
    with R.dataflow():
        a = R.matmul(x, u)
        b = R.matmul(x, v)
        c = R.matmul(x, w)
        out = (a, b, c)
        R.output(out)
    return out


def test_products_of_one_operand_become_one() -> None:
    with PatternContext() as ctx:
        given, weights = wildcard(), [wildcard() for _ in range(3)]
        products = [is_op("relax.matmul")(given, weight) for weight in weights]

        def rewriter(matchings: Any, bindings: Any) -> Any:
            wide = R.concat([matchings[weight] for weight in weights], axis=1)
            whole = R.matmul(matchings[given], wide)
            width = matchings[weights[0]].struct_info.shape[1]
            return {
                matchings[products[n]]: R.strided_slice(
                    whole, axes=[2], begin=[width * n], end=[width * (n + 1)]
                )
                for n in range(3)
            }

        made = rewrite_bindings(ctx, rewriter, three)
    assert made.script().count("R.matmul") == 1
    arrays = [draw(2, 4, 8), *(n * draw(8, 5) for n in (1, 2, 3))]
    for function in (three, made):
        for n, out in enumerate(run(tvm.IRModule({"main": function}), *arrays)):
            np.testing.assert_allclose(out.numpy(), arrays[0] @ arrays[n + 1], rtol=1e-4, atol=1e-5)


@I.ir_module
class Layer:
    @R.function
    def main(x: R.Tensor((1, 8), "float32"), w: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            turned = R.permute_dims(w)
            y = R.matmul(x, turned)
            z = R.nn.gelu(y)
            out = R.add(z, R.const(1.0, "float32"))
            R.output(out)
        return out


def by_map(mod: Any) -> Any:
    rules = {"relax.nn.gelu": lambda bb, call: bb.call_te(topi.nn.relu, call.args[0])}
    return relax.transform.LegalizeOps(rules)(mod)


def by_mutator(mod: Any) -> Any:
    @relax.expr_functor.mutator
    class Rewrite(relax.PyExprMutator):
        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            if call.op == tvm.ir.Op.get("relax.nn.gelu"):
                return relax.op.nn.relu(call.args[0])
            return call

    return tvm.IRModule({"main": Rewrite(mod).visit_expr(mod["main"])})


@pytest.mark.parametrize("way", [by_map, by_mutator])
def test_an_operator_is_replaced(way: Any) -> None:
    x, w = draw(1, 8), draw(4, 8)
    got = run(way(Layer), x, w).numpy()
    np.testing.assert_allclose(got, np.maximum(x @ w.T, 0) + 1, rtol=1e-4)


def test_parameters_are_bound_and_folded() -> None:
    w = draw(4, 8)
    bound = relax.transform.BindParams("main", {"w": tvm.runtime.tensor(w)})(Layer)
    folded = relax.transform.FoldConstant()(bound)
    assert "permute_dims" in str(bound) and "permute_dims" not in str(folded)
    assert relax.analysis.well_formed(folded)
    assert not relax.analysis.free_vars(folded["main"])
    np.testing.assert_allclose(
        run(folded, draw(1, 8)).numpy(), run(Layer, draw(1, 8), w).numpy(), rtol=1e-5
    )
