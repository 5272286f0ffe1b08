"""Constructors of buffers, statements and functions refuse what no program can mean."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tilewright
from tilewright import script
from tilewright.ir import OPS, Call, FloatImm, Range, Var, const
from tilewright.support.errors import ParseError, VerifyError
from tilewright.tir import (
    NO_OP,
    THREAD_TAGS,
    AttrStmt,
    Block,
    Buffer,
    Evaluate,
    For,
    IterVar,
    PrimFunc,
    decl_buffer,
)
from tilewright.tir.analysis import verify
from tilewright.tir.interpreter import run
from tilewright.tir.interpreter.values import numpy_dtype

I = Var("i")
ZERO, FOUR = const(0), const(4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Buffer(3, (4,)), "the name of a buffer is text, got 3"),
        (lambda: Buffer("A", (4, -4)), "buffer A has the extent -4, less than nothing"),
        (lambda: decl_buffer((-1,), name="A"), "buffer A has the extent -1"),
        (lambda: Buffer("A", (4.5,)), "buffer A has the extent 4.5, which is no integer"),
        (lambda: Buffer("A", (4,), "int99"), "unknown dtype 'int99'"),
        (lambda: Buffer("A", (4,), None), "a dtype is text"),
        (lambda: decl_buffer((4,), 3), "a dtype is text"),
        (lambda: Block((), (), (), 3, NO_OP), "the name of a block is text, got 3"),
        (lambda: AttrStmt(None, 3, ZERO, NO_OP), "the name of an attribute is text, got 3"),
        (lambda: For(I, ZERO, FOUR, "paralel", NO_OP), "unknown loop kind 'paralel'; did you mean"),
        (lambda: For(I, ZERO, FOUR, ["serial"], NO_OP), "unknown loop kind ['serial']"),
        (
            lambda: For(I, ZERO, FOUR, "thread_binding", NO_OP, "blockIdx.w"),
            "unknown thread tag 'blockIdx.w'; did you mean",
        ),
        (lambda: For(I, ZERO, FOUR, "thread_binding", NO_OP, 3), "unknown thread tag 3"),
        (
            lambda: IterVar(Range.from_min_extent(ZERO, FOUR), I, "time"),
            "unknown kind of axis 'time'; known",
        ),
        (lambda: PrimFunc((), NO_OP, "int99"), "unknown dtype 'int99'"),
    ],
)
def test_refused(make, message):
    with pytest.raises(VerifyError) as info:
        make()
    assert message in info.value.message


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("C = T.alloc_buffer((4, -4))", "has the extent -4, less than nothing"),
        ("C = T.alloc_buffer((4,), 'int99')", "unknown dtype 'int99'"),
        ("C = T.allocate((-4,), 'float32', scope='local')", "has the extent -4"),
        ("C = T.decl_buffer((-4,), data=A.data)", "has the extent -4"),
        ("T.evaluate(T.Call('exp', 1.0, dtype='int99'))", "unknown dtype 'int99'"),
        ("T.evaluate(T.Ramp(0, 1, 10**9))", "T.vscale() times one: got 1000000000"),
        ("T.evaluate(T.Broadcast(0, 10**9))", "T.vscale() times one: got 1000000000"),
        (
            "for i in T.thread_binding(4, thread='blockIdx.w'):\n        T.evaluate(0)",
            "unknown thread tag 'blockIdx.w'; did you mean",
        ),
    ],
)
def test_script_points_at_what_is_refused(statement, message):
    text = f"@T.prim_func\ndef f(A: T.Buffer((4,))):\n    {statement}\n"
    with pytest.raises(ParseError) as info:
        script.parse(text)
    assert message in str(info.value)
    assert "--> <script>:3:" in str(info.value)


@pytest.mark.parametrize("tag", THREAD_TAGS)
def test_known_thread_tags(tag):
    text = (
        f"@T.prim_func\ndef f():\n    for i in T.thread_binding(4, thread='{tag}'):\n"
        "        T.evaluate(i)\n"
    )
    assert repr(tag).replace("'", '"') in script.parse(text).script()


def test_operators_take_their_number_of_arguments():
    call = Call.of_fields(OPS.get("pow"), (FloatImm("float32", 1.0),), "float32")
    with pytest.raises(VerifyError, match="pow takes 2 arguments, got 1"):
        verify(PrimFunc((), Evaluate(call)))


MATCH = """@T.prim_func
def f(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8,), "int64")):
    with T.block("b"):
        T.reads(A[4:8, 0:8])
        T.writes(B[0])
        s = T.int64()
        o = T.int64()
        V = T.match_buffer(A[REGION], SHAPE, "float32", MORE)
        B[0] = WHAT
"""


def matched(region: str, shape: str, more: str, what: str = "s") -> PrimFunc:
    text = MATCH.replace("REGION", region).replace("SHAPE", shape).replace("WHAT", what)
    return script.parse(text.replace("MORE", more))


@pytest.mark.parametrize(
    ("region", "shape", "more", "message"),
    [
        ("4:8, 0:8", "(4, 8)", "strides=(s, s)", "stride s = 8 on axis 1, the region of A"),
        ("4:8, 0:8", "(4, 8)", "strides=(s, 1), elem_offset=s", "offset s = 8, the region of A"),
        ("4:8, 0:8", "(4, 8)", "elem_offset=0", "offset 0, the region of A that it stands for 32"),
        ("4:8, 2:8", "(4, 6)", "elem_offset=32", "offset 32, the region of A"),
    ],
)
def test_places_that_contradict_the_source(region, shape, more, message):
    with pytest.raises(ParseError, match=re.escape(message)):
        matched(region, shape, more)


@pytest.mark.parametrize(
    ("region", "shape", "more", "what", "expected"),
    [
        ("4:8, 0:8", "(4, 8)", "strides=(s, 1)", "s", 8),
        ("4:8, 3:4", "(4, 1)", "strides=(s, s)", "s", 8),  # of one column: any step is right
        ("4:5, 0:8", "(1, 8)", "strides=(s, s)", "s", 1),
        ("4:8, 2:8", "(4, 6)", "elem_offset=o", "o", 34),
        ("0:4, 0:8", "(4, 8)", "elem_offset=0", "T.int64(7)", 7),
    ],
)
def test_places_that_agree(region, shape, more, what, expected):
    func = matched(region, shape, more, what)
    verify(func)
    a, b = np.zeros((8, 8), "float32"), np.zeros(8, "int64")
    run(func, a, b)
    assert b[0] == expected
    b[:] = 0
    tilewright.compile(func)(a, b)
    assert b[0] == expected


def accessing(body: str) -> PrimFunc:
    head = '@T.prim_func\ndef f(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):\n'
    return script.parse(head + "".join(f"    {line}\n" for line in body.splitlines()))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("B[0] = A[7]", "index 7 is outside of axis 0 of 'A', whose extent is 4"),
        ("B[0] = A[-1]", "index -1 is outside of axis 0 of 'A'"),
        ("B[4] = 1.0", "index 4 is outside of axis 0 of 'B'"),
        ("B[0:4] = A[2:6]", "index 5 is outside of axis 0 of 'A'"),
        ("B[T.Ramp(0, -1, 4)] = A[0:4]", "index -3 is outside of axis 0 of 'B'"),
        ("for i in range(3):\n    B[i] = A[4]", "index 4 is outside of axis 0 of 'A'"),
        ("with T.block('b'):\n    B[4] = A[0]", "index 4 is outside of axis 0 of 'B'"),
        ("if A[4] > 0.0:\n    B[0] = 1.0", "index 4 is outside of axis 0 of 'A'"),
        ("B[0] = T.if_then_else(A[4] > 0.0, 1.0, 2.0)", "index 4 is outside of axis 0 of 'A'"),
        # Loops of known bounds get to their ends, whatever else there is.
        ("for i in range(5):\n    B[0] = A[i]", "index 4 is outside of axis 0 of 'A'"),
        ("for i in T.vectorized(8):\n    B[i] = A[0]", "index 7 is outside of axis 0 of 'B'"),
        ("for i, j in T.grid(2, 3):\n    B[i] = A[i * 3 - j]", "index -2 is outside"),
        ("for i in T.serial(2, 4):\n    B[i // 2] = A[i % 4 + 1]", "index 4 is outside"),
        ("for i in range(4):\n    x: T.int64 = i + 1\n    B[i] = A[x]", "index 4 is outside"),
        (
            "for i in range(2):\n    for j in range(i):\n        B[i] = A[j]\n    B[i + 3] = A[i]",
            "index 4 is outside of axis 0 of 'B'",
        ),
        (
            "for i, j in T.grid(2, 3):\n    with T.block('b'):\n"
            "        v = T.axis.spatial(6, i * 3 + j)\n        B[v] = A[0]",
            "index 5 is outside of axis 0 of 'B'",
        ),
        # A vector leaves it in part.
        ("for i in range(2):\n    B[T.Ramp(i * 2, 1, 4)] = A[0:4]", "index 5 is outside"),
        ("B[T.Ramp(0, 1, 4) + T.Broadcast(1, 4)] = A[0:4]", "index 4 is outside of axis 0 of 'B'"),
        ("B[T.Broadcast(4, 4)] = A[0:4]", "index 4 is outside of axis 0 of 'B'"),
        ("B[0:4] = A[T.max(T.Ramp(0, 2, 4), T.Broadcast(3, 4))]", "index 6 is outside"),
        (
            "B[T.Ramp(T.Cast('int64', A[0]), 1, 8)] = T.Broadcast(T.float32(1), 8)",
            "an index spans 8 elements of axis 0 of 'B', whose extent is 4",
        ),
        # What a view stands for hasn't the element.
        (
            "M = T.decl_buffer((9,), 'float32', data=A.data)\nB[0] = M[8]",
            "element 8 of 'M' is outside of the memory of 'A', which holds 4 of its elements",
        ),
        (
            "M = T.decl_buffer((4,), 'float32', data=A.data, elem_offset=1)\nB[0] = M[3]",
            "element 4",
        ),
        ("M = T.decl_buffer((2,), 'float32', data=A.data, strides=(4,))\nB[0] = M[1]", "element 4"),
        (
            "M = T.decl_buffer((4,), 'int64', data=A.data)\nM[2] = T.int64(0)",
            "element 2 of 'M' is outside of the memory of 'A', which holds 2 of its elements",
        ),
        (
            "for i in range(4):\n    with T.block('b'):\n        v = T.axis.spatial(4, i)\n"
            "        T.reads(A[v:v + 2])\n        T.writes(B[v])\n"
            "        M = T.match_buffer(A[v:v + 2], (2,), 'float32')\n        B[v] = M[1]",
            "index 4 is outside of axis 0 of 'A'",
        ),
        # Both values of a Select are evaluated.
        ("B[0] = T.Select(A[0] > 0.0, A[7], 1.0)", "index 7 is outside of axis 0 of 'A'"),
        ("for i in range(4):\n    B[i] = T.Select(i > 0, A[i - 1], 1.0)", "index -1 is outside"),
    ],
)
def test_an_element_that_is_not_there(body, message):
    with pytest.raises(VerifyError, match=re.escape(message)):
        verify(accessing(body))


@pytest.mark.parametrize(
    "body",
    [
        "if A[0] > 0.0:\n    B[0] = A[7]",
        # What a block declares is in terms of data that it may not read.
        "for i in range(8):\n    with T.block('b'):\n        v = T.axis.spatial(8, i)\n"
        "        T.reads(A[T.Cast('int64', A[v])], A[v])\n        T.writes(B[v // 2])\n"
        "        B[v // 2] = T.if_then_else(v < 4, A[T.Cast('int64', A[v])], 0.0)",
        "B[0] = T.if_then_else(A[0] > 0.0, A[7], 1.0)",
        "M = T.decl_buffer((9,), 'float32', data=A.data)\nB[0] = M[3]",
        "M = T.decl_buffer((16,), 'uint8', data=A.data)\nM[15] = T.uint8(0)",
        "with T.block('b'):\n    T.reads(A[3:5])\n    T.writes(B[0])\n"
        "    M = T.match_buffer(A[3:5], (2,), 'float32')\n    B[0] = M[0]",
        "for i in range(0):\n    B[4] = 1.0",
        "for i in T.serial(2, -1):\n    B[4] = 1.0",
        "while A[0] > 0.0:\n    B[4] = 1.0",
        "assert A[0] > 0.0, 'none'\nB[4] = 1.0",
        "with T.block('b'):\n    T.where(A[0] > 0.0)\n    B[4] = 1.0",
        "T.evaluate(T.address_of(A[4], dtype='handle'))",
        "B[3] = A[0]",
        "for i in range(8):\n    if i < 4:\n        B[i] = A[i]",
        "for i in range(8):\n    B[i % 4] = A[i // 2]",
        "for i in range(4):\n    B[i] = T.if_then_else(i > 0, A[i - 1], 1.0)",
        "for i, j in T.grid(4, 4):\n    B[T.max(i - j, 0)] = A[T.min(i + j, 3)]",
        "for i in range(T.Cast('int64', A[0])):\n    B[i + 4] = A[i]",
        "for i in range(8):\n    with T.block('b'):\n        v = T.axis.spatial(8, i)\n"
        "        T.where(i < 4)\n        B[v] = A[v]",
        "for i in range(8):\n    with T.block('b'):\n        v = T.axis.reduce(8, i)\n"
        "        with T.init():\n            B[0] = 0.0\n        B[0] = B[0] + A[v // 2]",
    ],
)
def test_elements_that_nobody_may_ask_for(body):
    verify(accessing(body))


@pytest.mark.parametrize(
    "loop", ["range(-3)", "T.serial(2, -1)", "T.parallel(-3)", "T.vectorized(-3)", "T.unroll(-3)"]
)
def test_a_loop_of_less_than_nothing_does_nothing(loop):
    func = accessing(f"for i in {loop}:\n    B[0] = 9.0")
    a, b = np.zeros(4, "float32"), np.zeros(4, "float32")
    run(func, a, b)
    tilewright.compile(func)(a, b)
    assert not b.any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("source", ["int64", "uint64"])
def test_large_constants_round_as_code_rounds_them(source, dtype):
    values = [2**62 + 2**38 + 1, 2**62 + 3 * 2**38 - 1, 18014399583223809, 2**63 - 1, 2**53 + 1]
    values += [] if source == "uint64" else [-value for value in values]
    head = (
        f'@T.prim_func\ndef f(A: T.Buffer(({len(values)},), "{source}"), '
        f'B: T.Buffer(({len(values)},), "{dtype}"), C: T.Buffer(({len(values)},), "{dtype}")):\n'
    )
    lines = [
        f"    B[{at}] = T.Cast('{dtype}', A[{at}])\n"
        f"    C[{at}] = T.cast(T.{source}({value}), '{dtype}')\n"
        for at, value in enumerate(values)
    ]
    func = script.parse(head + "".join(lines))
    a = np.array(values, source)
    storage = "uint16" if dtype == "bfloat16" else dtype
    b, c = (np.zeros(len(values), storage).view(numpy_dtype(dtype)) for _ in range(2))
    tilewright.compile(func)(a, b, c)
    np.testing.assert_array_equal(b.astype("float64"), c.astype("float64"))
    run(func, a, b, c)
    np.testing.assert_array_equal(b.astype("float64"), c.astype("float64"))
