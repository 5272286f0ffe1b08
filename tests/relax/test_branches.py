"""``If``: one of two values, of which only one is computed."""

# ruff: noqa: F821, F841
from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tests.relax.helpers import agree, random, tensor, values
from tilewright import relax, runtime, script
from tilewright.ir import IRModule, assert_structural_equal, structural_equal, structural_hash
from tilewright.relax import interpreter, op
from tilewright.relax import transform as t
from tilewright.relax.analysis import (
    all_vars,
    bound_vars,
    free_vars,
    has_effect,
    is_impure,
    used_graph_vars,
)
from tilewright.script import ir as I
from tilewright.script import relax as R
from tilewright.script import tir as T
from tilewright.support.errors import BuildError, ParseError, VerifyError

YES, NO = np.array(True), np.array(False)
BOOL = tensor((), "bool")
F4 = tensor((4,))


@I.ir_module
class Nested:
    @R.function
    def main(
        c: R.Tensor((), "bool"), x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("n", 4), "float32")
    ):
        with R.dataflow():
            a = R.exp(x)
            d = R.less(R.sum(a), R.const(9.0, "float32"))
            R.output(a, d)
        if c:
            w = R.add(a, y)
            r = R.multiply(w, x)
        else:
            if d:
                r = R.tanh(y)
            else:
                r = y
        s = R.subtract(r, a)
        return s


@I.ir_module
class Chosen:
    """Branches that give tuples, what is around them, constants, and one value twice."""

    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        if c:
            z = R.exp(x)
            r = (z, z)
        else:
            r = (y, x)
        if c:
            k = R.const(2.0, "float32")
        else:
            k = R.const(3.0, "float32")
        if c:
            same = y
        else:
            same = y
        return (r[0], r, k, same)


@cache
def built(mod: IRModule) -> relax.Executable:
    return relax.build(mod, "llvm")


def same(mod: IRModule, *inputs: Any) -> Any:
    """Check that interpreter, compiled code and kernels one by one agree; give the result."""
    relax.verify_graph(mod)
    want = interpreter.run(mod, *inputs)
    executable = built(mod)
    found = relax.as_numpy(executable["main"](*inputs))
    machine = relax.VirtualMachine(executable, tilewright.cpu())
    machine.set_instrument(lambda *_: None)
    for have in (found, relax.as_numpy(machine["main"](*inputs))):
        for a, b in zip(flat(want), flat(have), strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)
    return want


def flat(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in flat(item)]
    return [np.asarray(value)]


# ---- meaning ------------------------------------------------------------------------------------


@pytest.mark.parametrize("c", [YES, NO])
@pytest.mark.parametrize("scale", [0.0, 4.0])
def test_the_branch_that_the_condition_asks_for(c: np.ndarray, scale: float) -> None:
    x, y = random(3, 4) * scale, random(3, 4, seed=1)
    a = np.exp(x)
    r = (a + y) * x if c else np.tanh(y) if a.sum() < 9 else y
    np.testing.assert_allclose(same(Nested, c, x, y), r - a, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("c", [YES, NO])
def test_what_branches_may_give(c: np.ndarray) -> None:
    same(Chosen, c, random(4), random(4, seed=1))


def test_scalars_and_sizes_decide() -> None:
    @R.function
    def main(c: R.Prim("bool"), x: R.Tensor(("n",), "float32")):
        n = T.int64()
        if c:
            y = R.exp(x)
        else:
            y = x
        if n > 2:
            z = R.add(y, y)
        else:
            z = y
        return z

    mod = IRModule({"main": main})
    assert_structural_equal(script.parse(main.script()), main)
    executable = built(mod)
    for c in (True, False):
        for x in (random(2), random(3)):
            y = np.exp(x) if c else x
            want = y + y if len(x) > 2 else y
            np.testing.assert_allclose(interpreter.run(mod, c, x), want, rtol=1e-5)
            np.testing.assert_allclose(relax.as_numpy(executable["main"](c, x)), want, rtol=1e-5)


@I.ir_module
class Impure:
    @R.function(pure=False)
    def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
        if c:
            R.call_packed("test.note", x, sinfo_args=R.Tuple())
            y = R.exp(x)
        else:
            y = R.call_dps_packed("test.branches.half", (x,), out_sinfo=R.Tensor((4,), "float32"))
        return y


@pytest.fixture
def seen() -> Iterator[list[str]]:
    calls: list[str] = []

    def half(x: Any, out: Any) -> None:
        calls.append("half")
        out.numpy()[...] = x.numpy() / 2

    tilewright.register_global_func("test.note", lambda x: calls.append("note"))
    tilewright.register_global_func("test.branches.half", half)
    yield calls
    for name in ("test.note", "test.branches.half"):
        runtime.remove_global_func(name)


def test_the_other_branch_is_not_computed(seen: list[str]) -> None:
    x = random(4)
    main = built(Impure)["main"]
    np.testing.assert_allclose(relax.as_numpy(main(YES, x)), np.exp(x), rtol=1e-5)
    assert seen == ["note"]
    np.testing.assert_allclose(relax.as_numpy(main(NO, x)), x / 2)
    assert seen == ["note", "half"]
    interpreter.run(Impure, YES, x)
    assert seen == ["note", "half", "note"]


def test_conditions_of_a_branch_hold_in_it_only() -> None:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",))):
        if c:
            z = R.add(x, y)
        else:
            z = R.exp(x)
        return z

    for mod in (IRModule({"main": main}), t.CheckShapes()(IRModule({"main": main}))):
        relax.verify_graph(mod)
        executable = built(mod)
        x, y = random(3), random(2)
        np.testing.assert_allclose(relax.as_numpy(executable["main"](NO, x, y)), np.exp(x), 1e-5)
        with pytest.raises(Exception, match="3"):
            executable["main"](YES, x, y)


@pytest.mark.parametrize("c", [YES, NO])
def test_branches_of_different_shapes(c: np.ndarray) -> None:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor(("n", 4), "float32")):
        n = T.int64()
        if c:
            y = R.concat((x, R.exp(x)))
            z = (y, x)
        else:
            z = (x, x)
        m = R.match_cast(z[0], R.Tensor(("p", 4), "float32"))
        if c:
            s = R.shape([n * 2, 2, 2])
        else:
            s = R.shape([n, 4, 1])
        t = R.match_cast(s, R.Shape(["a", "b", "c"]))
        v = R.sum(R.reshape(R.tanh(m), t), axis=[1])
        return (R.sum(v), R.sum(m))

    same(IRModule({"main": main}), c, random(3, 4))


def test_results_of_unknown_size_are_refused() -> None:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor(("n",), "float32")):
        if c:
            y = R.concat((x, x))
        else:
            y = x
        z = R.match_cast(y, R.Tensor(("m",), "float32"))
        return z

    with pytest.raises(BuildError, match="the sizes of results must follow"):
        built(IRModule({"main": main}))


def test_functions_with_branches_are_called_from_dataflow_blocks() -> None:
    @I.ir_module
    class Module:
        @R.function
        def pick(c: R.Tensor((), "bool"), x: R.Tensor(("n",), "float32")):
            if c:
                y = R.exp(x)
            else:
                y = R.negative(x)
            return y

        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor(("k",), "float32")):
            k = T.int64()
            with R.dataflow():
                a = R.call(cls.pick, (c, x), out_sinfo=R.Tensor((k,), "float32"))
                b = R.call(cls.pick, (c, a), out_sinfo=R.Tensor((k,), "float32"))
                d = R.add(a, b)
                R.output(d)
            return d

    for c in (YES, NO):
        same(Module, c, random(5))
    inlined = t.InlineFunctions()(Module)
    relax.verify_graph(inlined)
    assert any(isinstance(b, relax.DataflowBlock) for b in inlined["main"].body.blocks)


def test_libraries_have_branches(tmp_path: Path) -> None:
    path = built(Nested).export_library(tmp_path / "nested.so")
    loaded = relax.load_executable(path)
    x, y = random(3, 4), random(3, 4, seed=1)
    for c in (YES, NO):
        want = interpreter.run(Nested, c, x, y)
        np.testing.assert_allclose(relax.as_numpy(loaded["main"](c, x, y)), want, rtol=1e-4)


# ---- construction -------------------------------------------------------------------------------


def test_the_builder_makes_branches() -> None:
    builder = relax.BlockBuilder()
    c, x = relax.Var("c", BOOL), relax.Var("x", F4)
    with builder.function("main", [c, x]):
        a = builder.emit_if(c, lambda: op.exp(op.add(x, x)), lambda: builder.emit(op.tanh(x)))
        # What is nested is bound in its branch.
        b = builder.emit(relax.If(c, op.negative(op.exp(a)), relax.SeqExpr((), a)))
        with builder.dataflow():
            with pytest.raises(VerifyError, match="in a dataflow block"):
                builder.emit_if(c, lambda: x, lambda: x)
            with pytest.raises(VerifyError, match="in a dataflow block"):
                builder.emit(relax.If(c, x, x))
        builder.emit_func_output(b)
    mod = builder.get()
    relax.verify_graph(mod)
    assert isinstance(a.struct_info, relax.TensorStructInfo)
    x4 = random(4)
    np.testing.assert_allclose(interpreter.run(mod, YES, x4), -np.exp(np.exp(2 * x4)), rtol=1e-5)
    np.testing.assert_allclose(interpreter.run(mod, NO, x4), np.tanh(x4), rtol=1e-5)


def test_what_is_known_is_known_of_both() -> None:
    c, x = relax.Var("c", BOOL), relax.Var("x", F4)
    y, z = relax.Var("y", tensor((5,))), relax.Var("z", tensor((4,), "int64"))
    assert relax.If(c, x, x).struct_info.shape == F4.shape  # type: ignore[attr-defined]
    unknown = relax.If(c, x, y).struct_info
    assert isinstance(unknown, relax.TensorStructInfo)
    assert unknown.ndim == 1 and not unknown.has_shape
    assert isinstance(relax.If(c, x, z).struct_info, relax.ObjectStructInfo)
    for wrong in (x, relax.Var("i", relax.PrimStructInfo("int64")), relax.Var("b", tensor((1,)))):
        with pytest.raises(VerifyError, match="the condition of an If is a bool tensor"):
            relax.If(wrong, x, x)


def test_equality_hash_and_variables() -> None:
    other = script.parse(Nested.script())
    assert structural_hash(other) == structural_hash(Nested)
    chosen = Chosen["main"].bindings[0].value
    assert isinstance(chosen, relax.If)
    assert not structural_equal(chosen, chosen.replace(true_branch=chosen.false_branch))
    assert [v.name for v in used_graph_vars(chosen)] == ["c", "x", "y"]
    assert [v.name for v in free_vars(chosen)] == ["c", "x", "y"]
    assert [v.name for v in bound_vars(chosen)] == ["z"]
    assert {v.name for v in all_vars(chosen)} == {"c", "x", "y", "z"}
    impure = Impure["main"].bindings[0].value
    assert is_impure(impure) and has_effect(impure) and not is_impure(chosen)


def wrong(body: Any, match: str, pure: bool = True) -> None:
    builder = relax.BlockBuilder()
    c, x = relax.Var("c", BOOL), relax.Var("x", F4)
    with builder.function("main", [c, x], pure=pure):
        builder.emit_func_output(body(builder, c, x))
    with pytest.raises(VerifyError, match=match):
        relax.verify_graph(builder.get())


def test_what_is_no_branch_is_refused() -> None:
    var = relax.Var("v", F4)
    branch = relax.SeqExpr((relax.BindingBlock((relax.VarBinding(var, op.exp(var)),)),), var)

    def leak(builder: Any, c: Any, x: Any) -> Any:
        inner: list[Any] = []

        def body() -> Any:
            inner.append(builder.emit(op.exp(x)))
            return inner[0]

        builder.emit_if(c, body, lambda: x)
        return inner[0]

    def twice(builder: Any, c: Any, x: Any) -> Any:
        made = relax.SeqExpr((relax.BindingBlock((relax.VarBinding(var, op.exp(x)),)),), var)
        return builder.emit(relax.If(c, made, made))

    def effect(builder: Any, c: Any, x: Any) -> Any:
        def body() -> Any:
            builder.emit(op.print(x))
            return x

        return builder.emit_if(c, body, lambda: x)

    wrong(lambda b, c, x: b.emit(relax.If(c, branch, x)), "uses v, which is not bound there")
    wrong(leak, "which is not bound there")
    wrong(twice, "v is bound twice")
    wrong(effect, "has an effect: say so")
    in_block = relax.VarBinding(relax.Var("y", F4), relax.If(YES_CONST, X, X))
    body = relax.SeqExpr((relax.DataflowBlock((in_block,)),), X)
    with pytest.raises(VerifyError, match="can't be in a dataflow block"):
        relax.verify_graph(IRModule({"main": relax.Function((X,), body)}))


YES_CONST = relax.const(True)
X = relax.Var("x", F4)


# ---- text ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mod", [Nested, Chosen, Impure])
def test_text_reads_back(mod: IRModule) -> None:
    assert_structural_equal(script.parse(mod.script()), mod)
    outlined = t.OutlineBranches()(mod)
    metadata = R.metadata_of(outlined)
    assert_structural_equal(script.parse(outlined.script(), {"metadata": metadata}), outlined)
    planned = built(mod).planned
    assert planned is not None
    script.parse(planned.script(), {"metadata": R.metadata_of(planned)})


def test_several_variables_of_branches() -> None:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
        if c:
            a = R.exp(x)
            unused = R.exp(a)
            b = R.add(a, x)
        else:
            b = x
            a = x
            unused = x
        unused = R.multiply(a, b)
        return unused

    value = main.bindings[0].value
    assert isinstance(value.struct_info, relax.TupleStructInfo)
    assert len(value.struct_info.fields) == 2
    x = random(4)
    np.testing.assert_allclose(interpreter.run(main, YES, x), np.exp(x) * (np.exp(x) + x), 1e-5)
    np.testing.assert_allclose(interpreter.run(main, NO, x), x * x, rtol=1e-5)


HEADER = """from tilewright.script import relax as R
@R.function
def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
"""


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("    if c:\n        y = x\n    return x", "both branches of an if must bind"),
        ("    if c:\n        y = x\n    else:\n        z = x\n    return x", "both branches"),
        ("    if x:\n        y = x\n    else:\n        y = x\n    return y", "is a bool tensor"),
        (
            "    if c:\n        a = R.exp(x)\n        y = a\n"
            "    else:\n        y = x\n    return a",
            "'a'",
        ),
        (
            "    with R.dataflow():\n        if c:\n            y = x\n        else:\n"
            "            y = x\n        R.output(y)\n    return y",
            "dataflow block",
        ),
    ],
)
def test_text_that_is_no_branch(text: str, match: str) -> None:
    with pytest.raises(ParseError, match=match):
        script.parse(HEADER + text)


# ---- passes -------------------------------------------------------------------------------------


def test_known_conditions_are_decided() -> None:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        c = R.less(R.const(1.0, "float32"), R.const(2.0, "float32"))
        if c:
            y = R.exp(x)
        else:
            y = R.tanh(x)
        z = R.negative(y)
        return z

    mod = IRModule({"main": main})
    made = t.DeadCodeElimination()(t.FoldConstant()(mod))
    assert values(made) == ["exp", "negative"]
    agree(mod, made, random(4))


def test_unused_values_and_branches_go() -> None:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
        unused = R.exp(x)
        if c:
            a = R.exp(x)
            y = R.tanh(x)
        else:
            y = x
        if c:
            gone = R.exp(y)
        else:
            gone = y
        return y

    made = t.DeadCodeElimination()(IRModule({"main": main}))
    (binding,) = made["main"].bindings
    (block,) = binding.value.true_branch.blocks
    assert [b.value.op_name for b in block.bindings] == ["tanh"]


def test_what_one_branch_computes_the_other_has_not() -> None:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
        a = R.exp(x)
        if c:
            b = R.tanh(x)
            y = R.add(R.exp(x), R.tanh(x))
        else:
            y = R.tanh(x)
        z = R.add(y, R.tanh(x))
        return z

    mod = IRModule({"main": main})
    made = t.EliminateCommonSubexpr()(mod)
    agree(mod, made, YES, random(4))
    agree(mod, made, NO, random(4))
    value = made["main"].bindings[1].value
    assert [b.value.op_name for k in value.true_branch.blocks for b in k.bindings] == [
        "tanh", "add",
    ]  # fmt: skip
    assert values(made) == ["exp", "If", "tanh", "add"]


def test_branches_become_functions_and_come_back() -> None:
    made = t.OutlineBranches()(Nested)
    assert set(made.functions) == {"main", "main_r_true", "main_r_false", "main_r_false_r_true"}
    assert values(made, "main_r_true") == ["add", "multiply"]
    x, y = random(3, 4), random(3, 4, seed=1)
    for c in (YES, NO):
        agree(Nested, made, c, x, y)
        agree(Nested, t.InlineBranches()(made), c, x, y)
    assert set(t.InlineBranches()(made).functions) == {"main"}
    fused = relax.get_pipeline("zero", "llvm")(Nested)
    assert any("add" in name and "multiply" in name for name in fused.functions)
    assert set(built(fused).signatures) == {"main"}


def test_branches_share_memory() -> None:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor((64, 64), "float32")):
        a = R.matmul(x, x)
        if c:
            b = R.matmul(a, x)
            d = R.matmul(b, a)
            y = R.matmul(d, b)
        else:
            e = R.matmul(x, a)
            f = R.matmul(e, x)
            y = R.matmul(f, e)
        z = R.matmul(y, y)
        return z

    planned = built(IRModule({"main": main})).planned
    assert planned is not None
    workspace = planned["main"].bindings[0].value
    assert workspace.op_name == "memory.workspace"
    # a, y, and two values of whichever branch is taken
    assert workspace.args[0].value.value == 4 * 64 * 64 * 4


def test_gradients_of_branches() -> None:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        a = R.exp(x)
        d = R.less(R.sum(y), R.const(0.0, "float32"))
        if c:
            e = R.multiply(a, y)
            if d:
                r = R.multiply(e, e)
            else:
                r = e
        else:
            r = x
        z = R.sum(R.multiply(r, a))
        return z

    made = t.Gradient("main", require_grads=list(main.params[1:]))(IRModule({"main": main}))
    relax.verify_graph(made)
    run = relax.build(made)["main_adjoint"]
    x, y = random(4), random(4, seed=1)
    a = np.exp(x)
    for sign in (1, -1):
        y = sign * np.abs(y)
        expected = {
            True: (2 * a * a * y, a * a) if sign > 0 else (3 * a**3 * y * y, 2 * a**3 * y),
            False: (a + x * a, 0 * y),
        }
        for c in (YES, NO):
            for found in (
                interpreter.run(made, c, x, y, name="main_adjoint")[1],
                relax.as_numpy(run(c, x, y))[1],
            ):
                for got, wanted in zip(found, expected[bool(c)]):
                    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_mixed_precision_in_branches() -> None:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor((4, 4), "float32")):
        a = R.matmul(x, x)
        if c:
            y = R.matmul(a, x)
        else:
            y = R.exp(x)
        return y

    mod = IRModule({"main": main})
    made = t.ToMixedPrecision("float16")(mod)
    for c in (YES, NO):
        agree(mod, made, c, random(4, 4), tolerance=5e-2)
    assert "float16" in made.script().split("if c:")[1]
