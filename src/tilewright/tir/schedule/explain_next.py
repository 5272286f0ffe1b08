"""Which primitives may come next for a block: each is tried on a copy of the schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tilewright.ir import uses_var
from tilewright.support.errors import TilewrightError
from tilewright.tir import REDUCE, BlockRealize, For, TensorIntrin
from tilewright.tir.schedule.core import ScheduleCore
from tilewright.tir.schedule.handles import BlockRV, LoopRV

Call = Callable[["ScheduleCore"], object]


@dataclass(frozen=True)
class Attempt:
    """A primitive that was tried on a copy; ``reason`` is empty if it applies."""

    call: str
    reason: str

    @property
    def applies(self) -> bool:
        """Whether the primitive may be applied."""
        return not self.reason


def iterates(realize: BlockRealize, loop: For) -> str:
    """The kind of a block's axes that a loop drives, ``both`` or ``none``."""
    kinds = {
        iter_var.kind
        for iter_var, value in zip(realize.block.iter_vars, realize.iter_values)
        if uses_var(value, {loop.loop_var})
    }
    if not kinds:
        return "none"
    return kinds.pop() if len(kinds) == 1 else "both"


def attempts(
    sch: ScheduleCore, rv: BlockRV, realize: BlockRealize, loops: list[For]
) -> Iterator[Attempt]:
    """Try the likely next primitives for a block, each on a copy of the schedule."""
    for label, name, call in _candidates(sch, rv, realize, loops):
        trial = sch.copy()
        trial.trace = None  # type: ignore[assignment]  # nothing to record
        try:
            call(trial)
        except TilewrightError as error:
            first = error.summary
            yield Attempt(label, first.removeprefix(f"{name}: "))
        else:
            yield Attempt(label, "")


def _candidates(
    sch: ScheduleCore, rv: BlockRV, realize: BlockRealize, loops: list[For]
) -> Iterator[tuple[str, str, Call]]:
    """The likely next primitives for a block, as text, name and call."""
    if sch.state.parent(realize) is None:
        return
    look = sch.copy()
    look.trace = None  # type: ignore[assignment]  # questions only
    func, block = rv.func, realize.block
    handles = [LoopRV(func, loop.loop_var) for loop in loops]
    yield "compute_inline", "compute_inline", lambda s: s.compute_inline(rv)
    producers, consumers = look.get_producers(rv), look.get_consumers(rv)
    if producers:
        yield (
            "reverse_compute_inline",
            "reverse_compute_inline",
            lambda s: s.reverse_compute_inline(rv),
        )
    for primitive, others in (
        ("compute_at", consumers[:1]),
        ("reverse_compute_at", producers[-1:]),
    ):
        for other in others:
            for loop in look.get_loops(other):
                label = f"{primitive}({other.name}, {look.get(loop).loop_var.name})"
                yield label, primitive, _moving(primitive, rv, loop)
    if handles:
        inner, outer = handles[-1], handles[0]
        yield f"vectorize({_name(inner)})", "vectorize", lambda s: s.vectorize(inner)
        yield f"parallel({_name(outer)})", "parallel", lambda s: s.parallel(outer)
    reduced = [LoopRV(func, loop.loop_var) for loop in loops if iterates(realize, loop) == REDUCE]
    if reduced:
        top = reduced[0]
        label = f"decompose_reduction({_name(top)})"
        yield label, "decompose_reduction", lambda s: s.decompose_reduction(rv, top)
        for loop in reduced:
            yield f"rfactor({_name(loop)})", "rfactor", _rfactor(loop)
    for position, region in enumerate(block.writes):
        label = f"cache_write({region.buffer.name})"
        yield label, "cache_write", _caching("cache_write", rv, position)
    for position, region in enumerate(block.reads):
        label = f"cache_read({region.buffer.name})"
        yield label, "cache_read", _caching("cache_read", rv, position)
    # Those of GPUs, hundreds that are made when they are asked for by name, are not tried.
    for name in TensorIntrin.names(later=False):
        depth = len(loops) - _depth_of(TensorIntrin.get(name))
        if 0 <= depth < len(loops):
            label = f"tensorize({_name(handles[depth])}, {name})"
            yield label, "tensorize", _tensorize(handles[depth], name)


def _name(loop: LoopRV) -> str:
    return "" if loop.var is None else loop.var.name


def _moving(primitive: str, block: BlockRV, loop: LoopRV) -> Call:
    return lambda sch: getattr(sch, primitive)(block, loop)


def _caching(primitive: str, block: BlockRV, position: int) -> Call:
    return lambda sch: getattr(sch, primitive)(block, position, "local")


def _rfactor(loop: LoopRV) -> Call:
    return lambda sch: sch.rfactor(loop, 0)


def _tensorize(loop: LoopRV, name: str) -> Call:
    return lambda sch: sch.tensorize(loop, name)


def _depth_of(intrin: TensorIntrin) -> int:
    """The number of loops in the description of an intrinsic."""
    depth, stmt = 0, intrin.desc.root.body
    while isinstance(stmt, For):
        depth, stmt = depth + 1, stmt.body
    return depth
