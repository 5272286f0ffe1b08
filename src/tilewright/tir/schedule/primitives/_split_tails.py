"""The last, incomplete tile of a loop: the tail strategies of ``split``.

- ``predicate``: the whole tile runs and blocks are guarded (``split`` does that itself).
- ``peel``: full tiles only, then a loop over the remainder, with copies of the blocks.
- ``pad``: the whole tile runs unguarded; its excess writes go into padding added to intermediate
  buffers.
- ``overlap``: the last tile begins earlier, so that it ends where the loop did, and computes some
  elements a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.arith import Analyzer, conjuncts
from tilewright.ir import (
    Call,
    Div,
    Expr,
    FloorDiv,
    FloorMod,
    Range,
    Var,
    ceildiv,
    const,
    dtypes,
    floordiv,
    floormod,
    is_const,
    minimum,
    mul,
    not_,
    pre_order,
    product,
    uses_var,
)
from tilewright.tir import (
    OPAQUE,
    SPATIAL,
    AssertStmt,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    For,
    IfThenElse,
    Stmt,
    While,
    seq,
)
from tilewright.tir.analysis import block_facts
from tilewright.tir.schedule.legality import check_only_blocks, check_repeatable
from tilewright.tir.schedule.primitives._index_set_splitting import subrange_of
from tilewright.tir.schedule.primitives._rewrite import (
    flattened,
    nest,
    rewrite_outside_blocks,
    substitute_index,
)
from tilewright.tir.schedule.primitives.storage import change_buffers
from tilewright.tir.schedule.zero_trips import analyzer_where_begun, check_not_negative
from tilewright.tir.walk import child_blocks, scope_statements

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule


def check_guard_unneeded(sch: Schedule, loop: For) -> None:
    """Refuse unless the predicate of each block below keeps it from running beyond the loop."""
    check_only_blocks(sch, loop.body, "a tile without predicate")
    for realize in child_blocks(loop.body):
        known = sch.state.analyzer_at(loop)
        known.assume(loop.loop_var >= loop.extent)
        for item in sch.state.loops_above(realize):
            if item is not loop and loop in sch.state.parents(item):
                known.bind(item.loop_var, Range.from_min_extent(item.min, item.extent))
        if not any(known.can_prove(not_(item)) for item in conjuncts(realize.predicate)):
            raise sch.error(
                f"the tiles exceed the extent {loop.extent!r}, and without a predicate block "
                f"{realize.block.name!r} would run outside of the loop",
                realize,
                remedy="split with tail='predicate', 'peel' or 'overlap'",
            )


# ---- peel ---------------------------------------------------------------------------------------


def peel(
    sch: Schedule, loop: For, factors: Sequence[Expr | None], variables: Sequence[Var], unit: bool
) -> tuple[Any, Any]:
    """Return the loop and its replacement: full tiles with a remainder loop."""
    extent = loop.extent
    check_not_negative(sch, loop)
    known = analyzer_where_begun(sch.state, loop)
    place = factors.index(None) if None in factors else 0
    rest = product([item for n, item in enumerate(factors) if n != place and item is not None])
    count: Expr = known.simplify(floordiv(extent, rest))
    if is_const(count, 0):
        raise sch.error(
            f"no full tile of {rest!r} iterations fits into the loop of {extent!r}",
            loop,
            remedy="choose smaller factors, or tail='predicate'",
        )
    extents = [count if n == place else item for n, item in enumerate(factors)]
    value = flattened(variables, extents, unit)  # type: ignore[arg-type]  # None is gone
    mapping = {loop.loop_var: value}
    body = rewrite_outside_blocks(loop.body, lambda expr: substitute_index(expr, mapping))
    var = Var(f"{loop.loop_var.name}_tail", loop.loop_var.dtype)
    start = mul(count, rest)
    left = known.simplify(floormod(extent, rest))
    taken = set(sch.state.index(sch.state.func_name_of(loop)).blocks)
    remainder = subrange_of(sch, loop, var, left, var + start, suffix="_tail", taken=taken)
    return loop, seq(nest(variables, extents, body), remainder)


# ---- overlap ------------------------------------------------------------------------------------


def overlap(
    sch: Schedule, loop: For, extents: Sequence[Expr], variables: Sequence[Var], unit: bool
) -> tuple[Any, Any]:
    """Return the loop and its replacement: tiles, the last one of which starts earlier."""
    extent = loop.extent
    known = analyzer_where_begun(sch.state, loop)
    tile = product(extents[1:])
    # Under a loop that may have no iterations, what is made of its extent may be zero as well.
    if not (known.can_prove(tile >= 1) and known.can_prove(extent >= tile)):
        raise sch.error(
            f"the loop of {extent!r} iterations may be shorter than one tile of {tile!r}, so the "
            "last tile can't begin earlier",
            loop,
            remedy="choose smaller factors, or tail='predicate' or 'peel'",
        )
    check_repeatable(sch, loop, "computing elements in two tiles")
    count = known.simplify(ceildiv(extent, tile))
    start = minimum(mul(variables[0], tile), known.simplify(extent - tile))
    value = start + flattened(variables[1:], extents[1:], unit)
    mapping = {loop.loop_var: value}
    body = rewrite_outside_blocks(loop.body, lambda expr: substitute_index(expr, mapping))
    return loop, nest(variables, [count, *extents[1:]], body)


# ---- pad ----------------------------------------------------------------------------------------


def pad(
    sch: Schedule, loop: For, extents: Sequence[Expr], variables: Sequence[Var], unit: bool
) -> tuple[Any, Any]:
    """Return the scope and its replacement, with full tiles and enlarged buffers."""
    total = sch.state.analyzer_at(loop).simplify(product(extents))
    check_only_blocks(sch, loop.body, "running it further")
    for stmt in scope_statements(loop.body):
        if type(stmt) is not BlockRealize and any(
            uses_var(item, {loop.loop_var}) for item in stmt.child_nodes() if isinstance(item, Expr)
        ):
            raise sch.error(
                f"more than bindings of blocks depends on the loop {loop.loop_var.name!r}, so it "
                "can't be run further",
                stmt,
            )
    scope = sch.state.scope_block(loop)
    padding = _Padding(sch, loop, scope, total)
    blocks = {realize: padding.padded(realize) for realize in child_blocks(loop.body)}
    buffers = {old: old.replace(shape=tuple(shape)) for old, shape in padding.shapes.items()}
    padding.check_layout_free(buffers)
    for realize in blocks:
        padding.check_reads(realize, blocks[realize])
    mapping = {loop.loop_var: flattened(variables, extents, unit)}
    body: Stmt = sch.state.rebuilt(
        loop.body, {old: old.replace(block=block) for old, block in blocks.items()}
    )
    body = rewrite_outside_blocks(body, lambda expr: substitute_index(expr, mapping))
    made = sch.state.rebuilt(scope, {loop: nest(variables, extents, body)})
    return scope, change_buffers(made, buffers)


class _Padding:
    """Checks and collects the changes for padding a loop to ``total`` iterations."""

    def __init__(self, sch: Schedule, loop: For, scope: Block, total: Expr) -> None:
        self.sch, self.loop, self.scope, self.total = sch, loop, scope, total
        self.shapes: dict[Buffer, list[Expr]] = {}
        self.axes: dict[BlockRealize, Var] = {}

    def refuse(self, why: str, realize: BlockRealize) -> Exception:
        return self.sch.error(
            f"block {realize.block.name!r} can't run beyond the loop's end: {why}",
            realize,
            remedy="cache_write its output or pad its producers first, or choose another tail",
        )

    def padded(self, realize: BlockRealize) -> Block:
        """Return the block with a larger domain, noting the shapes that its outputs need."""
        var, extent = self.loop.loop_var, self.loop.extent
        block = realize.block
        facts = block_facts(block)
        if facts.kind == OPAQUE:
            raise self.refuse(facts.reason, realize)
        if child_blocks(block):
            raise self.refuse("it has blocks inside", realize)
        using = [
            item
            for item, value in zip(block.iter_vars, realize.iter_values)
            if uses_var(value, {var})
        ]
        direct = [item for item, value in zip(block.iter_vars, realize.iter_values) if value is var]
        known = self.sch.state.analyzer_at(self.loop)
        if (
            len(using) != 1
            or using != direct
            or using[0].kind != SPATIAL
            or uses_var(realize.predicate, {var})
            or not is_const(using[0].dom.min, 0)
            or not known.can_prove_equal(using[0].dom.extent, extent)
        ):
            raise self.refuse(
                f"loop {var.name!r} is not itself one of its spatial iteration variables", realize
            )
        axis = using[0]
        self.axes[realize] = axis.var
        for region in block.writes:
            self.enlarge(realize, region, axis.var, known)
        domain = Range.from_min_extent(axis.dom.min, self.total)
        iter_vars = tuple(
            item.replace(dom=domain) if item is axis else item for item in block.iter_vars
        )
        return block.replace(iter_vars=iter_vars)

    def enlarge(
        self, realize: BlockRealize, region: BufferRegion, axis: Var, known: Analyzer
    ) -> None:
        buffer = region.buffer
        if buffer not in self.scope.alloc_buffers:
            raise self.refuse(
                f"{buffer.name!r} is visible outside of this scope and keeps its shape", realize
            )
        places = [n for n, item in enumerate(region.region) if uses_var(item.min, {axis})]
        if (
            len(places) != 1
            or region.region[places[0]].min is not axis
            or not is_const(region.region[places[0]].extent, 1)
            or not known.can_prove_equal(buffer.shape[places[0]], self.loop.extent)
        ):
            raise self.refuse(
                f"iteration variable {axis.name!r} does not run along one dimension of "
                f"{buffer.name!r}, so what is written in excess is no padding",
                realize,
            )
        self.shapes.setdefault(buffer, list(buffer.shape))[places[0]] = self.total

    def check_layout_free(self, buffers: dict[Buffer, Buffer]) -> None:
        """Refuse to enlarge buffers on whose layout something relies."""
        pointers = {buffer.data: buffer for buffer in buffers}
        for buffer in buffers:
            if buffer.strides or buffer.elem_offset is not None or buffer.axis_separators:
                raise self.sch.error(
                    f"buffer {buffer.name!r} has a layout of its own and can't be enlarged",
                    self.loop,
                )
        for node in pre_order(self.scope):
            seen = None
            if type(node) is Var:
                seen = pointers.get(node)
            elif isinstance(node, Block):
                seen = next(
                    (m.source.buffer for m in node.match_buffers if m.source.buffer in buffers),
                    None,
                )
            if seen is not None:
                raise self.sch.error(
                    f"the layout of buffer {seen.name!r} is relied on (by its pointer, or by a "
                    "buffer matched to a part of it), so it can't be enlarged",
                    self.loop,
                )

    def check_reads(self, realize: BlockRealize, block: Block) -> None:
        """Refuse unless everything the enlarged block reads is in bounds and can't make it fail."""
        known = self.sch.state.analyzer(self.sch.state.func_name_of(self.loop))
        for around in reversed(list(self.sch.state.parents(realize))):
            if type(around) is Block:
                for item in around.iter_vars:
                    known.bind(item.var, item.dom)
        for item in block.iter_vars:
            known.bind(item.var, item.dom)
        for match in block.match_buffers:
            source = match.source.buffer
            for part, extent in zip(match.source.region, self.shapes.get(source, source.shape)):
                end = part.min + part.extent
                if not (known.can_prove(part.min >= 0) and known.can_prove(end <= extent)):
                    raise self.refuse(
                        f"it would match a part of {source.name!r} at {part.min!r}, which may be "
                        "outside of it",
                        realize,
                    )
        for stmt in (block.body, block.init):
            if stmt is not None:
                self._check(stmt, known, realize)

    def _check(self, node: Any, known: Analyzer, realize: BlockRealize) -> None:
        kind = type(node)
        if kind is BufferLoad:
            self._check_load(node, known, realize)
        elif kind is For:
            with known.constraint(const(1, "bool")):
                known.bind(node.loop_var, Range.from_min_extent(node.min, node.extent))
                self._check(node.body, known, realize)
            return
        elif kind in (While, AssertStmt) or (kind is Call and node.op.effect == "opaque"):
            raise self.refuse("it has effects that are not stores", realize)
        elif _divides_by_data(node):
            raise self.refuse("it would divide integers by values of the padding", realize)
        guarded = None
        if kind is IfThenElse:
            guarded = (node.condition, node.then_case, node.else_case)
        elif kind is Call and node.op.name == "if_then_else":
            guarded = tuple(node.args)
        if guarded is None:
            for child in node.child_nodes():
                self._check(child, known, realize)
            return
        condition, then_case, else_case = guarded
        self._check(condition, known, realize)
        with known.constraint(condition):
            self._check(then_case, known, realize)
        if else_case is not None:
            with known.constraint(not_(condition)):
                self._check(else_case, known, realize)

    def _check_load(self, load: BufferLoad, known: Analyzer, realize: BlockRealize) -> None:
        shape = self.shapes.get(load.buffer, load.buffer.shape)
        for index, extent in zip(load.indices, shape):
            if any(type(item) is BufferLoad for item in pre_order(index)) or not (
                known.can_prove(index >= 0) and known.can_prove(index < extent)
            ):
                raise self.refuse(
                    f"it would read {load.buffer.name!r} at {index!r}, which may be outside of it",
                    realize,
                )


def _divides_by_data(node: Any) -> bool:
    """Whether an expression divides integers by a loaded value, which may be zero."""
    if type(node) is Call:
        if node.op.name not in ("truncdiv", "truncmod"):
            return False
        divisor = node.args[1]
    elif type(node) in (Div, FloorDiv, FloorMod) and not dtypes.is_float(node.dtype):
        divisor = node.b
    else:
        return False
    return any(type(item) is BufferLoad for item in pre_order(divisor))


__all__ = ["check_guard_unneeded", "overlap", "pad", "peel"]
