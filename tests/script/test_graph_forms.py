"""Forms of TVM's module and graph dialects."""

import numpy as np
import pytest

import tilewright
from tilewright import relax, script, topi
from tilewright.ir import assert_structural_equal
from tilewright.script import ir as I
from tilewright.script import ir_builder
from tilewright.script import relax as R
from tilewright.script import tirx as T
from tilewright.support.errors import VerifyError
from tilewright.target import Target
from tilewright.tir import PrimFunc


@I.ir_module(check_well_formed=True)
class Module:
    I.module_attrs({"version": 1})
    I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("c", 1, "local")]})

    @T.prim_func(private=True, s_tir=True)
    def add(A: T.Buffer((4,)), B: T.Buffer((4,)), C: T.Buffer((4,))):
        for i in range(4):
            with T.sblock("C"):
                vi = T.axis.spatial(4, i)
                C[vi] = A[vi] + B[vi]

    @R.function
    def main(
        x: R.Tensor((4,), "float32"),
        c: R.Tensor((), "bool"),
        t: R.Tuple(R.Tensor((4,)), R.Tensor((4,))),
    ) -> R.Tensor((4,), "float32"):
        R.func_attr({"num_input": 1})
        cls = Module
        twice = cls.helper(x)
        if c:
            w = R.add(x, twice)
        else:
            w = R.multiply(x, twice)
        b = R.call_tir(cls.add, (w, twice), out_ty=R.Tensor((4,), "float32"))
        first, _ = R.split(R.concat([b, t[0]]), 2)
        gv = R.emit(R.emit_te(topi.subtract, first, x))
        return gv

    @R.function(private=True)
    def helper(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        y = R.emit(R.add(x, x))
        return y


def test_a_module_runs_and_prints():
    text = Module.script()
    assert_structural_equal(Module, script.parse(text))
    assert 'I.vdevice("c", 1, "local")' in text and "def subtract(" in text
    x = np.arange(4, dtype="float32")
    built = relax.build(Module, "llvm")
    for condition in (True, False):
        got = built["main"](x, np.array(condition), (x, x))
        np.testing.assert_allclose(got.numpy(), (x + 2 * x if condition else 2 * x * x) + x)


def test_a_graph_calls_code_from_outside():
    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")):
        d = R.call_dps_packed("tests.twice", (x,), out_sinfo=R.Tensor((4,), "float32"))
        e = R.call_pure_packed("tests.plus", d, ty_args=(R.Tensor((4,), "float32"),))
        n = R.call_packed("tests.plus", e, sinfo_args=(R.Tensor((4,), "float32"),))
        return R.emit_match_cast(n, R.Tensor((4,), "float32"))

    assert_structural_equal(main, script.parse(main.script()))

    def twice(x, out):
        np.from_dlpack(out)[...] = 2 * np.from_dlpack(x)

    tilewright.register_global_func("tests.twice", twice, override=True)
    tilewright.register_global_func(
        "tests.plus", lambda x: np.from_dlpack(x) + np.float32(1), override=True
    )
    x = np.arange(4, dtype="float32")
    np.testing.assert_array_equal(relax.build(main, "llvm")["main"](x).numpy(), 2 * x + 2)


def test_bare_kinds_and_sizes():
    @R.function
    def main(a: R.Tensor, s: R.Shape, o: R.Object, t: R.Tuple, f: R.Callable, p: R.Prim):
        m, n = T.int64(), T.int64()
        b = R.match_cast(a, R.Tensor((m, n), "float32"))
        c: R.Tensor((m, n), "float32") = R.add(b, b)
        pair = R.tuple(c, b)
        return R.TupleGetItem(pair, 0)

    assert_structural_equal(main, script.parse(main.script()))
    kinds = [type(param.struct_info).__name__ for param in main.params]
    infos = "TensorStructInfo ShapeStructInfo ObjectStructInfo TupleType FuncStructInfo PrimType"
    assert kinds == infos.split()


HEAD = "@I.ir_module\nclass Module:\n"


@pytest.mark.parametrize(
    "body, message",
    [
        ("    I.module_global_infos({'vdevice': 3})", "an entry is a list of I.vdevice"),
        ("    I.module_attrs({'a': 1})\n    I.module_attrs({'a': 2})", "given twice"),
        ("    x = 3", "names values by"),
        ("    @R.function\n    def f(x: R.Tensor):\n        return cls.f(x)", "f calls itself"),
        ("    @R.function\n    def f(x: R.Tensor):\n        return cls.g(x)", "cls has no 'g'"),
        ("    @R.function\n    def f(x: R.Tensor):\n        a, b = x\n        return a", "2 names"),
        (
            "    @T.prim_func\n    def g(n: T.int32):\n        T.evaluate(n)\n"
            "    @R.function\n    def f(x: R.Tensor):\n        return cls.g(x)",
            "g is no graph function; call it by R.call_tir",
        ),
        (
            "    @R.function\n    def f(x: R.Tensor):\n"
            "        return R.call_dps_packed('f', (x,), out_sinfo=R.Tensor, out_ty=R.Tensor)",
            "out_sinfo and out_ty are one parameter: give it once",
        ),
        (
            "    @R.function\n    def f(x: R.Tensor((4,))):\n        return R.emit_te(3, x)",
            "emit_te takes a function",
        ),
    ],
)
def test_errors(body, message):
    with pytest.raises(script.ScriptError, match=message):
        script.parse(HEAD + body)


def test_tensor_code_needs_a_module():
    with pytest.raises(script.ScriptError, match="this needs a module"):

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            return R.emit_te(topi.negative, x)


def test_text_from_elsewhere_brings_no_functions():
    with pytest.raises(script.ScriptError, match="text may not use a function as a value"):
        script.parse(
            "@R.function\ndef f(x: R.Tensor((4,))):\n    return R.emit_te(twice, x)",
            {"twice": topi.negative},
        )


def test_modules_replace_attributes_and_look_up_devices():
    module = script.parse(
        HEAD + "    I.module_attrs({'a': 1})\n    I.module_attrs({'a': 2}, allow_overwrite=True)"
    )
    assert module.attrs["a"] == 2
    with ir_builder.IRBuilder() as builder, ir_builder.ir.ir_module():
        ir_builder.ir.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("c", 1)]})
        assert ir_builder.ir.lookup_vdevice("c").vdevice_id == 1
        assert ir_builder.ir.lookup_vdevice().target == Target("llvm")
        with pytest.raises(VerifyError, match="no device 1 of kind c"):
            ir_builder.ir.lookup_vdevice("c", 1)
    assert_structural_equal(builder.get(), script.parse(builder.get().script()))


def test_functions_of_other_classes_are_read_at_once():
    class Before:
        @T.prim_func
        def fill(A: T.Buffer((4,), "float32")):
            for i in range(4):
                A[i] = 1.0

    assert isinstance(Before.fill, PrimFunc)
