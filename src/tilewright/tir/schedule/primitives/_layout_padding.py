"""Padding that ``transform_layout`` adds to a buffer: which block writes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir import (
    Expr,
    Range,
    Var,
    as_expr,
    as_int,
    cast,
    const,
    expr_equal,
    if_then_else,
    not_,
    pre_order,
    substitute,
    uses_var,
)
from tilewright.support.errors import ScheduleError
from tilewright.tir import (
    SERIAL,
    SPATIAL,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    IterVar,
    SeqStmt,
    Stmt,
    seq,
)
from tilewright.tir.analysis import COMPLETE, block_access_regions, block_facts
from tilewright.tir.index_map import IndexMap
from tilewright.tir.schedule.state import ScheduleState, trivially_true
from tilewright.tir.walk import child_blocks


@dataclass(frozen=True)
class Filling:
    """A buffer ``new`` that contains ``old`` and, where ``padding`` is true, a value."""

    state: ScheduleState
    func_name: str
    old: Buffer
    new: Buffer
    inverse: IndexMap
    padding: Expr
    pad_value: int | float | IndexMap

    def value_at(self, where: tuple[Var, ...]) -> Expr:
        """Return the value of the padding."""
        given = self.pad_value
        if isinstance(given, IndexMap):
            return cast(given.map_indices(where)[0], self.new.dtype)
        return const(given, self.new.dtype)

    def axes(self) -> tuple[IterVar, ...]:
        """One axis per dimension of the new buffer."""
        return tuple(
            IterVar(Range.from_min_extent(const(0), extent), Var(f"v{axis}"), SPATIAL)
            for axis, extent in enumerate(self.new.shape)
        )

    def nest(self, block: Block, predicate: Expr | None = None) -> Stmt:
        """Loops around a block with ``axes``; the predicate is in terms of the inverse's inputs."""
        loops = tuple(Var(f"ax{axis}") for axis in range(self.new.ndim))
        condition = as_expr(True)
        if predicate is not None:
            condition = substitute(predicate, dict(zip(self.inverse.initial_indices, loops)))
        made: Stmt = BlockRealize(loops, condition, block)
        for var, extent in zip(reversed(loops), reversed(self.new.shape)):
            made = For(var, const(0), extent, SERIAL, made)
        return made

    def after_last_write(self, body: Stmt) -> Stmt:
        """Put a block that fills the padding behind the last statement that writes the buffer."""
        iter_vars = self.axes()
        where = tuple(iter_var.var for iter_var in iter_vars)
        writes = BufferRegion(
            self.new, tuple(Range.from_min_extent(var, const(1)) for var in where)
        )
        name = self.state.fresh_block_name(self.func_name, f"{self.new.name}_pad")
        store = BufferStore(self.new, self.value_at(where), where)
        fill = self.nest(Block(iter_vars, (), (writes,), name, store), self.padding)
        stmts = list(body.stmts) if isinstance(body, SeqStmt) else [body]
        last = -1
        for number, stmt in enumerate(stmts):
            if any(
                isinstance(item, BufferStore) and item.buffer is self.new
                for item in pre_order(stmt)
            ):
                last = number
        return seq(*stmts[: last + 1], fill, *stmts[last + 1 :])

    def padded_writer(self, owner: Block) -> dict[Any, Any] | None:
        """Let the one block that writes the buffer, element by element, write the padding too.

        Returns the replacement of its loops, ``None`` if the block is not that simple.
        """
        writers = [
            item
            for item in child_blocks(owner)
            if any(region.buffer is self.old for region in item.block.writes)
        ]
        if len(writers) != 1 or not trivially_true(writers[0].predicate):
            return None
        (realize,) = writers
        block, store = realize.block, realize.block.body
        axes = {iter_var.var: iter_var.dom.extent for iter_var in block.iter_vars}
        if (
            block_facts(block).kind != COMPLETE
            or not isinstance(store, BufferStore)
            or block.match_buffers
            or len(axes) != self.old.ndim
            or set(store.indices) != set(axes)
            or not all(
                expr_equal(axes[index], extent)  # type: ignore[index]
                for index, extent in zip(store.indices, self.old.shape)
            )
        ):
            return None
        try:
            outermost = own_loops(self.state, realize)
        except ScheduleError:
            return None
        return {outermost: self._over_new_axes(block, store)}

    def _over_new_axes(self, block: Block, store: BufferStore) -> Stmt:
        analyzer = self.state.analyzer(self.func_name)
        iter_vars = self.axes()
        where = tuple(iter_var.var for iter_var in iter_vars)
        for iter_var in iter_vars:
            analyzer.bind(iter_var.var, iter_var.dom)
        mapped = dict(zip(store.indices, self.inverse.map_indices(where, analyzer)))
        inside = not_(substitute(self.padding, dict(zip(self.inverse.initial_indices, where))))
        value = simplified_indices(substitute(store.value, mapped), analyzer)
        chosen = if_then_else(analyzer.simplify(inside), value, self.value_at(where))
        made = block.replace(iter_vars=iter_vars, body=BufferStore(self.new, chosen, where))
        reads, writes = block_access_regions(made)
        return self.nest(made.replace(reads=tuple(reads), writes=tuple(writes)))


def own_loops(state: ScheduleState, realize: BlockRealize, *, replaced: bool = True) -> Stmt:
    """Return the outermost of a block's loops, if each binds one axis and holds nothing else.

    Loops that are ``replaced`` must be serial and carry no annotations, which would be lost.
    """
    loops: dict[Var, For] = {}
    current: Stmt = realize
    for item in state.parents(realize):
        if type(item) is not For:
            break
        if replaced and (item.kind != SERIAL or item.annotations):
            raise state.error(
                f"loop {item.loop_var.name!r} is {item.kind} or annotated: new loops would lose "
                "that",
                item,
                remedy="transform the block first, then annotate its new loops",
            )
        loops[item.loop_var] = item
        current = item
    bound: set[Var] = set()
    for iter_var, value in zip(realize.block.iter_vars, realize.iter_values):
        loop = loops.get(value) if type(value) is Var else None
        if (
            loop is None
            or value in bound
            or as_int(loop.min) != 0
            or as_int(iter_var.dom.min) != 0
            or not _are_equal(loop.extent, iter_var.dom.extent)
            or uses_var(loop.extent, set(loops))
        ):
            raise state.error(
                f"axis {iter_var.var.name} of block {realize.block.name!r} is not bound to a loop "
                "of its own over its whole domain",
                realize,
                remedy="transform the block before splitting, fusing or moving it",
            )
        bound.add(value)  # type: ignore[arg-type]
    if set(loops) - bound or state.loops_above(realize) != list(reversed(loops.values())):
        raise state.error(
            f"block {realize.block.name!r} shares its loops, or has loops that bind no axis",
            realize,
        )
    return current


def _are_equal(a: Expr, b: Expr) -> bool:
    return expr_equal(a, b) or Analyzer().can_prove_equal(a, b)


def simplified_indices(stmt: object, analyzer: Analyzer) -> Any:
    """Simplify the indices of accesses."""

    def go(node: Any) -> Any:
        made = node.map_children(go)
        if isinstance(made, (BufferLoad, BufferStore)):
            return made.replace(indices=tuple(map(analyzer.simplify, made.indices)))
        return made

    return go(stmt)
