"""Functions, patterns and passes under TVM's names: what they do."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tests.relax.helpers import graph, random, tensor, values
from tilewright import relax, te
from tilewright.ir import IRModule, Sequential, Var, module_pass
from tilewright.relax import analysis, dpl, op, transform
from tilewright.support.errors import BuildError, VerifyError

X = tensor((2, 6))


def test_types_are_struct_infos() -> None:
    info = relax.TensorType((2, Var("n")), "float16")
    assert isinstance(info, relax.TensorStructInfo)
    pair = relax.TupleType((info, relax.ShapeType([3])))
    erased = analysis.get_static_type(pair)
    assert repr(erased) == "Tuple(Tensor(ndim=2, float16), Shape(ndim=1))"
    assert analysis.type_lca(info, relax.TensorType((2, 3), "float16")).ndim == 2
    assert [var.name for var in analysis.tir_vars_in_type(pair)] == ["n"]
    assert analysis.type_base_check(erased, pair) is analysis.BaseCheckResult.PASS


def test_values() -> None:
    assert relax.prim_value(3).value.dtype == "int64"
    assert relax.prim_value(3.5).value.dtype == "float64"
    assert relax.prim_value(True).value.dtype == "bool"
    assert relax.prim_value(2, "int32").value.dtype == "int32"
    with pytest.raises(VerifyError, match="is of int64, not int32"):
        relax.prim_value(Var("n"), "int32")
    assert relax.extern("f").global_symbol == "f"
    assert isinstance(relax.convert_to_expr([1, 2.0]), relax.Tuple)
    x = relax.Var("x", X)
    assert [int(str(n)) for n in relax.get_shape_of(x).values] == [2, 6]


def test_calls_take_the_names_of_either_generation() -> None:
    x = relax.Var("x", X)
    for call in (
        op.call_pure_packed("f", x, ty_args=X),
        op.call_pure_packed("f", x, sinfo_args=X),
        op.call_dps_packed("f", x, out_ty=X),
        op.call_tir(relax.GlobalVar("f"), (x,), out_ty=X),
        op.call_inplace_packed("f", x, inplace_indices=0, ty_args=X),
    ):
        assert relax.TensorStructInfo((2, 6), "float32").shape == call.struct_info.shape


def test_functions_of_libraries_are_matched() -> None:
    mod = graph(lambda x: op.exp(op.call_pure_packed("f", x, sinfo_args=X)), X)
    call = dpl.wildcard()
    pattern = dpl.is_op("relax.exp")(dpl.is_call_packed("f", [call]))
    made = dpl.rewrite_call(pattern, lambda value, found: op.negative(found[call]), mod["main"])
    assert values(IRModule({"main": made})) == ["negative"]
    assert not any(
        dpl.is_call_packed(name).match(mod["main"].bindings[0].value) for name in ("g", "ff")
    )
    dps = op.call_dps_packed("f", mod["main"].params[0], X)
    assert dpl.is_call_dps_packed("f").match(dps)
    assert dpl.is_call_dps_packed("f", [dpl.wildcard()]).match(dps)
    assert not dpl.is_call_dps_packed("f", [dpl.is_const()]).match(dps)


def test_rewriters_in_order() -> None:
    mod = graph(lambda x: op.exp(op.square(x)), X)
    x = dpl.wildcard()
    first = dpl.ExprPatternRewriter(dpl.is_op("relax.exp")(x), lambda _, found: op.abs(found[x]))
    never = dpl.ExprPatternRewriter(dpl.is_op("relax.square")(x), lambda _, found: None)
    both = first | never
    assert isinstance(both, dpl.OrRewriter) and (both.lhs, both.rhs) == (first, never)
    assert values(both(mod)) == ["square", "abs"]


def test_reshapes_in_a_row() -> None:
    mod = graph(lambda x: op.reshape(op.reshape(op.reshape(x, (12,)), (3, 4)), (2, 6)), X)
    made = transform.RemoveRedundantReshape()(mod)
    assert "reshape" not in values(transform.DeadCodeElimination()(made))
    mod = graph(lambda x: op.exp(op.reshape(op.reshape(x, (12,)), (3, 4))), X)
    made = transform.DeadCodeElimination()(transform.RemoveRedundantReshape()(mod))
    assert values(made) == ["reshape", "exp"]
    array = random(2, 6)
    expected = np.exp(array).reshape(3, 4)
    np.testing.assert_allclose(relax.interpreter.run(made, array), expected, rtol=1e-6)


def test_global_symbols() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", X)
    with builder.function("inner", [x]):
        builder.emit_func_output(builder.emit(op.exp(x)))
    y = relax.Var("y", X)
    with builder.function("main", [y]):
        made = builder.emit_call("inner", y)
        builder.emit_func_output(
            builder.emit_te(lambda a: te.compute(a.shape, lambda i, j: a[i, j] + 1.0), made)
        )
    mod = transform.AttachGlobalSymbol()(builder.get())
    assert mod["main"].attrs["global_symbol"] == "main"
    assert "global_symbol" not in mod["inner"].attrs
    assert transform.AttachGlobalSymbol()(mod) is mod


def test_default_pipeline() -> None:
    assert relax.get_default_pipeline("llvm").name == "default_build"
    assert transform.UpdateParamType is transform.UpdateParamStructInfo


def test_nodes_are_constructed_as_tvm_constructs_them() -> None:
    x, y = relax.Var("x", ty=X), relax.Var(name_hint="y", struct_info=X)
    local = relax.DataflowVar("d", X)
    assert (x.name_hint, y.name, local.ty) == ("x", "y", X)
    call = relax.Call(op.exp(x).op, [x], attrs=None, ret_ty=X)
    other = relax.Call(relax.GlobalVar("f"), [x], ret_ty=X)
    assert same(call.ty, X) and other.ty_args == (X,)
    binding = relax.VarBinding(y, call)
    cast = relax.MatchCast(local, y, ty=X)
    assert (binding.var, binding.value, cast.var, cast.value, cast.ty) == (y, call, local, y, X)
    blocks = [relax.BindingBlock([binding]), relax.DataflowBlock([cast])]
    body = relax.SeqExpr(blocks, y)
    made = relax.Function([x], body, X, False, {"global_symbol": "main"})
    assert not made.is_pure and made.attrs["global_symbol"] == "main"
    assert relax.Function([x], x, ret_ty=X).body.body is x
    assert made.ret_ty is made.ret_struct_info and made.ty.params == (X,)
    assert relax.Tuple([x, y]).fields == (x, y)
    assert [item.index for item in relax.Tuple([x, y])] == [0, 1]
    assert relax.TupleStructInfo(fields=[X, X]).fields == (X, X)
    assert relax.ExternFunc("f", ty=relax.ObjectStructInfo()).global_symbol == "f"


def same(a: relax.StructInfo, b: relax.StructInfo) -> bool:
    return a.is_base_of(b) and b.is_base_of(a)


WRONG = {
    "has one name": lambda: relax.Var("x", X, name_hint="y"),
    "described by struct info": lambda: relax.Var("x", 3),  # type: ignore[arg-type]
    "gives Tensor": lambda: relax.Call(op.exp(relax.Var("x", X)).op, [relax.Var("x", X)],
                                       ret_ty=tensor((3,))),
    "a variable and a graph value": lambda: relax.VarBinding(op.exp(relax.Var("x", X)), X),
    "is cast to struct info": lambda: relax.MatchCast(relax.Var("x"), relax.Var("y"), 1),
    "parameters are variables": lambda: relax.Function([relax.const(1)], relax.const(1)),
    "is a function, it can't be": lambda: relax.ExternFunc("f", X),
    "runs on one device": lambda: relax.TensorStructInfo((1,), "float32", "cuda:0"),
    "says what it gives by ty_args": lambda: relax.FuncStructInfo.opaque_func(derive_func="f"),
}  # fmt: skip


@pytest.mark.parametrize("message", WRONG)
def test_wrong_parts_of_nodes_are_refused(message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        WRONG[message]()


def test_one_parameter_is_not_given_twice() -> None:
    with pytest.raises(TypeError, match="struct_info and ty are one parameter"):
        relax.Var("x", ty=X, struct_info=X)  # type: ignore[call-arg]


def test_ranks_without_a_shape() -> None:
    for info in (relax.TensorStructInfo(None, "float32", None, 2), relax.ShapeStructInfo(ndim=2)):
        assert info.ndim == 2 and not info.values
    assert relax.TensorStructInfo(ndim=-1).ndim == -1
    assert relax.TensorStructInfo((3,), ndim=-1).ndim == 1
    assert relax.TensorStructInfo(()).ndim == 0 and relax.TensorStructInfo().ndim == -1
    unknown = relax.TensorStructInfo(None, "int8")
    assert unknown.replace(dtype="int32").ndim == -1
    assert X.is_base_of(X) and unknown.is_base_of(tensor((3,), "int8"))
    assert not X.is_base_of(tensor((3,)))


def test_operators_of_python() -> None:
    x, y = relax.Var("x", X), relax.Var("y", X)
    calls = [x // y, x % y, x < y, x <= y, x > y, x >= y, 2.0**x, x.astype("float16"), 1.0 // x]
    names = ["floor_divide", "mod", "less", "less_equal", "greater", "greater_equal", "power",
             "astype", "floor_divide"]  # fmt: skip
    assert [call.op_name for call in calls] == names


def test_builders_scopes() -> None:
    builder, n = relax.BlockBuilder(), Var("n")
    x = relax.Var("x", tensor((n, 4)))
    with builder.testing_scope(def_vars=[n]):
        assert builder.emit(op.exp(op.abs(x))).struct_info is not None
        assert builder.match_cast(x, ty=X, name_hint="c").name == "c"
    with pytest.raises(VerifyError, match="takes symbolic extents"):
        builder.testing_scope([3]).__enter__()  # type: ignore[list-item]
    with builder.function("f", [x], private=True):
        builder.emit_func_output(x)
    with (
        pytest.raises(VerifyError, match="isn't private"),
        builder.function("g", [x], {"global_symbol": "g"}, private=True),
    ):
        raise AssertionError("the function isn't begun")
    assert list(builder.get().functions) == ["f"]


def test_effects_inside_of_expressions() -> None:
    x = relax.Var("x", X)
    pure, impure = op.exp(x), op.call_packed("f", x, sinfo_args=X)
    itself = relax.Call(relax.GlobalVar("f"), [x], {"pure": False}, [X])
    assert not analysis.contains_impure_call(pure)
    assert analysis.contains_impure_call(expr=impure)
    assert analysis.contains_impure_call(itself, "g")
    for name in ("f", relax.GlobalVar("f")):
        assert not analysis.contains_impure_call(itself, own_name=name)


def test_builds_take_pipelines_by_tvms_names() -> None:
    w = random(2, 6)
    mod = graph(lambda x, w: op.multiply(op.exp(x), w), X, X, names="xw")
    seen: list[str] = []

    def look(name: str) -> object:
        return lambda mod: (seen.append(name), mod)[1]

    x = random(2, 6, seed=1)
    built = relax.build(mod, "llvm", {"w": w}, tir_pipeline=look("tir"), exec_mode="compiled")
    np.testing.assert_allclose(np.asarray(built["main"](x)), np.exp(x) * w, rtol=1e-5)
    zero = Sequential([relax.get_pipeline("zero"), module_pass(look("relax"), name="look")])
    built = tilewright.compile(mod, "llvm", relax_pipeline=zero, tir_pipeline="default")
    np.testing.assert_allclose(np.asarray(built["main"](x, w)), np.exp(x) * w, rtol=1e-5)
    assert seen == ["tir", "relax"]
    for options, message in (
        ({"exec_mode": "jit"}, "'bytecode' or 'compiled'"),
        ({"system_lib": True}, "no system libraries"),
    ):
        with pytest.raises(BuildError, match=message):
            relax.build(mod, "llvm", **options)
    with pytest.raises(BuildError, match="go without"):
        tilewright.compile(mod, "llvm", relax_pipeline=zero, tune=0)
