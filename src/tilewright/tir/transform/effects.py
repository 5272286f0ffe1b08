"""What passes ask about expressions and statements before they move or drop them.

Moving an expression is safe if it has no effects (``is_pure``), nothing it reads is written in
between (``memory_read`` against ``EffectTable``), and evaluating it where it might not have been
evaluated can't stop the program (``may_trap``). ``ExprTable`` numbers expressions by structure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir import (
    INDEX,
    And,
    Call,
    Expr,
    FloorDiv,
    FloorMod,
    Mutator,
    Node,
    Or,
    Var,
    content_mask,
    contents,
    dtypes,
    not_,
    pre_order,
)
from tilewright.tir.analysis import SideEffect, side_effect
from tilewright.tir.attrs import NO_ALIAS
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.gpu_ops import GPU_OPS, memory_uses
from tilewright.tir.lanes import lane_range, scalarized
from tilewright.tir.stmt import (
    Allocate,
    Block,
    BufferStore,
    DeclBuffer,
    MatchBufferRegion,
    Stmt,
)

_EFFECTS = ("update", "opaque")
#: Calls marked opaque that neither write nor order memory.
_HARMLESS = ("prefetch", "assume")
_DIVISIONS = ("truncdiv", "truncmod", "indexdiv", "indexmod")


def is_pure(expr: Any) -> bool:
    """Whether evaluating an expression does nothing but give its value."""
    return side_effect(expr) <= SideEffect.READ_STATE


def memory_read(expr: Node) -> set[Var]:
    """Pointers of what an expression reads, or hands to calls."""
    found: set[Var] = set()
    for item in pre_order(expr):
        if type(item) is BufferLoad:
            found.add(item.buffer.data)
        elif type(item) is Var and item.dtype == "handle":
            found.add(item)
    return found


_NOTHING: frozenset[Var] = frozenset()


class PointerUses:
    """The pointers of the memory that a tree accesses or mentions, remembered by node."""

    def __init__(self) -> None:
        self._known: dict[Any, frozenset[Var]] = {}
        self._mask = content_mask(BufferLoad, BufferStore, "handle")

    def of(self, node: Any) -> frozenset[Var]:
        """Return the pointers; what declares buffers or regions of them does not count."""
        if not contents(node) & self._mask:
            return _NOTHING
        found = self._known.get(node)
        if found is None:
            kind = type(node)
            if kind is Var:
                found = frozenset((node,))
            else:
                parts = [self.of(item) for item in node.child_nodes() if type(item) is not Buffer]
                if kind is BufferLoad or kind is BufferStore:
                    parts.append(frozenset((node.buffer.data,)))
                parts = [part for part in parts if part]
                found = parts[0] if len(parts) == 1 else _NOTHING.union(*parts)
            self._known[node] = found
        return found


@dataclass(frozen=True)
class Effects:
    """What a statement writes (by pointer), and whether it also does unknown things."""

    writes: frozenset[Var]
    opaque: bool

    def disturbs(self, read: set[Var]) -> bool:
        """Whether a value read before may differ after."""
        return (self.opaque and bool(read)) or not self.writes.isdisjoint(read)


class EffectTable:
    """Effects of statements, remembered by statement.

    Parameters don't overlap unless the function says so with ``tir.noalias = False``.
    """

    def __init__(self, func: PrimFunc) -> None:
        self._known: dict[Stmt, Effects] = {}
        aliases = not func.attrs.get(NO_ALIAS, True)
        self._together = frozenset(buffer.data for buffer in func.buffers) if aliases else None

    def of(self, stmt: Stmt) -> Effects:
        """Return the effects of a statement with all below it."""
        found = self._known.get(stmt)
        if found is not None:
            return found
        writes: set[Var] = set()
        opaque = False
        for item in stmt.child_nodes():
            if isinstance(item, Stmt):
                inner = self.of(item)
                writes |= inner.writes
                opaque = opaque or inner.opaque
            elif not opaque:
                for part in pre_order(item):
                    if type(part) is not Call or part.op.effect not in _EFFECTS:
                        continue
                    if part.op.name in GPU_OPS and not GPU_OPS[part.op.name].synchronises:
                        writes |= {
                            use.tile.along.buffer.data
                            for use in memory_uses(part)
                            if "w" in use.access
                        }
                    elif part.op.name not in _HARMLESS:
                        opaque = True
        if isinstance(stmt, BufferStore):
            writes.add(stmt.buffer.data)
        if self._together is not None and not self._together.isdisjoint(writes):
            writes |= self._together
        made = self._known[stmt] = Effects(frozenset(writes), opaque)
        return made


def may_trap(expr: Expr, analyzer: Analyzer) -> bool:
    """Whether evaluating could stop the program: an index out of bounds, a call.

    ``False`` means that it is proven harmless, with what the analyzer knows. Divisions by what may
    be zero count too: they have a result, but where nobody wants it they only take time.
    """
    kind = type(expr)
    if kind is FloorDiv or kind is FloorMod:
        if not _divides(expr.b, analyzer):  # type: ignore[attr-defined]
            return True
    elif kind is BufferLoad:
        if not in_bounds(expr.buffer, expr.indices, analyzer):  # type: ignore[attr-defined]
            return True
    elif kind is And or kind is Or:
        a, b = expr.a, expr.b  # type: ignore[attr-defined]
        if dtypes.lanes_of(expr.dtype) == 1:
            if may_trap(a, analyzer):
                return True
            with analyzer.constraint(a if kind is And else not_(a)):
                return may_trap(b, analyzer)
    elif type(expr) is Call:
        name = expr.op.name
        if name == "if_then_else" and dtypes.lanes_of(expr.args[0].dtype) == 1:
            return _choice_traps(expr, analyzer)
        if name.startswith("call_") or (
            name in _DIVISIONS and not _divides(expr.args[1], analyzer)
        ):
            return True
    return any(may_trap(item, analyzer) for item in expr.child_nodes() if isinstance(item, Expr))


def _choice_traps(expr: Call, analyzer: Analyzer) -> bool:
    condition, yes, no = expr.args
    if may_trap(condition, analyzer):
        return True
    with analyzer.constraint(condition):
        if may_trap(yes, analyzer):
            return True
    with analyzer.constraint(not_(condition)):
        return may_trap(no, analyzer)


def _divides(divisor: Expr, analyzer: Analyzer) -> bool:
    """Whether a divisor is proven to be neither zero nor minus one (which can overflow)."""
    bound = lane_bound(divisor, analyzer)
    return bool(bound[0] >= 1 or bound[1] <= -2)


def in_bounds(buffer: Buffer, indices: tuple[Expr, ...], analyzer: Analyzer) -> bool:
    """Whether an access is proven to stay inside its buffer."""
    for index, extent in zip(indices, buffer.shape):
        if dtypes.lanes_of(index.dtype) > 1:
            lane = Var("lane", INDEX)
            scalar = scalarized(index, lane)
            if scalar is None:
                return False
            known = analyzer.copy()
            known.bind(lane, lane_range(dtypes.lanes_of(index.dtype)))
        else:
            scalar, known = index, analyzer
        if not (known.can_prove_ge(scalar, 0) and known.can_prove_lt(scalar, extent)):
            return False
    return True


def lane_bound(expr: Expr, analyzer: Analyzer) -> tuple[Any, Any]:
    """Constant bounds of an integer value, over all lanes if it is a vector."""
    lanes = dtypes.lanes_of(expr.dtype)
    if lanes > 1:
        lane = Var("lane", INDEX)
        scalar = scalarized(expr, lane)
        if scalar is None:
            return float("-inf"), float("inf")
        analyzer = analyzer.copy()
        analyzer.bind(lane, lane_range(lanes))
        expr = scalar
    bound = analyzer.const_int_bound(expr)
    return bound.min, bound.max


class ExprTable:
    """Gives expressions numbers, equal ones (up to nothing but identity of nodes) the same."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._known: dict[Node, int] = {}

    def number(self, node: Node) -> int:
        """The number of an expression."""
        found = self._known.get(node)
        if found is not None:
            return found
        kind = type(node)
        key: Any = node
        if kind is not Var and kind is not Buffer:
            key = (
                kind,
                *(
                    self.key(getattr(node, field.name))
                    for field in node.node_fields
                    if field.role != "derived"
                ),
            )
        made = self._numbers.setdefault(key, len(self._numbers))
        self._known[node] = made
        return made

    def key(self, value: object) -> Any:
        """What an expression, or a tuple of them, is recognised by."""
        if isinstance(value, Node):
            return ("node", self.number(value))
        if isinstance(value, tuple):
            return tuple(map(self.key, value))
        # 0.0 equals -0.0, and NaN nothing.
        return repr(value) if isinstance(value, float) else value


class BufferMutator(Mutator):
    """A mutator that rewrites buffers too: what their shapes say, at definition and all uses."""

    def __init__(self, buffers: Mapping[Buffer, Buffer] | None = None) -> None:
        self.buffers: dict[Buffer, Buffer] = dict(buffers or {})

    def rewrite_buffer(self, buffer: Buffer) -> Buffer:
        """Return what a buffer becomes; the same object if it stays."""
        shape = tuple(map(self.visit, buffer.shape))
        strides = tuple(map(self.visit, buffer.strides))
        offset = None if buffer.elem_offset is None else self.visit(buffer.elem_offset)
        old = (*buffer.shape, *buffer.strides, buffer.elem_offset)
        if all(a is b for a, b in zip((*shape, *strides, offset), old)):
            return buffer
        return buffer.replace(shape=shape, strides=strides, elem_offset=offset)

    def visit_Buffer(self, node: Buffer) -> Buffer:
        made = self.buffers.get(node)
        if made is None:
            made = self.buffers[node] = self.rewrite_buffer(node)
        return made

    def _definition(
        self, node: Allocate | DeclBuffer | MatchBufferRegion
    ) -> Allocate | DeclBuffer | MatchBufferRegion:
        buffer = self.visit(node.buffer)
        made = node.map_children(self.visit)
        return made if buffer is node.buffer else made.replace(buffer=buffer)

    def visit_Allocate(self, node: Allocate) -> Any:
        return self._definition(node)

    def visit_DeclBuffer(self, node: DeclBuffer) -> Any:
        return self._definition(node)

    def visit_MatchBufferRegion(self, node: MatchBufferRegion) -> Any:
        return self._definition(node)

    def visit_Block(self, node: Block) -> Stmt:
        allocated = tuple(map(self.visit, node.alloc_buffers))
        made = node.map_children(self.visit)
        if all(a is b for a, b in zip(allocated, node.alloc_buffers)):
            return made
        return made.replace(alloc_buffers=allocated)
