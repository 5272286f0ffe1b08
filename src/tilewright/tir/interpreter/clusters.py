"""Blocks that run together as a cluster: their barrier, and each other's shared memory.

A block that isn't in a cluster is one by itself. All blocks of a cluster are there at once, but
none may touch another one's shared memory before that has begun or after it has ended, and only
barriers tell: what reaches into a block is remembered (``Cluster.reach``), and must be ordered
before the end of one of that block's threads.

The cluster's barrier has two halves. What a thread did before it arrived is ordered before what
another one does once it has waited; what a thread does in between is ordered with nobody. So an
access knows how often its thread had arrived and waited (``Access.arrived``, ``Access.waited``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import numpy as np

from tilewright.support.errors import RunError
from tilewright.tir.interpreter.races import Access, Clock, join
from tilewright.tir.interpreter.values import allocate
from tilewright.tir.interpreter.warp_matrix import Operand


class Cluster:
    """What the blocks of a cluster share."""

    def __init__(self) -> None:
        self.blocks: list[Any] = []
        self.copies: list[Any] = []  # bulk copies under way, the oldest first
        self.clocks: dict[int, Clock] = defaultdict(dict)  # by the barrier's phase
        self.reached: dict[Any, dict[Any, tuple[Access, str]]] = {}
        """For each block the last access to its memory of each thread of another one."""

    @property
    def is_alone(self) -> bool:
        """Whether there is but one block."""
        return len(self.blocks) == 1

    def block(self, thread: Any, number: object, site: str) -> Any:
        """Return a block of the cluster by its number."""
        found = int(number)  # type: ignore[call-overload]
        if not 0 <= found < len(self.blocks):
            raise RunError(
                f"thread ({thread}) at {site}: the cluster has {len(self.blocks)} blocks, none has "
                f"number {found}"
            )
        return self.blocks[found]

    def reach(self, block: Any, access: Access, site: str) -> None:
        """Note that somebody of another block accesses shared memory of a block."""
        if block is not access.thread.block:
            self.reached.setdefault(block, {})[access.thread] = access, site

    def end(self) -> None:
        """Check that no block may have ended before others were done with its memory."""
        for block, accesses in self.reached.items():
            ends = [thread.access() for thread in block.threads]
            for access, site in accesses.values():
                if not any(access.before(end) for end in ends):
                    raise RunError(
                        f"thread ({access.thread}) reaches into shared memory of block "
                        f"({block}) by {site}, which may have ended by then: a barrier of the "
                        "cluster must be between that and the block's end"
                    )


def peer(thread: Any, operand: Operand, block: Any) -> Operand:
    """Return what another block has where a thread's own block has an operand."""
    own = thread.block
    if block is own:
        return operand
    place = _address(operand.memory)
    site = next((key for key, memory in own.memory.items() if _address(memory) == place), None)
    if site is None:
        raise RunError(f"{operand.constant.name} is no memory of the thread's block")
    if site not in block.memory:  # no thread of the block has come by yet
        memory = own.memory[site]
        block.memory[site] = allocate(memory.size, str(memory.dtype))
        if block.races is not None:
            block.races.own(block.memory[site])
    made = copy(operand)
    made.memory = block.memory[site].view(operand.memory.dtype)
    return made


def _address(memory: Any) -> int:
    found: int = memory.__array_interface__["data"][0]
    return found


def _reached(thread: Any, brought: Any, number: object, site: str) -> Operand:
    """An operand in another block, which must have begun."""
    cluster = thread.block.cluster
    block = cluster.block(thread, number, site)
    begun = thread.waited or any(getattr(who, "block", None) is block for who in thread.seen)
    if block is not thread.block and not begun:
        raise RunError(
            f"thread ({thread}) at {site}: block ({block}) may not have begun, a barrier of the "
            "cluster must come before"
        )
    cluster.reach(block, thread.access(), site)
    return peer(thread, Operand(brought, thread), block)


def _store(thread: Any, brought: tuple[Any, ...], site: str) -> None:
    operand = _reached(thread, brought[0], brought[2], site)
    operand.write(np.full((1, 1), brought[1], operand.memory.dtype))


def _load(thread: Any, brought: tuple[Any, ...], site: str) -> None:
    source = _reached(thread, brought[1], brought[2], site)
    Operand(brought[0], thread).write(source.read())


def _arrive(thread: Any, brought: tuple[Any, ...], site: str) -> None:
    if thread.arrived > thread.waited:
        raise RunError(
            f"thread ({thread}) at {site}: it arrives at the barrier of the cluster again, and "
            "hasn't waited since it did before (ptx_barrier_cluster_wait)"
        )
    join(thread.block.cluster.clocks[thread.arrived], thread.seen)
    thread.arrived += 1


def cluster_released(cluster: Cluster, waiting: Sequence[Any]) -> list[Any]:
    """Return the threads that wait at the barrier of the cluster for those that have arrived."""
    asking = [thread for thread in waiting if thread.request[0] == "cluster"]
    if not asking:
        return []
    for thread in asking:
        if thread.arrived == thread.waited:
            raise RunError(
                f"thread ({thread}) waits at {thread.request[1]} and hasn't arrived there "
                "(ptx_barrier_cluster_arrive)"
            )
    over = _last(cluster).arrived
    ready = [thread for thread in asking if thread.waited < over]
    for thread in ready:
        join(thread.seen, cluster.clocks[thread.waited])
        thread.waited += 1
    return ready


def _last(cluster: Cluster) -> Any:
    """The thread that arrived least often; those that have ended are not missed."""
    running = (t for block in cluster.blocks for t in block.threads if not t.ended)
    return min(running, key=lambda thread: thread.arrived)


def why_cluster_stuck(cluster: Cluster, waiting: Sequence[Any]) -> str:
    """Say who never arrives at the barrier of the cluster; empty if nobody waits there."""
    one = next((thread for thread in waiting if thread.request[0] == "cluster"), None)
    if one is None:
        return ""
    other = _last(cluster)
    return (
        f"thread ({one}) waits at {one.request[1]} for all threads of the cluster; thread "
        f"({other}) does not arrive: it waits at {other.request[1]}"
    )


CLUSTER_FUNCTIONS: dict[str, Callable[[Any, tuple[Any, ...], str], None]] = {
    "ptx_barrier_cluster_arrive": _arrive,
    "ptx_st_shared_cluster": _store,
    "ptx_ld_shared_cluster": _load,
}
"""What a thread does by itself: the thread, what it brings, and the place in the program."""
