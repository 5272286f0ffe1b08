"""Answers what the lanes of a warp ask of each other: shuffles, votes, operators on matrices.

Each function gets the lanes that have arrived at one place, and all lanes of the warp; it answers
them and returns ``True`` if those it takes have all come.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tilewright.ir import dtypes
from tilewright.support.errors import RunError
from tilewright.tir.fragments import WARP_SIZE
from tilewright.tir.interpreter.warp_matrix import WARP_FUNCTIONS


class Lane(Protocol):
    """A thread, as its warp sees it."""

    lane: int
    request: tuple[str, str, Any] | None
    answer: object


def _complete(group: Sequence[Lane], members: Sequence[Lane]) -> bool:
    """Whether all lanes that the group's masks name (and that exist) have arrived."""
    here = 0
    for thread in group:
        here |= 1 << thread.lane
    existing = 0
    for thread in members:
        existing |= 1 << thread.lane
    for thread in group:
        assert thread.request is not None
        mask = int(thread.request[2][0])
        if not mask >> thread.lane & 1:
            raise RunError(
                f"thread ({thread}) at {thread.request[1]}: mask {mask:#x} leaves out its own "
                f"lane {thread.lane}"
            )
        if mask & existing & ~here:
            return False
    return True


def _shuffle(group: Sequence[Lane], members: Sequence[Lane]) -> bool:
    if not _complete(group, members):
        return False
    values = {}
    for thread in group:
        assert thread.request is not None
        values[thread.lane] = thread.request[2][1]
    for thread in group:
        assert thread.request is not None
        _, _, operand, width, kind, dtype = thread.request[2]
        start = thread.lane // width * width
        lane = {
            "warp_shuffle": start + operand % width,
            "warp_shuffle_up": thread.lane - operand,
            "warp_shuffle_down": thread.lane + operand,
            "warp_shuffle_xor": thread.lane ^ operand,
        }[kind]
        if lane < start or lane >= start + width:
            lane = thread.lane  # a lane of another segment: the own value comes back
        thread.answer = values[lane] if lane in values else _undefined(dtype)
    return True


def _undefined(dtype: str) -> float:
    """What a lane that takes no part has: a value that shows up."""
    if dtypes.is_float(dtype):
        return math.nan
    return True if dtypes.is_bool(dtype) else dtypes.integer_limits(dtype)[1] - 3


def _vote(group: Sequence[Lane], members: Sequence[Lane]) -> bool:
    if not _complete(group, members):
        return False
    ballot = 0
    for thread in group:
        assert thread.request is not None
        ballot |= bool(thread.request[2][1]) << thread.lane
    for thread in group:
        assert thread.request is not None
        mask, _, kind = thread.request[2]
        present = sum(1 << other.lane for other in group) & int(mask)
        thread.answer = {
            "warp_ballot": ballot & present,
            "warp_any": bool(ballot & present),
            "warp_all": ballot & present == present,
        }[kind]
    return True


def _active_mask(group: Sequence[Lane], members: Sequence[Lane]) -> bool:
    mask = sum(1 << thread.lane for thread in group)
    for thread in group:
        thread.answer = mask
    return True


def _operator(group: Sequence[Lane], members: Sequence[Lane]) -> bool:
    """Run what all lanes of a warp do together; they all must be there, and be a whole warp."""
    if len(group) < len(members):
        return False
    request = group[0].request
    assert request is not None
    if len(members) != WARP_SIZE:
        raise RunError(
            f"thread ({group[0]}) at {request[1]}: its warp has {len(members)} threads, the "
            f"operator is of {WARP_SIZE}: bind a loop of {WARP_SIZE} to threadIdx.x"
        )
    name = request[2][0]
    brought = [lane.request[2][1] for lane in group if lane.request is not None]
    WARP_FUNCTIONS[name](group, brought, request[1])
    return True


WARP_REQUESTS: dict[str, Callable[[Sequence[Lane], Sequence[Lane]], bool]] = {
    "shuffle": _shuffle,
    "vote": _vote,
    "activemask": _active_mask,
    "warp": _operator,
}
