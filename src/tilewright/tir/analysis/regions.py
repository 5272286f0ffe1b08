"""Which regions of which buffers a block, or a statement in it, reads and writes.

The answer is what ``Block.reads`` and ``Block.writes`` hold: boxes in terms of the block's
iteration variables. Script, ``te`` and primitives that build blocks fill these fields from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from tilewright.arith import Analyzer, BoxBounds, conjuncts, region_bound
from tilewright.ir import (
    INDEX,
    TRUE,
    BinaryExpr,
    Broadcast,
    Call,
    Expr,
    IntImm,
    Let,
    Ramp,
    Range,
    Var,
    add,
    and_,
    as_int,
    collect,
    const,
    contains,
    dtypes,
    expr_equal,
    lane_count,
    maximum,
    minimum,
    mul,
    sub,
    substitute,
    uses_var,
)
from tilewright.tir.buffer import Buffer, BufferLoad, BufferRegion
from tilewright.tir.gpu_ops import GPU_OPS, memory_uses
from tilewright.tir.lanes import lane_range, scalarized
from tilewright.tir.stmt import (
    Allocate,
    Block,
    BlockRealize,
    BufferStore,
    DeclBuffer,
    For,
    IfThenElse,
    IterVar,
    LetStmt,
    Stmt,
    While,
)

_ONE = const(1)
_has_loads = contains(BufferLoad)
_has_names = contains(Let)
T = TypeVar("T", bound="Accesses")


class Accesses:
    """Collects the boxes that a statement accesses, relaxed over the loops inside it."""

    def __init__(self, analyzer: Analyzer | None = None) -> None:
        self.reads: dict[Buffer, list[tuple[Range, ...]]] = {}
        self.writes: dict[Buffer, list[tuple[Range, ...]]] = {}
        self.domain: dict[Var, Range] = {}
        self.values: dict[Var, Expr] = {}
        self.condition: Expr = TRUE
        self.hidden: set[Buffer] = set()
        self.matched: dict[Buffer, BufferRegion] = {}
        self.iter_vars: tuple[IterVar, ...] = ()
        # Buffers whose pointer may be passed on as it is.
        self.of_data: dict[Var, Buffer] = {}
        # Where accesses through pointers go, if not to reads and writes.
        self.opaque: dict[Buffer, list[tuple[Range, ...]]] | None = None
        self.marks: dict[tuple[Range, ...], int] = {}
        self._analyzer = analyzer

    @property
    def analyzer(self) -> Analyzer:
        """Knows the ranges of loops inside; made when first needed."""
        if self._analyzer is None:
            self._analyzer = Analyzer()
            for iter_var in self.iter_vars:
                self._analyzer.bind(iter_var.var, iter_var.dom)
        return self._analyzer

    def walk(self, node: Any) -> None:
        """Note all accesses of a statement or expression."""
        kind = type(node)
        if kind is BufferLoad:
            self.access(self.reads, node.buffer, place_box(node))
        elif kind is BufferStore:
            self.access(self.writes, node.buffer, place_box(node))
        elif kind is For:
            self.walk(node.min)
            self.walk(node.extent)
            self.domain[node.loop_var] = Range.from_min_extent(
                self.resolved(node.min), self.resolved(node.extent)
            )
            self.walk(node.body)
            del self.domain[node.loop_var]
            return
        elif kind is BlockRealize:
            self.realize(node)
            return
        elif kind is IfThenElse:
            self.walk(node.condition)
            self.under(node.condition, node.then_case)
            if node.else_case is not None:
                self.walk(node.else_case)
            return
        elif kind is LetStmt or kind is Let:
            self.walk(node.value)
            self.values[node.var] = self.resolved(node.value)
            self.walk(node.body)
            return
        elif kind is While:
            # The condition is evaluated again after the body: its reads count like any others.
            self.walk(node.condition)
        elif kind is Allocate or kind is DeclBuffer:
            self.hidden.add(node.buffer)
        elif kind is Call and node.op.name in GPU_OPS:
            self.gpu_op(node)
            return
        elif kind is Call and node.op.name in ("address_of", "access_ptr", "tile_of"):
            self.pointer(node)
            return
        elif kind is Var:
            if node in self.of_data:
                self.whole(self.of_data[node])
            return
        elif kind is IntImm:
            return
        for item in node.child_nodes():
            if type(item) is not Buffer:
                self.walk(item)

    def under(self, condition: Expr, body: Stmt | Expr) -> None:
        """Walk a branch: its condition narrows loops inside this region."""
        before = self.condition
        self.condition = and_(before, condition)
        self.walk(body)
        self.condition = before

    def pointer(self, node: Call) -> None:
        """A pointer may be read and written anywhere in its buffer."""
        if node.op.name == "access_ptr" and node.args[0] in self.of_data:
            mask = as_int(node.args[3]) if len(node.args) > 3 else None
            self.whole(self.of_data[node.args[0]], 3 if mask is None else mask)  # type: ignore[index]
            for item in node.args[1:]:
                self.walk(item)
            return
        for arg in node.args:
            if isinstance(arg, BufferLoad):
                self.whole(arg.buffer)
                for index in arg.indices:
                    self.walk(index)
            else:
                self.walk(arg)

    def gpu_op(self, node: Call) -> None:
        """An operator that tells what it accesses: a box for each operand that is memory."""
        known: dict[Any, Any] = {use.pointer: use for use in memory_uses(node)}
        for arg in node.args:
            use = known.get(arg)
            if use is None:
                self.walk(arg)
                continue
            loads: list[Any] = list(use.pointer.args)
            for letter, table in (("r", self.reads), ("w", self.writes)):
                if letter in use.access:
                    for load in loads:
                        self.access(table, load.buffer, place_box(load))
            for load in loads:
                for index in load.indices:
                    self.walk(index)

    def whole(self, buffer: Buffer, mask: int = 3) -> None:
        """All of a buffer is accessed, through a pointer; ``mask`` is 1 to read, 2 to write."""
        ranges = [Range.from_min_extent(const(0), extent) for extent in buffer.shape]
        if self.opaque is not None:
            self.access(self.opaque, buffer, ranges)
            return
        for bit, table in ((1, self.reads), (2, self.writes)):
            if mask & bit:
                self.access(table, buffer, ranges)

    def realize(self, node: BlockRealize) -> None:
        """An inner block is known by its regions, at the values of its iteration variables."""
        for value in node.iter_values:
            self.walk(value)
        self.walk(node.predicate)
        block = node.block
        mapping = {
            iter_var.var: value for iter_var, value in zip(block.iter_vars, node.iter_values)
        }
        before = self.condition
        self.condition = and_(before, node.predicate)
        for table, regions in ((self.reads, block.reads), (self.writes, block.writes)):
            for region in regions:
                self.declared(table, region, block.iter_vars, mapping)
        self.condition = before

    def declared(
        self,
        table: dict[Buffer, list[tuple[Range, ...]]],
        region: BufferRegion,
        axes: Sequence[IterVar],
        mapping: Mapping[Any, Expr],
    ) -> None:
        """Take in a region that an inner block with these axes declares."""
        ranges = [
            Range.from_min_extent(substitute(item.min, mapping), substitute(item.extent, mapping))
            for item in region.region
        ]
        self.access(table, region.buffer, ranges)

    def resolved(self, expr: Expr) -> Expr:
        """Put in the values of let-bound variables."""
        made: Expr = substitute(expr, self.values) if self.values else expr
        return made

    def access(
        self, table: dict[Buffer, list[tuple[Range, ...]]], buffer: Buffer, ranges: list[Range]
    ) -> None:
        """Note an access to a box of a buffer."""
        if buffer in self.hidden:
            return
        source = self.matched.get(buffer)
        if source is not None:
            buffer, ranges = source.buffer, list(range_in_source(source, ranges))
        if self.values:
            ranges = [
                Range.from_min_extent(self.resolved(r.min), self.resolved(r.extent)) for r in ranges
            ]
        if self.domain and any(
            uses_var(bound, self.domain) for item in ranges for bound in (item.min, item.extent)
        ):
            ranges = self.relaxed(ranges, buffer)
        if self.hidden or self.writes:
            # An index that is itself made inside means nothing outside.
            inside = self.hidden | self.writes.keys()
            for place, item in enumerate(ranges):
                if _loads_from(item.min, inside) or _loads_from(item.extent, inside):
                    ranges[place] = Range.from_min_extent(const(0), buffer.shape[place])
        for place, item in enumerate(ranges):
            # What is named within an index is defined there, and no second time in a region.
            if _has_names(item.min) or _has_names(item.extent):
                ranges[place] = Range.from_min_extent(const(0), buffer.shape[place])
        known = table.setdefault(buffer, [])
        box = tuple(ranges)
        mark = self.mark(box)
        if not any(self.mark(other) == mark and same_box(box, other) for other in known):
            known.append(box)

    def mark(self, box: tuple[Range, ...]) -> int:
        """A number that two boxes have in common if they are written the same."""
        found = self.marks.get(box)
        if found is None:
            parts = [_mark(end) for item in box for end in (item.min, item.extent)]
            found = self.marks[box] = hash(tuple(parts))
        return found

    def relaxed(self, ranges: list[Range], buffer: Buffer) -> list[Range]:
        """The box around ``ranges`` for all values of the loops inside."""
        return relax(ranges, self.domain, self.condition, buffer)


def _mark(expr: Expr) -> int:
    if type(expr) is Var:
        return id(expr)
    if type(expr) is IntImm:
        return expr.value
    if isinstance(expr, BinaryExpr):
        return hash((type(expr), _mark(expr.a), _mark(expr.b)))
    return hash(type(expr))


def _loads_from(expr: Expr, buffers: set[Buffer]) -> bool:
    return any(load.buffer in buffers for load in collect(expr, BufferLoad))


def place_box(place: BufferLoad | BufferStore) -> list[Range]:
    """Return the box that a load or a store touches."""
    return [_index_range(*item) for item in zip(place.indices, place.buffer.shape)]


def _index_range(index: Expr, extent: Expr) -> Range:
    """Return the range that an index covers: one element, or what a vector of them spans."""
    if dtypes.lanes_of(index.dtype) == 1:
        return Range.from_min_extent(index, _ONE)
    if type(index) is Broadcast:
        return Range.from_min_extent(index.value, _ONE)
    if type(index) is Ramp:
        stride = as_int(index.stride)
        steps = lane_count(index.lanes, index.base.dtype) - 1
        if stride is not None and stride >= 0:
            return Range.from_min_extent(index.base, steps * stride + 1)
        first, last = index.base, add(index.base, mul(index.stride, steps))
        low = minimum(first, last)
        return Range.from_min_extent(low, add(sub(maximum(first, last), low), 1))
    lane = Var("lane", INDEX)
    scalar, whole = scalarized(index, lane), Range.from_min_extent(const(0), extent)
    if scalar is None:
        return whole
    domain = {lane: lane_range(dtypes.lanes_of(index.dtype))}
    (bound,) = region_bound([Range.from_min_extent(scalar, _ONE)], domain)
    return bound if isinstance(bound, Range) else whole


def range_in_source(source: BufferRegion, ranges: list[Range]) -> Iterable[Range]:
    """Translate a box in a matched buffer into the buffer that it stands for."""
    skipped = len(source.region) - len(ranges)
    for position, item in enumerate(source.region):
        if position < skipped:
            yield item
        else:
            inner = ranges[position - skipped]
            yield Range.from_min_extent(add(item.min, inner.min), inner.extent)


def relax(
    ranges: list[Range],
    domain: Mapping[Var, Range],
    condition: Expr,
    buffer: Buffer,
    analyzer: Analyzer | None = None,
) -> list[Range]:
    """Return the box that covers ``ranges`` for all values in ``domain`` (inner loops last)."""
    known = dict(domain)
    made = ranges
    # Extents may depend on outer loops of the domain: relax from the inside, one loop at a time,
    # only if so; else all at once.
    dependent = any(
        uses_var(bound, known) for item in known.values() for bound in (item.min, item.extent)
    )
    if dependent:
        gone: set[Var] = set()
        for var in reversed(list(known)):
            # What a condition says of loops that are relaxed already would bring these back.
            left = and_(*(item for item in conjuncts(condition) if not uses_var(item, gone)))
            made = relax_once(made, {var: known[var]}, left, buffer, analyzer)
            gone.add(var)
        return made
    return relax_once(made, known, condition, buffer, analyzer)


@lru_cache(maxsize=16)
def _bounds(domain: tuple[tuple[Var, Range], ...], condition: Expr) -> BoxBounds:
    """Bounds for loops in which there are several accesses."""
    return BoxBounds(dict(domain), condition)


def relax_once(
    ranges: list[Range],
    domain: Mapping[Var, Range],
    condition: Expr,
    buffer: Buffer,
    analyzer: Analyzer | None = None,
) -> list[Range]:
    """Relax over independent loops; a dimension without a finite bound becomes the whole one."""
    if analyzer is None:
        bounds = _bounds(tuple(domain.items()), condition)
    else:
        bounds = BoxBounds(domain, condition, analyzer=analyzer)
    made = []
    for item, extent, bound in zip(ranges, buffer.shape, bounds.of(ranges)):
        if not any(uses_var(e, domain) for e in (item.min, item.extent)):
            made.append(item)
        elif _has_loads(item.min) or _has_loads(item.extent):
            made.append(
                Range.from_min_extent(const(0), extent)
            )  # the limits of a dtype are no bounds
        elif isinstance(bound, Range) and not any(
            uses_var(e, domain) for e in (bound.min, bound.extent)
        ):
            made.append(bound)
        else:
            made.append(Range.from_min_extent(const(0), extent))
    return made


def same_box(a: Sequence[Range], b: Sequence[Range]) -> bool:
    """Whether two boxes are written the same."""
    return len(a) == len(b) and all(
        expr_equal(x.min, y.min) and expr_equal(x.extent, y.extent) for x, y in zip(a, b)
    )


def covers_box(a: Sequence[Range], b: Sequence[Range], analyzer: Analyzer | None = None) -> bool:
    """Whether a box provably holds another one."""
    for x, y in zip(a, b):
        if expr_equal(x.min, y.min) and expr_equal(x.extent, y.extent):
            continue
        analyzer = analyzer or Analyzer()
        x_end, y_end = add(x.min, x.extent), add(y.min, y.extent)
        if not analyzer.can_prove(x.min <= y.min) or not analyzer.can_prove(y_end <= x_end):
            return False
    return True


def union_box(a: tuple[Range, ...], b: tuple[Range, ...], analyzer: Analyzer) -> tuple[Range, ...]:
    """Return the smallest box around two boxes."""
    made = []
    for x, y in zip(a, b):
        if expr_equal(x.min, y.min) and expr_equal(x.extent, y.extent):
            made.append(x)
            continue
        x_end, y_end = add(x.min, x.extent), add(y.min, y.extent)
        if analyzer.can_prove(x.min <= y.min):
            low = x.min
        elif analyzer.can_prove(y.min <= x.min):
            low = y.min
        else:
            low = minimum(x.min, y.min)
        if analyzer.can_prove(y_end <= x_end):
            high = x_end
        elif analyzer.can_prove(x_end <= y_end):
            high = y_end
        else:
            high = maximum(x_end, y_end)
        made.append(Range.from_min_extent(low, analyzer.simplify(sub(high, low))))
    return tuple(made)


def _merged(
    table: dict[Buffer, list[tuple[Range, ...]]], accesses: Accesses
) -> tuple[BufferRegion, ...]:
    found = []
    for buffer, boxes in table.items():
        box = boxes[0]
        for other in boxes[1:]:
            box = union_box(box, other, accesses.analyzer)
        found.append(BufferRegion(buffer, box))
    return tuple(found)


def block_access_regions(
    block: Block, *, analyzer: Analyzer | None = None
) -> tuple[tuple[BufferRegion, ...], tuple[BufferRegion, ...]]:
    """Infer what one instance of ``block`` reads and writes, per buffer in order of appearance.

    Buffers that the block allocates are left out; matched ones are named by their source. What a
    reduction block reads of its own result is no read: ``init`` defines it. Other elements are.
    """
    accesses = block_accesses(block, Accesses, analyzer, (), None)
    return _merged(accesses.reads, accesses), _merged(accesses.writes, accesses)


def get_block_access_region(
    block: Block,
    buffer_var_map: Iterable[Buffer] | Mapping[Var, Buffer] = (),
    *,
    analyzer: Analyzer | None = None,
) -> tuple[tuple[BufferRegion, ...], tuple[BufferRegion, ...], tuple[BufferRegion, ...]]:
    """Infer what one instance of a block reads, writes, and accesses in a way that can't be seen.

    The last are buffers whose address something is called with: all of each may be read and
    written. ``buffer_var_map`` are those whose pointer (``buffer.data``) may be passed on;
    a dict of them by pointer will do.
    """
    opaque: dict[Buffer, list[tuple[Range, ...]]] = {}
    given = buffer_var_map
    buffers = given.values() if isinstance(given, Mapping) else given
    accesses = block_accesses(block, Accesses, analyzer, buffers, opaque)
    return (
        _merged(accesses.reads, accesses),
        _merged(accesses.writes, accesses),
        _merged(opaque, accesses),
    )


def get_block_read_write_region(
    block: Block,
    buffer_var_map: Iterable[Buffer] | Mapping[Var, Buffer] = (),
    *,
    analyzer: Analyzer | None = None,
) -> tuple[tuple[BufferRegion, ...], tuple[BufferRegion, ...]]:
    """Infer what one instance of a block reads and writes, taking pointers to be used for both.

    ``access_ptr`` says by its mask which it is.
    """
    given = buffer_var_map
    buffers = given.values() if isinstance(given, Mapping) else given
    accesses = block_accesses(block, Accesses, analyzer, buffers, None)
    return _merged(accesses.reads, accesses), _merged(accesses.writes, accesses)


def block_accesses(
    block: Block,
    kind: type[T],
    analyzer: Analyzer | None,
    buffers: Iterable[Buffer],
    opaque: dict[Buffer, list[tuple[Range, ...]]] | None,
) -> T:
    """Collect what one instance of a block accesses, before boxes of one buffer are joined."""
    accesses = kind(analyzer)
    accesses.iter_vars = block.iter_vars
    accesses.opaque = opaque
    accesses.of_data = {buffer.data: buffer for buffer in buffers}
    accesses.hidden.update(block.alloc_buffers)
    for match in block.match_buffers:
        for item in match.source.region:  # where it begins may be read from memory
            accesses.walk(item.min)
            accesses.walk(item.extent)
        accesses.matched[match.buffer] = match.source
        if accesses.of_data:
            accesses.of_data[match.buffer.data] = match.buffer
    accesses.walk(block.body)
    if block.init is not None:
        initial = kind(analyzer)
        initial.matched = accesses.matched
        initial.hidden = accesses.hidden
        initial.opaque = opaque
        initial.of_data = accesses.of_data
        initial.walk(block.init)
        for buffer, boxes in initial.writes.items():
            read = accesses.reads.pop(buffer, [])
            left = [
                box
                for box in read
                if not any(covers_box(own, box, accesses.analyzer) for own in boxes)
            ]
            if left:
                accesses.reads[buffer] = left
            _add_boxes(accesses.writes, buffer, boxes)
        for buffer, boxes in initial.reads.items():
            _add_boxes(accesses.reads, buffer, boxes)
    return accesses


def _add_boxes(
    table: dict[Buffer, list[tuple[Range, ...]]], buffer: Buffer, boxes: list[tuple[Range, ...]]
) -> None:
    known = table.setdefault(buffer, [])
    known.extend(box for box in boxes if not any(same_box(box, other) for other in known))


def infer_regions(
    stmt: Stmt, *, analyzer: Analyzer | None = None
) -> tuple[tuple[BufferRegion, ...], tuple[BufferRegion, ...]]:
    """Infer what a statement reads and writes, relaxed over the loops inside it."""
    accesses = Accesses(analyzer)
    accesses.walk(stmt)
    return _merged(accesses.reads, accesses), _merged(accesses.writes, accesses)
