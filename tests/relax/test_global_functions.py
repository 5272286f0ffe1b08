"""Graphs call global functions, print and assert: interpreted, compiled, kernel by kernel."""

# ruff: noqa: F821
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tests.relax.helpers import random, tensor
from tilewright import relax, runtime, script
from tilewright.ir import IRModule, assert_structural_equal
from tilewright.relax import interpreter, op
from tilewright.relax import transform as t
from tilewright.script import ir as I
from tilewright.script import relax as R
from tilewright.support.errors import LowerError, RunError, VerifyError

CALLS: list[Any] = []


@pytest.fixture(autouse=True)
def functions() -> Iterator[None]:
    def double(x: Any, k: Any, y: Any) -> None:
        CALLS.append((x.shape, k))
        y.numpy()[...] = x.numpy() * k

    def halves(x: Any) -> Any:
        array = x.numpy()
        return array[:2] + 0, array[2:] + 0

    def note(x: Any, *rest: Any) -> None:
        CALLS.append((x.numpy().copy(), *rest))

    made = {"test.double": double, "test.halves": halves, "test.note": note}
    for name, function in made.items():
        tilewright.register_global_func(name, function)
    CALLS.clear()
    yield
    for name in made:
        runtime.remove_global_func(name)


@I.ir_module
class Packed:
    @R.function(pure=False)
    def main(x: R.Tensor(("n", 4), "float32"), k: R.Prim("int64")):
        with R.dataflow():
            a = R.exp(x)
            b = R.call_dps_packed(
                "test.double", (a, R.prim_value(n + 1)), out_sinfo=R.Tensor((n, 4), "float32")
            )
            c = R.tanh(b)
            R.output(b, c)
        R.call_packed("test.note", c, k, R.string("seen"), sinfo_args=R.Tuple())
        d = R.add(b, c)
        return d


def everywhere(mod: IRModule, *inputs: Any) -> list[Any]:
    """Results of the interpreter, of the compiled graph and of its kernels one by one."""
    executable = relax.build(mod, "llvm")
    machine = relax.VirtualMachine(executable)
    found = [interpreter.run(mod, *inputs), executable["main"](*inputs)]
    machine.set_instrument(lambda *_: relax.VMInstrumentReturnKind.NO_OP)
    found.append(machine["main"](*inputs))
    return [relax.as_numpy(item) for item in found]


def test_functions_of_python_are_called() -> None:
    x = random(3, 4)
    doubled = np.exp(x) * 4
    for result in everywhere(Packed, x, 7):
        np.testing.assert_allclose(result, doubled + np.tanh(doubled), rtol=1e-5)
    assert len(CALLS) == 6
    for first, second in zip(CALLS[::2], CALLS[1::2]):
        assert first == ((3, 4), 4)
        np.testing.assert_allclose(second[0], np.tanh(doubled), rtol=1e-5)
        assert second[1:] == (7, "seen")


def test_programs_print_and_parse() -> None:
    text = Packed.script()
    assert "@R.function(pure=False)" in text
    assert 'R.call_dps_packed("test.double"' in text
    assert_structural_equal(script.parse(text), Packed)
    planned = t.StaticPlanBlockMemory()(t.CallTIRRewrite()(t.LegalizeOps()(Packed)))
    assert 'R.extern("test.double", packed=True)' in planned.script()
    assert_structural_equal(script.parse(planned.script()), planned)


def test_results_of_functions() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                both = R.call_pure_packed(
                    "test.halves",
                    x,
                    sinfo_args=R.Tuple(R.Tensor((2,), "float32"), R.Tensor((2,), "float32")),
                )
                a = both[0]
                b = both[1]
                c = R.subtract(a, b)
                R.output(c)
            return c

    x = random(4)
    for result in everywhere(Module, x):
        np.testing.assert_allclose(result, x[:2] - x[2:], rtol=1e-6)
    assert_structural_equal(script.parse(Module.script()), Module)
    for bad, message in (
        (lambda x: (x, x), r"test.halves must return float32\[2\], got float32\[4\]"),
        (lambda x: x, "test.halves must return 2 tensors, got 1"),
        (lambda x: (1, 2), "test.halves must return tensors, got int"),
    ):
        tilewright.register_global_func("test.halves", bad, override=True)
        with pytest.raises(RuntimeError, match=message):  # by way of compiled code
            relax.build(Module, "llvm")["main"](x)


def test_pure_calls_that_nothing_uses_are_removed() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", tensor((4,)))
    with builder.function("main", [x], pure=False):
        builder.emit(op.call_pure_packed("test.note", x, sinfo_args=tensor((4,))))
        builder.emit(op.call_packed("test.note", x))
        builder.emit(op.call_packed("test.note", x))
        builder.emit_func_output(builder.emit(op.exp(x)))
    mod = builder.get()
    relax.verify_graph(mod)
    for change in (t.DeadCodeElimination(), t.EliminateCommonSubexpr()):
        mod = change(mod)
    assert [getattr(b.value, "op_name", "") for b in mod["main"].bindings] == [
        "call_packed", "call_packed", "exp",
    ]  # fmt: skip


def test_effects_are_stated() -> None:
    mod = Packed.with_function("main", Packed["main"].replace(attrs={}))
    with pytest.raises(VerifyError, match=r"has an effect: say so by R.function\(pure=False\)"):
        relax.verify_graph(mod)
    x = relax.Var("x", tensor((4,)))
    builder = relax.BlockBuilder()
    with builder.function("main", [x], pure=False):
        with builder.dataflow():
            builder.emit(op.call_packed("f", x))
            out = builder.emit_output(op.exp(x))
        builder.emit_func_output(out)
    with pytest.raises(VerifyError, match="can't be in a dataflow block"):
        relax.verify_graph(builder.get())


def test_impure_functions_are_called_by_name() -> None:
    @I.ir_module
    class Module:
        @R.function(pure=False)
        def inner(x: R.Tensor((4,), "float32")):
            R.call_packed("test.note", x, sinfo_args=R.Tuple())
            y = R.exp(x)
            return y

        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")):
            R.call(cls.inner, (x,), out_sinfo=R.Tensor((4,), "float32"), pure=False)
            z = R.tanh(x)
            return z

    relax.verify_graph(Module)
    assert_structural_equal(script.parse(Module.script()), Module)
    x = random(4)
    for result in everywhere(Module, x):
        np.testing.assert_allclose(result, np.tanh(x), rtol=1e-5)
    assert len(CALLS) == 3
    wrong = Module.with_function("inner", Module["inner"].replace(attrs={}))
    with pytest.raises(VerifyError, match="inner"):
        relax.verify_graph(wrong)
    call = Module["main"].bindings[0]
    pure = call.replace(value=call.value.replace(attrs={}))
    main = Module["main"]
    block = main.body.blocks[0].replace(bindings=(pure, *main.bindings[1:]))
    with pytest.raises(VerifyError, match="must have the attribute pure: the function is impure"):
        relax.verify_graph(
            Module.with_function("main", main.replace(body=main.body.replace(blocks=(block,))))
        )


def test_print_and_assertions(capfd: pytest.CaptureFixture[str]) -> None:
    @I.ir_module
    class Module:
        @R.function(pure=False)
        def main(x: R.Tensor(("n",), "float32")):
            s = R.sum(x)
            ok = R.greater(s, R.const(0.0, "float32"))
            R.assert_op(ok, (s,), format="the sum is {}")
            R.print(x, R.prim_value(n), format="x = {}, n = {}")
            R.print(x)
            y = R.exp(x)
            return y

    assert_structural_equal(script.parse(Module.script()), Module)
    x = np.array([1, 2], "float32")
    for result in everywhere(Module, x):
        np.testing.assert_allclose(result, np.exp(x), rtol=1e-5)
    printed = capfd.readouterr().out.splitlines()
    assert printed == ["x = [1. 2.], n = 2", "[1. 2.]"] * 3
    with pytest.raises(RunError, match=r"the sum is -3\.0"):
        interpreter.run(Module, -x)
    with pytest.raises(RuntimeError, match=r"the sum is -3\.0"):
        relax.build(Module, "llvm")["main"](-x)


def test_global_functions_are_profiled() -> None:
    machine = relax.VirtualMachine(relax.build(Packed, "llvm"), profile=True)
    report = machine.profile("main", random(3, 4), 7, repeat=1)
    assert [row.name for row in report.calls] == ["exp", "test.double", "tanh", "test.note", "add"]
    assert report.calls[1].flops is None and report.calls[1].nbytes == 96


def test_exported_graphs_call_python(tmp_path: Path) -> None:
    relax.build(Packed, "llvm").export_library(tmp_path / "packed.so")
    loaded = relax.load_executable(tmp_path / "packed.so")
    x = random(2, 4)
    np.testing.assert_allclose(
        relax.as_numpy(loaded["main"](x, 1)), interpreter.run(Packed, x, 1), rtol=1e-5
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: op.call_packed(3, x), "is given by name, got int 3"),
        (lambda x: op.call_packed("f", (x, x)), "pass the items of a tuple"),
        (lambda x: op.print(relax.ShapeExpr((1, 2))), "extents of a shape one by one"),
        (lambda x: op.call_dps_packed("f", x, []), "needs out_sinfo"),
        (lambda x: op.call_dps_packed("f", x, relax.ObjectStructInfo()), "of known shape, got"),
        (lambda x: op.call_pure_packed("f", x, sinfo_args=[tensor(())] * 2), "has one result"),
        (lambda x: op.print(x, format="{} {}"), "has no place for 1 values"),
        (lambda x: op.assert_op(x), "takes one truth value"),
    ],
)
def test_wrong_calls_are_refused(make: Any, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        make(relax.Var("x", tensor((4,))))


def test_results_of_unknown_shape_are_refused() -> None:
    info = relax.TensorStructInfo(None, "float32")
    builder = relax.BlockBuilder()
    x = relax.Var("x", tensor((4,)))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(op.call_pure_packed("f", x, sinfo_args=info)))
    with pytest.raises(LowerError, match="call_pure_packed gives tensors of known shape"):
        t.CallTIRRewrite()(builder.get())
