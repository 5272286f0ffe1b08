"""Tiles moved at loops, rolling buffers, tables of indices, caches by maps: on random programs.

Each accepted schedule is compared with the unscheduled program by the interpreter, and compiled.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_cases import check, compiled_agrees, refuses

from tilewright import te
from tilewright.ir import expr_equal
from tilewright.script import parse
from tilewright.support.errors import ScheduleError
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule


def windows(
    rows: int, cols: int, size: tuple[int, int], stride: tuple[int, int], pad: int, reduce: bool
) -> PrimFunc:
    """``C[i, j] = sum of a window of B``, B computed from A, with a border of zeros if padded."""
    height = (rows - 1) * stride[0] + size[0]
    width = (cols - 1) * stride[1] + size[1]
    a = te.placeholder((height, width), name="A")
    if reduce:
        axis = te.reduce_axis((0, 2), "t")
        b = te.compute((height, width), lambda i, j: te.sum(a[i, j] + axis, axis=axis), name="B")
    elif pad:
        b = te.compute(
            (height, width),
            lambda i, j: te.if_then_else(
                te.all(i >= pad, i < height - pad, j >= pad), a[i - pad, j - pad], 0.0
            ),
            name="B",
        )
    else:
        b = te.compute((height, width), lambda i, j: a[i, j] * 2.0, name="B")
    r, s = te.reduce_axis((0, size[0]), "r"), te.reduce_axis((0, size[1]), "s")
    c = te.compute(
        (rows, cols),
        lambda i, j: te.sum(b[i * stride[0] + r, j * stride[1] + s], axis=[r, s]),
        name="C",
    )
    return te.create_prim_func([a, c])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_rolling_buffers_are_exact(data: Any) -> None:
    draw = data.draw
    size = (draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    stride = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    rows, cols = draw(st.integers(1, 7)), draw(st.integers(1, 7))
    func = windows(rows, cols, size, stride, draw(st.integers(0, 1)), draw(st.booleans()))
    sch = Schedule(func)
    i, j, *_ = sch.get_loops("C")
    loops = [i, j]
    for loop in (i, j):
        if draw(st.booleans()):
            position = loops.index(loop)
            factor = draw(st.integers(1, 4))
            loops[position : position + 1] = sch.split(loop, [None, factor])
    if draw(st.booleans()):
        order = draw(st.permutations(loops))
        sch.reorder(*order)
        loops = list(order)
    sch.compute_at("B", draw(st.sampled_from(loops)))
    plain = sch.mod
    try:
        sch.rolling_buffer("B", 0)
    except ScheduleError as error:
        assert sch.mod is plain
        assert "overlap" in str(error), error
        return
    check(sch, func)
    if draw(st.booleans()):
        compiled_agrees(sch, func)


def test_rolling_buffer_computes_only_what_is_new() -> None:
    func = windows(8, 6, (3, 3), (1, 1), 0, False)
    sch = Schedule(func)
    sch.compute_at("B", sch.get_loops("C")[1])
    sch.rolling_buffer("B", 0)
    (buffer,) = sch.get(sch.get_block("root")).alloc_buffers
    assert [extent.value for extent in buffer.shape] == [3, 8]
    realize = sch.state.get_block(sch.get_block("B"))
    count = 0
    loops = [loop.loop_var for loop in sch.state.loops_above(realize)]
    for values in np.ndindex(8, 6, 3, 3):
        count += _holds(realize.predicate, dict(zip(loops, values)))
    assert count == 10 * 8  # Each element once, though windows overlap in both directions.
    check(sch, func)
    compiled_agrees(sch, func)


def _holds(predicate: Any, values: dict[Any, int]) -> bool:
    from tilewright.arith import simplify
    from tilewright.ir import as_int, const, substitute

    known = as_int(simplify(substitute(predicate, {k: const(v) for k, v in values.items()})))
    assert known is not None
    return bool(known)


def test_a_rolling_buffer_keeps_its_order() -> None:
    func = windows(8, 6, (3, 3), (1, 1), 0, False)
    sch = Schedule(func)
    i = sch.get_loops("C")[0]
    sch.compute_at("B", i)
    sch.rolling_buffer("B", 0)
    before = sch.mod
    with pytest.raises(ScheduleError):
        sch.parallel(i)
    for move in (
        lambda: sch.compute_at("B", sch.get_loops("C")[1]),
        lambda: sch.reverse_compute_at("C", sch.get_loops("B")[0]),
        lambda: sch.compute_inline("B"),
    ):
        with pytest.raises(ScheduleError):
            move()
    assert sch.mod is before


def product(n: Any, m: int, k: int) -> PrimFunc:
    a = te.placeholder((n, k), name="A")
    b = te.placeholder((k, m), name="B")
    axis = te.reduce_axis((0, k), "k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="C")
    return te.create_prim_func([a, b, c])


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_tiles_moved_at_loops(data: Any) -> None:
    draw = data.draw
    n, m, k = (draw(st.integers(1, 9)) for _ in range(3))
    symbolic = draw(st.booleans())
    func = product(te.var("n") if symbolic else n, m, k)
    sch = Schedule(func)
    loops = sch.get_loops("C")
    made = []
    for loop in loops:
        made += sch.split(loop, [None, draw(st.integers(1, 4))]) if draw(st.booleans()) else [loop]
    if draw(st.booleans()):
        made = list(draw(st.permutations(made)))
        sch.reorder(*made)
    for _ in range(draw(st.integers(1, 3))):
        before = sch.mod
        loop = draw(st.sampled_from(made))
        try:
            if draw(st.booleans()):
                sch.read_at(loop, "C", draw(st.integers(0, 1)), "global")
            else:
                sch.write_at(loop, "C", 0, "global")
        except ScheduleError:
            assert sch.mod is before
    check(sch, func, n=n)
    if draw(st.booleans()):
        compiled_agrees(sch, func, n=n)


MAPS = [
    "lambda i, j, k: (k, i)",
    "lambda i, j, k: (i // 2, k, i % 2)",
    "lambda i, j, k: (i * 7 + k,)",
    "lambda i, j, k: (j, i, k)",
    "lambda i, j, k: (i + k,)",
    "lambda i, j, k: (j, i)",
    "lambda i, j, k: (j // 4, i, j % 4)",
    "lambda i, j, k: (j * 2, i + 1)",
    "lambda i, j, k: (k // 3, i % 4, i // 4, k % 3)",
]


@pytest.mark.parametrize("mapping", MAPS)
@pytest.mark.parametrize("shape", [(4, 8, 6), (5, 7, 7), ("n", 4, 7)])
def test_caches_by_a_map(mapping: str, shape: tuple[Any, int, int]) -> None:
    sizes = {} if isinstance(shape[0], int) else {"n": 5}
    func = product(te.var("n") if sizes else shape[0], *shape[1:])
    for name, number in (
        ("reindex_cache_read", 0),
        ("reindex_cache_read", 1),
        ("reindex_cache_write", 0),
    ):
        sch = Schedule(func)
        before = sch.mod
        try:
            getattr(sch, name)("C", number, "global", mapping)
        except ScheduleError as error:
            assert sch.mod is before
            assert name in str(error)
            continue
        check(sch, func, **sizes)
        compiled_agrees(sch, func, **sizes)


def test_some_maps_are_accepted() -> None:
    func = product(4, 8, 6)
    for name, number, mapping in (
        ("reindex_cache_read", 0, MAPS[0]),
        ("reindex_cache_read", 0, MAPS[1]),
        ("reindex_cache_read", 0, MAPS[2]),
        ("reindex_cache_read", 1, MAPS[3]),
        ("reindex_cache_read", 0, MAPS[8]),
        ("reindex_cache_write", 0, MAPS[5]),
        ("reindex_cache_write", 0, MAPS[6]),
        ("reindex_cache_write", 0, MAPS[7]),
    ):
        sch = Schedule(func)
        getattr(sch, name)("C", number, "global", mapping)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_cached_indices(data: Any) -> None:
    draw = data.draw
    n, m = draw(st.integers(1, 8)), draw(st.integers(1, 8))
    a, b, c, d = (draw(st.integers(1, 5)) for _ in range(4))
    x = te.placeholder((64,), name="X")
    y = te.compute(
        (n, m),
        lambda i, j: (
            x[(i * a + j * b) % 60] + x[(i * a + j * b) % 60 + i // c] * x[i // c + (j % d)]
        ),
        name="Y",
    )
    func = te.create_prim_func([x, y])
    sch = Schedule(func)
    loads = sch.get(sch.get_block("Y")).reads
    made = sch.cache_index("Y", "global", draw(st.integers(0, 2)))
    reads = sch.get(sch.get_block("Y")).reads
    assert len(reads) == len(loads) + len(made)
    assert expr_equal(reads[0].region[0].min, loads[0].region[0].min)
    check(sch, func)
    compiled_agrees(sch, func)


LATE = [
    lambda sch: sch.reindex("B", ("write", 0)),
    lambda sch: sch.reindex("B", ("read", 0)),
    lambda sch: sch.reindex_cache_write("B", 0, "global", lambda v: (v,)),
    lambda sch: sch.reindex_cache_read("B", 0, "global", lambda v: (v,)),
]


def starts_late(axis: str, bound: str) -> PrimFunc:
    return parse(f"""
@T.prim_func
def main(A: T.Buffer((24,), "float32"), B: T.Buffer((24,), "float32")):
    for i, j in T.grid(6, 4):
        with T.block("B"):
            v = T.axis.spatial({axis})
            T.where({bound})
            B[v] = A[v] + T.float32(1)
""")


@pytest.mark.parametrize("step", LATE)
@pytest.mark.parametrize("axis", ["24, i * 4 + j", "8, i * 4 + j"])
def test_a_block_that_starts_late_leaves_what_is_before(step: Any, axis: str) -> None:
    sch = Schedule(starts_late(axis, "i * 4 + j >= 7"))
    refuses(sch, lambda: step(sch), "restricts it beyond its domain")


@pytest.mark.parametrize("step", LATE)
@pytest.mark.parametrize("extent, bound", [(17, "v >= 7"), (14, "T.And(v >= 7, v < 21)")])
def test_a_block_that_starts_late_may_be_whole(step: Any, extent: int, bound: str) -> None:
    func = starts_late(f"{extent}, i * 4 + j - 7", bound.replace("v", "i * 4 + j"))
    sch = Schedule(func)
    step(sch)
    check(sch, func)
    compiled_agrees(sch, func)
