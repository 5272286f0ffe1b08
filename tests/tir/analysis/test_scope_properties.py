"""Kinds of blocks with reasons, dependences, region cover, stage pipelines."""

from __future__ import annotations

import pytest

from tilewright import te
from tilewright.ir import Range, Var, const
from tilewright.script import parse
from tilewright.support.errors import ScheduleError
from tilewright.tir import PrimFunc
from tilewright.tir.analysis import (
    block_dependencies,
    check_affine_binding,
    check_complete_block,
    check_dominant_block,
    check_reduction_block,
    check_region_cover,
    check_stage_pipeline,
    get_block_access_region,
    get_block_read_write_region,
    is_dominant_block,
    is_stage_pipeline,
)
from tilewright.tir.schedule import Schedule


def function(body: str) -> PrimFunc:
    header = """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
"""
    return parse(header + body)


def softmax(n: object, m: object) -> PrimFunc:
    a = te.placeholder((n, m), name="A")
    k, k2 = te.reduce_axis((0, m), "k"), te.reduce_axis((0, m), "k2")
    top = te.compute((n,), lambda i: te.max(a[i, k], axis=k), name="top")
    low = te.compute((n, m), lambda i, j: te.exp(a[i, j] - top[i]), name="low")
    total = te.compute((n,), lambda i: te.sum(low[i, k2], axis=k2), name="total")
    out = te.compute((n, m), lambda i, j: low[i, j] / total[i], name="out")
    return te.create_prim_func([a, out])


CHAIN = """
    C = T.alloc_buffer((16, 16), "float32")
    for i, j in T.grid(16, 16):
        with T.block("first"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj]
    for i, j in T.grid({rows}, 16):
        with T.block("second"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = C[{index}, vj]
"""


# ---- kinds --------------------------------------------------------------------------------------


def kinds(func: PrimFunc, name: str) -> tuple[str, str, str]:
    block = block_dependencies(func.root).children[name]
    return (
        check_complete_block(block, func.root),
        check_reduction_block(block, func.root),
        check_dominant_block(block, func.root),
    )


def test_kinds_with_reasons():
    func = softmax(8, 12)
    assert kinds(func, "low") == ("", "it has no init", "")
    assert kinds(func, "total") == ("it is a reduction with init", "", "")


@pytest.mark.parametrize(
    ("init", "value", "why"),
    [
        ("T.float32(0)", "A[vi, vj]", ""),
        ("B[vi, 0]", "A[vi, vj]", ""),
        ("B[vi + 1, 0]", "A[vi, vj]", "it reads elements of 'B' that it doesn't combine into"),
        (
            "T.float32(0)",
            "A[vi, vj] * B[vi, 1]",
            "it reads elements of 'B' that it doesn't combine into",
        ),
    ],
)
def test_reductions_read_of_their_own_what_they_combine_into(init: str, value: str, why: str):
    func = function(
        f"""
    for i, j in T.grid(15, 16):
        with T.block("sum"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                B[vi, 0] = {init}
            B[vi, 0] = B[vi, 0] + {value}
"""
    )
    assert kinds(func, "sum")[1] == why


def test_a_block_that_updates():
    func = function(
        """
    for i, j in T.grid(16, 16):
        with T.block("twice"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = B[vi, vj] * T.float32(2)
"""
    )
    complete, reduction, dominant = kinds(func, "twice")
    assert complete == "it updates elements that it reads, so each may be written more than once"
    assert reduction == "it has no init"
    assert dominant == ""


def test_dominance():
    func = function(
        """
    C = T.alloc_buffer((16, 16), "float32")
    for i, j in T.grid(16, 16):
        with T.block("early"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = C[vi, vj]
    for i, j in T.grid(16, 16):
        with T.block("late"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj]
"""
    )
    assert kinds(func, "late")[2] == "block 'early' reads 'C' before it is written"
    assert kinds(func, "late")[0] == "block 'early' reads 'C' before it is written"
    assert is_dominant_block(func.root.body.stmts[0].body.body.block, func.root)


def test_two_writers_dominate_nothing():
    sch = Schedule(softmax(8, 12))
    sch.decompose_reduction("total", sch.get_loops("total")[1])
    root = sch.mod["main"].root
    children = block_dependencies(root).children
    assert check_dominant_block(children["total_update"], root) == (
        "block 'total_init' writes 'total' too"
    )
    assert not is_dominant_block(children["total_init"], root)


def test_blocks_of_another_scope():
    func = softmax(8, 12)
    block = block_dependencies(softmax(8, 12).root).children["low"].replace()
    assert check_dominant_block(block.block.replace(name="other"), func.root) == (
        "it is not a child block of 'root'"
    )


def test_affine_bindings_with_reasons():
    realize = block_dependencies(softmax(8, 12).root).children["low"]
    i, j = realize.iter_values
    loops = {
        i: Range.from_min_extent(const(0), const(8)),
        j: Range.from_min_extent(const(0), const(12)),
    }
    assert check_affine_binding(realize, loops) == ""
    assert check_affine_binding(realize.replace(iter_values=(i * 12 + j, j)), loops) != ""
    assert "not" in check_affine_binding(realize.replace(iter_values=(i * i, j)), loops)
    n = Var("n", "int64")
    symbolic = {i: Range.from_min_extent(const(0), n), j: Range.from_min_extent(const(0), n)}
    assert check_affine_binding(realize.replace(iter_values=(i, j)), symbolic) == ""


# ---- dependences --------------------------------------------------------------------------------


def test_kinds_of_dependence():
    graph = block_dependencies(softmax(8, 12).root)
    assert graph.kinds("top", "low") == {"RAW"}
    assert graph.kinds("top", "total") == set()
    sch = Schedule(softmax(8, 12))
    sch.decompose_reduction("total", sch.get_loops("total")[1])
    graph = block_dependencies(sch.mod["main"].root)
    assert graph.kinds("total_init", "total_update") == {"RAW", "WAW"}


def test_views_of_the_same_memory_depend_opaquely():
    func = function(
        """
    C = T.alloc_buffer((256,), "float32")
    D = T.alloc_buffer((16, 16), "float32", data=C.data)
    for i in range(256):
        with T.block("flat"):
            vi = T.axis.spatial(256, i)
            C[vi] = T.float32(1)
    for i, j in T.grid(16, 16):
        with T.block("square"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = D[vi, vj]
"""
    )
    graph = block_dependencies(func.root)
    assert graph.kinds("flat", "square") == {"opaque"}
    assert graph.opaque[0].reason == "'C' and 'D' are views of the same memory"
    assert check_stage_pipeline(func)[0] == (
        "block 'square' must stay after 'flat': 'C' and 'D' are views of the same memory"
    )


def test_effects_outside_of_buffers_keep_their_order():
    body = """
    with T.block("one"):
        T.reads()
        T.writes()
        T.evaluate(T.call_extern("puts", 1, dtype="int32"))
    with T.block("two"):
        T.reads()
        T.writes()
        T.evaluate(T.call_extern("puts", 2, dtype="int32"))
    with T.block("three"):
        T.reads()
        T.writes(B[0, 0])
        T.evaluate(T.call_extern("fill", T.address_of(B[0, 0], dtype="handle"), dtype="int32"))
"""
    graph = block_dependencies(function(body).root)
    assert graph.kinds("one", "two") == {"opaque"}
    assert graph.kinds("two", "three") == set()


# ---- region cover -------------------------------------------------------------------------------


def cover(func: PrimFunc) -> list[str]:
    return [str(item) for item in check_region_cover(func)]


@pytest.mark.parametrize("shape", [(8, 12), (te.var("n"), te.var("m"))])
def test_softmax_is_a_stage_pipeline(shape: tuple[object, object]):
    assert check_stage_pipeline(softmax(*shape)) == []
    assert is_stage_pipeline(softmax(*shape))


def test_reads_beyond_what_is_written():
    assert cover(function(CHAIN.format(rows=15, index="vi + 1"))) == []
    func = function(
        CHAIN.format(rows=16, index="vi").replace(
            'T.grid(16, 16):\n        with T.block("first")',
            'T.grid(15, 16):\n        with T.block("first")',
        )
    )
    assert cover(func) == [
        "block 'second' may read elements of 'C' that 'first' does not surely write before"
    ]


def test_padding_reads_only_what_exists():
    func = function(
        CHAIN.format(rows=16, index="vi").replace(
            "C[vi, vj]\n", "T.if_then_else(vi >= 2, C[vi - 2, vj], T.float32(0))\n"
        )
    )
    assert cover(func) == []


def test_cover_inside_a_shared_loop():
    text = """
    C = T.alloc_buffer((16, 16), "float32")
    for i in range(16):
        for j in range(16):
            with T.block("first"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj]
        for j in range(16):
            with T.block("second"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = C[{row}, vj]
"""
    assert cover(function(text.format(row="vi"))) == []
    assert cover(function(text.format(row="15 - vi"))) == [
        "block 'second' may read elements of 'C' that 'first' does not surely write before in the "
        "same iteration of loop 'i'"
    ]


def test_several_producers_cover_together():
    text = """
    C = T.alloc_buffer((16, 16), "float32")
    for i, j in T.grid(10, 16):
        with T.block("upper"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj]
    for i, j in T.grid({rows}, 16):
        with T.block("lower"):
            vi = T.axis.spatial(16, i + 10)
            vj = T.axis.spatial(16, j)
            C[vi, vj] = T.float32(0)
    for i, j in T.grid(16, 16):
        with T.block("use"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = C[vi, vj]
"""
    assert cover(function(text.format(rows=6))) == []
    assert cover(function(text.format(rows=5))) == [
        "block 'use' may read elements of 'C' that 'upper' and 'lower' do not surely write before"
    ]


def test_a_conditional_store_is_not_sure():
    func = function(
        CHAIN.format(rows=16, index="vi").replace(
            "            C[vi, vj] = A",
            "            if A[vi, vj] > T.float32(0):\n                C[vi, vj] = A",
        )
    )
    assert len(cover(func)) == 1


def test_nobody_writes():
    func = function(
        """
    C = T.alloc_buffer((16, 16), "float32")
    for i, j in T.grid(16, 16):
        with T.block("use"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = C[vi, vj] + A[vi, vj]
"""
    )
    assert cover(func) == ["block 'use' reads 'C', which no block writes before"]


def test_computed_inside_its_consumer_with_symbolic_sizes():
    n = te.var("n")
    a = te.placeholder((n, 64), name="A")
    b = te.compute((n, 64), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((n, 62), lambda i, j: b[i, j] + b[i, j + 2], name="C")
    sch = Schedule(te.create_prim_func([a, c]))
    sch.split(sch.get_loops("C")[0], [None, 8])
    sch.compute_at("B", sch.get_loops("C")[0])
    assert cover(sch.mod["main"]) == []
    assert is_stage_pipeline(sch.mod["main"])


def test_what_is_no_pipeline():
    sch = Schedule(softmax(8, 12))
    sch.decompose_reduction("total", sch.get_loops("total")[1])
    found = check_stage_pipeline(sch.mod["main"])
    assert "block 'total_update' comes after 'total_init' by WAW of 'total'" in found
    assert any("'total_update' is neither complete nor a reduction" in item for item in found)
    func = function(
        """
    with T.block("x"):
        T.reads()
        T.writes(B[1, 1])
        B[1, 1] = T.float32(0)
    B[0, 0] = T.float32(0)
"""
    )
    assert check_stage_pipeline(func) == ["there is a BufferStore between its blocks"]


# ---- regions of opaque accesses -----------------------------------------------------------------


def test_pointers_are_opaque_accesses():
    func = function(
        """
    with T.block("x"):
        T.reads(A[0:16, 0:16])
        T.writes(B[0:16, 0:16])
        T.evaluate(T.call_extern("f", T.address_of(A[2, 3], dtype="handle"), B.data, dtype="int32"))
        B[1, 1] = A[2, 2]
"""
    )
    block = block_dependencies(func.root).children["x"].block
    reads, writes, opaque = get_block_access_region(block, func.buffers)
    assert [repr(item) for item in reads] == ["A[2:2+1, 2:2+1]"]
    assert [repr(item) for item in writes] == ["B[1:1+1, 1:1+1]"]
    assert [repr(item) for item in opaque] == ["A[0:0+16, 0:0+16]", "B[0:0+16, 0:0+16]"]
    reads, writes = get_block_read_write_region(block, func.buffers)
    assert [item.buffer.name for item in reads] == ["A", "B"]
    assert {repr(item) for item in writes} == {"A[0:0+16, 0:0+16]", "B[0:0+16, 0:0+16]"}


def test_the_mask_of_a_pointer_tells_its_use():
    func = function(
        """
    with T.block("x"):
        T.reads(A[0:16, 0:16])
        T.writes(B[0:16, 0:16])
        T.evaluate(T.access_ptr(A.data, 0, 256, 1, dtype="handle"))
        T.evaluate(T.access_ptr(B.data, 0, 256, 2, dtype="handle"))
"""
    )
    block = block_dependencies(func.root).children["x"].block
    reads, writes = get_block_read_write_region(block, func.buffers)
    assert [item.buffer.name for item in reads] == ["A"]
    assert [item.buffer.name for item in writes] == ["B"]


def test_loops_over_views_of_the_same_memory_stay_in_order():
    func = function(
        """
    C = T.alloc_buffer((16,), "float32")
    D = T.alloc_buffer((16,), "float32", data=C.data)
    for i in range(16):
        with T.block("write"):
            vi = T.axis.spatial(16, i)
            C[vi] = T.float32(1)
        with T.block("read"):
            vi = T.axis.spatial(16, i)
            B[vi, 0] = D[15 - vi]
"""
    )
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match="'C' and 'D' are names of the same memory"):
        sch.parallel(sch.get_loops("write")[0])
