"""Functions as values: parameters that are functions, functions inside of functions."""

# ruff: noqa: F821
from __future__ import annotations

import numpy as np
import pytest

from tests.relax.helpers import agree, random, tensor, values
from tilewright import relax, script
from tilewright.ir import GlobalVar, Var, assert_structural_equal
from tilewright.relax import interpreter, op
from tilewright.relax import transform as t
from tilewright.script import ir as I
from tilewright.script import relax as R
from tilewright.support.errors import RunError, VerifyError


@I.ir_module
class Nested:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 4), "float32")):
        b = R.exp(w)

        @R.function
        def inner(y: R.Tensor((n, 4), "float32")):
            z = R.matmul(y, b)
            return z

        u = R.call(inner, (x,))
        v = R.call(inner, (u,))
        return v


@I.ir_module
class Lifted:
    @R.function
    def main_inner(y: R.Tensor(("n", 4), "float32"), b: R.Tensor((4, 4), "float32")) -> R.Tensor(
        ("n", 4), "float32"
    ):
        z = R.matmul(y, b)
        return z

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 4), "float32")):
        b = R.exp(w)
        u = R.call(cls.main_inner, (x, b), out_sinfo=R.Tensor((n, 4), "float32"))
        v = R.call(cls.main_inner, (u, b), out_sinfo=R.Tensor((n, 4), "float32"))
        return v


@I.ir_module
class Higher:
    @R.function
    def double(x: R.Tensor((4,), "float32")):
        y = R.add(x, x)
        return y

    @R.function
    def twice(
        f: R.Callable((R.Tensor((4,), "float32"),), R.Tensor((4,), "float32")),
        x: R.Tensor((4,), "float32"),
    ):
        y = R.call(f, (x,))
        z = R.call(f, (y,))
        return z

    @R.function
    def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")):
        @R.function
        def scale(y: R.Tensor((4,), "float32")):
            z = R.multiply(y, w)
            return z

        a = R.call(cls.twice, (cls.double, x), out_sinfo=R.Tensor((4,), "float32"))
        b = R.call(cls.twice, (scale, a), out_sinfo=R.Tensor((4,), "float32"))
        return b


INPUTS = random(3, 4), random(4, 4, seed=1)


def test_inner_functions_are_lifted() -> None:
    relax.verify_graph(Nested)
    made = t.LambdaLift()(Nested)
    assert_structural_equal(made["main"], Lifted["main"])
    assert_structural_equal(made, Lifted)
    agree(Nested, made, *INPUTS)
    assert_structural_equal(t.LambdaLift()(made), made)


def test_casts_of_inner_functions_to_extents_from_outside() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("k", 4), "float32")):
            @R.function
            def inner(z: R.Tensor(("p", 4), "float32")):
                a = R.match_cast(z, R.Tensor((n, 4), "float32"))
                b = R.sum(a, axis=[0])
                return b

            u = R.call(inner, (y,))
            return u

    for made in (Module, t.LambdaLift()(Module)):
        interpreter.run(made, random(3, 4), random(3, 4))
        with pytest.raises(RunError):
            interpreter.run(made, random(3, 4), random(2, 4))


def test_inner_functions_are_compiled() -> None:
    want = np.exp(INPUTS[1])
    want = INPUTS[0] @ want @ want
    for mod in (Nested, Lifted):
        np.testing.assert_allclose(interpreter.run(mod, *INPUTS), want, rtol=1e-4)
        found = relax.build(mod, "llvm")["main"](*INPUTS).numpy()
        np.testing.assert_allclose(found, want, rtol=1e-4)


def test_functions_are_passed() -> None:
    relax.verify_graph(Higher)
    x, w = random(4), random(4, seed=1)
    np.testing.assert_allclose(interpreter.run(Higher, x, w), 4 * x * w * w, rtol=1e-5)
    executable = relax.build(Higher, "llvm")
    np.testing.assert_allclose(executable["main"](x, w).numpy(), 4 * x * w * w, rtol=1e-5)
    assert set(executable.signatures) == {"main", "double"}
    with pytest.raises(VerifyError, match="scale uses variables of main, so it can be called only"):
        t.LambdaLift()(Higher)


def test_functions_that_use_nothing_are_passed_after_lifting() -> None:
    @I.ir_module
    class Module:
        @R.function
        def once(
            f: R.Callable((R.Tensor((4,), "float32"),), R.Tensor((4,), "float32")),
            x: R.Tensor((4,), "float32"),
        ):
            y = R.call(f, (x,))
            return y

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            @R.function
            def outer(y: R.Tensor((4,), "float32")):
                @R.function
                def inner(z: R.Tensor((4,), "float32")):
                    u = R.multiply(z, y)
                    return u

                v = R.call(inner, (y,))
                return v

            a = R.call(cls.once, (outer, x), out_sinfo=R.Tensor((4,), "float32"))
            return a

    made = t.LambdaLift()(Module)
    relax.verify_graph(made)
    assert set(made.functions) == {"once", "main", "main_outer", "main_outer_inner"}
    assert len(made["main_outer_inner"].params) == 2
    agree(Module, made, random(4))
    np.testing.assert_allclose(interpreter.run(made, random(4)), random(4) ** 2, rtol=1e-5)


@pytest.mark.parametrize("mod", [Nested, Lifted, Higher])
def test_text_reads_back(mod: object) -> None:
    text = mod.script()  # type: ignore[attr-defined]
    assert_structural_equal(script.parse(text), mod)  # type: ignore[arg-type]
    if mod is Nested:
        assert 'def inner(y: R.Tensor((n, 4), "float32")' in text
    if mod is Higher:
        assert 'R.Callable((R.Tensor((4,), "float32"),), R.Tensor((4,), "float32"))' in text
    impure = R.Callable(None, R.Tensor((4,)), purity=False).resolve()
    assert repr(impure) == "Callable((...) -> Tensor((4,), float32), impure)"


def test_inner_functions_are_checked() -> None:
    x, y = relax.Var("x", tensor((4,))), relax.Var("y", tensor((4,)))
    z, f = relax.Var("z", tensor((4,))), relax.Var("f", relax.FuncStructInfo((), tensor((4,))))
    block = relax.BindingBlock((relax.VarBinding(z, op.exp(y)),))
    inner = relax.Function((), relax.SeqExpr((block,), z))
    outer = relax.BindingBlock((relax.VarBinding(f, relax.LocalFunction(inner)),))
    mod = relax.Function((x,), relax.SeqExpr((outer,), x))
    with pytest.raises(VerifyError, match=r"'main\.f': the value of z uses y, which is not bound"):
        relax.build(mod, "llvm")


def test_a_variable_is_called_as_tvm_calls_it() -> None:
    n = Var("n", "int64")
    f = relax.Var("f", relax.FuncStructInfo((tensor((n, 4)),), tensor((n, 2))))
    x = relax.Var("x", tensor((3, 4)))
    call = relax.Call(op=f, args=[x], attrs=None, ty_args=None, span=None)
    assert_structural_equal(call, op.invoke_closure(closure=f, args=[x], ty_args=tensor((3, 2))))
    found = relax.analysis.derive_call_ret_type(func_ty=f.ty, call=call, ctx=relax.BlockBuilder())
    assert repr(found) == repr(call.ty) == "Tensor((3, 2), float32)"
    with pytest.raises(VerifyError, match="f takes 1 arguments, got 2"):
        relax.Call(f, [x, x])


def test_wrong_calls_are_refused() -> None:
    f = relax.Var("f", relax.FuncStructInfo((tensor((4,)),), tensor((4,))))
    with pytest.raises(VerifyError, match="takes 1 arguments, got 0"):
        op.invoke_closure(f, ())
    with pytest.raises(VerifyError, match=r"argument 0 of f must be Tensor\(\(4,\)"):
        op.invoke_closure(f, (relax.Var("x", tensor((5,))),))
    with pytest.raises(VerifyError, match="x is no function"):
        op.invoke_closure(relax.Var("x", tensor((5,))), ())
    impure = relax.Var("f", relax.FuncStructInfo.opaque_func(ret=tensor((4,))))
    call = op.invoke_closure(impure, ())
    assert call.attrs == {"pure": False} and relax.analysis.is_impure(call)


def test_functions_that_pass_themselves_are_refused() -> None:
    any_function = relax.FuncStructInfo.opaque_func(ret=tensor((4,)), purity=True)
    builder = relax.BlockBuilder()
    g, x = relax.Var("g", any_function), relax.Var("x", tensor((4,)))
    with builder.function("again", [g, x]):
        builder.emit_func_output(builder.emit(op.invoke_closure(g, (g, x))))
    y = relax.Var("y", tensor((4,)))
    again = relax.FunctionRef(GlobalVar("again"))
    with builder.function("main", [y]):
        call = relax.Call(GlobalVar("again"), (again, y), {}, (tensor((4,)),))
        builder.emit_func_output(builder.emit(call))
    with pytest.raises(VerifyError, match=r"call each other 200 deep|calls itself"):
        relax.build(builder.get(), "llvm")
    assert values(builder.get()) == ["again"]
