"""Running sums, sorts and recurrences by definition: rows in parallel."""

from __future__ import annotations

import math

from tilewright.ir import as_int
from tilewright.scheduling import CPUScheduleRule, NotApplicable
from tilewright.scheduling.cpu import leaf_blocks, parallelize
from tilewright.target import Target
from tilewright.tir.schedule import Schedule
from tilewright.topi.nn.recurrent import RECURRENCE
from tilewright.topi.scan import SCAN
from tilewright.topi.sort import SORT

# An extent that isn't known counts as that much.
_UNKNOWN = 64
_ROWS = {SCAN, SORT, RECURRENCE}


class Scan(CPUScheduleRule):
    """Applies to functions that are one scan, sort or recurrence."""

    def apply_to(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Divide rows among threads."""
        blocks = leaf_blocks(sch)
        if len(blocks) != 1 or not _ROWS & set(sch.get(blocks[0]).annotations):
            return NotApplicable("the function is not one scan, sort or recurrence")
        buffers = sch.mod["main"].buffers
        if not buffers:
            return NotApplicable("it isn't of an argument")
        shape = buffers[0].shape
        work = math.prod(_UNKNOWN if (n := as_int(extent)) is None else n for extent in shape)
        parallelize(sch, sch.get_loops(blocks[0]), target, work)
        return sch
