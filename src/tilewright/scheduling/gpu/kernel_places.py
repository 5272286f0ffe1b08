"""What a lowered kernel's text says of its accesses, whatever its variables are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tilewright.ir import Call, Expr, Ramp, Var, as_int, pre_order
from tilewright.tir import UNROLLED, BufferLoad, For
from tilewright.tir.stmt import Allocate, Stmt
from tilewright.tir.walk import statements

MOST_UNROLLED = 16
"""Iterations up to which a compiler unrolls an innermost loop by itself."""


def constant_places(indices: Sequence[Expr]) -> set[int] | None:
    """Return the elements that an access is to, if they are known."""
    index = indices[-1]
    if type(index) is Ramp:
        base, step = as_int(index.base), as_int(index.stride)
        if base is None or step is None:
            return None
        return {base + lane * step for lane in range(index.lanes)}
    place = as_int(index)
    return None if place is None else {place}


def read_places(body: Stmt) -> dict[Var, set[int] | None]:
    """Return the elements of each array in registers that are read; ``None``: any may be."""
    found: dict[Var, set[int] | None] = {}
    for item in pre_order(body):
        if type(item) is Allocate and item.buffer.scope == "local":
            found.setdefault(item.buffer.data, set())
        if not isinstance(item, BufferLoad):
            continue
        known, places = found.get(item.buffer.data, set()), constant_places(item.indices)
        both = None if known is None or places is None else known | places
        found[item.buffer.data] = both
    return found


def copies_of_boxes(body: Stmt) -> Iterator[Call]:
    """Yield the copies by tensor maps."""
    for item in pre_order(body):
        if type(item) is Call and item.op.name == "ptx_cp_async_bulk_tensor":
            yield item


def is_unrolled(loop: For) -> bool:
    """Whether a compiler has the iterations of a loop, and of those inside, one after the other."""
    nest = [loop, *(item for item in statements(loop) if type(item) is For)]
    return all(
        n.kind == UNROLLED or (as_int(n.extent) or MOST_UNROLLED + 1) <= MOST_UNROLLED for n in nest
    )


def loads(node: Any) -> Iterator[BufferLoad]:
    """Yield the loads of an expression, but not those in their indices."""
    if type(node) is BufferLoad:
        yield node
        return
    for item in node.child_nodes():
        yield from loads(item)
