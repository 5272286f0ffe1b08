"""Primitives that say how a loop runs: parallel, vectorize, unroll, bind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir import is_const
from tilewright.tir import PARALLEL, SERIAL, THREAD_BINDING, UNROLLED, VECTORIZED, For
from tilewright.tir.schedule.handles import LoopRV
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.schedule.legality import check_simultaneous
from tilewright.tir.schedule.state import statements

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule

THREAD_TAGS = (
    *(f"{group}.{axis}" for group in ("blockIdx", "threadIdx", "vthread") for axis in "xyz"),
    "vthread",
)


def _mark(sch: Schedule, loop: For, kind: str, thread: str | None = None) -> None:
    if loop.kind not in (SERIAL, kind):
        raise sch.error(
            f"loop {loop.loop_var.name!r} is {loop.kind} already"
            + (f" (on {loop.thread})" if loop.thread else ""),
            loop,
            remedy="a loop has one kind; choose another loop, or split this one first",
        )
    made = For(loop.loop_var, loop.min, loop.extent, kind, loop.body, thread, loop.annotations)
    sch.state.replace(loop, made)


@primitive
def parallel(sch: Schedule, loop: LoopRV) -> None:
    """Run the iterations of a loop on the threads of a pool.

    After:
        for i in T.parallel(1024): ...
    """
    target = sch.state.get_loop(loop)
    check_simultaneous(sch, target, "running it in parallel")
    _mark(sch, target, PARALLEL)


@primitive
def vectorize(sch: Schedule, loop: LoopRV) -> None:
    """Run the iterations of a loop as lanes of vector instructions.

    After:
        for i in T.vectorized(16): ...
    """
    target = sch.state.get_loop(loop)
    around = [item for item in sch.state.loops_above(target) if item.kind == VECTORIZED]
    inside = [
        item
        for item in statements(target.body)
        if isinstance(item, For) and item.kind == VECTORIZED
    ]
    for item in around + inside:
        raise sch.error(
            f"loop {item.loop_var.name!r} of the same nest is vectorized already", target, item
        )
    check_simultaneous(sch, target, "vectorizing it")
    _mark(sch, target, VECTORIZED)


@primitive
def unroll(sch: Schedule, loop: LoopRV) -> None:
    """Write the iterations of a loop out one after the other.

    After:
        for i in T.unroll(4): ...
    """
    _mark(sch, sch.state.get_loop(loop), UNROLLED)


@primitive
def bind(sch: Schedule, loop: LoopRV, thread_axis: str) -> None:
    """Let a thread index of a GPU take the place of a loop.

    After ``bind(i, "threadIdx.x")``:
        for i in T.thread_binding(32, thread="threadIdx.x"): ...
    """
    target = sch.state.get_loop(loop)
    if thread_axis not in THREAD_TAGS:
        raise sch.error(
            f"unknown thread axis {thread_axis!r}; known: {', '.join(THREAD_TAGS)}", target
        )
    for item in sch.state.parents(target):
        if isinstance(item, For) and item.thread == thread_axis and "vthread" not in thread_axis:
            raise sch.error(f"a loop around it is bound to {thread_axis} already", target, item)
    if not is_const(target.min, 0):
        raise sch.error(f"the loop starts at {target.min!r}; a thread index starts at 0", target)
    check_simultaneous(
        sch, target, f"binding it to {thread_axis}", cooperative=thread_axis.startswith("threadIdx")
    )
    _mark(sch, target, THREAD_BINDING, thread_axis)
