"""What the fuzzer found wrong about copies, layouts and storage, made small."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from schedule_cases import check, refuses

from tilewright.ir import assert_structural_equal
from tilewright.script import parse
from tilewright.tir.analysis import verify
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Schedule


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


@pytest.mark.parametrize(("width", "rolls"), [(3, False), (4, True)])
def test_rolling_buffer_wants_whole_rows(width: int, rolls: bool) -> None:
    """An iteration that makes ``[2i, 2i + 3)`` of a matrix of two columns ends within a row."""
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((6, 2), "float32"), C: T.Buffer((2,), "float32")):
    B = T.alloc_buffer((6, 2), "float32")
    for i in T.serial(4):
        for j in T.serial({width}):
            with T.block("B"):
                v = T.axis.spatial(12, i * 2 + j)
                B[v // 2, v % 2] = A[v // 2, v % 2] * T.float32(2)
        with T.block("C"):
            k = T.axis.reduce(4, i)
            with T.init():
                C[0] = T.float32(0)
            C[0] = C[0] + B[k, 0] + B[k + 1, 0]
""")
    sch = Schedule(func)
    if rolls:
        sch.rolling_buffer("B", 0)
        check(sch, func)
    else:
        refuses(sch, lambda: sch.rolling_buffer("B", 0), "its indices share an axis")


@pytest.mark.parametrize("copies", ["write_at", "cache_write"])
def test_copies_end_where_the_writer_does_though_nobody_knows_how_far_that_is(copies: str) -> None:
    """Of sizes that are odd the last element is never written; it isn't known that one is left."""
    func = parse("""
@T.prim_func
def main(a: T.handle, z: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (1, n), "float32")
    Z = T.match_buffer(z, (1, n), "float32")
    for i, j in T.grid(1, n // 2 * 2 - 1):
        with T.block("Z"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[vi, vj + 1] = A[vi, vj] * T.float32(2)
""")
    sch = Schedule(func)
    rows, columns = sch.get_loops("Z")
    sch.split(columns, [4, None])
    if copies == "write_at":
        sch.write_at(rows, "Z", 0, "global")
    else:
        sch.cache_write("Z", 0, "global")
    for n in range(8):
        arrays = [np.arange(n, dtype="float32").reshape(1, n) + 1, np.full((1, n), 7, "float32")]
        expected, found = [x.copy() for x in arrays], [x.copy() for x in arrays]
        run(func, *expected)
        run(sch.mod, *found)
        np.testing.assert_array_equal(found[1], expected[1])


def test_reindex_refuses_what_a_block_inside_takes_a_view_of() -> None:
    sch = schedule("""
@T.prim_func
def main(A: T.Buffer((1,), "float32"), Z: T.Buffer((1,), "float32")):
    B = T.alloc_buffer((1,), "float32")
    with T.block("outer"):
        T.reads(A[0])
        T.writes(B[0], Z[0])
        for i in T.serial(1):
            with T.block("B"):
                B[0] = A[0] * T.float32(2)
        with T.block("Z"):
            T.reads(B[0:1])
            T.writes(Z[0:1])
            s = T.int64()
            o = T.int64()
            M = T.match_buffer(B[0:1], (1,), "float32", strides=(s,), elem_offset=o)
            for k in T.serial(1):
                Z[k] = M[k] + T.float32(1)
""")
    refuses(sch, lambda: sch.reindex("outer", ("write", 0)), "through a view of a part of it, M")


def test_copies_stay_inside_where_a_declared_region_does_not() -> None:
    """A block of a nest declares no less than what is written: it may reach out of the buffer."""
    func = parse("""
@T.prim_func
def main(a: T.handle, z: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (2, n), "float32")
    Z = T.match_buffer(z, (n,), "float32")
    for k, i in T.grid(2, n):
        with T.block("Z"):
            vk, vi = T.axis.remap("RS", [k, i])
            with T.init():
                Z[vi] = T.float32(0)
            Z[vi] = Z[vi] + A[vk, vi]
""")
    sch = Schedule(func, symbolic=True)
    tiles = sch.sample_tile(sch.get_loops("Z")[0], 2, 0)
    _, inner = sch.split(sch.get_loops("Z")[0], tiles)
    sch.cache_write("Z", 0, "global")
    sch.blockize(inner)
    sch.split(sch.get_loops("Z_init")[0], [3, None])
    sch.transform_layout("Z", ("write", 0), lambda i: (i % 4, i // 4))
    sch.cache_write("Z_o", 0, "global")
    variables = sch.state.symbolic[0].variables
    opened = sch.mod["main"].replace(params=(*func.params, *variables))
    for n, factors in itertools.product(range(1, 8), ([2, 1], [1, 2])):
        arrays = [np.arange(2.0 * n, dtype="float32").reshape(2, n), np.full(n, 7, "float32")]
        run(opened, *arrays, *factors)
        np.testing.assert_array_equal(arrays[1], arrays[0].sum(axis=0))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ("Z[v] = T.if_then_else(v >= 1, A[T.int64(G[v - 1]) % 7], T.float32(0))",),
            "may be outside of G",
        ),
        (("G[v] = G[v] // 2", "Z[v] = A[T.int64(G[v]) % 7]"), "writes G, which says"),
    ],
)
def test_reindex_reads_what_says_where_as_the_block_does(
    lines: tuple[str, ...], message: str
) -> None:
    """The copy has neither the block's conditions nor what the block writes before it reads."""
    body = "\n            ".join(lines)
    text = f"""
@T.prim_func
def main(A: T.Buffer((7,)), G: T.Buffer((8,), "int32"), Z: T.Buffer((8,))):
    for i in T.serial(8):
        with T.block("Z"):
            v = T.axis.spatial(8, i)
            {body}
"""
    sch = schedule(text)
    refuses(sch, lambda: sch.reindex("Z", "A"), message)
    refuses(sch, lambda: sch.reindex_cache_read("Z", "A", "local", lambda i: (i,)), message)


def test_reindex_of_what_two_neighbours_say_declares_both() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((7,)), G: T.Buffer((9,), "int32"), Z: T.Buffer((8,))):
    for i in T.serial(8):
        with T.block("Z"):
            v = T.axis.spatial(8, i)
            Z[v] = A[(T.int64(G[v + 1]) + T.int64(G[v])) % 7]
""")
    sch = Schedule(func)
    copy = sch.get(sch.reindex("Z", "A"))
    assert [region.buffer.name for region in copy.reads] == ["A", "G"]
    check(sch, func)
