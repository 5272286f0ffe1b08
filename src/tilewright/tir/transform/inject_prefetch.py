"""Fetch what the next iteration of a loop will read into the cache while this one computes.

A loop annotated with :data:`PREFETCH_NEXT` goes through panels of an operand, one an iteration.
Read by the first tile alone, a panel would have to come faster from far memory than it can. So its
transfer is spread: each step of the loops inside asks for a small part of the next panel. The last
iteration asks for what lies behind the operand, which touches nothing.

Runs on flat buffers, before loops are cut and vectorised. The annotation is a hint: where the next
panel doesn't lie a constant distance behind, or the loops inside have unknown extents, nothing is
fetched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.arith import detect_linear_equation
from tilewright.ir import Expr, Mutator, Var, as_int, call, const, dtypes, uses_var
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import PARALLEL, SERIAL, Allocate, Evaluate, For, Stmt, seq
from tilewright.tir.transform.base import FunctionTransform

#: Annotation of a loop whose next iteration's operand is to be fetched.
PREFETCH_NEXT = "pragma_prefetch_next"

_LINE_BYTES = 64
#: Smaller panels come soon enough by themselves; more lines in a step would be in the way.
_LEAST_BYTES, _MOST_LINES = 4096, 8
#: Into all levels of the cache.
_LOCALITY = 3


class InjectPrefetch(FunctionTransform):
    """Insert prefetches below annotated loops."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        return func.map_children(_Injector().visit)


@dataclass
class _Panel:
    """An operand read below a loop: a load, the serial loops between, the innermost last."""

    load: BufferLoad
    loops: tuple[For, ...]


class _Injector(Mutator):
    def visit_Expr(self, node: Expr) -> Expr:
        return node

    def visit_For(self, node: For) -> Any:
        if PREFETCH_NEXT not in node.annotations:
            return self.generic_visit(node)
        rest = {key: value for key, value in node.annotations.items() if key != PREFETCH_NEXT}
        node = node.replace(annotations=rest)
        if node.kind not in (SERIAL, PARALLEL):
            return node
        additions: dict[int, list[Stmt]] = {}
        for panel in _panels(node):
            additions.setdefault(id(panel.loops[-1]), []).extend(_fetches(panel, node.loop_var))
        return node.replace(body=_Adder(additions).visit(node.body))


class _Adder(Mutator):
    """Puts statements at the beginning of loops."""

    def __init__(self, additions: dict[int, list[Stmt]]) -> None:
        self.additions = additions

    def visit_Expr(self, node: Expr) -> Expr:
        return node

    def visit_For(self, node: For) -> Any:
        added = self.additions.get(id(node), [])
        made = self.generic_visit(node)
        return made.replace(body=seq(*added, made.body)) if added else made


def _panels(loop: For) -> list[_Panel]:
    """The deepest load of each buffer that is there before the loop and depends on it.

    Of several the last: by then little of the panel itself is missing. To spread the transfer over
    all of them was measured to be slower.
    """
    found: dict[Buffer, _Panel] = {}
    own: set[Var] = set()

    def walk(node: Any, loops: tuple[For, ...], serial: bool) -> None:
        if isinstance(node, Allocate):
            own.add(node.buffer.data)
        if isinstance(node, For):
            serial = serial and node.kind == SERIAL
            if serial:
                loops = (*loops, node)
        if isinstance(node, BufferLoad) and loops and uses_var(node.indices[0], {loop.loop_var}):
            known = found.get(node.buffer)
            if known is None or len(known.loops) <= len(loops):
                found[node.buffer] = _Panel(node, loops)
        for item in node.child_nodes():
            walk(item, loops, serial)

    walk(loop.body, (), True)
    return [panel for buffer, panel in found.items() if buffer.data not in own]


def _fetches(panel: _Panel, var: Var) -> list[Stmt]:
    """What the innermost loop does in each step to fetch its part of the next panel."""
    buffer, index = panel.load.buffer, panel.load.indices[0]
    linear = detect_linear_equation(index, [var])
    size = as_int(linear[0]) if linear is not None else None
    extents = [as_int(loop.extent) for loop in panel.loops]
    width = dtypes.bytes_of(buffer.dtype)
    if size is None or size * width < _LEAST_BYTES or None in extents:
        return []
    place: Expr = (var + 1) * size
    part = size
    for loop, extent in zip(panel.loops, extents):
        part = -(-part // max(1, extent or 1))
        place = place + (loop.loop_var - loop.min) * part
    lines = -(-part * width // _LINE_BYTES)
    if lines > _MOST_LINES:
        return []
    return [_fetch(buffer, place + line * (_LINE_BYTES // width)) for line in range(lines)]


def _fetch(buffer: Buffer, index: Expr) -> Stmt:
    address = call("address_of", BufferLoad(buffer, (index,)), dtype="handle")
    rw, locality = const(0, "int32"), const(_LOCALITY, "int32")
    return Evaluate(call("prefetch", address, rw, locality, dtype="void"))
