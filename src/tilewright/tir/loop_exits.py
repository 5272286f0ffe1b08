"""``break`` and ``continue`` in programs: statements that leave a loop, or its iteration.

``transform.LowerLoopExits`` replaces them by conditions before anything else is lowered.
"""

from __future__ import annotations

from tilewright.ir import Call, collect
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import Evaluate, For, Stmt, While

BREAK, CONTINUE = "break_loop", "continue_loop"
EXITS = frozenset((BREAK, CONTINUE))


def exit_of(stmt: Stmt) -> str | None:
    """Name of the exit that a statement is: ``break_loop`` or ``continue_loop``."""
    value = stmt.value if type(stmt) is Evaluate else None
    return value.op.name if type(value) is Call and value.op.name in EXITS else None


def has_loop_exits(func: PrimFunc) -> bool:
    """Whether a function leaves loops by ``break`` or ``continue``."""
    return any(map(exit_of, collect(func.body, Evaluate)))


def own_exits(stmt: Stmt) -> frozenset[str]:
    """The exits in a statement that leave the loop around it, not one inside."""
    found: set[str] = set()
    stack = [stmt]
    while stack:
        item = stack.pop()
        if type(item) in (For, While):
            continue
        name = exit_of(item)
        if name is not None:
            found.add(name)
        stack += [child for child in item.child_nodes() if isinstance(child, Stmt)]
    return frozenset(found)
