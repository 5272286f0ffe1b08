"""Effects: what evaluating an expression, or calling a function, does besides giving a value."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from tilewright.ir import Call, Expr, Node, Var, pre_order
from tilewright.tir.buffer import BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import Allocate, AssertStmt, Block, BufferStore, DeclBuffer


class SideEffect(IntEnum):
    """Levels of effects, each including those below it."""

    PURE = 0
    """The value depends on the operands alone: it may be moved, copied or dropped."""
    READ_STATE = 1
    """Reads memory: may be copied or dropped, but not moved across writes."""
    UPDATE_STATE = 2
    """Writes memory."""
    OPAQUE = 3
    """Anything; order matters."""


_LEVELS = {
    "pure": SideEffect.PURE,
    "read": SideEffect.READ_STATE,
    "update": SideEffect.UPDATE_STATE,
    "opaque": SideEffect.OPAQUE,
}
# Operators that say something about the program and do nothing.
_HARMLESS = ("assume", "prefetch", "storage_sync", "access_ptr", "ret")


def side_effect(expr: Expr) -> SideEffect:
    """Return the greatest effect of anything in an expression."""
    return max((_level(item) for item in pre_order(expr)), default=SideEffect.PURE)


def _level(node: Node) -> SideEffect:
    if type(node) is BufferLoad:
        return SideEffect.READ_STATE
    if type(node) is Call:
        return _LEVELS[node.op.effect]
    return SideEffect.PURE


def check_purity(func: PrimFunc) -> list[tuple[Node, str]]:
    """Return what keeps a function from being pure: each node with a reason."""
    own: set[Var] = set()
    nodes = list(pre_order(func.body))
    for item in nodes:
        if isinstance(item, Block):
            own.update(buffer.data for buffer in item.alloc_buffers)
        elif isinstance(item, Allocate):
            own.add(item.buffer.data)
    # Views of own memory are own memory.
    for item in nodes:
        if isinstance(item, DeclBuffer) and item.buffer.data in own:
            own.add(item.buffer.data)
        elif isinstance(item, Block):
            own.update(m.buffer.data for m in item.match_buffers if m.source.buffer.data in own)
    found = []
    for item in nodes:
        reason = _impurity(item, own.__contains__)
        if reason:
            found.append((item, reason))
    return found


def _impurity(node: Node, is_own: Callable[[Var], bool]) -> str:
    if isinstance(node, BufferStore) and not is_own(node.buffer.data):
        return f"it writes {node.buffer.name!r}, which is not its own"
    if isinstance(node, AssertStmt):
        return "it may stop the program by an assertion"
    if not isinstance(node, Call) or node.op.name in _HARMLESS:
        return ""
    if _LEVELS[node.op.effect] > SideEffect.READ_STATE:
        return f"it calls {node.op.name!r}, which may do anything"
    return ""


def is_pure_function(func: PrimFunc) -> bool:
    """Whether a call of a function does nothing that can be seen, but for the value it returns."""
    return not check_purity(func)
