"""Reject schedules that would produce far too much code: LLVM would take seconds to minutes."""

from __future__ import annotations

from tilewright.ir import IRModule
from tilewright.meta_schedule.postproc.base import Postproc, Rejected
from tilewright.support.errors import TuneError
from tilewright.target import Target
from tilewright.tir.analysis import estimate_code_size
from tilewright.tir.schedule import Schedule

_OF_REFERENCE = 2
"""How many times the code of what the rules make is always allowed."""


class VerifyCodeSize(Postproc):
    """Reject schedules of more than about ``max_instructions`` vector instructions.

    The rules' schedule of a task may be larger; candidates may then be twice as large as that.
    """

    name = "verify-code-size"

    def __init__(self, max_instructions: int = 1 << 14) -> None:
        if max_instructions < 1:
            raise TuneError(f"max_instructions must be positive, got {max_instructions}")
        self.max_instructions = max_instructions
        self.limit = max_instructions
        self.vector_bits = 256

    def initialize(self, target: Target) -> None:
        """Learn the vector width."""
        self.vector_bits = target.vector_bits
        self.limit = self.max_instructions

    def learn_reference(self, mod: IRModule) -> None:
        """Allow code like that of a task's schedule by rule."""
        size = estimate_code_size(mod, self.vector_bits)
        self.limit = max(self.limit, _OF_REFERENCE * size)

    def apply(self, sch: Schedule) -> Rejected | None:
        """Estimate the program's size."""
        size = estimate_code_size(sch.mod, self.vector_bits)
        if size > self.limit:
            return Rejected(f"about {size} vector instructions, more than {self.limit}")
        return None
