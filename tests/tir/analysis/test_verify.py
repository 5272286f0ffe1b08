"""The verifier accepts what is right, and names what is wrong."""

from __future__ import annotations

import pytest

import tilewright
from tilewright.ir import (
    LT,
    TRUE,
    Add,
    And,
    Broadcast,
    IRModule,
    Let,
    Min,
    Not,
    Ramp,
    Range,
    Select,
    Var,
    call,
    const,
)
from tilewright.script import parse
from tilewright.support.errors import VerifyError
from tilewright.tir import (
    SERIAL,
    SPATIAL,
    Allocate,
    Block,
    BlockRealize,
    BufferLoad,
    BufferRegion,
    BufferStore,
    DeclBuffer,
    For,
    IterVar,
    LetStmt,
    MatchBufferRegion,
    PrimFunc,
    decl_buffer,
    make_root_block,
    seq,
)
from tilewright.tir.analysis import block_access_regions, verify

A = decl_buffer((8,), name="A")
B = decl_buffer((8,), name="B")
PARAMS = (Var("a", "handle"), Var("b", "handle"))


def func(body) -> PrimFunc:
    return PrimFunc(PARAMS, make_root_block(body), buffer_map=dict(zip(PARAMS, (A, B))))


def copy_block(name="B", var=None, **changes) -> Block:
    var = Var("vi") if var is None else var
    fields = {
        "iter_vars": (IterVar(Range.from_min_extent(const(0), const(8)), var, SPATIAL),),
        "reads": (),
        "writes": (),
        "name_hint": name,
        "body": BufferStore(B, A[var], (var,)),
    }
    made = Block(**{**fields, **changes})
    reads, writes = block_access_regions(made)
    return made.replace(**{"reads": reads, "writes": writes, **changes})


def loop(block, var=None, values=None, **changes) -> For:
    var = Var("i") if var is None else var
    fields = {
        "loop_var": var,
        "min": const(0),
        "extent": const(8),
        "kind": SERIAL,
        "body": BlockRealize((var,) if values is None else values, TRUE, block),
    }
    return For(**{**fields, **changes})


def refused(body, message):
    with pytest.raises(VerifyError, match=message):
        verify(IRModule({"main": func(body)}))


def test_good_programs():
    verify(func(loop(copy_block())))
    verify(
        parse(
            """
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for i in range(n):
        with T.block("B"):
            vi = T.axis.spatial(n, i)
            B[vi] = A[vi]
"""
        )
    )


def test_names_and_definitions():
    refused(seq(loop(copy_block()), loop(copy_block())), "two blocks with the name 'B'")
    i = Var("i")
    refused(seq(loop(copy_block("X"), i), loop(copy_block("Y"), i)), "'i' is defined twice")
    v = Var("v")
    refused(loop(copy_block(body=BufferStore(B, A[v], (v,)))), "'v' is used where it is not")


def test_blocks_see_loops_only_through_bindings():
    i = Var("i")
    refused(
        loop(copy_block(body=BufferStore(B, A[i], (i,))), i), "bind it to an iteration variable"
    )


def test_accesses():
    v = Var("vi")
    refused(
        loop(copy_block(var=v, reads=(), body=BufferStore(B, BufferLoad(A, (v, v)), (v,)))),
        "'A' has 1 dimensions but 2 indices",
    )
    refused(
        loop(copy_block(var=v, body=BufferStore(B, const(1), (v,)))),
        "holds float32 here, the value is int64",
    )
    refused(
        loop(copy_block(var=v, writes=(), body=BufferStore(B, A[v], (const(0.5),)))),
        "index 0 of 'B' is float32",
    )
    stray = decl_buffer((8,), name="Z")
    refused(
        loop(copy_block(var=v, body=BufferStore(stray, A[v], (v,)))), "'Z' is used where it is not"
    )


def test_realizes_and_loops():
    refused(loop(copy_block(), values=()), "has 1 iteration variables but 0 values")
    i = Var("i")
    refused(
        loop(copy_block(), i, body=BlockRealize((i,), call("abs", i), copy_block())),
        "a condition must be bool, this one is int64",
    )
    refused(loop(copy_block(), kind="thread_binding"), "thread tag if and only if")


def test_message_shows_the_program():
    i = Var("i")
    with pytest.raises(VerifyError) as caught:
        verify(func(loop(copy_block(), kind="thread_binding")))
    assert "function 'main' is not well formed" in str(caught.value)
    assert i.name in str(caught.value)


def test_a_matched_buffer_fits_its_region():
    def matched(*shape, dtype="float32"):
        view = decl_buffer(shape, dtype, name="V")
        match = MatchBufferRegion(
            view, BufferRegion(A, (Range.from_min_extent(const(0), const(4)),))
        )
        return loop(copy_block().replace(match_buffers=(match,)))

    accepted = func(matched(4))
    verify(accepted)
    refused(matched(5), r"buffer V has shape \(5\), the region of A that it stands for \(4\)")
    refused(matched(1, 4), r"buffer V has shape \(1, 4\), the region of A")
    refused(matched(4, dtype="int8"), "buffer V has dtype int8, A float32")


I, F, N = Var("i"), Var("f", "float32"), Var("n", "int32")
WRONG_EXPRESSIONS = [
    (Add(F, I), r"the operands of `\+` are float32 and int64"),
    (Min(F, N), "the operands of `min` are float32 and int32"),
    (Select(LT(I, N), F, F), "the operands of `<` are int64 and int32"),
    (Select(And(I, TRUE), F, F), "`and` joins truth values, not int64 and bool"),
    (Not(I), "`not` denies bool, not int64"),
    (Select(TRUE, F, I), "a choice is between values of one dtype, these are float32 and int64"),
    (call("if_then_else", TRUE, F, I, dtype="float32"), "a choice is between values of one dtype"),
    (Select(Broadcast(TRUE, 4), F, F), "a condition of 4 lanes chooses between values of float32"),
    (Let(Var("x"), F, F), "variable 'x' is int64, its value float32"),
]


@pytest.mark.parametrize(("expr", "message"), WRONG_EXPRESSIONS)
def test_dtypes_of_expressions(expr, message):
    inner = LetStmt(F, const(1.0, "float32"), BufferStore(B, expr, (I,)))
    body = For(I, const(0), const(8), SERIAL, LetStmt(N, const(1, "int32"), inner))
    with pytest.raises(VerifyError, match=message) as caught:
        verify(func(body))
    assert "^" in str(caught.value)


def test_what_counts_is_an_integer():
    half, narrow = const(0.5, "float32"), const(8, "int32")
    refused(loop(copy_block(), extent=half), "the extent of loop 'i' is float32, an integer is")
    refused(loop(copy_block(), min=half), "the first value of loop 'i' is float32")
    refused(loop(copy_block(), extent=narrow), "loop variable 'i' is int64, the extent int32")
    block = copy_block()
    refused(loop(block, values=(narrow,)), "variable 'vi' is int64, its value int32")
    region = BufferRegion(A, (Range.from_min_extent(const(0), half),))
    refused(loop(copy_block(reads=(region,))), "a bound of a region of 'A' is float32")
    axis = IterVar(Range.from_min_extent(const(0), half), Var("vi"), SPATIAL)
    refused(loop(copy_block(iter_vars=(axis,))), "a bound of axis 'vi' is float32")
    refused(LetStmt(Var("x"), half, loop(block)), "variable 'x' is int64, its value float32")
    lanes = Ramp(const(0), const(1), 8) < Broadcast(const(3), 8)
    realize = BlockRealize((const(0),), lanes, copy_block())
    refused(realize, "a condition must be one truth value here, not boolx8")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"shape": (Add(const(4.0, "float32"), const(4.0, "float32")),)},
            "an extent of buffer 'C' is float32, an integer is",
        ),
        ({"strides": (const(1.0, "float32"),)}, "a stride of buffer 'C' is float32"),
        ({"elem_offset": const(1.0, "float32")}, "the offset of buffer 'C' is float32"),
    ],
)
def test_buffers(changes, message):
    buffer = decl_buffer((8,), name="C").replace(**changes)
    refused(loop(copy_block(alloc_buffers=(buffer,))), message)


def test_what_is_built_is_well_formed():
    body = For(I, const(0), const(8), SERIAL, BufferStore(B, Add(A[I], I), (I,)))
    with pytest.raises(VerifyError, match="the operands of"):
        tilewright.compile(func(body), "llvm")


def test_a_view_is_of_memory_that_exists():
    nowhere = decl_buffer((4,), "float32", "V")
    refused(DeclBuffer(nowhere, loop(copy_block())), "'V' is used where it is not defined")
    memory = decl_buffer((4,), "float32", "M")
    view = memory.replace(name="V", shape=(const(2), const(2)))
    verify(func(Allocate(memory, DeclBuffer(view, loop(copy_block())))))
