"""Root-mean-square normalisation: rows are read once, and scaled as they lie in registers."""

from __future__ import annotations

from tilewright.dlight.gpu.general_reduction import GeneralReduction
from tilewright.ir import Cast, Expr, Mul, expr_equal
from tilewright.tir.analysis import match_reduction
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV


class RMSNorm(GeneralReduction):
    """Applies to functions whose only reduction is a sum of squares over rows.

    The schedule is that of ``GeneralReduction``; this is the rule for those who want it for norms
    only, as in TVM's lists of rules.
    """

    def refuses(self, sch: Schedule, reductions: list[BlockRV]) -> str:
        """Say why this is no such norm."""
        if len(reductions) != 1:
            return f"{len(reductions)} reductions, one is expected"
        found = match_reduction(sch.get(reductions[0]))
        if found is None or found.name != "sum" or not _is_square(found.values[0]):
            return "its reduction is no sum of squares"
        return ""


def _is_square(value: Expr) -> bool:
    while isinstance(value, Cast):
        value = value.value
    return isinstance(value, Mul) and expr_equal(value.a, value.b)
