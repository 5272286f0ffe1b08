"""The loops and blocks of a function as a tree of text, for people."""

from __future__ import annotations

from tilewright.ir import is_const
from tilewright.tir import SERIAL, Block, BlockRealize, For, PrimFunc, Stmt, While
from tilewright.tir.schedule.explain import expr_text


def loop_tree(func: PrimFunc) -> str:
    """Render loops with their kind and extent, and blocks with their axes, a line each.

    Loops of one iteration are left out.

    For example::

        parallel i_0 in 8
        ├─ block C_init: spatial 64
        └─ for k in 16
           └─ block C_update: spatial 64, reduce 16
    """
    top = func.body.block.body if isinstance(func.body, BlockRealize) else func.body
    lines: list[str] = []
    # Each with what stands before it, and before the lines below it.
    stack = [(item, "", "") for item in reversed(_next(top))]
    while stack:
        item, before, under = stack.pop()
        lines.append(before + _described(item))
        inner = _next(item.block.body if isinstance(item, BlockRealize) else item.body)
        for child in reversed(inner):
            last = child is inner[-1]
            branch, bar = ("└─ ", "   ") if last else ("├─ ", "│  ")
            stack.append((child, under + branch, under + bar))
    return "\n".join(lines)


def _next(stmt: Stmt) -> list[For | While | BlockRealize]:
    """The outermost loops and blocks of a statement, in order, without loops of one iteration."""
    found: list[For | While | BlockRealize] = []
    stack = [stmt]
    while stack:
        item = stack.pop()
        if isinstance(item, (For, While, BlockRealize)) and not _runs_once(item):
            found.append(item)
        else:
            stack += [x for x in reversed(item.child_nodes()) if isinstance(x, Stmt)]
    return found


def _runs_once(item: Stmt) -> bool:
    if not isinstance(item, For) or item.kind != SERIAL or item.annotations:
        return False
    return is_const(item.extent, 1)


def _described(item: For | While | BlockRealize) -> str:
    if isinstance(item, BlockRealize):
        return _block(item.block)
    if isinstance(item, While):
        return f"while {expr_text(item.condition)}"
    kind = item.thread or ("for" if item.kind == SERIAL else item.kind)
    notes = ", ".join(f"{key} {value}" for key, value in item.annotations.items())
    return f"{kind} {item.loop_var.name} in {expr_text(item.extent)}" + f" [{notes}]" * bool(notes)


def _block(block: Block) -> str:
    axes = ", ".join(f"{axis.kind} {expr_text(axis.dom.extent)}" for axis in block.iter_vars)
    notes = ", ".join(f"{key} {value}" for key, value in block.annotations.items())
    return f"block {block.name}" + f": {axes}" * bool(axes) + f" [{notes}]" * bool(notes)
