"""Reject asynchronous copies of memory that is not contiguous."""

from __future__ import annotations

from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir import (
    Expr,
    Ramp,
    Range,
    Sequential,
    Var,
    add,
    as_int,
    collect,
    const,
    dtypes,
    pre_order,
    sub,
    substitute,
)
from tilewright.meta_schedule.postproc.base import Postproc, Rejected
from tilewright.support.errors import TilewrightError
from tilewright.target import Target
from tilewright.tir import AttrStmt, BufferLoad, BufferStore, For
from tilewright.tir.attrs import ASYNC_SCOPE
from tilewright.tir.schedule import Schedule
from tilewright.tir.transform import FlattenBuffer, block_passes, gpu_pipeline


class DisallowAsyncStridedMemCopy(Postproc):
    """Reject programs in which a copy that isn't waited for reads or writes with gaps.

    An engine that copies by itself moves one piece of memory. What is looked at is the lowered
    program: the loops inside of an ``async_scope``, threads not among them.
    """

    name = "disallow-async-strided-mem-copy"

    def __init__(self) -> None:
        self.target = Target("cuda")

    def initialize(self, target: Target) -> None:
        """Learn how programs are lowered."""
        self.target = target

    def apply(self, sch: Schedule) -> Rejected | None:
        """Lower the program, and look at its asynchronous copies."""
        try:
            if self.target.kind == "cuda":
                lowered = gpu_pipeline(self.target)(sch.mod)
            else:
                lowered = Sequential([*block_passes(), FlattenBuffer()])(sch.mod)
        except TilewrightError as error:
            return Rejected(f"it can't be lowered: {error.message}")
        for func in lowered.functions.values():
            for node in pre_order(func):
                if type(node) is AttrStmt and node.key == ASYNC_SCOPE:
                    refused = _strided(node.body, {})
                    if refused is not None:
                        return refused
        return None


def _strided(node: Any, loops: dict[Var, Range]) -> Rejected | None:
    """Look for a copy with gaps; ``loops`` are those of the asynchronous statement."""
    if type(node) is For:
        loops = {**loops, node.loop_var: Range.from_min_extent(node.min, node.extent)}
    if type(node) is BufferStore:
        accesses: list[Any] = [node, *collect(node.value, BufferLoad)]
        for access in accesses:
            if not _contiguous(access.indices[0], loops):
                return Rejected(f"an asynchronous copy goes through {access.buffer.name} in steps")
        return None
    for item in node.child_nodes():
        if not isinstance(item, Expr):
            refused = _strided(item, loops)
            if refused is not None:
                return refused
    return None


def _contiguous(index: Expr, loops: dict[Var, Range]) -> bool:
    """Whether loops go through neighbouring elements, whatever their order."""
    known = Analyzer()
    for var, domain in loops.items():
        known.bind(var, domain)
    width = 1
    if isinstance(index, Ramp):
        if as_int(index.stride) != 1:
            return False
        width = dtypes.lanes_of(index.dtype)
        index = index.base
    steps = []
    for var, domain in loops.items():
        after = substitute(index, {var: add(var, const(1))})
        step, extent = as_int(known.simplify(sub(after, index))), as_int(domain.extent)
        if step is None or extent is None:
            return False
        if extent > 1:
            steps.append((step, extent))
    for step, extent in sorted(steps):
        if step != width:
            return False
        width *= extent
    return True
