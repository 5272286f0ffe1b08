"""Dependencies among blocks and their flags, by srefs."""

from __future__ import annotations

import pytest

from tilewright.script import parse
from tilewright.support.errors import ScheduleError
from tilewright.tir.schedule import BlockScope, CachedFlags, DepKind, Schedule

STAGES = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    B = T.alloc_buffer((8,), "float32")
    for i in range({extent}):
        with T.block("B"):
            v = T.axis.spatial(8, i)
            B[v] = A[v]
    for i in range(8):
        with T.block("C"):
            v = T.axis.spatial(8, i)
            C[v] = B[v]
    for i in range(8):
        with T.block("D"):
            v = T.axis.spatial(8, {last})
            C[v] = A[v]
"""


def schedule(extent: int = 8, last: str = "i") -> Schedule:
    return Schedule(parse(STAGES.format(extent=extent, last=last)))


def test_dependencies_by_source_and_target():
    sch = schedule()
    b, c, d = (sch.get_sref(sch.get_block(name)) for name in "BCD")
    scope = sch.state.get_block_scope(sch.get_sref(sch.get_block("root")))
    assert [(e.dst, e.kind) for e in scope.get_deps_by_src(b)] == [(c, DepKind.RAW)]
    assert [(e.src, e.kind) for e in scope.get_deps_by_dst(d)] == [(c, DepKind.WAW)]
    assert scope.get_deps_by_dst(b) == [] and BlockScope().get_deps_by_src(b) == []


def test_flags():
    sch = schedule()
    flags = {n: sch.state.get_cached_flags(sch.get_sref(sch.get_block(n))) for n in "BCD"}
    assert flags["C"] == CachedFlags(True, True, True)
    root = sch.get_sref(sch.get_block("root"))
    assert not sch.state.get_cached_flags(root).stage_pipeline  # C is written twice
    partial = schedule(extent=4)
    assert not partial.state.get_cached_flags(partial.get_sref(partial.get_block("C"))).region_cover
    bent = schedule(last="i * i % 8")
    assert not bent.state.get_cached_flags(bent.get_sref(bent.get_block("D"))).affine_binding


def test_srefs_of_older_programs_are_refused():
    sch = schedule()
    old = sch.get_sref(sch.get_block("C"))
    with pytest.raises(ScheduleError, match="is a loop"):
        sch.state.get_block_scope(sch.get_sref(sch.get_loops("C")[0]))
    sch.annotate(sch.get_block("C"), "note", 1)
    with pytest.raises(ScheduleError, match="not part of the program"):
        sch.state.get_cached_flags(old)
