"""Runs the threads of a block in lock step: barriers, warps, and a check for races.

The emitter turns the body of a thread-bound nest into a generator function that yields a request
wherever threads meet (barrier, shuffle, vote, all-reduce). ``run_threads`` starts one generator per
thread and answers the requests of those that have all arrived. Blocks run one after the other,
those of a cluster together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from itertools import product
from typing import Any

import numpy as np

from tilewright.support.errors import RunError
from tilewright.tir.fragments import WARPGROUP_SIZE
from tilewright.tir.interpreter.barriers import Barrier, Copy, released, why_stuck
from tilewright.tir.interpreter.clusters import Cluster, cluster_released, why_cluster_stuck
from tilewright.tir.interpreter.products import Products, warpgroups_ready
from tilewright.tir.interpreter.races import NEVER, Access, Clock, Races, join
from tilewright.tir.interpreter.thread_ops import THREAD_FUNCTIONS
from tilewright.tir.interpreter.traffic import Traffic
from tilewright.tir.interpreter.values import Memory, allocate
from tilewright.tir.interpreter.warp_matrix import Operand
from tilewright.tir.interpreter.warps import WARP_REQUESTS
from tilewright.tir.thread_scope import CLUSTER_TAGS, is_cluster_tag

Coordinates = Sequence[tuple[str, int]]
Request = tuple[str, str, Any]
"""What a thread waits for: kind, the place in the program (as text), and what it brings."""


class Block:
    """What the threads of one block share."""

    def __init__(
        self,
        cluster: Cluster,
        coordinates: Coordinates,
        races: Races | None,
        traffic: Traffic | None,
    ) -> None:
        self.cluster = cluster
        self.number = len(cluster.blocks)
        cluster.blocks.append(self)
        self.threads: list[Thread] = []
        self.coordinates = coordinates
        self.races = races
        self.traffic = traffic
        self.epoch = 0  # barriers passed
        self.memory: dict[Any, np.ndarray[Any, Any]] = {}
        self.warp_epochs: dict[object, int] = defaultdict(int)
        self.warps: dict[Any, list[Thread]] = defaultdict(list)
        self.barriers: dict[int, Barrier] = {}

    def __str__(self) -> str:
        return _text(self.coordinates)

    def pass_barrier(self) -> None:
        """All threads have met: each sees what any of them saw of other blocks."""
        self.epoch += 1
        if self.cluster.is_alone:  # there the number of barriers says all
            return
        clock: Clock = {}
        for thread in self.threads:
            join(clock, thread.seen)
        for thread in self.threads:
            thread.seen = dict(clock)


class Thread:
    """One thread: its coordinates, its place in a warp, and what it waits for."""

    def __init__(
        self, block: Block, coordinates: Coordinates, extents: dict[str, int], warp_size: int
    ) -> None:
        self.block = block
        self.coordinates = coordinates
        place = dict(coordinates)
        linear, step = 0, 1
        for tag in ("threadIdx.x", "threadIdx.y", "threadIdx.z"):
            linear += place.get(tag, 0) * step
            step *= extents.get(tag, 1)
        virtual = tuple(value for tag, value in coordinates if tag.startswith("vthread"))
        self.lane = linear % warp_size
        self.warp = (linear // warp_size, virtual, block.number)
        self.warpgroup = (linear // WARPGROUP_SIZE, virtual)
        self.products = Products(self)
        self.time = 0  # how often it arrived at barriers in memory
        self.seen: Clock = {}
        self.arrived = self.waited = 0  # how often, at the barrier of the cluster
        self.ended = False
        self.request: Request | None = None
        self.answer: object = None
        self.issued: list[_Copy] = []
        self.groups: dict[int, list[list[_Copy]]] = defaultdict(list)
        self.follows = block.races is not None or block.traffic is not None
        self.steps: Generator[Request, Any, None]

    def __str__(self) -> str:
        return _text((*self.block.coordinates, *self.coordinates))

    def advance(self) -> None:
        """Run until the thread waits or ends; ``request`` is ``None`` at the end."""
        try:
            self.request = self.steps.send(self.answer)
        except StopIteration:
            self.request, self.ended = None, True
        self.answer = None

    def allocate(self, site: int, size: int, dtype: str, scope: str) -> np.ndarray[Any, Any]:
        """Return memory that the block (or the warp) has once for this place in the program."""
        key: Any = (site, self.warp) if scope.startswith(("warp", "wmma")) else site
        if scope == "warpgroup":
            key = (site, self.warpgroup)
        memory = self.block.memory
        if key not in memory:
            memory[key] = allocate(size, dtype)
            if self.block.races is not None:
                self.block.races.own(memory[key])
        return memory[key]

    def access(self) -> Access:
        """Now, as an access that orders itself by no atomic."""
        return self._access(False)

    def _access(self, atomic: bool) -> Access:
        block = self.block
        epoch = block.warp_epochs[self.warp]
        return Access(self, block.epoch, epoch, atomic, self.time, self.arrived, self.waited)

    def access_of(self, copy: Copy) -> Access:
        """The access of a copy that the thread starts now."""
        return Access(copy, self.block.epoch, 0, False, 0, NEVER, self.waited)

    def clock(self) -> Clock:
        """What somebody sees for whom the thread's arrival is over."""
        made = {**self.seen, self: self.time}
        if not self.block.cluster.is_alone:
            made[self.block] = self.block.epoch
            made[self.block.cluster] = self.waited
        return made

    def read(self, memory: Memory, place: object, name: str, bytewise: bool) -> Any:
        """Note that the thread reads; return ``place``."""
        assert self.block.races is not None
        self.block.races.read(self._access(False), memory, place, name, bytewise)
        return place

    def write(
        self, memory: Memory, place: object, name: str, bytewise: bool, value: object = None
    ) -> Any:
        """Note that the thread writes a value (``None``: updates atomically); return ``place``."""
        assert self.block.races is not None
        access = self._access(value is None)
        self.block.races.write(access, memory, place, name, bytewise, value)
        return place

    def own(self, memory: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Note memory of the thread's own, which holds nothing yet."""
        assert self.block.races is not None
        self.block.races.own(memory)
        return memory

    def read_own(self, memory: Memory, place: object, name: str) -> Any:
        """Note that the thread reads memory of its own; return ``place``."""
        assert self.block.races is not None
        self.block.races.read_own(self, memory, place, name)
        return place

    def write_own(self, memory: Memory, place: object, name: str) -> Any:
        """Note that the thread writes memory of its own; return ``place``."""
        assert self.block.races is not None
        self.block.races.write_own(memory, place)
        return place

    def count(self, number: int, loops: Any, memory: Any, place: Any) -> Any:
        """Count an access at a place of the program; return ``place``."""
        assert self.block.traffic is not None
        self.block.traffic.note(self, number, loops, memory, place)
        return place

    def touch(
        self,
        access: str,
        operand: Operand,
        places: np.ndarray[Any, Any],
        values: np.ndarray[Any, Any] | None,
    ) -> None:
        """Note what an operator of the thread or its warp accesses."""
        constant, memory = operand.constant, operand.memory
        if self.block.races is None:
            return
        places = places.reshape(-1)
        if constant.private or constant.scope.startswith("wmma"):
            if access == "read":
                self.read_own(memory, places, constant.name)
            else:
                self.write_own(memory, places, constant.name)
        elif access == "read":
            self.read(memory, places, constant.name, constant.bytewise)
        else:
            value = None if values is None else values.reshape(-1)
            self.write(memory, places, constant.name, constant.bytewise, value)

    def run(self, name: str, site: str, brought: tuple[Any, ...]) -> None:
        """Run an operator that needs no other thread."""
        THREAD_FUNCTIONS[name](self, brought, site)

    # Asynchronous copies: what is issued is committed as a group to a queue; waiting makes the
    # oldest groups of the queue arrive. Memory may change at any time between.

    def issue(
        self,
        target: object,
        place: object,
        value: object,
        memory: Memory,
        name: str,
        bytewise: bool,
    ) -> None:
        """Start a copy."""
        if self.block.races is not None:
            self.write(memory, place, name, bytewise, value)
        self.issued.append((target, place, value, memory, name, bytewise))

    def commit(self, queue: int) -> None:
        """Make a group of the copies since the last commit."""
        self.groups[queue].append(self.issued)
        self.issued = []

    def wait(self, queue: int, in_flight: int) -> None:
        """Wait until no more than so many groups are under way."""
        groups = self.groups[queue]
        while len(groups) > in_flight:
            for target, place, value, memory, name, bytewise in groups.pop(0):
                if self.block.races is not None:
                    self.write(memory, place, name, bytewise, value)
                target[place] = value

    def end(self) -> None:
        """Check that no copy is left under way."""
        self.products.end()
        if self.issued or any(self.groups.values()):
            raise RunError(f"thread ({self}) ends without waiting for its asynchronous copies")


_Copy = tuple[Any, Any, Any, Any, str, bool]


def _text(coordinates: Coordinates) -> str:
    return ", ".join(f"{tag}={value}" for tag, value in coordinates) or "the only thread"


def run_threads(
    body: Callable[..., Generator[Request, Any, None]],
    extents: Sequence[tuple[str, int]],
    block: Coordinates,
    races: Races | None = None,
    traffic: Traffic | None = None,
    *,
    warp_size: int = 32,
) -> None:
    """Run ``body(thread, *indices)`` for all threads of a block, or of the blocks of a cluster."""
    cluster = Cluster()
    by_tag = dict(extents)
    blocks: dict[Coordinates, Block] = {}
    # The number of a block counts along x first.
    tags = [tag for tag in CLUSTER_TAGS if tag in by_tag]
    for numbers in product(*(range(by_tag[tag]) for tag in reversed(tags))):
        own = tuple(zip(tags, numbers[::-1]))
        blocks[own] = Block(cluster, (*block, *own), races, traffic)
    threads = []
    # The last loop varies slowest, so that the order is that of the warps if x comes first.
    for indices in product(*(range(extent) for _, extent in reversed(extents))):
        indices = indices[::-1]
        places = [(tag, i) for (tag, _), i in zip(extents, indices)]
        own = tuple(sorted(item for item in places if is_cluster_tag(item[0])))
        coordinates = [item for item in places if not is_cluster_tag(item[0])]
        thread = Thread(blocks[own], coordinates, by_tag, warp_size)
        thread.steps = body(thread, *indices)
        blocks[own].warps[thread.warp].append(thread)
        blocks[own].threads.append(thread)
        threads.append(thread)
    running = threads
    while running:
        for thread in running:
            thread.advance()
        waiting = [thread for thread in threads if thread.request is not None]
        running = _resolved(cluster, waiting) if waiting else []
    if cluster.copies:
        raise RunError(f"nobody waits for the copy of thread ({cluster.copies[0]})")
    cluster.end()
    if races is not None:
        races.end_block()
    if traffic is not None:
        traffic.end_block()


def _resolved(cluster: Cluster, waiting: list[Thread]) -> list[Thread]:
    """Answer the requests that can be answered; return the threads that may go on."""
    ready: list[Thread] = []
    for block in cluster.blocks:
        ready += _met(block)
    ready += released(waiting)
    ready += cluster_released(cluster, waiting)
    if ready:
        return ready
    for block in cluster.blocks:
        first = block.threads[0].request
        if (
            first is not None
            and first[0] == "barrier.shared"
            and all(t.request is not None and t.request[:2] == first[:2] for t in block.threads)
        ):
            block.pass_barrier()
            ready += block.threads
    if ready:
        return ready
    if cluster.copies:  # as late as they can
        cluster.copies.pop(0).finish()
        return _resolved(cluster, waiting)
    raise _stuck(cluster, waiting)


def _met(block: Block) -> list[Thread]:
    """Answer what threads of a block do together, but for its barrier."""
    ready: list[Thread] = []
    waiting = [thread for thread in block.threads if thread.request is not None]
    for warp, members in block.warps.items():
        at: dict[tuple[str, str], list[Thread]] = defaultdict(list)
        for thread in members:
            if thread.request is not None:
                at[thread.request[:2]].append(thread)
        for (kind, _), group in at.items():
            if kind == "barrier.warp":
                if len(group) == len(members):
                    block.warp_epochs[warp] += 1
                    ready += group
            elif kind in WARP_REQUESTS and WARP_REQUESTS[kind](group, members):
                ready += group
    ready += _all_reduce(block.threads, waiting)
    ready += warpgroups_ready(block.threads, waiting)
    return ready


def _stuck(cluster: Cluster, waiting: list[Thread]) -> RunError:
    """Say which thread never comes to where another one waits."""
    if reasons := why_stuck(waiting):  # others may wait for these threads in turn
        return RunError(reasons)
    one = next((t for t in waiting if t.request and t.request[0] == "barrier.shared"), None)
    if one is None and (reasons := why_cluster_stuck(cluster, waiting)):
        return RunError(reasons)
    one = one or waiting[0]
    threads = one.block.threads
    assert one.request is not None
    if one.request[0] == "warp":  # a lane of the same warp is who is missed
        threads = [t for t in threads if t.warp == one.warp]
    for other in threads:
        if other.request is None:
            what = "has ended"
        elif other.request[:2] != one.request[:2]:
            what = f"waits at {other.request[1]}"
        else:
            continue
        return RunError(
            f"thread ({one}) waits at {one.request[1]}, which thread ({other}) does not reach: it "
            f"{what}; all threads that take part must reach it"
        )
    return RunError(f"thread ({one}) waits at {one.request[1]} for lanes that don't exist")


# ---- all-reduce -------------------------------------------------------------------------------


def _all_reduce(threads: list[Thread], waiting: list[Thread]) -> list[Thread]:
    """Answer the all-reduces at which all threads of a group (along the tags) have arrived."""
    ready: list[Thread] = []
    sites = {t.request[1]: t.request[2] for t in waiting if t.request and t.request[0] == "reduce"}
    for site, (tags, combine, _) in sites.items():
        groups: dict[Any, list[Thread]] = defaultdict(list)
        for thread in threads:
            groups[tuple(item for item in thread.coordinates if item[0] not in tags)].append(thread)
        for group in groups.values():
            if any(t.request is None or t.request[:2] != ("reduce", site) for t in group):
                continue
            values = [t.request[2][2] for t in group if t.request is not None]
            total = values[0]
            for value in values[1:]:
                total = combine(*total, *value)
            for thread in group:
                thread.answer = total
            ready += group
    return ready
