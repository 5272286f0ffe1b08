"""Counts of operations, of bytes moved and of bytes allocated."""

from __future__ import annotations

import pytest

from tilewright import te
from tilewright.ir import as_int
from tilewright.script import parse
from tilewright.support.errors import VerifyError
from tilewright.tir import PrimFunc
from tilewright.tir.analysis import (
    allocated_memory,
    buffer_bytes,
    calculate_allocated_bytes,
    count_flops,
    detect_accesses,
    estimate_block_traffic,
    estimate_flops,
    estimate_traffic,
)
from tilewright.tir.schedule import Schedule


def matmul(n: object, m: object, k: object) -> PrimFunc:
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    axis = te.reduce_axis((0, k), "k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="C")
    return te.create_prim_func([a, b, c])


def conv(size: int = 56, channels: int = 64) -> PrimFunc:
    data = te.placeholder((size, size, channels), name="data")
    weight = te.placeholder((3, 3, channels, channels), name="weight")
    pad = te.compute(
        (size + 2, size + 2, channels),
        lambda h, w, c: te.if_then_else(
            te.all(h >= 1, h < size + 1, w >= 1, w < size + 1), data[h - 1, w - 1, c], 0.0
        ),
        name="pad",
    )
    rh, rw = te.reduce_axis((0, 3), "rh"), te.reduce_axis((0, 3), "rw")
    rc = te.reduce_axis((0, channels), "rc")
    out = te.compute(
        (size, size, channels),
        lambda h, w, f: te.sum(pad[h + rh, w + rw, rc] * weight[rh, rw, rc, f], axis=[rh, rw, rc]),
        name="out",
    )
    return te.create_prim_func([data, weight, out])


def shown(func: PrimFunc, block: str) -> dict[str, tuple[str, str, str]]:
    """Reads, writes and footprint of each buffer of a block, in elements."""
    return {
        buffer.name: (repr(item.reads), repr(item.writes), repr(item.footprint))
        for buffer, item in estimate_block_traffic(func)[block].items()
    }


# ---- traffic ------------------------------------------------------------------------------------


def test_matmul():
    n, m, k = 8, 12, 20
    traffic = {b.name: item for b, item in estimate_traffic(matmul(n, m, k)).items()}
    assert traffic["A"].reads.number == n * m * k
    assert traffic["A"].footprint.number == n * k
    assert traffic["A"].read_bytes.number == 4 * n * m * k
    assert traffic["B"].footprint_bytes.number == 4 * m * k
    assert traffic["C"].writes.number == n * m * k + n * m
    assert traffic["C"].reads.number == n * m * k
    assert traffic["C"].write_footprint.number == n * m
    assert all(item.footprint.exact for item in traffic.values())


def test_symbolic_matmul():
    func = matmul(te.var("n"), te.var("m"), 64)
    traffic = {b.name: item for b, item in estimate_traffic(func).items()}
    assert repr(traffic["A"].footprint) == "(n * 64)"
    assert repr(traffic["A"].reads) == "((n * m) * 64)"
    assert repr(traffic["C"].footprint_bytes) == "((n * m) * 4)"
    assert repr(traffic["C"].writes) == "((n * m) * 65)"
    assert repr(count_flops(func)) == "((n * m) * 128)"


def test_windows_and_padding_of_a_convolution_are_exact():
    size = 56
    inner = size * size * 64 * 9 * 64
    assert shown(conv(size), "pad") == {
        "data": (f"{size * size * 64}", "0", f"{size * size * 64}"),
        "pad": ("0", f"{58 * 58 * 64}", f"{58 * 58 * 64}"),
    }
    found = shown(conv(size), "out")
    assert found["pad"] == (f"{inner}", "0", f"{58 * 58 * 64}")
    assert found["weight"] == (f"{inner}", "0", f"{9 * 64 * 64}")
    assert found["out"][2] == f"{size * size * 64}"
    assert count_flops(conv(size)).number == estimate_flops(conv(size)) == 2 * inner


@pytest.mark.parametrize("factor", [4, 7])
def test_tiles_change_no_count(factor: int):
    func = matmul(20, 12, 33)
    sch = Schedule(func)
    i, j, k = sch.get_loops("C")
    sch.split(i, [None, factor])
    sch.split(k, [None, factor])
    sch.fuse(j, sch.get_loops("C")[3])
    for before, after in zip(
        estimate_traffic(func).values(), estimate_traffic(sch.mod["main"]).values()
    ):
        assert repr(before.reads) == repr(after.reads)
        assert repr(before.writes) == repr(after.writes)
        assert repr(before.footprint) == repr(after.footprint)
    assert count_flops(sch.mod["main"]).number == count_flops(func).number == 2 * 20 * 12 * 33


def test_symbolic_tail():
    func = matmul(te.var("n"), 8, 16)
    sch = Schedule(func)
    sch.split(sch.get_loops("C")[0], [None, 32])
    traffic = {b.name: item for b, item in estimate_traffic(sch.mod["main"]).items()}
    assert repr(traffic["A"].reads) == "(n * 128)"
    assert repr(traffic["C"].footprint) == "(n * 8)"


def test_what_one_iteration_of_a_loop_touches():
    sch = Schedule(matmul(32, 32, 32))
    i, _j, _k = sch.get_loops("C")
    sch.split(i, [None, 8])
    _, inner, _, _ = sch.get_loops("C")
    traffic = {
        b.name: item.footprint.number for b, item in estimate_traffic(sch.get(inner)).items()
    }
    assert traffic == {"A": 8 * 32, "B": 32 * 32, "C": 8 * 32}


def test_strides_and_gaps():
    a = te.placeholder((64,), name="A")
    b = te.compute((16,), lambda i: a[i * 4] + a[i * 4 + 1], name="B")
    func = te.create_prim_func([a, b])
    traffic = {item.name: count for item, count in estimate_traffic(func).items()}
    assert repr(traffic["A"].footprint) == "32"


def test_gathers_are_bounded():
    index = te.placeholder((100,), name="I", dtype="int64")
    a = te.placeholder((10, 4), name="A")
    b = te.compute((100, 4), lambda i, j: a[index[i], j], name="B")
    traffic = {
        item.name: count
        for item, count in estimate_traffic(te.create_prim_func([a, index, b])).items()
    }
    assert repr(traffic["A"].reads) == "400"
    assert repr(traffic["A"].footprint) == "<= 40"
    assert repr(traffic["I"].footprint) == "100"


def test_packed_types_take_parts_of_bytes():
    a = te.placeholder((3, 5), name="A", dtype="int4")
    b = te.compute((3, 5), lambda i, j: a[i, j], name="B")
    traffic = estimate_traffic(te.create_prim_func([a, b]))
    assert [as_int(item.footprint_bytes.value) for item in traffic.values()] == [8, 8]


def test_while_loops_are_bounded_below_nothing():
    func = parse(
        """
@T.prim_func
def main(A: T.Buffer((8,), "int32")):
    with T.block("x"):
        T.reads(A[0:8])
        T.writes(A[0:8])
        while A[0] < 5:
            A[0] = A[0] + 1
"""
    )
    (traffic,) = estimate_traffic(func).values()
    assert not traffic.reads.exact
    assert not count_flops(func).exact


def test_accesses_tell_their_loops_and_conditions():
    reads = [item for item in detect_accesses(conv(8, 4)) if item.buffer.name == "data"]
    (access,) = reads
    assert [loop.loop_var.name for loop in access.loops] == ["h", "w", "c"]
    assert len(access.conditions) == 1
    assert access.block.name == "pad"
    stores = [item for item in detect_accesses(conv(8, 4)) if item.is_write and item.in_init]
    assert [item.buffer.name for item in stores] == ["out"]
    assert len(stores[0].conditions) == 3


# ---- memory -------------------------------------------------------------------------------------


def test_memory_that_lives_at_the_same_time():
    func = parse(
        """
@T.prim_func
def main(A: T.Buffer((16,), "float32")):
    X = T.alloc_buffer((16,), "float32")
    for i in range(16):
        with T.block("first"):
            vi = T.axis.spatial(16, i)
            T.reads(A[vi])
            T.writes(A[vi])
            L = T.alloc_buffer((100,), "int8", scope="local")
            L[0] = T.int8(1)
            A[vi] = X[vi]
    for i in range(16):
        with T.block("second"):
            vi = T.axis.spatial(16, i)
            T.reads(A[vi])
            T.writes(A[vi])
            M = T.alloc_buffer((30,), "int32", scope="local")
            with T.block("inner"):
                T.reads()
                T.writes()
                N = T.alloc_buffer((5,), "int32", scope="local")
                M[0] = N[0]
"""
    )
    found = {scope: as_int(size) for scope, size in allocated_memory(func).items()}
    assert found == {"global": 64, "local": 140}
    assert calculate_allocated_bytes(func) == {"main": {"global": 64, "local": 140}}


def test_symbolic_memory():
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((n, m), lambda i, j: b[i, j] * 2.0, name="C")
    d = te.compute((n,), lambda i: c[i, 0], name="D")
    func = te.create_prim_func([a, d])
    assert {k: repr(v) for k, v in allocated_memory(func).items()} == {"global": "((n * m) * 8)"}
    with pytest.raises(VerifyError, match="use allocated_memory for symbolic sizes"):
        calculate_allocated_bytes(func)


def test_memory_of_symbolic_branches_is_the_greater():
    func = parse(
        """
@T.prim_func
def main(a: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    with T.block("small"):
        T.reads()
        T.writes(A[0])
        X = T.alloc_buffer((n,), "float32")
        A[0] = X[0]
    with T.block("large"):
        T.reads()
        T.writes(A[0])
        Y = T.alloc_buffer((n + 4,), "float32")
        A[0] = Y[0]
    with T.block("other"):
        T.reads()
        T.writes(A[0])
        Z = T.alloc_buffer((100,), "float32")
        A[0] = Z[0]
"""
    )
    assert {k: repr(v) for k, v in allocated_memory(func).items()} == {
        "global": "max(((n * 4) + 16), 400)"
    }


def test_sizes_that_depend_on_a_loop_count_at_their_greatest():
    func = parse(
        """
@T.prim_func
def main(A: T.Buffer((16,), "float32")):
    for i in range(16):
        with T.block("x"):
            vi = T.axis.spatial(16, i)
            T.reads()
            T.writes(A[vi])
            X = T.alloc_buffer((vi + 1,), "float32")
            A[vi] = X[vi]
"""
    )
    assert calculate_allocated_bytes(func) == {"main": {"global": 64}}


def test_bytes_of_strided_buffers():
    func = parse(
        """
@T.prim_func
def main(a: T.handle):
    A = T.match_buffer(a, (4, 8), "float32", strides=(16, 1))
    A[0, 0] = T.float32(0)
"""
    )
    assert as_int(buffer_bytes(func.buffers[0])) == 4 * (3 * 16 + 8)
