"""Functions that return a number: to Python, to other hosts of tvm-ffi, and out of loops."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright
from tilewright import tir
from tilewright.runtime import load_module
from tilewright.script import from_source
from tilewright.support.errors import BuildError, CodegenError, RunError, VerifyError
from tilewright.tir import PrimFunc, interpreter

TARGETS = pytest.mark.parametrize("target", ["llvm", "c"])


def function(body: str, params: str = "x: T.int32", returns: str = "T.int32") -> PrimFunc:
    arrow = f" -> {returns}" if returns else ""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    made: PrimFunc = from_source(f"@T.prim_func\ndef main({params}){arrow}:\n{lines}")
    return made


# What is returned, its dtype, the argument, and what Python gets.
VALUES: list[tuple[str, str, int, Any]] = [
    ("x + 1", "T.int32", 3, 4),
    ("x + 1", "T.int32", 2**31 - 1, -(2**31)),
    ("x", "T.int8", 200, -56),
    ("x", "T.uint8", 300, 44),
    ("x", "T.uint16", -1, 65535),
    ("T.Cast('int64', x) * 4294967296", "T.int64", -3, -3 * 2**32),
    ("x > 2", "T.bool", 3, True),
    ("x > 2", "T.bool", 2, False),
    ("T.Cast('float32', x) / T.float32(3)", "T.float32", 1, float(np.float32(1) / np.float32(3))),
    ("T.Cast('float64', x) / T.float64(3)", "T.float64", 1, 1 / 3),
    ("T.Cast('float16', x) / T.float16(3)", "T.float16", 1, float(np.float16(1 / 3))),
    ("T.Cast('bfloat16', x) / T.bfloat16(3)", "T.bfloat16", 1, float(ml_dtypes.bfloat16(1 / 3))),
    ("T.float32('nan')", "T.float32", 0, float("nan")),
]


@TARGETS
@pytest.mark.parametrize(("value", "dtype", "x", "expected"), VALUES)
def test_a_value_is_of_its_dtype(
    value: str, dtype: str, x: int, expected: Any, target: str
) -> None:
    if dtype in ("T.int8", "T.uint8", "T.uint16"):
        value = f"T.Cast('{dtype[2:]}', {value})"
    found = tilewright.compile(function(f"return {value}", returns=dtype), target)(x)
    assert type(found) is type(expected)
    np.testing.assert_equal(found, expected)


@TARGETS
def test_the_first_value_tells_the_dtype_where_the_function_does_not(target: str) -> None:
    assert tilewright.compile(function("T.ret(x * 2)", returns=""), target)(4) == 8
    assert tilewright.compile(function("T.ret(x > 2)", returns=""), target)(4) is True
    assert tilewright.compile(function("T.ret(0)", returns=""), target)(4) is None


@TARGETS
def test_loops_are_left_and_memory_is_given_back(target: str) -> None:
    body = """\
B = T.alloc_buffer((100000,), "float32")
for i in range(4):
    with T.block("B"):
        v = T.axis.spatial(4, i)
        B[v] = A[v] * 2.0
for i in range(4):
    if B[i] > 4.0:
        return i
return -1"""
    find = tilewright.compile(function(body, 'A: T.Buffer((4,), "float32")', "T.int64"), target)
    for values, place in (([0, 1, 2, 3], 3), ([5, 0, 0, 0], 0), ([0, 0, 0, 0], -1)):
        assert find(np.array(values, "float32")) == place


@TARGETS
def test_values_that_turn_out_to_be_0_are_values(target: str) -> None:
    func = function("T.ret(x - x)", returns="")
    assert tilewright.compile(func, target)(4) == interpreter.run(func, 4) == 0


@pytest.mark.parametrize(
    ("value", "returns"),
    [
        (tir.const(-1.9, "float64"), "int64"),
        (tir.const(2, "int32"), "bool"),
        (tir.const(2, "int32") > 1, "int32"),
        (tir.const(300, "int32"), "uint8"),
        (tir.const(0, "int32"), "float32"),
        (tir.const(7, "int32"), None),
    ],
)
def test_values_become_of_the_functions_dtype(value: tir.PrimExpr, returns: str | None) -> None:
    func = PrimFunc([], tir.Return(value), returns)
    found = interpreter.run(func)
    assert found is not None
    for target in ("llvm", "c"):
        assert repr(tilewright.compile(func, target)()) == repr(found)


@pytest.mark.parametrize(
    "value", [tir.Broadcast(tir.const(1, "int32"), 4), tir.StringImm("one")], ids=repr
)
def test_what_is_no_number_is_not_returned_as_one(value: tir.PrimExpr) -> None:
    func = PrimFunc([], tir.Return(value), "int32")
    for target in ("llvm", "c"):
        with pytest.raises(CodegenError, match="a function returns a number or nothing"):
            tilewright.compile(func, target)
    with pytest.raises(VerifyError, match="the function returns int32, which"):
        interpreter.run(func)


@TARGETS
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_memory_of_a_size_of_any_dtype_is_given_back(dtype: str, target: str) -> None:
    body = """\
for i in range(4):
    s = T.allocate((n,), "float32", scope="global")
    s[n - 1] = A[i]
    if s[n - 1] > 1.0:
        return s[n - 1]
return 0.0"""
    params = f'n: T.{dtype}, A: T.Buffer((4,), "float32")'
    first = tilewright.compile(function(body, params, "T.float32"), target)
    for n in (1, 7, 127):
        assert first(n, np.array([0, 1, 2, 3], "float32")) == 2


@TARGETS
@pytest.mark.parametrize(
    "body",
    [
        "T.evaluate(T.if_then_else(x > 3, T.ret(x), T.ret(1)))",
        "T.evaluate(T.Select(x > 3, T.ret(x), T.ret(1)))",
        "T.evaluate(T.ret(T.ret(x)))",
        "y: T.int32 = T.ret(x, dtype='int32')\nreturn y",
    ],
)
def test_a_return_is_a_statement(body: str, target: str) -> None:
    with pytest.raises(VerifyError, match=r"ret\(\) stands alone, as a statement"):
        tilewright.compile(function(body), target)


@pytest.mark.parametrize("kind", ["opencl", "metal", "hip"])
def test_functions_of_other_devices_return_nothing(kind: str) -> None:
    with pytest.raises(BuildError, match="only functions of the CPU do"):
        tilewright.compile(function("return x"), kind)


@TARGETS
@pytest.mark.parametrize(
    "body",
    [
        "if x > 3:\n    return x",
        "for i in range(x - 3):\n    return x",
        "while x > 3:\n    return x",
        "for i in T.parallel(2):\n    T.evaluate(i)\nif x > 3:\n    return x",
    ],
)
def test_a_way_out_without_a_value_gives_none(body: str, target: str) -> None:
    # As in TVM 0.27.
    func = function(body)
    compiled = tilewright.compile(func, target)
    assert compiled(4) == interpreter.run(func, 4) == 4
    assert compiled(2) is interpreter.run(func, 2) is None


ERRORS = (RuntimeError, RunError)
WITHOUT = """
@I.ir_module
class Module:
    @T.prim_func
    def needs(x: T.int32) -> T.int32:
        return T.call_extern("int32", "some", x) + 1

    @T.prim_func
    def ignores(x: T.int32) -> T.int32:
        T.evaluate(T.call_extern("void", "some", x))
        return 5

    @T.prim_func
    def at_once(x: T.int32) -> T.int32:
        for i in T.parallel(4):
            T.evaluate(T.call_extern("int32", "some", x))
        return 6

    @T.prim_func
    def some(x: T.int32) -> T.int32:
        assert x != 7, "no seven"
        if x > 3:
            return x
"""


@TARGETS
def test_a_caller_that_needs_the_value_has_an_error(target: str) -> None:
    mod = from_source(WITHOUT)
    compiled = tilewright.compile(mod, target)
    for name, value in (("needs", 5), ("ignores", 5), ("at_once", 6)):
        assert compiled[name](4) == interpreter.run(mod, 4, name=name) == value
        for run in (compiled[name], lambda x, name=name: interpreter.run(mod, x, name=name)):
            with pytest.raises(ERRORS, match="no seven"):
                run(7)
            if name == "ignores":
                assert run(2) == 5
                continue
            with pytest.raises(ERRORS, match="some ended without returning its int32"):
                run(2)


@TARGETS
def test_a_uint64_beyond_what_callers_take_is_an_error(target: str) -> None:
    same = tilewright.compile(function("return x", "x: T.uint64", "T.uint64"), target)
    assert same(2**63 - 1) == 2**63 - 1
    with pytest.raises(ValueError, match=r"main: it returns a uint64 above 2\*\*63 - 1"):
        same(2**63)


def test_wrong_arguments_are_errors_as_ever() -> None:
    kernel = tilewright.compile(function("return x + 1"))
    with pytest.raises(TypeError, match="argument #0"):
        kernel("three")
    assert kernel(1) == 2


def test_other_hosts_get_it_and_are_told(tmp_path: Path) -> None:
    path = tmp_path / "add.so"
    tilewright.compile(function("return x + 1")).export_library(path)
    assert load_module(path)(41) == 42
    import tvm_ffi

    module = tvm_ffi.load_module(str(path))
    assert module.main(41) == 42
    schema = json.loads(module.get_function_metadata("main")["type_schema"])
    assert [entry["type"] for entry in schema["args"]] == ["int", "int"]


@TARGETS
@pytest.mark.parametrize(
    ("body", "returns", "message"),
    [
        ("return T.broadcast(x, 4)", "T.int32x4", "returns int32x4; a function returns a number"),
        ("for i in T.parallel(4):\n    if i > x:\n        return i", "T.int64", "parallel loop"),
    ],
)
def test_what_has_no_code(body: str, returns: str, message: str, target: str) -> None:
    with pytest.raises(CodegenError, match=message):
        tilewright.compile(function(body, returns=returns), target)


CALLS = """
@I.ir_module
class Module:
    @T.prim_func
    def main(x: T.int32) -> T.{taken}:
        return T.call_extern("{taken}", "one", x) + T.call_extern("{taken}", "one", x + 1)

    @T.prim_func
    def one(x: T.int32) -> T.{given}:
        return T.Cast("{given}", x + 1)
"""


@TARGETS
@pytest.mark.parametrize(
    ("dtype", "x", "expected"),
    [
        ("int8", 60, 123),
        ("uint16", -3, 65533),
        ("int64", 2**30, 2**31 + 3),
        ("uint64", 1, 5),
        ("float16", 1, 5.0),
        ("bfloat16", 1, 5.0),
        ("float64", -2, -1.0),
    ],
)
def test_functions_of_the_module_get_it(dtype: str, x: int, expected: Any, target: str) -> None:
    mod = from_source(CALLS.format(taken=dtype, given=dtype))
    assert tilewright.compile(mod, target)["main"](x) == interpreter.run(mod, x) == expected


@TARGETS
def test_functions_of_the_module_take_it_as_it_is(target: str) -> None:
    mod = from_source(CALLS.format(taken="int32", given="float32"))
    message = r"call_extern\('one'\) is of int32, but the function returns float32"
    with pytest.raises(CodegenError, match=message):
        tilewright.compile(mod, target)
