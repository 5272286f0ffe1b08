"""``Schedule``: a program under transformation, with ``explain``."""

from __future__ import annotations

from tilewright.target import Target
from tilewright.tir.schedule.core import ScheduleCore
from tilewright.tir.schedule.explain import Explanation, explain, show_explanation
from tilewright.tir.schedule.handles import BlockRV


class Schedule(ScheduleCore):
    """A program under transformation.

    >>> sch = Schedule(func)
    >>> i, j = sch.get_loops(sch.get_block("C"))
    >>> outer, inner = sch.split(i, [None, 16])
    >>> sch.mod.show()

    ``seed`` makes sampling repeatable; without it the seed comes from the system. With
    ``check=True`` (or a ``debug_mask``) the program is verified after every primitive.
    ``error_render_level`` is ``"detail"``, ``"fast"`` without the program, or ``"none"``. With
    ``symbolic=True`` tile sampling returns variables instead of numbers; see
    ``sample_perfect_tile``. ``record=False`` keeps no trace, and nothing can be undone.
    """

    def explain(
        self, block: BlockRV | str | None = None, *, target: Target | str | None = None
    ) -> Explanation:
        """Print which data a block's loops touch and which primitives may come next, and return it.

        Without ``block``, for all blocks of the working function that contain no blocks. ``target``
        determines the vector width: by default the active one, else this machine's.
        """
        if isinstance(block, str):
            block = BlockRV(self.working_func, block)
        if self.history.dead:
            self.history.check_alive((block,), "explain")
        chosen = Target(target) if target is not None else Target.current() or Target("native")
        found = explain(self, block, chosen)
        show_explanation(found)
        return found
