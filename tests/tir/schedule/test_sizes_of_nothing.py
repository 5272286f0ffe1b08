"""Sizes that are 0: what reductions over nothing begin with, and what copies leave alone."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright.script import parse
from tilewright.support.errors import ScheduleError
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Schedule


def test_two_empty_loops_begin_what_they_reduce_whatever_else_they_drive() -> None:
    func = parse("""
@T.prim_func
def main(a: T.handle, Z: T.Buffer((2,), "float32")):
    n = T.int64()
    A = T.match_buffer(a, (n, n), "float32")
    B = T.alloc_buffer((n, n, 2), "float32")
    for i, j, k in T.grid(n, n, 2):
        with T.block("B"):
            u, v, w = T.axis.remap("SSS", [i, j, k])
            B[u, v, w] = A[u, v] + T.float32(1)
    for k, i, j in T.grid(2, n, n):
        with T.block("Z"):
            w, u, v = T.axis.remap("SRR", [k, i, j])
            with T.init():
                Z[w] = T.float32(5)
            Z[w] = Z[w] + B[u, v, w]
""")
    sch = Schedule(func)
    sch.reverse_compute_at("Z", sch.get_loops("B")[2])
    assert len(sch.get_loops("Z")) == 3
    for size in (0, 1, 3):
        a, z = np.ones((size, size), "float32"), np.zeros(2, "float32")
        for made in (sch.mod["main"], func):
            tilewright.compile(made)(a, z)
            np.testing.assert_array_equal(z, 5 + 2 * size * size)
            run(made, a, z)
            np.testing.assert_array_equal(z, 5 + 2 * size * size)


def test_no_threads_begin_no_reduction() -> None:
    """An empty loop over a reduction stands for its init; no thread does."""
    func = parse("""
@T.prim_func
def main(A: T.Buffer((1, 1), "float32"), Z: T.Buffer((1,), "float32")):
    B = T.alloc_buffer((1, 1), "float32")
    for i, k in T.grid(1, 0):
        with T.block("B"):
            vi, vk = T.axis.remap("SS", [i, k])
            B[vi, vk] = A[vi, vk]
    for i, k in T.grid(1, 0):
        with T.block("Z"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                Z[vi] = T.float32(5)
            Z[vi] = T.max(Z[vi], B[vi, vk])
""")
    sch = Schedule(func)
    loop = sch.get_loops("B")[1]
    sch.bind(loop, "threadIdx.x")
    with pytest.raises(ScheduleError, match="the init of block 'Z' would not run then"):
        sch.reverse_compute_at("Z", loop)


def test_a_reduction_over_nothing_begins_in_whatever_order_it_runs() -> None:
    func = parse("""
@T.prim_func
def main(a: T.handle, Z: T.Buffer((1,), "float32")):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    for k in range(n):
        with T.block("Z"):
            r = T.axis.reduce(n, n - 1 - k)
            with T.init():
                Z[0] = T.float32(5)
            Z[0] = T.max(Z[0], A[r])
""")
    sch = Schedule(func)
    sch.cache_write("Z", 0, "local")
    for made in (func, sch.mod["main"]):
        z = np.zeros(1, "float32")
        run(made, np.zeros(0, "float32"), z)
        assert z == 5
        z[:] = 0
        tilewright.compile(made)(np.zeros(0, "float32"), z)
        assert z == 5


def test_memory_of_a_negative_extent_is_none() -> None:
    func = parse("""
@T.prim_func
def main(a: T.handle, Z: T.Buffer((1,), "float32")):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.alloc_buffer((n - 2,), "float32")
    for i in range(n - 2):
        with T.block("B"):
            v = T.axis.spatial(n - 2, i)
            B[v] = A[v + 2]
    for i in range(n - 2):
        with T.block("Z"):
            r = T.axis.reduce(n - 2, i)
            with T.init():
                Z[0] = T.float32(5)
            Z[0] = Z[0] + B[r]
""")
    for size in (0, 1, 2, 4):
        for call in (tilewright.compile(func), lambda *args: run(func, *args)):
            z = np.zeros(1, "float32")
            call(np.ones(size, "float32"), z)
            assert z == 5 + max(size - 2, 0)


def test_what_a_loop_around_tells_is_not_known_to_an_init_of_nothing() -> None:
    func = parse("""
@T.prim_func
def main(a: T.handle, z: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    Z = T.match_buffer(z, (n,), "float32")
    for k, i in T.grid(n, n):
        with T.block("Z"):
            r, v = T.axis.remap("RS", [k, i])
            with T.init():
                Z[v] = T.float32(5)
            Z[v] = Z[v] + A[r]
""")
    for step in ("loop_partition", "split"):
        sch = Schedule(func)
        inner = sch.get_loops("Z")[1]
        if step == "split":
            sch.split(inner, [None, 2], tail="peel")
            run(sch.mod["main"], np.zeros(0, "float32"), np.zeros(0, "float32"))
            continue
        with pytest.raises(ScheduleError, match="which is not known to be"):
            sch.loop_partition(inner, [1])


def test_a_copy_takes_nothing_out_of_a_buffer_that_may_be_empty() -> None:
    func = parse("""
@T.prim_func
def main(a: T.handle, b: T.handle, Z: T.Buffer((1,), "float32")):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for k in range(n):
        with T.block("Z"):
            r = T.axis.reduce(n, k)
            with T.init():
                Z[0] = T.float32(5)
            Z[0] = Z[0] + A[r] * B[n - 1]
""")
    sch = Schedule(func)
    sch.cache_read("Z", 1, "local")
    for size in (0, 1, 3):
        z, ones = np.zeros(1, "float32"), np.ones(size, "float32")
        run(sch.mod["main"], ones, ones, z)
        assert z == 5 + size
    with pytest.raises(ScheduleError, match="may be outside of B"):
        Schedule(func).reindex_cache_read("Z", 1, "local", lambda i: ())


def test_what_holds_in_empty_loops_takes_no_init_away() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((2, 2), "int32"), Z: T.Buffer((2,), "int32")):
    for i in range(2):
        for k in range(i):
            with T.block("Z"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    Z[vi] = T.int32(7)
                Z[vi] = Z[vi] + A[vi, vk]
""")
    sch = Schedule(func)
    sch.split(sch.get_loops("Z")[1], [3, None, 4])
    sch.loop_partition(sch.get_loops("Z")[0], [1])
    sch.fuse(*sch.get_loops("Z_i0")[2:])
    a, z = np.ones((2, 2), "int32"), np.zeros(2, "int32")
    for made in (func, sch.mod["main"]):
        for call in (tilewright.compile(made), lambda *args, made=made: run(made, *args)):
            z[:] = 0
            call(a, z)
            assert z.tolist() == [7, 8]


def test_a_copy_out_comes_only_where_something_was_written() -> None:
    func = parse("""
@T.prim_func
def main(a: T.handle, Z: T.Buffer((1,), "float32")):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    for k in range(n):
        with T.block("Z"):
            r = T.axis.reduce(n, k)
            Z[0] = A[r]
""")
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match="leaves Z as it is then"):
        sch.cache_write("Z", 0, "local")


def test_a_map_of_a_reduction_over_nothing_keeps_its_init() -> None:
    func = parse("""
@T.prim_func
def main(a: T.handle, Z: T.Buffer((2,), "float32")):
    n = T.int64()
    A = T.match_buffer(a, (2, n), "float32")
    for k, i in T.grid(n - n, 2):
        with T.block("Z"):
            r, v = T.axis.remap("RS", [k, i])
            with T.init():
                Z[v] = T.float32(5)
            Z[v] = Z[v] + A[v, r]
""")
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match="the map would lose that"):
        sch.transform_block_layout("Z", lambda r, v: (r, v + 1))
