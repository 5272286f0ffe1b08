"""Products of a warpgroup that are under way: ``ptx_wgmma``, its groups, and waiting for them.

Four warps start a product together. Its accumulators hold nothing that can be used until the
threads have waited for its group; only another product may go on with them. Its tiles in shared
memory are read at any time until then, so they count as read when it starts and again when a thread
waits, and nobody may have written there in between.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.support.errors import RunError
from tilewright.tir.fragments import (
    TURNED,
    TURNED_DEPTH,
    WARPGROUP_SIZE,
    sizes,
    swizzled,
    wgmma_accumulator_map,
)
from tilewright.tir.interpreter.warp_matrix import Operand

Array = np.ndarray[Any, Any]


class Begun:
    """A product under way, as somebody who reads: it sees what its thread saw when it began."""

    def __init__(self, thread: Any) -> None:
        self.block, self.warp, self.thread = thread.block, thread.warp, thread
        self.seen = dict(thread.seen)
        self.access = thread.access()._replace(thread=self)

    def __str__(self) -> str:
        return f"{self.thread}, by a product under way"


class Products:
    """What one thread of a warpgroup has under way."""

    def __init__(self, thread: Any) -> None:
        self.thread = thread
        self.fenced = False
        self.results: dict[tuple[int, int], tuple[Operand, Array]] = {}
        """Accumulators that are not there yet, by where they will be."""
        self.started: list[Any] = []
        self.groups: list[list[Any]] = []

    def commit(self) -> None:
        """Make a group of the products since the last commit."""
        self.groups.append(self.started)
        self.started = []

    def wait(self, in_flight: int) -> None:
        """Make results of all but the last groups arrive."""
        while len(self.groups) > in_flight:
            for key, reads in self.groups.pop(0):
                for operand, places, begun in reads:
                    races, constant = self.thread.block.races, operand.constant
                    if races is not None:
                        races.unchanged(
                            begun.access, operand.memory, places.reshape(-1),
                            constant.name, constant.bytewise,
                        )  # fmt: skip
                    operand.note("read", places)
                later = any(key == other for group in self.groups for other, _ in group)
                if key in self.results and not later:
                    operand, values = self.results.pop(key)
                    operand.write(values[None, :])

    def end(self) -> None:
        """Check that nothing is under way at the end of a thread."""
        if self.started or self.groups:
            raise RunError(
                f"thread ({self.thread}) ends without waiting for its products: "
                "ptx_wgmma_commit_group and ptx_wgmma_wait_group(0) are missing"
            )


def warpgroups_ready(threads: Sequence[Any], waiting: Sequence[Any]) -> list[Any]:
    """Run the products at which all threads of a warpgroup have arrived; return these."""
    if not any(thread.request[0] == "warpgroup" for thread in waiting):
        return []
    members: dict[Any, list[Any]] = defaultdict(list)
    for thread in threads:
        members[thread.warpgroup].append(thread)
    ready: list[Any] = []
    for group in members.values():
        requests = [thread.request for thread in group]
        if any(request is None or request[0] != "warpgroup" for request in requests):
            continue
        site = requests[0][1]
        if any(request[1] != site for request in requests):
            continue
        if len(group) != WARPGROUP_SIZE:
            raise RunError(
                f"thread ({group[0]}) at {site}: its warpgroup has {len(group)} threads, the "
                f"operator is of {WARPGROUP_SIZE}"
            )
        _wgmma(group, [request[2][1] for request in requests], site)
        ready += group
    return ready


def _wgmma(threads: Sequence[Any], brought: Sequence[Any], site: str) -> None:
    shape, turned, swizzle = brought[0][0], TURNED[brought[0][7]], brought[0][8]
    _, n, _ = sizes(shape)
    for thread in threads:
        if not thread.products.fenced:
            raise RunError(
                f"thread ({thread}) at {site}: its accumulators were written before without a "
                "ptx_wgmma_fence since"
            )
    tiles, reads = [], []
    for position, is_turned in zip((4, 5), turned):
        operands = [Operand(own[position], lane) for own, lane in zip(brought, threads)]
        for operand in operands:
            if (operand.first, operand.down) != (operands[0].first, operands[0].down):
                raise RunError(
                    f"threads of a warpgroup bring different places of "
                    f"{operand.constant.name} to {site}: thread ({threads[0]}) element "
                    f"{operands[0].first}, thread ({operand.lane}) element {operand.first}"
                )
        places = _permuted(operands[0], swizzle, site)
        operands[0].note("read", places)
        reads.append((operands[0], places, Begun(threads[0])))
        values = operands[0].memory[places]
        if is_turned:  # blocks, k, elements of a row
            blocks = values.reshape(-1, TURNED_DEPTH, values.shape[1])
            values = blocks.transpose(0, 2, 1).reshape(-1, TURNED_DEPTH)
        tiles.append(values.astype(np.int64 if values.dtype.kind == "i" else np.float64))
    with np.errstate(all="ignore"):
        product = tiles[0] @ tiles[1].T
    rows, columns = wgmma_accumulator_map(n)
    for number, (thread, own) in enumerate(zip(threads, brought)):
        operand = Operand(own[6], thread)
        pending = thread.products.results
        key = (operand.memory.__array_interface__["data"][0], int(operand.first))
        before = pending[key][1] if key in pending else operand.read()[0]
        with np.errstate(all="ignore"):
            total = product[rows[number], columns[number]] + before.astype(product.dtype)
        pending[key] = operand, total.astype(operand.memory.dtype)
        thread.products.started.append((key, reads if number == 0 else []))
        _forget(operand)


def _forget(operand: Operand) -> None:
    """Make accumulators hold nothing until the thread has waited."""
    places = operand.places()
    kind = operand.memory.dtype
    operand.memory[places] = np.nan if kind.kind == "f" else np.iinfo(kind).min
    races = operand.lane.block.races
    if races is not None:
        races.forget(operand.memory, places.reshape(-1))


def _permuted(tile: Operand, swizzle: int, site: str) -> Array:
    """Where the elements of a tile lie in permuted rows."""
    size = tile.memory.itemsize
    name = tile.constant.name
    if swizzle == 0:  # not permuted yet
        return tile.places()
    if tile.row_stride() * size != swizzle:
        raise RunError(
            f"{site}: rows of {name} lie {tile.row_stride() * size} bytes apart, with a swizzle of "
            f"{swizzle} bytes they must lie {swizzle} apart"
        )
    start = tile.byte()
    if start // swizzle % 8 or start % 32:
        raise RunError(
            f"{site}: the tile of {name} begins {start} bytes into shared memory; it must begin at "
            f"a multiple of 32 bytes in a row whose number is a multiple of 8"
        )
    made: Array = swizzled(tile.places() * size, swizzle) // size
    return made
