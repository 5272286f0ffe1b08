"""How text looks: names, marks, header, options, colours."""

from __future__ import annotations

import io
import sys
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright import script
from tilewright.ir import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    OPS,
    Add,
    And,
    Broadcast,
    Call,
    Cast,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Ramp,
    Range,
    Select,
    Sub,
    Var,
    first_difference,
)
from tilewright.script import tir as T
from tilewright.tir import BufferLoad, BufferRegion, BufferStore, Evaluate, For, decl_buffer


@T.prim_func
def example(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
    for i, j in T.grid(16, 16):
        with T.block("copy"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + T.float32(1)


TEXT = """\
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
    for i, j in T.grid(16, 16):
        with T.block("copy"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads(A[vi, vj])
            T.writes(B[vi, vj])
            B[vi, vj] = A[vi, vj] + T.float32(1.0)"""


def test_text():
    assert script.to_text(example) == TEXT
    assert example.script() == f"from tilewright.script import tir as T\n\n\n{TEXT}\n"
    assert example.script(name="copy").count("def copy(") == 1


def test_underlined_statements():
    inner = example.root.body.body
    lines = script.to_text(example, underline=[inner]).splitlines()
    # The marked loop is taken out of the grid, so that the mark is on it alone.
    assert lines[2:5] == [
        "    for i in range(16):",
        "        for j in range(16):",
        "        ^^^^^^^^^^^^^^^^^^^",
    ]


def test_underlined_block_and_expression_and_comment():
    realize = example.root.body.body.body
    value = realize.block.body.value
    text = script.to_text(
        example,
        underline=[realize.block, value.a],
        annotate={realize.block.body: "reads A"},
    )
    lines = text.splitlines()
    assert lines[3:5] == ['        with T.block("copy"):', "        ^^^^^^^^^^^^^^^^^^^^^"]
    assert lines[-2:] == [
        "            B[vi, vj] = A[vi, vj] + T.float32(1.0)  # reads A",
        "                        ^^^^^^^^^",
    ]


def test_underlined_symbols_are_marked_wherever_they_stand():
    text = script.to_text(example, underline=[example.buffers[0]])
    marked = [line for line in text.splitlines() if line.strip() and not line.strip(" ^")]
    assert len(marked) == 3


def test_underlined_axis_is_taken_out_of_the_remap():
    axis = example.root.body.body.body.block.iter_vars[1]
    lines = script.to_text(example, underline=[axis]).splitlines()
    at = lines.index("            vj = T.axis.spatial(16, j)")
    assert lines[at + 1].strip() == "^" * len("vj = T.axis.spatial(16, j)")


def test_underlined_function():
    lines = script.to_text(example, underline=[example]).splitlines()
    assert lines[2] == "^" * len(lines[1])


def test_marking_works_for_parts_of_programs():
    loop = example.root.body
    text = script.to_text(loop, underline=[loop])
    assert "for i, j in T.grid(16, 16):\n^^^^" in text


def test_show_is_plain_unless_on_a_terminal(capsys, monkeypatch):
    example.show()
    assert capsys.readouterr().out == example.script()

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    out = Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    example.show()
    assert "\x1b[" in out.getvalue() and "copy" in out.getvalue()


def test_module_printing_works_after_importing_the_core_only():
    import subprocess

    code = (
        "import tilewright.tir as tir, sys\n"
        "f = tir.PrimFunc((), tir.NO_OP)\n"
        "assert 'def main' in f.script()\n"
        "assert not {'rich', 'torch', 'llvmlite', 'pygments'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_programs_that_are_not_well_formed_print_too():
    realize = example.root.body.body.body
    for broken in (
        realize.replace(iter_values=realize.iter_values[:1]),
        realize.replace(block=realize.block.replace(iter_vars=())),
    ):
        assert "B[vi" in script.to_text(broken)
    loop = example.root.body
    assert "for i, i_1" in script.to_text(loop.replace(body=loop.replace(body=realize)))
    store = realize.block.body
    for value in (
        IntImm("int64", 1),
        Add(store.value, IntImm("int64", 1)),
        Select(IntImm("bool", 1), store.value, INT),
    ):
        assert "B[vi, vj] = " in script.to_text(store.replace(value=value))
    assert "B[vi]" in script.to_text(store.replace(indices=store.indices[:1]))


INT = Var("i", "int32")


# ---- property -----------------------------------------------------------------------------------

BUFFER = decl_buffer((64, 64), "float32", "A")


class Maker:
    """Draws well-typed random expressions."""

    def __init__(self, random, lets=True):
        self.random = random
        self.lets = lets
        self.variables = {
            dtype: [Var("x", dtype), Var("y", dtype), Var("x", dtype)]
            for dtype in ("int64", "int32", "uint8", "float32", "bool")
        }

    def leaf(self, dtype):
        pick = self.random.random()
        if pick < 0.5:
            return self.random.choice(self.variables[dtype])
        if dtype == "bool":
            return IntImm("bool", self.random.randrange(2))
        if dtype == "float32":
            values = [0.0, -0.0, 1.5, -2.25, 1e-30, 3e38, float("inf"), float("-inf"), float("nan")]
            return FloatImm(dtype, self.random.choice(values))
        return IntImm(dtype, self.random.randrange(0 if dtype == "uint8" else -9, 10))

    def make(self, dtype, depth):
        if depth == 0 or self.random.random() < 0.15:
            return self.leaf(dtype)
        return getattr(self, dtype if dtype in ("float32", "bool") else "integer")(dtype, depth - 1)

    def pair(self, dtype, depth):
        return self.make(dtype, depth), self.make(dtype, depth)

    def integer(self, dtype, depth):
        kind = self.random.choice([*range(12)] if self.lets else [*range(8), 9, 10, 11])
        if kind < 7:
            return [Add, Sub, Mul, FloorDiv, FloorMod, Min, Max][kind](*self.pair(dtype, depth))
        if kind == 7:
            return Cast(dtype, self.make(self.random.choice(["int32", "int64"]), depth))
        if kind == 8:
            var = Var("v", dtype)
            self.variables[dtype].append(var)
            body = self.make(dtype, depth)
            self.variables[dtype].pop()
            return Let(var, self.make(dtype, depth), body)
        if kind == 9:
            return Call.of_fields(OPS.get("truncdiv"), self.pair(dtype, depth), dtype)
        if kind == 10:
            return Call.of_fields(OPS.get("shift_left"), self.pair(dtype, depth), "int16")
        # Operands of two dtypes are no usual program, but print and parse all the same.
        return Add(self.make(dtype, depth), self.make("int32", depth))

    def float32(self, dtype, depth):
        kind = self.random.randrange(9)
        if kind < 6:
            return [Add, Sub, Mul, Div, Max, Min][kind](*self.pair(dtype, depth))
        if kind == 6:
            return BufferLoad(BUFFER, (self.make("int64", depth), self.make("int32", depth)))
        condition, values = self.make("bool", depth), self.pair(dtype, depth)
        if kind == 7:
            return Select(condition, *values)
        return Call.of_fields(OPS.get("if_then_else"), (condition, *values), dtype)

    def bool(self, dtype, depth):
        kind = self.random.randrange(11)
        if kind < 6:
            operands = self.pair(self.random.choice(["int64", "uint8", "float32", "bool"]), depth)
            return [EQ, NE, LT, LE, GT, GE][kind](*operands)
        if kind < 10:
            return (And if kind % 2 else Or)(*self.pair(dtype, depth))
        return Not(self.make(dtype, depth))


def round_trip(node, line_length=100):
    text = script.to_text(node, line_length=line_length)
    back = script.parse(text)
    difference = first_difference(back, node, map_free_vars=True)
    assert difference is None, f"{difference}\n{text}"
    return text


DTYPES = st.sampled_from(["int64", "int32", "uint8", "float32", "bool"])
SEEDS = st.integers(0, 2**32)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(SEEDS, DTYPES, st.sampled_from([30, 100]))
def test_any_expression_round_trips(seed, dtype, line_length):
    expr = Maker(Random(seed)).make(dtype, 4)
    round_trip(expr, line_length)
    round_trip(Evaluate(Broadcast(expr, 4)), line_length)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(SEEDS, st.sampled_from(["int64", "int32"]), st.sampled_from(["int64", "int32"]))
def test_any_bounds_and_indices_round_trip(seed, start_dtype, extent_dtype):
    # The bounds stand in several places, where each variable may be defined once only.
    maker = Maker(Random(seed), lets=False)
    start, extent = maker.make(start_dtype, 2), maker.make(extent_dtype, 2)
    index, value = maker.make("int64", 2), maker.make("float32", 2)
    store = BufferStore(BUFFER, value, (index, start))
    round_trip(For(Var("i"), start, extent, "serial", store))
    round_trip(
        BufferRegion(
            BUFFER,
            (
                Range.from_min_extent(start, extent),
                Range.from_min_extent(index, IntImm("int64", 1)),
            ),
        )
    )
    round_trip(BufferLoad(BUFFER, (index, Ramp(start, IntImm(start_dtype, 1), 16))))
