"""Functions, patterns and passes under TVM's names: what they do."""

from __future__ import annotations

import numpy as np
import pytest

from tests.relax.helpers import graph, random, tensor, values
from tilewright import relax, te
from tilewright.ir import IRModule, Var
from tilewright.relax import analysis, dpl, op, transform
from tilewright.support.errors import VerifyError

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
