"""Whether blocks write all of a box of a buffer, in whatever order, under whatever conditions.

A copy of a box (``_copy``) would put garbage where nothing was written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir import (
    TRUE,
    Expr,
    Range,
    Var,
    as_int,
    free_vars,
    pre_order,
)
from tilewright.tir import (
    Block,
    BlockRealize,
    Buffer,
    BufferRegion,
    BufferStore,
    For,
    IfThenElse,
    Stmt,
    While,
)
from tilewright.tir.analysis.footprint import loop_ranges, restricting_conjuncts
from tilewright.tir.index_map_solve import solve_indices
from tilewright.tir.schedule.primitives._copy import Box, axis_ranges, element
from tilewright.tir.schedule.primitives._linear import Span
from tilewright.tir.schedule.primitives._regions import Regions
from tilewright.tir.schedule.primitives._scope import Scope

_Writing = BufferStore | BlockRealize | IfThenElse | While


def why_not_filled(box: Box, blocks: Sequence[BlockRealize], buffer: Buffer) -> str:
    """Say why ``blocks`` may leave elements of the box unwritten; empty if they write all.

    A copy of the box would put garbage where nothing was written.
    """
    assert box.spans is not None
    if any(span is None or not span.exact for span in box.spans):
        return "what it writes has holes"
    scope = box.scope
    for realize in blocks:
        fixed = scope.has_fixed_domain(realize)
        if (realize.predicate is not TRUE and not fixed) or restricting_conjuncts(
            realize, lambda: scope.state.analyzer(scope.func_name)
        ):
            return "its predicate leaves elements out"
        if realize.predicate is not TRUE and any(
            limit is None or not limit.exact for limit in box.limits or ()
        ):
            return "where its predicate makes that end isn't clear"
        regions = [region for region in realize.block.writes if region.buffer is buffer]
        if len(regions) != 1:
            return f"it declares {len(regions)} regions of {buffer.name}"
        indices, domain = [item.min for item in regions[0].region], axis_ranges(realize.block)
        if not _fills_box(indices, domain) or (
            _share_axes(indices, domain) and not box.is_reached(realize, regions[0])
        ):
            return "its indices share an axis, so it may write a part of the box only"
        why = _skips(scope, realize.block, regions[0])
        if why:
            return why
    return ""


def _fills_box(indices: Sequence[Expr], domain: Mapping[Var, Range]) -> bool:
    """Whether indices, each without gaps, take all combinations of their values."""
    if not _share_axes(indices, domain):
        return True
    axes = {var: domain[var] for index in indices for var in free_vars(index) if var in domain}
    # Indices that share axes must be a bijection, with as many values as the axes have.
    outputs = [Var(f"u{axis}") for axis in range(len(indices))]
    if solve_indices(indices, axes, outputs) is None:
        return False
    analyzer = Analyzer()
    bounds = [analyzer.int_set(index, axes) for index in indices]
    counts = [analyzer.simplify(item.max - item.min + 1) for item in bounds]
    reached = math.prod(as_int(count) or 0 for count in counts)
    return reached == math.prod(as_int(dom.extent) or -1 for dom in axes.values())


def _share_axes(indices: Sequence[Expr], domain: Mapping[Var, Range]) -> bool:
    used = [var for index in indices for var in free_vars(index) if var in domain]
    return len(used) > len(set(used))


def _skips(scope: Scope, block: Block, region: BufferRegion) -> str:
    """Say why one instance may write less than the region it declares."""
    regions = Regions(scope.state, scope.func_name, ())
    regions.add_block_axes(scope.block)
    regions.add_block_axes(block)
    found: list[Span | None] | None = None
    for item, loops in _writing(block.body, region.buffer):
        if isinstance(item, (IfThenElse, While)):
            return "it writes under a condition"
        inner = regions.inner_loops(loops)
        if isinstance(item, BufferStore):
            touched = regions.touched(element(region.buffer, item.indices), {}, inner)
            if not _fills_box(item.indices, loop_ranges(loops)):
                return "it writes a part of what it declares"
        else:
            own = [part for part in item.block.writes if part.buffer is region.buffer]
            why = _skips_inside(scope, item, own)
            if why:
                return why
            touched = regions.touched(own[0], regions.axis_values(item), inner)
        found = regions.unite(found, touched)
    # Intrinsics keep what they declare.
    if found is None or _covers(regions, found, region):
        return ""
    return "it writes a part of what it declares"


def _writing(body: Stmt, buffer: Buffer) -> Iterator[tuple[_Writing, tuple[For, ...]]]:
    """The stores, blocks and branches in which a buffer is stored, with the loops around each."""
    stack: list[tuple[Any, tuple[For, ...]]] = [(body, ())]
    while stack:
        item, loops = stack.pop()
        if not _stores_to(item, buffer):
            continue
        if isinstance(item, _Writing):
            yield item, loops
            continue
        loops = (*loops, item) if type(item) is For else loops
        stack.extend((node, loops) for node in item.child_nodes() if isinstance(node, Stmt))


def _stores_to(item: Stmt, buffer: Buffer) -> bool:
    return any(type(node) is BufferStore and node.buffer is buffer for node in pre_order(item))


def _skips_inside(scope: Scope, item: BlockRealize, own: Sequence[BufferRegion]) -> str:
    """Say why a block inside, which writes the regions ``own``, may write less than a box."""
    if item.predicate is not TRUE or len(own) != 1:
        return "a block inside writes under a condition"
    why = _skips(scope, item.block, own[0])
    if why or _fills_box([part.min for part in own[0].region], axis_ranges(item.block)):
        return why
    return "a block inside writes a part of the box only"


def _covers(regions: Regions, spans: Sequence[Span | None], region: BufferRegion) -> bool:
    """Whether what is written, without gaps, is all of a region."""
    for span, item in zip(spans, region.region):
        if span is None or not span.exact:
            return False
        least, count = regions.poly(item.min), regions.poly(item.extent)
        if not (regions.same(span.min, least) and regions.same(span.extent, count)):
            return False
    return True


def why_conditional(block: Block, buffer: Buffer) -> str:
    """Say what may keep a block's instance from writing ``buffer``; empty if nothing can."""
    stack: list[Any] = [block.body]
    while stack:
        item = stack.pop()
        kind = type(item)
        guarded = kind is IfThenElse or kind is While
        if guarded or (kind is BlockRealize and item.predicate is not TRUE):
            if _stores_to(item, buffer):
                return "it writes under a condition"
        else:
            stack.extend(node for node in item.child_nodes() if isinstance(node, Stmt))
    return ""
