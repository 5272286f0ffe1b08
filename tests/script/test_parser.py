"""What the text may say beyond what the printer writes."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import script, tir
from tilewright.ir import (
    EQ,
    Add,
    And,
    Call,
    Cast,
    FloatImm,
    IntImm,
    IRModule,
    Mul,
    Ramp,
    Select,
    Var,
    assert_structural_equal,
    structural_equal,
)
from tilewright.script import ir as I
from tilewright.script import tir as T
from tilewright.support.errors import ParseError, VerifyError
from tilewright.tir import (
    Block,
    BlockRealize,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
)
from tilewright.tir.script.parser import expand

N = 16


@T.prim_func
def matmul(
    A: T.Buffer((N, N), "float32"), B: T.Buffer((N, N), "float32"), C: T.Buffer((N, N), "float32")
):
    """A docstring."""
    for i, j, k in T.grid(N, N, N):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = 0
            C[vi, vj] += A[vi, vk] * B[vk, vj]


def blocks(func):
    found = []

    def go(node):
        if isinstance(node, Block):
            found.append(node)
        for item in node.child_nodes():
            go(item)

    go(func.body)
    return {block.name: block for block in found}


def region(block, which):
    return [script.to_text(item).splitlines()[-1] for item in getattr(block, which)]


def test_a_function_gets_a_root_block():
    assert isinstance(matmul, PrimFunc)
    assert matmul.root.name == "root"
    assert matmul.root.alloc_buffers == ()
    assert [buffer.name for buffer in matmul.buffers] == ["A", "B", "C"]


def test_regions_are_inferred():
    block = blocks(matmul)["C"]
    assert region(block, "reads") == ["T.region(A[vi, vk])", "T.region(B[vk, vj])"]
    assert region(block, "writes") == ["T.region(C[vi, vj])"]


def test_one_stated_region_is_kept_and_the_other_inferred():
    @T.prim_func
    def func(A: T.Buffer((N,)), B: T.Buffer((N,))):
        for i in range(N):
            with T.block("b"):
                vi = T.axis.S(N, i)
                T.reads([A[0:N]])
                B[vi] = A[vi]

    block = blocks(func)["b"]
    assert region(block, "reads") == ["T.region(A[0:16])"]
    assert region(block, "writes") == ["T.region(B[vi])"]


def test_a_lowered_function_has_no_root():
    @T.prim_func
    def func(A: T.Buffer((N,), "float32")):
        for i in T.vectorized(N):
            A[i] = 1

    assert isinstance(func.body, For)
    assert func.body.kind == "vectorized"
    assert isinstance(func.body.body.value, FloatImm)


def test_module_decorator_and_references():
    @I.ir_module
    class Module:
        I.module_attrs({"flag": True})

        @T.prim_func
        def one(A: T.Buffer((N,), "int32")):
            A[0] = N

        @T.prim_func(name="second.one")
        def two(A: T.Buffer((N,), "int32")):
            A[0] = 2

    assert isinstance(Module, IRModule)
    assert list(Module) == ["one", "second.one"]
    assert Module.attrs == {"flag": True}
    assert Module["one"].body.value.value == N


def test_symbolic_extents_by_name():
    @T.prim_func
    def func(A: T.Buffer(("n", "n * 4"), "float32"), B: T.Buffer(("n",), "float32")):
        for i in range(n):  # noqa: F821
            B[i] = A[i, 0]

    @T.prim_func
    def other(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, n * 4), "float32")
        B = T.match_buffer(b, n, "float32")
        for i in range(n):
            B[i] = A[i, 0]

    assert_structural_equal(func, other)
    assert [var.name for var in func.symbolic_vars()] == ["n"]


def test_captured_python_values_fold():
    zero, scale, where = 0, 2.5, (1, 2)
    table = np.array([3, 4], dtype="int64")

    @T.prim_func
    def func(A: T.Buffer((N, N), "float32")):
        for i in range(N):
            A[i + zero, where[1]] = A[i, table[1]] * scale

    store = func.body.body
    assert isinstance(store.indices[0], Var)
    assert store.indices[1].value == 2
    assert store.value.b.value == 2.5
    assert store.value.a.indices[1].value == 4


def test_literals_in_the_text_stay():
    expr = script.parse("x = T.int64()\nx * 1 + 0")
    assert isinstance(expr, Add) and isinstance(expr.a, Mul)


def test_python_code_runs_while_parsing():
    def scaled(x, factor):
        return x * factor

    @T.prim_func
    def func(A: T.Buffer((N,), "float32"), B: T.Buffer((N,), "float32")):
        for step in [1, 2, 3]:
            B[step] = scaled(A[step], T.float32(step))
        if N > 4:
            B[0] = 1
        else:
            B[0] = undefined  # noqa: F821
        offsets = [k * 2 for k in range(3)]
        B[offsets[2]] = 0

    stmts = func.body.stmts
    assert len(stmts) == 5
    assert [stmt.indices[0].value for stmt in stmts] == [1, 2, 3, 0, 4]


def test_lets():
    @T.prim_func
    def func(A: T.Buffer((N,), "float32")):
        x = A[0] + A[1]
        y: T.float32 = 2
        z: T.let = x * y
        w = T.meta_var(z + z)
        A[2] = w
        with T.LetStmt(A[3]) as u:
            A[4] = u
        A[5] = x

    let = func.body
    assert isinstance(let, LetStmt) and let.var.name == "x"
    assert isinstance(let.body.value, FloatImm) and let.body.var.dtype == "float32"
    inner = let.body.body.body
    assert isinstance(inner, SeqStmt) and len(inner.stmts) == 3
    assert isinstance(inner.stmts[0].value, Add)


def test_conditions():
    expr = script.parse("x = T.int64()\n0 <= x < 4 and not x == 2")
    assert isinstance(expr, And) and isinstance(expr.a, And)
    assert script.parse("x = T.int64()\nx + 1 if x > 2 else 0").op.name == "if_then_else"
    assert script.parse("1 < 2 and 3").value == 3


def test_else_chain_and_while():
    stmt = script.parse(
        """
x = T.int64()
A = T.Buffer((4,), "int64")
while A[0] < 4:
    if x == 1:
        A[0] = 1
    elif x == 2:
        A[0] = 2
    else:
        pass
assert x > 2, "too small"
"""
    )
    branch = stmt.stmts[0].body
    assert isinstance(branch.else_case, IfThenElse)
    assert isinstance(branch.else_case.else_case, Evaluate)
    assert stmt.stmts[1].message == "too small"


def test_slices_are_vectors():
    stmt = script.parse(
        'A = T.Buffer((64,), "float32")\nfor i in range(4):\n'
        "    A[i * 16 : i * 16 + 16] = A[0:32:2] + 1.0\n"
    )
    store = stmt.body
    assert isinstance(store.indices[0], Ramp) and store.indices[0].lanes == 16
    assert store.value.a.indices[0].stride.value == 2
    assert store.value.dtype == "float32x16"


def test_a_slice_whose_length_needs_thought():
    stmt = script.parse('A = T.Buffer((64,), "float32")\nx = T.int64()\nA[x + 1 : x + 5] = 0\n')
    assert stmt.indices[0].lanes == 4


def test_match_buffer_of_a_region():
    @T.prim_func
    def func(A: T.Buffer((N, N), "float16", scope="shared")):
        for i in range(N // 4):
            with T.block("b"):
                vi = T.axis.spatial(N // 4, i)
                T.reads()
                T.writes(A[vi * 4 : vi * 4 + 4, 0:N])
                sub = T.match_buffer(A[vi * 4 : vi * 4 + 4, :], strides=(N, 1))
                sub[0, 0] = 1

    match = blocks(func)["b"].match_buffers[0]
    assert (match.buffer.dtype, match.buffer.scope) == ("float16", "shared")
    assert [extent.value for extent in match.buffer.shape] == [4, N]


def test_block_names_are_made_unique_where_code_is_copied():
    @T.macro
    def fill(buffer, value, extent=N):
        for i in range(extent):
            with T.block("fill"):
                vi = T.axis.spatial(extent, i)
                buffer[vi] = value

    @T.prim_func
    def func(A: T.Buffer((N,), "float32"), B: T.Buffer((N,), "float32")):
        fill(A, 1)
        fill(B, value=T.float32(2), extent=4)

    assert list(blocks(func)) == ["root", "fill", "fill_1"]


def test_macros_are_hygienic_unless_told():
    text = """
@T.macro{option}
def put(buffer):
    buffer[0] = value

@T.prim_func
def main(A: T.Buffer((4,), "float32")):
    value = T.meta_var(3)
    put(A)
"""
    made = script.parse(text.format(option="(hygienic=False)"))
    assert made.body.value.value == 3.0
    with pytest.raises(script.ScriptError, match="undefined variable 'value'"):
        script.parse(text.format(option=""))


class Filling:
    """A kernel: its macros are methods, and what they have in common is in the object."""

    def __init__(self, buffer, value):
        self.buffer, self.value = buffer, value
        self.row = tir.decl_buffer((N,), "float32", "row")

    @T.macro
    def fill(self, extent=N):
        for i, j in T.grid(4, T.vectorized(extent, annotations={"hint": 1})):
            with T.block("fill"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.alloc_buffer(self.row)
                self.store(vi, vj)

    @T.macro
    def store(self, i, j):
        self.row[j] = self.value
        self.buffer[i, j] = self.row[j]


class Doubling(Filling):
    @T.macro
    def store(self, i, j):
        self.buffer[i, j] = T.float32(2 * self.value)


def test_macros_are_methods_that_python_expands():
    buffer = tir.decl_buffer((4, N), "float32", "B")
    made = expand(Filling(buffer, 3.0).fill)
    rows, lanes = made, made.body
    assert (rows.kind, lanes.kind, lanes.annotations) == ("serial", "vectorized", {"hint": 1})
    block = lanes.body.block
    assert [item.name for item in block.alloc_buffers] == ["row"]
    assert [region.buffer.name for region in block.writes] == ["B"]
    assert block.body.stmts[0].value.value == 3.0
    other = expand(Doubling(buffer, 3.0).fill, extent=2)
    assert other.body.body.block.body.value.value == 6.0
    assert other.body.extent.value == 2
    with pytest.raises(VerifyError, match="'fill' takes 2 arguments"):
        expand(Filling(buffer, 3.0).fill, 1, 2)
    with pytest.raises(VerifyError, match="'store' needs the argument 'j'"):
        expand(Filling(buffer, 3.0).store, 1)
    with pytest.raises(VerifyError, match="'fill' can't take 'width'"):
        expand(Filling(buffer, 3.0).fill, width=1)


def test_text_allocates_no_buffer_that_is_there():
    text = """
@T.prim_func
def main(A: T.Buffer((4,), "float32")):
    with T.block("b"):
        T.alloc_buffer(A)
        A[0] = T.float32(1)
"""
    with pytest.raises(script.ScriptError, match="only a macro of Python allocates"):
        script.parse(text)


def test_unnamed_blocks_get_names():
    func = script.parse(
        '@T.prim_func\ndef f(A: T.Buffer((4,), "float32")):\n'
        "    with T.block():\n        A[0] = 1\n    with T.block():\n        A[1] = 1\n"
    )
    assert list(blocks(func)) == ["root", "block", "block_1"]


def test_return_and_result_dtype():
    @T.prim_func
    def func(x: T.int32) -> T.int32:
        return x + 1

    assert func.ret_dtype == "int32"
    assert func.body.value.op.name == "ret"
    assert func.body.value.args[0].b.dtype == "int32"


def test_shared_buffer_types_make_separate_buffers():
    kind = T.Buffer((4,), "float32")

    @T.prim_func
    def func(A: kind, B: kind):
        A[0] = B[0]

    assert func.buffers[0] is not func.buffers[1]
    assert func.buffers[0].data is not func.buffers[1].data
    assert [buffer.name for buffer in func.buffers] == ["A", "B"]


def test_intrinsics_and_dtypes():
    expr = script.parse('x = T.float32()\nT.Select(x > 0, T.exp(x), x.astype("float32"))')
    assert isinstance(expr, Select) and isinstance(expr.true_value, Call)
    assert script.parse("T.int8(3)").dtype == "int8"
    assert script.parse('T.float32("inf")').value == float("inf")
    assert script.parse("T.min_value('int8')").value == -128
    assert isinstance(script.parse("x = T.int32()\nT.float32(x)"), Cast)
    assert script.parse("T.float32x4()").dtype == "float32x4"
    assert script.parse("T.max(1, 2)").value == 2
    assert isinstance(script.parse("y = T.int32()\ny == 3"), EQ)
    assert isinstance(script.parse("y = T.int32()\ny == 3").b, IntImm)


def test_from_source_takes_undecorated_functions():
    def plain(A: T.Buffer((4,), "float32")):
        A[0] = 1

    func = script.from_source(plain)
    assert isinstance(func.body, BufferStore)
    assert structural_equal(script.from_source(func.script()), func)


def test_extra_vars():
    func = script.parse(
        "@T.prim_func\ndef f(A: T.Buffer((size,), dtype)):\n    A[0] = 1\n",
        {"size": 7, "dtype": "int8"},
    )
    assert (func.buffers[0].shape[0].value, func.buffers[0].dtype) == (7, "int8")


def test_statements_know_their_place():
    assert matmul.span.line > 1
    realize = matmul.root.body.body.body.body
    assert isinstance(realize, BlockRealize)
    assert realize.span.name.endswith("test_parser.py")
    assert realize.span.line == matmul.span.line + 5


def test_spans_survive_rewrites_of_children():
    loop = matmul.root.body
    assert loop.map_children(lambda child: child.replace() if isinstance(child, For) else child)


def test_thread_binding_and_annotations():
    @T.prim_func
    def func(A: T.Buffer((N,), "float32")):
        for b in T.thread_binding(4, thread="blockIdx.x"):
            for t in T.thread_binding(0, 4, "threadIdx.x", annotations={"k": [1, {"x": "y"}]}):
                A[b * 4 + t] = 0

    assert func.body.thread == "blockIdx.x"
    assert func.body.body.annotations == {"k": [1, {"x": "y"}]}


def test_where_and_attributes():
    @T.prim_func
    def func(A: T.Buffer((N,), "float32")):
        T.func_attr({"global_symbol": "main", "tuple": (1, 2.0)})
        for i in range(N):
            with T.block("b"):
                vi = T.axis.opaque((0, N), i)
                T.where(i < 10 and i != 3)
                T.block_attr({"pragma": True})
                A[vi] = 0

    realize = func.root.body.body
    assert isinstance(realize.predicate, And)
    assert realize.block.annotations == {"pragma": True}
    assert func.attrs == {"global_symbol": "main", "tuple": (1, 2.0)}


def test_comprehensions_lambdas_and_text():
    func = script.parse(
        """
@T.prim_func
def main(A: T.Buffer((64,), "int64")):
    double = lambda x: x * 2 + 0
    offsets = [i + j for i in range(4) if i % 2 for j in (0, 10)]
    names = {key: f"{key:>3}!" for key in ("a", "b")}
    total = sum(i for i in offsets)
    for i in range(8):
        with T.block(f"b{total}{names['a']}"):
            vi = T.axis.spatial(8, i)
            A[vi] = double(vi) + offsets[3]
"""
    )
    block = blocks(func)["b28  a!"]
    value = block.body.value
    assert script.to_text(value).splitlines()[-1] == "vi * 2 + 0 + 13"


def test_arguments_of_operators_have_names() -> None:
    text = "@T.prim_func\ndef f(A: T.Buffer((4,), 'float32')):\n    A[0] = {}"
    named = script.parse(text.format("T.fma(A[1], z=A[3], y=A[2])"))
    assert_structural_equal(named, script.parse(text.format("T.fma(A[1], A[2], A[3])")))
    with pytest.raises(ParseError, match="fma takes x, y, z; got 1 and y, w"):
        script.parse(text.format("T.fma(A[1], y=A[2], w=A[3])"))
