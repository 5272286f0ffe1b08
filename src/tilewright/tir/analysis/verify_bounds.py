"""Constant indices outside of their buffer, for ``verify``.

``analysis.bounds`` lists what isn't *shown* to be inside, which may still be right. Here is what
can't be: an element that doesn't exist, accessed wherever the function runs. What stands under a
condition, or in a loop that may be empty, is left alone: passes leave such things behind.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir import And, Broadcast, Call, Expr, IntImm, Or, Ramp, Select, as_int, pre_order
from tilewright.tir.buffer import Buffer
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import AssertStmt, BlockRealize, For, IfThenElse, SeqStmt, While


def outside(buffer: Buffer, indices: tuple[Expr, ...]) -> str | None:
    """Say which constant index is no element of a buffer, if one is."""
    for axis, (index, extent) in enumerate(zip(indices, buffer.shape)):
        kind = type(index)
        if kind is not IntImm and kind is not Ramp and kind is not Broadcast:
            continue
        size, ends = as_int(extent), _ends(index)
        if size is None or ends is None or (ends[0] >= 0 and ends[1] < size):
            continue
        found = ends[0] if ends[0] < 0 else ends[1]
        return f"index {found} is outside of axis {axis} of {buffer.name!r}, whose extent is {size}"
    return None


def _ends(index: Any) -> tuple[int, int] | None:
    """The least and greatest number that an index is, if they are constant."""
    if isinstance(index, Ramp):
        base, stride = as_int(index.base), as_int(index.stride)
        if base is None or stride is None:
            return None
        last = base + stride * (index.lanes - 1)
        return min(base, last), max(base, last)
    value = as_int(index.value if isinstance(index, Broadcast) else index)
    return None if value is None else (value, value)


def runs_for_sure(func: PrimFunc, node: Any) -> bool:
    """Whether a statement or expression is reached whenever a function runs to its end."""
    if any(type(item) is Call and item.op.name == "ret" for item in pre_order(func.body)):
        return False
    stack: list[Any] = [func.body]
    while stack:
        item = stack.pop()
        if item is node:
            return True
        stack += _reached(item)
    return False


def _reached(item: Any) -> list[Any]:
    """The parts of a node that are reached if it is."""
    kind = type(item)
    if kind is For:
        extent = as_int(item.extent)
        return item.child_nodes() if extent is not None and extent > 0 else []
    if kind is BlockRealize:
        return [item.block] if as_int(item.predicate) == 1 else []
    if kind is SeqStmt:  # What fails an assertion doesn't go on.
        stops = [at for at, stmt in enumerate(item.stmts) if type(stmt) is AssertStmt]
        return list(item.stmts[: stops[0] if stops else None])
    if kind in (IfThenElse, While, Select):
        return [item.condition]
    if kind is And or kind is Or:
        return [item.a]
    if kind is Call and item.op.name == "if_then_else":
        return [item.args[0]]
    # The address of an element that isn't there is no access: it may be what a loop ends at.
    if kind is Call and (item.op.effect != "pure" or item.op.name == "address_of"):
        return []
    found: list[Any] = item.child_nodes()
    return found
