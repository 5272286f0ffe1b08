"""Whether a schedule's threads fit together, which only lowering finds out."""

from __future__ import annotations

from tilewright.ir import as_int
from tilewright.scheduling.gpu.limits import limits_of
from tilewright.scheduling.gpu.scratch import place_scratch
from tilewright.support.errors import LowerError
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.analysis import allocated_memory
from tilewright.tir.schedule import Schedule
from tilewright.tir.transform import gpu_pipeline


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
