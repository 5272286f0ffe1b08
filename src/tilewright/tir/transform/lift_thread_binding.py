"""Move the thread-bound loops of each kernel to its top, and join those of one tag.

``for bx: for k: { for t: A; for t: B }`` becomes ``for bx: for t: for k: { A; B }``. What ran once
per block is then run by one thread, or, where it only sets memory that each thread has of its own,
by all of them. Runs after ``UnifyThreadBinding``; the barriers that the program needs from here on
are put in by ``ThreadSync``.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir import (
    Expr,
    IntImm,
    Ramp,
    Range,
    Var,
    and_,
    const,
    expr_equal,
    pre_order,
    substitute,
)
from tilewright.support.errors import LowerError
from tilewright.tir.buffer import Buffer, BufferLoad, BufferRegion
from tilewright.tir.fragments import WARP_SIZE, WARPGROUP_SIZE
from tilewright.tir.function import PrimFunc
from tilewright.tir.gpu_ops import WARP_OPS, WARPGROUP_OPS, WMMA_OPS
from tilewright.tir.stmt import (
    THREAD_BINDING,
    Allocate,
    Block,
    BlockRealize,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    Stmt,
    While,
    is_no_op,
)
from tilewright.tir.thread_scope import is_block_tag, is_cluster_tag, is_private, is_vthread
from tilewright.tir.transform.base import FunctionTransform, Replacing, SeqMutator, bind_loop
from tilewright.tir.transform.kernels import call_name, map_kernels


class LiftThreadBinding(FunctionTransform):
    """Leave one loop per thread tag, all at the top of the kernel."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        return map_kernels(func, _lifted)


def _lifted(kernel: For) -> Stmt:
    loops: dict[str, For] = {}
    for item in pre_order(kernel):
        if type(item) is For and item.thread is not None:
            first = loops.setdefault(item.thread, item)
            if not expr_equal(first.extent, item.extent):
                raise LowerError(
                    f"a kernel has loops on {item.thread} of extents {first.extent!r} and "
                    f"{item.extent!r}; run UnifyThreadBinding first"
                )
    _check_blocks(kernel, loops)
    _check_warps(kernel, loops)
    tags = sorted(
        loops, key=lambda tag: (is_vthread(tag), not is_block_tag(tag), is_cluster_tag(tag))
    )
    body = _Lifter(loops).visit(kernel)
    _check_private(body, loops)
    for tag in reversed(tags):
        loop = loops[tag]
        body = For(
            loop.loop_var, loop.min, loop.extent, THREAD_BINDING, body, tag, loop.annotations
        )
    result: Stmt = body
    return result


def _check_blocks(kernel: For, loops: dict[str, For]) -> None:
    """Loops on blocks must be at the top already: blocks can't wait for each other."""
    at_top = set()
    stmt: Stmt = kernel
    while isinstance(stmt, (For, Allocate, BlockRealize)):
        if isinstance(stmt, For):
            if stmt.thread is None:
                break
            at_top.add(stmt.thread)
        stmt = stmt.block.body if isinstance(stmt, BlockRealize) else stmt.body
    for tag, loop in loops.items():
        if is_block_tag(tag) and tag not in at_top and _extent(loop) != 1:
            raise LowerError(
                f"the loop on {tag} is below or beside other statements of its kernel, and blocks "
                "can't wait for each other: bind a loop of the nest at the kernel's top"
            )


def _check_warps(kernel: For, loops: dict[str, For]) -> None:
    """Where warps have memory or operators, a warp is 32 neighbours along x."""
    lanes = loops.get("threadIdx.x")
    size = 1 if lanes is None else _extent(lanes)
    if size is not None and size % WARPGROUP_SIZE == 0:
        return
    for item in pre_order(kernel):
        if call_name(item) in WARPGROUP_OPS:
            raise LowerError(
                f"{call_name(item)} belongs to {WARPGROUP_SIZE} neighbours along threadIdx.x: bind "
                "a loop of so many to it"
            )
    if size is not None and size % WARP_SIZE == 0:
        return
    rows = any(_extent(loops[tag]) != 1 for tag in ("threadIdx.y", "threadIdx.z") if tag in loops)
    for item in pre_order(kernel):
        buffers = item.alloc_buffers if type(item) is Block else ()
        of_warp = [buffer.name for buffer in buffers if buffer.scope == "warp"] if rows else []
        name = call_name(item)
        if of_warp or name in WARP_OPS:
            raise LowerError(
                f"{name or of_warp[0]!r} belongs to a warp, which is {WARP_SIZE} neighbours along "
                f"threadIdx.x, yet the kernel's loop on threadIdx.x has "
                f"{'no' if lanes is None else lanes.extent!r} threads: bind a loop of {WARP_SIZE}"
            )


def _extent(loop: For) -> int | None:
    return loop.extent.value if isinstance(loop.extent, IntImm) else None


class _Lifter(Replacing, SeqMutator):
    """Removes thread loops; what is not below a tag's loop is left to its first thread."""

    def __init__(self, loops: dict[str, For]) -> None:
        self.loops = loops
        self.bound: set[str] = set()
        self.values: dict[Var, Var] = {}

    def visit_For(self, node: For) -> Any:
        if node.thread is None:
            return self.generic_visit(node)
        self.values[node.loop_var] = self.loops[node.thread].loop_var
        fresh = node.thread not in self.bound
        self.bound.add(node.thread)
        made = self.visit(node.body)
        if fresh:
            self.bound.discard(node.thread)
        return made

    def alone(self, stmt: Stmt, all_lanes: bool = False) -> Stmt:
        """``stmt`` for one thread of those that run it without having been asked to.

        With ``all_lanes`` it is what a warp does as one: then all threads along x run it.
        """
        missing = [tag for tag in self.loops if tag not in self.bound]
        if all_lanes:
            missing = [tag for tag in missing if tag != "threadIdx.x"]
        condition = and_(
            *(self.loops[tag].loop_var == 0 for tag in missing if _extent(self.loops[tag]) != 1)
        )
        return stmt if condition is and_() else IfThenElse(condition, stmt)

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        made = self.generic_visit(node)
        return made if is_private(node.buffer.scope) else self.alone(made)

    def visit_Evaluate(self, node: Evaluate) -> Stmt:
        made = self.generic_visit(node)
        name = call_name(node)
        if is_no_op(node) or name in ("thread_allreduce", "storage_sync"):
            return made
        return self.alone(made, all_lanes=name in WMMA_OPS)

    def visit_While(self, node: While) -> While:
        if len(self.bound) < len(self.loops):
            raise LowerError(
                "a while loop of a kernel is not below all of its thread loops: threads may not "
                "agree how often it runs"
            )
        return self.generic_visit(node)

    def visit_BlockRealize(self, node: BlockRealize) -> BlockRealize:
        block = node.block
        if block.iter_vars or block.init is not None:
            raise LowerError(
                f"LiftThreadBinding: block {block.name!r} still has iteration variables or an "
                "init; run LowerInitBlock and ConvertBlocksToOpaque first"
            )
        return self.generic_visit(node)

    def visit_BufferRegion(self, node: BufferRegion) -> BufferRegion:
        return node.map_children(self.visit)


def _check_private(body: Stmt, loops: dict[str, For]) -> None:
    """A thread may only read from private memory what it has written itself."""
    analyzer = Analyzer()
    threads = {loop.loop_var: loop for loop in loops.values()}
    for var, loop in threads.items():
        analyzer.bind(var, Range.from_min_extent(const(0), loop.extent))
    first = {var: const(0) for var in threads}
    allocated: set[Buffer] = set()
    for item in pre_order(body):
        if type(item) is Block:
            allocated.update(item.alloc_buffers)
        elif type(item) is Allocate:
            allocated.add(item.buffer)
        elif type(item) is For:
            bind_loop(analyzer, item)
    parts: dict[Buffer, tuple[Expr, ...]] = {}
    for item in pre_order(body):
        if not isinstance(item, (BufferLoad, BufferStore)) or not is_private(item.buffer.scope):
            continue
        starts = [index.base if isinstance(index, Ramp) else index for index in item.indices]
        made = tuple(analyzer.simplify(index - substitute(index, first)) for index in starts)
        known = parts.setdefault(item.buffer, made)
        if item.buffer in allocated and not all(map(analyzer.can_prove_equal, known, made)):
            raise LowerError(
                f"{item.buffer.name!r} of scope {item.buffer.scope!r} is used at {item!r} and "
                "elsewhere in ways that are not shown to be of the same thread; give it scope "
                "'shared'"
            )
