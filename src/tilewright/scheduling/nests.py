"""Rewriting functions before they are scheduled: nests around blocks, other operands.

For kernels (``tir.schedule.KERNELS``) that add a computation before the function's own; rules
insert them by ``use_kernel``, so traces record them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir import TRUE, Expr, Mutator, Range, Var, collect, const, is_const
from tilewright.tir import (
    SERIAL,
    SPATIAL,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IterVar,
    PrimFunc,
    SeqStmt,
    Stmt,
    seq,
)
from tilewright.tir.analysis import block_access_regions


def replaced_nest(
    func: PrimFunc, block: Block, write: Callable[[Stmt], Sequence[Stmt]], buffers: Sequence[Buffer]
) -> Block | None:
    """Return the function's root with the nest around a block replaced by others.

    ``buffers`` are allocated for them. ``None`` if the block's loops contain other statements.
    """
    root, nests = func.root, nests_of(func)
    place = next((n for n, nest in enumerate(nests) if block_of(nest) is block), None)
    if place is None:
        return None
    nests[place : place + 1] = write(nests[place])
    return root.replace(body=seq(*nests), alloc_buffers=(*root.alloc_buffers, *buffers))


def nests_of(func: PrimFunc) -> list[Stmt]:
    """The statements of a function, in order."""
    body = func.root.body
    return list(body.stmts) if isinstance(body, SeqStmt) else [body]


def block_named(func: PrimFunc, name: object) -> Block | None:
    """The block of that name, if there is one."""
    return next((block for block in collect(func.body, Block) if block.name == name), None)


def block_of(nest: Stmt) -> Block | None:
    """The block inside loops that contain nothing else, and all of whose iterations run."""
    while isinstance(nest, For):
        nest = nest.body
    always = isinstance(nest, BlockRealize) and is_const(nest.predicate, True)
    return nest.block if always else None  # type: ignore[attr-defined]


class ReadInstead(Mutator):
    """Replaces reads of an operand by reads of another buffer, with the same indices."""

    def __init__(self, old: Buffer, new: Buffer) -> None:
        self.old, self.new = old, new

    def visit_BufferLoad(self, node: BufferLoad) -> BufferLoad:
        """Replace one load."""
        return BufferLoad(self.new, node.indices) if node.buffer is self.old else node


def over(shape: Sequence[Expr], body: Callable[..., BufferStore], name: str) -> Stmt:
    """Loops over the elements of a shape."""
    axes = [
        IterVar(Range.from_min_extent(const(0), n), Var(f"v{d}"), SPATIAL)
        for d, n in enumerate(shape)
    ]
    return nest_of(axes, body(*(axis.var for axis in axes)), name)


def nest_of(axes: Sequence[IterVar], body: Stmt, name: str, init: Stmt | None = None) -> Stmt:
    """Loops around one block, one per axis."""
    block = Block(tuple(axes), (), (), name, body, init)
    reads, writes = block_access_regions(block)
    loops = tuple(Var(f"ax{d}") for d in range(len(axes)))
    block = block.replace(reads=tuple(reads), writes=tuple(writes))
    nest: Stmt = BlockRealize(loops, TRUE, block)
    for var, axis in zip(reversed(loops), reversed(axes)):
        nest = For(var, axis.dom.min, axis.dom.extent, SERIAL, nest)
    return nest


def with_block(nest: Stmt, block: Block) -> Stmt:
    """The same loops around another block; its accesses are inferred."""
    if isinstance(nest, For):
        loop: Stmt = nest.replace(body=with_block(nest.body, block))
        return loop
    assert isinstance(nest, BlockRealize)
    reads, writes = block_access_regions(block)
    made: Stmt = nest.replace(block=block.replace(reads=tuple(reads), writes=tuple(writes)))
    return made
