"""Gradients that users write in ``te``, and parts that the backward pass computes again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import random, tensor, values
from tilewright import relax, script, te
from tilewright.ir import IRModule
from tilewright.relax import interpreter, op, transform
from tilewright.relax.expr import RelaxVar
from tilewright.relax.training.utils import register_te_gradient
from tilewright.script import ir as I
from tilewright.script import relax as R
from tilewright.script import tirx as T
from tilewright.support.errors import VerifyError

X = tensor((3, 2))


def scaled(x: te.Tensor, y: te.Tensor, *, k: float = 2.0) -> te.Tensor:
    return te.compute(x.shape, lambda *i: x(*i) * y(*i) * k, name="scaled")


@register_te_gradient("test.scaled")
def scaled_grad(grad: te.Tensor, x: te.Tensor, y: te.Tensor, k: float = 2.0) -> list[te.Tensor]:
    return [
        te.compute(x.shape, lambda *i: grad(*i) * y(*i) * k, name="dx"),
        te.compute(x.shape, lambda *i: grad(*i) * x(*i) * k, name="dy"),
    ]


def summed(name: str = "test.scaled", **options: Any) -> IRModule:
    builder = relax.BlockBuilder()
    x, y = relax.Var("x", X), relax.Var("y", X)
    with builder.function("main", [x, y]):
        with builder.dataflow():
            call = builder.call_te_with_grad(scaled, x, y, te_grad_name=name, **options)
            out = builder.emit_output(op.sum(builder.emit(call)))
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize("k", [2.0, 3.0])
def test_gradients_are_te_code(k: float) -> None:
    options = {} if k == 2 else {"k": k, "te_grad_kwargs": {"k": k}}
    mod = summed(**options)
    text = mod.script()
    assert 'te_grad_name="test.scaled"' in text
    assert script.parse(text).script() == text
    made = transform.Gradient("main")(mod)
    x, y = random(3, 2), random(3, 2, seed=1)
    result, (dx, dy) = interpreter.run(made, x, y, name="main_adjoint")
    np.testing.assert_allclose(result, (x * y * k).sum(), rtol=1e-5)
    np.testing.assert_allclose(dx, y * k, rtol=1e-6)
    np.testing.assert_allclose(dy, x * k, rtol=1e-6)
    legal = transform.LegalizeOps()(mod)
    assert "call_tir_with_grad" not in legal.script()


def test_an_argument_given_twice_has_two_gradients() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", X)
    with builder.function("main", [x]):
        with builder.dataflow():
            call = builder.call_te_with_grad(scaled, x, x, te_grad_name="test.scaled")
            out = builder.emit_output(op.sum(builder.emit(call)))
        builder.emit_func_output(out)
    made = transform.Gradient("main")(builder.get())
    value = random(3, 2)
    result, (dx,) = interpreter.run(made, value, name="main_adjoint")
    np.testing.assert_allclose(result, (2 * value * value).sum(), rtol=1e-5)
    np.testing.assert_allclose(dx, 4 * value, rtol=1e-6)


def test_gradients_have_a_name_and_give_each_argument_one() -> None:
    with pytest.raises(VerifyError, match=r"no gradient is registered as 'test\.scale'"):
        transform.Gradient("main")(summed("test.scale"))
    register_te_gradient("test.single", lambda grad, x, y: [grad])
    with pytest.raises(VerifyError, match="each of the 2 arguments, it gives 1"):
        transform.Gradient("main")(summed("test.single"))
    with pytest.raises(VerifyError, match="already"):
        register_te_gradient("test.scaled", lambda grad, x, y: [grad])


def test_scripts_call_tensor_functions_with_gradients() -> None:
    @I.ir_module
    class Module:
        @T.prim_func
        def double(A: T.Buffer((3, 2), "float32"), B: T.Buffer((3, 2), "float32")):
            for i, j in T.grid(3, 2):
                with T.sblock("double"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] * T.float32(2)

        @R.function
        def main(x: R.Tensor((3, 2), "float32")):
            lv = R.call_tir_with_grad(
                Module.double,
                (x,),
                out_ty=R.Tensor((3, 2), "float32"),
                te_grad_name="test.double",
                te_grad_kwargs={"k": 2.0},
            )
            return lv

    call = Module["main"].bindings[0].value
    assert dict(call.attrs["te_grad_kwargs"]) == {"k": 2.0}
    x = random(3, 2)
    np.testing.assert_array_equal(interpreter.run(Module, x), 2 * x)


def checkpointed(*, marks: bool) -> IRModule:
    """``sum(sin(exp(x) * y) * y)``; what is between marks depends on both."""
    builder = relax.BlockBuilder()
    x, y = RelaxVar("x", X), RelaxVar("y", X)
    start = op.grad.start_checkpoint if marks else (lambda value: value)
    end = op.grad.end_checkpoint if marks else (lambda value: value)
    with builder.function("main", [x, y]):
        with builder.dataflow():
            a, b = builder.emit(start(x)), builder.emit(start(y))
            inner = builder.emit(op.exp(a))
            product = builder.emit(op.multiply(inner, b))
            made = builder.emit(op.sin(product))
            kept = builder.emit(end(made))
            out = builder.emit_output(op.sum(op.multiply(kept, y)))
        builder.emit_func_output(out)
    return builder.get()


def test_what_is_between_marks_is_computed_again() -> None:
    plain, marked = (transform.Gradient("main")(checkpointed(marks=m)) for m in (False, True))
    counts = [values(IRModule({"main": m["main_adjoint"]})).count("exp") for m in (plain, marked)]
    assert counts == [1, 2]
    x, y = random(3, 2), random(3, 2, seed=1)
    expected = interpreter.run(plain, x, y, name="main_adjoint")
    found = interpreter.run(marked, x, y, name="main_adjoint")
    np.testing.assert_array_equal(found[0], expected[0])
    for one, other in zip(found[1], expected[1]):
        np.testing.assert_array_equal(one, other)


def test_nothing_between_marks_is_used_by_the_backward_pass() -> None:
    function = transform.Gradient("main")(checkpointed(marks=True))["main_adjoint"]
    names = [binding.var.name for binding in function.bindings]
    bindings = {binding.var: place for place, binding in enumerate(function.bindings)}
    end = next(n for n, b in enumerate(function.bindings) if "end_checkpoint" in repr(b.value))
    marked = [
        b.var
        for b in function.bindings[:end]
        if "start_checkpoint" not in repr(b.value) and not isinstance(b.value, relax.Constant)
    ]
    assert len(marked) == 3, names
    for binding in function.bindings[end + 1 :]:
        assert not set(relax.analysis.used_graph_vars(binding.value)) & set(marked)
    assert len(bindings) == len(names)


def test_weights_after_a_mark_are_not_lifted() -> None:
    builder = relax.BlockBuilder()
    x, w = RelaxVar("x", X), RelaxVar("w", X)
    with builder.function("main", [x, w], {"num_input": 1}):
        with builder.dataflow():
            lifted = builder.emit(op.exp(w))
            stays = builder.emit(op.sin(builder.emit(op.stop_lift_params(lifted))))
            out = builder.emit_output(op.add(x, stays))
        builder.emit_func_output(out)
    mod = builder.get()
    made = transform.LiftTransformParams()(mod)
    assert values(IRModule({"main": made["main"]})) == ["stop_lift_params", "sin", "add"]
    assert "R.exp" in made["main_transform_params"].script()
    assert "R.stop_lift_params" in made.script()
    run = interpreter.run(mod, random(3, 2), random(3, 2, seed=1))
    np.testing.assert_allclose(run, random(3, 2) + np.sin(np.exp(random(3, 2, seed=1))), rtol=1e-5)
