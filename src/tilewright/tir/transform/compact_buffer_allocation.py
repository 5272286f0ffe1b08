"""Shrink intermediate buffers to what is touched while they live.

PlanBufferAllocation has put each allocation inside the loops that all its uses share. What one pass
through that place touches is a box whose start depends on the loops around and whose extents, as a
rule, are constant: the buffer gets those extents, and accesses are shifted by the box's start. This
is what makes a tile of ``cache_write`` or ``compute_at`` small enough for registers or cache.

Thread-bound loops around an allocation whose threads all see the memory count like loops inside:
``shared`` buffers hold what all threads of a block touch, ``local`` ones what one thread does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tilewright.arith import Analyzer, BoxBounds
from tilewright.ir import (
    INDEX,
    TRUE,
    Call,
    Expr,
    IntImm,
    Let,
    Mutator,
    Node,
    Ramp,
    Range,
    Var,
    and_,
    as_int,
    const,
    contains,
    dtypes,
    is_const,
    lane_count,
    pre_order,
    substitute,
    uses_var,
)
from tilewright.tir.analysis.regions import union_box
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.gpu_ops import is_gpu_op, memory_uses
from tilewright.tir.stmt import (
    Allocate,
    Block,
    BlockRealize,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    Stmt,
)
from tilewright.tir.thread_scope import shared_by_threads
from tilewright.tir.transform.base import FunctionTransform, function_analyzer, inside_loop
from tilewright.tir.walk import statements

Box = tuple[Range, ...]


class CompactBufferAllocation(FunctionTransform):
    """Give ``alloc_buffers`` the extents that are used.

    No extent grows, which is what ``is_strict`` asks for; accesses out of bounds, for which TVM's
    pass enlarges buffers otherwise, aren't well formed here.
    """

    def __init__(self, is_strict: bool = True) -> None:
        self.is_strict = is_strict

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        if not any(
            type(item) is Allocate or (type(item) is Block and item.alloc_buffers)
            for item in statements(func)
        ):
            return func
        accesses = _Accesses()
        accesses.walk(func.body)
        return func.map_children(_Compactor(function_analyzer(func), accesses).visit)


_has_load = contains(BufferLoad)
_has_access = contains(BufferLoad, BufferStore, "handle")
_has_memory = contains(BufferLoad, BufferStore, Allocate, Block)


class _Accesses:
    """Where a function accesses the buffers that it allocates, found in one walk."""

    def __init__(self) -> None:
        self.path: tuple[Node, ...] = ()  # loops, lets and conditions around
        self.of_data: dict[Var, Buffer] = {}
        self.homes: dict[Buffer, int] = {}  # length of the path where a buffer is allocated
        self.found: dict[Buffer, dict[tuple[tuple[Node, ...], tuple[Expr, ...]], None]] = {}
        self.kept: set[Buffer] = set()  # accessed in ways that can't be followed

    def walk(self, node: Any) -> None:
        kind = type(node)
        if kind is For:
            self.walk_all((node.min, node.extent))
            self.under(node, node.body)
        elif kind is LetStmt or kind is Let:
            self.walk_all((node.value,))
            self.under(node, node.body)
        elif kind is BlockRealize:
            self.walk_all((node.predicate,))
            self.under(node.predicate, node.block)
        elif kind is IfThenElse:
            self.walk_all((node.condition,))
            self.under(node.condition, node.then_case)
            if node.else_case is not None:
                self.walk(node.else_case)
        elif kind is Var:
            if node in self.of_data:  # a bare pointer: who knows what it touches
                self.kept.add(self.of_data[node])
        else:
            if kind is BufferLoad or kind is BufferStore:
                self.access(node.buffer, node.indices)
            elif kind is Block:
                self.allocate(node.alloc_buffers)
            elif kind is Allocate:
                self.allocate((node.buffer,))
            elif is_gpu_op(node):
                pointers = {use.pointer for use in memory_uses(node)}  # tell how far they go
                for arg in node.args:
                    self.walk_all(arg.args if arg in pointers else (arg,))
                return
            elif kind is Call and node.op.name in ("address_of", "tile_of"):
                # Whoever gets the pointer may touch anything behind it.
                place = node.args[0]
                if type(place) is BufferLoad and place.buffer.data in self.of_data:
                    self.kept.add(self.of_data[place.buffer.data])
            self.walk_all(node.child_nodes())

    def walk_all(self, nodes: Iterable[Any]) -> None:
        for node in nodes:
            if _has_access(node):
                self.walk(node)

    def under(self, around: Node, body: Stmt) -> None:
        """Walk what is inside of a loop or a let, or under a condition."""
        before = self.path
        if around is not TRUE:
            self.path = (*before, around)
        self.walk(body)
        self.path = before

    def allocate(self, buffers: tuple[Buffer, ...]) -> None:
        for buffer in buffers:
            self.of_data[buffer.data] = buffer
            self.homes[buffer] = len(self.path)
            self.found[buffer] = {}

    def access(self, buffer: Buffer, indices: tuple[Expr, ...]) -> None:
        owner = self.of_data.get(buffer.data)
        if owner is None or (self.path, indices) in self.found[owner]:
            return
        self.found[owner][self.path, indices] = None
        if owner is not buffer or any(  # a view with another shape, or a gather
            dtypes.lanes_of(index.dtype) > 1 and type(index) is not Ramp for index in indices
        ):
            self.kept.add(owner)


class _Terms:
    """The loops, lets and conditions between an allocation and accesses, and what these cover."""

    def __init__(
        self, path: tuple[Any, ...], threads: Mapping[Var, Range], analyzer: Analyzer
    ) -> None:
        self.domain: dict[Var, Range] = dict(threads)
        self.values: dict[Var, Expr] = {}
        # Loops that are as long as memory says: all that is known of them is a dtype's range.
        self.open: set[Var] = set()
        condition: Expr = TRUE
        for item in path:
            if type(item) is For:
                first, extent = (substitute(end, self.values) for end in (item.min, item.extent))
                self.domain[item.loop_var] = Range.from_min_extent(first, extent)
                if _has_load(first) or _has_load(extent):
                    self.open.add(item.loop_var)
            elif type(item) is LetStmt or type(item) is Let:
                self.values[item.var] = substitute(item.value, self.values)
            else:
                condition = and_(condition, substitute(item, self.values))
        self.bounds = BoxBounds(self.domain, condition, analyzer=analyzer)
        self.covered: dict[Expr, Range | None] = {}

    def covering(self, index: Expr) -> Range | None:
        """What an index covers, if that can be said outside of the loops.

        It also can't if it depends on memory, which changes.
        """
        if index not in self.covered:
            self.covered[index] = None if _has_load(index) else self._bound(index)
        return self.covered[index]

    def _bound(self, index: Expr) -> Range | None:
        index = substitute(index, self.values)
        if self.open and uses_var(index, self.open):
            return None
        (bound,) = self.bounds.of([_range(index)])
        return bound if isinstance(bound, Range) and not uses_var(bound, self.domain) else None


def _range(index: Expr) -> Range:
    if isinstance(index, Ramp):
        stride = as_int(index.stride)
        if stride is not None and stride > 0:
            return Range.from_min_extent(
                index.base, (lane_count(index.lanes, INDEX) - 1) * stride + 1
            )
    return Range.from_min_extent(index, const(1))


def _is_whole(item: Range, extent: Expr) -> bool:
    size = as_int(item.extent)
    return is_const(item.min, 0) and size is not None and size == as_int(extent)


class _Compactor(Mutator):
    def __init__(self, analyzer: Analyzer, accesses: _Accesses) -> None:
        self.analyzer = analyzer
        self.accesses = accesses
        self.outer: set[Var] = set()  # loops around: extents may not depend on them
        self.threads: dict[Var, tuple[str, Range]] = {}  # those of them bound to a thread tag
        self.moved: dict[Buffer, tuple[Buffer, tuple[Expr, ...]]] = {}
        self.shifted: dict[tuple[Expr, Expr], Expr] = {}  # of the loops around

    def visit(self, node: Node) -> Any:
        """Rewrite a node that allocates or accesses memory."""
        return super().visit(node) if _has_memory(node) else node

    def visit_For(self, node: For) -> For:
        self.outer.add(node.loop_var)
        outside, self.shifted = self.shifted, {}
        with inside_loop(self.analyzer, node):
            if node.thread is not None:
                self.threads[node.loop_var] = (
                    node.thread,
                    Range.from_min_extent(node.min, node.extent),
                )
            made = self.generic_visit(node)
        self.threads.pop(node.loop_var, None)
        self.shifted = outside
        return made

    def visit_Allocate(self, node: Allocate) -> Stmt:
        (buffer,) = self._compact_all((node.buffer,))
        body = self.visit(node.body)
        if buffer is node.buffer and body is node.body:
            return node
        return node.replace(buffer=buffer, body=body)

    def _compact_all(self, buffers: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
        terms: dict[Any, _Terms] = {}
        return tuple(self._compacted(buffer, self._touched(buffer, terms)) for buffer in buffers)

    def _touched(self, buffer: Buffer, known: dict[Any, _Terms]) -> Box | None:
        """The box around all accesses; ``known`` remembers the terms of those already seen."""
        found = self.accesses.found.get(buffer)
        if not found or buffer in self.accesses.kept or buffer.strides:
            return None
        threads = {
            var: domain
            for var, (tag, domain) in self.threads.items()
            if shared_by_threads(buffer.scope, tag)
        }
        home = self.accesses.homes[buffer]
        box: Box | None = None
        for path, indices in found:
            key = path, tuple(threads)
            terms = known.get(key)
            if terms is None:
                terms = known[key] = _Terms(path[home:], threads, self.analyzer)
            made = tuple(
                terms.covering(index) or Range.from_min_extent(const(0), extent)
                for index, extent in zip(indices, buffer.shape)
            )
            box = made if box is None else union_box(box, made, self.analyzer)
            if all(map(_is_whole, box, buffer.shape)):
                return None  # further accesses change nothing
        return box

    def visit_Block(self, node: Block) -> Block:
        if not node.alloc_buffers:
            return self.generic_visit(node)
        buffers = self._compact_all(node.alloc_buffers)
        made = node.map_children(self.visit)
        if all(a is b for a, b in zip(buffers, node.alloc_buffers)):
            return made
        return made.replace(alloc_buffers=buffers)

    def _compacted(self, buffer: Buffer, box: Box | None) -> Buffer:
        if box is None:
            return buffer
        shape: list[Expr] = []
        starts: list[Expr] = []
        changed = False
        for item, extent in zip(box, buffer.shape):
            size, start = self._dimension(item, extent)
            shape.append(size)
            starts.append(start)
            changed = changed or size is not extent or not is_const(start, 0)
        if not changed:
            return buffer
        made = buffer.replace(shape=tuple(shape), data=buffer.data)
        self.moved[buffer] = (made, tuple(starts))
        return made

    def _dimension(self, item: Range, extent: Expr) -> tuple[Expr, Expr]:
        """New extent and start of one dimension; the old ones if nothing is gained."""
        size = self.analyzer.simplify(item.extent)
        start = self.analyzer.simplify(item.min)
        if _has_load(start):
            return extent, const(0)
        if not isinstance(size, IntImm) and any(
            type(part) is Var and part in self.outer for part in pre_order(size)
        ):
            bound = self.analyzer.const_int_bound(size).max
            if not isinstance(bound, int):
                return extent, const(0)
            size = const(bound)
        if isinstance(size, IntImm) and isinstance(extent, IntImm):
            if size.value >= extent.value:
                return extent, const(0)
            return const(max(size.value, 1)), start
        if not isinstance(size, IntImm) and not self.analyzer.can_prove(size < extent):
            return extent, const(0)
        return size, start

    def _indices(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, Any]:
        made, starts = self.moved[buffer]
        return made, tuple(map(self._shifted, indices, starts))

    def _shifted(self, index: Expr, start: Expr) -> Expr:
        """An index counted from the start of the box."""
        if is_const(start, 0):
            return index
        if index is start:
            return const(0, index.dtype)
        made = self.shifted.get((index, start))
        if made is None:
            if isinstance(index, Ramp):
                base = self.analyzer.simplify(index.base - start)
                made = Ramp(base, index.stride, index.lanes)
            else:
                made = self.analyzer.simplify(index - start)
            self.shifted[index, start] = made
        return made

    def visit_BufferLoad(self, node: BufferLoad) -> BufferLoad:
        made = self.generic_visit(node)
        if made.buffer not in self.moved:
            return made
        return BufferLoad(*self._indices(made.buffer, made.indices))

    def visit_BufferStore(self, node: BufferStore) -> BufferStore:
        made = self.generic_visit(node)
        if made.buffer not in self.moved:
            return made
        buffer, indices = self._indices(made.buffer, made.indices)
        return BufferStore(buffer, made.value, indices)
