"""Estimates of how much code a schedule becomes: what multiplies it and what doesn't."""

from __future__ import annotations

from tilewright import driver, te
from tilewright.codegen.llvm.emit import emit_module
from tilewright.ir import IRModule, if_then_else
from tilewright.meta_schedule.schedule_rule.patterns import operations
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.analysis import estimate_code_size
from tilewright.tir.schedule import Schedule

TARGET = Target("llvm -mcpu=znver4 -mtriple=x86_64-unknown-linux-gnu -num-cores=1")


def scaled(*shape: int) -> PrimFunc:
    a = te.placeholder(shape, name="A")
    return te.create_prim_func([a, te.compute(shape, lambda *i: a[i] * 2.0, name="B")])


def size(sch: Schedule | PrimFunc) -> int:
    return estimate_code_size(sch.mod if isinstance(sch, Schedule) else sch, 512)


def product(n: int) -> PrimFunc:
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return te.create_prim_func([a, b, c])


def test_loops_count_once_unless_unrolled() -> None:
    assert size(scaled(8, 8)) == size(scaled(64, 640)) == 3  # a load, a product, a store
    sch = Schedule(scaled(8, 8))
    i, j = sch.get_loops(sch.get_block("B"))
    sch.unroll(j)
    assert size(sch) == 8 * 3
    sch.unroll(i)
    assert size(sch) == 64 * 3


def test_nests_that_lowering_leaves_rolled_count_once() -> None:
    sch = Schedule(scaled(64, 64))
    for loop in sch.get_loops(sch.get_block("B")):
        sch.unroll(loop)
    assert size(sch) == 64 * 3


def test_vectors_count_by_their_registers() -> None:
    sch = Schedule(scaled(4, 64))
    sch.vectorize(sch.get_loops(sch.get_block("B"))[1])
    assert size(sch) == 3 * 4  # four registers of 16 lanes
    assert estimate_code_size(sch.mod, 128) == 3 * 16


def test_lanes_that_lie_apart_count_one_by_one() -> None:
    a = te.placeholder((16, 8), name="A")
    func = te.create_prim_func([a, te.compute((8, 16), lambda i, j: a[j, i] + 1.0, name="B")])
    sch = Schedule(func)
    sch.vectorize(sch.get_loops(sch.get_block("B"))[1])
    assert size(sch) == 2 * 16 + 1 + 1


def test_register_tiles_are_unrolled_while_their_copies_are_few() -> None:
    def tiled(rows: int) -> Schedule:
        sch = Schedule(product(64))
        block = sch.get_block("C")
        local = sch.cache_write(block, 0, "local")
        i, j, k = sch.get_loops(block)
        i0, i1 = sch.split(i, [None, rows])
        j0, j1 = sch.split(j, [None, 16])
        sch.reorder(i0, j0, k, i1, j1)
        sch.reverse_compute_at(local, j0)
        sch.vectorize(j1)
        sch.vectorize(sch.get_loops(local)[-1])
        return sch

    # Of each row: the sum's load, two operands, product, sum and store; its init; its write-back.
    assert size(tiled(4)) == 4 * size(tiled(1))
    assert size(tiled(64)) == 64 * size(tiled(1))  # 64 registers: 4096 bytes
    sch = tiled(64)
    k = sch.get_loops(sch.get_block("C"))[2]
    sch.unroll(sch.split(k, [None, 8])[1])
    assert 8 * 64 * 5 < size(sch) < 8 * 64 * 8


def test_choices_by_unrolled_variables_count_once() -> None:
    a = te.placeholder((4, 16), name="A")
    b = te.compute(
        (4, 16), lambda i, j: if_then_else(i < 2, a[i, j] * 3.0, a[i, j] + 1.0), name="B"
    )
    sch = Schedule(te.create_prim_func([a, b]))
    i, j = sch.get_loops(sch.get_block("B"))
    sch.vectorize(j)
    both = size(sch)
    sch.unroll(i)
    assert both > 3 and size(sch) == 4 * 3


def test_parts_of_a_panel_lie_side_by_side() -> None:
    a = te.placeholder((4, 4, 16), name="A")
    b = te.compute((4, 64), lambda i, j: a[j // 16, i, j % 16] + 1.0, name="B")
    sch = Schedule(te.create_prim_func([a, b]))
    sch.vectorize(sch.get_loops(sch.get_block("B"))[1])
    assert size(sch) == 3 * 4


def test_the_estimate_is_near_the_code() -> None:
    sch = Schedule(product(64))
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    sch.reorder(i, k, j)
    sch.vectorize(sch.split(j, [None, 16])[1])
    i1 = sch.split(i, [None, 8])[1]
    k1 = sch.split(k, [None, 16])[1]
    for loop in (i1, k1):
        sch.unroll(loop)
    lines = emit_module(driver.lower(sch.mod, TARGET), TARGET).text.count("\n")
    assert lines / 6 < size(sch) < 6 * lines


def test_operations_are_those_on_data() -> None:
    a = te.placeholder((8, 8), name="A")
    b = te.compute((8, 4), lambda i, j: a[i, j * 2 + 1] * 2.0 + a[i, j], name="B")
    sch = Schedule(te.create_prim_func([a, b]))
    assert operations(sch.get(sch.get_block("B"))) == 2


def test_a_module_is_all_its_functions() -> None:
    assert estimate_code_size(IRModule({"f": scaled(4), "g": scaled(4)})) == 2 * size(scaled(4))
