"""Lay constant operands out in the order in which the finished loops read them."""

from __future__ import annotations

from tilewright.arith import Analyzer
from tilewright.ir import collect, substitute
from tilewright.meta_schedule.postproc.base import Postproc, Rejected
from tilewright.meta_schedule.postproc.rewrite_parallel_vectorize_unroll import leaf_blocks
from tilewright.tir import BlockRealize, Buffer, BufferLoad
from tilewright.tir.attrs import LAYOUT_REWRITE
from tilewright.tir.index_map import IndexMap
from tilewright.tir.layout_rewrite import constants_of
from tilewright.tir.schedule import Schedule, suggest_index_map


class RewriteLayout(Postproc):
    """Copy each operand listed in ``layout_free_buffers`` into the layout of its reader's loops.

    The copy is made once, before the program runs (``layout_rewrite``). Operands that several
    blocks read, or that loops don't go through element by element, stay as they are.
    """

    name = "rewrite-layout"

    def apply(self, sch: Schedule) -> Rejected | None:
        """Rewrite the layouts of all constant operands."""
        for func_name in sch.state.func_names():
            func = sch.state.func(func_name)
            if type(func.body) is BlockRealize:
                for buffer in func.buffers:
                    if buffer in constants_of(func):
                        _rewrite(sch, func_name, func.body, buffer)
        return None


def _rewrite(sch: Schedule, func_name: str, root: BlockRealize, buffer: Buffer) -> None:
    body = sch.state.func(func_name).body  # earlier operands have changed it
    assert isinstance(body, BlockRealize)
    readers = [
        realize
        for realize in leaf_blocks(body)
        if any(region.buffer is buffer for region in realize.block.reads)
    ]
    if len(readers) != 1 or readers[0].block.annotations.get(LAYOUT_REWRITE):
        return
    (realize,) = readers
    block = realize.block
    loads = [load for load in collect(block.body, BufferLoad) if load.buffer is buffer]
    parent = sch.state.parent(realize)
    if len(loads) != 1 or parent is None or sch.state.scope_block(realize).name != root.block.name:
        return
    values = {item.var: value for item, value in zip(block.iter_vars, realize.iter_values)}
    indices = [substitute(index, values) for index in loads[0].indices]
    loops = sch.state.loops_above(realize)
    layout = suggest_index_map(buffer, indices, loops, realize.predicate, Analyzer())
    if layout is None or _keeps_order(layout):
        return
    rv = sch.get_block(block.name, func_name)
    place = next(n for n, region in enumerate(block.reads) if region.buffer is buffer)
    copy = sch.cache_read(rv, place, "global", [rv])
    sch.transform_layout(copy, ["write", 0], layout)
    sch.annotate(copy, LAYOUT_REWRITE, True)


def _keeps_order(layout: IndexMap) -> bool:
    """Whether a layout is that of the operand itself."""
    before, after = layout.initial_indices, layout.final_indices
    return len(before) == len(after) and all(a is b for a, b in zip(before, after))
