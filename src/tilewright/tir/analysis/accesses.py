"""Every access to memory in a statement, with the loops and conditions it is under.

Iteration variables of blocks are replaced by the values that they are bound to, and ``let``s by
theirs, so that an access is told in terms of loops alone. The bounds check and the counts of
traffic stand on this list; region inference (``regions``) has a walk of its own, as it stops at
blocks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from tilewright.ir import (
    EQ,
    INDEX,
    And,
    Broadcast,
    Call,
    Expr,
    IntImm,
    Let,
    Node,
    Or,
    Range,
    Var,
    as_int,
    compare,
    const,
    contains,
    dtypes,
    is_const,
    lane_count,
    mul,
    not_,
    pre_order,
    substitute,
)
from tilewright.tir.analysis.regions import place_box, range_in_source
from tilewright.tir.buffer import Buffer, BufferLoad, BufferRegion
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import (
    REDUCE,
    Allocate,
    Block,
    BlockRealize,
    BufferStore,
    DeclBuffer,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
)
from tilewright.tir.walk import per_statement

_POINTERS = ("address_of", "access_ptr", "tile_of")
_LONGEST_VALUE = 256  # nodes of a value that takes its variable's place


@dataclass(frozen=True, eq=False)
class Access:
    """One place of the program that touches memory.

    ``box`` is what one instance touches, ``elements`` how many elements of it. ``domain`` holds the
    ranges of the ``loops`` around it (inside the program asked about), the outermost first; ranges
    of inner loops may depend on outer ones. It happens where all ``conditions`` hold, and an
    unknown number of times if it ``repeats`` (below a ``while``).

    ``node`` is the load, the store, or the region that a block declares whose body is an intrinsic.
    A load inside ``address_of`` is a ``pointer``: what is done with it is not seen. ``in_init``
    tells accesses of a reduction's init. ``values`` is what axes of blocks and ``let``s stand for.
    """

    buffer: Buffer
    box: tuple[Range, ...]
    elements: Expr
    is_write: bool
    node: Node
    stmt: Stmt
    block: Block | None
    loops: tuple[For, ...]
    domain: Mapping[Var, Range]
    conditions: tuple[Expr, ...]
    shape: tuple[Expr, ...]
    repeats: bool = False
    pointer: bool = False
    in_init: bool = False
    values: Mapping[Any, Expr] = field(default_factory=dict)


def detect_accesses(
    program: PrimFunc | Stmt, *, through_matches: bool = True, of: Collection[Var] | None = None
) -> list[Access]:
    """Return all accesses below a statement, or those ``of`` these pointers, in program order.

    With ``through_matches`` an access to a matched buffer is one to the buffer that it stands for.
    """
    walker = _Walker(through_matches, of)
    walker.stmt(program.body if isinstance(program, PrimFunc) else program)
    return walker.found


class _Walker:
    def __init__(self, through_matches: bool, of: Collection[Var] | None) -> None:
        self.through_matches, self.of = through_matches, of
        self.found: list[Access] = []
        self.loops: tuple[For, ...] = ()
        self.domain: dict[Var, Range] = {}
        self.conditions: tuple[Expr, ...] = ()
        self.values: dict[Any, Expr] = {}
        self.matched: dict[Buffer, BufferRegion] = {}
        self.current: Stmt | None = None
        self.block: Block | None = None
        self.repeats = False
        self.in_init = False

    # ---- context --------------------------------------------------------------------------------

    def resolved(self, node: Node) -> Any:
        if type(node) is IntImm or not self.values:
            return node
        return substitute(node, self.values)

    @contextmanager
    def under(self, *conditions: Expr) -> Iterator[None]:
        before = self.conditions
        self.conditions = (*before, *(c for c in conditions if not is_const(c, 1)))
        yield
        self.conditions = before

    def define(self, var: Var, value: Expr) -> None:
        """Replace a variable by its value, unless that is long or would be read from memory again.

        Chains of variables that each use the one before several times grow exponentially.
        """
        value = self.resolved(value)
        nodes = list(islice(pre_order(value), _LONGEST_VALUE + 1))
        if len(nodes) <= _LONGEST_VALUE and not any(type(n) is BufferLoad for n in nodes):
            self.values[var] = value

    # ---- accesses -------------------------------------------------------------------------------

    def access(
        self,
        node: BufferRegion,
        buffer: Buffer,
        box: Iterable[Range],
        elements: Expr | None,
        **kind: bool,
    ) -> None:
        ranges = [Range.from_min_extent(self.resolved(r.min), self.resolved(r.extent)) for r in box]
        shape = buffer.shape
        if self.through_matches and buffer in self.matched:
            source = self.matched[buffer]
            buffer, ranges = source.buffer, list(range_in_source(source, ranges))
            shape = buffer.shape
        if elements is None:
            elements = const(1)
            for item in ranges:
                elements = mul(elements, item.extent)
        assert self.current is not None
        self.found.append(
            Access(
                buffer,
                tuple(ranges),
                elements,
                kind["is_write"],
                node,
                self.current,
                self.block,
                self.loops,
                dict(self.domain),
                self.conditions,
                tuple(map(self.resolved, shape)),
                self.repeats,
                kind.get("pointer", False),
                self.in_init,
                self.values,
            )
        )

    def is_asked_for(self, buffer: Buffer) -> bool:
        if self.of is None:
            return True
        source = self.matched.get(buffer) if self.through_matches else None
        return (buffer if source is None else source.buffer).data in self.of

    def points(self, node: Any, **kind: bool) -> None:
        if not self.is_asked_for(node.buffer):
            return
        vectors = (x.dtype for x in node.indices if type(x) is not Broadcast)
        lanes = max(map(dtypes.lanes_of, vectors), default=1)
        self.access(node, node.buffer, place_box(node), lane_count(lanes, INDEX), **kind)

    def expr(self, node: Any) -> None:
        if not _has_loads(node):
            return
        kind = type(node)
        if kind is BufferLoad:
            for index in node.indices:
                self.expr(index)
            self.points(node, is_write=False)
        elif kind is And or kind is Or:
            self.expr(node.a)
            with self.under(self.resolved(node.a if kind is And else not_(node.a))):
                self.expr(node.b)
        elif kind is Let:
            self.expr(node.value)
            self.define(node.var, node.value)
            self.expr(node.body)
        elif kind is Call and node.op.name == "if_then_else":
            self.expr(node.args[0])
            condition = self.resolved(node.args[0])
            with self.under(condition):
                self.expr(node.args[1])
            with self.under(not_(condition)):
                self.expr(node.args[2])
        elif kind is Call and node.op.name in _POINTERS:
            for arg in node.args:
                if type(arg) is BufferLoad:
                    for index in arg.indices:
                        self.expr(index)
                    self.points(arg, is_write=False, pointer=True)
                else:
                    self.expr(arg)
        else:
            for item in node.child_nodes():
                if isinstance(item, Expr):
                    self.expr(item)

    # ---- statements -----------------------------------------------------------------------------

    def stmt(self, node: Any) -> None:
        kind = type(node)
        if kind is SeqStmt:
            for item in node.stmts:
                self.stmt(item)
            return
        before, self.current = self.current, node
        if kind is For:
            self.loop(node)
        elif kind is BlockRealize:
            self.realize(node)
        elif kind is BufferStore:
            for item in (node.value, *node.indices):
                self.expr(item)
            self.points(node, is_write=True)
        elif kind is IfThenElse:
            self.expr(node.condition)
            self.branch(node.condition, node.then_case)
            if node.else_case is not None:
                self.branch(not_(node.condition), node.else_case)
        elif kind is LetStmt:
            self.expr(node.value)
            self.define(node.var, node.value)
            self.stmt(node.body)
        elif kind is While:
            repeats, self.repeats = self.repeats, True
            self.expr(node.condition)
            self.stmt(node.body)
            self.repeats = repeats
        elif kind is Allocate or kind is DeclBuffer:
            self.stmt(node.body)
        else:
            for item in node.child_nodes():
                if isinstance(item, Expr):
                    self.expr(item)
                elif isinstance(item, Stmt):
                    self.stmt(item)
        self.current = before

    def branch(self, condition: Expr, body: Stmt) -> None:
        with self.under(self.resolved(_lasting(condition, body))):
            self.stmt(body)

    def loop(self, node: For) -> None:
        self.expr(node.min)
        self.expr(node.extent)
        self.domain[node.loop_var] = Range.from_min_extent(
            self.resolved(node.min), self.resolved(node.extent)
        )
        loops, self.loops = self.loops, (*self.loops, node)
        self.stmt(node.body)
        self.loops = loops
        del self.domain[node.loop_var]

    def realize(self, node: BlockRealize) -> None:
        block = node.block
        for value in node.iter_values:
            self.expr(value)
        for iter_var, value in zip(block.iter_vars, node.iter_values):
            self.define(iter_var.var, value)
        self.expr(node.predicate)
        outer, self.block = self.block, block
        with self.under(self.resolved(_lasting(node.predicate, block))):
            for match in block.match_buffers:
                source = match.source
                for item in source.region:
                    self.expr(item.min)
                    self.expr(item.extent)
                if source.buffer in self.matched:
                    inner = range_in_source(self.matched[source.buffer], list(source.region))
                    source = BufferRegion(self.matched[source.buffer].buffer, tuple(inner))
                self.matched[match.buffer] = self.resolved(source)
            if works_by_intrinsic(block):
                for regions, is_write in ((block.reads, False), (block.writes, True)):
                    for region in filter(lambda item: self.is_asked_for(item.buffer), regions):
                        self.access(region, region.buffer, region.region, None, is_write=is_write)
            else:
                self.init_and_body(block)
        self.block = outer

    def init_and_body(self, block: Block) -> None:
        if block.init is not None:
            first = [
                compare(EQ, self.resolved(item.var), self.resolved(item.dom.min))
                for item in block.iter_vars
                if item.kind == REDUCE and as_int(item.dom.extent) != 1
            ]
            with self.under(*first):
                self.in_init = True
                self.stmt(block.init)
                self.in_init = False
        self.stmt(block.body)


def _lasting(condition: Expr, body: Stmt) -> Expr:
    """A condition that holds in a body, unless that may overwrite what the condition reads.

    Then it tells how often the body runs, but nothing about what is read there: a variable of which
    nothing is known stands for it.
    """
    loads = {item.buffer for item in pre_order(condition) if type(item) is BufferLoad}
    if not loads or not any(
        (type(item) is BufferStore and item.buffer in loads)
        or (type(item) is Call and item.op.effect == "opaque")
        for item in pre_order(body)
    ):
        return condition
    return Var("condition", "bool")


_has_calls = contains(Call)
_has_loads = contains(BufferLoad)


def works_by_intrinsic(block: Block) -> bool:
    """Whether the body calls something that accesses memory by itself: regions must tell."""
    return _has_calls(block.body) and _calls_intrinsic(block.body)


@per_statement
def _calls_intrinsic(body: Stmt) -> bool:
    return any(
        type(item) is Call
        and (item.op.name == "access_ptr" or (item.op.effect == "opaque" and _has_pointer(item)))
        for item in pre_order(body, enter=lambda node: type(node) is not BlockRealize)
    )


def _has_pointer(node: Call) -> bool:
    return any(
        (type(item) is Call and item.op.name in _POINTERS)
        or (type(item) is Var and item.dtype == "handle")
        for item in pre_order(node)
    )
