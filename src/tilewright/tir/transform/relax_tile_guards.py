"""Let the tails of tiled loops compute whole register tiles.

Where tiles don't divide an extent, the last ones hold elements that are none, and a guard
``i0 * 8 + i1 < 500`` keeps each store to the tile from them. In a loop that accumulates, such a
guard costs more than the arithmetic that it saves: the tile can't stay in registers. Nobody reads
those elements, so they may be computed from anything, as long as no address outside a buffer is
touched. Used by ``LoopPartition`` on what remains when whole tiles are dealt with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.arith import Analyzer, conjuncts, linear_coefficients
from tilewright.ir import (
    GE,
    GT,
    LE,
    LT,
    Call,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Mutator,
    Node,
    Ramp,
    Select,
    Var,
    and_,
    as_int,
    collect,
    const,
    dtypes,
    expr_equal,
    free_vars,
    if_then_else,
    pre_order,
    substitute,
    uses_var,
)
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.rewrite import replace_buffers
from tilewright.tir.stmt import (
    VECTORIZED,
    Allocate,
    BufferStore,
    DeclBuffer,
    For,
    IfThenElse,
    SeqStmt,
    Stmt,
)
from tilewright.tir.transform.base import StmtMutator, inside_loop

#: Larger buffers don't live in registers.
MAX_BYTES = 4096
_DIVISIONS = (FloorDiv, FloorMod)


def relax_tile_guards(
    stmt: Stmt, analyzer: Analyzer, known: Sequence[Expr] = ()
) -> tuple[Stmt, bool]:
    """Remove guards around stores to register tiles that are allocated inside ``stmt``.

    Loops that a guard ends early become shorter. ``analyzer`` knows the loops around ``stmt``,
    ``known`` are comparisons that hold in them.
    Also returns whether guards of tiles were removed.
    """
    stmt = _Shortener().visit(stmt)
    found = _Finder()
    found.walk(stmt)
    tiles = {data: tile for data, tile in found.tiles.items() if tile.relaxable()}
    if not tiles:
        return stmt, False
    grown = {tile.buffer: tile.grown() for tile in tiles.values() if tile.reach > tile.size}
    made = _Relaxer(set(tiles), grown, analyzer.copy(), known).visit(stmt)
    return (replace_buffers(made, grown) if grown else made), True


class _Shortener(StmtMutator):
    """Ends loops where a guard ``i1 < 4`` on their variable alone would do nothing from then on.

    Vectors keep a length that is a power of two, and the guard.
    """

    def visit_For(self, node: For) -> For:
        node = self.generic_visit(node)
        extent, between = as_int(node.extent), []
        guard = node.body
        if extent is None or as_int(node.min) != 0:
            return node
        while type(guard) is For:
            between.append(guard)
            guard = guard.body
        if type(guard) is not IfThenElse or guard.else_case is not None:
            return node
        rest = []
        conjunct: Any
        for conjunct in conjuncts(guard.condition):
            limit = (
                as_int(conjunct.b) if type(conjunct) is LT and conjunct.a is node.loop_var else None
            )
            if limit is None or not limit > 0:
                rest.append(conjunct)
                continue
            if node.kind == VECTORIZED:
                limit = 1 << (limit - 1).bit_length()
                rest.append(conjunct)
            extent = min(extent, limit)
        if extent == as_int(node.extent):
            return node
        body: Stmt = IfThenElse(and_(*rest), guard.then_case) if rest else guard.then_case
        for loop in reversed(between):
            body = loop.replace(body=body)
        return node.replace(extent=const(extent, node.loop_var.dtype), body=body)


#: Loops and their extents, by the stride in the index of a store.
_Places = dict[int, tuple[Var, int]]


class _Store:
    """A store to a tile: the loops and conditions between it and the allocation."""

    def __init__(self, node: BufferStore, loops: list[For], conditions: list[Expr]) -> None:
        self.node = node
        self.loops = {loop.loop_var: loop for loop in loops}
        self.conditions = [conjunct for item in conditions for conjunct in conjuncts(item)]
        self.vector = any(loop.kind == VECTORIZED for loop in loops)

    def places(self) -> tuple[_Places, int] | None:
        """Loops by their stride in the index, and the elements that they reach over.

        ``None`` unless different iterations store different elements.
        """
        (index,) = self.node.indices
        inner = [var for var in free_vars(index) if var in self.loops]
        linear = linear_coefficients(index, inner)
        if linear is None or as_int(linear[-1]) is None or (as_int(linear[-1]) or 0) < 0:
            return None
        found: _Places = {}
        for var, factor in zip(inner, linear):
            loop = self.loops[var]
            stride, extent = as_int(factor), as_int(loop.extent)
            if stride is None or extent is None or as_int(loop.min) != 0 or stride in found:
                return None
            found[stride] = (var, extent)
        reach = 1
        for stride in sorted(found):
            if stride < reach:
                return None
            reach = stride * found[stride][1]
        last = (as_int(linear[-1]) or 0) + sum(s * (n - 1) for s, (_, n) in found.items())
        return found, last + 1

    def may_run_unguarded(self, places: _Places) -> bool:
        """Whether nothing goes wrong without the conditions, which are of what is stored alone."""
        bounds = [bound for loop in self.loops.values() for bound in (loop.min, loop.extent)]
        # How often a loop runs is read where the guard said not to, if data say it.
        if not all(map(_is_free_of_data, bounds)) or not _may_run_anyway(self.node.value):
            return False
        others = self.loops.keys() - {var for var, _ in places.values()}
        return all(
            _is_free_of_data(item) and others.isdisjoint(free_vars(item))
            for item in self.conditions
        )


class _Tile:
    """A small buffer with all that is known about the stores to it."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.stores: list[_Store] = []
        self.ok = True
        self.size = as_int(buffer.shape[0]) or 0
        self.reach = 0  # elements that whole tiles take: what a guard cut off may be missing

    def grown(self) -> Buffer:
        """The buffer with room for whole tiles."""
        return self.buffer.replace(shape=(const(self.reach, self.buffer.shape[0].dtype),))

    def relaxable(self) -> bool:
        """Whether a condition is always the same one for an element, whatever stores it."""
        if not self.ok or not any(s.vector for s in self.stores):
            return False
        if not all(store.conditions for store in self.stores):
            return False
        reach = 0
        first: tuple[_Store, _Places] | None = None
        for store in self.stores:
            found = store.places()
            if found is None or not store.may_run_unguarded(found[0]):
                return False
            places, reach = found[0], max(reach, found[1])
            if first is None:
                first = store, places
            elif not _guarded_alike(*first, store, places):
                return False
        self.reach = reach
        return reach * dtypes.bytes_of(self.buffer.dtype) <= MAX_BYTES


def _guarded_alike(store: _Store, places: _Places, other: _Store, others: _Places) -> bool:
    """Whether two stores do each element under the same conditions."""
    if {s: n for s, (_, n) in others.items()} != {s: n for s, (_, n) in places.items()}:
        return False
    names = {var: places[stride][0] for stride, (var, _) in others.items()}
    renamed = [substitute(item, names) for item in other.conditions]
    return _subset(renamed, store.conditions) and _subset(store.conditions, renamed)


def _subset(some: list[Expr], others: list[Expr]) -> bool:
    return all(any(expr_equal(item, other) for other in others) for item in some)


def _is_free_of_data(value: Expr) -> bool:
    """Whether a value may be computed anywhere: it divides by nothing unknown and loads nothing."""
    return _may_run_anyway(value) and not collect(value, BufferLoad)


def _may_run_anyway(value: Expr) -> bool:
    """Whether nothing but loads can go wrong where the value isn't wanted."""
    for item in pre_order(value):
        if type(item) in _DIVISIONS and not isinstance(item.b, IntImm):  # type: ignore[attr-defined]
            return False
        if isinstance(item, Call) and item.op.effect != "pure":
            return False
    return True


class _Finder:
    """Collects tiles and the stores to them."""

    def __init__(self) -> None:
        self.tiles: dict[Var, _Tile] = {}
        self.loops: list[For] = []
        self.conditions: list[Expr] = []
        self.depths: dict[Var, tuple[int, int]] = {}

    def walk(self, node: Any) -> None:
        kind = type(node)
        if kind is Allocate:
            buffer = node.buffer
            size = as_int(buffer.shape[0]) if len(buffer.shape) == 1 else None
            if size is not None and size * dtypes.bytes_of(buffer.dtype) <= MAX_BYTES:
                self.tiles[buffer.data] = _Tile(buffer)
                self.depths[buffer.data] = len(self.loops), len(self.conditions)
            self.walk(node.body)
        elif kind is For:
            self.loops.append(node)
            self.walk(node.body)
            self.loops.pop()
        elif kind is IfThenElse:
            self._branch(node)
        elif kind is BufferStore:
            tile = self.tiles.get(node.buffer.data)
            if tile is not None:
                loops, conditions = self.depths[node.buffer.data]
                tile.stores.append(_Store(node, self.loops[loops:], self.conditions[conditions:]))
            self._uses(node)
        elif kind is SeqStmt:
            for item in node.child_nodes():
                self.walk(item)
        elif kind is DeclBuffer:
            self.walk(node.body)
        else:
            self._uses(node)
            for item in pre_order(node):
                if isinstance(item, BufferStore):
                    self._refuse(item.buffer.data)

    def _branch(self, node: IfThenElse) -> None:
        """The branch may go if it guards stores to one tile and nothing else."""
        stored = {
            item.buffer.data if isinstance(item, BufferStore) else None
            for item in pre_order(node)
            if isinstance(item, Stmt) and not isinstance(item, (For, IfThenElse, SeqStmt))
        }
        if node.else_case is not None or len(stored) != 1:
            for data in stored:
                self._refuse(data)
        self._uses(node.condition)
        self.conditions.append(node.condition)
        self.walk(node.then_case)
        self.conditions.pop()
        if node.else_case is not None:
            self.walk(node.else_case)

    def _refuse(self, data: Var | None) -> None:
        if data in self.tiles:
            self.tiles[data].ok = False

    def _uses(self, node: Node) -> None:
        """Pointers to a tile may be used for anything."""
        for item in pre_order(node):
            if isinstance(item, Call):
                for part in pre_order(item):
                    if type(part) is Var:
                        self._refuse(part)
                    elif isinstance(part, BufferLoad) and item.op.effect != "pure":
                        self._refuse(part.buffer.data)


class _Relaxer(StmtMutator):
    """Removes the guards of chosen tiles."""

    def __init__(
        self,
        tiles: set[Var],
        grown: dict[Buffer, Buffer],
        analyzer: Analyzer,
        known: Sequence[Expr],
    ) -> None:
        self.tiles = tiles
        self.known = tuple(known)
        self.grown = grown
        self.analyzer = analyzer
        self.conditions: list[Expr] = []
        self.vectors: set[Var] = set()
        self.inner: set[Var] = set()

    def visit_For(self, node: For) -> For:
        from_tile = {node.loop_var}
        self.inner |= from_tile
        if node.kind == VECTORIZED:
            self.vectors |= from_tile
        with inside_loop(self.analyzer, node):
            made = self.generic_visit(node)
        self.inner -= from_tile
        self.vectors -= from_tile
        return made

    def visit_Allocate(self, node: Allocate) -> Allocate:
        made = self.generic_visit(node)
        buffer = self.grown.get(node.buffer)
        return made if buffer is None else made.replace(buffer=buffer)

    def visit_IfThenElse(self, node: IfThenElse) -> Any:
        stores = collect(node.then_case, BufferStore)
        if not stores or any(item.buffer.data not in self.tiles for item in stores):
            return self.generic_visit(node)
        known = len(self.conditions)
        self.conditions.extend(conjuncts(node.condition))
        made = self.visit(node.then_case)
        del self.conditions[known:]
        return made

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        if not self.conditions or node.buffer.data not in self.tiles:
            return node
        value = _Loads(self, node.buffer.data).visit(node.value)
        return BufferStore(node.buffer, value, node.indices)

    def stays_inside(self, load: BufferLoad) -> bool:
        """Whether an index is inside of the buffer wherever the loops are."""
        first, reach = _first_lane(load.indices[0])
        size = as_int(load.buffer.shape[0])
        if size is None or reach is None:
            return False
        bound = self.analyzer.const_int_bound(self.analyzer.simplify(first))
        return bound.min >= 0 and bound.max + reach < size

    def safe(self, load: BufferLoad) -> Expr:
        """A load that touches no address outside its buffer though the conditions may fail."""
        (index,) = load.indices
        # A guard on an extent tells that there is an element at all.
        digits = [*_digits(index), *_digits(load.buffer.shape[0])]
        related = [c for c in self.conditions if _overlap(digits, _digits(c))]
        if not related or self.stays_inside(load):
            return load
        condition = and_(*related)
        first, reach = _first_lane(index)
        varies = any(uses_var(index, {var}) or uses_var(condition, {var}) for var in self.vectors)
        if varies or reach is None:
            # Becomes a masked load.
            return if_then_else(condition, load, const(0, load.dtype))
        varying = {v: const(0, v.dtype) for v in free_vars(condition) if v in self.inner}
        start = self.analyzer.simplify(substitute(first, varying))
        bound = self.analyzer.const_int_bound(start)
        size = as_int(load.buffer.shape[0])
        zero = const(0, first.dtype)
        if varying and size is not None and bound.min >= 0 and bound.max + reach < size:
            offset = self.analyzer.simplify(first - start)
            moved = start + Select(condition, offset, zero)
        else:
            moved = Select(condition, first, zero)
        whole = Ramp(moved, index.stride, index.lanes) if isinstance(index, Ramp) else moved
        return BufferLoad(load.buffer, (whole,))


def _first_lane(index: Expr) -> tuple[Expr, int | None]:
    """The place of the first lane, and how far behind it the last one is, if that is known."""
    if isinstance(index, Ramp):
        stride = as_int(index.stride)
        ascends = stride is not None and stride >= 0 and not dtypes.is_scalable(index.dtype)
        return index.base, (index.lanes - 1) * stride if ascends and stride is not None else None
    return index, 0 if dtypes.lanes_of(index.dtype) == 1 else None


_INFINITE = float("inf")
_Digits = tuple[Var, float, float]
"""The part of a variable between two places of value: ``v // low % (high / low)``."""


def _digits(expr: Any) -> list[_Digits]:
    """What an expression depends on: variables, or quotients and remainders of them."""
    own = _digits_of(expr)
    if own is not None:
        return [own]
    return [item for child in expr.child_nodes() for item in _digits(child)]


def _digits_of(expr: Any) -> _Digits | None:
    if type(expr) is Var:
        return expr, 1, _INFINITE
    if type(expr) not in _DIVISIONS:
        return None
    inner, by = _digits_of(expr.a), as_int(expr.b)
    if inner is None or by is None or by <= 0:
        return None
    var, low, high = inner
    if high != _INFINITE and high % (low * by):
        return inner
    return (var, low * by, high) if type(expr) is FloorDiv else (var, low, low * by)


def _overlap(some: list[_Digits], others: list[_Digits]) -> bool:
    """Whether one depends on what the other depends on: ``v // 12`` and ``v % 12`` don't."""
    return any(
        a is b and low < other_high and other_low < high
        for a, low, high in some
        for b, other_low, other_high in others
    )


class _Loads(Mutator):
    """Makes the loads of a value safe."""

    def __init__(self, relaxer: _Relaxer, own: Var) -> None:
        self.relaxer = relaxer
        self.own = own
        self.within: list[Expr] = []
        """Conditions of the value itself under which it reads what is visited."""

    def visit_Call(self, node: Call) -> Expr:
        if node.op.name != "if_then_else":
            made: Expr = self.generic_visit(node)
            return made
        condition, value, other = node.args
        condition = self.visit(condition)
        known = len(self.within)
        self.within.extend(conjuncts(condition))
        value = self.visit(value)
        del self.within[known:]
        other = self.visit(other)
        same = all(a is b for a, b in zip(node.args, (condition, value, other)))
        return node if same else node.replace(args=(condition, value, other))

    def visit_BufferLoad(self, node: BufferLoad) -> Expr:
        if node.buffer.data is self.own or node.buffer.data in self.relaxer.tiles:
            return node
        if self.within and _is_inside(node, self.within, self.relaxer):
            # Padding says so: a mask that the tile's guard has a part in would be another one for
            # each row, and elements that rows share would be loaded once for each.
            return node
        return self.relaxer.safe(node)


def _is_inside(load: BufferLoad, conditions: Sequence[Expr], relaxer: _Relaxer) -> bool:
    """Whether the conditions under which a load runs keep it inside of its buffer."""
    (index,), size = load.indices, load.buffer.shape[0]
    # Masks by known sizes are constants, and cost nothing.
    if dtypes.lanes_of(index.dtype) != 1 or as_int(size) is not None:
        return False
    analyzer = relaxer.analyzer.copy()
    analyzer.assume(and_(*conditions))
    digits = set(free_vars(index)) - set(free_vars(size))
    if not analyzer.can_prove(_extreme(index, conditions, digits, analyzer, upper=False) >= 0):
        return False
    # What is known around the load is of whole tiles: each says something of its own.
    last = _extreme(index, conditions, digits, analyzer, upper=True)
    ends = [last, *(_extreme(last, [item], digits, analyzer, upper=True) for item in relaxer.known)]
    return any(analyzer.can_prove(end < size) for end in ends)


def _extreme(
    index: Expr, conditions: Sequence[Expr], digits: set[Var], analyzer: Analyzer, *, upper: bool
) -> Expr:
    """A bound of an index, from above or below: digits that conditions limit are at their ends.

    From ``row < h`` follows ``row * w + column <= (h - 1) * w + column``.
    """
    for condition in conditions:
        if type(condition) not in _BELOW:
            continue
        slack = _BELOW[type(condition)](condition)  # is never negative
        for var in (item for item in free_vars(slack) if item in digits):
            ours, theirs = (linear_coefficients(item, [var]) for item in (index, slack))
            step = None if theirs is None else as_int(theirs[0])
            step = -step if upper and step is not None else step
            if ours is None or step is None or step <= 0 or as_int(ours[0]) == 0:
                continue
            times = analyzer.simplify(ours[0] // step)
            if analyzer.can_prove_equal(times * step, ours[0]) and analyzer.can_prove(times >= 0):
                index = analyzer.simplify(index + times * (slack if upper else -slack))
                break
    return index


_BELOW: dict[type, Callable[[Any], Expr]] = {
    LT: lambda node: node.b - node.a - 1,
    LE: lambda node: node.b - node.a,
    GT: lambda node: node.a - node.b - 1,
    GE: lambda node: node.a - node.b,
}
"""What is at least zero where a comparison holds."""
