"""Names of TVM's Relax, called with TVM's arguments by their names."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import relax
from tilewright.ir import GlobalVar, IRModule, assert_structural_equal
from tilewright.relax import BlockBuilder, TensorType, dpl, op, transform
from tilewright.script import relax as R
from tilewright.script.ir_builder import IRBuilder
from tilewright.script.ir_builder import relax as builder

TYPE = TensorType((4,), "float32")
X, M = relax.Var("x", TYPE), relax.Var("m", TensorType((2, 3), "float32"))
G = GlobalVar("g")
PLACES = relax.const([0, 1], "int64")
CALLED = relax.call_tir(G, [X], TYPE)

TYPES = {
    "bucketize": (
        op.bucketize(input_tensor=M, boundaries=X, out_int32=True, right=False),
        "Tensor((2, 3), int32)",
    ),
    "full_like": (
        op.full_like(x=M, fill_value=relax.const(2.0), dtype="float16"), "Tensor((2, 3), float16)"
    ),
    "flatten": (op.flatten(x=M), "Tensor((6,), float32)"),
    "no_grad": (op.grad.no_grad(input=M), "Tensor((2, 3), float32)"),
    "index_tensor": (op.index_tensor(data=M, indices=[PLACES]), "Tensor((2, 3), float32)"),
    "index_put": (
        op.index_put(data=M, indices=[PLACES, PLACES], values=relax.const([0.0, 1.0], "float32"),
                     accumulate=True),
        "Tensor((2, 3), float32)",
    ),
    "call_tir_inplace": (
        relax.call_tir_inplace(gvar=G, args=[X], inplace_indices=[0], out_ty=TYPE),
        "Tensor((4,), float32)",
    ),
    "call_dps_packed": (
        R.call_dps_packed(func="f", args=[X], out_ty=TYPE), "Tensor((4,), float32)"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TYPES)
def test_types_of_results(name: str) -> None:
    value, expected = TYPES[name]
    assert repr(value.ty) == expected


CONSTANTS = {
    "1": (1, "int32"), "1.0": (1.0, "float32"), "True": (True, "bool"),
    "floats": ([0.5, 1.0], "float32"), "ints": ([[1], [2]], "int32"), "both": ([1, 2.5], "float32"),
    "truth values": ([True, False], "bool"), "nothing": ([], "float32"),
    "too wide for TVM": ([2**40], "int64"), "half": (np.float16(1), "float16"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONSTANTS)
def test_dtypes_of_constants(name: str) -> None:
    value, dtype = CONSTANTS[name]
    made = relax.const(value=value, dtype=None)
    assert made.dtype == dtype
    np.testing.assert_array_equal(np.asarray(made.data), value)


def test_script_calls_are_the_same() -> None:
    same = R.call_tir_inplace(gvar=G, args=[X], inplace_indices=[0], out_ty=[TYPE])
    assert_structural_equal(same, TYPES["call_tir_inplace"][0], map_free_vars=True)
    made = R.emit_with_ty(op="relax.call_tir", args=[G, relax.Tuple([X])], ty_args=[TYPE])
    assert_structural_equal(made, CALLED, map_free_vars=True)


def test_a_function_is_built_in_frames() -> None:
    with IRBuilder() as ib, builder.function():
        builder.func_name("main")
        x = builder.arg("x", TYPE)
        builder.func_ret_type(ret_ty=TYPE)
        value = relax.VarBinding(relax.Var("y", TYPE), op.exp(x))
        builder.func_ret_value(builder.emit_var_binding(value=value))
    block = BlockBuilder()
    x = relax.Var("x", TYPE)
    with block.function("main", [x]):
        y = block.emit(op.exp(x))
        bound = block.lookup_binding(var=y)
        assert_structural_equal(bound, op.exp(x), map_free_vars=True)
        assert block.lookup_binding(var=x) is None
        block.emit_func_output(y)
    assert_structural_equal(ib.get(), block.get()["main"])
    nested = BlockBuilder().normalize(expr=op.add(X, X))
    assert_structural_equal(nested, op.add(X, X), map_free_vars=True)


def chain(*names: str) -> relax.Function:
    block, x = BlockBuilder(), relax.Var("x", TYPE)
    with block.function("main", [x]):
        with block.dataflow():
            value = x
            for name in names:
                value = block.emit(getattr(op, name)(value))
            out = block.emit_output(value)
        block.emit_func_output(out)
    return block.get()["main"]


def test_patterns_that_use_each_other() -> None:
    block = chain("exp", "tanh").body.blocks[0]
    for only in (False, True):
        with dpl.PatternContext() as context:
            first = dpl.is_op("relax.exp")(dpl.wildcard())
            second = dpl.is_op("relax.tanh")(first)
            sequence = dpl.PatternSeq([first])
            use = sequence.only_used_by if only else sequence.used_by
            assert isinstance(use(other=second, index=0), dpl.PatternSeq)
            dpl.SameShapeConstraint(first, second)
            assert dpl.PatternContext.current() is context
        found = context.match_dfb(block)
        assert [found[each] for each in (first, second)] == [
            each.var for each in block.bindings[:2]
        ]


def test_one_rewriter_or_another() -> None:
    def replaced(before: str, after: str) -> dpl.PatternMatchingRewriter:
        operand = dpl.wildcard()
        return dpl.ExprPatternRewriter(
            dpl.is_op(f"relax.{before}")(operand),
            lambda expr, found: getattr(op, after)(found[operand]),
        )

    rewriter = dpl.OrRewriter(lhs=replaced("exp", "tanh"), rhs=replaced("sin", "cos"))
    assert_structural_equal(rewriter(chain("exp", "sin")), chain("tanh", "cos"))


def test_types_of_parameters_are_changed() -> None:
    half = TensorType((4,), "float16")
    made = transform.UpdateParamType(ty_func=lambda var: half)(IRModule({"main": chain("exp")}))
    assert repr(made["main"].params[0].ty) == repr(made["main"].ret_ty) == "Tensor((4,), float16)"


def test_what_a_check_of_patterns_is_told() -> None:
    told = transform.PatternCheckContext(
        matched_expr=X, annotated_expr={"root": X}, matched_bindings={}, var_usages={},
        value_to_bound_var={},
    )  # fmt: skip
    assert told.matched_expr is told.annotated_expr["root"] is X


def test_functors_without_a_method_do_nothing_or_say_so() -> None:
    relax.PyExprVisitor().visit_expr(X)
    with pytest.raises(NotImplementedError):
        relax.ExprFunctor().visit_expr(X)
