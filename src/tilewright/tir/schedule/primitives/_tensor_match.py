"""Finding the computation of a tensor intrinsic's description in a program.

Both sides are read as a body under *iterators* that take all combinations of their values. The
iterators of the description are assigned to some of the program's, of the same kind, in all ways
that sizes allow, until the bodies agree: each buffer of the description must lie in one buffer of
the program, at a place (``starts``) that no assigned iterator takes part in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from tilewright.arith import Analyzer, detect_iter_map
from tilewright.ir import (
    Expr,
    IntImm,
    Range,
    Var,
    collect,
    const,
    is_const,
    sub,
    substitute,
    uses_var,
)
from tilewright.tir import (
    OPAQUE,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    PrimFunc,
    SeqStmt,
    Stmt,
)
from tilewright.tir.analysis import block_facts
from tilewright.tir.analysis.update_order import check_updates_commute

_COMMUTATIVE = ("Add", "Mul", "Min", "Max", "And", "Or", "EQ", "NE")


@dataclass(frozen=True)
class Axis:
    """An iterator: the variable that the body uses, its extent and its kind."""

    var: Var
    extent: Expr
    kind: str
    loop: For | None = None


@dataclass(frozen=True)
class Nest:
    """A body under iterators from zero. ``ordered`` says that their order may matter.

    ``reason`` tells why, for error messages.
    """

    axes: tuple[Axis, ...]
    body: Any
    ordered: bool
    reason: str = ""


class Unreadable(Exception):
    """A nest that can't be compared with a description, and why."""


def read_nest(body: Stmt, analyzer: Analyzer) -> Nest:
    """Read loops with one body inside, which may be in blocks without init and predicate."""
    loops: list[For] = []
    realizes: list[BlockRealize] = []
    mapping: dict[Var, Expr] = {}
    while isinstance(body, (For, BlockRealize)):
        if isinstance(body, For):
            loops.append(body)
            body = body.body
            continue
        block = body.block
        if block.init is not None:
            raise Unreadable(
                f"block {block.name!r} has init: decompose the reduction, or give the loop so that "
                "init stays outside"
            )
        if not is_const(body.predicate, 1):
            raise Unreadable(f"block {block.name!r} has a predicate")
        if block.match_buffers or block.alloc_buffers:
            raise Unreadable(f"block {block.name!r} has buffers of its own")
        for iter_var, value in zip(block.iter_vars, body.iter_values):
            mapping[iter_var.var] = substitute(value, mapping)
        if block.iter_vars:
            realizes.append(body)
        body = block.body
    if isinstance(body, SeqStmt) and any(isinstance(s, (For, BlockRealize)) for s in body.stmts):
        raise Unreadable("there is more than one nest in it")
    for loop in loops:
        if not is_const(loop.min, 0):
            raise Unreadable(f"loop {loop.loop_var.name!r} does not start at zero")
    if len(realizes) == 1 and _is_one_to_one(realizes[0], loops, analyzer):
        block = realizes[0].block
        facts = block_facts(block)
        axes = tuple(Axis(item.var, item.dom.extent, item.kind) for item in block.iter_vars)
        reason = facts.reason if facts.kind == OPAQUE else check_updates_commute(block)
        if not reason:
            return _without_units(axes, body, False)
        if all(
            type(value) is Var and value is loop.loop_var
            for value, loop in zip(realizes[0].iter_values, loops)
        ):
            return _without_units(axes, body, True, reason)
    axes = tuple(Axis(loop.loop_var, loop.extent, "", loop) for loop in loops)
    return _without_units(axes, substitute(body, mapping), True, "its bindings are not one to one")


def _is_one_to_one(realize: BlockRealize, loops: list[For], analyzer: Analyzer) -> bool:
    """Whether the loops run each instance of the block's domain exactly once."""
    ranges = {loop.loop_var: Range.from_min_extent(loop.min, loop.extent) for loop in loops}
    if all(is_const(item.dom.min, 0) for item in realize.block.iter_vars):
        used = [value for value in realize.iter_values if type(value) is Var and value in ranges]
        if len(set(used)) == len(loops) == len(realize.iter_values) == len(used) and all(
            analyzer.can_prove_equal(ranges[value].extent, item.dom.extent)
            for value, item in zip(used, realize.block.iter_vars)
        ):
            return True
    else:
        return False
    found = detect_iter_map(realize.iter_values, ranges, require_bijective=True, analyzer=analyzer)
    spans = found.ranges()
    if found.errors or spans is None:
        return False
    return all(
        is_const(span.min, 0) and analyzer.can_prove_equal(span.extent, item.dom.extent)
        for span, item in zip(spans, realize.block.iter_vars)
    )


def _without_units(axes: tuple[Axis, ...], body: Stmt, ordered: bool, reason: str = "") -> Nest:
    units = {axis.var: const(0, axis.var.dtype) for axis in axes if is_const(axis.extent, 1)}
    kept = tuple(axis for axis in axes if axis.var not in units)
    return Nest(kept, substitute(body, units) if units else body, ordered, reason)


class Description:
    """The description of an intrinsic: ``nest``, ``buffers`` and the loops around its body."""

    def __init__(self, desc: PrimFunc) -> None:
        self.buffers = desc.buffers
        self.nest = read_nest(desc.body, Analyzer())
        self.loops: list[For] = []
        self.block: BlockRealize | None = None
        current = desc.body
        while isinstance(current, (For, BlockRealize)):
            if isinstance(current, For):
                self.loops.append(current)
                current = current.body
            else:
                if current.block.iter_vars:
                    self.block = current
                current = current.block.body

    def loop_of(self, axis: Axis) -> For | None:
        """The loop to which an axis is bound."""
        if axis.loop is not None:
            return axis.loop
        assert self.block is not None
        for item, value in zip(self.block.block.iter_vars, self.block.iter_values):
            if item.var is axis.var:
                return next((loop for loop in self.loops if loop.loop_var is value), None)
        return None


@lru_cache(maxsize=64)
def description(desc: PrimFunc) -> Description:
    """Read a description; raises ``Unreadable``."""
    return Description(desc)


@dataclass
class Match:
    """Buffers of the description by the program's, where they start, and assigned iterators."""

    buffers: dict[Buffer, Buffer] = field(default_factory=dict)
    starts: dict[Buffer, list[Expr]] = field(default_factory=dict)
    axes: dict[Var, Axis] = field(default_factory=dict)


def assignments(
    wanted: Sequence[Axis], offered: Sequence[Axis], fits: Callable[[Axis, Axis], bool]
) -> Iterator[list[Axis]]:
    """Yield all ways to assign to each wanted axis a different one that fits, in order."""
    if not wanted:
        yield []
        return
    for number, axis in enumerate(offered):
        if fits(wanted[0], axis):
            rest = [*offered[:number], *offered[number + 1 :]]
            for others in assignments(wanted[1:], rest, fits):
                yield [axis, *others]


class BodyMatcher:
    """Compares bodies under one assignment of iterators."""

    def __init__(self, analyzer: Analyzer, axes: dict[Var, Axis]) -> None:
        self.analyzer = analyzer
        self.found = Match(axes=axes)
        self.values: dict[Any, Any] = {theirs: axis.var for theirs, axis in axes.items()}
        self.inner = {axis.var for axis in axes.values()}
        self.why = ""

    def same(self, mine: Any, theirs: Any) -> bool:
        """Compare two trees; operands of commutative operators may be swapped."""
        if type(mine) is not type(theirs):
            self.why = f"{mine!r} against {theirs!r}"
            return False
        if isinstance(mine, BufferLoad):
            return self.access(mine.buffer, mine.indices, theirs.buffer, theirs.indices)
        if isinstance(mine, BufferStore):
            return self.access(
                mine.buffer, mine.indices, theirs.buffer, theirs.indices
            ) and self.same(mine.value, theirs.value)
        if isinstance(mine, Var):
            self.why = f"{mine!r} against {theirs!r}"
            return self.values.get(theirs) is mine
        if isinstance(mine, Expr) and mine.dtype != theirs.dtype:
            self.why = f"{mine!r} is {mine.dtype}, the description has {theirs.dtype}"
            return False
        for item in mine.node_fields:
            if item.role == "attr" and getattr(mine, item.name) != getattr(theirs, item.name):
                self.why = f"{mine!r} against {theirs!r}"
                return False
        a, b = mine.child_nodes(), theirs.child_nodes()
        if len(a) != len(b):
            self.why = f"{mine!r} against {theirs!r}"
            return False
        saved = dict(self.found.buffers), dict(self.found.starts)
        if all(self.same(x, y) for x, y in zip(a, b)):
            return True
        if type(mine).__name__ in _COMMUTATIVE and len(a) == 2:
            self.found.buffers, self.found.starts = saved
            why = self.why
            if self.same(a[0], b[1]) and self.same(a[1], b[0]):
                return True
            self.why = why
        return False

    def access(self, mine: Buffer, here: Any, theirs: Buffer, there: Any) -> bool:
        """Compare two accesses; the program's buffer may have more dimensions in front."""
        known = self.found.buffers.get(theirs)
        if known is None:
            if mine.dtype != theirs.dtype or mine.ndim < theirs.ndim:
                self.why = f"{mine!r} can't stand for {theirs!r}"
                return False
            if mine.scope != theirs.scope:
                self.why = f"{mine.name!r} is in {mine.scope}, the description wants {theirs.scope}"
                return False
        elif known is not mine:
            self.why = f"{theirs.name!r} stands for {known.name!r} and for {mine.name!r}"
            return False
        skipped = mine.ndim - theirs.ndim
        starts: list[Expr] = []
        for position, index in enumerate(here):
            start = index
            if position >= skipped:
                start = sub(index, substitute(there[position - skipped], self.values))
            start = self.analyzer.simplify(start)
            if type(start) is not IntImm and uses_var(start, self.inner):
                self.why = (
                    f"the index {index!r} of {mine.name!r} does not run along as in the description"
                )
                return False
            starts.append(start)
        if known is None:
            self.found.buffers[theirs] = mine
            self.found.starts[theirs] = starts
            return True
        before = self.found.starts[theirs]
        if all(self.analyzer.can_prove_equal(x, y) for x, y in zip(starts, before)):
            return True
        self.why = f"accesses of {mine.name!r} start at different places"
        return False


def match_body(
    mine: Nest,
    theirs: Nest,
    orders: Iterator[list[Axis]],
    analyzer: Analyzer,
) -> tuple[Match | None, str]:
    """Return the first match among the assignments, or why the first one doesn't match."""
    reason = ""
    for chosen in orders:
        axes = dict(zip((axis.var for axis in theirs.axes), chosen))
        matcher = BodyMatcher(analyzer, axes)
        if matcher.same(mine.body, theirs.body):
            shared = _shares_result(matcher.found, theirs.body)
            if shared is None:
                return matcher.found, ""
            matcher.why = shared
        reason = reason or matcher.why or "the computations differ"
    return None, reason


def _shares_result(found: Match, body: BufferStore) -> str | None:
    """Return a written buffer that also matches another one of the description."""
    for store in collect(body, BufferStore):
        result = found.buffers.get(store.buffer)
        for theirs, mine in found.buffers.items():
            if mine is result and theirs is not store.buffer:
                return f"{mine.name!r} would be both {store.buffer.name!r} and {theirs.name!r}"
    return None
