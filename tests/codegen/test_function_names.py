"""Names of functions: any text in a module and its script, symbols where they are compiled."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright.ir import GlobalVar, IRModule, structural_equal
from tilewright.script import from_source
from tilewright.support.errors import CodegenError, VerifyError
from tilewright.tir import PrimFunc, interpreter

TARGETS = pytest.mark.parametrize("target", ["llvm", "c"])
TEXTS = ("bad name", "", "a-b", 'a"b', "a\nb", "é", "ﬁ", "a\0b", "\ud800", "%", "\\x", "a\u2028b")
SYMBOLS = ("main.kernel", "__tvm_ffi_x", "for", "exp", "memcpy", "a$b", "_", "x" * 300)


def adding(number: int, param: str = "A") -> PrimFunc:
    made: PrimFunc = from_source(
        f"@T.prim_func\ndef main({param}: T.Buffer((4,), 'float32')):\n"
        f"    for i in range(4):\n        {param}[i] = {param}[i] + {number}.0\n"
    )
    return made


def ran(call: object, *args: object) -> float:
    array = np.zeros(4, "float32")
    call(array, *args)  # type: ignore[operator]
    return float(array[3])


@pytest.mark.parametrize("name", [*TEXTS, *SYMBOLS], ids=ascii)
def test_any_text_is_a_name_in_a_module(name: str) -> None:
    # As in TVM 0.27.
    mod = IRModule({"other": adding(2)})
    mod[name] = adding(1)
    assert structural_equal(mod, IRModule({GlobalVar(name): adding(1), "other": adding(2)}))
    again = from_source(mod.script())
    assert structural_equal(again, mod) and set(again.functions) == {name, "other"}
    assert ran(lambda array: interpreter.run(mod, array, name=name)) == 1


@TARGETS
@pytest.mark.parametrize("name", TEXTS, ids=ascii)
def test_names_that_are_no_symbols_have_no_code(name: str, target: str) -> None:
    with pytest.raises(CodegenError, match="can't be the name of a compiled function"):
        tilewright.compile(IRModule({name: adding(1), "other": adding(2)}), target)


@TARGETS
def test_functions_of_similar_names_stay_apart(target: str) -> None:
    names = ("a.b", "a_b", "a_b_1", "a_b_kernel", *SYMBOLS, *("x" * 300 + e for e in "ab"))
    mod = IRModule({name: adding(number) for number, name in enumerate(names)})
    compiled = tilewright.compile(mod, target)
    assert [ran(compiled[name]) for name in names] == [*range(len(names))]


@TARGETS
def test_parameters_may_be_called_as_functions_are(target: str) -> None:
    text = """
@I.ir_module
class Module:
    @T.prim_func
    def main(f_kernel: T.Buffer((4,), "float32"), f: T.int32):
        T.evaluate(T.call_extern("int32", "f", f_kernel.data))

    @T.prim_func
    def f(main: T.Buffer((4,), "float32")):
        main[3] = T.float32(5)
"""
    assert ran(tilewright.compile(from_source(text), target)["main"], 1) == 5


def test_digits_begin_no_name_in_c() -> None:
    mod = IRModule({"0": adding(1)})
    assert ran(tilewright.compile(mod, "llvm")["0"]) == 1
    with pytest.raises(CodegenError, match="'0' is no name of a C function"):
        tilewright.compile(mod, "c")


@pytest.mark.parametrize("name", [3, None, ("a",), b"a"])
def test_what_is_no_text_is_no_name(name: object) -> None:
    mod = IRModule({"f": adding(1)})
    with pytest.raises(VerifyError, match="a dict of functions by name"):
        mod[name] = adding(2)  # type: ignore[index]
    with pytest.raises(VerifyError, match="the name of a function is text"):
        GlobalVar(name)  # type: ignore[arg-type]


def test_a_function_that_is_taken_away_is_there() -> None:
    mod = IRModule({"add": adding(1), "other": adding(2)})
    assert list(mod.without_function(GlobalVar("add")).functions) == ["other"]
    with pytest.raises(VerifyError, match="no function 'ad'; did you mean 'add'"):
        mod.without_function("ad")
