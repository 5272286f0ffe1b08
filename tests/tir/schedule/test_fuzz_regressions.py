"""Programs and steps that the fuzzer found wrong, made small; each was a fault once."""

from __future__ import annotations

import numpy as np
import pytest
from schedule_cases import check, matmul, refuses

from tilewright.ir import assert_structural_equal
from tilewright.script import parse
from tilewright.tir.analysis import verify
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Schedule
from tilewright.tir.transform import LowerAutoCopy


def schedule(text: str) -> Schedule:
    return Schedule(parse(text))


ROWS = """
@T.prim_func
def main(A: T.Buffer((4, 6), "float32"), B: T.Buffer((4, 6), "float32")):
    for i in T.serial(4):
        with T.block("B"):
            v = T.axis.spatial(4, i)
            T.reads(A[v, 0:6])
            T.writes(B[v, 0:6])
            X = T.match_buffer(A[v, 0:6], (6,), "float32")
            for k in T.serial(6):
                B[v, k] = X[k] * T.float32(2)
"""


def test_reindex_refuses_an_access_by_inner_variables() -> None:
    sch = schedule(ROWS)
    refuses(sch, lambda: sch.reindex("B", ("write", 0)), "defined inside")


@pytest.mark.parametrize("name", ["cache_read", "cache_write"])
def test_views_of_a_cached_buffer_have_its_scope(name: str) -> None:
    func = parse(ROWS)
    sch = Schedule(func)
    getattr(sch, name)("B", 0, "local")
    check(sch, func)
    assert_structural_equal(parse(sch.mod.script()), sch.mod)


def test_compute_at_binds_nothing_to_what_is_in_memory() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((3,), "float32"), I: T.Buffer((3,), "int32"), C: T.Buffer((3,), "float32")):
    B = T.alloc_buffer((3,), "float32")
    for i in T.serial(3):
        with T.block("B"):
            v = T.axis.spatial(3, i)
            B[v] = A[v] + T.float32(1)
    for i in T.serial(3):
        with T.block("C"):
            v = T.axis.spatial(3, i)
            C[v] = B[T.Cast("int64", I[v]) % 3]
""")
    sch = Schedule(func)
    (loop,) = sch.get_loops("C")
    sch.compute_at("B", loop)
    sch.split(loop, [2, None])
    check(sch, func)


@pytest.mark.parametrize("start", [2, -3])
def test_blockize_refuses_loops_that_start_elsewhere(start: int) -> None:
    sch = schedule(f"""
@T.prim_func
def main(A: T.Buffer((4, 6), "float32"), B: T.Buffer((4, 6), "float32")):
    for i, j in T.grid(4, 2):
        for k in T.serial({start}, {start} + 3):
            with T.block("B"):
                v = T.axis.spatial(4, i)
                w = T.axis.spatial(6, j * 3 + k - {start})
                B[v, w] = A[v, w] * T.float32(2)
""")
    refuses(sch, lambda: sch.blockize(sch.get_loops("B")[2]), "outer * extent")


def test_a_block_of_an_init_has_no_producers_or_consumers() -> None:
    sch = Schedule(matmul(), seed=0)
    sch.blockize(sch.get_loops("C")[1])
    (init,) = [name for name in sch.state.index("main").blocks if "init" in name]
    assert sch.get_producers(init) == sch.get_consumers(init) == []
    assert sch.sample_compute_location(sch.get_block(init)).is_root


def test_compute_at_of_a_reduction_that_runs_a_part_of_its_domain() -> None:
    sch = schedule("""
@T.prim_func
def main(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
    B = T.alloc_buffer((4,), "float32")
    for i in T.serial(4):
        for k in T.serial(i + 1):
            with T.block("B"):
                v = T.axis.spatial(4, i)
                r = T.axis.reduce(4, k)
                with T.init():
                    B[v] = T.float32(0)
                B[v] = B[v] + A[r]
    for i in T.serial(4):
        with T.block("C"):
            v = T.axis.spatial(4, i)
            C[v] = B[v]
""")
    refuses(sch, lambda: sch.compute_at("B", sch.get_loops("C")[0]), "don't run all of its domain")


@pytest.mark.parametrize("kind", ["vectorize", "parallel"])
def test_reverse_compute_at_makes_no_race(kind: str) -> None:
    sch = schedule("""
@T.prim_func
def main(A: T.Buffer((4, 3), "float32"), C: T.Buffer((3,), "float32")):
    B = T.alloc_buffer((4, 3), "float32")
    for i, j in T.grid(4, 3):
        with T.block("B"):
            v, w = T.axis.remap("SS", [i, j])
            B[v, w] = A[v, w] * T.float32(2)
    for i, j in T.grid(4, 3):
        with T.block("C"):
            v, w = T.axis.remap("RS", [i, j])
            with T.init():
                C[w] = T.float32(0)
            C[w] = C[w] + B[v, w]
""")
    i, j = sch.get_loops("B")
    getattr(sch, kind)(i)
    refuses(sch, lambda: sch.reverse_compute_at("C", j), "the same elements")


def test_merge_of_loops_that_are_in_no_common_sequence() -> None:
    sch = Schedule(matmul(), seed=0)
    sch.blockize(sch.get_loops("C")[1])
    init = next(name for name in sch.state.index("main").blocks if "init" in name)
    one, other = sch.get_loops(init)[0], sch.get_loops("C")[0]
    refuses(sch, lambda: sch.merge(one, other), "one after the other")


TRIANGLE = """
@T.prim_func
def main(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in T.serial(4):
        for k in T.serial(i + 1):
            with T.block("B"):
                v = T.axis.spatial(4, i)
                r = T.axis.reduce(4, k)
                with T.init():
                    B[v] = T.float32(0)
                B[v] = B[v] + A[r]
"""


def test_cache_read_under_loops_whose_ranges_depend_on_each_other() -> None:
    func = parse(TRIANGLE)
    sch = Schedule(func)
    sch.cache_read("B", 0, "global")
    check(sch, func)


@pytest.mark.parametrize("how", ["partition", "peel"])
def test_copies_of_views_define_their_own_strides(how: str) -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((5, 6), "float32"), B: T.Buffer((5, 6), "float32")):
    for i in T.serial(5):
        with T.block("B"):
            v = T.axis.spatial(5, i)
            T.reads(A[v, 0:6])
            T.writes(B[v, 0:6])
            stride = T.int64()
            offset = T.int64()
            X = T.match_buffer(
                A[v, 0:6], (6,), "float32", strides=(stride,), elem_offset=offset
            )
            for k in T.serial(6):
                B[v, k] = X[k] * T.float32(2)
""")
    sch = Schedule(func)
    (i,) = sch.get_loops("B")
    if how == "peel":
        sch.split(i, [None, 2], tail="peel")
    else:
        sch.loop_partition(i, [2, None])
    check(sch, func)


def test_the_tail_of_a_reduction_says_that_it_reads_its_result() -> None:
    sch = Schedule(matmul(), seed=0)
    k = sch.get_loops("C")[2]
    sch.split(k, [None, 4], tail="peel")
    tail = sch.get(sch.get_block("C_tail"))
    assert tail.init is None
    assert {region.buffer.name for region in tail.reads} == {"A", "B", "C"}
    refuses(sch, lambda: sch.cache_write("C_tail", 0, "local"))


def test_blockize_joins_axes_in_the_init_too() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((1, 2), "float32"), B: T.Buffer((2, 1, 1), "float32")):
    for k, i, j, l in T.grid(1, 2, 1, 1):
        with T.block("B"):
            v0, v1, v2, v3 = T.axis.remap("RSSS", [k, i, j, l])
            with T.init():
                B[v1, v2, v3] = T.float32(0)
            B[v1, v2, v3] = B[v1, v2, v3] + A[v0, v1]
""")
    sch = Schedule(func)
    sch.blockize(sch.get_loops("B")[2])
    check(sch, func)


def test_blockize_keeps_the_conditions_of_an_init() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((3, 3), "float32"), B: T.Buffer((3,), "float32")):
    for k, i, j in T.grid(3, 2, 2):
        with T.block("B"):
            r = T.axis.reduce(3, k)
            v = T.axis.spatial(3, i * 2 + j)
            T.where(i * 2 + j < 3)
            with T.init():
                B[v] = T.float32(0)
            B[v] = B[v] + A[r, v]
""")
    sch = Schedule(func)
    sch.blockize(sch.get_loops("B")[1])
    check(sch, func)


@pytest.mark.parametrize("keep", [True, False])
def test_blockize_keeps_outer_axes_in_their_domain(keep: bool) -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for k, i in T.grid(1, 4):
        with T.block("B"):
            r = T.axis.reduce(1, k)
            v = T.axis.spatial(4, i)
            with T.init():
                B[v] = T.float32(0)
            B[v] = B[v] + A[v]
""")
    sch = Schedule(func)
    outer, inner = sch.split(sch.get_loops("B")[0], [3, 2])
    sch.reorder(sch.get_loops("B")[2], inner)
    sch.blockize(inner, preserve_unit_iters=keep)
    check(sch, func)
    sch.loop_partition(inner, [1, None])
    check(sch, func)
    assert outer is not inner


def test_read_at_binds_the_loops_that_its_extent_depends_on() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((4, 2), "float32"), B: T.Buffer((4, 2), "float32")):
    for i, j in T.grid(4, 2):
        with T.block("B"):
            v, w = T.axis.remap("SS", [i, j])
            B[v, w] = A[v, w] + A[3 - v, w]
""")
    sch = Schedule(func)
    sch.read_at(sch.get_loops("B")[1], "B", 0, "shared")
    check(sch, func)


@pytest.mark.parametrize("move", ["read_at", "cache_read"])
def test_copies_inside_of_nested_blocks_stay_in_bounds(move: str) -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((2, 2), "float32"), B: T.Buffer((2, 5), "float32")):
    for i, j in T.grid(2, 5):
        with T.block("B"):
            v, w = T.axis.remap("SS", [i, j])
            B[v, w] = T.if_then_else(w >= 1 and w < 3, A[v, w - 1], T.float32(0))
""")
    sch = Schedule(func)
    sch.blockize(sch.get_loops("B")[0])
    sch.blockize(sch.get_loops("B")[1])
    if move == "read_at":
        sch.read_at(sch.get_loops("B")[0], "B", 0, "global")
    else:
        sch.cache_read("B", 0, "global")
        sch.compute_at("A_global", sch.get_loops("B")[0])
    check(sch, func)


def test_split_does_not_pad_loops_that_others_depend_on() -> None:
    sch = schedule(
        TRIANGLE.replace('B: T.Buffer((4,), "float32")', 'C: T.Buffer((4,), "float32")').replace(
            "    for i in", '    B = T.alloc_buffer((4,), "float32")\n    for i in', 1
        )
        + """
    for i in T.serial(4):
        with T.block("C"):
            v = T.axis.spatial(4, i)
            C[v] = B[v]
"""
    )
    (i, _) = sch.get_loops("B")
    refuses(sch, lambda: sch.split(i, [None, 3], tail="pad"), "depends on the loop")


def test_blockize_of_blocks_that_are_in_no_common_sequence() -> None:
    sch = Schedule(matmul(), seed=0)
    sch.blockize(sch.get_loops("C")[1])
    init = next(name for name in sch.state.index("main").blocks if "init" in name)
    blocks = [sch.get_block(init), sch.get_block("C")]
    refuses(sch, lambda: sch.blockize(blocks), "follow one another")


def test_write_at_copies_only_in_iterations_that_write() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((1,), "float32"), B: T.Buffer((1,), "float32")):
    for i in T.serial(2):
        with T.block("B"):
            v = T.axis.spatial(1, i)
            T.where(i < 1)
            B[v] = A[v] + T.float32(1)
""")
    sch = Schedule(func)
    sch.write_at(sch.get_loops("B")[0], "B", 0, "local")
    check(sch, func)
    assert "if v0 < 1" in sch.mod.script() or "T.where" in sch.mod.script().split("B_local")[-1]


def test_copies_in_loops_that_share_a_virtual_thread_can_be_lowered() -> None:
    sch = schedule("""
@T.prim_func
def main(A: T.Buffer((1, 1), "float32"), B: T.Buffer((1, 1), "float32")):
    for i, j in T.grid(1, 1):
        with T.block("B"):
            v, w = T.axis.remap("SS", [i, j])
            B[v, w] = A[v, w]
""")
    i, j = sch.get_loops("B")
    sch.bind(i, "vthread.x")
    sch.bind(j, "vthread.x")
    sch.read_at(j, "B", 0, "local")
    LowerAutoCopy()(sch.mod)


def test_regions_of_a_block_name_no_memory_made_inside() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    with T.block("outer"):
        I = T.alloc_buffer((4,), "int64")
        for i in T.serial(4):
            with T.block("I"):
                v = T.axis.spatial(4, i)
                I[v] = 3 - v
        for i in T.serial(4):
            with T.block("B"):
                v = T.axis.spatial(4, i)
                B[v] = A[I[0] + v - 3]
""")
    outer = func.root.body.block
    assert [str(item.min) for item in outer.reads[0].region] == ["0"]
    assert_structural_equal(parse(func.script()), func)


def test_reverse_compute_at_leaves_out_nothing_off_a_diagonal() -> None:
    sch = schedule("""
@T.prim_func
def main(A: T.Buffer((2, 2), "float32"), D: T.Buffer((2, 2), "float32")):
    B = T.alloc_buffer((2, 2), "float32")
    C = T.alloc_buffer((2, 2), "float32")
    for i, j in T.grid(2, 2):
        with T.block("BC"):
            v, w = T.axis.remap("SS", [i, j])
            B[v, w] = A[v, w] + T.float32(1)
            C[v, w] = A[v, w] * T.float32(2)
    for i, j in T.grid(2, 2):
        with T.block("D"):
            v, w = T.axis.remap("SS", [i, j])
            D[v, w] = B[v, w] + C[w, v]
""")
    i, _ = sch.get_loops("BC")
    refuses(sch, lambda: sch.reverse_compute_at("D", i), "different axes")


def test_regions_of_gathers_are_whole() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((5,), "float32"), I: T.Buffer((4,), "int32"), B: T.Buffer((4,), "float32")):
    with T.block("outer"):
        for i in T.serial(4):
            with T.block("B"):
                v = T.axis.spatial(4, i)
                B[v] = A[T.Cast("int64", I[v])]
""")
    reads = {str(item.buffer.name): item.region for item in func.root.body.block.reads}
    assert [(str(r.min), str(r.extent)) for r in reads["A"]] == [("0", "5")]


def test_regions_name_no_loop_that_is_inside() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((2, 2), "float32"), B: T.Buffer((2, 2), "float32")):
    with T.block("outer"):
        for i in T.serial(2):
            for a in T.serial(2):
                for b in T.serial(T.max(i + 1, (i + 1) % 2 + 1) - T.min(i, (i + 1) % 2)):
                    with T.block("B"):
                        v = T.axis.spatial(2, a)
                        w = T.axis.spatial(2, T.min(i, (i + 1) % 2) + b)
                        T.where(T.min(i, (i + 1) % 2) + b >= 0 and T.min(i, (i + 1) % 2) + b < 2)
                        B[v, w] = A[v, w]
""")
    verify(func)


def test_decompose_reduction_under_a_predicate_of_a_loop_without_axes() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((4,), "int32"), B: T.Buffer((1,), "int32")):
    for t in T.serial(3):
        for u in T.serial(1):
            for k in T.serial(4):
                with T.block("B"):
                    v = T.axis.reduce(4, k)
                    T.where(t + u < 2)
                    with T.init():
                        B[0] = T.int32(0)
                    B[0] = B[0] + A[v]
""")
    sch = Schedule(func)
    sch.decompose_reduction("B", sch.get_loops("B")[1])
    verify(sch.mod)
    a = np.arange(4, dtype="int32")
    b, expected = np.zeros(1, "int32"), np.zeros(1, "int32")
    run(func, a, expected)
    run(sch.mod, a, b)
    np.testing.assert_array_equal(b, expected)


def test_read_at_of_an_extent_that_is_data_under_a_guard() -> None:
    func = parse("""
@T.prim_func
def main(
    F: T.Buffer((1,), "int32"), A: T.Buffer((1, 4), "float32"), Z: T.Buffer((1, 4), "float32")
):
    for i in T.serial(1):
        for k in T.serial(T.int64(F[i])):
            with T.block("Z"):
                vi, vk = T.axis.remap("SS", [i, k])
                Z[vi, vk] = A[vi, vk] * T.float32(2)
""")
    sch = Schedule(func)
    inner = sch.split(sch.get_loops("Z")[0], [None, 3])[1]
    sch.read_at(inner, sch.get_block("Z"), 0, "local")
    verify(sch.mod)
    a = np.arange(4, dtype="float32").reshape(1, 4)
    f, z = np.array([3], "int32"), np.zeros((1, 4), "float32")
    run(sch.mod, f, a, z)
    np.testing.assert_array_equal(z, [[0, 2, 4, 0]])


def test_inlined_buffers_are_not_declared_any_more() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((4,), "float32"), Z: T.Buffer((4,), "float32")):
    B = T.alloc_buffer((4,), "float32")
    for i in T.serial(4):
        with T.block("B"):
            v = T.axis.spatial(4, i)
            B[v] = A[v] + T.float32(1)
    for i in T.serial(4):
        with T.block("Z"):
            v = T.axis.spatial(4, i)
            T.reads(A[v], B[v])
            T.writes(Z[v])
            Z[v] = A[v]
""")
    sch = Schedule(func)
    sch.compute_inline("B")
    verify(sch.mod)


@pytest.mark.parametrize("keep_unit", [False, True])
def test_blockize_makes_no_instances_outside_of_a_domain(keep_unit: bool) -> None:
    """Tiles of two of a domain of three, of which the first is all that is needed."""
    func = parse("""
@T.prim_func
def main(A: T.Buffer((3,), "float32"), Z: T.Buffer((2,), "float32")):
    B = T.alloc_buffer((3,), "float32")
    for u in T.serial(1):
        for j in T.serial(2):
            with T.block("B"):
                v = T.axis.spatial(3, j)
                B[v] = A[v] + T.float32(1)
        for i in T.serial(2):
            with T.block("Z"):
                v = T.axis.spatial(2, i)
                Z[v] = B[v] * T.float32(2)
""")
    sch = Schedule(func)
    outer = sch.blockize(sch.get_loops("B")[1], preserve_unit_iters=keep_unit)
    sch.compute_at(outer, sch.get_loops("Z")[1])
    check(sch, func)


def test_reverse_compute_at_below_a_loop_that_still_makes_its_other_input() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((4,), "float32"), Z: T.Buffer((4,), "float32")):
    B = T.alloc_buffer((4,), "float32")
    C = T.alloc_buffer((4,), "float32")
    for i in T.serial(4):
        with T.block("B"):
            v = T.axis.spatial(4, i)
            B[v] = A[v] + T.float32(1)
        for j in T.serial(1):
            with T.block("C"):
                v = T.axis.spatial(4, i + j)
                C[v] = A[v] * T.float32(2)
    for i in T.serial(4):
        with T.block("Z"):
            v = T.axis.spatial(4, i)
            Z[v] = C[v] + B[3 - v]
""")
    sch = Schedule(func)
    refuses(sch, lambda: sch.reverse_compute_at("Z", sch.get_loops("C")[1]), "later iterations")


def test_write_at_around_a_branch() -> None:
    func = parse("""
@T.prim_func
def main(F: T.Buffer((4,), "int32"), Z: T.Buffer((4,), "float32")):
    for i in T.serial(4):
        if F[i] > 0:
            with T.block("Z"):
                v = T.axis.spatial(4, i)
                Z[v] = T.float32(1)
""")
    sch = Schedule(func)
    loop = sch.get_loops("Z")[0]
    refuses(sch, lambda: sch.write_at(loop, sch.get_block("Z"), 0, "local"), "in some iterations")


def test_decompose_reduction_below_loops_that_depend_on_each_other() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((4, 3), "float32"), Z: T.Buffer((4,), "float32")):
    for i in T.serial(2):
        for j in T.serial(i + 1):
            for k in T.serial(3):
                with T.block("Z"):
                    v = T.axis.spatial(4, i * 2 + j)
                    r = T.axis.reduce(3, k)
                    with T.init():
                        Z[v] = T.float32(0)
                    Z[v] = Z[v] + A[v, r]
""")
    sch = Schedule(func)
    sch.decompose_reduction("Z", sch.get_loops("Z")[0])
    check(sch, func)


def test_reverse_compute_inline_of_a_slice_that_an_outer_block_chooses() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((4, 2), "float32"), Z: T.Buffer((4, 2), "float32")):
    for j in T.serial(2):
        with T.block("outer"):
            w = T.axis.spatial(2, j)
            B = T.alloc_buffer((4, 2), "float32")
            C = T.alloc_buffer((4,), "float32")
            for i, k in T.grid(4, 2):
                with T.block("B"):
                    v, u = T.axis.remap("SS", [i, k])
                    B[v, u] = A[v, u] + T.float32(1)
            for i in T.serial(4):
                with T.block("C"):
                    v = T.axis.spatial(4, i)
                    C[v] = B[v, w] * T.float32(2)
            for i in T.serial(4):
                with T.block("Z"):
                    v = T.axis.spatial(4, i)
                    Z[v, w] = C[v]
""")
    sch = Schedule(func)
    refuses(sch, lambda: sch.reverse_compute_inline("C"), "of a block around it")


def test_cache_write_for_a_consumer_that_reads_more() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((4,), "float32"), B: T.Buffer((8,), "float32"), Z: T.Buffer((8,), "float32")):
    for i in T.serial(4):
        with T.block("B"):
            v = T.axis.spatial(4, i)
            B[v] = A[v] + T.float32(1)
    for i in T.serial(8):
        with T.block("Z"):
            v = T.axis.spatial(8, i)
            Z[v] = B[v]
""")
    sch = Schedule(func)
    refuses(
        sch,
        lambda: sch.cache_write("B", 0, "local", consumer_blocks=["Z"]),
        "does not write, which the cache would not hold",
    )
    sch.cache_write("B", 0, "local")
    check(sch, func)


def test_a_reduction_axis_chooses_no_place() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((1,), "float32"), Z: T.Buffer((1,), "float32")):
    for k in T.serial(1):
        with T.block("Z"):
            v = T.axis.reduce(1, k)
            with T.init():
                Z[0] = T.float32(0)
            Z[0] = Z[0] + A[v]
""")
    sch = Schedule(func)
    refuses(
        sch,
        lambda: sch.reindex_cache_write("Z", 0, "global", lambda v: (v // 4, v % 4)),
        "it can't choose a place for the result",
    )
    placed = parse(func.script().replace("Z[0]", "Z[v]"))
    sch = Schedule(placed)
    refuses(sch, lambda: sch.rfactor(sch.get_loops("Z")[0], 0), "by a reduction axis")


def test_reverse_compute_at_of_a_reduction_that_windows_would_repeat() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((7,), "float32"), Z: T.Buffer((1,), "float32")):
    B = T.alloc_buffer((7,), "float32")
    for i, j in T.grid(2, 4):
        with T.block("B"):
            v = T.axis.spatial(7, i * 3 + j)
            B[v] = A[v] * T.float32(2)
    for k in T.serial(7):
        with T.block("Z"):
            v = T.axis.reduce(7, k)
            with T.init():
                Z[0] = T.float32(0)
            Z[0] = Z[0] + B[v]
""")
    sch = Schedule(func)
    refuses(
        sch, lambda: sch.reverse_compute_at("Z", sch.get_loops("B")[1]), "of its reduction more"
    )


def test_storage_align_of_memory_with_two_names() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((2, 2), "float32"), Z: T.Buffer((2, 2), "float32")):
    B = T.alloc_buffer((2, 2), "float32")
    V = T.decl_buffer((4,), "float32", data=B.data)
    for i, j in T.grid(2, 2):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + T.float32(1)
    for i in T.serial(4):
        with T.block("V"):
            vi = T.axis.spatial(4, i)
            V[vi] = V[vi] * T.float32(2)
    for i, j in T.grid(2, 2):
        with T.block("Z"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[vi, vj] = B[vi, vj] - T.float32(3)
""")
    sch = Schedule(func)
    refuses(sch, lambda: sch.storage_align("B", 0, 0, 32, 1), "names of the same memory")


def test_split_that_pads_a_matched_part() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((3, 4), "float32"), Z: T.Buffer((3, 4), "float32")):
    B = T.alloc_buffer((3, 4), "float32")
    for i in T.serial(3):
        with T.block("B"):
            v = T.axis.spatial(3, i)
            T.reads(A[v, 0:4])
            T.writes(B[v, 0:4])
            M = T.match_buffer(A[v, 0:4], (4,), "float32")
            for k in T.serial(4):
                B[v, k] = M[k]
    for i, j in T.grid(3, 4):
        with T.block("Z"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[vi, vj] = B[vi, vj]
""")
    sch = Schedule(func)
    (loop,) = sch.get_loops("B")
    refuses(sch, lambda: sch.split(loop, [None, 2], tail="pad"), "it would match a part of 'A'")


def test_parallel_of_a_nest_inside_of_an_init() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((4, 3), "float32"), Z: T.Buffer((4,), "float32")):
    for i, k in T.grid(4, 3):
        with T.block("Z"):
            v, r = T.axis.remap("SR", [i, k])
            with T.init():
                Z[v] = T.float32(0)
            Z[v] = Z[v] + A[v, r]
""")
    sch = Schedule(func)
    sch.blockize(sch.get_loops("Z")[0])
    sch.parallel(sch.get_loops("Z_init")[0])
    check(sch, func)


def test_transform_layout_of_nothing() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((2,), "float32"), Z: T.Buffer((2,), "float32")):
    B = T.alloc_buffer((0, 2), "float32")
    for k, i in T.grid(0, 2):
        with T.block("B"):
            u, v = T.axis.remap("SS", [k, i])
            B[u, v] = A[v]
    for i in T.serial(2):
        with T.block("Z"):
            v = T.axis.spatial(2, i)
            Z[v] = A[v]
""")
    sch = Schedule(func)
    sch.transform_layout("B", ("write", 0), lambda u, v: (u * 6 + v,), pad_value=1)
    check(sch, func)


def test_transform_layout_knows_extents_inside_of_their_loops_only() -> None:
    """The loops of ``B`` run for ``n >= 5`` only; ``v % n`` of ``Z`` is no ``v`` for all that."""
    func = parse("""
@T.prim_func
def main(a: T.handle, z: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    Z = T.match_buffer(z, (2,), "float32")
    B = T.alloc_buffer((n, 2), "float32")
    for i, j in T.grid(n, 2):
        with T.block("B"):
            v, w = T.axis.remap("SS", [i, j])
            B[v, w] = A[v]
    for i0, i1, j in T.grid(5, n // 5, 2):
        with T.block("C"):
            v = T.axis.spatial(n, i0 * (n // 5) + i1)
            w = T.axis.spatial(2, j)
            B[v, w] = A[v] + T.float32(1)
    for j in T.serial(2):
        with T.block("Z"):
            v = T.axis.spatial(2, j)
            Z[v] = B[v % n, v]
""")
    for n in (1, 2, 5):
        sch = Schedule(func)
        sch.transform_layout(
            "B", ("write", 0), lambda v, w: (v * 4 + w,), assume_injective_transform=True
        )
        check(sch, func, n=n)


def test_write_at_of_rows_that_grow() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((2, 2), "float32"), Z: T.Buffer((2, 2), "float32")):
    for i in T.serial(2):
        for j0, j1 in T.grid(4, 1):
            with T.block("Z"):
                v = T.axis.spatial(2, i)
                w = T.axis.spatial(i + 1, j0 + j1)
                T.where(j0 + j1 < i + 1)
                Z[v, w] = A[w, v]
""")
    sch = Schedule(func)
    loop = sch.get_loops("Z")[0]
    refuses(sch, lambda: sch.write_at(loop, "Z", 0, "global"), "leaves elements out")


def test_pad_einsum_of_a_block_with_declared_accesses() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((5, 5), "int8"), Z: T.Buffer((1,), "int32")):
    for i, j in T.grid(5, 5):
        with T.block("Z"):
            v, w = T.axis.remap("RR", [i, j])
            with T.init():
                Z[0] = T.int32(0)
            Z[0] = Z[0] + T.Cast("int32", A[v, w])
""")
    sch = Schedule(func)
    sch.annotate_buffer_access("Z", 0, "read", lambda v, w: ((0, 6), (0, 6)))
    sch.pad_einsum("Z", [1, 4])
    sch.compute_at("A_pad", sch.get_loops("Z")[0])
    check(sch, func)


def test_cache_write_stays_inside_of_the_buffer() -> None:
    """The bounds of ``v - v // 2 * 2`` are not found: the box around it begins too early."""
    func = parse("""
@T.prim_func
def main(A: T.Buffer((4,), "float32"), Z: T.Buffer((2, 2), "float32")):
    for i in T.serial(1):
        with T.block("outer"):
            u = T.axis.spatial(1, i)
            B = T.alloc_buffer((2, 2), "float32")
            for j in T.serial(4):
                with T.block("B"):
                    v = T.axis.spatial(4, j)
                    T.reads(A[v])
                    T.writes(B[v // 2, v - v // 2 * 2])
                    B[v // 2, v % 2] = A[v]
            for j, k in T.grid(2, 2):
                with T.block("Z"):
                    v, w = T.axis.remap("SS", [j, k])
                    Z[v, w] = B[v, w]
""")
    sch = Schedule(func)
    sch.cache_write("B", 0, "local")
    check(sch, func)
