"""Primitives that look up blocks, loops, producers, consumers. None changes the program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.support.registry import near_matches
from tilewright.tir import For
from tilewright.tir.analysis.dependency import DependencyGraph, block_dependencies
from tilewright.tir.schedule.handles import BlockRV, LoopRV
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.walk import child_blocks

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule


@primitive(pure=True)
def get_block(sch: Schedule, name: str, func_name: str | None = None) -> BlockRV:
    """Find a block by name.

    ``func_name`` says in which function; by default that is the one that ``work_on`` chose, else
    the only one of the module, else ``main``. The function is part of the recorded instruction.

    Preconditions:
        - the function is known: given, chosen by ``work_on``, the only one, or named ``main``
        - the module has the function, and it is a PrimFunc
        - the function has a block of that name
    """
    func_name = func_name or sch.working_func
    blocks = sch.state.index(func_name).blocks
    if name not in blocks:
        raise sch.error(
            lambda: (
                f"function {func_name!r} has no block {name!r}; " + near_matches(name, list(blocks))
            )
        )
    sch.note(func_name=func_name)
    return BlockRV(func_name, name)


@primitive(pure=True, recorded=False)
def has_block(sch: Schedule, name: str, func_name: str | None = None) -> bool:
    """Whether the function has a block of that name.

    The function is found as ``get_block`` does.

    Preconditions:
        - the function is known: given, chosen by ``work_on``, the only one, or named ``main``
        - the module has the function, and it is a PrimFunc
    """
    return name in sch.state.index(func_name or sch.working_func).blocks


@primitive(pure=True)
def get_loops(sch: Schedule, block: BlockRV) -> list[LoopRV]:
    """Return the loops around a block up to its parent block, the outermost first.

    Preconditions: none
    """
    realize = sch.state.get_block(block)
    return [LoopRV(block.func, loop.loop_var) for loop in sch.state.loops_above(realize)]


@primitive(pure=True)
def get_child_blocks(sch: Schedule, block_or_loop: BlockRV | LoopRV) -> list[BlockRV]:
    """Return the blocks directly inside a block or below a loop, in program order.

    Blocks of a block's ``init`` are not among them.

    Preconditions: none
    """
    if isinstance(block_or_loop, BlockRV):
        found = child_blocks(sch.state.get_block(block_or_loop).block)
    else:
        found = child_blocks(sch.state.get_loop(block_or_loop))
    return [BlockRV(block_or_loop.func, realize.block.name) for realize in found]


def _dependencies(sch: Schedule, block: BlockRV) -> DependencyGraph:
    """The order of the blocks of the scope that a block is in."""
    return block_dependencies(sch.state.scope_block(sch.state.get_block(block)))


@primitive(pure=True)
def get_producers(sch: Schedule, block: BlockRV) -> list[BlockRV]:
    """Return the blocks of the same scope that write before it what a block reads or writes.

    Preconditions:
        - the block is inside another block
    """
    return [BlockRV(block.func, name) for name in _dependencies(sch, block).producers(block.name)]


@primitive(pure=True)
def get_consumers(sch: Schedule, block: BlockRV) -> list[BlockRV]:
    """Return the blocks of the same scope that read or write after it what a block writes.

    Preconditions:
        - the block is inside another block
    """
    return [BlockRV(block.func, name) for name in _dependencies(sch, block).consumers(block.name)]


@primitive(pure=True)
def get_output_blocks(sch: Schedule, scope_block: BlockRV) -> list[BlockRV]:
    """Return the blocks inside a scope that write a buffer from outside it.

    For the root block these are parameters of the function. Blocks at any depth are found; of
    nested ones only the innermost.

    Preconditions: none
    """
    scope = sch.state.get_block(scope_block)
    if sch.state.parent(scope) is None:
        outside = set(sch.state.func(scope_block.func).buffers)
    else:
        outside = {region.buffer for region in scope.block.writes}
    found: list[BlockRV] = []
    stack = list(reversed(child_blocks(scope.block)))
    while stack:
        realize = stack.pop()
        inner = child_blocks(realize.block)
        if inner:
            outside |= {
                match.buffer
                for match in realize.block.match_buffers
                if match.source.buffer in outside
            }
            stack.extend(reversed(inner))
        elif any(region.buffer in outside for region in realize.block.writes):
            found.append(BlockRV(scope_block.func, realize.block.name))
    return found


def loop_rvs(func_name: str, loops: list[For]) -> list[LoopRV]:
    """Make handles of loops."""
    return [LoopRV(func_name, loop.loop_var) for loop in loops]
