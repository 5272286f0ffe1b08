"""The pass that replaces operators by hand-written kernels."""

from __future__ import annotations

from typing import Any

from tilewright.kernels import cpu, gpu
from tilewright.kernels.kernel import Kernel
from tilewright.scheduling import ApplyFirst, ScheduleRule
from tilewright.target import Target


class ApplyKernels(ApplyFirst):
    """Replaces functions that a kernel for the target recognises.

    Replaced functions are marked as scheduled (``tir.is_scheduled``), others are unchanged. So it
    may run before or after other scheduling passes: the first that applies to a function schedules
    it.
    """

    def __init__(self, *, target: Target | None = None) -> None:
        super().__init__(target=target)

    def rules_for(self, target: Target) -> tuple[ScheduleRule, ...]:
        """The kernels for the target."""
        return kernels_for(target)


def kernels_for(target: Target) -> tuple[Kernel[Any], ...]:
    """Return the kernels for a kind of target, in any order."""
    return gpu.kernels() if target.device_kind == "cuda" else cpu.kernels()
