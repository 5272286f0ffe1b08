"""Modules that are built in frames or read from classes, with TVM's names and arguments."""

from __future__ import annotations

import pytest

from tilewright import relax, script
from tilewright.ir import DummyGlobalInfo, GlobalVar, IRModule, assert_structural_equal
from tilewright.script import ir as I
from tilewright.script import tir as T
from tilewright.script.ir_builder import IRBuilder
from tilewright.script.ir_builder import ir as B
from tilewright.support.errors import ParseError, VerifyError


@T.prim_func
def fill(A: T.Buffer((4,), "float32")):
    for i in range(4):
        A[i] = 1.0


def test_ir_module_takes_options_by_place():
    @I.ir_module(None, True, False)
    class Module:
        @T.prim_func
        def main(A: T.Buffer((4,), "float32")):
            T.evaluate(0)

    assert list(Module.functions) == ["main"]
    with pytest.raises(ParseError, match="True or False"):
        I.ir_module(None, 1)


def test_a_module_in_frames():
    told = []
    with IRBuilder() as builder, B.ir_module() as frame:
        frame.add_callback(lambda: told.append("last"))
        frame.add_callback(lambda: told.append("first"))
        declared = I.decl_function("f", fill)
        assert isinstance(declared, GlobalVar) and frame.global_vars["f"].name_hint == "f"
        I.def_function("f", fill.with_attr("k", 1))
        assert I.lookup_name("f") and not I.lookup_name("g")
        B.module_attrs({"a": 1})
        I.module_set_attr("b", 2)
        I.module_set_attr("b", 3, True)
        assert (I.module_get_attr("b"), I.module_get_attr("c"), frame.attrs["a"]) == (
            3,
            None,
            1,
        )
        B.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("c", 1)]})
        assert I.lookup_vdevice("c", 0).vdevice_id == 1 and "vdevice" in frame.global_infos
        for wrong in (
            lambda: I.decl_function("f", fill),
            lambda: I.def_function("f", fill),
            lambda: I.module_set_attr("b", 4),
            lambda: I.lookup_vdevice("cuda"),
            lambda: B.module_global_infos({}),
        ):
            with pytest.raises(VerifyError):
                wrong()
        assert not told
    assert told == ["first", "last"]
    devices = [relax.VDevice("llvm"), relax.VDevice("c", 1)]
    functions = {"f": fill.with_attr("k", 1)}
    wanted = IRModule(functions, {"a": 1, "b": 3}, {"vdevice": devices})
    assert_structural_equal(builder.get(), wanted)
    assert_structural_equal(script.parse(wanted.script()), wanted)


def test_a_frame_of_what_there_is():
    with (
        IRBuilder() as builder,
        I.IRModuleFrame({}, {"f": fill}, {"a": 1}, {"x": [DummyGlobalInfo()]}),
    ):
        pass
    assert_structural_equal(
        builder.get(), IRModule({"f": fill}, {"a": 1}, {"x": [DummyGlobalInfo()]})
    )


def test_frames_are_not_for_text():
    with pytest.raises(script.ScriptError):
        script.parse("@I.ir_module\nclass Module:\n    I.module_set_attr('a', 1)")
    with pytest.raises(script.ScriptError, match="unknown target 'nothing'"):
        script.parse(
            "@I.ir_module\nclass Module:\n"
            "    I.module_global_infos({'vdevice': [I.vdevice('nothing')]})"
        )
