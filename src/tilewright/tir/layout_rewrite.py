"""Layouts of operands that are known before a function runs: packing apart from computing.

A schedule may copy an operand into a layout of its own at the root of the function (``cache_read``,
then ``transform_layout`` of the copy) and mark the copy's block with :data:`LAYOUT_REWRITE`. If
the operand never changes (a weight: the function's attribute ``layout_free_buffers`` lists its
position), the copy belongs before the program, not into each call.
:func:`split_layout_rewrite` takes it out: what remains is a function of the packed operand, and
one small function per operand that packs it. Graph building runs those on the constants;
whoever measures a schedule measures the first alone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tilewright.ir import Node, Var, as_int, pre_order
from tilewright.tir.attrs import IS_SCHEDULED, LAYOUT_FREE, LAYOUT_REWRITE
from tilewright.tir.buffer import Buffer
from tilewright.tir.function import PrimFunc
from tilewright.tir.rewrite import renew_definitions
from tilewright.tir.stmt import (
    Block,
    BlockRealize,
    BufferStore,
    For,
    SeqStmt,
    Stmt,
    make_root_block,
    seq,
)


def layout_free_positions(func: PrimFunc) -> tuple[int, ...]:
    """Positions of a function's parameters that are known before it runs."""
    return tuple(int(as_int(item) or 0) for item in func.attrs.get(LAYOUT_FREE, ()))


def constants_of(func: PrimFunc) -> frozenset[Buffer]:
    """The operands of a function that are known before it runs."""
    found = (func.buffer_map.get(func.params[place]) for place in layout_free_positions(func))
    return frozenset(buffer for buffer in found if buffer is not None)


def split_layout_rewrite(func: PrimFunc) -> tuple[PrimFunc, dict[int, PrimFunc]]:
    """Split a scheduled function into the computation and the packing of its operands.

    Returns the function whose parameters are packed already, and for each packed position a
    function ``(operand, packed)``. A packing stays in the function, and the dictionary empty, where
    it can't move: the operand isn't listed in ``layout_free_buffers``, has symbolic extents,
    or is read elsewhere too.
    """
    free = layout_free_positions(func)
    if not free or not isinstance(func.body, BlockRealize):
        return func, {}
    root = func.root
    nests = list(root.body.stmts) if isinstance(root.body, SeqStmt) else [root.body]
    allocated = list(root.alloc_buffers)
    buffer_map = dict(func.buffer_map)
    packers: dict[int, PrimFunc] = {}
    for nest in list(nests):
        block = packing_block(nest)
        if block is None:
            continue
        source, packed = block.reads[0].buffer, block.writes[0].buffer
        position = next((i for i, v in enumerate(func.params) if buffer_map.get(v) is source), -1)
        others = [other for other in nests if other is not nest]
        if (
            position not in free
            or not packs_constant(nest, root, constants_of(func))
            or any(as_int(extent) is None for extent in (*source.shape, *packed.shape))
            or any(_uses(other, source) for other in others)
        ):
            continue
        var = func.params[position]
        packers[position] = _packing_function(nest, source, packed, var.name)
        buffer_map[var] = packed
        allocated.remove(packed)
        nests = others
    if not packers:
        return func, {}
    made_root = root.replace(body=seq(*nests), alloc_buffers=tuple(allocated))
    left = [position for position in free if position not in packers]
    attrs = {key: value for key, value in func.attrs.items() if key != LAYOUT_FREE}
    if left:
        attrs[LAYOUT_FREE] = left
    body = func.body.replace(block=made_root)
    return func.replace(buffer_map=buffer_map, body=body, attrs=attrs), packers


def packing_block(nest: Stmt) -> Block | None:
    """The marked block, if a statement is nothing but loops around one."""
    while isinstance(nest, For):
        nest = nest.body
    if not isinstance(nest, BlockRealize) or not nest.block.annotations.get(LAYOUT_REWRITE):
        return None
    block = nest.block
    return block if len(block.reads) == 1 and len(block.writes) == 1 else None


def packs_constant(nest: Stmt, root: Block, constants: Collection[Buffer]) -> bool:
    """Whether a statement of a root block packs a constant, so that it may come before all others.

    The mark says so, but a schedule may put it on any block: the operand must be a constant, and
    what it is packed into a buffer of the function that nothing else writes.
    """
    block = packing_block(nest)
    if block is None:
        return False
    source, packed = block.reads[0].buffer, block.writes[0].buffer
    stmts = root.body.stmts if isinstance(root.body, SeqStmt) else (root.body,)
    others = [other for other in stmts if other is not nest]
    return (
        source in constants
        and packed in root.alloc_buffers
        and not any(_writes(other, (source, packed)) for other in others)
    )


def _writes(stmt: Stmt, buffers: Sequence[Buffer]) -> bool:
    taken = {buffer.data for buffer in buffers}
    for item in pre_order(stmt):
        if isinstance(item, Block) and any(region.buffer.data in taken for region in item.writes):
            return True
        if isinstance(item, BufferStore) and item.buffer.data in taken:
            return True
    return False


def _uses(stmt: Node, buffer: Buffer) -> bool:
    return any(item is buffer or item is buffer.data for item in pre_order(stmt))


def _packing_function(nest: Stmt, source: Buffer, packed: Buffer, name: str) -> PrimFunc:
    """Build ``(operand, packed)`` around the packing loops."""
    from_var, to_var = Var(name, "handle"), Var("packed", "handle")
    func = PrimFunc(
        (from_var, to_var),
        make_root_block(nest),
        attrs={IS_SCHEDULED: 1},
        buffer_map={from_var: source, to_var: packed},
    )
    made: PrimFunc = renew_definitions(func)
    return made
