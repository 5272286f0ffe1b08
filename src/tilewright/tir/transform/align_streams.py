"""Let tiles begin where lines of the memory begin, so that their stores can go past the caches.

A streaming store writes a whole line at an aligned address. Arrays begin where their allocators
like (those of NumPy 16 bytes behind a line), and tiles counted from an array's beginning then
straddle lines. All rows of a result are shifted alike if their distance is a multiple of a line, so
the tiles are moved instead:

    for t in range(n / 16):  C[r * n + t * 16 + lane] = A[(t * 16 + lane) * m + r]

becomes

    shift = address of C modulo 64, in elements
    for t in range(n / 16 + (1 if shift else 0)):
        d = the distance from t * 16 to min(max(t * 16 - shift, 0), n - 16)
        C[r * n + t * 16 + d + lane] = A[(t * 16 + d + lane) * m + r]

The first and the last tile overlap their neighbours: what both write is the same, because nothing
reads the result. They are stored as usual (see ``codegen.llvm.streaming``).

Runs on flat buffers before loops are cut and vectorised; applies below stores that stream whole
lines only (``STREAMING_STORES`` of 2). A nest in which the tile's place is used for anything but
addresses stays as it is: its stores find out at run time whether they are aligned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.arith import Analyzer, linear_coefficients
from tilewright.ir import (
    INDEX,
    Call,
    Expr,
    Mutator,
    Var,
    as_int,
    call,
    collect,
    const,
    contains,
    dtypes,
    floordiv,
    maximum,
    minimum,
    uses_var,
)
from tilewright.tir.attrs import NO_ALIAS, STREAMING_STORES
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import (
    PARALLEL,
    SERIAL,
    UNROLLED,
    VECTORIZED,
    Allocate,
    AttrStmt,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
)
from tilewright.tir.transform.base import FunctionTransform
from tilewright.tir.walk import statements

_LINE_BYTES = 64
_has_attributes = contains(AttrStmt)


class AlignStreams(FunctionTransform):
    """Move tiles that are streamed to where the lines of their result begin."""

    def __init__(self, vector_bits: int = 512) -> None:
        self.align = min(vector_bits // 8, _LINE_BYTES)

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function; buffers that may overlap are left alone."""
        if not _has_attributes(func.body) or not func.attrs.get(NO_ALIAS, True):
            return func
        if not any(_is_stream(stmt) for stmt in statements(func)):
            return func
        return func.map_children(_Aligner(self.align).visit)


def _is_stream(stmt: Stmt) -> bool:
    return isinstance(stmt, AttrStmt) and stmt.key == STREAMING_STORES and as_int(stmt.value) == 2


class _Aligner(Mutator):
    def __init__(self, align: int) -> None:
        self.align = align

    def visit_Expr(self, node: Expr) -> Expr:
        return node

    def visit_For(self, node: For) -> Stmt:
        if not _has_attributes(node):
            return node
        tiles = _tiles_below(node, self.align)
        return self.generic_visit(node) if tiles is None else _moved(tiles, self.align)


@dataclass(frozen=True)
class _Tiles:
    """Loops that go through a row of the result, outermost first, with their steps in elements."""

    loops: tuple[For, ...]
    steps: tuple[int, ...]
    result: Buffer
    lanes: int
    extent: int


def _tiles_below(top: For, align: int) -> _Tiles | None:
    """Find the tiles whose outermost loop is ``top``, if they may be moved."""
    path = _path_to_stream(top)
    if path is None:
        return None
    *loops, lane, store = path
    assert isinstance(store, BufferStore) and isinstance(lane, For)
    lanes = as_int(lane.extent)
    inner = [loop for loop in loops if isinstance(loop, For)]
    steps = _steps(store.indices, [lane, *inner])
    if lanes is None or steps is None or steps.get(lane.loop_var) != 1:
        return None
    if lanes * dtypes.bytes_of(store.buffer.dtype) != align:
        return None
    if not _starts_on_lines(store.indices[0], lane.loop_var, lanes):
        return None
    by_step = {steps.get(loop.loop_var, 0): loop for loop in inner if as_int(loop.extent) != 1}
    found: list[tuple[For, int]] = []
    extent = lanes
    while extent in by_step and (not found or found[0][0] is not top):
        loop = by_step.pop(extent)
        count = as_int(loop.extent)
        if count is None or as_int(loop.min) != 0 or loop.kind not in (SERIAL, PARALLEL, UNROLLED):
            return None
        found.insert(0, (loop, extent))
        extent *= count
    order = [inner.index(loop) for loop, _ in found]
    if not found or found[0][0] is not top or order != sorted(order):
        return None
    row, row_steps = tuple(loop for loop, _ in found), tuple(step for _, step in found)
    tiles = _Tiles(row, row_steps, store.buffer, lanes, extent)
    return tiles if _Check(tiles).may_move(top) else None


def _path_to_stream(top: For) -> list[Stmt] | None:
    """The loops from ``top`` to the first streaming store; the last is that of its vectors."""
    stack: list[tuple[Stmt, list[Stmt], bool]] = [(top, [], False)]
    while stack:
        stmt, path, streams = stack.pop()
        streams = streams or _is_stream(stmt)
        if isinstance(stmt, BufferStore) and streams:
            kinds = [loop.kind for loop in path if isinstance(loop, For)]
            return [*path, stmt] if kinds and kinds[-1] == VECTORIZED else None
        if isinstance(stmt, For):
            path = [*path, stmt]
        below = [item for item in stmt.child_nodes() if isinstance(item, Stmt)]
        stack += [(item, path, streams) for item in reversed(below)]
    return None


def _steps(indices: Sequence[Expr], loops: Sequence[For]) -> dict[Var, int] | None:
    """Elements by which an address moves with each loop; ``None`` if they vary."""
    if len(indices) != 1:
        return None
    variables = [loop.loop_var for loop in loops]
    linear = linear_coefficients(indices[0], variables)
    found = [as_int(item) for item in linear[:-1]] if linear is not None else [None]
    return None if None in found else {var: step or 0 for var, step in zip(variables, found)}


def _starts_on_lines(index: Expr, lane: Var, lanes: int) -> bool:
    """Whether vectors lie whole lines apart."""
    linear = linear_coefficients(index, [lane])
    if linear is None:
        return False
    return all(step % lanes == 0 for step in Analyzer().to_polynomial(linear[1]).terms.values())


@dataclass
class _Store:
    """A store below the tiles, with the loops and the conditions around it."""

    store: BufferStore
    loops: tuple[For, ...]
    conditions: tuple[Expr, ...]

    def steps(self, access: BufferLoad | BufferStore) -> dict[Var, int] | None:
        """Elements by which an access moves with each of the loops."""
        return _steps(access.indices, self.loops)


class _Check:
    """Whether all that tiles compute depends on the place in the row alone, not on the tile.

    An element read moves by ``m`` with the place if it moves by ``m`` times their steps with the
    tiles' loops and by ``m`` with the lanes that are stored. What goes through a small buffer moves
    so with the part of the buffer's index that the lanes go along later.
    """

    def __init__(self, tiles: _Tiles) -> None:
        self.tiles = tiles
        self.variables = [loop.loop_var for loop in tiles.loops]
        self.own: set[Var] = set()
        self.stores: list[_Store] = []
        #: Distance in a small buffer of what becomes neighbours in the result.
        self.distances: dict[Var, int] = {}

    def may_move(self, top: For) -> bool:
        """Look at all statements; anything unknown is a no."""
        if not self._gather(top, (), ()):
            return False
        writes = [item for item in self.stores if item.store.buffer.data not in self.own]
        fills = [item for item in self.stores if item.store.buffer.data in self.own]
        return all(map(self._is_even, writes)) and all(map(self._fills_evenly, fills))

    def _gather(self, stmt: Stmt, loops: tuple[For, ...], conditions: tuple[Expr, ...]) -> bool:
        if isinstance(stmt, BufferStore):
            self.stores.append(_Store(stmt, loops, conditions))
            return True
        if isinstance(stmt, Evaluate):
            # What is asked for too early or late changes no result.
            return isinstance(stmt.value, Call) and stmt.value.op.name == "prefetch"
        own: tuple[Expr, ...] = ()
        if isinstance(stmt, For):
            loops, own = (*loops, stmt), (stmt.min, stmt.extent)
        elif isinstance(stmt, IfThenElse):
            conditions, own = (*conditions, stmt.condition), (stmt.condition,)
        elif isinstance(stmt, Allocate):
            own = stmt.buffer.shape
            self.own.add(stmt.buffer.data)
        elif isinstance(stmt, AttrStmt):
            own = (stmt.value,)
        elif not isinstance(stmt, SeqStmt):
            return False
        if any(uses_var(expr, {var}) for expr in own for var in self.variables):
            return False
        below = [item for item in stmt.child_nodes() if isinstance(item, Stmt)]
        return all(self._gather(item, loops, conditions) for item in below)

    def _is_even(self, item: _Store) -> bool:
        """Check a store of the result: its lanes are neighbours."""
        steps = item.steps(item.store)
        if item.store.buffer.data is not self.tiles.result.data or steps is None:
            return False
        if item.loops[-1].kind != VECTORIZED or not self._moves(steps, 1, item.loops[-1].loop_var):
            return False
        return self._reads_evenly(item, item.loops[-1].loop_var)

    def _fills_evenly(self, item: _Store) -> bool:
        """Check a store to a small buffer: it is a number in digits, and one is the lane."""
        distance = self.distances.get(item.store.buffer.data)
        steps = item.steps(item.store)
        if distance is None or steps is None or any(steps[var] for var in self.variables):
            return False
        size, place = 1, None
        for loop in sorted(item.loops, key=lambda loop: steps[loop.loop_var]):
            step, extent = steps[loop.loop_var], as_int(loop.extent)
            if step == 0 or extent == 1:
                continue
            if extent is None or step < size:
                return False
            size = step * extent
            place = loop.loop_var if step == distance else place
        return place is not None and self._reads_evenly(item, place)

    def _reads_evenly(self, item: _Store, place: Var) -> bool:
        """Check what a store's value is made of; ``place`` goes along the row."""
        own = {*self.variables, place}
        parts = [*_outside_loads(item.store.value), *item.conditions]
        if any(uses_var(part, own) for part in parts):
            return False
        for load in collect(item.store.value, BufferLoad):
            steps = item.steps(load)
            if steps is None or load.buffer.data is self.tiles.result.data:
                return False
            if load.buffer.data not in self.own:
                if not self._moves(steps, steps[place], place):
                    return False
                continue
            known = self.distances.setdefault(load.buffer.data, steps[place])
            if item.store.buffer.data in self.own or steps[place] <= 0 or known != steps[place]:
                return False
            if any(steps[var] for var in self.variables):
                return False
        return True

    def _moves(self, steps: dict[Var, int], factor: int, place: Var) -> bool:
        """Whether an access moves by ``factor`` with the place in the row."""
        return steps[place] == factor and all(
            steps[var] == factor * step for var, step in zip(self.variables, self.tiles.steps)
        )


def _outside_loads(value: Expr) -> list[Expr]:
    """The leaves of a value that are not read from memory."""
    found, stack = [], [value]
    while stack:
        item = stack.pop()
        if isinstance(item, BufferLoad):
            continue
        below = [part for part in item.child_nodes() if isinstance(part, Expr)]
        stack += below
        if not below:
            found.append(item)
    return found


def _moved(tiles: _Tiles, align: int) -> Stmt:
    """Let each tile begin where a line does; one more covers what is left at the end."""
    size = dtypes.bytes_of(tiles.result.dtype)
    address = call("address_of", BufferLoad(tiles.result, (const(0),)), dtype="handle")
    shift = Var("shift", INDEX)
    misalignment = call("misalignment", address, const(align), dtype=INDEX)
    begin: Expr = const(0)
    for loop, step in zip(tiles.loops, tiles.steps):
        begin = begin + loop.loop_var * step
    distance = Var("distance", INDEX)
    # From ``begin`` to a place in the row, at which a whole tile has room.
    value = maximum(minimum(-shift, const(tiles.extent - tiles.lanes) - begin), -begin)
    top, inner = tiles.loops[0], tiles.loops[-1]
    mover = _Mover(inner.loop_var, tiles.lanes, distance)
    nest = _InnerBody(inner, lambda body: LetStmt(distance, value, mover.visit(body))).visit(top)
    nest = nest.replace(extent=top.extent + minimum(shift, const(1)))
    return LetStmt(shift, floordiv(misalignment, const(size)), nest)


class _InnerBody(Mutator):
    """Changes the body of one loop."""

    def __init__(self, loop: For, change: Callable[[Stmt], Stmt]) -> None:
        self.loop = loop
        self.change = change

    def visit_Expr(self, node: Expr) -> Expr:
        return node

    def visit_For(self, node: For) -> For:
        if node is self.loop:
            return node.replace(body=self.change(node.body))
        return self.generic_visit(node)


class _Mover(Mutator):
    """Moves all accesses that depend on the tile."""

    def __init__(self, tile: Var, lanes: int, distance: Var) -> None:
        self.tile = tile
        self.lanes = lanes
        self.distance = distance

    def visit_Evaluate(self, node: Evaluate) -> Evaluate:
        return node  # a prefetch

    def visit_BufferLoad(self, node: BufferLoad) -> BufferLoad:
        return BufferLoad(node.buffer, (self.moved(node.indices[0]),))

    def visit_BufferStore(self, node: BufferStore) -> BufferStore:
        value = self.visit(node.value)
        made: BufferStore = node.replace(value=value, indices=(self.moved(node.indices[0]),))
        return made

    def moved(self, index: Expr) -> Expr:
        linear = linear_coefficients(index, [self.tile])
        assert linear is not None, "_Check has looked at it"
        step = as_int(linear[0])
        assert step is not None
        return index + self.distance * (step // self.lanes) if step else index
