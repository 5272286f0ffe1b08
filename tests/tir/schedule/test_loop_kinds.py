"""parallel, vectorize, unroll, bind; annotate, unannotate, set_scope."""

from __future__ import annotations

import numpy as np
import pytest
from schedule_cases import chain, check, matmul, matmul_relu

from tilewright.script import parse
from tilewright.support.errors import ScheduleError
from tilewright.tir.schedule import Schedule


def test_kinds_on_spatial_loops():
    before = matmul()
    sch = Schedule(before, check=True)
    i, j, k = sch.get_loops("C")
    sch.parallel(i)
    sch.vectorize(j)
    sch.unroll(k)
    assert [sch.get(loop).kind for loop in (i, j, k)] == ["parallel", "vectorized", "unrolled"]
    check(sch, before)


@pytest.mark.parametrize("name", ["parallel", "vectorize"])
def test_reduce_loops_are_refused(name):
    sch = Schedule(matmul())
    *_, k = sch.get_loops("C")
    k0, k1 = sch.split(k, [2, 5])
    for loop in (k0, k1):
        with pytest.raises(ScheduleError, match=r"feeds a reduce iteration variable of block 'C'"):
            getattr(sch, name)(loop)


def test_a_loop_has_one_kind():
    sch = Schedule(matmul())
    i, j, _ = sch.get_loops("C")
    sch.parallel(i)
    sch.parallel(i)
    with pytest.raises(ScheduleError, match=r"is parallel already"):
        sch.vectorize(i)
    sch.vectorize(j)
    with pytest.raises(ScheduleError, match=r"is vectorized already"):
        sch.bind(j, "threadIdx.x")


def test_nested_vectors_are_refused():
    sch = Schedule(chain())
    i, j = sch.get_loops("D")
    sch.vectorize(j)
    with pytest.raises(ScheduleError, match=r"of the same nest is vectorized already"):
        sch.vectorize(i)


def test_bind():
    before = matmul()
    sch = Schedule(before, check=True)
    i, j, k = sch.get_loops("C")
    sch.bind(i, "blockIdx.x")
    sch.bind(j, "threadIdx.x")
    with pytest.raises(ScheduleError, match=r"inside loop .*, both on threadIdx.x"):
        sch.bind(k, "threadIdx.x")
    with pytest.raises(ScheduleError, match=r"unknown thread axis 'warpIdx'"):
        sch.bind(k, "warpIdx")
    sch.bind(k, "threadIdx.y")
    assert sch.get(k).thread == "threadIdx.y"


def test_bind_of_reduction_to_blocks_is_refused():
    sch = Schedule(matmul())
    *_, k = sch.get_loops("C")
    with pytest.raises(ScheduleError, match=r"feeds a reduce"):
        sch.bind(k, "blockIdx.x")


def test_in_place_scan_is_refused():
    func = parse(
        """
@T.prim_func
def main(A: T.Buffer((9,), "float32")):
    for i in range(8):
        with T.block("A"):
            vi = T.axis.spatial(8, i)
            A[vi + 1] = A[vi] * T.float32(2)
"""
    )
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match=r"it reads what it writes"):
        sch.parallel(sch.get_loops("A")[0])


def test_colliding_writes_are_refused():
    func = parse(
        """
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            B[vi // 2] = A[vi]
"""
    )
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match=r"different elements|same elements"):
        sch.parallel(sch.get_loops("B")[0])


def test_data_dependent_writes_are_refused():
    func = parse(
        """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), P: T.Buffer((8,), "int64"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            T.reads(A[vi], P[vi])
            T.writes(B[P[vi]])
            B[P[vi]] = A[vi]
"""
    )
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match=r"depends on data"):
        sch.vectorize(sch.get_loops("B")[0])


def test_repeated_reduction_is_a_race():
    func = parse(
        """
@T.prim_func
def main(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "float32")):
    for r in range(3):
        for i, k in T.grid(4, 8):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vk]
"""
    )
    sch = Schedule(func)
    r, i, k = sch.get_loops("B")
    with pytest.raises(ScheduleError, match=r"may update the same elements of 'B'"):
        sch.parallel(r)
    with pytest.raises(ScheduleError, match=r"repeated by loop 'r'"):
        sch.reorder(i, k, r)
    sch.parallel(i)


def test_producer_inside_parallel_loop():
    before = matmul_relu()
    sch = Schedule(before, check=True)
    i, _ = sch.get_loops("D")
    sch.compute_at("C", i)
    sch.parallel(i)
    check(sch, before)


def test_consumer_of_other_iterations_is_refused():
    func = parse(
        """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    B = T.alloc_buffer((9,), "float32")
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi + 1] = A[vi]
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = B[vi]
"""
    )
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match=r"makes in another iteration of loop 'i'"):
        sch.parallel(sch.get_loops("B")[0])


ROWS_OF_PAIRS = """
@T.prim_func
def main(A: T.Buffer((3, 4, 2, 6), "float32"), C: T.Buffer((3, 8, 6), "float32")):
    B = T.alloc_buffer((3, 8, 6), "float32")
    for f, i, k, r in T.grid(3, 4, 6, 2):
        with T.block("B"):
            vf, vi, vr, vk = T.axis.remap("SSSS", [f, i, r, k])
            B[vf, WRITTEN, vk] = A[vf, vi, vr, vk] + T.float32(1)
    for f, i, k in T.grid(3, 8, 6):
        with T.block("C"):
            vf, vi, vk = T.axis.remap("SSS", [f, i, k])
            C[vf, vi, vk] = B[vf, vi, vk] * T.float32(2)
"""


@pytest.mark.parametrize("guarded", [False, True])
def test_an_index_of_quotient_and_remainder_is_made_inside(guarded: bool) -> None:
    """Both places of a pair are made in one iteration, so the rows of others aren't needed."""
    before = parse(ROWS_OF_PAIRS.replace("WRITTEN", "vi * 2 + vr"))
    sch = Schedule(before, check=True)
    f, i, k, _ = sch.get_loops("B")
    if guarded:
        sch.split(k, [None, 4])
    sch.reverse_compute_at("C", i)
    sch.parallel(sch.fuse(f, i))
    check(sch, before)


def test_an_index_with_overlaps_is_not_made_inside() -> None:
    """Of rows ``i + r`` each comes from two iterations."""
    sch = Schedule(parse(ROWS_OF_PAIRS.replace("WRITTEN", "vi + vr")))
    with pytest.raises(ScheduleError):
        sch.reverse_compute_at("C", sch.get_loops("B")[1])


def test_unroll_is_always_allowed():
    sch = Schedule(matmul())
    sch.unroll(sch.get_loops("C")[-1])


def test_decomposed_reduction_may_be_parallel_and_vectorized():
    before = matmul()
    sch = Schedule(before, check=True)
    i, j, k = sch.get_loops("C")
    sch.reorder(i, k, j)
    init = sch.decompose_reduction("C", k)
    sch.parallel(i)
    sch.vectorize(j)
    sch.vectorize(sch.get_loops(init)[-1])
    check(sch, before)


# ---- annotations and scopes ---------------------------------------------------------------------


def test_a_fused_loop_of_tails_that_are_reduced_apart_may_be_parallel():
    before = matmul()
    sch = Schedule(before, check=True)
    *_, k = sch.get_loops("C")
    _, lane = sch.split(k, [None, 4])
    partial = sch.rfactor(lane, 2)
    outer = sch.get_loops(partial)[:2]
    sch.reverse_compute_at("C", outer[1])
    sch.decompose_reduction(partial, sch.get_loops(partial)[2])
    fused = sch.fuse(*outer)
    sch.parallel(fused)
    assert sch.get(fused).kind == "parallel"
    check(sch, before)


def test_annotate_and_unannotate():
    before = matmul()
    sch = Schedule(before)
    block = sch.get_block("C")
    i, *_ = sch.get_loops(block)
    value = sch.sample_categorical([1, 2], [0.0, 1.0])
    sch.annotate(block, "a", {"x": [1, 2.5, "t", value]})
    sch.annotate(i, "b", np.int64(3))
    assert sch.get(block).annotations == {"a": {"x": [1, 2.5, "t", 2]}}
    assert sch.get(i).annotations == {"b": 3}
    sch.annotate(i, "b", True)
    sch.unannotate(i, "b")
    assert sch.get(i).annotations == {}
    with pytest.raises(ScheduleError, match=r"there is no annotation 'b'"):
        sch.unannotate(i, "b")
    with pytest.raises(ScheduleError, match=r"argument 'ann_val'"):
        sch.annotate(i, "b", object())


def test_set_scope():
    before = chain()
    sch = Schedule(before, check=True)
    sch.set_scope("B", 0, "local")
    sch.set_scope("C", "C", "shared")
    scopes = {buffer.name: buffer.scope for buffer in sch.get(sch.get_block("root")).alloc_buffers}
    assert scopes == {"B": "local", "C": "shared"}
    assert sch.get(sch.get_block("C")).reads[0].buffer.scope == "local"
    check(sch, before)
    mod = sch.mod
    sch.set_scope("B", 0, "local")
    assert sch.mod is mod
    with pytest.raises(ScheduleError, match=r"parameter or a matched buffer"):
        sch.set_scope("D", 0, "local")
    with pytest.raises(ScheduleError, match=r"there is no number 3"):
        sch.set_scope("B", 3, "local")
    with pytest.raises(ScheduleError, match=r"does not write 'Q'; it writes 'B'"):
        sch.set_scope("B", "Q", "local")


def test_parallel_tiles_whose_guards_are_written_otherwise() -> None:
    func = matmul(11, 13, 5)
    sch = Schedule(func)
    block = sch.get_block("C")
    copy = sch.cache_write(block, 0, "local")
    i, j, k = sch.get_loops(block)
    i0, i1 = sch.split(i, [None, 4])
    j0, j1 = sch.split(j, [None, 8])
    k0, k1 = sch.split(k, [None, 9])  # the guard becomes k1 < 5, the binding k0 * 9 + k1
    sch.reorder(i0, j0, k0, k1, i1, j1)
    at = sch.fuse(i0, j0)
    sch.reverse_compute_at(copy, at)
    sch.parallel(at)
    check(sch, func)


TWO_BLOCKS = """
@T.prim_func
def main(A: T.Buffer((9,), "float32"), C: T.Buffer((9,), "float32"), X: T.Buffer((9,), "float32")):
    for i in range(9):
        with T.block("W"):
            vi = T.axis.spatial(9, i)
            X[vi] = A[vi]
    for i in range(8):
        with T.block("S"):
            vi = T.axis.spatial(8, i)
            FIRST
        with T.block("U"):
            vi = T.axis.spatial(8, i)
            SECOND
"""


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("C[vi] = X[vi]", "X[vi + 1] = A[vi]", "which block 'S' reads below"),
        ("X[vi] = A[vi]", "X[vi + 1] = C[vi]", "which block 'S' writes below"),
    ],
)
def test_overwriting_what_another_iteration_uses_is_refused(first, second, message):
    func = parse(TWO_BLOCKS.replace("FIRST", first).replace("SECOND", second))
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match=message):
        sch.parallel(sch.get_loops("S")[0])


def test_overwriting_what_the_same_iteration_used_is_allowed():
    func = parse(
        TWO_BLOCKS.replace("FIRST", "C[vi] = X[vi]").replace("SECOND", "X[vi] = A[vi] + C[vi]")
    )
    sch = Schedule(func)
    sch.parallel(sch.get_loops("S")[0])
    check(sch, func)


def test_what_decides_what_runs_may_not_change():
    text = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), X: T.Buffer((9,), "float32"), Y: T.Buffer((9,), "float32")):
    for i in range(8):
        if X[i] > T.float32(0):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                OUT[vi + 1] = A[vi]
"""
    sch = Schedule(parse(text.replace("OUT", "X")))
    with pytest.raises(ScheduleError, match=r"'X' decides what runs below the loop"):
        sch.parallel(sch.get_loops("B")[0])
    before = parse(text.replace("OUT", "Y"))
    sch = Schedule(before)
    sch.parallel(sch.get_loops("B")[0])
    check(sch, before)


AGAIN = """
@T.prim_func
def main(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        for j in range(6):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                AXIS
                STORE
"""


@pytest.mark.parametrize("name", ["parallel", "vectorize"])
@pytest.mark.parametrize("axis", ["pass", "v2 = T.axis.spatial(8, j // 2)"])
def test_iterations_that_run_one_instance_again_write_the_same(name, axis):
    """As in TVM, which asks about the axes that a loop feeds, and not about one that feeds none."""
    store = "B[vi] = A[vi, 0]"
    if axis != "pass":
        axis, store = axis.replace("v2", "vj"), "B[vj] = A[vj, 0]"
    text = AGAIN.replace("AXIS", axis).replace("STORE", store)
    if axis != "pass":
        text = text.replace("                vi = T.axis.spatial(8, i)\n", "")
    before = parse(text.replace("                pass\n", ""))
    sch = Schedule(before, check=True)
    getattr(sch, name)(sch.get_loops("B")[1])
    check(sch, before)


@pytest.mark.parametrize("name", ["parallel", "vectorize"])
@pytest.mark.parametrize("store", ["B[vi] = A[vi, vj]", "B[vi // 2] = A[vi // 2, 0]"])
def test_different_instances_may_not_write_one_element(name, store):
    axis = "vj = T.axis.spatial(6, j)"
    sch = Schedule(parse(AGAIN.replace("AXIS", axis).replace("STORE", store)))
    with pytest.raises(ScheduleError, match=r"neither complete nor a reduction"):
        getattr(sch, name)(sch.get_loops("B")[1])
