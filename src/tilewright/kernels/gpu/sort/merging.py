"""Merge sort by all threads of a block: the steps in shared memory.

Every thread merges the same number of elements: it finds by binary search which elements of two
sorted runs come before its own (merge path: Green, McColl, Bader 2012), and then takes the lesser
of two as often as it has places. Of equal elements that of the left run is taken, so all of it is
stable, and only keys are compared.

Element ``i`` is at ``i + i // 32`` in shared memory: then threads that each access neighbouring
elements meet in no bank.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from tilewright.ir import Expr, ExprLike, Var, and_, cast, const, if_then_else, not_
from tilewright.kernels.gpu.sizes import MOST_THREADS, is_power
from tilewright.kernels.problems.sort_keys import greatest
from tilewright.kernels.problems.sorting import Sorting
from tilewright.script import tir as T
from tilewright.tir import Buffer, LetStmt, Stmt, decl_buffer, seq
from tilewright.tir.building import load, store

_BANKS = 32


@dataclass(frozen=True)
class SortThreads:
    """Sizes: threads of a row, elements of a thread, and rows of a block.

    ``threads`` is a power of two, and so many threads sort a tile of a row at a time.
    """

    threads: int
    items: int
    rows: int = 1

    @property
    def tile(self) -> int:
        """Elements that are sorted in shared memory."""
        return self.threads * self.items

    @property
    def block(self) -> int:
        """Threads of a block."""
        return self.threads * self.rows

    def fault(self) -> str | None:
        """Say what is wrong with the sizes, if anything is."""
        if not is_power(self.threads) or min(self.items, self.rows) < 1:
            return "threads is a power of two; items and rows are at least one"
        if self.block > MOST_THREADS:
            return f"a block has at most {MOST_THREADS} threads"
        return None

    def shared_bytes(self, sorting: Sorting) -> int:
        """Bytes of shared memory."""
        element = key_bytes(sorting) + (4 if sorting.indices is not None else 0)
        return self.rows * padded(self.tile) * element


def key_bytes(sorting: Sorting) -> int:
    """Bytes of a key."""
    return sorting.coder(exact=True).bits // 8


def padded(count: int) -> int:
    """Places in shared memory for so many elements."""
    return count + count // _BANKS


class Span(NamedTuple):
    """Neighbouring elements: the first, and their number."""

    start: Expr
    length: Expr


class Elements:
    """Memory for keys and, if indices are requested, their places."""

    def __init__(self, sorting: Sorting, name: str, scope: str, *shape: ExprLike) -> None:
        kinds = {"keys": f"int{sorting.coder(exact=True).bits}"}
        if sorting.indices is not None:
            kinds["places"] = "int32"
        self.buffers = [
            decl_buffer(shape, dtype, f"{name}_{kind}", scope=scope)
            for kind, dtype in kinds.items()
        ]

    def key(self, *at: ExprLike) -> Expr:
        """A key."""
        return load(self.buffers[0], *at)

    def at(self, *at: ExprLike) -> list[Expr]:
        """A key and its place."""
        return [load(buffer, *at) for buffer in self.buffers]

    def put(self, values: list[Expr], *at: ExprLike) -> Stmt:
        """Store a key and its place."""
        return seq(*(store(buffer, value, *at) for buffer, value in zip(self.buffers, values)))


class Merging:
    """The threads of a block, and what they have of some rows."""

    row: Expr
    lane: Expr
    group: Expr

    def __init__(self, sorting: Sorting, sizes: SortThreads) -> None:
        self.sorting, self.sizes = sorting, sizes
        self.coder = sorting.coder(exact=sorting.indices is None)
        self.declare()

    def declare(self) -> None:
        """Declare the memory of one kernel."""
        sizes = self.sizes
        self.shared = Elements(self.sorting, "shared", "shared", sizes.rows * padded(sizes.tile))
        self.own = Elements(self.sorting, "own", "local", sizes.items)
        # Bounds of a search; then the next elements of both runs.
        self.low, self.high = (
            decl_buffer((1,), "int32", name, scope="local") for name in ("low", "high")
        )

    @property
    def buffers(self) -> list[Buffer]:
        """The memory to allocate in a kernel."""
        return [*self.shared.buffers, *self.own.buffers, self.low, self.high]

    def grid(self, blocks: Expr) -> tuple[Any, Any]:
        """Loops over blocks and threads."""
        return (
            T.thread_binding(blocks, thread="blockIdx.x"),
            T.thread_binding(self.sizes.block, thread="threadIdx.x"),
        )

    def enter(self, first_row: Expr, thread: Var) -> None:
        """Enter some rows, from the first on."""
        self.lane = thread % self.sizes.threads
        self.group = thread // self.sizes.threads
        self.row = first_row + self.group

    # ---- steps ----

    @T.macro
    def sort_tile(self) -> None:
        """Sort the tile: what threads have in registers, then runs of more and more threads."""
        items = self.sizes.items
        self.sort_own()
        self.give_own()
        for step in T.serial(self.sizes.threads.bit_length() - 1):
            run = T.shift_left(T.int64(items), step)
            base = self.lane * items // (run * 2) * (run * 2)
            self.merge_own(Span(base, run), Span(base + run, run), self.lane * items - base)
            self.give_own()

    @T.macro
    def sort_own(self) -> None:
        """Sort the thread's elements by exchanges of neighbours, which is stable."""
        for i in pairs_in_turn(self.sizes.items):
            if self.own.key(i + 1) < self.own.key(i):
                self.exchange(i)

    def exchange(self, i: int) -> Stmt:
        """Exchange two neighbouring elements of the thread."""
        stmts = []
        for buffer in self.own.buffers:
            first = Var("first", buffer.dtype)
            body = seq(
                store(buffer, load(buffer, i + 1), i),
                store(buffer, first, i + 1),
            )
            stmts.append(LetStmt(first, load(buffer, i), body))
        return seq(*stmts)

    @T.macro
    def give_own(self) -> None:
        """Put the thread's elements into shared memory."""
        for i in T.unroll(self.sizes.items):
            at = T.meta_var(self.at(self.lane * self.sizes.items + i))
            self.shared.put(self.own.at(i), at)

    @T.macro
    def merge_own(self, left: Span, right: Span, before: Expr) -> None:
        """Take the thread's elements of two merged runs in shared memory, after some others."""
        self.search(self._key_in(left), self._key_in(right), left, right, before)
        self.high[0] = T.Cast("int32", before) - self.low[0]
        for i in T.unroll(self.sizes.items):
            a = self.at(left.start + index(self.low))
            b = self.at(right.start + index(self.high))
            in_right = T.meta_var(index(self.high) < right.length)
            if self._takes_left(index(self.low) < left.length, in_right, a, b):
                self.own.put(self.shared.at(a), i)
                self.low[0] = self.low[0] + 1
            elif in_right:
                self.own.put(self.shared.at(b), i)
                self.high[0] = self.high[0] + 1
            else:
                self.own.put(self.last(), i)

    def _takes_left(self, in_left: Expr, in_right: Expr, a: Expr, b: Expr) -> Expr:
        """Whether the next element is of the left run; of equal ones it is."""
        later = self.shared.key(b) < self.shared.key(a)
        # Nothing is read beyond the end of a run.
        return if_then_else(and_(in_left, in_right), not_(later), in_left)

    def _key_in(self, run: Span) -> Callable[[Expr], Expr]:
        return lambda i: self.shared.key(self.at(run.start + i))

    @T.macro
    def search(
        self, left_key: Callable[[Expr], Expr], right_key: Callable[[Expr], Expr], left: Span,
        right: Span, before: Expr,
    ) -> None:  # fmt: skip
        """Into ``low``: how many of the first ``before`` elements of two merged runs are left."""
        self.low[0] = T.Cast("int32", T.max(before - right.length, 0))
        self.high[0] = T.Cast("int32", T.min(before, left.length))
        while self.low[0] < self.high[0]:
            middle = T.shift_right(self.low[0] + self.high[0], T.int32(1))
            place = T.meta_var(T.Cast("int64", middle))
            if right_key(before - 1 - place) < left_key(place):
                self.high[0] = middle
            else:
                self.low[0] = middle + 1

    # ---- elements ----

    def at(self, i: Expr) -> Expr:
        """Where an element of the tile is in shared memory."""
        place = i + i // _BANKS
        if self.sizes.rows == 1:
            return place
        return self.group * padded(self.sizes.tile) + place

    def read(self, k: Expr) -> list[Expr]:
        """An element of the row."""
        key = self.coder.encode(self.sorting.read(self.place_of_row(), k))
        return [key, cast(k, "int32")][: len(self.own.buffers)]

    def last(self) -> list[Expr]:
        """What comes after all elements."""
        dtype = self.own.buffers[0].dtype
        made = [const(greatest(self.coder.bits), dtype), const(0, "int32")]
        return made[: len(self.own.buffers)]

    def give(self, k: Expr, element: list[Expr]) -> Stmt:
        """Write the ``k``-th result of the row."""
        sorting, row = self.sorting, self.place_of_row()
        at = sorting.place(row, k)
        stmts = []
        if sorting.indices is not None:
            stmts.append(store(sorting.indices, cast(element[1], sorting.indices.dtype), *at))
            if sorting.values is not None:  # keys don't tell zeros apart
                value = sorting.read(row, cast(element[1], "int64"))
                stmts.append(store(sorting.values, value, *at))
        elif sorting.values is not None:
            stmts.append(store(sorting.values, self.coder.decode(element[0]), *at))
        return seq(*stmts)

    def place_of_row(self) -> list[Expr]:
        """The indices of the row."""
        made: list[Expr] = []
        rest: Expr = self.row
        for extent in reversed(self.sorting.rows[1:]):
            made.insert(0, rest % extent)
            rest = rest // extent
        return [rest, *made] if self.sorting.rows else []


def pairs_in_turn(count: int) -> list[int]:
    """The first elements of pairs of neighbours: odd and even ones in turn, until all is sorted."""
    return [i for turn in range(count) for i in range(turn % 2, count - 1, 2)]


def index(buffer: Buffer) -> Expr:
    """The number in a register, as an index."""
    return cast(load(buffer, 0), "int64")
