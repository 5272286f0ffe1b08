"""The time that a GPU takes for calls of a function: between two events of a stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from tilewright.runtime.gpu.driver import call, on_device
from tilewright.runtime.gpu.memory import DeviceMemory
from tilewright.runtime.gpu.streams import Event, current_stream


@lru_cache(maxsize=1)
def _room(index: int, size: int) -> DeviceMemory:
    return DeviceMemory(size, index)


def flush_l2(index: int, size: int) -> None:
    """Evict other data from a GPU's level-2 cache by writing to ``size`` bytes, in the stream."""
    with on_device(index):
        memory = _room(index, size)
        doing = "flushing the level-2 cache"
        call(doing, "cuMemsetD8Async", memory.address, 0, size, current_stream(index))


def timed(
    fn: Callable[..., object], args: Sequence[object], number: int, index: int, flush: int
) -> float:
    """Return the seconds that a GPU takes for ``number`` calls, after a flush of so many bytes.

    What the host does is part of it only where the GPU waits for it.

    Raises ``RunError`` if a kernel fails.
    """
    start, end = Event(index), Event(index)
    if flush:
        flush_l2(index, flush)
    start.record()
    for _ in range(number):
        fn(*args)
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3
