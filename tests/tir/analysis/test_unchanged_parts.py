"""What is remembered of a statement is asked again where its surroundings differ."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.ir import IRModule, collect
from tilewright.script import parse
from tilewright.support.errors import VerifyError
from tilewright.tir import BufferLoad, BufferStore, PrimFunc, seq
from tilewright.tir.analysis import verify
from tilewright.tir.interpreter import compile_function, run
from tilewright.tir.walk import mentions

STAGES = """
@T.prim_func
def main(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
    B = T.alloc_buffer((4,), "float32")
    D = T.alloc_buffer((4, 2), "float32")
    for i in T.serial(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = A[vi] * T.float32(2)
    for i in T.serial(4):
        with T.block("C"):
            vi = T.axis.spatial(4, i)
            C[vi] = B[3 - vi] + T.float32(1)
    for i, j in T.grid(4, 2):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.Cast("float32", vj)
"""


def with_root(func: PrimFunc, **changes: object) -> PrimFunc:
    return func.replace(body=func.body.replace(block=func.root.replace(**changes)))


def test_a_buffer_that_is_gone() -> None:
    func: PrimFunc = parse(STAGES)
    verify(func)
    with pytest.raises(VerifyError, match="'B' is used where it is not defined"):
        verify(with_root(func, alloc_buffers=func.root.alloc_buffers[1:]))


def test_a_block_that_comes_twice() -> None:
    func: PrimFunc = parse(STAGES)
    verify(func)
    first, *others = func.root.body.stmts
    with pytest.raises(VerifyError, match=r"defined twice|two blocks"):
        verify(with_root(func, body=seq([first, first, *others])))


def test_memory_that_iterations_no_longer_have_for_themselves() -> None:
    func: PrimFunc = parse(
        """
@T.prim_func
def main(A: T.Buffer((4, 8)), C: T.Buffer((4, 8)), Z: T.Buffer((8,))):
    B = T.alloc_buffer((8,), "float32")
    for i in T.parallel(4):
        for j in T.serial(8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.writes(B[vj])
                B[vj] = A[vi, vj]
        for j in T.serial(8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vj]
    for j in T.serial(8):
        with T.block("Z"):
            vj = T.axis.spatial(8, j)
            Z[vj] = B[vj]
"""
    )
    nest = func.root.body.stmts[0]
    verify(with_root(func, body=nest))
    verify(with_root(func, body=seq([nest])))
    with pytest.raises(VerifyError, match="would race"):
        verify(func)
    verify(with_root(func, body=nest))


def test_pieces_of_programs() -> None:
    func: PrimFunc = parse(STAGES)
    ones, found = np.ones(4, "float32"), np.zeros(4, "float32")
    run(func, ones, found)
    assert found.tolist() == [3, 3, 3, 3]
    # The same statements, among others: buffers have other names and places now.
    first, second, third = func.root.body.stmts
    turned = with_root(func, alloc_buffers=func.root.alloc_buffers[::-1])
    run(with_root(turned, body=seq([third, first, second])), ones, found)
    assert found.tolist() == [3, 3, 3, 3]


def test_loops_that_run_at_once_run_backwards() -> None:
    func: PrimFunc = parse(
        """
@T.prim_func
def main(A: T.Buffer((4,), "int32")):
    for i in T.parallel(1, 4):
        A[i] = A[i - 1] + 1
"""
    )
    forwards, backwards = np.arange(4, dtype="int32"), np.arange(4, dtype="int32")
    compile_function(func)(forwards)
    compile_function(func, backwards=True)(backwards)
    assert forwards.tolist() == [0, 1, 2, 3] and backwards.tolist() == [0, 1, 2, 3]
    func = parse(
        """
@T.prim_func
def main(A: T.Buffer((4,), "int32")):
    for i in T.parallel(1, 4):
        A[i] = A[i - 1]
"""
    )
    compile_function(func)(forwards)
    compile_function(func, backwards=True)(backwards)
    assert forwards.tolist() == [0, 0, 0, 0] and backwards.tolist() == [0, 0, 1, 2]


def test_nodes_of_a_class_and_mentions_of_a_buffer() -> None:
    func: PrimFunc = parse(STAGES)
    loads = collect(func.root.body, BufferLoad)
    assert [load.buffer.name for load in loads] == ["A", "B"]
    stores = collect(IRModule({"main": func})["main"], BufferStore)
    assert [store.buffer.name for store in stores] == ["B", "C", "D"]
    second = func.root.body.stmts[1]
    assert [mentions(second, load.buffer) for load in loads] == [False, True]
