"""Errors point at line and column of the text, and say what to do."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tilewright import script
from tilewright.script import ir as I
from tilewright.script import tir as T
from tilewright.support.errors import ParseError, TilewrightError
from tilewright.tir.interpreter import run

HEAD = """@T.prim_func
def main(A: T.Buffer((4, 8), "float32"), n: T.int32):
"""


def failing(body, *, head=HEAD):
    """Parse a function with a body; return message, and the text above the caret."""
    lines = body.strip("\n").splitlines()
    text = head + "\n".join("    " + line for line in lines) + "\n"
    with pytest.raises(script.ScriptError) as info:
        script.parse(text)
    error = info.value
    excerpt = error.message.splitlines()
    source, carets = excerpt[-2], excerpt[-1]
    start = carets.index("^")
    assert f"<script>:{error.line}:{error.column + 1}" in error.message
    return error.message, source[start : start + carets.count("^")]


@pytest.mark.parametrize(
    ("body", "message", "culprit"),
    [
        ("A[0, 0] = T.expp(A[0, 0])", "T has no 'expp'; did you mean 'exp'", "expp"),
        ("A[0, 0] = B[0, 0]", "undefined variable 'B'", "B"),
        ("A[0] = 1.0", "buffer A has 2 dimensions, got 1 indices", "A[0]"),
        ("A[0, 0] = A[0, 0, 0]", "has 2 dimensions, got 3 indices", "A[0, 0, 0]"),
        ("A[0, 0] = n > 1", "buffer A takes float32 here, the value is bool", "n > 1"),
        ("A[0, 0] = 'x'", "buffer A takes float32, got 'x'", "'x'"),
        ("A[0, 0] = True", "takes float32, got True", "True"),
        ("A[0, 0:4] = A[0, 0]", "takes float32x4 here, the value is float32", "A[0, 0]"),
        ("A[0, 0:n] = 1.0", "needs a constant length", "A[0, 0:n]"),
        ("A[0, 1.5] = 1.0", "an index of A must be an integer, got float32", "A[0, 1.5]"),
        ("A[0, 0] = n / 2", "`/` on int32 is ambiguous", "n / 2"),
        ("A[0, 0] = T.exp(1.0, 2.0)", "exp takes 1 arguments, got 2", "T.exp(1.0, 2.0)"),
        ("A[0, 0] = T.Select(n, 1.0, 2.0)", "a condition must be bool, got int32", None),
        ("if n:\n    A[0, 0] = 1.0", "a condition must be bool, got int32", "n"),
        ("if not n and n > 1:\n    pass", "a condition must be bool, got int32", "n"),
        ("while n + 1:\n    pass", "a condition must be bool", "n + 1"),
        ("for i in A:\n    pass", "`A` is no loop", "A"),
        ("for i in 5:\n    pass", "`5` is no loop", "5"),
        ("for i in range(8, 0, -2):\n    pass", "step of a loop is a positive", "range(8, 0, -2)"),
        ("for i in T.serial(1.5):\n    pass", "a range is of integers", "T.serial(1.5)"),
        ("for i, j in T.grid(4):\n    pass", "2 variables for 1 loops", "i, j"),
        ("for i, j, i in T.grid(4, 2, 3):\n    pass", "two loops of a grid are named 'i'", "i"),
        ("for i in T.serial(4, foo=1):\n    pass", "unexpected keyword argument 'foo'", None),
        ("with T.blok('b'):\n    pass", "T has no 'blok'; did you mean 'block'", "blok"),
        ("with T.grid(4):\n    pass", "can't stand after with", "T.grid(4)"),
        (
            "with T.block('b'):\n    pass\nwith T.block('b'):\n    pass",
            "two blocks named 'b'; the other is on line 3",
            "T.block('b')",
        ),
        ("vi = T.axis.spatial(4, 0)", "T.axis stands inside a block", None),
        ("with T.block('b'):\n    vi = T.axis.spatial(4)", "needs the value that it takes", None),
        ("with T.block('b'):\n    vi = T.axis.spatal(4, 0)", "no 'spatal'; did you mean", "spatal"),
        (
            "for i in range(4):\n    with T.block('b'):\n        v = T.axis.remap('SR', [i])",
            "remap names 2 kinds for 1 loop variables",
            "T.axis.remap('SR', [i])",
        ),
        ("with T.block('b'):\n    v = T.axis.remap('S', [n])", "remap takes loop variables", None),
        ("T.where(n > 1)", "T.where stands inside a block", "T.where(n > 1)"),
        ("with T.block('b'):\n    T.where(n)", "a condition must be bool", None),
        ("with T.block('b'):\n    T.reads()\n    T.reads()", "two T.reads", "T.reads()"),
        ("with T.block('b'):\n    T.reads(n)", "expected a buffer or a region", "T.reads(n)"),
        ("with T.init():\n    pass", "T.init stands inside a block", None),
        ("T.func_attr([1])", "func_attr takes a dict", "T.func_attr([1])"),
        ("B = T.match_buffer(n, (4,))", "is not a T.handle", None),
        ("B = T.match_buffer(A, (4, 8))", "stands inside a block", None),
        ("B = T.alloc_buffer((4,), 'float33')", "unknown dtype 'float33'", None),
        ("B = T.alloc_buffer((1.5,))", "shapes and strides are integers", None),
        ("T.alloc_buffer((4,))", "a buffer needs a name", None),
        *(
            (text, "a statement, which has no value", culprit)
            for text, culprit in [
                ("z = T.Return(1)", "z = T.Return(1)"),
                ("for i in range(3):\n    z = T.Break()", "z = T.Break()"),
                ("z, w = 1, T.evaluate(2)", "w"),
                ("z = [1, T.evaluate(2)]", "z = [1, T.evaluate(2)]"),
                ("z = {'a': T.evaluate(2)}", "z = {'a': T.evaluate(2)}"),
                ("z = T.meta_var(T.evaluate(2))", None),
                ("z = T.where(n > 1)", "z = T.where(n > 1)"),
                ("z = T.func_attr({'a': 1})", "z = T.func_attr({'a': 1})"),
                ("for z in [T.evaluate(1)]:\n    pass", "z"),
                ("if T.Return(1):\n    pass", "T.Return(1)"),
            ]
        ),
        ("z = T.ret(1)", "has no value: give it a line of its own", "z = T.ret(1)"),
        ("x: T.float32 = n", "x is declared float32, the value is int32", "n"),
        ("x: T.int32 = 1.5", "takes int32, got 1.5", "1.5"),
        ("x: 3 = n", "expected a dtype", "3"),
        ("x, y = n + 1", "can't be unpacked", None),
        ("x, y = (1, 2, 3)", "2 names for 3 values", "x, y"),
        ("n.x = 3", "attributes can't be assigned", "n.x"),
        ("n[0] = 3", "a Var has no items", "n[0]"),
        ("T.x += 1", "expected a name or an element of a buffer", "T.x"),
        ("k += 1", "k is no variable that can change", "k"),
        ("assert 1 > 2, 'no'", "this does not hold: no", None),
        ("x = [k for k in n]", "a Var can't be iterated over", "n"),
        ("x = [k for k, j in [(1,)]]", "2 names for 1 values", "k, j"),
        ("x = (y := 3)", "NamedExpr has no meaning in script", "y := 3"),
        ("x = (lambda a: a)(1, 2)", "the lambda takes 1 arguments, got 2", None),
        ("import os", "Import is not part of the dialect", "import os"),
        ("try:\n    pass\nfinally:\n    pass", "Try is not part of the dialect", None),
        ("open('/etc/passwd')", "undefined variable 'open'", "open"),
        ("A.__class__", "has no '__class__'", "__class__"),
        ("x = [a.__class__ for a in (A,)]", "has no '__class__'", "__class__"),
        ("T.OPS.register('x', 1)", "T has no 'OPS'", "OPS"),
        ("x = [T.OPS for _ in (1,)]", "T has no 'OPS'", "OPS"),
        ("x = T.script", "T has no 'script'", "script"),
        ("x = T.int8(300)", "the constant 300 does not fit int8", "T.int8(300)"),
        ("x = T.int8(1.5)", "the constant 1.5 is not of dtype int8", "T.int8(1.5)"),
        ("n", None, None),
    ],
)
def test_error(body, message, culprit):
    if message is None:
        script.parse(HEAD + "    " + body)  # an expression alone is evaluated for nothing
        return
    text, marked = failing(body)
    assert message in text
    if culprit is not None:
        assert marked == culprit


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the text holds no program"),
        ("'text'", "the text holds no program"),
        ("def f(:\n    pass", "not valid Python"),
        ("def f():\n    pass", "needs a decorator"),
        ("class M:\n    pass", "needs the decorator @I.ir_module"),
        ("import os", "may only import dialects"),
        ("from tilewright.script import printer", "may only import dialects"),
        ("@T.prim_func\ndef f(x):\n    pass", "parameter 'x' needs a type"),
        ("@T.prim_func\ndef f(x: int):\n    pass", "text may not use a function as a value"),
        ("@T.prim_func\ndef f(x: T.int32 = 1):\n    pass", "without defaults"),
        ("@T.prim_func(foo=1)\ndef f():\n    pass", "takes root= and name="),
        ("@T.prim_func\ndef f():\n    pass\n@T.prim_func\ndef g():\n    pass", "several programs"),
        ("@T.prim_func\ndef f():\n    pass\nf + 1", "outside of the program"),
        ("@I.ir_module\nclass M:\n    x = 1", "a module names values by `x = I.meta_var(value)`"),
        ("@I.ir_module\nclass M:\n    def f():\n        pass", "'f' needs a decorator"),
        (
            "@I.ir_module\nclass M:\n    @T.prim_func\n    def f():\n        pass\n"
            "    @T.prim_func\n    def f():\n        pass",
            "two functions named 'f'",
        ),
        (
            "@T.prim_func(root=False)\ndef f():\n    A = T.alloc_buffer((4,))",
            "needs a root block",
        ),
    ],
)
def test_error_in_the_frame(text, message):
    with pytest.raises(ParseError) as info:
        script.parse(text)
    assert message in str(info.value)


def test_caret_in_full():
    with pytest.raises(ParseError) as info:
        script.parse(HEAD + "    A[0, 0] = T.expp(A[0, 0])\n", name="kernel.py")
    first, *excerpt = str(info.value).splitlines()
    assert first == "T has no 'expp'; did you mean 'exp' or 'exp2' or 'ldexp'?"
    assert excerpt == [
        "  --> kernel.py:3:17",
        "  |",
        "3 |     A[0, 0] = T.expp(A[0, 0])",
        "  |                 ^^^^",
    ]


def test_decorated_functions_name_the_file_and_its_line():
    with pytest.raises(script.ScriptError) as info:

        @T.prim_func
        def main(A: T.Buffer((4,), "float32")):
            A[0] = "ä" + missing  # noqa: F821

    error = info.value
    assert "test_errors.py" in error.message
    with open(__file__, encoding="utf-8") as file:
        line = file.read().splitlines()[error.line - 1]
    assert line[error.column :].startswith("missing")


def test_decorated_modules_name_the_line():
    with pytest.raises(script.ScriptError) as info:

        @I.ir_module
        class Module:
            @T.prim_func
            def main(A: T.Buffer((4,), "float32")):
                A[0, 1] = 1

    assert "A[0, 1] = 1" in info.value.message


def test_an_error_in_a_macro_points_into_the_macro():
    with pytest.raises(script.ScriptError) as info:
        script.parse(
            "@T.macro\ndef put(x):\n    x[0] = 1.0\n\n@T.prim_func\n"
            'def main(A: T.Buffer((4,), "int32")):\n    put(A)\n'
        )
    assert info.value.line == 3


def test_errors_can_be_sent_to_other_processes():
    with pytest.raises(script.ScriptError) as info:
        script.parse("x + 1")
    copy = pickle.loads(pickle.dumps(info.value))
    assert str(copy) == str(info.value) and copy.line == 1


def test_macros_are_statements():
    with pytest.raises(ParseError, match="macro 'put' is a statement"):
        script.parse(
            "@T.macro\ndef put(x):\n    x[0] = 1\n\n@T.prim_func\n"
            'def main(A: T.Buffer((4,), "int32")):\n    A[0] = put(A)\n'
        )


def test_what_has_no_source_says_so():
    scope = {"T": T}
    with pytest.raises(ParseError, match=r"use tilewright.script.parse\(text\)"):
        exec("@T.prim_func\ndef f(): pass", scope)


def test_values_that_script_cannot_print():
    func = script.parse("@T.prim_func\ndef f(n: T.int32):\n    pass")
    with pytest.raises(TilewrightError, match="can't print a object"):
        func.with_attr("x", object()).script()


MATCH = """with T.block("b"):
    T.reads(A[0:4, 0:8])
    T.writes()
    B = T.match_buffer({source}, {arguments})
    T.evaluate(0)
"""


@pytest.mark.parametrize(
    ("source", "arguments", "message"),
    [
        ("A[0:2, 0:8]", "(2, 9)", "buffer B has shape (2, 9), the region of A that it stands for"),
        (
            "A[0:2, 0:8]",
            "(8,)",
            "buffer B has shape (8), the region of A that it stands for (2, 8)",
        ),
        ("A[0:2, 0:8]", "(1, 2, 8)", "buffer B has shape (1, 2, 8), the region of A"),
        ("A[0:2, 0:8]", "(2, 8), 'int8'", "buffer B has dtype int8, A float32"),
    ],
)
def test_a_matched_buffer_that_does_not_fit_its_region(source, arguments, message):
    text, culprit = failing(MATCH.format(source=source, arguments=arguments))
    assert message in text
    assert culprit == f"B = T.match_buffer({source}, {arguments})"


@pytest.mark.parametrize("arguments", ["(8,)", "(1, 8)", "(1, n)"])
def test_a_matched_buffer_may_leave_leading_ones_out(arguments):
    body = MATCH.format(source="A[2:3, 0:8]", arguments=arguments)
    script.parse(HEAD + "\n".join("    " + line for line in body.splitlines()) + "\n")


def test_a_wrong_number_of_indices_in_full():
    text = (
        "@T.prim_func\n"
        'def main(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 8), "float32")):\n'
        "    for i, j in T.grid(4, 8):\n"
        "        B[i, j] = A[i] + 1.0\n"
    )
    with pytest.raises(ParseError) as info:
        script.parse(text, name="kernel.py")
    assert str(info.value).splitlines() == [
        "buffer A has 2 dimensions, got 1 indices",
        "  --> kernel.py:4:19",
        "  |",
        "4 |         B[i, j] = A[i] + 1.0",
        "  |                   ^^^^",
    ]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('T.func_attr({"a": 1, "a": 2})', "the key 'a' is given twice"),
        ('T.func_attr({"a": 1})\nT.func_attr({"a": 1})', "the attribute 'a' is given twice"),
        ('T.func_attr({"a": T.float32})', "the attribute 'a' can't hold T.float32"),
        ('T.func_attr({"a": [{"b": lambda: 1}]})', "the attribute 'a' can't hold"),
        (
            'with T.block("b"):\n    T.block_attr({"a": 1})\n    T.block_attr({"a": 2})',
            "the attribute 'a' is given twice",
        ),
    ],
)
def test_attributes_are_stated_once_and_can_be_printed(body, message):
    text, _ = failing(body)
    assert message in text


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "with T.block('b'):\n    v = T.axis.S(4, 0)\n    v = T.axis.S(4, 1)\n    T.evaluate(0)",
            "the block has two axes named 'v'",
        ),
        ("A[0, 0] = A[0:2, 0]", "only the last index of A may be a slice"),
        ("A[0:2, 0] = 1.0", "only the last index of A may be a slice"),
        ("T.evaluate(T.IntImm('int8', 300))", "the constant 300 does not fit int8"),
        ("T.evaluate(T.IntImm('float32', 1))", "of an integer dtype"),
        ("T.evaluate(T.StringImm(3))", "a StringImm holds text"),
    ],
)
def test_contradictions(body, message):
    text, _ = failing(body)
    assert message in text


@pytest.mark.parametrize(
    "text",
    [
        "@T.prim_func\ndef main(a: T.int32, b: T.int32, a: T.int64):\n    T.evaluate(a)\n",
        "@T.prim_func\ndef main(a: T.handle, a: T.Buffer((4,), 'int8')):\n    T.evaluate(0)\n",
        "@R.function\ndef main(a: R.Tensor((2,)), a: R.Tensor((3,))):\n    return a\n",
    ],
)
def test_two_parameters_of_one_name(text):
    with pytest.raises(script.ScriptError, match="two parameters are named 'a'"):
        script.parse(text)


def test_what_nobody_names_may_be_one_name():
    text = "@T.prim_func\ndef main(A: T.Buffer((4,), 'int8')):\n"
    text += "    for _, _ in T.grid(2, 3):\n        A[0] = A[0] + T.int8(1)\n"
    data = np.zeros(4, "int8")
    run(script.parse(text), data)
    assert data[0] == 6
