"""Whether a schedule's threads fit together, which only lowering finds out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from tilewright.ir import as_int
from tilewright.scheduling.gpu.limits import limits_of
from tilewright.scheduling.gpu.scratch import place_scratch
from tilewright.scheduling.rule import NotApplicable
from tilewright.support.errors import LowerError, ScheduleError
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.analysis import allocated_memory
from tilewright.tir.schedule import Schedule
from tilewright.tir.transform import gpu_pipeline

logger = logging.getLogger("tilewright.scheduling")


def why_not_lowered(sch: Schedule, target: Target) -> str | None:
    """Return why a schedule can't be lowered to kernels within the limits; ``None`` if it can.

    Threads must meet where they wait for each other, read from private memory only what they wrote
    themselves, and share no more memory than a block has.
    """
    attempt = sch.copy()
    place_scratch(attempt)
    try:
        lowered = gpu_pipeline(target)(attempt.mod)
    except LowerError as error:
        return error.summary
    limits = limits_of(target)
    for func in lowered.functions.values():
        if isinstance(func, PrimFunc):
            shared = as_int(allocated_memory(func).get("shared", 0))
            if shared is None or shared > limits.max_shared_memory:
                return f"{shared} bytes of shared memory, more than {limits.max_shared_memory}"
    return None


def first_lowered(
    sch: Schedule,
    ways: Iterable[tuple[object, Callable[[Schedule], object]]],
    target: Target,
    otherwise: str,
) -> Schedule | NotApplicable:
    """Return a copy scheduled by the first way that can be lowered, with its scratch memory placed.

    ``ways`` have names, for the log; one that doesn't fit raises ``ScheduleError``. If none fits,
    the reason is that of the last, or ``otherwise`` if there are no ways.
    """
    why = otherwise
    for name, schedule in ways:
        attempt = sch.copy()
        try:
            schedule(attempt)
        except ScheduleError as error:
            refused: str | None = error.summary
        else:
            refused = why_not_lowered(attempt, target)
        if refused is None:
            place_scratch(attempt)
            return attempt
        why = refused
        logger.debug("%s: %s: %s", sch.choices.function, name, why)
    return NotApplicable(why)
