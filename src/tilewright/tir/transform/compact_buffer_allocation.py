"""Shrink intermediate buffers to what is touched while they live.

PlanBufferAllocation has put each allocation inside the loops that all its uses share. What one pass
through that place touches is a box whose start depends on the loops around and whose extents, as a
rule, are constant: the buffer gets those extents, and accesses are shifted by the box's start. This
is what makes a tile of ``cache_write`` or ``compute_at`` small enough for registers or cache.

Thread-bound loops around an allocation whose threads all see the memory count like loops inside:
``shared`` buffers hold what all threads of a block touch, ``local`` ones what one thread does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.arith import Analyzer, BoxBounds
from tilewright.ir import (
    TRUE,
    Call,
    Expr,
    IntImm,
    Mutator,
    Ramp,
    Range,
    Var,
    and_,
    as_int,
    const,
    contains,
    dtypes,
    is_const,
    pre_order,
    substitute,
    uses_var,
)
from tilewright.tir.analysis.regions import union_box
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.function import PrimFunc
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
from tilewright.tir.transform.base import (
    FunctionTransform,
    function_analyzer,
    inside_loop,
    statements,
)
from tilewright.tir.transform.effects import PointerUses
from tilewright.tir.transform.kernels import shared_by_threads

Box = tuple[Range, ...]


class CompactBufferAllocation(FunctionTransform):
    """Give ``alloc_buffers`` the extents that are used."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        if not any(
            type(item) is Allocate or (type(item) is Block and item.alloc_buffers)
            for item in statements(func)
        ):
            return func
        return func.map_children(_Compactor(function_analyzer(func)).visit)


_has_load = contains(BufferLoad)
_has_memory = contains(BufferLoad, BufferStore, Allocate, Block)


class _Touched:
    """Boxes of some buffers that a piece of program touches, relaxed over the loops inside it."""

    def __init__(
        self,
        buffers: set[Buffer],
        analyzer: Analyzer,
        threads: Mapping[Var, Range],
        uses: PointerUses,
    ) -> None:
        self.analyzer = analyzer
        self.uses = uses
        self.of_data = {buffer.data: buffer for buffer in buffers}
        self.boxes: dict[Buffer, Box] = {}
        self.kept: set[Buffer] = set()
        self.whole: set[Buffer] = set()
        self.domain: dict[Var, Range] = dict(threads)
        self.values: dict[Var, Expr] = {}
        self.condition: Expr = TRUE
        # Of the present loops and condition: bounds, and what was seen under them: accesses, and
        # what single indices cover.
        self.bounds: BoxBounds | None = None
        self.seen: set[tuple[Buffer, tuple[Expr, ...]]] = set()
        self.covered: dict[Expr, Range | None] = {}

    def under_other_terms(self) -> None:
        """The loops, the condition or the values around have changed."""
        self.bounds = None
        self.seen.clear()
        self.covered.clear()

    def walk(self, node: Any) -> None:
        kind = type(node)
        if self.of_data.keys().isdisjoint(self.uses.of(node)):
            return
        if kind is For:
            self.walk(node.min)
            self.walk(node.extent)
            self.domain[node.loop_var] = Range(
                substitute(node.min, self.values), substitute(node.extent, self.values)
            )
            self.under_other_terms()
            self.walk(node.body)
            del self.domain[node.loop_var]
            self.under_other_terms()
            return
        if kind is Var:
            if node in self.of_data:  # a bare pointer: who knows what it touches
                self.kept.add(self.of_data[node])
            return
        if kind is BlockRealize or kind is IfThenElse:
            self.branch(node)
            return
        if kind is LetStmt:
            self.walk(node.value)
            self.values[node.var] = substitute(node.value, self.values)
            self.under_other_terms()
            self.walk(node.body)
            return
        if kind is Call and node.op.name == "address_of":
            # Whoever gets the pointer may touch anything behind it.
            place = node.args[0]
            if type(place) is BufferLoad and place.buffer.data in self.of_data:
                self.kept.add(self.of_data[place.buffer.data])
        if kind is BufferLoad or kind is BufferStore:
            self.access(node.buffer, node.indices)
        for item in node.child_nodes():
            if type(item) is not Buffer:
                self.walk(item)

    def branch(self, node: Any) -> None:
        condition = node.predicate if type(node) is BlockRealize else node.condition
        self.walk(condition)
        before = self.condition
        if condition is not TRUE:
            self.condition = and_(before, substitute(condition, self.values))
            self.under_other_terms()
        self.walk(node.block if type(node) is BlockRealize else node.then_case)
        if condition is not TRUE:
            self.condition = before
            self.under_other_terms()
        if type(node) is IfThenElse and node.else_case is not None:
            self.walk(node.else_case)

    def access(self, buffer: Buffer, indices: tuple[Expr, ...]) -> None:
        owner = self.of_data.get(buffer.data)
        if owner is None or owner in self.whole:
            return
        if owner is not buffer:  # a view with another shape
            self.kept.add(owner)
            return
        if any(dtypes.lanes_of(index.dtype) > 1 and type(index) is not Ramp for index in indices):
            self.kept.add(owner)
            return
        if (buffer, indices) in self.seen:
            return
        self.seen.add((buffer, indices))
        box = []
        for index, extent in zip(indices, buffer.shape):
            if index not in self.covered:
                self.covered[index] = self.covering(index)
            box.append(self.covered[index] or Range(const(0), extent))
        known = self.boxes.get(buffer)
        made = tuple(box)
        joined = made if known is None else union_box(known, made, self.analyzer)
        self.boxes[buffer] = joined
        if all(
            is_const(item.min, 0)
            and as_int(item.extent) is not None
            and as_int(item.extent) == as_int(extent)
            for item, extent in zip(joined, buffer.shape)
        ):
            self.whole.add(buffer)  # further accesses change nothing

    def covering(self, index: Expr) -> Range | None:
        """What an index covers, if that can be said outside of the loops.

        It also can't if it depends on memory, which changes.
        """
        if _has_load(index):
            return None
        if self.bounds is None:
            self.bounds = BoxBounds(self.domain, self.condition, analyzer=self.analyzer)
        (bound,) = self.bounds.of([_range(substitute(index, self.values))])
        return bound if isinstance(bound, Range) and not uses_var(bound, self.domain) else None


def _range(index: Expr) -> Range:
    if isinstance(index, Ramp):
        stride = as_int(index.stride)
        if stride is not None and stride > 0:
            return Range(index.base, const(stride * (index.lanes - 1) + 1))
    return Range(index, const(1))


class _Compactor(Mutator):
    def __init__(self, analyzer: Analyzer) -> None:
        self.analyzer = analyzer
        self.outer: set[Var] = set()  # loops around: extents may not depend on them
        self.threads: dict[Var, tuple[str, Range]] = {}  # those of them bound to a thread tag
        self.moved: dict[Buffer, tuple[Buffer, tuple[Expr, ...]]] = {}
        self.shifted: dict[tuple[Expr, Expr], Expr] = {}  # of the loops around
        self.uses = PointerUses()

    def visit(self, node: Any) -> Any:
        """Rewrite a node that allocates or accesses memory."""
        return super().visit(node) if _has_memory(node) else node

    def visit_For(self, node: For) -> Any:
        self.outer.add(node.loop_var)
        outside, self.shifted = self.shifted, {}
        with inside_loop(self.analyzer, node):
            if node.thread is not None:
                self.threads[node.loop_var] = node.thread, Range(node.min, node.extent)
            made = self.generic_visit(node)
        self.threads.pop(node.loop_var, None)
        self.shifted = outside
        return made

    def visit_Allocate(self, node: Allocate) -> Any:
        (buffer,) = self._compact_all((node.buffer,), node.body)
        body = self.visit(node.body)
        if buffer is node.buffer and body is node.body:
            return node
        return node.replace(buffer=buffer, body=body)

    def _compact_all(self, buffers: tuple[Buffer, ...], body: Stmt) -> tuple[Buffer, ...]:
        made: dict[Buffer, Buffer] = {}
        for scope in dict.fromkeys(buffer.scope for buffer in buffers):
            threads = {
                var: domain
                for var, (tag, domain) in self.threads.items()
                if shared_by_threads(scope, tag)
            }
            group = {buffer for buffer in buffers if buffer.scope == scope}
            touched = _Touched(group, self.analyzer, threads, self.uses)
            touched.walk(body)
            made.update((buffer, self._compacted(buffer, touched)) for buffer in group)
        return tuple(made[buffer] for buffer in buffers)

    def visit_Block(self, node: Block) -> Any:
        if not node.alloc_buffers:
            return self.generic_visit(node)
        buffers = self._compact_all(node.alloc_buffers, node.body)
        made = node.map_children(self.visit)
        if all(a is b for a, b in zip(buffers, node.alloc_buffers)):
            return made
        return made.replace(alloc_buffers=buffers)

    def _compacted(self, buffer: Buffer, touched: _Touched) -> Buffer:
        box = touched.boxes.get(buffer)
        if box is None or buffer in touched.kept or buffer.strides:
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
        if any(isinstance(part, BufferLoad) for part in pre_order(start)):
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
        made = self.shifted.get((index, start))
        if made is None:
            if isinstance(index, Ramp):
                base = self.analyzer.simplify(index.base - start)
                made = Ramp(base, index.stride, index.lanes)
            else:
                made = self.analyzer.simplify(index - start)
            self.shifted[index, start] = made
        return made

    def visit_BufferLoad(self, node: BufferLoad) -> Any:
        made = self.generic_visit(node)
        if made.buffer not in self.moved:
            return made
        return BufferLoad(*self._indices(made.buffer, made.indices))

    def visit_BufferStore(self, node: BufferStore) -> Any:
        made = self.generic_visit(node)
        if made.buffer not in self.moved:
            return made
        buffer, indices = self._indices(made.buffer, made.indices)
        return BufferStore(buffer, made.value, indices)
