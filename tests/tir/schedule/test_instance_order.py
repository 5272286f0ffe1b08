"""Reductions whose updates don't commute: what changes their order is refused, all else is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from schedule_cases import check, compiled_agrees, refuses

from tilewright import te
from tilewright.script import parse
from tilewright.support.errors import ScheduleError
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule
from tilewright.tir.tensor_intrin import TensorIntrin

HORNER = "B[v] = B[v] * T.float32(3) + A[v, r, s]"
PAIR = "B[v] = B[v] + A[v, r, s]\n            C[v] = C[v] + B[v]"


def polynomial(update: str = HORNER, init: bool = True) -> PrimFunc:
    start = (
        "with T.init():\n                B[v] = T.float32(1)\n                C[v] = T.float32(1)"
    )
    return parse(f"""
@T.prim_func
def main(
    A: T.Buffer((4, 6, 3), "float32"), B: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")
):
    for i, k, l in T.grid(4, 6, 3):
        with T.block("B"):
            v, r, s = T.axis.remap("SRR", [i, k, l])
            {start if init else "T.evaluate(0)"}
            {update}
""")


CHANGED: dict[str, Callable[[Schedule], object]] = {
    "reorder": lambda s: s.reorder(*_loops(s, 2, 1)),
    "split and reorder": lambda s: s.reorder(*s.split(_loops(s, 1)[0], [None, 2])[::-1]),
    "fuse, split and reorder": lambda s: s.reorder(
        *s.split(s.fuse(*_loops(s, 1, 2)), [None, 6])[::-1]
    ),
    "reorder to the outside": lambda s: s.reorder(*_loops(s, 2, 0)),
    "transform_block_layout": lambda s: s.transform_block_layout("B", lambda i, k, l: (i, l, k)),
    "a layout of parts": lambda s: s.transform_block_layout(
        "B", lambda i, k, l: (i, k % 2, k // 2, l)
    ),
    "a fused layout": lambda s: s.transform_block_layout("B", lambda i, k, l: (i, l * 6 + k)),
}


def _loops(sch: Schedule, *places: int) -> list:
    loops = sch.get_loops("B")
    return [loops[place] for place in places]


@pytest.mark.parametrize("update", [HORNER, PAIR])
@pytest.mark.parametrize("init", [True, False])
@pytest.mark.parametrize("how", CHANGED)
def test_another_order_is_refused(how: str, init: bool, update: str) -> None:
    sch = Schedule(polynomial(update, init))
    with pytest.raises(ScheduleError, match="don't commute"):
        CHANGED[how](sch)


KEPT: dict[str, Callable[[Schedule], object]] = {
    "the spatial loop inside": lambda s: s.reorder(*_loops(s, 1, 2, 0)),
    "the spatial loop between": lambda s: s.reorder(*_loops(s, 1, 0)),
    "split": lambda s: s.split(_loops(s, 1)[0], [None, 4]),
    "split and spatial inside": lambda s: s.reorder(
        *s.split(_loops(s, 1)[0], [None, 4]), _loops(s, 0)[0]
    ),
    "fuse": lambda s: s.fuse(*_loops(s, 1, 2)),
    "spatial tiles inside": lambda s: s.reorder(_loops(s, 1)[0], *s.split(_loops(s, 0)[0], [2, 2])),
    "vectorize": lambda s: s.vectorize(_loops(s, 0)[0]),
    "parallel": lambda s: s.parallel(_loops(s, 0)[0]),
    "unroll": lambda s: s.unroll(_loops(s, 1)[0]),
    "loop_partition": lambda s: s.loop_partition(_loops(s, 1)[0], [2, None]),
    "decompose_reduction": lambda s: s.decompose_reduction("B", _loops(s, 1)[0]),
    "reorder_block_iter_var": lambda s: s.reorder_block_iter_var("B", [2, 0, 1]),
    "a layout of parts": lambda s: s.transform_block_layout(
        "B", lambda i, k, l: (i // 2, i % 2, k // 2, k % 2, l)
    ),
    "a fused layout": lambda s: s.transform_block_layout("B", lambda i, k, l: (k * 3 + l, i)),
    "blockize": lambda s: s.blockize(_loops(s, 1)[0]),
}


@pytest.mark.parametrize("update", [HORNER, PAIR])
@pytest.mark.parametrize("how", KEPT)
def test_what_keeps_the_order_is_done(how: str, update: str) -> None:
    func = polynomial(update)
    sch = Schedule(func)
    KEPT[how](sch)
    check(sch, func)
    compiled_agrees(sch, func)


@pytest.mark.parametrize("thread", [True, False])
def test_reductions_in_any_order_only_are_shared(thread: bool) -> None:
    sch = Schedule(polynomial())
    loop = sch.get_loops("B")[1]
    share = (lambda: sch.bind(loop, "threadIdx.x")) if thread else (lambda: sch.parallel(loop))
    refuses(sch, share, "registered reducer" if thread else "reduce iteration variable")
    refuses(sch, lambda: sch.rfactor(loop), "known reducer")


def test_blocks_of_updates_keep_their_order() -> None:
    func = polynomial()
    sch = Schedule(func)
    loops = sch.get_loops("B")
    _, inner = sch.split(loops[1], [3, 2])
    sch.blockize(inner)
    check(sch, func)
    (block,) = [rv for rv in sch.get_child_blocks("root") if "init" not in rv.name]
    i, k = sch.get_loops(block)[:2]
    sch.reorder(k, i)
    check(sch, func)
    first, second = sch.split(k, [None, 2])
    refuses(sch, lambda: sch.reorder(second, first), "don't commute")


MOVED = """
@T.prim_func
def main(A: T.Buffer((4, 6, 3), "float32"), C: T.Buffer((4,), "float32")):
    B = T.alloc_buffer((4,), "float32")
    for i, {outer}, {inner} in T.grid(4, {sizes}):
        with T.block("B"):
            v, r, s = T.axis.remap("SRR", [i, k, l])
            with T.init():
                B[v] = T.float32(1)
            B[v] = B[v] * T.float32(3) + A[v, r, s]
    for i in range(4):
        with T.block("C"):
            v = T.axis.spatial(4, i)
            C[v] = B[v] + T.float32(1)
"""


def test_compute_at_runs_the_axes_in_order() -> None:
    func = parse(MOVED.format(outer="k", inner="l", sizes="6, 3"))
    sch = Schedule(func)
    sch.split(sch.get_loops("B")[1], [None, 4])
    sch.compute_at("B", sch.get_loops("C")[0])
    check(sch, func)
    other = Schedule(parse(MOVED.format(outer="l", inner="k", sizes="3, 6")))
    loop = other.get_loops("C")[0]
    refuses(other, lambda: other.compute_at("B", loop), "don't commute")


CONSUMER = """
@T.prim_func
def main(A: T.Buffer((4, 6), "float32"), C: T.Buffer((4,), "float32")):
    B = T.alloc_buffer((4, 6), "float32")
    for {outer}, {inner} in T.grid({sizes}):
        with T.block("B"):
            v, w = T.axis.remap("SS", [i, j])
            B[v, w] = A[v, w] + T.float32(1)
    for i, j in T.grid(4, 6):
        with T.block("C"):
            v, r = T.axis.remap("SR", [i, j])
            with T.init():
                C[v] = T.float32(1)
            C[v] = C[v] * T.float32(3) + B[v, r]
"""


def test_reverse_compute_at_takes_whole_reductions() -> None:
    func = parse(CONSUMER.format(outer="i", inner="j", sizes="4, 6"))
    sch = Schedule(func)
    sch.reverse_compute_at("C", sch.get_loops("B")[0])
    check(sch, func)
    sch = Schedule(func)
    first, _ = sch.split(sch.get_loops("B")[1], [3, 2])
    refuses(sch, lambda: sch.reverse_compute_at("C", first), "don't commute", "each do a part")


def test_scans_and_writes_that_overlap_stay() -> None:
    func = parse("""
@T.prim_func
def main(
    A: T.Buffer((8, 4), "float32"), B: T.Buffer((9, 4), "float32"), C: T.Buffer((4,), "float32")
):
    for i, j in T.grid(8, 4):
        with T.block("B"):
            v, w = T.axis.remap("SS", [i, j])
            B[v + 1, w] = B[v, w] + A[v, w]
    for i, j in T.grid(8, 4):
        with T.block("C"):
            v, w = T.axis.remap("SS", [i, j])
            C[w] = C[w] * T.float32(3) + A[v, w]
""")
    for name in ("B", "C"):
        sch = Schedule(func)
        i, j = sch.get_loops(name)
        refuses(sch, lambda: sch.reorder(j, i), "neither complete nor a reduction")  # noqa: B023


def test_a_custom_reduction_of_te_must_commute() -> None:
    def build(combine: Callable) -> Schedule:
        reduce = te.comm_reducer(combine, lambda t: te.const(0, t), name="own")
        data = te.placeholder((4, 6, 3), name="A")
        k, l = te.reduce_axis((0, 6), "k"), te.reduce_axis((0, 3), "l")
        out = te.compute((4,), lambda i: reduce(data[i, k, l], axis=[k, l]), name="B")
        return Schedule(te.create_prim_func([data, out]))

    sch = build(lambda x, y: x * 3 + y)
    refuses(sch, lambda: sch.reorder(*_loops(sch, 2, 1)), "don't commute", "register_reducer")
    sch = build(lambda x, y: y + x)
    func = sch.mod["main"]
    sch.reorder(*_loops(sch, 2, 1))
    check(sch, func)


def test_tensorize_keeps_the_order() -> None:
    name = "test_horner_2x3"
    if name not in TensorIntrin.names():
        desc = parse("""
@T.prim_func
def main(A: T.Buffer((2, 3), "float32"), C: T.Buffer((1,), "float32")):
    with T.block("root"):
        T.reads(A[0:2, 0:3], C[0:1])
        T.writes(C[0:1])
        for a, b in T.grid(2, 3):
            with T.block("update"):
                va, vb = T.axis.remap("RR", [a, b])
                C[0] = C[0] * T.float32(3) + A[va, vb]
""")
        TensorIntrin.register(name, desc, desc)
    text = """
@T.prim_func
def main(A: T.Buffer((4, 2, 3), "float32"), C: T.Buffer((4,), "float32")):
    for i, {loops} in T.grid(4, {sizes}):
        with T.block("C"):
            v, r, s = T.axis.remap("SRR", [i, k, l])
            C[v] = C[v] * T.float32(3) + A[v, r, s]
"""
    func = parse(text.format(loops="k, l", sizes="2, 3"))
    sch = Schedule(func)
    sch.tensorize(sch.get_loops("C")[1], name)
    check(sch, func)
    sch = Schedule(parse(text.format(loops="l, k", sizes="3, 2")))
    refuses(sch, lambda: sch.tensorize(sch.get_loops("C")[1], name), "order matters")
