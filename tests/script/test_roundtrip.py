"""Whatever is printed parses back to a structurally equal tree."""

from __future__ import annotations

import math

import pytest

from tilewright import script, te
from tilewright.ir import (
    EQ,
    OPS,
    TRUE,
    Add,
    And,
    Broadcast,
    Call,
    Cast,
    FloatImm,
    FloorDiv,
    GlobalVar,
    IntImm,
    IRModule,
    Let,
    Max,
    Mul,
    Not,
    Or,
    Ramp,
    Range,
    Select,
    Shuffle,
    StringImm,
    Sub,
    Var,
    assert_structural_equal,
    call,
    const,
    first_difference,
)
from tilewright.target import Target
from tilewright.tir import (
    NO_OP,
    Allocate,
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    IterVar,
    LetStmt,
    MatchBufferRegion,
    PrimFunc,
    SeqStmt,
    While,
    decl_buffer,
    make_root_block,
)


def check(node, **options):
    """Print, parse, compare, and print again; returns the text."""
    text = script.to_text(node, **options)
    back = script.parse(text)
    difference = first_difference(back, node, map_free_vars=True)
    assert difference is None, f"{difference}\n{text}"
    assert script.to_text(back, **options) == text
    return text


X = Var("x", "int64")
Y = Var("y", "int32")
F = Var("f", "float32")
P = Var("p", "bool")
A = decl_buffer((16, 32), "float32", "A")
B = decl_buffer((64,), "int32", "B")
ONE = const(1, "float32")


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (Add(X, const(0)), "x + 0"),
        (Add(const(1), const(2)), "T.Add(1, 2)"),
        (Mul(Add(X, const(1)), X), "(x + 1) * x"),
        (Sub(X, Sub(X, X)), "x - (x - x)"),
        (Sub(Sub(X, X), X), "x - x - x"),
        (Mul(X, const(-5)), "x * -5"),
        (FloorDiv(X, const(0)), "T.FloorDiv(x, 0)"),
        (Add(Y, IntImm("int32", 3)), "y + T.int32(3)"),
        (Add(X, IntImm("int32", 3)), "T.Add(x, T.int32(3))"),
        (EQ(X, X), "x == x"),
        (EQ(Add(X, Add(X, X)), X), "x + (x + x) == x"),
        (EQ(Mul(X, Add(X, X)), X), "x * (x + x) == x"),
        (And(And(P, P), P), "p and p and p"),
        (And(P, And(P, P)), "p and (p and p)"),
        (Or(And(P, P), P), "p and p or p"),
        (And(P, Or(P, P)), "p and (p or p)"),
        (Not(Not(P)), "not not p"),
        (Not(EQ(X, X)), "not x == x"),
        (EQ(EQ(X, X), P), "(x == x) == p"),
        (And(P, TRUE), "p and T.bool(True)"),
        (Max(X, const(3)), "T.max(x, 3)"),
        (Max(const(1), const(3)), "T.Max(1, 3)"),
        (Select(P, F, ONE), "T.Select(p, f, T.float32(1.0))"),
        (Select(P, F, const(1)), "T.Select(p, f, T.int64(1))"),
        (Cast("float32", F), 'T.Cast("float32", f)'),
        (FloatImm("float32", math.inf), 'T.float32("inf")'),
        (FloatImm("float16", -math.inf), 'T.float16("-inf")'),
        (FloatImm("float64", math.nan), 'T.float64("nan")'),
        (FloatImm("bfloat16", 1e-30), "T.bfloat16(1e-30)"),
        (IntImm("handle", 0), "T.handle(0)"),
        (Ramp(X, const(2), 4), "T.Ramp(x, 2, 4)"),
        (Broadcast(F, 8), "T.Broadcast(f, 8)"),
        (Shuffle((Broadcast(F, 2), Broadcast(F, 2)), (0, 3)), None),
        (call("exp", F), "T.exp(f)"),
        (call("isnan", F), "T.isnan(f)"),
        (Call.of_fields(OPS.get("exp"), (F,), "float64"), 'T.exp(f, dtype="float64")'),
        (Call.of_fields(OPS.get("pow"), (F, X), "float32"), 'T.Call("pow", f, x, dtype="float32")'),
        (call("if_then_else", P, F, ONE), "T.if_then_else(p, f, T.float32(1.0))"),
        (call("if_then_else", TRUE, F, F), "T.if_then_else(T.bool(True), f, f)"),
        (
            call("call_extern", "fn", A.data, X, dtype="int32"),
            'T.call_extern("fn", A, x, dtype="int32")',
        ),
        (call("address_of", A[X, 0], dtype="handle"), None),
        (call("shift_left", X, 2), "T.shift_left(x, 2)"),
        (
            Call.of_fields(OPS.get("min_value"), (), "float32"),
            'T.Call("min_value", dtype="float32")',
        ),
        (StringImm("a 'b' \"c\""), None),
        (Let(Y, const(1, "int32"), Add(Y, Y)), "T.Let(y + y, where={y: T.int32(1)})"),
        (Let(F, ONE, Let(Y, const(1, "int32"), Cast("float32", Y))), None),
        (A[X, X + 1], "A[x, x + 1]"),
        (BufferLoad(A, (X, Ramp(X * 4, const(1), 4))), "A[x, x * 4:x * 4 + 4]"),
        (BufferLoad(A, (X, Ramp(const(8), const(1), 4))), "A[x, 8:12]"),
        (BufferLoad(A, (X, Ramp(X, const(3), 4))), "A[x, T.Ramp(x, 3, 4)]"),
        (BufferLoad(B, (Ramp(Y, IntImm("int32", 1), 4),)), "B[T.Ramp(y, T.int32(1), 4)]"),
        (BufferLoad(decl_buffer((), "float32", "S"), ()), "S[()]"),
        (Range.from_min_extent(X, const(4)), "T.Range(x, x + 4)"),
        (
            BufferRegion(
                A, (Range.from_min_extent(X, const(1)), Range.from_min_extent(const(0), X))
            ),
            "T.region(A[x, 0:x])",
        ),
        (GlobalVar("main"), 'I.GlobalVar("main")'),
    ],
)
def test_expression(expr, text):
    printed = check(expr)
    if text is not None:
        assert printed.splitlines()[-1] == text


def test_free_symbols_are_declared_in_front():
    assert check(A[X, 0] + F) == (
        'x = T.int64()\nf = T.float32()\nA = T.Buffer((16, 32), "float32")\nA[x, 0] + f'
    )


STORE = BufferStore(A, F, (X, X))
INNER = For(Var("j"), const(0), const(4), "serial", STORE)


@pytest.mark.parametrize(
    "stmt",
    [
        STORE,
        BufferStore(A, Broadcast(F, 4), (X, Ramp(const(0), const(1), 4))),
        Evaluate(const(0)),
        Evaluate(call("exp", F)),
        SeqStmt((STORE, NO_OP, STORE)),
        SeqStmt((STORE,)),
        SeqStmt(()),
        SeqStmt((SeqStmt((STORE, STORE)), SeqStmt((STORE, STORE)))),
        IfThenElse(P, STORE),
        IfThenElse(P, STORE, SeqStmt((STORE, STORE))),
        IfThenElse(P, STORE, IfThenElse(EQ(X, X), STORE, STORE)),
        IfThenElse(P, STORE, IfThenElse(Let(Y, const(1, "int32"), EQ(Y, Y)), STORE)),
        IfThenElse(TRUE, STORE),
        While(P, STORE),
        AssertStmt("RuntimeError", P, 'it\'s "wrong"'),
        AssertStmt("ValueError", P, "no"),
        AssertStmt("ValueError", P, "{} of {}", (X, X + 1)),
        LetStmt(Var("v", "float32"), F, STORE),
        LetStmt(Var("v", "int64"), const(1), STORE),
        LetStmt(Var("v", "int64"), X, STORE),
        SeqStmt((LetStmt(Var("v", "float32"), F * 2.0, STORE), STORE)),
        SeqStmt((LetStmt(Var("v", "int64"), const(3), STORE), STORE)),
        SeqStmt((STORE, LetStmt(Var("v", "float32"), F, SeqStmt((STORE, STORE))))),
        AttrStmt("scope", "key", X, STORE),
        AttrStmt(X, "key", X, SeqStmt((STORE, STORE))),
        SeqStmt((AttrStmt(None, "key", const(1), STORE), STORE)),
        For(Var("i"), const(0), X, "serial", INNER),
        For(Var("i"), X, const(4), "serial", STORE),
        For(Var("i"), const(2), const(4), "parallel", STORE),
        For(Var("i"), X, X + 1, "vectorized", STORE),
        For(Var("i"), const(1), const(0) + X, "unrolled", STORE),
        For(Var("i"), const(0), const(8), "thread_binding", STORE, "threadIdx.x"),
        For(Var("i"), const(0), const(8), "serial", STORE, None, {"a": 1, "b": [X, "c"]}),
        For(Var("i", "int32"), IntImm("int32", 0), IntImm("int32", 8), "serial", STORE),
        For(Var("i", "int32"), const(0), const(8), "serial", STORE),
        For(Var("i"), IntImm("int32", 0), const(8), "serial", STORE),
        For(Var("i"), IntImm("int32", 2), IntImm("int32", 4), "serial", STORE),
        For(Var("i"), const(0), const(8), "serial", NO_OP),
    ],
)
def test_statement(stmt):
    check(stmt)


def test_allocations_and_views():
    buffer = decl_buffer((4,), "float32", "buf", scope="local")
    view = decl_buffer((2, 2), "float32", "view", data=buffer.data, scope="local")
    body = BufferStore(view, ONE, (const(0), const(0)))
    nest = Allocate(buffer, DeclBuffer(view, body), {"align": 32})
    text = check(nest)
    assert 'view = T.decl_buffer((2, 2), "float32", data=buf.data, scope="local")' in text
    check(SeqStmt((nest, STORE)))


def test_free_buffer_over_memory_that_an_inner_scope_allocates():
    buffer = decl_buffer((4,), "float32", "buf", scope="local")
    old = decl_buffer((8,), "float32", "buf", data=buffer.data, scope="local")
    body = BufferStore(buffer, BufferLoad(old, (const(5),)), (const(0),))
    text = check(For(Var("i"), const(0), const(4), "serial", Allocate(buffer, body)))
    assert text.startswith("buf = T.handle()\n")


def test_region_around_an_allocation_names_its_buffer():
    own = decl_buffer((4,), "float32", "own")
    region = BufferRegion(own, (Range.from_min_extent(const(0), const(4)),))
    body = For(Var("i"), const(0), const(4), "serial", Allocate(own, NO_OP, {"a": 1}))
    text = check(Block((), (region,), (), "b", body))
    assert 'own = T.allocate(own, annotations={"a": 1})' in text


def test_names_of_lets_last_as_long_as_their_line():
    let = Let(Var("x"), const(1), X)
    inner = For(Var("i"), const(0), let, "serial", NO_OP)
    check(SeqStmt((inner, Evaluate(Let(Var("x"), X, X)), Evaluate(Var("x_1")))))


def test_names_as_python_reads_them():
    assert check(Evaluate(Var("\ufb01"))).startswith("fi = T.int64()")


def test_blocks_that_access_their_own_buffers():
    own = decl_buffer((4,), "float32", "own")
    region = BufferRegion(own, (Range.from_min_extent(const(0), const(4)),))
    check(Block((), (region,), (region,), "b", NO_OP, None, (own,)))


def test_function_attributes_that_name_buffers_and_symbols():
    a, n = Var("a", "handle"), Var("n")
    buffer = decl_buffer((n,), "float32", "A")
    check(
        PrimFunc((a,), NO_OP, "void", {"layout": [buffer, n + 1, Var("m")]}, buffer_map={a: buffer})
    )


@pytest.mark.parametrize("dtype, start", [("int8", 100), ("int64", 2**63 - 1), ("uint4", 15)])
def test_ranges_whose_end_does_not_fit(dtype, start):
    check(For(Var("i", dtype), IntImm(dtype, start), IntImm(dtype, 7), "serial", NO_OP))


def test_dependent_loops_are_no_grid():
    i, j = Var("i"), Var("j")
    text = check(For(i, const(0), const(4), "serial", For(j, const(0), i + 1, "serial", STORE)))
    assert "grid" not in text


def test_sibling_loops_keep_their_name_and_nested_ones_differ():
    def loop(body):
        return For(Var("i"), const(0), const(4), "parallel", body)

    text = check(SeqStmt((loop(loop(STORE)), loop(STORE))))
    assert [line.split()[1] for line in text.splitlines() if "for" in line] == ["i", "i_1", "i"]


def block_function(**changes):
    C = decl_buffer((16, 32), "float32", "C")
    local = decl_buffer((16, 32), "float32", "local", scope="local", alignment=128)
    i, j = Var("i"), Var("j")
    vi, vj = Var("vi"), Var("vj")
    region = (Range.from_min_extent(vi, const(1)), Range.from_min_extent(vj, const(1)))
    sub = decl_buffer(
        (1, 4), "float32", "sub", strides=(Var("s0"), 1), elem_offset=Var("offset"), scope="local"
    )
    block = Block(
        **{
            "iter_vars": (
                IterVar(Range.from_min_extent(const(0), const(16)), vi, "spatial"),
                IterVar(Range.from_min_extent(const(0), const(32)), vj, "reduce"),
            ),
            "reads": (BufferRegion(A, region),),
            "writes": (BufferRegion(C, region),),
            "name_hint": "compute",
            "body": BufferStore(C, A[vi, vj] + local[0, 0] + sub[0, 0], (vi, vj)),
            "init": BufferStore(C, const(0, "float32"), (vi, vj)),
            "alloc_buffers": (local,),
            "match_buffers": (
                MatchBufferRegion(
                    sub,
                    BufferRegion(
                        local,
                        (
                            Range.from_min_extent(vi, const(1)),
                            Range.from_min_extent(const(4), const(4)),
                        ),
                    ),
                ),
            ),
            "annotations": {"x": (1, 2.5, "s", None, True), "e": {"k": [const(3)]}, "n": ()},
            **changes,
        }
    )
    a, c = Var("a", "handle"), Var("c", "handle")
    realize = BlockRealize((i, j), j < 20, block)
    body = For(i, const(0), const(16), "serial", For(j, const(0), const(32), "serial", realize))
    return PrimFunc(
        (a, c), make_root_block(body), "void", {"global_symbol": "f"}, buffer_map={a: A, c: C}
    )


def test_block_with_everything():
    text = check(block_function())
    assert 'vi, vj = T.axis.remap("SR", [i, j])' in text
    assert "s0 = T.int64()" in text


def test_block_alone():
    check(block_function().body.block.body.body.body.block)


def test_block_over_other_ranges_is_not_remapped():
    axes = (
        IterVar(Range.from_min_extent(const(1), const(15)), Var("vi"), "opaque"),
        IterVar(Range.from_min_extent(const(0), const(32)), Var("vj", "int32"), "spatial"),
    )
    C = decl_buffer((16, 32), "float32", "C")
    text = check(
        block_function(
            iter_vars=axes, reads=(), writes=(), init=None, match_buffers=(), alloc_buffers=(),
            body=BufferStore(C, ONE, (axes[0].var, const(0))), annotations={},
        )
    )  # fmt: skip
    assert "T.axis.opaque((1, 16), i)" in text


def test_root_without_blocks_is_spelled_out():
    func = PrimFunc((), make_root_block(NO_OP))
    assert 'with T.block("root"):' in check(func)


def test_root_with_annotations_is_spelled_out():
    func = block_function()
    root = func.root.replace(annotations={"a": 1})
    assert 'with T.block("root"):' in check(func.replace(body=func.body.replace(block=root)))


def test_blocks_without_root():
    func = block_function()
    assert "@T.prim_func(root=False)" in check(func.replace(body=func.root.body))


def test_lowered_function():
    a, n = Var("a", "handle"), Var("n", "int32")
    flat = decl_buffer((64,), "float32", "flat")
    body = For(Var("i"), const(0), const(64), "parallel", BufferStore(flat, ONE, (const(3),)))
    check(PrimFunc((a, n), body, "int32", {"target": Target("llvm")}, buffer_map={a: flat}))


def test_handle_parameter_used_in_the_body():
    a = Var("flat", "handle")
    flat = decl_buffer((64,), "float32", "flat")
    body = Evaluate(call("call_extern", "f", a, flat.data, dtype="int32"))
    assert "flat_handle: T.handle" in check(PrimFunc((a,), body, buffer_map={a: flat}))


def test_symbolic_shapes():
    n, m = Var("n"), Var("m")
    a, b = Var("a", "handle"), Var("b", "handle")
    first = decl_buffer((n, m * 4), "float32", "A", strides=(m * 4, 1), elem_offset=Var("o"))
    second = decl_buffer((n, 4), "float16", "B", alignment=16, axis_separators=(1,))
    body = For(Var("i"), const(0), n, "serial", Evaluate(first[0, m]))
    text = check(PrimFunc((a, b), body, buffer_map={a: first, b: second}))
    assert "n = T.int64()" in text and "A = T.match_buffer(a, (n, m * 4)" in text


def test_aliased_parameters():
    a, b = Var("a", "handle"), Var("b", "handle")
    first = decl_buffer((4,), "float32", "A")
    second = decl_buffer((2, 2), "float32", "B", data=first.data)
    check(PrimFunc((a, b), Evaluate(first[0] + second[0, 0]), buffer_map={a: first, b: second}))


def test_strange_names():
    var = Var("for", "int64")
    buffer = Buffer("A.local-1", (const(4),))
    other = Buffer("", (const(4),))
    body = For(var, const(0), const(4), "serial", BufferStore(buffer, other[var], (var,)))
    check(body)


def test_module_with_strange_function_name():
    func = block_function()
    other = PrimFunc((), Evaluate(const(1)))
    mod = IRModule(
        {"main": func, "fused.add-1": other}, {"version": 2, "list": [1.5, float("inf")]}
    )
    text = check(mod)
    assert '@T.prim_func(name="fused.add-1")' in text


def test_script_of_a_module_is_a_python_file(tmp_path):
    mod = IRModule({"main": block_function()})
    path = tmp_path / "program.py"
    path.write_text(mod.script(name="Program"))
    scope = {"__name__": "program", "__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    assert_structural_equal(scope["Program"], mod)
    assert_structural_equal(script.parse(mod.script(show_meta=True)), mod)
    assert "# structural hash of main: " in mod.script(show_meta=True)


@pytest.mark.parametrize("line_length", [40, 60, 80])
def test_long_lines_are_wrapped(line_length):
    func = block_function()
    text = check(func, line_length=line_length)
    expr = X
    for index in range(30):
        expr = Add(expr, Mul(X, const(index + 2)))
    wrapped = check(Evaluate(expr), line_length=line_length)
    assert max(map(len, wrapped.splitlines())) <= line_length
    assert max(map(len, text.splitlines())) <= max(line_length, 66)


def test_long_sums_need_no_deep_recursion():
    expr = F
    for _ in range(300):
        expr = Add(expr, Sub(F, ONE))
    text = script.to_text(expr)
    again = script.to_text(script.parse(text))
    assert again == text


def test_pointer_used_before_its_buffer():
    buffer = decl_buffer((4,), "float32", "buf")
    body = Allocate(buffer, BufferStore(buffer, ONE, (const(0),)))
    check(AttrStmt(buffer.data, "storage_scope", const(1), body))


def test_programs_from_tensor_expressions():
    n = te.var("n")
    a, b = te.placeholder((n, 64), name="a"), te.placeholder((64, 32), name="b")
    k = te.reduce_axis((0, 64), name="k")
    c = te.compute((n, 32), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    d = te.compute((n, 32), lambda i, j: c[i, j] + c[i, 0], name="d")
    check(te.create_prim_func([a, b, d]))
