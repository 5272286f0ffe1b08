"""Fetch what the next iteration of a loop will read into the cache while this one computes.

A loop annotated with :data:`PREFETCH_NEXT` goes through panels of an operand, one an iteration.
Read by the first tile alone, a panel would have to come faster from far memory than it can. So its
transfer is spread: each step of the loops inside asks for a small part of the next panel. The last
iteration asks for what lies behind the operand, which touches nothing.

What is looked up has its place from another buffer, where the next one's is known as well.

A panel is one run of neighbours, or rows of them at a constant distance: such are asked for row by
row, whatever the order in which the loops read them, because memory gives neighbours sooner. Behind
the last iteration of such a loop comes the first one of the next iteration of the loop around it.
Where rows are copied first, what is computed with the copy may ask for them.

Runs on flat buffers, before loops are cut and vectorised. The annotation is a hint: where the next
panel doesn't lie a constant distance behind, or the loops inside have unknown extents, nothing is
fetched.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from tilewright.arith import linear_coefficients, simplify
from tilewright.ir import (
    Expr,
    Mutator,
    Var,
    annotated,
    as_int,
    call,
    collect,
    const,
    contains,
    dtypes,
    floordiv,
    floormod,
    minimum,
    substitute,
    uses_var,
)
from tilewright.tir.attrs import PREFETCH_NEXT
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import (
    PARALLEL,
    SERIAL,
    UNROLLED,
    Allocate,
    Evaluate,
    For,
    SeqStmt,
    Stmt,
    seq,
)
from tilewright.tir.transform.base import FunctionTransform

_has_annotation = contains(annotated(PREFETCH_NEXT))
_LINE_BYTES = 64
#: Smaller panels come soon enough by themselves; more lines in a step would be in the way.
_LEAST_BYTES, _MOST_LINES = 4096, 8
#: So many at once are as well as one now and then.
_FEW_LINES = 4
#: Rows don't come by themselves, so more of their lines are worth it.
_MOST_LINES_OF_ROWS = 32
#: What is looked up is asked for so many bytes ahead, but at least one iteration.
_LOOK_UP_BYTES = 4096
#: Into all levels of the cache.
_LOCALITY = 3


class InjectPrefetch(FunctionTransform):
    """Insert prefetches below annotated loops."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        return func.map_children(_Injector().visit) if _has_annotation(func.body) else func


@dataclass
class _Panel:
    """An operand read below a loop: a load, the serial loops between, the innermost last.

    ``inside`` are all loops between, also vectorised and unrolled ones.
    """

    load: BufferLoad
    loops: tuple[For, ...]
    inside: tuple[For, ...]


class _Injector(Mutator):
    def __init__(self) -> None:
        # Loops that hold nothing but the one that is visited.
        self.around: tuple[For, ...] = ()

    def visit_Expr(self, node: Expr) -> Expr:
        return node

    def visit_For(self, node: For) -> For:
        if PREFETCH_NEXT not in node.annotations:
            before = self.around
            self.around = (*before, node) if isinstance(node.body, For) else ()
            made = self.generic_visit(node)
            self.around = before
            return made
        how = as_int(node.annotations[PREFETCH_NEXT])
        rest = {key: value for key, value in node.annotations.items() if key != PREFETCH_NEXT}
        node = node.replace(annotations=rest)
        if node.kind not in (SERIAL, PARALLEL):
            return node
        additions: dict[int, list[Stmt]] = {}
        own: list[Stmt] = []
        for panel in _panels(node, at_once=how != 1, spread=how == 2):
            if how == 3:
                fetches = _fetches_by_look_up(panel, node)
            elif how == 1:
                panel = _by_whole_lines(panel, node.loop_var)
                fetches = _fetches(panel, node.loop_var)
            else:
                panel = _by_rows(panel) if how == 2 else _beside(panel, node)
                following = _following((*self.around, node))
                fetches = _fetches_of_rows(panel, following) if panel.loops or how == 2 else []
            at = additions.setdefault(id(panel.loops[-1]), []) if panel.loops else own
            at.extend(fetches)
        return node.replace(body=seq(*own, _Adder(additions).visit(node.body)))


class _Adder(Mutator):
    """Puts statements at the beginning of loops."""

    def __init__(self, additions: dict[int, list[Stmt]]) -> None:
        self.additions = additions

    def visit_Expr(self, node: Expr) -> Expr:
        return node

    def visit_For(self, node: For) -> For:
        added = self.additions.get(id(node), [])
        made = self.generic_visit(node)
        return made.replace(body=seq(*added, made.body)) if added else made


def _panels(loop: For, *, at_once: bool, spread: bool) -> list[_Panel]:
    """The deepest load of each buffer that is there before the loop and depends on it.

    Of several the last: by then little of the panel itself is missing. To spread the transfer over
    all of them was measured to be slower. With ``at_once`` there need not be a loop inside. With
    ``spread`` the copies of unrolled loops ask for a part each: memory gives lines that are asked
    for now and then sooner than many at once.
    """
    found: dict[Buffer, _Panel] = {}
    own: set[Var] = set()

    def walk(node: Any, loops: tuple[For, ...], inside: tuple[For, ...], serial: bool) -> None:
        if isinstance(node, Allocate):
            own.add(node.buffer.data)
        if isinstance(node, For):
            serial = serial and (node.kind == SERIAL or (spread and node.kind == UNROLLED))
            inside = (*inside, node)
            if serial:
                loops = (*loops, node)
        inner = bool(loops) or at_once
        if isinstance(node, BufferLoad) and inner and uses_var(node.indices[0], {loop.loop_var}):
            known = found.get(node.buffer)
            if known is None or len(known.loops) <= len(loops):
                found[node.buffer] = _Panel(node, loops, inside)
        for item in node.child_nodes():
            walk(item, loops, inside, serial)

    walk(loop.body, (), (), True)
    return [panel for buffer, panel in found.items() if buffer.data not in own]


def _size(panel: _Panel, var: Var) -> int | None:
    """Elements from a panel to the next one, if that is a constant."""
    linear = linear_coefficients(panel.load.indices[0], [var])
    return None if linear is None else as_int(linear[0])


def _by_whole_lines(panel: _Panel, var: Var) -> _Panel:
    """The panel with the loops down to the one whose steps ask for a few lines.

    Each step of those inside would ask for a part of a line.
    """
    part = (_size(panel, var) or 0) * dtypes.bytes_of(panel.load.buffer.dtype)
    for depth, loop in enumerate(panel.loops, 1):
        part = -(-part // max(1, as_int(loop.extent) or 1))
        if part <= _FEW_LINES * _LINE_BYTES:
            return replace(panel, loops=panel.loops[:depth])
    return panel


def _fetches(panel: _Panel, var: Var) -> list[Stmt]:
    """What each step of a panel's innermost loop does to fetch its part of the next panel."""
    buffer, index = panel.load.buffer, panel.load.indices[0]
    size = _size(panel, var)
    extents = [as_int(loop.extent) for loop in panel.loops]
    width = dtypes.bytes_of(buffer.dtype)
    if size is None or size * width < _LEAST_BYTES or None in extents:
        return []
    first = {loop.loop_var: loop.min for loop in panel.inside}
    place = simplify(substitute(index, {**first, var: var + 1}))
    part = size
    for loop, extent in zip(panel.loops, extents):
        part = -(-part // max(1, extent or 1))
        place = place + (loop.loop_var - loop.min) * part
    lines = -(-part * width // _LINE_BYTES)
    if lines > _MOST_LINES:
        return []
    return [_fetch(buffer, place + line * (_LINE_BYTES // width)) for line in range(lines)]


@dataclass
class _Rows:
    """Rows of neighbours at a distance from each other, in elements."""

    count: int
    length: int
    distance: int


def _rows_of(panel: _Panel) -> _Rows | None:
    """How what a panel's loops read lies in memory; ``None`` if not as rows."""
    variables = [loop.loop_var for loop in panel.inside]
    linear = linear_coefficients(panel.load.indices[0], variables)
    if linear is None:
        return None
    steps: list[tuple[int, int]] = []
    for loop, factor in zip(panel.inside, linear):
        step, extent = as_int(factor), as_int(loop.extent)
        if step is None or extent is None or step < 0:
            return None
        if step and extent > 1:
            steps.append((step, extent))
    length, count, distance = 1, 1, 0
    for step, extent in sorted(steps):
        if step == length and count == 1:
            length *= extent
        elif count == 1:
            count, distance = extent, step
        elif step == count * distance:
            count *= extent
        else:
            return None
    return _Rows(count, length, distance)


def _following(loops: tuple[For, ...]) -> dict[Var, Expr]:
    """What the variables of a perfect nest are in the iteration that comes next."""
    changes: dict[Var, Expr] = {}
    carry: Expr = const(1)
    for loop in reversed(loops):
        extent = as_int(loop.extent)
        if extent is None or loop is loops[0]:
            changes[loop.loop_var] = loop.loop_var + carry
            break
        place = loop.loop_var - loop.min + carry
        changes[loop.loop_var] = floormod(place, const(extent)) + loop.min
        carry = floordiv(place, const(extent))
    return changes


def _by_rows(panel: _Panel) -> _Panel:
    """The panel with the loops down to the one that has a step for each line of its rows."""
    rows, steps = _rows_of(panel), 1
    lines = 0 if rows is None else rows.count * _lines_of(panel, rows)
    for depth, loop in enumerate(panel.loops, 1):
        steps *= as_int(loop.extent) or 1
        if lines <= steps:
            return replace(panel, loops=panel.loops[:depth])
    return panel


def _beside(panel: _Panel, loop: For) -> _Panel:
    """The panel with the loops around what is computed with a copy of it, once it is complete.

    There are none where this reads the panel itself.
    """
    last = loop.body
    while isinstance(last, (Allocate, SeqStmt)):
        last = last.body if isinstance(last, Allocate) else last.stmts[-1]
    loops: list[For] = []
    while isinstance(last, For) and last.kind == SERIAL:
        loops.append(last)
        last = last.body
    copied = all(load.buffer is not panel.load.buffer for load in collect(last, BufferLoad))
    return replace(panel, loops=tuple(loops) if copied else ())


def _lines_of(panel: _Panel, rows: _Rows) -> int:
    """How many cache lines a row has."""
    return -(-rows.length * dtypes.bytes_of(panel.load.buffer.dtype) // _LINE_BYTES)


def _fetches_of_rows(panel: _Panel, following: dict[Var, Expr]) -> list[Stmt]:
    """Each step asks for some whole rows of the next panel, or for a part of one.

    If there are more steps than lines, some steps ask for the same line.
    """
    buffer, index, rows = panel.load.buffer, panel.load.indices[0], _rows_of(panel)
    if rows is None:
        return []
    line = _LINE_BYTES // dtypes.bytes_of(buffer.dtype)
    in_row = _lines_of(panel, rows)
    step: Expr = const(0)
    steps = 1
    for loop in panel.loops:
        extent = as_int(loop.extent) or 1
        step, steps = step * extent + (loop.loop_var - loop.min), steps * extent
    lines = -(-rows.count * in_row // steps)
    step = floordiv(step, const(max(1, steps // (rows.count * in_row))))
    if not 0 < lines <= _MOST_LINES_OF_ROWS:
        return []
    first = {loop.loop_var: loop.min for loop in panel.inside}
    base = simplify(substitute(index, {**first, **following}))
    made = []
    for number in range(lines):
        if lines % in_row == 0:
            row, place = step * (lines // in_row) + number // in_row, const(number % in_row)
        else:
            at = step * lines + number
            row, place = floordiv(at, const(in_row)), floormod(at, const(in_row))
        made.append(_fetch(buffer, base + row * rows.distance + place * line))
    return made


def _fetches_by_look_up(panel: _Panel, loop: For) -> list[Stmt]:
    """Each step asks for what the same step of a later iteration will read."""
    buffer, index = panel.load.buffer, panel.load.indices[0]
    places = [x for x in collect(index, BufferLoad) if uses_var(x, {loop.loop_var})]
    if not places:
        return []
    width = dtypes.bytes_of(buffer.dtype)
    inside = {item.loop_var: item for item in panel.inside if item not in panel.loops}
    extents = [as_int(item.extent) for item in panel.inside]
    if None in extents:
        return []
    row = math.prod(extent or 1 for extent in extents) * width
    ahead = max(1, _LOOK_UP_BYTES // max(row, 1))
    last = loop.min + loop.extent - 1
    changes = {loop.loop_var: minimum(loop.loop_var + ahead, last)}
    changes.update({var: item.min for var, item in inside.items()})
    run = math.prod(as_int(item.extent) or 1 for item in inside.values()) * width
    lines = -(-run // _LINE_BYTES)
    if lines > _MOST_LINES_OF_ROWS:
        return []
    place = substitute(index, changes)
    return [_fetch(buffer, place + line * (_LINE_BYTES // width)) for line in range(lines)]


def _fetch(buffer: Buffer, index: Expr) -> Stmt:
    address = call("address_of", BufferLoad(buffer, (index,)), dtype="handle")
    rw, locality = const(0, "int32"), const(_LOCALITY, "int32")
    return Evaluate(call("prefetch", address, rw, locality, dtype="void"))
