"""Analyses of graphs: what is known of values, what uses what, whether all is well formed."""

# ruff: noqa: F821

from __future__ import annotations

from typing import Any

import pytest

from tests.relax.helpers import graph, shown, symbol, tensor
from tilewright import relax
from tilewright.ir import GlobalVar, IRModule
from tilewright.relax import (
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    analysis,
    op,
)
from tilewright.relax import transform as t
from tilewright.relax.analysis import BaseCheckResult as R_
from tilewright.script import ir as I
from tilewright.script import relax as R
from tilewright.script import tir as T
from tilewright.support.errors import VerifyError

n, m = symbol("n"), symbol("m")
ANY, UNKNOWN = ObjectStructInfo(), TensorStructInfo(None, "float32")


@pytest.mark.parametrize(
    ("base", "derived", "result"),
    [
        (ANY, tensor((4,)), R_.PASS),
        (tensor((4,)), ANY, R_.FAIL_L1),
        (tensor((4,)), ShapeStructInfo((4,)), R_.FAIL_L0),
        (tensor((n, 4)), tensor((n, 4)), R_.PASS),
        (tensor((n * 2,)), tensor((n + n,)), R_.PASS),
        (tensor((n, 4)), tensor((m, 4)), R_.FAIL_L2),
        (tensor((n,)), tensor((n + 1,)), R_.FAIL_L0),
        (tensor((4,)), tensor((4,), "float16"), R_.FAIL_L0),
        (tensor((4,)), tensor((4, 1)), R_.FAIL_L0),
        (UNKNOWN, tensor((4,)), R_.PASS),
        (tensor((4,)), UNKNOWN, R_.FAIL_L1),
        (tensor((4,)), TensorStructInfo(None, "float32", ndim=1), R_.FAIL_L2),
        (TensorStructInfo(None, "float32", ndim=1), tensor((4,)), R_.PASS),
        (ShapeStructInfo((n, 4)), ShapeStructInfo((n, 5)), R_.FAIL_L0),
        (PrimStructInfo("int64"), PrimStructInfo("int64", n), R_.PASS),
        (PrimStructInfo("int64", n), PrimStructInfo("int64"), R_.FAIL_L2),
        (PrimStructInfo("int64"), PrimStructInfo("int32"), R_.FAIL_L0),
        (TupleStructInfo((tensor((4,)),)), TupleStructInfo(()), R_.FAIL_L0),
        (TupleStructInfo((ANY, tensor((n,)))), TupleStructInfo((ANY, tensor((m,)))), R_.FAIL_L2),
        (FuncStructInfo((UNKNOWN,), ANY), FuncStructInfo((ANY,), UNKNOWN), R_.PASS),
        (FuncStructInfo((ANY,), ANY), FuncStructInfo((UNKNOWN,), ANY), R_.FAIL_L1),
        (FuncStructInfo((ANY,), ANY), FuncStructInfo((ANY,), ANY, False), R_.FAIL_L0),
        (FuncStructInfo.opaque_func(), FuncStructInfo((ANY,), UNKNOWN), R_.PASS),
        (FuncStructInfo((ANY,), ANY, False), FuncStructInfo.opaque_func(), R_.FAIL_L1),
    ],
)  # fmt: skip
def test_struct_infos_are_compared(base: StructInfo, derived: StructInfo, result: R_) -> None:
    assert analysis.struct_info_base_check(base, derived) is result


@pytest.mark.parametrize(
    ("a", "b", "joined"),
    [
        (tensor((n, 4)), tensor((n, 4)), "Tensor((n, 4), float32)"),
        (tensor((n, 4)), tensor((m, 4)), "Tensor(ndim=2, float32)"),
        (tensor((4,)), tensor((4, 4)), "Tensor(ndim=-1, float32)"),
        (tensor((4,)), tensor((4,), "int64"), "Object"),
        (ShapeStructInfo((4, n)), ShapeStructInfo((4, m)), "Shape(ndim=2)"),
        (PrimStructInfo("int64", n), PrimStructInfo("int64", m), "Prim(int64)"),
        (
            TupleStructInfo((tensor((n,)), ANY)),
            TupleStructInfo((tensor((n,)), UNKNOWN)),
            "Tuple(Tensor((n,), float32), Object)",
        ),
        (TupleStructInfo((ANY,)), TupleStructInfo(()), "Object"),
        (FuncStructInfo((ANY,), UNKNOWN), FuncStructInfo((), UNKNOWN), None),
    ],
)
def test_struct_infos_are_joined(a: StructInfo, b: StructInfo, joined: str | None) -> None:
    found = analysis.struct_info_lca(a, b)
    assert repr(found) == (joined or "Callable((...) -> Tensor(ndim=-1, float32))")
    for info in (a, b):
        assert analysis.struct_info_base_check(found, info) is R_.PASS


def test_struct_infos_forget_what_is_unknown() -> None:
    info = TupleStructInfo((tensor((n, m)), ShapeStructInfo((n,)), PrimStructInfo("int64", m)))
    erased = analysis.erase_to_well_defined(info, {n: n + 1})
    assert repr(erased) == "Tuple(Tensor(ndim=2, float32), Shape(((n + 1),)), Prim(int64))"
    assert analysis.tir_vars_in_struct_info(info) == [n, m]
    assert analysis.definable_tir_vars_in_struct_info(tensor((n, m * 2))) == [n]
    assert repr(analysis.collect_non_negative_expressions(tensor((n * 2, 4, n + n, m)))) == (
        "[(n * 2), m]"
    )
    with pytest.raises(VerifyError, match="var_map must be empty"):
        analysis.erase_to_well_defined(info, {}, {n: n})


def call(*infos: StructInfo) -> relax.Call:
    args = tuple(relax.Var("x", info) for info in infos)
    return relax.Call(GlobalVar("f"), args, {}, (ANY,))


def test_results_of_calls_are_derived() -> None:
    takes = FuncStructInfo((tensor((n, 4)), tensor((n,))), TupleStructInfo((tensor((n * 2,)), ANY)))
    found = analysis.derive_call_ret_struct_info(takes, call(tensor((3, 4)), tensor((3,))))
    assert repr(found) == "Tuple(Tensor((6,), float32), Object)"
    part = FuncStructInfo((tensor((n, 4)),), tensor((n, m)))
    found = analysis.derive_call_ret_struct_info(
        part, call(TensorStructInfo(None, "float32", ndim=2))
    )
    assert repr(found) == "Tensor(ndim=2, float32)"
    found = analysis.derive_call_ret_struct_info(FuncStructInfo.opaque_func(ret=UNKNOWN), call())
    assert found is UNKNOWN or repr(found) == repr(UNKNOWN)
    with pytest.raises(VerifyError, match="takes 2 arguments, got 1"):
        analysis.derive_call_ret_struct_info(takes, call(ANY))
    with pytest.raises(VerifyError, match=r"argument 1 of f must be Tensor\(\(3,\), float32\)"):
        analysis.derive_call_ret_struct_info(takes, call(tensor((3, 4)), tensor((5,))))


@I.ir_module
class Sample:
    @T.prim_func
    def double(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("y"):
                v = T.axis.spatial(4, i)
                y[v] = x[v] * 2.0

    @R.function
    def other(x: R.Tensor(("n", 4), "float32")):
        y = R.call(cls.main, (x, x), out_sinfo=R.Tensor((n, 4), "float32"))
        return y

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor(("n", 4), "float32")):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            a = R.exp(w)
            b = R.add(x, a)
            c = R.tanh(a)
            R.output(b, c)
        d = R.call(cls.other, (b,), out_sinfo=R.Tensor((n, 4), "float32"))
        return d

    @R.function
    def leaf(x: R.Tensor((4,), "float32")):
        a = R.call_tir(cls.double, (x,), out_sinfo=R.Tensor((4,), "float32"))
        a_1 = R.exp(a)
        return a_1


def test_functions_that_are_passed_are_looked_up() -> None:
    takes = FuncStructInfo((FuncStructInfo((tensor((4,)),), tensor((4,))),), tensor((2,)))
    passed = relax.Call(GlobalVar("f"), (relax.FunctionRef(GlobalVar("leaf")),), {}, (ANY,))
    builder = relax.BlockBuilder(Sample)
    assert repr(analysis.derive_call_ret_struct_info(takes, passed, builder)) == (
        "Tensor((2,), float32)"
    )
    wrong = passed.replace(args=(relax.FunctionRef(GlobalVar("main")),))
    with pytest.raises(VerifyError, match="argument 0 of f must be Callable"):
        analysis.derive_call_ret_struct_info(takes, wrong, builder)


def test_results_of_emitted_calls_are_derived() -> None:
    builder = relax.BlockBuilder(graph(lambda x: op.concat([x, x], 0), tensor((n, 4))))
    x, y = relax.Var("x", tensor((3, 4))), relax.Var("y", TensorStructInfo(None, "float32", ndim=2))
    with builder.function("caller", [x]):
        made = builder.emit_call("main", x)
        builder.emit_func_output(made)
    assert repr(made.struct_info) == "Tensor((6, 4), float32)"
    relax.verify_graph(builder.get())
    unknown = pytest.raises(VerifyError, match="no argument says what the result of")
    with unknown, builder.function("other", [y]):
        builder.emit_call("main", y)
    too_many = pytest.raises(VerifyError, match="takes 1 arguments, got 2")
    with too_many, builder.function("other", [x]):
        builder.emit_call("main", x, x)


def names(found: Any) -> list[str]:
    return [item.name for item in found]


def test_variables_and_functions_of_a_graph() -> None:
    main, leaf = Sample["main"], Sample["leaf"]
    assert names(analysis.bound_vars(main)) == ["x", "w", "a", "b", "c", "d"]
    assert names(analysis.all_vars(main)) == ["x", "w", "a", "b", "c", "d"]
    assert names(analysis.free_vars(main)) == []
    assert names(analysis.free_vars(main.bindings[1])) == ["x", "a"]
    assert names(analysis.free_vars(main.body)) == ["w", "x"]
    assert names(analysis.all_global_vars(main)) == ["other"]
    assert names(analysis.called_global_vars(leaf)) == ["double"]
    reference = relax.Tuple((relax.FunctionRef(GlobalVar("f")),))
    assert names(analysis.all_global_vars(reference)) == ["f"]
    assert analysis.called_global_vars(reference) == []
    assert names(analysis.defined_symbolic_vars(main)) == ["n"]
    assert analysis.free_symbolic_vars(main) == []
    open_ended = graph(op.exp, tensor((n,)))["main"].replace(params=())
    assert analysis.free_symbolic_vars(open_ended) == [n]


def test_users_and_bindings() -> None:
    main = Sample["main"]
    chain = analysis.udchain(main.body.blocks[0])
    assert {var.name: names(users) for var, users in chain.items()} == {
        "a": ["b", "c"], "b": [], "c": [], "w": ["a"], "x": ["b"],
    }  # fmt: skip
    assert {k: len(v) for k, v in analysis.name_to_binding(main).items()} == dict.fromkeys(
        "abcd", 1
    )
    assert names(analysis.computable_at_compile_time(main)) == ["w", "a", "c"]
    assert analysis.computable_at_compile_time(Sample["leaf"]) == []
    assert [names(group) for group in analysis.detect_recursion(Sample)] == [["other", "main"]]
    seen: list[Any] = []
    analysis.post_order_visit(main, seen.append)
    assert seen[-1] is main and len(seen) == len(set(map(id, seen)))
    assert seen.index(main.bindings[0].value) < seen.index(main.bindings[0])
    unused = shown(IRModule({"main": analysis.remove_all_unused(main)}))
    assert unused == ["a = exp(w)", "b = add(x, a)", "d = other(b)", "return d"]
    kept = analysis.remove_all_unused(main)
    assert analysis.remove_all_unused(kept) is kept


def test_impure_calls() -> None:
    checked = t.CheckShapes()(graph(op.add, tensor((n,)), tensor((m,))))["main"]
    assert analysis.contains_impure_call(checked)
    assert not analysis.contains_impure_call(Sample["main"])
    again = Sample["main"].bindings[-1]
    impure = again.replace(value=again.value.replace(attrs={"pure": False}))
    block = relax.BindingBlock((impure,))
    function = Sample["main"].replace(body=relax.SeqExpr((block,), impure.var))
    assert analysis.contains_impure_call(function)
    assert not analysis.contains_impure_call(function, own_name="other")


def test_well_formed() -> None:
    assert analysis.well_formed(Sample) and analysis.well_formed(Sample["main"]) is False
    mod = graph(op.exp, tensor((4,)))
    assert analysis.well_formed(mod["main"])
    assert not analysis.well_formed(mod["main"].replace(params=()))
    wrong = mod["main"].replace(ret_struct_info=tensor((5,)))
    assert not analysis.well_formed(wrong)
    assert analysis.well_formed(wrong, check_struct_info=False)


@pytest.mark.parametrize(
    ("body", "infos", "same"),
    [
        (lambda x: op.reshape(x, (6, 4)), [(4, 6)], True),
        (lambda x: op.reshape(x, (24,)), [(2, 3, 4)], True),
        (lambda x: op.expand_dims(x, 1), [(4, 6)], True),
        (lambda x: op.reshape(x, (n * 4,)), [(n, 4)], True),
        (op.permute_dims, [(4, 6)], False),
        (op.exp, [(4, 6)], False),
        (op.add, [(4,), (4,)], False),
    ],
)
def test_reshapes_are_recognised(body: Any, infos: Any, same: bool) -> None:
    mod = t.LegalizeOps()(graph(body, *map(tensor, infos)))
    (name,) = (name for name in mod.functions if name != "main")
    assert analysis.has_reshape_pattern(mod[name]) is same


@pytest.mark.parametrize(
    ("size", "rows", "loop"), [((12,), 2, 2), ((n,), 2, 2), ((6,), 2, 1)], ids=str
)
def test_a_copy_of_a_part_is_no_reshape(size: Any, rows: int, loop: int) -> None:
    @T.prim_func
    def part(A: T.Buffer(size, "float32"), B: T.Buffer((rows, 3), "float32")):
        for i, j in T.grid(loop, 3):
            with T.block("b"):
                vi = T.axis.spatial(rows, i)
                vj = T.axis.spatial(3, j)
                B[vi, vj] = A[vi * 3 + vj]

    assert not analysis.has_reshape_pattern(part)


def test_memory_is_estimated() -> None:
    mod = t.LegalizeOps()(graph(lambda x: op.exp(op.tanh(op.exp(op.tanh(x)))), tensor((256,))))
    told = analysis.estimate_memory_usage(mod)
    assert told.endswith(" * Function main:\n   - Without planning, 4 values take 4,096 bytes.")
    planned = t.StaticPlanBlockMemory()(t.CallTIRRewrite()(mod))
    assert analysis.estimate_memory_usage(planned).endswith(
        "   - As planned, they take 3,072 bytes: a workspace of 2,048 bytes and 1 results."
    )
    symbolic = t.LegalizeOps()(graph(op.exp, tensor((n,))))
    assert "1 values take (n * 4) bytes" in analysis.estimate_memory_usage(symbolic["main"])
