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


def test_blockize_of_blocks_that_are_in_no_common_sequence() -> None:
    sch = Schedule(matmul(), seed=0)
    sch.blockize(sch.get_loops("C")[1])
    init = next(name for name in sch.state.index("main").blocks if "init" in name)
    blocks = [sch.get_block(init), sch.get_block("C")]
    refuses(sch, lambda: sch.blockize(blocks), "follow one another")


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


def test_blockize_divides_by_no_tile_that_may_be_empty() -> None:
    func = parse("""
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for i in T.serial(n):
        with T.block("B"):
            v = T.axis.spatial(n, i)
            B[v] = A[v] * T.float32(2)
""")
    sch = Schedule(func)
    _, inner = sch.split(sch.get_loops("B")[0], [5, None], tail="peel")
    refuses(sch, lambda: sch.blockize(inner), "inner part, which is not empty")


def test_reverse_compute_at_takes_no_more_than_a_condition_lets_be_made() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((30,), "float32"), C: T.Buffer((30,), "float32")):
    B = T.alloc_buffer((30,), "float32")
    for i in T.serial(30):
        with T.block("B"):
            v = T.axis.spatial(30, i)
            B[v] = A[v] * T.float32(2)
    for i in T.serial(30):
        with T.block("C"):
            v = T.axis.spatial(30, i)
            C[v] = B[v] + T.float32(1)
""")
    sch = Schedule(func)
    outer, inner = sch.split(sch.get_loops("B")[0], [3, 10])
    sch.split(inner, [3, 4])  # ten of twelve iterations run
    refuses(sch, lambda: sch.reverse_compute_at("C", outer), "leaves out iterations")


def test_transform_block_layout_asks_for_its_guard_before_it_reads() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((4,), "float32"), F: T.Buffer((4,), "int32"), Z: T.Buffer((4,), "float32")):
    for i in T.serial(4):
        with T.block("Z"):
            v = T.axis.spatial(4, i)
            T.where(F[i] > 0)
            Z[v] = A[v] + T.float32(2)
""")
    sch = Schedule(func)
    sch.transform_block_layout("Z", lambda v: (v // 3, v % 3))
    assert "T.where(ax0 * 3 + ax1 < 4 and F" in sch.mod.script()
    check(sch, func)


def test_no_copies_go_into_an_init() -> None:
    sch = Schedule(
        parse("""
@T.prim_func
def main(A: T.Buffer((2,), "float32"), B: T.Buffer((2,), "float32"), Z: T.Buffer((2,), "float32")):
    for i, k in T.grid(2, 3):
        with T.block("Z"):
            v, r = T.axis.remap("SR", [i, k])
            with T.init():
                Z[v] = A[v]
            Z[v] = Z[v] + B[v]
""")
    )
    sch.blockize([sch.get_block("Z")])
    refuses(
        sch,
        lambda: sch.reindex_cache_read("Z_init", 0, "local", lambda: ()),
        "in the init of block 'Z_o'",
    )


def test_what_is_used_through_a_pointer_to_an_element_is_not_inlined() -> None:
    sch = Schedule(
        parse("""
@T.prim_func
def main(A: T.Buffer((4,), "int32"), Z: T.Buffer((4,), "int32")):
    B = T.alloc_buffer((4,), "int32")
    for i in range(4):
        with T.block("B"):
            v = T.axis.spatial(4, i)
            B[v] = A[v] * 2
    with T.block("Z"):
        T.reads(B[0:4])
        T.writes(Z[0:4])
        T.evaluate(
            T.call_extern(
                "copy4", T.address_of(B[0], dtype="handle"), T.address_of(Z[0], dtype="handle"),
                dtype="int32",
            )
        )
""")
    )
    refuses(sch, lambda: sch.compute_inline("B"), "B is used through its pointer")


@pytest.mark.parametrize("size", [1, 6])
def test_copies_declare_the_data_that_say_what_is_copied(size: int) -> None:
    func = parse(f"""
@T.prim_func
def main(
    A: T.Buffer(({size},), "float32"), F: T.Buffer(({size},), "int32"),
    Z: T.Buffer(({size},), "float32"),
):
    G = T.alloc_buffer(({size},), "int32")
    for i in range({size}):
        with T.block("G"):
            vi = T.axis.spatial({size}, i)
            G[vi] = F[vi] // 2
    for i in range({size}):
        with T.block("Z"):
            vi = T.axis.spatial({size}, i)
            Z[vi] = A[T.min(T.max(T.Cast("int64", G[vi]), T.int64(0)), {size - 1})]
""")
    for step in (
        lambda sch: sch.reindex("Z", ("read", "A")),
        lambda sch: sch.reindex_cache_read("Z", "A", "local", lambda i: (i // 2, i % 2)),
    ):
        sch = Schedule(func)
        copy = sch.get(step(sch))
        assert [region.buffer.name for region in copy.reads] == ["A", "G"]
        check(sch, func)
