"""The pass that puts hand-written kernels in the place of the operators that they are for."""

from __future__ import annotations

from tilewright.kernels import cpu
from tilewright.scheduling import ApplyFirst
from tilewright.target import Target


class ApplyKernels(ApplyFirst):
    """Replaces functions that are a kernel's operator, all kernels of CPUs being asked.

    What it has replaced is scheduled (``tir.is_scheduled``), and other functions stay as they are:
    it comes before or after other passes that schedule, the first to like a function has it.
    """

    def __init__(self, *, target: Target | None = None) -> None:
        super().__init__(*cpu.kernels(), target=target)
