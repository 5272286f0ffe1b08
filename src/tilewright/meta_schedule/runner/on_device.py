"""Candidates for GPUs: checked with arrays of the host, timed by the clock of the device.

The unscheduled program, which says what is right, runs on the CPU. A candidate's arguments lie on
the device between bytes that nobody may write, and what it only reads must not have changed. After
a fault of a kernel nothing of the process can use the device any more, so the process ends, as it
does when a kernel for the CPU crashes: the candidate is lost, the runner starts another process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import Any

import numpy as np

from tilewright.meta_schedule.runner.base import EvaluatorConfig
from tilewright.meta_schedule.runner.measuring import Timing
from tilewright.meta_schedule.times import is_steady
from tilewright.runtime import LibraryModule, Module, Tensor, empty, from_dlpack, tensor
from tilewright.runtime.compiled_function import CompiledFunction
from tilewright.runtime.dlpack import capsule
from tilewright.runtime.gpu.attributes import attribute
from tilewright.runtime.gpu.driver import FAULTS, DriverError, call
from tilewright.runtime.gpu.streams import Event, current_stream, synchronize
from tilewright.support.errors import RunError
from tilewright.target import Target

DEVICE = 0
"""The device that candidates run on; ``CUDA_VISIBLE_DEVICES`` says which GPU that is."""

_PLACE = (2, DEVICE)  # in DLPack's words
_GUARD, _PATTERN = 512, 0xA5
_FAR = 1.05
_MOST_LAUNCHES = 1000
"""Launches between two events: more would only fill the queue."""

Array = np.ndarray[Any, Any]


def is_for_gpu(module: Module | LibraryModule) -> bool:
    """Whether a module's functions take tensors of a GPU."""
    return module.target.partition(" ")[0] == "cuda"


def reference_target(target: Target) -> Target:
    """Return the target of the unscheduled program: for GPUs it runs on this machine's CPU."""
    return Target("native") if target.kind == "cuda" else target


class _Guarded:
    """An array's copy on the device, between bytes that must stay as they are."""

    def __init__(self, array: Array) -> None:
        self.host = array
        size = array.nbytes
        self.before = np.full(2 * _GUARD + -(-size // 16) * 16, _PATTERN, np.uint8)
        self.before[_GUARD : _GUARD + size] = array.reshape(-1).view(np.uint8)
        self.memory = tensor(self.before, device=f"cuda:{DEVICE}")
        self.size = size

    def view(self) -> Tensor:
        """Return the tensor that a function gets."""
        dtype, shape = self.host.dtype.name, self.host.shape
        address = int(self.memory.data_ptr()) + _GUARD
        return from_dlpack(capsule(address, shape, dtype, _PLACE, owner=self.memory))

    def fault(self, name: str, *, written: bool) -> str | None:
        """Copy the array back; return what was written that must not have been."""
        found = self.memory.numpy()
        inside = slice(_GUARD, _GUARD + self.size)
        if written:
            self.host.reshape(-1).view(np.uint8)[...] = found[inside]
        elif not np.array_equal(found[inside], self.before[inside]):
            return f"argument {name} was written, but is only read"
        found[inside] = self.before[inside]
        if not np.array_equal(found, self.before):
            return f"argument {name} was written outside its bounds"
        return None


class DeviceFunction:
    """A function of a module for a GPU that is called with arrays of the host."""

    def __init__(self, function: CompiledFunction) -> None:
        self.function = function

    @property
    def ffi(self) -> Callable[..., object]:
        """The function itself, which takes tensors of the device."""
        made: Callable[..., object] = self.function.ffi
        return made

    def run(self, arguments: Sequence[object], written: Collection[int]) -> float:
        """Call the function with copies of arrays on the device; return the seconds it took there.

        The arguments at the positions ``written`` are copied back. Raises ``RunError`` if it wrote
        something else.
        """
        guarded = {n: _Guarded(x) for n, x in enumerate(arguments) if isinstance(x, np.ndarray)}
        given = [guarded[n].view() if n in guarded else x for n, x in enumerate(arguments)]
        with _Lost():
            seconds = _seconds(self.function, given, 1)
            for number, item in guarded.items():
                if (fault := item.fault(f"#{number}", written=number in written)) is not None:
                    raise RunError(fault)
        return seconds


class _Lost:
    """Ends the process if the device was lost meanwhile."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        try:
            synchronize(DEVICE)
        except DriverError as fault:
            if fault.code in FAULTS:
                sys.stderr.write(f"\n{fault.message.partition('. ')[0]}\n")
                raise SystemExit(3) from error


def _seconds(function: Callable[..., object], arguments: Sequence[object], count: int) -> float:
    """Return the seconds per call of some calls in a row, by events of the stream."""
    begin, end = Event(DEVICE), Event(DEVICE)
    begin.record()
    for _ in range(count):
        function(*arguments)
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e-3 / count


@cache
def _flush_memory() -> Tensor:
    return empty((2 * attribute(DEVICE, "l2_cache_size_bytes"),), "uint8", f"cuda:{DEVICE}")


def _flush() -> None:
    """Write more than the level-2 cache holds."""
    memory = _flush_memory()
    place = int(memory.data_ptr()), 0, memory.shape[0]
    call("flushing the cache", "cuMemsetD8Async", *place, current_stream(DEVICE))


def placed(arguments: Sequence[object]) -> list[Any]:
    """Copy tensors to new memory of the device."""
    device = f"cuda:{DEVICE}"
    return [tensor(x, device=device) if isinstance(x, Tensor) else x for x in arguments]


def burst(
    function: Callable[..., object],
    arguments: Sequence[object],
    milliseconds: float,
    config: EvaluatorConfig,
) -> float:
    """Return the mean seconds of calls for about ``milliseconds``; of one, with flushed caches."""
    with _Lost():
        if config.flush_cache_bytes:
            _flush()
            return _seconds(function, arguments, 1)
        once = _seconds(function, arguments, 1)
        count = int(1e-3 * milliseconds / max(once, 1e-7))
        return _seconds(function, arguments, min(max(config.number, count), _MOST_LAUNCHES))


def time_on_device(
    function: Callable[..., object],
    arguments: Sequence[object],
    best: float | None,
    config: EvaluatorConfig,
) -> Timing:
    """Time a function whose arguments are on the device, one value per repeat.

    One that is far slower than the best known has one value.
    """
    with _Lost():
        warm = _seconds(function, arguments, 1)
        if best is not None and warm > config.race_factor * best:
            again = min(warm, _seconds(function, arguments, 1))
            if again > config.race_factor * best:
                return Timing((again,), True)
        values = [burst(function, arguments, config.min_repeat_ms, config)]
        if best is None or values[0] <= _FAR * best:
            rest = max(0, config.repeat - 1)
            values += [
                burst(function, arguments, config.min_repeat_ms, config) for _ in range(rest)
            ]
        steady = len(values) == 1 or is_steady(tuple(values), config.max_spread)
        return Timing(tuple(values), steady)
