"""Barriers in shared memory (``mbarrier``), and the bulk copies that arrive at them.

A barrier has phases; each is over when so many threads have arrived as it was initialised for, and
the bytes that were expected have come. A copy arrives as late as it can: when no thread can go on
without it. So a thread that doesn't wait reads what was there before.

Arriving at a barrier and waiting for it orders accesses: see ``Access.before`` of ``races``, which
asks the clocks that are kept here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.support.errors import RunError
from tilewright.tir.fragments import swizzled
from tilewright.tir.interpreter.clusters import CLUSTER_FUNCTIONS, peer
from tilewright.tir.interpreter.races import Clock, join
from tilewright.tir.interpreter.warp_matrix import Operand

_TENSOR_ALIGNMENT = 128
"""Bytes that a box in shared memory is aligned to without a swizzle."""


class Barrier:
    """One barrier: what its phase waits for."""

    def __init__(self, count: int, made: Any) -> None:
        self.made = made
        self.count = self.pending = count
        self.bytes = 0  # expected and not here, or (below zero) here and not expected yet
        self.phase = 0
        self.clock: Clock = {}
        self.released: Clock = {}

    def arrive(self, clock: Clock, arrivals: int, arrived_bytes: int = 0) -> None:
        """Take arrivals of threads and of bytes; the phase may be over then."""
        join(self.clock, clock)
        self.pending -= arrivals
        self.bytes -= arrived_bytes
        if self.pending == 0 and self.bytes == 0:
            self.phase += 1
            self.pending, self.released, self.clock = self.count, self.clock, {}


class Copy:
    """A bulk copy under way: as somebody who accesses memory, and what it will do."""

    def __init__(
        self,
        thread: Any,
        site: str,
        target: Operand,
        places: Any,
        values: Any,
        barrier: Barrier,
        to: Any = None,
    ) -> None:
        self.block, self.warp = thread.block, None
        self.to = thread.block if to is None else to  # whose memory it is
        self.thread, self.site = thread, site
        self.target, self.places, self.values, self.barrier = target, places, values, barrier
        thread.time += 1  # what the thread did before comes before the copy
        self.seen: Clock = {**thread.seen, thread: thread.time}
        self.access = thread.access_of(self)

    def __str__(self) -> str:
        return f"{self.thread}, by the copy of {self.site}"

    def finish(self) -> None:
        """Bring the elements, and tell the barrier."""
        places = self.places
        memory, constant = self.target.memory, self.target.constant
        races = self.block.races
        if races is not None:
            races.write(self.access, memory, places, constant.name, constant.bytewise, self.values)
        memory[places] = self.values
        self.block.cluster.reach(self.to, self.access, self.site)
        self.barrier.arrive({self: 1}, 0, self.values.nbytes)


def _key(operand: Operand) -> int:
    base = operand.memory.__array_interface__["data"][0]
    return int(base) + operand.byte()


def barrier_at(thread: Any, operand: Operand, site: str, block: Any = None) -> Barrier:
    """Return the barrier that an operand means, or that another block has where it is."""
    if block is not None and block is not thread.block:
        operand = peer(thread, operand, block)
    else:
        block = thread.block
    found: Barrier | None = block.barriers.get(_key(operand))
    if found is None:
        raise RunError(
            f"thread ({thread}) at {site}: element {operand.first} of {operand.constant.name} is "
            "no barrier: nothing has initialised it (ptx_init_barrier_thread_count)"
        )
    if not found.made.before(thread.access()):
        raise RunError(
            f"race on element {operand.first} of {operand.constant.name}: thread ({thread}) uses "
            f"the barrier that thread ({found.made.thread}) initialised, with no barrier of the "
            f"{'block' if block is thread.block else 'cluster'} between them"
        )
    return found


def _init(thread: Any, brought: tuple[Any, ...], site: str) -> None:
    operand, count = Operand(brought[0], thread), int(brought[1])
    if not 1 <= count < 1 << 20:
        raise RunError(f"thread ({thread}) at {site}: count is 1 to 1048575, got {count}")
    operand.write(np.zeros((1, 1), np.uint64))
    thread.block.barriers[_key(operand)] = Barrier(count, thread.access())


def _arrive(thread: Any, brought: tuple[Any, ...], site: str) -> None:
    block = thread.block
    if len(brought) > 1:
        block = block.cluster.block(thread, brought[1], site)
        block.cluster.reach(block, thread.access(), site)
    _arrived(thread, barrier_at(thread, Operand(brought[0], thread), site, block), site)


def _arrive_expecting(thread: Any, brought: tuple[Any, ...], site: str) -> None:
    barrier = barrier_at(thread, Operand(brought[0], thread), site)
    _arrived(thread, barrier, site, int(brought[1]))


def _arrived(thread: Any, barrier: Barrier, site: str, expected: int = 0) -> None:
    if barrier.pending == 0:
        raise RunError(
            f"thread ({thread}) at {site}: all {barrier.count} arrivals of the phase are there "
            f"already, it waits for {barrier.bytes} bytes"
        )
    barrier.bytes += expected
    thread.time += 1
    barrier.arrive(thread.clock(), 1)


def _copy(thread: Any, brought: tuple[Any, ...], site: str) -> None:
    target, source = Operand(brought[0], thread), Operand(brought[1], thread)
    barrier = barrier_at(thread, Operand(brought[3], thread), site)
    for operand in (target, source):
        operand.check_aligned(16, site)
    places = target.places()
    target.count(places)
    values = source.read().reshape(-1).view(target.memory.dtype)
    copy = Copy(thread, site, target, places.reshape(-1), values, barrier)
    thread.block.cluster.copies.append(copy)


def _tensor_copy(thread: Any, brought: tuple[Any, ...], site: str) -> None:
    """A box of a tensor; what is outside of the tensor is zero, and counts as brought.

    Each block that gets it gets it at a time of its own.
    """
    target, source = Operand(brought[0], thread), Operand(brought[1], thread)
    told = Operand(brought[2], thread)
    blocks = _receivers(thread, int(brought[4]), site)
    barriers = [barrier_at(thread, told, site, block) for block in blocks]
    swizzle, size = int(brought[3]), source.memory.itemsize
    target.check_aligned(8 * swizzle or _TENSOR_ALIGNMENT, site)
    source.check_aligned(16, site)
    dimensions = [tuple(map(int, brought[n : n + 4])) for n in range(5, len(brought), 4)]
    place, inside = np.zeros(1, np.int64), np.ones(1, bool)
    for extent, stride, box, at in dimensions:
        if stride * size % 16 and stride != 1:
            raise RunError(
                f"thread ({thread}) at {site}: rows of {source.constant.name} are {stride * size} "
                "bytes apart, which is no multiple of 16"
            )
        index = at + np.arange(box)
        place = (place[:, None] + index * stride).reshape(-1)
        inside = (inside[:, None] & (index >= 0) & (index < extent)).reshape(-1)
    values = np.zeros(place.size, source.memory.dtype)
    read = source.first + place[inside]
    if read.size:
        source.note("read", read)
    values[inside] = source.memory[read]
    places = target.places().reshape(-1)
    if swizzle:
        places = swizzled(places * size, swizzle) // size
    for block, barrier in zip(blocks, barriers):
        own = peer(thread, target, block)
        copy = Copy(thread, site, own, places, values, barrier, block)
        thread.block.cluster.copies.append(copy)


def _receivers(thread: Any, mask: int, site: str) -> list[Any]:
    """The blocks of the cluster that a mask names; the thread's own if it names none."""
    if mask == 0:
        return [thread.block]
    if not 0 < mask < 1 << 16:
        raise RunError(f"thread ({thread}) at {site}: a mask has 16 bits, got {mask}")
    cluster = thread.block.cluster
    return [cluster.block(thread, n, site) for n in range(16) if mask >> n & 1]


def _invalidate(thread: Any, brought: tuple[Any, ...], site: str) -> None:
    operand = Operand(brought[0], thread)
    barrier_at(thread, operand, site)
    operand.write(np.zeros((1, 1), np.uint64))
    del thread.block.barriers[_key(operand)]


def _nothing(thread: Any, brought: tuple[Any, ...], site: str) -> None:
    """Fences order what happens at once here; registers are not counted."""


BARRIER_FUNCTIONS: dict[str, Callable[[Any, tuple[Any, ...], str], None]] = {
    "ptx_init_barrier_thread_count": _init,
    "ptx_arrive_barrier": _arrive,
    "ptx_arrive_barrier_expect_tx": _arrive_expecting,
    "ptx_cp_async_bulk": _copy,
    "ptx_cp_async_bulk_tensor": _tensor_copy,
    "ptx_invalidate_barrier": _invalidate,
    "ptx_fence_barrier_init": _nothing,
    "ptx_setmaxnreg": _nothing,
    **CLUSTER_FUNCTIONS,
}
"""What a thread does by itself: the thread, what it brings, and the place in the program."""


def released(waiting: Sequence[Any]) -> list[Any]:
    """Return the threads that wait at barriers for phases that are over."""
    ready = []
    for thread in waiting:
        kind, site, brought = thread.request
        if kind != "mbarrier":
            continue
        barrier = barrier_at(thread, Operand(brought[0], thread), site)
        if barrier.phase % 2 != int(brought[1]) % 2:
            join(thread.seen, barrier.released)
            ready.append(thread)
    return ready


def why_stuck(waiting: Sequence[Any]) -> str:
    """Say what the barriers lack that threads wait at in vain."""
    reasons: dict[int, str] = {}
    for thread in waiting:
        if thread.request[0] == "mbarrier":
            key = _key(Operand(thread.request[2][0], thread))
            if key not in reasons:
                reasons[key] = _why_stuck(thread)
    return "; ".join(reasons.values())


def _why_stuck(thread: Any) -> str:
    _, site, brought = thread.request
    operand = Operand(brought[0], thread)
    barrier = barrier_at(thread, operand, site)
    return (
        f"thread ({thread}) waits at {site} for phase {barrier.phase} of the barrier in element "
        f"{operand.first} of {operand.constant.name}, which is never over: it lacks "
        f"{barrier.pending} of {barrier.count} arrivals and {barrier.bytes} bytes"
    )
