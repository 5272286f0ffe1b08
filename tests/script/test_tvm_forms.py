"""Forms of TVM's script and of its builder, with TVM's arguments: what they print and do."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright import tirx
from tilewright.ir import Var, assert_structural_equal, const
from tilewright.script import from_source
from tilewright.script import tirx as T
from tilewright.script.ir_builder import IRBuilder
from tilewright.script.ir_builder import tirx as B
from tilewright.support.errors import ParseError, VerifyError
from tilewright.tir import interpreter

HEADER = "@T.prim_func\ndef main(A: T.Buffer((8,), 'float32'), B: T.Buffer((8,), 'float32')):\n"


def parsed(body: str, header: str = HEADER) -> tirx.PrimFunc:
    lines = body.strip("\n").split("\n")
    indent = len(lines[0]) - len(lines[0].lstrip())
    made = from_source(header + "".join(f"    {line[indent:]}\n" for line in lines))
    assert_structural_equal(from_source(made.script()), made)
    assert isinstance(made, tirx.PrimFunc)
    return made


def ran(func: tirx.PrimFunc) -> list[float]:
    arrays = [np.arange(1, 9, dtype="float32"), np.zeros(8, "float32")]
    interpreter.run(func, *arrays)
    return arrays[1].tolist()


MASK = "T.Broadcast(T.bool(True), 2)"
SAME = [
    ("x = T.bind(A[1])\nB[0] = x", "x: T.let = A[1]\nB[0] = x"),
    ("x = T.Bind(A[1], T.float32)\nB[0] = x", "x: T.let[T.float32] = A[1]\nB[0] = x"),
    ("x = T.float32()\nT.bind(A[1], var=x)\nB[0] = x", "x: T.float32 = A[1]\nB[0] = x"),
    ('T.attr({"a": 1, "b": True})\nB[0] = 1.0', 'T.attr(0, "a", 1)\nT.attr(0, "b", T.bool(True))\n'
     "B[0] = 1.0"),
    ('with T.attr({"a": "x"}):\n    B[0] = 1.0', 'with T.attr(0, attr_key="a", value="x"):\n'
     "    B[0] = 1.0"),
    ("for i in range(4):\n    if i == 2:\n        T.Break()\n    B[i] = 1.0",
     "for i in range(4):\n    if i == 2:\n        break\n    B[i] = 1.0"),
    ("for i in range(4):\n    if i == 2:\n        T.Continue()\n    B[i] = 1.0",
     "for i in range(4):\n    if i == 2:\n        continue\n    B[i] = 1.0"),
    ('C = T.alloc_buffer((4,), "float32", None, None, None, None, "local", -1, 0, "default", None, '
     '{"x": 1})\nC[0] = 1.0\nB[0] = C[0]',
     'C = T.allocate((4,), "float32", "local", annotations={"x": 1})\nC[0] = 1.0\nB[0] = C[0]'),
    ('C = T.decl_buffer((2,), "float32", A.data, None, None, 8)\nB[0] = C[0]',
     'C = T.decl_buffer((2,), "float32", data=A.data, elem_offset=2)\nB[0] = C[0]'),
    ('C = T.decl_buffer((2,), "float32", A.data, None, 1, "global", 64)\nB[0] = C[0]',
     'C = T.decl_buffer((2,), "float32", data=A.data, elem_offset=1)\nB[0] = C[0]'),
    ("T.evaluate(T.call_intrin('float32', 'tirx.exp', A[0], attrs=None))",
     "T.evaluate(T.exp(A[0]))"),
    (f"T.masked_store(B, T.Broadcast(T.float32(9), 2), T.Ramp(1, 1, 2), {MASK})",
     f"if {MASK}:\n    B[1:3] = T.Broadcast(T.float32(9), 2)"),
    ("T.evaluate(T.masked_store(B, A[0], 1, A[0] < 2.0))", "if A[0] < 2.0:\n    B[1] = A[0]"),
    ("assert A[0] < 2.0, ('RuntimeError', ['a', 'b'])", "assert A[0] < 2.0, 'ab'"),
    ("with T.sblock('b', no_realize=False, exec_scope=''):\n    v = T.axis.scan(8, 3)\n"
     "    B[v] = A[v]",
     "with T.block('b'):\n    v = T.axis.opaque(dom=8, binding=3)\n    B[v] = A[v]"),
    ("for i in range(8):\n    with T.block('b'):\n        v = T.axis.remap('S', [i], 'int64')\n"
     "        B[v] = A[v]",
     "for i in range(8):\n    with T.block('b'):\n        v = T.axis.S(8, i, 'int64')\n"
     "        B[v] = A[v]"),
]  # fmt: skip


@pytest.mark.parametrize(("form", "other"), SAME, ids=range(len(SAME)))
def test_forms_say_the_same_as_others(form: str, other: str) -> None:
    assert_structural_equal(parsed(form), parsed(other))


def test_options_of_functions_and_parameters() -> None:
    header = "@T.prim_func(private=True, check_well_formed=False, s_tir=True)\n"
    body = "Q = T.match_buffer(param=q, shape=(8,))\nQ[0] = 1.0"
    made = parsed(body, header + "def main(q: T.handle):\n")
    assert made.buffers[0].dtype == "float32"
    other = parsed('Q = T.match_buffer(q, 8, "int8", None, None, None, "global", -1, 0)\nQ[0] = 1',
                   "@T.prim_func\ndef main(q: T.handle):\n")  # fmt: skip
    assert other.buffers[0].dtype == "int8"


def test_macros_with_and_without_options() -> None:
    @T.macro
    def plain(x, y):  # type: ignore[no-untyped-def]
        y[0] = x[1]

    @T.macro(hygienic=False)
    def seeing(x):  # type: ignore[no-untyped-def]
        B[1] = x[2]

    @T.prim_func(private=True)
    def func(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):  # type: ignore[no-untyped-def]
        plain(A, B)
        seeing(A)

    assert ran(func)[:2] == [2, 3]
    with pytest.raises(ValueError, match="a macro is one function"):
        T.macro(plain, 3)


def test_masks_of_vectors() -> None:
    func = parsed(
        'M = T.masked_load("float32x4", A, T.Ramp(0, 1, 4), T.Ramp(0, 2, 4) < T.Broadcast(3, 4))\n'
        "B[4:8] = M\nT.masked_store(B, T.Broadcast(T.float32(9), 4), T.Ramp(0, 1, 4),"
        " T.Broadcast(T.int64(1), 4) < T.Ramp(0, 1, 4))"
    )
    assert ran(func) == [0, 0, 9, 9, 1, 2, 0, 0]


REFUSED = [
    ('T.masked_load("float32x4", A, T.Ramp(0, 1, 4), T.bool(True))', "bool for each of 4 lanes"),
    ('T.masked_load("float32", A, T.Ramp(0, 1, 4), T.Broadcast(T.bool(True), 4))', "float32x4"),
    ("T.masked_store(B, A[0], 1)", "an index for each of its axes, and a mask"),
    ("T.print_buffer(A, 'float32', False, False, 2, 8)", "of 2 dimensions, with 1 extents"),
    ("with T.sblock('b', exec_scope='warp'):\n    B[0] = A[0]", "no exec_scope"),
    ("T.Break()", "inside a loop"),
    ("T.func_name('g')", "T has no 'func_name'"),
    ("T.attr({})", "a node, a key and a value"),
    ("T.attr(0, 3, 1)", "the key of an attribute is text"),
    ("x = T.bind(A[0], var=A)\nB[0] = x", "gives a variable its value"),
    ("C = T.decl_buffer((2,), 'float32', A.data, byte_offset=6)\nB[0] = C[0]", "no multiple of"),
    ("C = T.alloc_buffer((2,), layout='tiles')\nB[0] = C[0]", "layout is 'default'"),
    ("T.evaluate(T.call_intrin('float32', 'exp', A[0], attrs={'a': 1}))", "no attributes"),
    ("for i in range(8):\n    with T.block('b'):\n        v = T.axis.remap('S', [i], 'int8')\n"
     "        B[v] = A[v]", "so its axis is no 'int8'"),
    ("assert A[0] < 2.0, ('Oops', ['a'])", "unknown kind of error"),
]  # fmt: skip


@pytest.mark.parametrize(("form", "message"), REFUSED, ids=range(len(REFUSED)))
def test_forms_that_are_refused_say_why(form: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parsed(form)


def test_memory_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    func = parsed(
        'T.print_buffer(A, "float32", False, False, 1, (8,))\n'
        'T.evaluate(T.print_buffer(A.data, "float32", False, True, 1, 8))\n'
        'T.print_buffer(B.data, dtype="uint8", is_string=True, is_scalar=False, dim_num=0)'
    )
    arrays = [np.arange(1, 9, dtype="float32"), np.zeros(8, "float32")]
    arrays[1].view("uint8")[:1] = b"x"[0]
    tirx.build(func)["main"](*arrays)
    assert capfd.readouterr().out == "[1. 2. 3. 4. 5. 6. 7. 8.]\n1.0\nx\n"


SHUFFLES = {
    "tvm_warp_shuffle": "warp_id",
    "tvm_warp_shuffle_up": "offset",
    "tvm_warp_shuffle_down": "offset",
    "tvm_warp_shuffle_xor": "lane_mask",
}


@pytest.mark.parametrize("name", SHUFFLES)
def test_shuffles_state_the_size_of_a_warp(name: str) -> None:
    mask, value = const(1, "uint32"), Var("x", "float32")
    for module in (T, B):
        function = getattr(module, name)
        made = function(mask=mask, value=value, width=16, warp_size=32, **{SHUFFLES[name]: 2})
        assert_structural_equal(made, function(mask, value, 2, 16, 32), map_free_vars=True)
        assert made.op.name == name.removeprefix("tvm_") and made.dtype == "float32"
        assert [getattr(arg, "value", None) for arg in made.args[2:]] == [2, 16]
        with pytest.raises(VerifyError, match="a warp has 32 or 64 threads"):
            function(mask, value, 2, 64, 32)


def test_names_of_annotations() -> None:
    assert isinstance(T.let, T.LetAnnotation)
    assert T.let[T.int32].as_var().dtype == "int32"
    assert T.LetAnnotation[T.int32].as_var("int8").dtype == "int32"
    assert T.LetAnnotation(T.int32).as_var().dtype == T.let.as_var("int32").dtype == "int32"
    with pytest.raises(TypeError, match="needs a dtype"):
        T.let.as_var()
    assert T.buffer_var("float32", "shared").dtype == "handle"
    made = T.buffer((4,), "int8", None, None, None, None, "local", buffer_name="made")
    assert (made.name, made.scope, made.dtype) == ("made", "local", "int8")


def test_statements_are_built_without_a_function() -> None:
    with IRBuilder() as builder, B.seq_scope():
        with B.serial(0, 10) as i:
            B.evaluate(i)
            B.Break()
        with B.serial(0, 5) as j:
            with B.sblock("b", exec_scope=""):
                B.axis.remap("S", [j])
            B.Continue()
    made = builder.get()
    assert [type(stmt).__name__ for stmt in made.seq] == ["For", "For"]
    assert isinstance(made.seq[0].body.seq[1], tirx.Break)
    with IRBuilder() as builder:
        with B.serial(3):
            B.evaluate(0)
        with pytest.raises(VerifyError, match="several statements need"), B.serial(3):
            B.evaluate(0)


def test_a_function_is_built_of_short_forms() -> None:
    with IRBuilder() as builder, B.prim_func(s_tir=True, private=True):
        B.func_name("main")
        A = B.arg("A", B.buffer((2, 3), "float32"))
        flat = B.buffer_proxy(A)
        flat[4] = flat[5] + flat[0, 1]
        with B.frame_scope([B.serial(3), B.attr({"k": 1, "l": 2})]) as (i, _):
            B.add_to_parent(tirx.Evaluate(i))
        with B.block_name_suffix_context("_1"), B.sblock("made"):
            v = B.axis.scan(3, 2)
            B.buffer_store(A, 1.0, [0, v])
        B.func_ret("float32")
        B.Return(A[0, 0])
    made = builder.get()
    assert (
        "\n".join(made.script().split("\n")[4:])
        == """\
def main(A: T.Buffer((2, 3), "float32")) -> T.float32:
    A[1, 1] = A[1, 2] + A[0, 1]
    for i in range(3):
        T.attr(0, "k", 1)
        T.attr(0, "l", 2)
        T.evaluate(i)
    with T.block("made_1"):
        v0 = T.axis.opaque(3, 2)
        T.reads()
        T.writes(A[0, v0])
        A[0, v0] = T.float32(1.0)
    return A[0, 0]
"""
    )
    assert_structural_equal(from_source(made.script()), made)
    for wrong in ({"persistent": True}, {"is_private": 3}):
        with pytest.raises(VerifyError):
            B.prim_func(**wrong)


def test_threads_join_values_in_the_builder() -> None:
    reducer = T.comm_reducer(lambda x, y: x + y, [T.float32(0)])
    with IRBuilder() as builder, B.prim_func():
        A = B.arg("A", B.Buffer((32,), "float32"))
        total = B.arg("total", B.Buffer((1,), "float32"))
        with B.launch_thread("threadIdx.x", 32) as tx:
            with B.attr(reducer, "reduce_scope", 0):
                joined = B.tvm_thread_allreduce(T.uint32(1), A[tx], T.bool(True), total[0], tx)
                B.evaluate(joined)
            with pytest.raises(VerifyError, match="reduce_scope"):
                B.tvm_thread_allreduce(T.uint32(1), A[tx], T.bool(True), total[0], tx)
    func = builder.get()
    assert_structural_equal(from_source(func.script()), func)
    arrays = [np.ones(32, "float32"), np.zeros(1, "float32")]
    interpreter.run(func, *arrays)
    assert arrays[1] == 32
    assert tilewright.ir.structural_equal(func, func)
