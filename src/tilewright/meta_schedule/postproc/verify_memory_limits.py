"""Reject schedules that need more memory of a scope than there is."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.ir import Sequential, as_int
from tilewright.meta_schedule.postproc.base import Postproc, Rejected
from tilewright.scheduling.gpu import limits_of
from tilewright.support.errors import TuneError
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.analysis import allocated_memory
from tilewright.tir.schedule import Schedule
from tilewright.tir.transform import block_passes, gpu_pipeline


class VerifyMemoryLimits(Postproc):
    """Reject programs whose buffers of a scope need more bytes at once than ``limits`` allows.

    Buffers are as large as lowering makes them. Without ``limits``, a GPU's shared memory is
    limited; other targets state none, so they need some.
    """

    name = "verify-memory-limits"

    def __init__(self, limits: Mapping[str, int] | None = None) -> None:
        for scope, size in (limits or {}).items():
            if size < 0:
                raise TuneError(f"the limit of scope {scope!r} is negative: {size}")
        self._given = limits
        self.limits: dict[str, int] = dict(limits or {})
        self.target = Target("cuda")

    def initialize(self, target: Target) -> None:
        """Learn what the target has, unless limits are given.

        Raises ``TuneError`` if it states nothing.
        """
        self.target = target
        if self._given is not None:
            return
        if target.kind != "cuda":
            raise TuneError(
                f"target {target.kind!r} states no limits of memory; give VerifyMemoryLimits some"
            )
        self.limits = {"shared": limits_of(target).max_shared_memory}

    def apply(self, sch: Schedule) -> Rejected | None:
        """Add up the buffers that live at the same time."""
        if self.target.kind == "cuda":
            lowered = gpu_pipeline(self.target)(sch.mod)
        else:
            lowered = Sequential(block_passes())(sch.mod)
        for func in lowered.functions.values():
            if not isinstance(func, PrimFunc):
                continue
            for scope, needed in allocated_memory(func).items():
                size, most = as_int(needed), self.limits.get(scope)
                if most is not None and (size is None or size > most):
                    return Rejected(f"{needed!r} bytes of scope {scope!r}, more than {most}")
        return None
