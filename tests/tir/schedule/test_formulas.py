"""Values of a schedule are calculated with, and the trace follows other decisions."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright import te, tir
from tilewright.support.errors import ScheduleError


def schedule() -> tir.Schedule:
    a = te.placeholder((64, 24), name="A")
    made = te.compute((64, 24), lambda i, j: a[i, j] + 1.0, name="C")
    return tir.Schedule(te.create_prim_func([a, made]))


def extents(sch: tir.Schedule) -> list[int]:
    return [int(sch.get(loop).extent) for loop in sch.get_loops("C")]


def test_products_of_factors() -> None:
    sch = schedule()
    i, j = sch.get_loops("C")
    a, b, c = sch.sample_perfect_tile(i, 3, decision=[4, 8, 2])
    outer, _inner = sch.split(i, [a * b, c])
    assert extents(sch) == [32, 2, 24]
    sch.split(j, [None, (a + 2) // 2 * 2 - c % 2])
    assert extents(sch) == [32, 2, 4, 6] and sch.get(a * b) == 32 and int(a - 1) == 3
    sch.annotate(outer, "mine", b * 2)
    assert sch.get(outer).annotations["mine"] == 16

    again = schedule()
    assert sch.trace is not None
    sch.trace.apply_to_schedule(again, remove_postproc=False)
    assert extents(again) == extents(sch)
    other = schedule()
    text = str(sch.trace).replace("[4, 8, 2]", "[2, 8, 4]")
    assert text != str(sch.trace)
    scope: dict[str, Any] = {}
    exec(text, scope)
    scope["apply_trace"](other)
    assert extents(other) == [16, 4, 6, 4]


def test_what_is_no_value() -> None:
    sch = schedule()
    i, _ = sch.get_loops("C")
    a = sch.sample_categorical([2], [1.0])
    with pytest.raises(TypeError, match="calculated with integers"):
        a * 1.5
    assert sch.trace is not None
    before = len(sch.trace.insts)
    with pytest.raises(ScheduleError):
        sch.split(i, [a * 2, a])
    assert len(sch.trace.insts) == before
