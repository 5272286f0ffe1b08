"""The pass that replaces operators by hand-written kernels."""

from __future__ import annotations

from tilewright.kernels import cpu
from tilewright.scheduling import ApplyFirst
from tilewright.target import Target


class ApplyKernels(ApplyFirst):
    """Replaces functions that a CPU kernel recognises.

    Replaced functions are marked as scheduled (``tir.is_scheduled``), others are unchanged. So it
    may run before or after other scheduling passes: the first that applies to a function schedules
    it.
    """

    def __init__(self, *, target: Target | None = None) -> None:
        super().__init__(*cpu.kernels(), target=target)
