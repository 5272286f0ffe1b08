"""Sorting integers in memory by a network of vector minima and maxima (bitonic merges).

All comparators put the lesser element first, so that whole vectors are compared at once and there
are no branches. A run of ``tile`` vectors is sorted in registers: its columns by Batcher's network,
which needs no shuffles, then transposed, so that each lane's column becomes a run, then merged.
Longer runs are merged in memory: the first step compares a run with the mirror image of its
neighbour, each other step compares at half the previous distance; the last steps are done in
registers again.

Elements beyond the end are the greatest number: no comparator moves them, so steps that would touch
nothing else are skipped, and any number of tiles is possible.

Two steps in memory are done at once, on four vectors. Data larger than a cache are processed by
blocks: each is sorted, and merge steps at distances below a block are done block by block.

With ``is_shared`` threads share the blocks, and the vectors that are compared between blocks. Each
thread then has its own registers.

The code in registers is most of the program, so there is only one copy: sorting and merging are
iterations of the same loops, with conditions on the steps that only some of them need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tilewright.arith import simplify
from tilewright.ir import (
    TRUE,
    Expr,
    ExprLike,
    Shuffle,
    Var,
    as_expr,
    as_int,
    call,
    ceildiv,
    const,
    is_const,
    maximum,
    minimum,
    select,
)
from tilewright.script import tir as T
from tilewright.tir import (
    PARALLEL,
    SERIAL,
    UNROLLED,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    Stmt,
    decl_buffer,
    seq,
)
from tilewright.tir.attrs import AUTO_STEP, KEEP_WHOLE
from tilewright.tir.building import lanes_from, let, loop
from tilewright.tir.script.parser import expand

# Vectors of a block: half of a small second cache.
_BLOCK = 2048


LOOPS = {SERIAL: T.serial, PARALLEL: T.parallel}
#: A loop that nothing is to cut or unroll: its body is long, and there shall be one of it.
KEPT = {KEEP_WHOLE: 1, AUTO_STEP: 0}


def kept_loop(name: str, extent: ExprLike, body: Callable[[Var], Stmt]) -> Stmt:
    """A loop that is not unrolled or removed."""
    made = loop(name, extent, body)
    return made.replace(annotations=dict(KEPT)) if isinstance(made, For) else made


class Span(NamedTuple):
    """Neighbouring vectors: the first, and how many."""

    start: Expr
    vectors: Expr

    def at(self, offset: Expr) -> Expr:
        """The index of one of them."""
        return self.start + offset


class SortNetwork:
    """Sorts the first ``vectors`` vectors of a buffer of integers, a multiple of ``tile``.

    ``tile`` is a power of two and a multiple of ``lanes``, ``block`` a power of two of tiles.
    """

    def __init__(
        self,
        keys: Buffer,
        lanes: int,
        tile: int,
        block: int = _BLOCK,
        *,
        is_shared: bool = False,
    ) -> None:
        assert tile % lanes == 0 and not tile & (tile - 1), "tiles are whole squares of lanes"
        assert block % tile == 0 and not block & (block - 1), "blocks are whole tiles"
        self.keys, self.lanes, self.tile, self.block = keys, lanes, tile, block
        self.registers = decl_buffer((tile, lanes), keys.dtype, "registers", scope="local")
        self.is_shared = is_shared

    @property
    def alloc(self) -> list[Buffer]:
        """The buffers to allocate around the network."""
        return [] if self.is_shared else [self.registers]

    def build(self, vectors: ExprLike) -> Stmt:
        """Sort in ascending order; ``alloc`` must be allocated around this."""
        span = Span(const(0), simplify(as_expr(vectors)))
        most = as_int(self.keys.shape[0])
        if not self.is_shared and most is not None and most <= self.block * self.lanes:
            return expand(self.sort, span)
        return expand(self.sort_blocks, span)

    @property
    def _kind(self) -> str:
        """The kind of loops over vectors of all blocks."""
        return PARALLEL if self.is_shared else SERIAL

    # ---- in memory ----

    @T.macro
    def sort_blocks(self, span: Span) -> None:
        """Sort each block in the first iteration; each later one merges runs twice as long."""
        turns = T.meta_var(simplify(_levels(span.vectors, self.block) + 1))
        for turn in T.serial(turns, annotations=KEPT):
            if turn > 0:
                half = simplify(call("shift_left", const(self.block), turn - 1))
                self.mirrors(half, span, self._kind)
                self.halves(turn - 1, half, span, self._kind)
            if self.is_shared:
                for b in T.parallel(simplify(ceildiv(span.vectors, const(self.block)))):
                    with T.block("sort_block"):
                        vturn = T.axis.spatial(turns, turn)
                        vb = T.axis.remap("S", [b])
                        T.alloc_buffer(self.registers)
                        self.sort_block(span, vb, vturn)
            else:
                for block in T.serial(simplify(ceildiv(span.vectors, const(self.block)))):
                    self.sort_block(span, block, turn)

    @T.macro
    def sort_block(self, span: Span, block: Expr, turn: Expr) -> None:
        """Sort a block in the first iteration, and merge it in the others."""
        start = T.meta_var(block * self.block)
        size = simplify(minimum(self.block, span.vectors - start))
        self.sort(Span(start, size), turn == 0)

    @T.macro
    def sort(self, span: Span, fresh: Expr = TRUE) -> None:
        """Sort data that fit a cache: ``fresh``, or one bitonic sequence of a whole block."""
        levels = T.meta_var(_levels(span.vectors, self.tile))
        if not is_const(fresh, True):
            last = T.meta_var((self.block // self.tile).bit_length())
            turns = T.meta_var(simplify(select(fresh, levels + 1, 1)))
            for turn in T.serial(turns, annotations=KEPT):
                level = simplify(select(fresh, 0, last) + turn)
                if level > 0:
                    half = simplify(call("shift_left", const(self.tile), level - 1))
                    if fresh:
                        self.mirrors(half, span)
                    self.halves(level - 1, half, span)
                self.tiles(span, level == 0)
        elif as_int(levels) == 0:
            self.tiles(span, TRUE)
        else:
            for turn in T.serial(simplify(levels + 1), annotations=KEPT):
                if turn > 0:
                    half = simplify(call("shift_left", const(self.tile), turn - 1))
                    self.mirrors(half, span)
                    self.halves(turn - 1, half, span)
                self.tiles(span, turn == 0)

    @T.macro
    def tiles(self, span: Span, fresh: Expr) -> None:
        """Sort each tile in registers."""
        for tile in T.serial(simplify(span.vectors // self.tile)):
            first = simplify(span.at(tile * self.tile))
            self._tile(first, fresh)

    @T.macro
    def mirrors(self, half: Expr, span: Span, kind: str = SERIAL) -> None:
        """Compare runs of ``half`` vectors with the mirror images of their neighbours."""
        for pair in T.serial(simplify(ceildiv(span.vectors, half * 2))):
            stop = simplify((pair + 1) * (half * 2))
            skipped = T.meta_var(T.max(stop - span.vectors, T.int64(0)))
            for i in LOOPS[kind](simplify(maximum(half - skipped, 0))):
                low = T.meta_var(span.at(stop - half * 2 + skipped + i))
                high = T.meta_var(span.at(stop - 1 - skipped - i))
                self._exchange(low, high, self._reversed)

    @T.macro
    def halves(self, steps: Expr, half: Expr, span: Span, kind: str = SERIAL) -> None:
        """Run ``steps`` steps, at half of ``half`` vectors and so on; two at a time."""
        is_odd = T.meta_var(simplify(steps % 2))
        for odd in T.serial(is_odd):  # noqa: B007
            distance = simplify(call("shift_right", half, const(1)))
            self.halve(distance, span, kind)
        start = simplify(call("shift_right", half, is_odd))
        for step in T.serial(simplify(steps // 2)):
            distance = simplify(call("shift_right", start, step * 2 + 2))
            self.quarter(distance, span, kind)

    @T.macro
    def halve(self, distance: Expr, span: Span, kind: str, first: ExprLike = 0) -> None:
        """Compare vectors at a distance, from group ``first`` of two distances on."""
        for group in T.serial(simplify(ceildiv(span.vectors, distance * 2) - first)):
            start = T.meta_var((group + first) * (distance * 2))
            extent = T.meta_var(maximum(minimum(distance, span.vectors - start - distance), 0))
            for i in LOOPS[kind](simplify(extent)):
                low = T.meta_var(span.at(start) + i)
                self._exchange(low, low + distance)

    @T.macro
    def quarter(self, distance: Expr, span: Span, kind: str) -> None:
        """Compare at twice a distance, then at the distance; first in all whole groups."""
        groups = simplify(span.vectors // (distance * 4))
        for group in T.serial(groups):
            start = T.meta_var(span.at(group * (distance * 4)))
            for i in LOOPS[kind](distance):
                self._exchange_four(start + i, distance)
        self.halve(distance * 2, span, kind, groups)
        self.halve(distance, span, kind, groups * 2)

    def _exchange_four(self, first: Expr, distance: Expr) -> Stmt:
        places = [first + distance * n for n in range(4)]
        values = [Var(name, self._dtype) for name in "abcd"]
        lows = [Var(f"{name}_low", self._dtype) for name in "ab"]
        highs = [Var(f"{name}_high", self._dtype) for name in "ab"]
        body = seq(
            self._put(minimum(*lows), places[0]),
            self._put(maximum(*lows), places[1]),
            self._put(minimum(*highs), places[2]),
            self._put(maximum(*highs), places[3]),
        )
        for n in (1, 0):
            body = LetStmt(highs[n], maximum(values[n], values[n + 2]), body)
            body = LetStmt(lows[n], minimum(values[n], values[n + 2]), body)
        for value, place in zip(reversed(values), reversed(places)):
            body = LetStmt(value, self._vector(place), body)
        return body

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

    def _tile(self, first: Expr, fresh: Expr) -> Stmt:
        """Sort a tile; unless it is ``fresh``, it is one bitonic sequence."""

        def take(r: Var) -> Stmt:
            return self._set(r, self._vector(first + r))

        def give(r: Var) -> Stmt:
            return self._put(self._register(r), first + r)

        takes, gives = (loop("r", self.tile, body, UNROLLED) for body in (take, give))
        columns = seq(*(self._compare(const(i), const(j)) for i, j in batcher(self.tile)))
        if self.lanes == 1:
            return seq(takes, IfThenElse(fresh, columns, seq(*self._steps(self.tile // 2))), gives)
        # Then the column of each lane is a run, in so many neighbouring vectors.
        columns = IfThenElse(fresh, seq(columns, *self._transpose()))
        return seq(takes, columns, self._merges(fresh), gives)

    def _merges(self, fresh: Expr) -> Stmt:
        """Merge runs until there is one; a bitonic sequence needs only the last merge's end."""
        count = self.lanes.bit_length() - 1
        runs = [(self.tile // self.lanes) << (n + 1) for n in range(count)]
        if is_const(fresh, True):
            # A row that is one tile: turns of a loop would wait for each other.
            merges = [[self._meets(run), *self._steps(run // 4), self._lanes()] for run in runs]
            return seq(*(stmt for merge in merges for stmt in merge))

        def merge(level: Expr) -> Stmt:
            first = self._apart(self.tile // 2)
            for n, run in reversed(list(enumerate(runs))):
                first = IfThenElse(level == n, self._meets(run), first)
            stmts = [first]
            distance = self.tile // 4
            while distance:
                least = next((n for n, run in enumerate(runs) if run >= 4 * distance), count)
                stmts.append(IfThenElse(level >= least, self._apart(distance)))
                distance //= 2
            return seq(*stmts, self._lanes())

        start, turns = select(fresh, 0, count), select(fresh, count, 1)
        return kept_loop("merge", turns, lambda t: let("level", start + t, merge))

    def _lanes(self) -> Stmt:
        """Sort each two registers, which are a bitonic sequence each."""
        return loop("p", self.tile // 2, lambda p: self._within(p * 2, p * 2 + 1), UNROLLED)

    def _steps(self, distance: int) -> list[Stmt]:
        """Compare at a distance, at half of it and so on."""
        return [self._apart(distance >> n) for n in range(distance.bit_length())]

    def _meets(self, run: int) -> Stmt:
        """Compare each half of ``run`` registers with the mirror image of the other."""
        return self._pairs(run // 2, lambda g, i: self._meet(g * run + i, g * run + (run - 1) - i))

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
        """Set register ``i`` to register ``sources[i]``, by copies, which cost nothing."""
        names = [Var(f"v{r}", self._dtype) for r in range(len(sources))]
        stmt = seq(*(self._set(const(r), names[source]) for r, source in enumerate(sources)))
        for r, name in enumerate(names):
            stmt = LetStmt(name, self._register(const(r)), stmt)
        return [stmt]

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

        Elements are rearranged between steps so that one comparator handles both registers.
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
    """Positions of the elements that come first in their pair, and of their partners.

    ``at`` gives the element at each position. If possible, elements stay in their group of
    ``in_group`` lanes: such shuffles are cheaper.
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
