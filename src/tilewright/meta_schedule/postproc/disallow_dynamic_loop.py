"""Reject schedules with loops whose extent is not a number."""

from __future__ import annotations

from tilewright.ir import as_int
from tilewright.meta_schedule.postproc.base import Postproc, Rejected
from tilewright.tir.schedule import Schedule


class DisallowDynamicLoop(Postproc):
    """Reject loops with an extent that depends on other loops or on the shape at run time."""

    name = "disallow-dynamic-loop"

    def apply(self, sch: Schedule) -> Rejected | None:
        """Look at every loop."""
        for func_name in sch.state.func_names():
            for loop in sch.state.index(func_name).loops.values():
                if as_int(loop.extent) is None:
                    return Rejected(
                        f"the extent of loop {loop.loop_var.name} is {loop.extent!r}, not a number"
                    )
        return None
