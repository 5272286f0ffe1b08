from __future__ import annotations

import pytest
from schedule_cases import chain, check, conv2d, loop_extents, matmul, matmul_relu, refuses

from tilewright import te
from tilewright.script import parse
from tilewright.tir.schedule import Schedule


def test_cache_read_of_a_parameter() -> None:
    func = matmul()
    sch = Schedule(func)
    copy = sch.cache_read(sch.get_block("C"), 0, "shared")
    assert copy.name == "A_shared"
    (buffer,) = sch.get(sch.get_block("root")).alloc_buffers
    assert (buffer.name, buffer.scope) == ("A_shared", "shared")
    assert loop_extents(sch, copy) == [12, 10]
    i, _j, _k = sch.get_loops(sch.get_block("C"))
    i0, _i1 = sch.split(i, [None, 4])
    sch.compute_at(copy, i0)
    assert loop_extents(sch, copy) == [3, 4, 10]
    check(sch, func)


def test_cache_read_copies_only_what_is_read() -> None:
    a = te.placeholder((16, 16), name="A")
    b = te.compute((8, 4), lambda i, j: a[i + 2, j * 2] + a[i + 3, j * 2], name="B")
    func = te.create_prim_func([a, b])
    sch = Schedule(func)
    copy = sch.cache_read(sch.get_block("B"), 0, "local")
    assert loop_extents(sch, copy) == [9, 7]
    check(sch, func)


def test_cache_read_for_some_consumers() -> None:
    a = te.placeholder((16,), name="A")
    b = te.compute((16,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((16,), lambda i: a[i] + b[i], name="C")
    func = te.create_prim_func([a, b, c])
    for chosen, expected in ((["C"], ["A"]), ([], ["A_local"])):
        sch = Schedule(func)
        handles = [sch.get_block(name) for name in chosen]
        sch.cache_read(sch.get_block("C"), 0, "local", handles)
        reads = sch.get(sch.get_block("B")).reads
        assert [region.buffer.name for region in reads] == expected
        check(sch, func)


def test_cache_read_between_a_nested_producer_and_its_consumer() -> None:
    func = chain()
    sch = Schedule(func)
    c, d = sch.get_block("C"), sch.get_block("D")
    i, _ = sch.get_loops(d)
    i0, _ = sch.split(i, [None, 4])
    sch.compute_at(c, i0)
    copy = sch.cache_read(d, 0, "local")
    assert loop_extents(sch, copy) == [4, 4, 12]
    check(sch, func)


def test_cache_write_goes_behind_the_writer() -> None:
    func = matmul_relu()
    sch = Schedule(func)
    copy = sch.cache_write(sch.get_block("C"), 0, "local")
    names = [item.name for item in sch.get_child_blocks(sch.get_block("root"))]
    assert names == ["C", "C_local", "D"]
    assert copy.name == "C_local"
    check(sch, func)


def test_cache_write_redirects_consumers() -> None:
    func = matmul_relu()
    sch = Schedule(func)
    d = sch.get_block("D")
    sch.cache_write(sch.get_block("C"), 0, "local", [d])
    assert sch.get(d).reads[0].buffer.name == "C_local"
    check(sch, func)


def test_cache_write_inside_a_nest() -> None:
    func = conv2d()
    sch = Schedule(func)
    h, *_ = sch.get_loops(sch.get_block("conv"))
    h0, _ = sch.split(h, [None, 4])
    sch.compute_at(sch.get_block("pad"), h0)
    copy = sch.cache_write(sch.get_block("pad"), 0, "local")
    assert loop_extents(sch, copy) == [2, 6, 10, 3]
    check(sch, func)


def test_names_stay_distinct() -> None:
    func = matmul()
    sch = Schedule(func)
    first = sch.cache_read(sch.get_block("C"), 0, "local")
    second = sch.cache_read(sch.get_block("C"), 0, "local")
    assert first.name != second.name
    check(sch, func)


def test_symbolic_shapes() -> None:
    n = te.var("n")
    a = te.placeholder((n, n), name="A")
    b = te.compute((n, n), lambda i, j: a[j, i] * 2.0, name="B")
    func = te.create_prim_func([a, b])
    sch = Schedule(func)
    sch.cache_read(sch.get_block("B"), 0, "local")
    sch.cache_write(sch.get_block("B"), 0, "local")
    check(sch, func, n=5)


def test_what_caches_refuse() -> None:
    func = matmul()
    sch = Schedule(func)
    c = sch.get_block("C")
    refuses(sch, lambda: sch.cache_read(c, 2, "local"), "reads 2 buffers", "0: A")
    refuses(sch, lambda: sch.cache_read(c, 0, "local", [sch.get_block("root")]), "doesn't read")
    sch.decompose_reduction(c, sch.get_loops(c)[2])
    refuses(sch, lambda: sch.cache_write(c, 0, "local"), "not the only writer", "C_init")


def test_partial_writes_with_holes_are_not_cached() -> None:
    func = parse(
        """
from tilewright.script import tir as T

@T.prim_func
def main(A: T.Buffer((8,), "float32"), C: T.Buffer((16,), "float32")):
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi * 2] = A[vi]
"""
    )
    sch = Schedule(func)
    refuses(sch, lambda: sch.cache_write(sch.get_block("C"), 0, "local"), "holes")


def test_reindex_lays_out_by_axes() -> None:
    a = te.placeholder((6, 8), name="A")
    b = te.compute((8, 6), lambda i, j: a[j, i] * 2.0, name="B")
    func = te.create_prim_func([a, b])
    for which in (("read", 0), ("write", 0), "A"):
        sch = Schedule(func)
        copy = sch.reindex(sch.get_block("B"), which)
        assert loop_extents(sch, copy) == [8, 6]
        check(sch, func)


def test_reindex_of_a_convolution_input_is_im2col() -> None:
    func = conv2d(size=4, channels=2, filters=2)
    sch = Schedule(func)
    copy = sch.reindex(sch.get_block("conv"), ("read", 0))
    assert loop_extents(sch, copy) == [4, 4, 3, 3, 2]
    check(sch, func)
    sch = Schedule(func)
    sch.reindex(sch.get_block("conv"), ("write", 0))
    check(sch, func)


def test_reindex_of_joined_rows_of_any_size() -> None:
    h, w = te.var("h"), te.var("w")
    a = te.placeholder((8, h, w), name="A")
    b = te.compute((h * w, 8), lambda i, j: a[j, i // w, i % w] * 2.0, name="B")
    func = te.create_prim_func([a, b])
    sch = Schedule(func)
    assert sch.get(sch.reindex("B", ("read", 0))).name == "A_reindex"
    narrow = te.compute((h * w, 8), lambda i, j: a[j, i // w, i % (w + 1)] * 2.0, name="B")
    sch = Schedule(te.create_prim_func([a, narrow]))
    refuses(sch, lambda: sch.reindex("B", ("read", 0)), "may be outside")


def test_reindex_does_not_read_out_of_bounds() -> None:
    sch = Schedule(conv2d())
    refuses(sch, lambda: sch.reindex(sch.get_block("pad"), ("read", 0)), "may be outside")


def test_wrong_consumers_are_named() -> None:
    sch = Schedule(matmul())
    c = sch.get_block("C")
    refuses(sch, lambda: sch.cache_read(c, 0, "local", [3]), "consumer_blocks", "int 3")


def test_cache_write_inside_a_block_copies_what_an_instance_writes() -> None:
    func = chain()
    sch = Schedule(func)
    _, j = sch.get_loops(sch.get_block("B"))
    sch.blockize(j)
    sch.fuse(*sch.get_loops(sch.get_block("B")))
    first = sch.cache_write(sch.get_block("B"), 0, "global")
    check(sch, func)
    sch.fuse(*sch.get_loops(first))
    copy = sch.cache_write(first, 0, "global")
    assert loop_extents(sch, copy) == [12]
    check(sch, func)


PARTS = """
@T.prim_func
def main(A: T.Buffer((16,)), C: T.Buffer((16,)), D: T.Buffer((16,))):
    for i in range(10):
        with T.block("C"):
            vi = T.axis.spatial(10, i)
            C[vi + 3] = A[vi]
    for i in range(13):
        with T.block("D"):
            vi = T.axis.spatial(13, i)
            D[vi] = C[vi] + T.float32(1)
"""


@pytest.mark.parametrize("tile", [1, 3, 4, 10, 12])
def test_cache_write_leaves_alone_what_is_not_written(tile: int) -> None:
    func = parse(PARTS)
    sch = Schedule(func)
    first = sch.cache_write("C", 0, "global")
    # The copy runs a part of its domain only; so must a copy of the copy.
    second = sch.cache_write(first, 0, "global")
    check(sch, func)
    i0, _ = sch.split(sch.get_loops("C")[0], [None, tile])
    sch.reverse_compute_at(first, i0)
    check(sch, func)
    sch.cache_read("D", 0, "global")
    check(sch, func)
    assert second.name in sch.mod.script()


@pytest.mark.parametrize("tile", [3, 4, 7])
def test_cache_write_in_a_loop_with_a_remainder(tile: int) -> None:
    func = parse(
        f"""
@T.prim_func
def main(A: T.Buffer((16,)), C: T.Buffer((16,)), D: T.Buffer((16,))):
    for i0 in range({-(-10 // tile)}):
        for i1 in range({tile}):
            with T.block("C"):
                vi = T.axis.spatial(10, i0 * {tile} + i1)
                T.where(i0 * {tile} + i1 < 10)
                C[vi + 3] = A[vi]
        for i1 in range({tile}):
            with T.block("D"):
                vi = T.axis.spatial(10, i0 * {tile} + i1)
                T.where(i0 * {tile} + i1 < 10)
                D[vi] = C[vi + 3] + T.float32(1)
"""
    )
    sch = Schedule(func)
    copy = sch.cache_write("C", 0, "global")
    assert loop_extents(sch, copy)[0] == -(-10 // tile)
    check(sch, func)


def test_cache_write_with_holes_in_a_loop_is_refused() -> None:
    func = parse(
        """
@T.prim_func
def main(A: T.Buffer((16,)), D: T.Buffer((16,))):
    C = T.alloc_buffer((16,))
    for i in range(4):
        for j in range(4):
            with T.block("C"):
                vi = T.axis.spatial(16, j * 4 + i)
                C[vi] = A[vi]
        for j in range(4):
            with T.block("D"):
                vi = T.axis.spatial(16, j * 4 + i)
                D[vi] = C[vi] + T.float32(1)
"""
    )
    sch = Schedule(func)
    # Compacted to one iteration's part, the copy would overwrite what others have made.
    refuses(sch, lambda: sch.cache_write("C", 0, "global"), "holes")


def test_blocks_that_run_a_part_of_their_domain() -> None:
    func = parse(
        """
@T.prim_func
def main(A: T.Buffer((16,)), D: T.Buffer((16,))):
    C = T.alloc_buffer((16,))
    for i in range(16):
        with T.block("C"):
            vi = T.axis.spatial(16, i)
            C[vi] = A[vi] * T.float32(2)
    for i in range(8):
        with T.block("D"):
            vi = T.axis.spatial(16, i + 4)
            D[vi] = C[vi] + T.float32(1)
"""
    )
    sch = Schedule(func)
    loop = sch.get_loops("C")[0]
    refuses(sch, lambda: sch.reverse_compute_at("D", loop), "don't run all of its domain")
    refuses(sch, lambda: sch.reverse_compute_inline("D"), "don't run all of its domain")
    refuses(sch, lambda: sch.reindex("D", ("write", 0)), "don't run all of its domain")
    copy = sch.cache_write("D", 0, "global")
    assert loop_extents(sch, copy) == [8]
    sch.compute_at("C", sch.get_loops("D")[0])
    check(sch, func)


def test_cache_inplace_of_an_update() -> None:
    func = matmul()
    sch = Schedule(func)
    i, j, k = sch.get_loops("C")
    i0, i1 = sch.split(i, [None, 5])
    sch.reorder(i0, j, i1, k)
    sch.decompose_reduction("C", k)
    enter, leave = sch.cache_inplace("C_update", 0, "global")
    names = [item.name for item in sch.get_child_blocks(sch.get_block("root"))]
    assert names == ["C_init", enter.name, "C_update", leave.name]
    check(sch, func)


def test_cache_inplace_keeps_what_is_not_updated() -> None:
    func = parse(
        """
@T.prim_func
def main(A: T.Buffer((16,)), B: T.Buffer((4,))):
    for i in range(5):
        with T.block("A"):
            vi = T.axis.spatial(5, i)
            A[vi * 3 + 1] = A[vi * 3] + A[vi * 3 + 1]
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = A[vi]
"""
    )
    sch = Schedule(func)
    enter, leave = sch.cache_inplace("A", 0, "global")
    assert loop_extents(sch, enter) == loop_extents(sch, leave) == [14]
    check(sch, func)


def test_a_block_that_hides_what_it_reads_gets_no_copy() -> None:
    sch = Schedule(
        parse("""
@T.prim_func
def main(A: T.Buffer((6,), "float32"), Z: T.Buffer((6,), "float32")):
    B = T.alloc_buffer((6,), "float32")
    for i in range(6):
        with T.block("B"):
            v = T.axis.spatial(6, i)
            B[v] = A[v] + T.float32(1)
    for i in range(4):
        with T.block("Z"):
            v = T.axis.spatial(4, i)
            Z[v] = A[v] + B[v]
""")
    )
    sch.unsafe_hide_buffer_access("B", "read", [0])
    both = sch.blockize([sch.get_block("B"), sch.get_block("Z")])
    refuses(sch, lambda: sch.cache_read(both, 0, "global"), "'B' hides that it uses A")
