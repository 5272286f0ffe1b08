"""How threads use memory: bank conflicts of shared memory, sectors of global memory.

Accesses of the lanes of a warp at one place of the program, in one iteration of the loops around
it, are one request. Of shared memory, which has 32 banks of 4 bytes, a request takes a *wavefront*
for each different word that falls on one bank; lanes that bring 8 or 16 bytes are served by halves
or quarters of a warp (CUDA C++ Programming Guide, "Shared memory"). Of global memory it takes
*sectors* of 32 bytes. Arrays begin at a multiple of 128 bytes, as on the device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tilewright.support.errors import RunError

BANKS, WORD, SECTOR, WIDEST = 32, 4, 32, 16
_Array = np.ndarray[Any, Any]


class Site(NamedTuple):
    """A place of the program that accesses memory."""

    buffer: str
    scope: str
    access: str
    text: str


@dataclass
class AccessReport:
    """What one place of the program did to memory, over the whole launch.

    ``requests`` of warps, each with ``lanes`` of them in total active; ``bytes`` that lanes asked
    for. ``wavefronts`` of shared memory against the fewest for these requests, ``sectors`` of
    global memory against the fewest that hold the bytes.
    """

    site: Site
    requests: int = 0
    lanes: int = 0
    bytes: int = 0
    wavefronts: int = 0
    ideal_wavefronts: int = 0
    sectors: int = 0
    ideal_sectors: int = 0

    @property
    def conflicts(self) -> int:
        """Wavefronts that would not be needed without bank conflicts."""
        return self.wavefronts - self.ideal_wavefronts

    @property
    def conflicts_per_request(self) -> float:
        """Bank conflicts of a request, on average."""
        return self.conflicts / self.requests if self.requests else 0.0

    @property
    def sector_efficiency(self) -> float:
        """Share of the moved sectors that is needed; 1 for coalesced accesses."""
        return self.ideal_sectors / self.sectors if self.sectors else 1.0


@dataclass(frozen=True)
class MemoryReport:
    """All places of a program that access memory of scope shared or global, in program order."""

    accesses: tuple[AccessReport, ...] = field(default_factory=tuple)

    def of(self, buffer: str, access: str | None = None) -> list[AccessReport]:
        """The accesses of a buffer, by its name; ``access`` is ``load``, ``store`` or ``update``.

        Raises ``RunError`` if there are none.
        """
        found = [
            item
            for item in self.accesses
            if item.site.buffer == buffer and access in (None, item.site.access)
        ]
        if not found:
            names = ", ".join(dict.fromkeys(item.site.buffer for item in self.accesses))
            raise RunError(
                f"no {access or 'access'} of {buffer!r} in the report, which has {names}"
            )
        return found

    def _total(self, name: str, scope: str) -> int:
        return sum(
            getattr(item, name)
            for item in self.accesses
            if item.site.scope.partition(".")[0] == scope
        )

    @property
    def bank_conflicts(self) -> int:
        """Bank conflicts of the whole launch."""
        return self._total("conflicts", "shared")

    @property
    def wavefronts(self) -> int:
        """Wavefronts of shared memory of the whole launch."""
        return self._total("wavefronts", "shared")

    @property
    def sectors(self) -> int:
        """Sectors of global memory that are moved, counting each request by itself."""
        return self._total("sectors", "global")

    @property
    def ideal_sectors(self) -> int:
        """The fewest sectors that hold what requests ask for."""
        return self._total("ideal_sectors", "global")

    def table(self) -> str:
        """Return the report as a table."""
        head = ("access", "buffer", "scope", "requests", "bytes", "taken", "ideal", "per request")
        rows: list[tuple[str, ...]] = [head]
        for item in self.accesses:
            shared = item.site.scope.startswith("shared")
            taken = item.wavefronts if shared else item.sectors
            ideal = item.ideal_wavefronts if shared else item.ideal_sectors
            unit = "conflicts" if shared else "sectors"
            each = item.conflicts_per_request if shared else taken / max(item.requests, 1)
            numbers = map(str, (item.requests, item.bytes, taken, ideal))
            site = item.site
            rows.append((site.access, site.text, site.scope, *numbers, f"{each:.2f} {unit}"))
        widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
            for row in rows
        )


class Traffic:
    """Collects the accesses of a launch, block by block."""

    def __init__(self, sites: Mapping[int, Site]) -> None:
        self.sites = sites
        self.totals: dict[int, AccessReport] = {}
        self._requests: dict[Any, dict[int, tuple[int, int]]] = {}

    def note(self, thread: Any, number: int, loops: Any, memory: _Array, place: Any) -> None:
        """Note that a thread accesses elements at a place of the program."""
        size = memory.itemsize
        if not isinstance(place, np.ndarray):
            self._add((number, loops, thread.warp, 0), thread.lane, place * size, size)
            return
        for piece, (start, width) in enumerate(_pieces(place, size)):
            self._add((number, loops, thread.warp, piece), thread.lane, start, width)

    def note_tile(
        self, thread: Any, number: int, loops: Any, memory: _Array, places: _Array
    ) -> None:
        """Note a tile that a warp accesses as one: by rows of 16 bytes, eight at a time."""
        lane = 0
        per = max(1, WIDEST // memory.itemsize)
        for column in range(0, places.shape[1], per):
            for row in places:
                start = int(row[column]) * memory.itemsize
                width = min(per, row.size - column) * memory.itemsize
                key = (number, loops, thread.warp, ("tile", lane // 32))
                self._add(key, lane % 32, start, width)
                lane += 1

    def _add(self, key: Any, lane: int, start: int, width: int) -> None:
        request = self._requests.setdefault(key, {})
        turn = 0
        while lane in request:  # a loop without a variable: the lane is there again
            turn += 1
            request = self._requests.setdefault((*key, turn), {})
        request[lane] = (int(start), width)

    def end_block(self) -> None:
        """Count what the block's warps have asked for."""
        for key, request in self._requests.items():
            site = self.sites[key[0]]
            total = self.totals.setdefault(key[0], AccessReport(site))
            starts, widths = np.array(list(request.values())).T
            total.requests += 1
            total.lanes += len(starts)
            total.bytes += int(widths.sum())
            if site.scope.startswith("shared"):
                lanes = np.fromiter(request, int)
                taken, ideal = wavefronts(lanes, starts, widths)
                total.wavefronts += taken
                total.ideal_wavefronts += ideal
            else:
                taken, ideal = sectors(starts, widths)
                total.sectors += taken
                total.ideal_sectors += ideal
        self._requests.clear()

    def report(self) -> MemoryReport:
        """What was counted, in program order."""
        return MemoryReport(tuple(self.totals[number] for number in sorted(self.totals)))


def _pieces(places: _Array, size: int) -> Iterator[tuple[int, int]]:
    """Runs of neighbours as first byte and bytes, none wider than a thread accesses at once."""
    ends = np.flatnonzero(np.diff(places) != 1) + 1
    for run in np.split(places, ends):
        first, total = int(run[0]) * size, run.size * size
        for offset in range(0, total, WIDEST):
            yield first + offset, min(WIDEST, total - offset)


def wavefronts(lanes: _Array, starts: _Array, widths: _Array) -> tuple[int, int]:
    """Return wavefronts of a request to shared memory, and the fewest for as many words.

    Lanes that want the same word share it.
    """
    width = int(widths.max())
    group = 32 if width <= WORD else 16 if width <= 2 * WORD else 8
    taken = ideal = 0
    for number in range(32 // group):
        chosen = lanes // group == number
        if not chosen.any():
            continue
        words = _units(starts[chosen], widths[chosen], WORD)
        taken += int(np.bincount(words % BANKS).max())
        ideal += -(-words.size // BANKS)
    return taken, ideal


def sectors(starts: _Array, widths: _Array) -> tuple[int, int]:
    """Return sectors of a request to global memory, and the fewest that hold its bytes."""
    needed = _units(starts, widths, 1).size
    return _units(starts, widths, SECTOR).size, -(-needed // SECTOR)


def _units(starts: _Array, widths: _Array, unit: int) -> _Array:
    """Numbers of all units (words, sectors) that pieces touch, each once."""
    first, last = starts // unit, (starts + widths - 1) // unit
    most = int((last - first).max()) + 1
    steps = first[:, None] + np.arange(most)
    made: _Array = np.unique(steps[steps <= last[:, None]])
    return made
