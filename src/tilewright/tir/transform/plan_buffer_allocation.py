"""Move the allocation of each intermediate buffer to the innermost place that sees all its uses.

A buffer that only the body of one loop uses is allocated there, so that CompactBufferAllocation can
shrink it to what one iteration touches. A loop that a reduction runs over is not entered: values
live from one of its iterations to the next; nor is one of which an iteration may read what earlier
ones wrote. Nor is a thread-bound loop whose threads all see the buffer: ``shared`` memory stays
outside of threadIdx loops, ``global`` memory outside of kernels.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilewright.ir import (
    TRUE,
    Call,
    Expr,
    Mutator,
    Var,
    as_int,
    contains,
    content_mask,
    contents,
    pre_order,
)
from tilewright.tir.buffer import Buffer, BufferLoad, BufferRegion
from tilewright.tir.function import PrimFunc
from tilewright.tir.gpu_ops import is_gpu_op, memory_uses
from tilewright.tir.stmt import (
    PARALLEL,
    SERIAL,
    SPATIAL,
    UNROLLED,
    Allocate,
    Block,
    BlockRealize,
    BufferStore,
    For,
    IfThenElse,
    While,
)
from tilewright.tir.thread_scope import is_block_tag, shared_by_threads
from tilewright.tir.transform.base import FunctionTransform
from tilewright.tir.transform.loop_carried import LoopCarried, is_loop_carried
from tilewright.tir.walk import statements


class PlanBufferAllocation(FunctionTransform):
    """Move ``alloc_buffers`` to the lowest common ancestor of their uses."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        finder = _Finder()
        finder.walk(func.body, (), 0, 0)
        sites: dict[For, list[Buffer]] = {}
        moved: set[Buffer] = set()
        around: set[Any] = set()  # loops and blocks around the new places
        for buffer, home in finder.home.items():
            path = finder.paths.get(buffer, ())
            loops = _loops_inside_threads(path[home:], buffer, path, func)
            if not loops:
                loops = _loops_of_own(path[home:], buffer.scope)
                loops = _before_handing_on(loops, buffer, path, func)
            if loops:
                sites.setdefault(loops[-1], []).append(buffer)
                moved.add(buffer)
                around.update(path)
        if not moved:
            return func
        return func.replace(body=_Mover(sites, moved, around).visit(func.body))


PlanAndUpdateBufferAllocationLocation = PlanBufferAllocation  # TVM's name


def _loops_of_own(path: tuple[object, ...], scope: str) -> list[For]:
    """The loops of a path up to the first whose threads share memory of a scope."""
    found = []
    for item in path:
        if isinstance(item, For):
            if item.thread is not None and shared_by_threads(scope, item.thread):
                break
            found.append(item)
    return found


def _loops_inside_threads(
    loops: tuple[object, ...], buffer: Buffer, path: tuple[object, ...], func: PrimFunc
) -> list[For]:
    """The loops up to a serial one inside of thread loops, for memory that their threads share.

    The lowered kernel has its thread loops outermost, so an allocation may be inside of them. It
    must be filled anew in each iteration of the loop, as tiles of products are.
    """
    inner = [item for item in loops if isinstance(item, For)]
    while inner and (inner[-1].kind not in (SERIAL, UNROLLED)):
        inner.pop()
    shared = [
        item
        for item in inner
        if item.thread is not None and shared_by_threads(buffer.scope, item.thread)
    ]
    if not inner or not shared or any(is_block_tag(item.thread) for item in shared):
        return []
    return inner if LoopCarried(inner[-1], buffer, path, func).reads_only_its_own else []


def _before_handing_on(
    loops: list[For], buffer: Buffer, path: tuple[object, ...], func: PrimFunc
) -> list[For]:
    """Cut a path of loops at the first whose iterations may read what earlier ones wrote.

    Loops whose iterations run at the same time don't, nor do those of one iteration.
    """
    serial = [x for x in loops if x.kind in (SERIAL, UNROLLED) and as_int(x.extent) != 1]
    # If an iteration of the innermost makes all that it reads, so do those of the others.
    if serial and not LoopCarried(serial[-1], buffer, path, func).reads_only_its_own:
        for loop in serial:
            if is_loop_carried(loop, buffer, path, func):
                return loops[: loops.index(loop)]
    return loops


_mentions_memory = contains(Buffer, "handle")


class _Finder:
    """For each allocated buffer, the path of loops and blocks that all its uses may share."""

    def __init__(self) -> None:
        self.home: dict[Buffer, int] = {}  # length of the path of the block that allocates
        self.paths: dict[Buffer, tuple[Any, ...]] = {}
        self.of_data: dict[Var, Buffer] = {}
        self.block: Block | None = None  # the innermost around
        self.conditional = 0  # branches and predicates around that block
        self.effects: dict[Block, tuple[set[Buffer], set[Buffer]]] = {}
        self.conditions = 0  # branches and predicates around
        self.settled: dict[Buffer, int] = {}  # those around the block that allocates

    def walk(self, node: Any, path: tuple[Any, ...], usable: int, resolved: int) -> None:
        """``path[:usable]`` may be entered; loops after ``path[:resolved]`` are undecided yet."""
        kind = type(node)
        if kind is For:
            self.walk_all((node.min, node.extent), path, usable, resolved)
            self.walk(node.body, (*path, node), usable, resolved)
        elif kind is BlockRealize:
            self.realize(node, path, usable, resolved)
        elif kind is BufferRegion:
            return
        elif kind is Var:
            if node in self.of_data:
                self.access(self.of_data[node], path[:usable])
        elif kind is Buffer:
            buffer = self.of_data.get(node.data)
            if buffer is not None:
                self.access(buffer, path[:usable] if self.lives_on(buffer) else path)
        elif kind is IfThenElse or kind is While:
            self.conditions += 1
            self.walk_all(node.child_nodes(), path, usable, resolved)
            self.conditions -= 1
        else:
            self.walk_all(node.child_nodes(), path, usable, resolved)

    def walk_all(
        self, nodes: Iterable[Any], path: tuple[Any, ...], usable: int, resolved: int
    ) -> None:
        for node in nodes:
            if _mentions_memory(node):
                self.walk(node, path, usable, resolved)

    def realize(
        self, node: BlockRealize, path: tuple[object, ...], usable: int, resolved: int
    ) -> None:
        block = node.block
        if usable == resolved:
            usable = resolved + _enterable(path[resolved:], node)
        if usable == len(path):
            usable += 1
        inside, resolved = (*path, block), len(path) + 1
        self.walk_all((*node.iter_values, node.predicate), inside, usable, resolved)
        conditional = node.predicate is not TRUE
        for buffer in block.alloc_buffers:
            self.home[buffer] = resolved
            self.settled[buffer] = self.conditions + conditional
            self.of_data[buffer.data] = buffer
        for match in block.match_buffers:
            # Where it begins may be read from memory.
            bounds = [side for item in match.source.region for side in (item.min, item.extent)]
            self.walk_all(bounds, inside, usable, resolved)
            self.of_data[match.buffer.data] = self.of_data.get(
                match.source.buffer.data, match.source.buffer
            )
        before = self.block, self.conditional
        self.conditions += conditional
        self.block, self.conditional = block, self.conditions
        for match in block.match_buffers:  # they are uses by this block
            self.walk(match.source.buffer, inside, usable, resolved)
        parts = (block.body,) if block.init is None else (block.init, block.body)
        self.walk_all(parts, inside, usable, resolved)
        self.conditions -= conditional
        self.block, self.conditional = before

    def lives_on(self, buffer: Buffer) -> bool:
        """Whether instances of the block around may read what earlier ones have written."""
        block = self.block
        if block is None:
            return buffer.scope == "global"
        if block not in self.effects:
            stores = [item for item in statements(block) if type(item) is BufferStore]
            written = {self.of_data.get(s.buffer.data, s.buffer) for s in stores}
            for item in pre_order(block) if contents(block) & content_mask(Call) else ():
                if is_gpu_op(item):
                    uses = [u for u in memory_uses(item) if "w" in u.access]  # type: ignore[arg-type]
                    buffers = [use.tile.along.buffer for use in uses]
                    written |= {self.of_data.get(item.data, item) for item in buffers}
            self.effects[block] = written, self.surely_written(block)
        written, renewed = self.effects[block]
        # What a block only reads doesn't live on from one of its instances to the next.
        return buffer not in renewed and (buffer.scope == "global" or buffer in written)

    def surely_written(self, block: Block) -> set[Buffer]:
        """What each instance of a block writes whatever else happens, and does not read."""
        if block.init is not None or any(item.kind != SPATIAL for item in block.iter_vars):
            return set()
        body = block.body
        while type(body) is For:
            body = body.body
        if type(body) is not BufferStore or body.buffer.data not in self.of_data:
            return set()
        pointers = {item.buffer.data for item in pre_order(body) if type(item) is BufferLoad}
        buffer = self.of_data[body.buffer.data]
        # Where the block that allocates it doesn't run, there is no buffer.
        may_not_run = self.conditional > self.settled.get(buffer, 0)
        return set() if may_not_run or body.buffer.data in pointers else {buffer}

    def access(self, buffer: Buffer, path: tuple[Any, ...]) -> None:
        if buffer not in self.home:
            return
        known = self.paths.get(buffer)
        if known is None:
            self.paths[buffer] = path
            return
        common = 0
        for a, b in zip(known, path):
            if a is not b:
                break
            common += 1
        self.paths[buffer] = known[:common]


def _enterable(loops: tuple[Any, ...], node: BlockRealize) -> int:
    """How many of the loops just above a block run over its spatial axes only.

    Iterations of thread-bound loops have nothing to do with each other, but for reductions.
    """
    if not loops:
        return 0
    spatial: set[Any] = set()
    other: set[Any] = set()
    for iter_var, value in zip(node.block.iter_vars, node.iter_values):
        found = (item for item in pre_order(value) if type(item) is Var)
        (spatial if iter_var.kind == SPATIAL else other).update(found)
    count = 0
    for loop in loops:
        # Iterations that run at the same time can't hand memory on: each has its own.
        free = loop.loop_var in spatial or loop.thread is not None or loop.kind == PARALLEL
        if as_int(loop.extent) != 1 and (loop.loop_var in other or not free):
            break
        count += 1
    return count


class _Mover(Mutator):
    """Takes the moved buffers out of their blocks and allocates them inside the loops."""

    def __init__(
        self, sites: dict[For, list[Buffer]], moved: set[Buffer], around: set[object]
    ) -> None:
        self.sites = sites
        self.moved = moved
        self.around = around

    def visit_Expr(self, node: Expr) -> Expr:
        return node

    def visit_BufferRegion(self, node: BufferRegion) -> BufferRegion:
        return node

    def visit_BufferStore(self, node: BufferStore) -> BufferStore:
        return node

    def visit_For(self, node: For) -> For:
        if node not in self.around:
            return node
        made = self.generic_visit(node)
        buffers = self.sites.get(node)
        if not buffers:
            return made
        body = made.body
        for buffer in reversed(buffers):
            body = Allocate(buffer, body)
        return made.replace(body=body)

    def visit_Block(self, node: Block) -> Block:
        if node not in self.around:
            return node
        made = self.generic_visit(node)
        if not any(buffer in self.moved for buffer in made.alloc_buffers):
            return made
        kept = tuple(buffer for buffer in made.alloc_buffers if buffer not in self.moved)
        return made.replace(alloc_buffers=kept)
