"""Sorting integers in memory by a network of vector minima and maxima (bitonic merges).

All comparators put the less element first, so that whole vectors are compared at once and there
are no branches. A run of ``tile`` vectors is sorted in registers: its columns by Batcher's network,
which needs no shuffles, then transposed, so that each lane's column becomes a run, then merged.
Longer runs are merged in memory: the first step compares a run with the mirror image of its
neighbour, the others compare at half the distance each; the last ones are done in registers again.

Elements beyond the end are the greatest number: no comparator moves them, so that steps which would
touch nothing else are left out, and any number of tiles will do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.arith import simplify
from tilewright.ir import (
    Expr,
    ExprLike,
    Shuffle,
    Var,
    as_expr,
    as_int,
    call,
    ceildiv,
    const,
    maximum,
    minimum,
)
from tilewright.tir import (
    SERIAL,
    UNROLLED,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    LetStmt,
    Stmt,
    decl_buffer,
    seq,
)
from tilewright.tir.building import lanes_from


def loop(name: str, extent: ExprLike, body: Callable[[Var], Stmt], kind: str = SERIAL) -> Stmt:
    """A loop from zero."""
    var = Var(name)
    return For(var, const(0), simplify(as_expr(extent)), kind, body(var))


def let(name: str, value: Expr, body: Callable[[Expr], Stmt]) -> Stmt:
    """A statement that uses a value more than once."""
    value = simplify(value)
    if as_int(value) is not None or isinstance(value, Var):
        return body(value)
    var = Var(name, value.dtype)
    return LetStmt(var, value, body(var))


class SortNetwork:
    """Sorts the first ``vectors`` vectors of a buffer of integers, a multiple of ``tile``.

    ``tile`` is a power of two and a multiple of ``lanes``.
    """

    def __init__(self, keys: Buffer, lanes: int, tile: int) -> None:
        assert tile % lanes == 0 and not tile & (tile - 1), "tiles are whole squares of lanes"
        self.keys, self.lanes, self.tile = keys, lanes, tile
        self.registers = decl_buffer((tile, lanes), keys.dtype, "registers", scope="local")

    def build(self, vectors: ExprLike) -> Stmt:
        """Sort in ascending order; the registers must be allocated around this."""
        count = simplify(as_expr(vectors))
        tiles = count // self.tile
        runs = loop("tile", tiles, lambda t: self._in_registers(t, self._sorted_tile()))
        levels = _levels(count, self.tile)
        if as_int(levels) == 0:
            return runs
        return seq(runs, loop("level", levels, lambda level: self._merge(level, count)))

    # ---- in memory ----

    def _merge(self, level: Expr, count: Expr) -> Stmt:
        """Merge neighbouring runs of ``tile << level`` vectors."""

        def merge(half: Expr) -> Stmt:
            return seq(
                loop("pair", ceildiv(count, half * 2), lambda p: self._mirror(p, half, count)),
                loop("step", level, lambda s: self._halve(s, half, count)),
                loop(
                    "tile",
                    count // self.tile,
                    lambda t: self._in_registers(t, self._merged_tile(self.tile, mirror=False)),
                ),
            )

        return let("half", call("shift_left", const(self.tile), level), merge)

    def _mirror(self, pair: Expr, half: Expr, count: Expr) -> Stmt:
        def pairs(stop: Expr) -> Stmt:
            skipped = maximum(stop - count, 0)

            def exchange(i: Expr) -> Stmt:
                low, high = stop - half * 2 + skipped + i, stop - 1 - skipped - i
                return self._exchange(low, high, self._reversed)

            return loop("i", maximum(half - skipped, 0), exchange)

        return let("stop", (pair + 1) * (half * 2), pairs)

    def _halve(self, step: Expr, half: Expr, count: Expr) -> Stmt:
        def at(distance: Expr) -> Stmt:
            def group(g: Expr) -> Stmt:
                start = g * (distance * 2)
                extent = maximum(minimum(distance, count - start - distance), 0)
                return loop("i", extent, lambda i: self._exchange(start + i, start + i + distance))

            return loop("group", ceildiv(count, distance * 2), group)

        return let("distance", call("shift_right", half, step + 1), at)

    def _exchange(
        self, low: Expr, high: Expr, turned: Callable[[Expr], Expr] = lambda value: value
    ) -> Stmt:
        """Compare two vectors in memory, the second one ``turned``."""
        a, b = Var("a", self._dtype), Var("b", self._dtype)
        body = seq(self._put(minimum(a, b), low), self._put(turned(maximum(a, b)), high))
        return LetStmt(a, self._vector(low), LetStmt(b, turned(self._vector(high)), body))

    @property
    def _dtype(self) -> str:
        return self._vector(const(0)).dtype

    def _vector(self, place: Expr) -> BufferLoad:
        return BufferLoad(self.keys, (lanes_from(place * self.lanes, self.lanes),))

    def _put(self, value: Expr, place: Expr) -> Stmt:
        return BufferStore(self.keys, value, (lanes_from(place * self.lanes, self.lanes),))

    def _reversed(self, value: Expr) -> Expr:
        return Shuffle((value,), tuple(reversed(range(self.lanes))))

    # ---- in registers ----

    def _register(self, number: Expr) -> BufferLoad:
        return BufferLoad(self.registers, (number, lanes_from(0, self.lanes)))

    def _set(self, number: Expr, value: Expr) -> Stmt:
        return BufferStore(self.registers, value, (number, lanes_from(0, self.lanes)))

    def _in_registers(self, tile: Expr, body: Stmt) -> Stmt:
        first = tile * self.tile

        def take(r: Var) -> Stmt:
            return self._set(r, self._vector(first + r))

        def give(r: Var) -> Stmt:
            return self._put(self._register(r), first + r)

        return seq(loop("r", self.tile, take, UNROLLED), body, loop("r", self.tile, give, UNROLLED))

    def _sorted_tile(self) -> Stmt:
        stmts = [self._compare(const(i), const(j)) for i, j in batcher(self.tile)]
        if self.lanes == 1:
            return seq(*stmts)
        stmts += self._transpose()
        # Now the column of each lane is a run, in so many neighbouring vectors.
        run = self.tile // self.lanes
        while run < self.tile:
            run *= 2
            stmts.append(self._merged_tile(run, mirror=True))
        return seq(*stmts)

    def _transpose(self) -> list[Stmt]:
        """Transpose squares of registers, and bring the vectors of a lane's column together."""
        lanes, squares = self.lanes, self.tile // self.lanes
        stmts: list[Stmt] = []
        step = 1
        while step < lanes:
            low = tuple(lanes + j - step if j & step else j for j in range(lanes))
            high = tuple(lanes + j if j & step else j + step for j in range(lanes))
            for r in range(self.tile):
                if not r & step:
                    stmts.append(self._shuffle(const(r), const(r + step), low, high))
            step *= 2
        if squares > 1:
            stmts += self._permute(
                [s * lanes + lane for lane in range(lanes) for s in range(squares)]
            )
        return stmts

    def _permute(self, sources: Sequence[int]) -> list[Stmt]:
        """Let register ``i`` be what register ``sources[i]`` was: copies, which cost nothing."""
        names = [Var(f"v{r}", self._dtype) for r in range(len(sources))]
        stmt = seq(*(self._set(const(r), names[source]) for r, source in enumerate(sources)))
        for r, name in enumerate(names):
            stmt = LetStmt(name, self._register(const(r)), stmt)
        return [stmt]

    def _merged_tile(self, run: int, *, mirror: bool) -> Stmt:
        """Sort each ``run`` registers: two sorted halves (``mirror``), or one bitonic sequence."""
        stmts: list[Stmt] = []
        if mirror:
            stmts.append(
                self._pairs(run // 2, lambda g, i: self._meet(g * run + i, g * run + (run - 1) - i))
            )
        distance = run // 4 if mirror else run // 2
        while distance:
            stmts.append(self._apart(distance))
            distance //= 2
        if self.lanes > 1:
            stmts.append(
                loop("p", self.tile // 2, lambda p: self._within(p * 2, p * 2 + 1), UNROLLED)
            )
        return seq(*stmts)

    def _apart(self, distance: int) -> Stmt:
        return self._pairs(
            distance,
            lambda g, i: self._compare(g * (2 * distance) + i, g * (2 * distance) + (i + distance)),
        )

    def _pairs(self, distance: int, body: Callable[[Expr, Expr], Stmt]) -> Stmt:
        groups = self.tile // (2 * distance)

        def group(g: Expr) -> Stmt:
            return loop("i", distance, lambda i: body(g, i), UNROLLED)

        return loop("g", groups, group, UNROLLED)

    def _compare(self, i: Expr, j: Expr) -> Stmt:
        return self._pair(i, j, lambda a, b: (minimum(a, b), maximum(a, b)))

    def _meet(self, i: Expr, j: Expr) -> Stmt:
        """Compare a register with the mirror image of another."""
        a, b = Var("a", self._dtype), Var("b", self._dtype)
        body = seq(self._set(i, minimum(a, b)), self._set(j, self._reversed(maximum(a, b))))
        return LetStmt(a, self._register(i), LetStmt(b, self._reversed(self._register(j)), body))

    def _shuffle(self, i: Expr, j: Expr, low: Sequence[int], high: Sequence[int]) -> Stmt:
        return self._pair(
            i, j, lambda a, b: (Shuffle((a, b), tuple(low)), Shuffle((a, b), tuple(high)))
        )

    def _pair(self, i: Expr, j: Expr, made: Callable[[Expr, Expr], tuple[Expr, Expr]]) -> Stmt:
        a, b = Var("a", self._dtype), Var("b", self._dtype)
        low, high = made(a, b)
        body = seq(self._set(i, low), self._set(j, high))
        return LetStmt(a, self._register(i), LetStmt(b, self._register(j), body))

    def _within(self, i: Expr, j: Expr) -> Stmt:
        """Sort two registers, each of which is bitonic: at each step partners meet lane by lane.

        Elements change their places between steps so that one comparator serves both registers.
        """
        stmts: list[Stmt] = []
        at = [[(r, lane) for lane in range(self.lanes)] for r in (0, 1)]
        bits = self.keys.dtype.removeprefix("int")
        in_group = max(1, 128 // int(bits))
        distance = self.lanes // 2
        while distance:
            low, high = _partners(at, distance, in_group)
            stmts += [self._shuffle(i, j, low, high), self._compare(i, j)]
            flat = at[0] + at[1]
            at = [[flat[n] for n in low], [flat[n] for n in high]]
            distance //= 2
        flat = at[0] + at[1]
        back = {place: n for n, place in enumerate(flat)}
        low, high = ([back[r, lane] for lane in range(self.lanes)] for r in (0, 1))
        return seq(*stmts, self._shuffle(i, j, low, high))


def _partners(
    at: list[list[tuple[int, int]]], distance: int, in_group: int
) -> tuple[list[int], list[int]]:
    """Places of the elements that come first in their pair, and of their partners.

    ``at`` says which element is where. Where possible elements stay in their group of so many
    lanes: such shuffles are cheaper.
    """
    flat = at[0] + at[1]
    lanes = len(at[0])
    first = [n for n, (_, lane) in enumerate(flat) if not lane & distance]
    if distance < in_group:
        first.sort(key=lambda n: (n % lanes // in_group, n // lanes, n % lanes))
    where = {place: n for n, place in enumerate(flat)}
    partners = [where[flat[n][0], flat[n][1] | distance] for n in first]
    return first, partners


def batcher(size: int) -> list[tuple[int, int]]:
    """Comparators of Batcher's odd-even merge sort for a power of two."""
    made: list[tuple[int, int]] = []
    p = 1
    while p < size:
        k = p
        while k:
            for j in range(k % p, size - k, 2 * k):
                for i in range(min(k, size - j - k)):
                    if (i + j) // (2 * p) == (i + j + k) // (2 * p):
                        made.append((i + j, i + j + k))
            k //= 2
        p *= 2
    return made


def _levels(count: Expr, tile: int) -> Expr:
    """How often runs of ``tile`` vectors must be merged until there is one."""
    known = as_int(count)
    if known is not None:
        return const(max(0, (-(-known // tile) - 1).bit_length()))
    return 64 - call("clz", maximum(count // tile - 1, 0))
