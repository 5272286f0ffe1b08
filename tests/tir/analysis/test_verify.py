"""The verifier accepts what is right, and names what is wrong."""

from __future__ import annotations

import pytest

from tilewright.ir import TRUE, IRModule, Range, Var, call, const
from tilewright.script import parse
from tilewright.support.errors import VerifyError
from tilewright.tir import (
    SERIAL,
    SPATIAL,
    Block,
    BlockRealize,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    IterVar,
    MatchBufferRegion,
    PrimFunc,
    decl_buffer,
    make_root_block,
    seq,
)
from tilewright.tir.analysis import verify

A = decl_buffer((8,), name="A")
B = decl_buffer((8,), name="B")
PARAMS = (Var("a", "handle"), Var("b", "handle"))


def func(body) -> PrimFunc:
    return PrimFunc(PARAMS, dict(zip(PARAMS, (A, B))), make_root_block(body))


def copy_block(name="B", var=None, **changes) -> Block:
    var = Var("vi") if var is None else var
    fields = {
        "iter_vars": (IterVar(var, Range(const(0), const(8)), SPATIAL),),
        "reads": (),
        "writes": (),
        "name": name,
        "body": BufferStore(B, A[var], (var,)),
    }
    return Block(**{**fields, **changes})


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
        loop(copy_block(var=v, body=BufferStore(B, BufferLoad(A, (v, v)), (v,)))),
        "'A' has 1 dimensions but 2 indices",
    )
    refused(
        loop(copy_block(var=v, body=BufferStore(B, const(1), (v,)))),
        "holds float32 here, the value is int64",
    )
    refused(
        loop(copy_block(var=v, body=BufferStore(B, A[v], (const(0.5),)))),
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
    refused(loop(copy_block(), kind="strange"), "unknown loop kind 'strange'")
    refused(loop(copy_block(), kind="thread_binding"), "thread tag if and only if")


def test_message_shows_the_program():
    i = Var("i")
    with pytest.raises(VerifyError) as caught:
        verify(func(loop(copy_block(), kind="strange")))
    assert "function 'main' is not well formed" in str(caught.value)
    assert i.name in str(caught.value)


def test_a_matched_buffer_fits_its_region():
    def matched(*shape, dtype="float32"):
        view = decl_buffer(shape, dtype, name="V")
        match = MatchBufferRegion(view, BufferRegion(A, (Range(const(0), const(4)),)))
        return loop(copy_block().replace(match_buffers=(match,)))

    accepted = func(matched(4))
    verify(accepted)
    refused(matched(5), r"buffer V has shape \(5\), the region of A that it stands for \(4\)")
    refused(matched(1, 4), r"buffer V has shape \(1, 4\), the region of A")
    refused(matched(4, dtype="int8"), "buffer V has dtype int8, A float32")
