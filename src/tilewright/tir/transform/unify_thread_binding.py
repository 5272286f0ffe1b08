"""Give all loops of a kernel that are bound to one thread tag the same extent, and one variable.

A kernel has as many threads as its widest loop of a tag says; what narrower loops run is put under
a condition. A loop inside another one of the same tag shares its work out among the outer loop's
threads (a cooperative fetch): it becomes the outer loop's variable.

The program then means what its threads do together: it needs the barriers of ``ThreadSync``.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir import Expr, IntImm, Var, expr_equal, is_const, pre_order, uses_var
from tilewright.support.errors import LowerError
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import (
    Allocate,
    Block,
    BlockRealize,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    Stmt,
    While,
)
from tilewright.tir.thread_scope import is_block_tag, is_private, is_vthread
from tilewright.tir.transform.base import FunctionTransform, Replacing, function_analyzer
from tilewright.tir.transform.kernels import VTHREAD_TAGS, guarded, map_kernels


class UnifyThreadBinding(FunctionTransform):
    """Make thread loops of one tag agree in each kernel."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        analyzer = function_analyzer(func)
        return map_kernels(func, lambda kernel: _unified(kernel, analyzer))


def _unified(kernel: For, analyzer: Analyzer) -> Stmt:
    kernel = _with_own_tags(kernel)
    loops = [item for item in pre_order(kernel) if type(item) is For and item.thread is not None]
    inside = {item.loop_var for item in pre_order(kernel) if type(item) is For}
    extents: dict[str, Expr] = {}
    for loop in loops:
        tag = loop.thread or ""
        if not is_const(loop.min, 0):
            raise LowerError(f"the loop on {tag} starts at {loop.min!r}; thread loops start at 0")
        if uses_var(loop.extent, inside):
            raise LowerError(
                f"the loop on {tag} has extent {loop.extent!r}, which changes inside the kernel; "
                "bind a loop whose extent is known when the kernel starts"
            )
        known = extents.get(tag)
        extents[tag] = loop.extent if known is None else _wider(tag, known, loop.extent, analyzer)
    made: Stmt = _Unifier(extents).visit(kernel)
    return made


def _with_own_tags(kernel: For) -> For:
    """Virtual threads may be nested under one tag: give the inner ones tags of their own."""
    used = {item.thread for item in pre_order(kernel) if type(item) is For}
    free = [tag for tag in VTHREAD_TAGS if tag not in used]
    renamed: dict[tuple[str, int], str] = {}

    def go(node: Stmt, depths: dict[str, int]) -> Any:
        if isinstance(node, Expr):
            return node
        if type(node) is not For or not is_vthread(node.thread):
            return node.map_children(lambda item: go(item, depths))
        tag = node.thread or ""
        depth = depths.get(tag, 0)
        body = go(node.body, {**depths, tag: depth + 1})
        if depth and (tag, depth) not in renamed:
            if not free:
                raise LowerError("virtual threads are nested too deeply; fuse some of their loops")
            renamed[tag, depth] = free.pop(0)
        tag = renamed.get((tag, depth), tag)
        return node.replace(body=body, thread=tag)

    made: For = go(kernel, {})
    return made


def _wider(tag: str, a: Expr, b: Expr, analyzer: Analyzer) -> Expr:
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return a if a.value >= b.value else b
    if expr_equal(a, b) or analyzer.can_prove(a >= b):
        return a
    if analyzer.can_prove(b >= a):
        return b
    raise LowerError(
        f"a kernel has loops on {tag} of extents {a!r} and {b!r}, and neither is shown to be the "
        "larger one; bind loops of the same extent"
    )


class _Unifier(Replacing):
    def __init__(self, extents: dict[str, Expr]) -> None:
        self.extents = extents
        self.outer: dict[str, list[Var]] = {}  # variables of each tag around, the outermost first
        self.values: dict[Var, Var] = {}
        self.lets: dict[Var, Expr] = {}
        self.decisive: list[Expr] = []  # around: what decides whether, and how often, this runs

    def under(self, node: Stmt, *decisive: Expr) -> Any:
        """Visit a statement that runs what is below as ``decisive`` says."""
        self.decisive += decisive
        made = self.generic_visit(node)
        del self.decisive[len(self.decisive) - len(decisive) :]
        return made

    def visit_IfThenElse(self, node: IfThenElse) -> Any:
        return self.under(node, node.condition)

    def visit_While(self, node: While) -> Any:
        return self.under(node, node.condition)

    def visit_LetStmt(self, node: LetStmt) -> LetStmt:
        self.lets[node.var] = node.value
        return self.generic_visit(node)

    def visit_BlockRealize(self, node: BlockRealize) -> Any:
        return self.under(node, node.predicate)

    def visit_For(self, node: For) -> Any:
        tag = node.thread
        if tag is None:
            return self.under(node, node.min, node.extent)
        wide = self.extents[tag]
        body = node.body
        if not expr_equal(node.extent, wide):
            if is_block_tag(tag):
                raise LowerError(
                    f"a kernel has loops on {tag} of extents {node.extent!r} and {wide!r}; "
                    "the loops on blocks must agree"
                )
            body = guarded(
                node.loop_var < node.extent,
                body,
                lambda item: type(item) is For and item.thread == tag,
            )
        around = self.outer.setdefault(tag, [])
        if around:
            self.check_cooperative(node, around)
            self.values[node.loop_var] = around[0]
            around.append(node.loop_var)
            made = self.visit(body)
            around.pop()
            return made
        around.append(node.loop_var)
        made = For(
            node.loop_var, node.min, wide, node.kind, self.visit(body), tag, node.annotations
        )
        around.pop()
        return made

    def check_cooperative(self, loop: For, around: list[Var]) -> None:
        """All threads must come by, do the same in the inner loop, and see what it makes."""
        tag = loop.thread
        own_values = set(around)
        for var, value in self.lets.items():
            if uses_var(value, own_values):
                own_values.add(var)
        for expr in self.decisive:
            if uses_var(expr, own_values):
                raise LowerError(
                    f"a loop on {tag} stands inside another one, where {expr!r} decides about it: "
                    "threads that share out work must all come by equally often"
                )
        if uses_var(loop.body, own_values):
            raise LowerError(
                f"a loop on {tag} stands inside another one, whose variable "
                f"{around[0].name} it uses too: a thread can't have two places on one axis"
            )
        own: set[Buffer] = set()
        for item in pre_order(loop.body):
            if type(item) is Allocate:
                own.add(item.buffer)
            elif type(item) is Block:
                own.update(item.alloc_buffers)
        for item in pre_order(loop.body):
            if isinstance(item, (BufferLoad, BufferStore)):
                buffer = item.buffer
                if is_private(buffer.scope) and buffer not in own:
                    raise LowerError(
                        f"a loop on {tag} stands inside another one and uses {buffer.name!r} of "
                        f"scope {buffer.scope!r}, of which each thread of the outer loop has its "
                        "own"
                    )
