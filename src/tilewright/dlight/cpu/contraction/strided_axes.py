"""Strided axes, used as quotient and remainder: grouped and transposed convolutions.

A filter ``f`` of a grouped convolution reads the channels of group ``f // filters``; an output
``w`` of a transposed one reads the inputs around ``w // stride`` with the taps ``w % stride`` and
every ``stride``-th after that. After splitting such an axis in two, each access depends on only one
of them: within a group or a remainder there is a dense product or an ordinary window, for which
there are rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.dlight.cpu.contraction.sliding_window import SlidingWindow
from tilewright.dlight.cpu.contraction.tiled_reduction import TiledReduction
from tilewright.ir import FloorMod, Var, as_int, pre_order, uses_var
from tilewright.scheduling import (
    Contraction,
    CPUScheduleRule,
    NotApplicable,
    ScheduleRule,
    describe,
    divisors_of,
)
from tilewright.scheduling.cpu import SEPARATE
from tilewright.target import Target
from tilewright.tir.schedule import Schedule

# Groups of so few filters make no vectors: their windows slide along the columns.
_NARROW = 8


class StridedAxes(CPUScheduleRule):
    """Applies to one reduction with axes of the result that are divided by constants."""

    def apply_to(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Split these axes, then apply the rules for dense products and windows."""
        found = describe(sch)
        if isinstance(found, NotApplicable):
            return found
        divisors = divisors_of(found)
        if not divisors:
            return NotApplicable("no axis is used as quotient and remainder")
        rules: list[ScheduleRule] = [TiledReduction(), SlidingWindow()]
        image = {var for var in divisors if _slides(found, var)}
        if any(n <= _NARROW and var not in image for var, n in divisors.items()):
            rules.reverse()
        reasons = []
        for rule in rules:
            # At best whole rows of the result are put together again before they are written.
            for whole in (True, False) if image and isinstance(rule, TiledReduction) else (False,):
                attempt = sch.copy()
                _split_axes(attempt, found, divisors, image, whole=whole)
                made = rule.apply_to(attempt, target)
                if isinstance(made, Schedule):
                    return made
                reasons.append(made.reason)
        return NotApplicable("; ".join(reasons))


def _split_axes(
    sch: Schedule,
    contraction: Contraction,
    divisors: dict[Var, int],
    image: set[Var],
    *,
    whole: bool,
) -> None:
    """Split each axis in two, in the loops and, if it slides over an image, in the result.

    Remainders of pixel positions come first, so that each is computed together; the epilogue
    interleaves the results, remainder by remainder unless it writes ``whole`` rows. The order of
    filters is unchanged.
    """
    main, store = contraction.main, contraction.store
    consumers = contraction.consumers
    order = [item.var for item in contraction.block.iter_vars]

    def mapped(variables: Sequence[Any]) -> Any:
        def split(*index: Any) -> tuple[Any, ...]:
            first, rest = [], []
            for var, item in zip(variables, index):
                number = divisors.get(var)
                if number is None:
                    rest.append(item)
                elif var in image:
                    first.append(item % number)
                    rest.append(item // number)
                else:
                    rest.extend((item // number, item % number))
            return (*first, *rest)

        return split

    result = [index if isinstance(index, Var) else None for index in store.indices]
    if not image:
        sch.transform_block_layout(main, mapped(order))
        return
    if whole:
        if not consumers:
            sch.cache_write(main, 0, "global")
        sch.transform_layout(main, ("write", 0), mapped(result))
        sch.transform_block_layout(main, mapped(order))
        return
    extents = [as_int(extent) for extent in store.buffer.shape]
    if len(consumers) == 1 and extents == [
        as_int(item.dom.extent) for item in sch.get(consumers[0]).iter_vars
    ]:
        epilogue = consumers[0]
    else:
        # What cuts off a part of the result comes after all of it.
        epilogue = sch.cache_write(main, 0, "global")
        sch.annotate(epilogue, SEPARATE, 1)
    sch.transform_layout(main, ("write", 0), mapped(result))
    sch.transform_block_layout(epilogue, mapped(result))
    sch.transform_block_layout(main, mapped(order))


def _slides(found: Contraction, var: Var) -> bool:
    """Whether an axis is added to reduction axes in an operand's index (an image axis)."""
    return any(
        isinstance(item, FloorMod) and uses_var(item.a, {var})
        for load in found.loads
        for index in load.indices
        if len([1 for other in found.block.iter_vars if uses_var(index, {other.var})]) > 1
        for item in pre_order(index)
    )
