"""Finds races: two threads use one element, one of them writes, and no barrier stands between.

Each element remembers its last write and the reads since. Accesses of threads of one block are
ordered by the barriers that the block (or the warp) passed between them; accesses of different
blocks of one kernel are never ordered, but for those of a cluster: by its barrier, and by barriers
in shared memory that one block arrives at and another one waits at. A write of what the element
holds already changes nothing and so races with nobody: blocks may compute the same halo twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tilewright.support.errors import RunError

Clock = dict[Any, int]
"""How far into the work of others (by thread, copy or block) somebody sees."""
NEVER = 1 << 62
"""Arrivals after which work is done that no barrier of a cluster waits for: that of a copy."""


def join(clock: Clock, other: Clock) -> None:
    """See also what another clock sees."""
    for who, time in other.items():
        clock[who] = max(clock.get(who, 0), time)


class Access(NamedTuple):
    """Who accessed, after how many barriers of block and warp; two atomic accesses don't race."""

    thread: Any
    block_epoch: int
    warp_epoch: int
    atomic: bool
    time: int = 0
    """How often the thread had arrived at barriers in memory."""
    arrived: int = 0
    """How often it had arrived at the barrier of its cluster, and how often it had waited there."""
    waited: int = 0

    def before(self, other: Access) -> bool:
        """Whether this access is ordered before a later one."""
        mine, theirs = self.thread, other.thread
        if mine is theirs or (self.atomic and other.atomic):
            return True
        if theirs.seen.get(mine, 0) > self.time:  # by barriers in memory
            return True
        if mine.block is not theirs.block:
            return mine.block.cluster is theirs.block.cluster and (
                self.arrived < other.waited
                or theirs.seen.get(mine.block, 0) > self.block_epoch
                or theirs.seen.get(mine.block.cluster, 0) > self.arrived
            )
        if self.block_epoch < other.block_epoch or self.arrived < other.waited:
            return True
        return bool(mine.warp == theirs.warp and self.warp_epoch < other.warp_epoch)


class _Cell:
    __slots__ = ("reads", "writes")

    def __init__(self) -> None:
        self.writes: list[Access] = []  # the last one, and those since that changed nothing
        self.reads: dict[Any, Access] = {}

    def accesses(self) -> Iterator[tuple[str, Access]]:
        """What happened to the element that a write must come after."""
        for write in self.writes:
            yield "wrote", write
        for read in self.reads.values():
            yield "read", read


class Written:
    """Memory that a program allocates for its kernels holds nothing until one of them writes."""

    def __init__(self) -> None:
        self.filled: dict[int, bytearray] = {}  # bytes that were written
        self.alive: list[Any] = []  # addresses must not be given to others

    def own(self, memory: Any) -> Any:
        """Take in memory that was allocated now, and return it."""
        self.filled[memory.__array_interface__["data"][0]] = bytearray(memory.nbytes)
        self.alive.append(memory)
        return memory

    def keep(self, count: int) -> None:
        """Forget all but the first so many: those of the functions around the one that ended."""
        while len(self.alive) > count:
            del self.filled[self.alive.pop().__array_interface__["data"][0]]


class Races:
    """The accesses of one kernel (one outermost thread-bound nest)."""

    def __init__(self, written: Written | None = None) -> None:
        self._cells: dict[int, _Cell] = {}
        self._alive: dict[int, object] = {}  # memory must not be freed and given to others
        self._bases: dict[int, tuple[int, object]] = {}  # addresses of arrays by their identity
        # Bytes that were written: of the kernel's memory, and of what kernels hand on.
        self._filled: dict[int, bytearray] = {}
        self._handed_on = written.filled if written is not None else {}
        self._pending: tuple[object, int, str] | None = None  # a read of what nothing had written

    def _places(self, memory: Any, place: Any, bytewise: bool) -> list[tuple[int, int]]:
        """Addresses of the elements (of all their bytes) with the element's number."""
        base = self._base_of(memory)
        self._alive.setdefault(base, memory)
        size = memory.itemsize
        elements = place.tolist() if isinstance(place, np.ndarray) else [place]
        width = size if bytewise else 1
        return [(base + n * size + byte, n) for n in elements for byte in range(width)]

    # ---- memory that the kernel allocates holds nothing at first ------------------------------

    def own(self, memory: Any) -> None:
        """Take in memory that was allocated now."""
        base = self._base_of(memory)
        self._alive[base] = memory
        self._filled[base] = bytearray(memory.nbytes)

    def _base_of(self, memory: Any) -> int:
        """The address of an array; those that own their memory are asked once."""
        found = self._bases.get(id(memory))
        if found is not None:
            return found[0]
        base: int = memory.__array_interface__["data"][0]
        if memory.base is None:
            self._bases[id(memory)] = base, memory
        return base

    def _bytes_of(self, memory: Any) -> bytearray | None:
        base = self._base_of(memory)
        found = self._filled.get(base)
        return self._handed_on.get(base) if found is None else found

    def unchanged(self, access: Access, memory: Any, place: Any, name: str, bytewise: bool) -> None:
        """Check that what was read from ``access`` on has not been written since."""
        for key, element in self._places(memory, place, bytewise):
            cell = self._cells.get(key)
            for write in cell.writes[:1] if cell is not None else ():
                if write.thread is not access.thread.thread and not write.before(access):
                    raise _race(name, element, "still reads", access, "wrote", write)

    def write_own(self, memory: Any, place: Any) -> None:
        """Note that elements are written."""
        filled = self._bytes_of(memory)
        if filled is None:
            return
        size = memory.itemsize
        full = b"\1" * size
        for element in place.tolist() if isinstance(place, np.ndarray) else (place,):
            filled[element * size : (element + 1) * size] = full

    def forget(self, memory: Any, places: Any) -> None:
        """Note that elements hold nothing any more."""
        filled = self._bytes_of(memory)
        size = memory.itemsize
        for element in places.tolist() if filled is not None else ():
            filled[element * size : (element + 1) * size] = bytes(size)  # type: ignore[index]

    def read_own(self, thread: object, memory: object, place: object, name: str) -> None:
        """Raise ``RunError`` if an element is read that nothing has written."""
        empty = self._empty(memory, place)
        if empty is not None:
            raise _unwritten(thread, empty, name)

    def _empty(self, memory: Any, place: Any) -> int | None:
        """An element of the kernel's memory that nothing has written."""
        filled = self._bytes_of(memory)
        if filled is None:
            return None
        size = memory.itemsize
        for element in place.tolist() if isinstance(place, np.ndarray) else (place,):
            if 0 in filled[element * size : (element + 1) * size]:
                return int(element)
        return None

    def end_block(self) -> None:
        """Raise ``RunError`` for what was read and not written, if it wasn't a race."""
        if self._pending is not None:
            raise _unwritten(*self._pending)

    def _note_empty(self, access: Access, memory: object, place: object, name: str) -> None:
        """Note a read of what nothing wrote: maybe it is written soon, a race to report then."""
        if self._pending is None:
            empty = self._empty(memory, place)
            if empty is not None:
                self._pending = access.thread, empty, name

    # ---- memory that threads share --------------------------------------------------------------

    def read(
        self, access: Access, memory: object, place: object, name: str, bytewise: bool
    ) -> None:
        """Note a read; raise ``RunError`` if it races with a write, or nothing was written."""
        self._note_empty(access, memory, place, name)
        for address, element in self._places(memory, place, bytewise):
            cell = self._cells.get(address)
            if cell is None:
                cell = self._cells[address] = _Cell()
            if cell.writes and not any(write.before(access) for write in cell.writes):
                raise _race(name, element, "reads", access, "wrote", cell.writes[-1])
            cell.reads[access.thread] = access

    def write(
        self,
        access: Access,
        memory: object,
        place: object,
        name: str,
        bytewise: bool,
        value: object,
    ) -> None:
        """Note a write of ``value``; raise ``RunError`` if it races with a read or write.

        Without a value it is an atomic update, which reads as well.
        """
        if value is None:
            self._note_empty(access, memory, place, name)
        self.write_own(memory, place)
        same: bool | None = None
        for address, element in self._places(memory, place, bytewise):
            cell = self._cells.get(address)
            if cell is None:
                cell = self._cells[address] = _Cell()
            unordered = [(did, other) for did, other in cell.accesses() if not other.before(access)]
            if unordered:
                if same is None:
                    same = _changes_nothing(memory, place, value)
                if not same:
                    raise _race(name, element, "writes", access, *unordered[0])
                cell.writes.append(access)
            else:
                cell.reads = {}
                cell.writes = [access]


def _changes_nothing(memory: Any, place: Any, value: object) -> bool:
    """Whether the bits that are written stand there already (an atomic update has no value)."""
    if value is None:
        return False
    before = np.asarray(memory[place])
    with np.errstate(all="ignore"):
        after = np.asarray(value).astype(memory.dtype)
    return np.broadcast_to(after, before.shape).tobytes() == before.tobytes()


def _unwritten(thread: object, element: int, name: str) -> RunError:
    return RunError(
        f"thread ({thread}) reads element {element} of {name}, which nothing has written yet"
    )


def _race(name: str, element: int, does: str, now: Access, did: str, before: Access) -> RunError:
    return RunError(
        f"race on element {element} of {name}: thread ({now.thread}) {does} what thread "
        f"({before.thread}) {did}, with no barrier between them"
    )
