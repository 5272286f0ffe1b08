"""Elements at which iterations of one loop meet that run at the same time, found by trying.

Two iterations meet where one writes an element that the other reads or writes too. Whether some do
is asked of a few instances of each access: loops inside at their first and last iterations, loops
around where they begin and end, unknown extents of parameters at a few values. So what is found is
a proof that the program races; that nothing is found proves nothing. Left alone are

- a read of what the reader's own iteration may have written: iterations that compute the same halo
  write the same there;
- two writes whose values aren't seen to differ: of what is not made of constants and of parameters
  that the function leaves as they are, nothing is seen;
- in vectorized loops, whose lanes go from statement to statement together, what comes in the same
  order as without vectors;
- accesses that data decide, of vectors, by other names, in a value that a ``Select`` may drop, and
  all in loops that call what has effects: barriers and atomic updates keep an order of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.arith import NotEvaluable, evaluate
from tilewright.ir import (
    EFFECTS,
    TRUE,
    Add,
    Call,
    Cast,
    FloatImm,
    IntImm,
    Max,
    Min,
    Mul,
    Range,
    Select,
    Sub,
    Var,
    add,
    content_mask,
    contents,
    dtypes,
    is_const,
    pre_order,
    substitute,
)
from tilewright.tir.analysis.accesses import Access, detect_accesses
from tilewright.tir.analysis.regions import relax
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import VECTORIZED, AssertStmt, Block, BufferStore, For
from tilewright.tir.walk import child_blocks, statements

_SIZES = (8, 200)
"""What unknown sizes are taken to be, if no assertion speaks of them."""
_MANY, _SOME, _ENDS = (np.array([*range(n), *range(-n, 0)]) for n in (8, 2, 1))
"""Iterations that are tried: of the loop in question, of loops inside, and of those around."""
_MOST_INSTANCES, _MOST_SHARED = 1024, 16
_HARMLESS = ("prefetch", "assume")
_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    Add: lambda a, b: a + b,
    Sub: lambda a, b: a - b,
    Mul: lambda a, b: a * b,
    Max: max,
    Min: min,
}


class Meetings:
    """Finds where iterations of a function's loops meet."""

    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self._accesses: list[Access] | None = None

    def find(
        self, loop: For, is_own: Callable[[Buffer], bool], *, of_blocks: bool = False
    ) -> str | None:
        """Say where iterations of a loop meet, in memory that these don't have for themselves.

        ``is_own`` says of a buffer whether they have. With ``of_blocks`` only what several blocks
        use is looked at, which is soon seen to be little.
        """
        shared = None
        if of_blocks:
            several = _of_several_blocks(loop)
            shared = {data for data, buffer in several.items() if not is_own(buffer)}
        if (shared is not None and not shared) or _has_effects(loop):
            return None
        found = self._all() if shared is None else detect_accesses(self.func, of=shared)
        inside = [item for item in found if loop in item.loops]
        for buffer in dict.fromkeys(item.buffer for item in inside if item.is_write):
            if is_own(buffer):
                continue
            users = [item for item in inside if item.buffer.data is buffer.data]
            if any(item.buffer is not buffer or item.pointer for item in users):
                continue
            for sizes in self._sizes():
                where = _Trial(self, loop, users, sizes).meeting()
                if where is not None:
                    return where
        return None

    def _all(self) -> list[Access]:
        if self._accesses is None:
            self._accesses = detect_accesses(self.func)
        return self._accesses

    def is_input(self, buffer: Buffer) -> bool:
        """Whether a buffer is a parameter that the function leaves as it is."""
        return any(buffer is item for item in self.func.buffers) and not any(
            (item.is_write or item.pointer) and item.buffer.data is buffer.data
            for item in self._all()
        )

    def _sizes(self) -> Iterator[dict[Var, int]]:
        shapes = [extent for buffer in self.func.buffers for extent in buffer.shape]
        unknown = [item for item in shapes if type(item) is Var]
        if not unknown:
            yield {}
        elif not contents(self.func.body) & content_mask(AssertStmt):
            yield from (dict.fromkeys(unknown, size) for size in _SIZES)


def _of_several_blocks(loop: For) -> dict[Var, Buffer]:
    """The memory below a loop that one of the innermost blocks writes, and another one uses."""
    written, used, found = set[Var](), set[Var](), dict[Var, Buffer]()
    for item in statements(loop):
        if type(item) is not Block or child_blocks(item):
            continue
        writes = {region.buffer.data for region in item.writes}
        reads = {region.buffer.data for region in item.reads}
        for region in (*item.writes, *item.reads):
            data = region.buffer.data
            if (data in writes and data in used) or (data in reads and data in written):
                found[data] = region.buffer
        written |= writes
        used |= writes | reads
    return found


def _has_effects(loop: For) -> bool:
    return bool(contents(loop.body) & content_mask(EFFECTS)) and any(
        type(item) is Call
        and item.op.effect in ("update", "opaque")
        and item.op.name not in _HARMLESS
        for item in pre_order(loop.body)
    )


class _Instances:
    """Some instances of an access: values of the variables, and which elements are accessed."""

    def __init__(self, access: Access, columns: dict[Var, Any], places: list[Any]) -> None:
        self.access, self.columns, self.places = access, columns, places
        self.rows: dict[int, list[int]] = {}  # by element, of those that iterations share


class _Trial:
    """One buffer under one loop, at given sizes."""

    def __init__(
        self, owner: Meetings, loop: For, users: Sequence[Access], sizes: Mapping[Var, int]
    ) -> None:
        self.owner, self.loop, self.users, self.sizes = owner, loop, users, sizes
        self.around = users[0].loops.index(loop)
        self.inner = slice(self.around + 1, None)
        self.boxes: dict[Access, list[Range]] = {}
        self.known: dict[tuple[For, ...], dict[Var, Any] | None] = {}

    def meeting(self) -> str | None:
        """Say where two iterations meet."""
        made = [item for item in map(self.instances, self.users) if item is not None]
        if not any(item.access.is_write for item in made) or not self.share(made):
            return None
        for writes in made:
            for others in made if writes.access.is_write else ():
                found = self.meet(writes, others)
                if found is not None:
                    return found
        return None

    # ---- instances ------------------------------------------------------------------------------

    def instances(self, access: Access) -> _Instances | None:
        if not self.is_followed(access):
            return None
        try:
            if access.loops not in self.known:
                self.known[access.loops] = self.columns(access)
            columns = self.known[access.loops]
            return None if columns is None else self.placed(access, columns)
        except NotEvaluable:
            return None

    def is_followed(self, access: Access) -> bool:
        if access.repeats or type(access.node) not in (BufferLoad, BufferStore):
            return False
        if not all(is_const(item.extent, 1) for item in access.box):
            return False
        return access.is_write or not any(
            type(item) is Select and any(part is access.node for part in pre_order(item))
            for item in pre_order(access.stmt)
        )

    def columns(self, access: Access) -> dict[Var, Any] | None:
        """Values of the loop variables in some instances; ``None`` if these are too many."""
        picks = [_ENDS] * self.around + [_MANY] + [_SOME] * len(access.loops[self.inner])
        for at in range(self.around + 1, len(picks)):  # the innermost are the longest, often
            if math.prod(map(len, picks)) > _MOST_INSTANCES:
                picks[at] = _ENDS
        columns: dict[Var, Any] = {var: np.array([size]) for var, size in self.sizes.items()}
        rows = 1
        for loop, numbers in zip(access.loops, picks):
            item = access.domain[loop.loop_var]
            low = np.broadcast_to(evaluate(item.min, columns), rows)
            extent = np.broadcast_to(evaluate(item.extent, columns), rows)[:, None]
            offsets = np.where(numbers < 0, extent + numbers, numbers)
            # What is counted from the end may have been counted from the beginning.
            taken = (offsets >= 0) & (offsets < extent)
            taken &= (numbers >= 0) | (offsets > numbers.max())
            counts = taken.sum(axis=1)
            rows = int(counts.sum())
            if rows > _MOST_INSTANCES:
                return None
            columns = {
                var: np.repeat(np.broadcast_to(column, len(counts)), counts)
                for var, column in columns.items()
            }
            columns[loop.loop_var] = np.repeat(low, counts) + offsets[taken]
        return columns

    def placed(self, access: Access, columns: dict[Var, Any]) -> _Instances:
        rows = len(columns[self.loop.loop_var])
        keep = np.ones(rows, bool)
        for condition in access.conditions:
            keep &= np.broadcast_to(evaluate(condition, columns), rows)
        places = []
        for item, extent in zip(access.box, access.shape):
            place = np.broadcast_to(evaluate(item.min, columns), rows)
            keep &= (place >= 0) & (place < evaluate(extent, columns))
            places.append(place)
        if not keep.all():
            columns = {var: column[keep] for var, column in columns.items()}
            places = [place[keep] for place in places]
        return _Instances(access, columns, places)

    def share(self, made: Sequence[_Instances]) -> bool:
        """Whether several iterations of the loop access an element; notes where they do."""
        around = [loop.loop_var for loop in self.users[0].loops[: self.around]]
        keys: Any = 0
        for parts in zip(*([*(item.columns[v] for v in around), *item.places] for item in made)):
            values, ranks = np.unique(np.concatenate(parts), return_inverse=True)
            keys = np.unique(keys * len(values) + ranks.reshape(-1), return_inverse=True)[1]
        iterations = np.concatenate([item.columns[self.loop.loop_var] for item in made])
        keys = np.broadcast_to(np.reshape(keys, -1), len(iterations))
        if not len(keys):
            return False
        order = np.argsort(keys, kind="stable")
        starts = np.flatnonzero(np.diff(keys[order], prepend=keys[order[0]] - 1))
        least = np.minimum.reduceat(iterations[order], starts)
        shared = keys[order][starts[least != np.maximum.reduceat(iterations[order], starts)]]
        first = 0
        for item in made if len(shared) else ():
            count = len(item.columns[self.loop.loop_var])
            own = keys[first : first + count]
            first += count
            for row in np.flatnonzero(np.isin(own, shared[:_MOST_SHARED])).tolist():
                item.rows.setdefault(int(own[row]), []).append(row)
        return len(shared) > 0

    # ---- meetings -------------------------------------------------------------------------------

    def meet(self, writes: _Instances, others: _Instances) -> str | None:
        var = self.loop.loop_var
        for element, rows in writes.rows.items():
            for other in others.rows.get(element, ()):
                for row in rows:
                    if writes.columns[var][row] == others.columns[var][other]:
                        continue
                    if self.races(writes, row, others, other):
                        return self.say(writes, row, others, other)
        return None

    def races(self, writes: _Instances, row: int, others: _Instances, other: int) -> bool:
        if self.loop.kind == VECTORIZED and not self.reordered(writes, row, others, other):
            return False
        if others.access.is_write:
            one, two = self.value(writes, row), self.value(others, other)
            return one is not None and two is not None and not math.isclose(one, two, rel_tol=1e-5)
        return not self.may_have_written(others, other)

    def reordered(self, a: _Instances, row: int, b: _Instances, other: int) -> bool:
        """Whether lanes that go together do in another order what one after the other did."""
        shared = 0
        for x, y in zip(a.access.loops[self.inner], b.access.loops[self.inner]):
            if x is not y:
                break
            shared += 1
        times = []
        for item, at in ((a, row), (b, other)):
            inner = item.access.loops[self.inner][:shared]
            steps = [int(item.columns[loop.loop_var][at]) for loop in inner]
            times.append((*steps, self.users.index(item.access)))
        var = self.loop.loop_var
        first = a.columns[var][row] < b.columns[var][other]
        return times[0] != times[1] and (times[0] < times[1]) != bool(first)

    def may_have_written(self, reads: _Instances, row: int) -> bool:
        """Whether the iteration that reads an element may itself have written it before."""
        values = self.values(reads, row)
        place = [int(column[row]) for column in reads.places]
        return any(not self.misses(item, place, values) for item in self.users if item.is_write)

    def misses(self, access: Access, place: Sequence[int], values: Mapping[Var, Any]) -> bool:
        """Whether an iteration of the loop surely leaves an element alone."""
        if access not in self.boxes:
            loops = [loop.loop_var for loop in access.loops[self.inner]]
            inner = {var: access.domain[var] for var in loops}
            self.boxes[access] = relax(list(access.box), inner, TRUE, access.buffer)
        try:
            return any(
                at < evaluate(item.min, values)
                or at >= evaluate(add(item.min, item.extent), values)
                for at, item in zip(place, self.boxes[access])
            )
        except NotEvaluable:
            return False

    def values(self, item: _Instances, row: int) -> dict[Var, Any]:
        """The variables of one instance, without those of loops inside."""
        inner = {loop.loop_var for loop in item.access.loops[self.inner]}
        return {var: column[row] for var, column in item.columns.items() if var not in inner}

    def value(self, item: _Instances, row: int) -> float | None:
        """What an instance stores, if all that is read are inputs: any number for each element."""
        around = {var: column[row] for var, column in item.columns.items()}
        store = item.access.node
        assert isinstance(store, BufferStore)

        def go(node: Any) -> Any:
            kind = type(node)
            if kind is IntImm or kind is FloatImm:
                return node.value
            if kind is Var:
                return int(evaluate(substitute(node, item.access.values), around))
            if kind is BufferLoad and self.owner.is_input(node.buffer):
                places = [substitute(index, item.access.values) for index in node.indices]
                place = tuple(int(evaluate(index, around)) for index in places)
                return 1 + hash((self.owner.func.buffers.index(node.buffer), place)) % 1009 / 128
            if kind in _ARITHMETIC:
                return _ARITHMETIC[kind](go(node.a), go(node.b))
            if kind is Cast and dtypes.is_float(node.dtype):
                return go(node.value)
            raise NotEvaluable

        try:
            return float(go(store.value))
        except NotEvaluable:
            return None

    def say(self, writes: _Instances, row: int, others: _Instances, other: int) -> str:
        """The two iterations in words."""
        var, buffer = self.loop.loop_var, writes.access.buffer
        place = ", ".join(str(int(column[row])) for column in writes.places)
        verb = "writes" if others.access.is_write else "reads"
        sizes = "".join(f" (of {size.name} = {value})" for size, value in self.sizes.items())
        return (
            f"iteration {writes.columns[var][row]}{sizes} writes {buffer.name}[{place}], and "
            f"iteration {others.columns[var][other]} {verb} it"
        )
