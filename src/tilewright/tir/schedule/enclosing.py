"""The declared regions of enclosing blocks, after a primitive has changed something inside them.

A primitive rewrites its target blocks. Blocks around these (made by ``blockize`` or ``tensorize``,
or written so) declare what everything inside them accesses, and some accesses may now lie outside:
of a producer that computes slightly more than is used, say. So after each primitive, declared
regions are widened where they miss an access: those of the blocks around the change; of the blocks
inside, if bounds of their axes can't be proven any more; and of blocks whose axes have larger
domains than when their regions were simplified. Regions are never narrowed: what a user has
declared stays.

An additional write becomes a region of its own: the bounding box of both would claim that
everything between them is written too.
"""

from __future__ import annotations

from tilewright.arith import Analyzer
from tilewright.ir import Range, Var, add, const, uses_var
from tilewright.tir import Block, BlockRealize, Buffer, BufferRegion
from tilewright.tir.analysis import undeclared_accesses
from tilewright.tir.analysis.regions import Accesses, block_accesses, union_box
from tilewright.tir.attrs import TRUSTED_REGIONS
from tilewright.tir.schedule.function_index import FunctionIndex
from tilewright.tir.schedule.state import ScheduleState
from tilewright.tir.walk import defined_inside

Box = tuple[Range, ...]


def widen_enclosing(state: ScheduleState, before: tuple[object, ...]) -> None:
    """Widen the declared regions around what changed since the snapshot ``before``."""
    for func_name, old in state.changed_since(before):
        index = state.index(func_name)
        known = old.parents if old is not None else {}
        changed = [item for item in nested_blocks(index) if item not in known]
        if old is not None:
            changed += [item for item in _with_other_domains(index, old) if item not in changed]
        # The innermost first: what is around them goes by what they declare then.
        for name in [block.name for block in reversed(changed)]:
            realize = state.index(func_name).blocks[name]
            had = old.blocks.get(name) if old is not None else None
            _widen(state, realize, had.block if had is not None else None)


def nested_blocks(index: FunctionIndex) -> list[Block]:
    """Blocks below the root that contain blocks, and the contained ones, in program order."""
    if len(index.blocks) < 3:
        return []
    found: list[Block] | None = index.cache.get("nested_blocks")
    if found is None:
        root = index.func.body
        nested: set[Block] = set()
        for realize in index.blocks.values():
            parent = index.parents[realize]
            while parent is not None and type(parent) is not Block:
                parent = index.parents[parent]
            if parent is not None and index.parents[parent] is not root:
                nested |= {parent, realize.block}
        found = [item.block for item in index.blocks.values() if item.block in nested]
        index.cache["nested_blocks"] = found
    return found


def _with_other_domains(index: FunctionIndex, old: FunctionIndex) -> list[Block]:
    """Blocks whose axes have other domains: a region may have been simplified by the old ones."""
    return [
        realize.block
        for name, realize in index.blocks.items()
        if name in old.blocks
        and realize.block is not (had := old.blocks[name].block)
        and any(a.dom is not b.dom for a, b in zip(realize.block.iter_vars, had.iter_vars))
    ]


def _widen(state: ScheduleState, realize: BlockRealize, before: Block | None) -> None:
    block = realize.block
    around = state.axes_around(realize)
    missing = list(undeclared_accesses(block, around))
    if missing and TRUSTED_REGIONS in block.annotations:
        # What is said of buffers, or left unsaid on purpose, stays so; others come in anew. A
        # buffer of another scope or shape is another object of the same name.
        used = block_accesses(before or block, Accesses, None, (), {})
        known = {
            "reads": {buffer.name for buffer in used.reads},
            "writes": {buffer.name for buffer in used.writes},
        }
        missing = [item for item in missing if item[1].name not in known[item[0]]]
    if not missing:
        return
    analyzer = state.analyzer_at(realize)
    for axis in block.iter_vars:
        analyzer.bind(axis.var, axis.dom)
    inside = defined_inside(block)
    reads, writes = list(block.reads), list(block.writes)
    for verb, buffer, box in missing:
        seen = _seen_outside(box, buffer, inside, analyzer)
        if verb == "writes":
            writes.append(BufferRegion(buffer, seen))
        else:
            _add_read(reads, buffer, seen, analyzer)
    made = block.replace(reads=tuple(reads), writes=tuple(writes))
    # A box that holds another one may be too long a formula for a proof of it.
    for verb, buffer, _ in list(undeclared_accesses(made, around)):
        whole = BufferRegion(
            buffer, tuple(Range.from_min_extent(const(0), extent) for extent in buffer.shape)
        )
        said = [item for item in getattr(made, verb) if item.buffer is not buffer]
        made = made.replace(**{verb: (*said, whole)})
    state.replace(block, made)


def _add_read(regions: list[BufferRegion], buffer: Buffer, box: Box, analyzer: Analyzer) -> None:
    """Widen the declared region of a buffer, or add one."""
    for number, item in enumerate(regions):
        if item.buffer is buffer:
            around = _clipped(union_box(item.region, box, analyzer), buffer, analyzer)
            regions[number] = BufferRegion(buffer, around)
            return
    regions.append(BufferRegion(buffer, box))


def _seen_outside(box: Box, buffer: Buffer, inside: set[Var], analyzer: Analyzer) -> Box:
    """The box in terms of variables defined outside a block; else the whole dimension."""
    return _clipped(
        tuple(
            Range.from_min_extent(const(0), extent)
            if uses_var(item.min, inside) or uses_var(item.extent, inside)
            else item
            for item, extent in zip(box, buffer.shape)
        ),
        buffer,
        analyzer,
    )


def _clipped(box: Box, buffer: Buffer, analyzer: Analyzer) -> Box:
    """Clip a box to the buffer: one that reaches beyond both ends is the whole dimension."""
    return tuple(
        Range.from_min_extent(const(0), extent)
        if analyzer.can_prove(item.min <= 0)
        and analyzer.can_prove(extent <= add(item.min, item.extent))
        else item
        for item, extent in zip(box, buffer.shape)
    )
