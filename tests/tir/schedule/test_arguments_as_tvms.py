"""Methods of schedules take TVM's arguments at their places."""

from __future__ import annotations

from tilewright import te, tir
from tilewright.tir.schedule import Schedule


def copies() -> Schedule:
    x = te.placeholder((16, 16), name="x")
    y = te.compute((16, 16), lambda i, j: x[i, j] + 1.0, name="y")
    z = te.compute((16, 16), lambda i, j: y[i, j] * 2.0, name="z")
    return Schedule(te.create_prim_func([x, z]), seed=1)


def test_blocks_are_found_by_both_names() -> None:
    sch = copies()
    block = sch.get_sblock("y", "main")
    assert sch.get(block) is sch.get(rand_var_or_sref=sch.get_block(name="y", func_name="main"))
    assert sch.get(sch.get_sref(rand_var_or_stmt=block)) is sch.get(block)
    assert any("get_block" in line for line in str(sch.trace).splitlines())


def test_options_of_splits_and_decisions_have_places() -> None:
    sch = copies()
    i, j = sch.get_loops("z")
    outer, _ = sch.split(i, [None, 4], True, False)
    assert len(sch.loop_partition(j, [8, None], True)) == 2
    tiles = sch.sample_perfect_tile(sch.get_loops("y")[0], 2, 16, [4, 4])
    assert [sch.get(tile) for tile in tiles] == [4, 4]
    parts = sch.sample_partitioned_tile(sch.get_loops("y")[1], 2, 1, 2, [4, 4])
    assert [sch.get(part) for part in parts] == [4, 4]
    assert sch.get(sch.sample_categorical([3, 5], [0.5, 0.5], 1)) == 5
    where = sch.sample_compute_location(sch.get_block("y"), -1)
    sch.remove_rv(rand_var=where)
    assert isinstance(sch.get(outer), tir.For)
    again = copies()
    assert sch.trace is not None
    sch.trace.apply_to_schedule(again, remove_postproc=False)
    assert again.mod.script() == sch.mod.script()
