"""The program under a schedule: a persistent module and its indexes.

Functions are immutable trees, so a state is a dict of them; copying a state copies the dict. For
each function an index (parents of statements, loops by variable, blocks by name) is built on the
first query after a change, by a walk over statements only. ``replace`` rebuilds the path from a
statement to the root, and shares all the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tilewright.arith import Analyzer
from tilewright.ir import BaseFunc, Expr, IntImm, IRModule, Node, Range, Var, is_const
from tilewright.support.errors import ScheduleError
from tilewright.support.registry import near_matches
from tilewright.tir import (
    Block,
    BlockRealize,
    For,
    IfThenElse,
    IterVar,
    PrimFunc,
    SeqStmt,
    is_no_op,
    seq,
)
from tilewright.tir.analysis.data_variables import know_data
from tilewright.tir.loop_exits import has_loop_exits
from tilewright.tir.schedule.block_scope import (
    BlockScope,
    CachedFlags,
    Place,
    flags_of,
    scope_below,
)
from tilewright.tir.schedule.debugging import checked_level, checked_mask
from tilewright.tir.schedule.error import Text, schedule_error
from tilewright.tir.schedule.function_index import FunctionIndex
from tilewright.tir.schedule.handles import BlockRV, LoopRV
from tilewright.tir.schedule.sref import StmtSRef
from tilewright.tir.stmt import Stmt


def _with_child(parent: Any, old: Any, new: Any) -> Any:
    """Rebuild one statement around a changed child."""
    kind = type(parent)
    if kind is For:
        return For(
            parent.loop_var,
            parent.min,
            parent.extent,
            parent.kind,
            new,
            parent.thread,
            parent.annotations,
        )
    if kind is BlockRealize:
        return BlockRealize(parent.iter_values, parent.predicate, new)
    if kind is Block:
        return parent.replace(init=new) if parent.init is old else parent.replace(body=new)
    if kind is SeqStmt:
        stmts = tuple([new if item is old else item for item in parent.stmts])
        if type(new) is SeqStmt or is_no_op(new):
            return seq(stmts)
        return SeqStmt(stmts)
    if kind is IfThenElse:
        if parent.else_case is old:
            return IfThenElse(parent.condition, parent.then_case, new)
        return IfThenElse(parent.condition, new, parent.else_case)
    return parent.replace(body=new)


class SymbolicTile(NamedTuple):
    """Positive variables whose product is ``extent``, or if not ``exact``, at least that."""

    variables: tuple[Var, ...]
    extent: Expr
    max_innermost: int
    exact: bool = True


class ScheduleState:
    """Functions by name, an index for each, and the constraints of symbolic sampling.

    ``symbolic`` holds what is known of each symbolic tile. ``active`` is the name of the primitive
    that runs now. With a ``debug_mask`` other than ``"none"`` (or 0) the program is verified after
    every primitive. ``error_render_level`` says how much errors tell: ``"detail"`` shows the
    program, ``"fast"`` names the rule, ``"none"`` only the primitive.

    Raises ``ScheduleError`` without ``enable_check``: primitives that take their caller's word are
    called ``unsafe_…``, the others check.
    """

    def __init__(
        self,
        mod: IRModule | PrimFunc,
        *,
        debug_mask: str | int = "none",
        enable_check: bool = True,
        error_render_level: str = "detail",
    ) -> None:
        if isinstance(mod, PrimFunc):
            mod = IRModule.from_expr(mod)
        mod = mod.clone()  # not changed when its user's module is
        self.debug_mask = checked_mask(debug_mask)
        if not enable_check:
            raise ScheduleError(
                "enable_check=False: primitives check what they need, but for those that are "
                "called unsafe_… and take your word"
            )
        self.enable_check = enable_check
        self.error_render_level = checked_level(error_render_level)
        self._mod: IRModule | None = mod
        self._base = mod.clone()  # only this state has it
        self._funcs: dict[str, BaseFunc] = dict(mod.functions)
        self._indexes: dict[str, FunctionIndex] = {}
        # Versions of functions before each change: who removed a loop is found out only when asked.
        self._history: tuple[Any, ...] | None = None
        self._renamed: dict[tuple[str, str], str] = {}
        self.symbolic: list[SymbolicTile] = []
        self.active: str | None = None

    @property
    def mod(self) -> IRModule:
        """The module as it is now."""
        known = self._mod
        if (
            known is None
            or known.attrs is not self._base.attrs
            or known.functions != self._funcs  # somebody has changed the module in place
        ):
            known = self._mod = self._base.replace(functions=dict(self._funcs))
        return known

    def copy(self) -> ScheduleState:
        """Return an independent state that shares all trees and indexes."""
        made = ScheduleState.__new__(ScheduleState)
        made.debug_mask = self.debug_mask
        made.enable_check = self.enable_check
        made.error_render_level = self.error_render_level
        made._mod = self._mod
        made._base = self._base
        made._funcs = dict(self._funcs)
        made._indexes = dict(self._indexes)
        made._history = self._history
        made._renamed = dict(self._renamed)
        made.symbolic = list(self.symbolic)
        made.active = None
        return made

    def snapshot(self) -> tuple[Any, ...]:
        """Return what ``restore`` needs to undo everything that comes after."""
        return (
            self._mod,
            self._funcs,
            self._indexes,
            self._history,
            self._renamed,
            len(self.symbolic),
        )

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Go back to a snapshot."""
        self._mod, self._funcs, self._indexes, self._history, self._renamed, count = saved
        del self.symbolic[count:]

    def changed_since(self, saved: tuple[Any, ...]) -> Iterator[tuple[str, FunctionIndex | None]]:
        """Yield the tensor functions that differ from a snapshot, with their indexes there.

        The index is ``None`` only for a function that there was not: whether one had been built
        already depends on what was asked before, such as by a step that was undone.
        """
        funcs, indexes = saved[1], saved[2]
        if self._funcs is funcs:
            return
        for name, func in self._funcs.items():
            old = funcs.get(name)
            if type(func) is not PrimFunc or func is old:
                continue
            index = indexes.get(name)
            if index is None and type(old) is PrimFunc:
                index = FunctionIndex(old)
            yield name, index

    # ---- looking things up --------------------------------------------------------------------

    def func(self, name: str) -> PrimFunc:
        """Return a function; ``ScheduleError`` if it is missing or can't be scheduled."""
        func = self._funcs.get(name)
        if func is None:
            raise schedule_error(
                self.active,
                lambda: (
                    f"the module has no function {name!r}; {near_matches(name, list(self._funcs))}"
                ),
            )
        if type(func) is not PrimFunc:
            raise schedule_error(
                self.active, f"{name!r} is a {type(func).__name__}; only a PrimFunc has blocks"
            )
        return func

    def func_names(self) -> list[str]:
        """Names of all tensor functions."""
        return [name for name, func in self._funcs.items() if type(func) is PrimFunc]

    def index(self, func_name: str) -> FunctionIndex:
        """Return the index of a function, building it if the function changed."""
        found = self._indexes.get(func_name)
        if found is None:
            func = self.func(func_name)
            if has_loop_exits(func):
                raise schedule_error(
                    self.active, "loops that break or continue leaves can't be scheduled",
                    remedy="apply tir.transform.LowerLoopExits() to the module first", func=func,
                )  # fmt: skip
            found = FunctionIndex(func)
            self._indexes = {**self._indexes, func_name: found}
        return found

    def get_block(self, rv: BlockRV) -> BlockRealize:
        """Return the realize of a block (``.block`` is the block itself).

        Raises ``ScheduleError`` if it is gone.
        """
        blocks = self.index(rv.func).blocks
        found = blocks.get(rv.name)
        if found is None:
            name: str | None = rv.name
            while name is not None and found is None:
                name = self._renamed.get((rv.func, name))
                found = blocks.get(name) if name is not None else None
        if found is None:
            raise self._gone(rv.func, f"block {rv.name!r}", rv.name)
        return found

    def get_loop(self, rv: LoopRV) -> For:
        """Return a loop.

        Raises ``ScheduleError`` if it is gone.
        """
        if rv.var is None:
            raise schedule_error(
                self.active,
                f"the handle is the compute location {rv.place!r}, which is not a loop",
                remedy="only compute_at and reverse_compute_at take such a handle",
            )
        found = self.index(rv.func).loops.get(rv.var)
        if found is None:
            raise self._gone(rv.func, f"loop {rv.var.name!r}", rv.var)
        return found

    def _gone(self, func_name: str, what: str, key: object) -> ScheduleError:
        history = self._history

        def rule() -> str:
            entry = history
            while entry is not None:
                primitive, name, func, entry = entry
                if name == func_name and isinstance(func, PrimFunc):
                    index = FunctionIndex(func)
                    if key in index.blocks or key in index.loops:
                        return f"{what} is no longer in the program: `{primitive}` removed it"
            return f"{what} is not in function {func_name!r} of this program"

        return self.error(
            rule,
            remedy="use the handles that the primitive returned, or get_block/get_loops again",
            func=self._funcs.get(func_name),
        )

    def get_sref(self, stmt: Stmt) -> StmtSRef | None:
        """Return the sref of a loop or block (or of a block's realize) of the program.

        ``None`` if the program has no such statement, or it is of another kind.
        """
        if isinstance(stmt, BlockRealize):
            stmt = stmt.block
        if not isinstance(stmt, (For, Block)):
            return None
        for name in self.func_names():
            if stmt in self.index(name).parents:
                return StmtSRef(self.index(name), name, stmt)
        return None

    def get_block_scope(self, block_sref: Place) -> BlockScope:
        """Return the dependencies among the child blocks of a block.

        Raises ``ScheduleError`` if the block isn't of the program as it is now.
        """
        self.func_name_of(self._block_of(block_sref))
        return scope_below(block_sref)

    def get_sblock_scope(self, block_sref: Place) -> BlockScope:
        """Return the dependencies among the child blocks of a block (``get_block_scope``)."""
        return self.get_block_scope(block_sref)

    def get_cached_flags(self, block_sref: Place) -> CachedFlags:
        """Return whether a block has affine bindings and covered reads, and is a stage pipeline.

        Raises ``ScheduleError`` if the block isn't of the program as it is now.
        """
        func_name = self.func_name_of(self._block_of(block_sref))
        return flags_of(block_sref, self.func(func_name))

    _get_cached_flags = get_cached_flags

    def _block_of(self, sref: Place) -> Block:
        if isinstance(sref.stmt, Block):
            return sref.stmt
        raise schedule_error(self.active, f"{sref!r} is a loop, not a block")

    def func_name_of(self, stmt: Node) -> str:
        """Return the name of the function that a statement (of the current version) is in.

        Raises ``ScheduleError`` if it isn't of the current version.
        """
        for name, index in self._indexes.items():
            if stmt in index.parents:
                return name
        for name in self.func_names():
            if stmt in self.index(name).parents:
                return name
        raise schedule_error(
            self.active, f"the {type(stmt).__name__} is not part of the program as it is now"
        )

    def parent(self, stmt: Node) -> Any:
        """Return the statement around ``stmt``, or ``None`` for a function's body."""
        return self.index(self.func_name_of(stmt)).parents[stmt]

    def parents(self, stmt: Node) -> Iterator[Any]:
        """Yield the statements around ``stmt``, the innermost first."""
        table = self.index(self.func_name_of(stmt)).parents
        current = table[stmt]
        while current is not None:
            yield current
            current = table[current]

    def loops_above(self, stmt: Node) -> list[For]:
        """Return the loops around ``stmt`` inside its block, the outermost first."""
        table = self.index(self.func_name_of(stmt)).parents
        found = []
        current = table[stmt]
        while current is not None and type(current) is not Block:
            if type(current) is For:
                found.append(current)
            current = table[current]
        found.reverse()
        return found

    def scope_realize(self, stmt: Node) -> BlockRealize | None:
        """Return the realize of the innermost block around ``stmt`` (``None`` at the root)."""
        for item in self.parents(stmt):
            if type(item) is BlockRealize:
                return item
        return None

    def scope_block(self, stmt: Node) -> Block:
        """Return the innermost block around ``stmt``; ``ScheduleError`` at the root."""
        found = self.scope_realize(stmt)
        if found is None:
            raise self.error("the root block is in no other block", stmt)
        return found.block

    def axes_around(self, stmt: Node) -> list[IterVar]:
        """Return the axes of all blocks around ``stmt``, of the innermost first."""
        blocks = (item for item in self.parents(stmt) if type(item) is Block)
        return [axis for block in blocks for axis in block.iter_vars]

    # ---- facts for proofs ---------------------------------------------------------------------

    def analyzer(self, func_name: str, *, least_size: int = 0) -> Analyzer:
        """Return an analyzer that knows the function's symbolic extents, tile variables and data.

        Sizes may be 0; ``least_size=1`` is for statements about programs that do something at all.
        """
        made = Analyzer()
        func = self.func(func_name)
        for var in func.symbolic_vars():
            made.limit(var, least_size)
        for extent in _formulas(func):
            made.assume(extent >= least_size)
        self.know_symbolic(made)
        know_data(made, func)
        return made

    def analyzer_of_instances(self, realize: BlockRealize, *, around: bool = False) -> Analyzer:
        """Return an analyzer for statements about a block's instances.

        Where there is one, no axis of the block is empty. ``around`` the block, loops are known.
        """
        made = self.analyzer_at(realize) if around else self.analyzer(self.func_name_of(realize))
        for axis in realize.block.iter_vars:
            made.assume(axis.dom.extent >= 1)
        return made

    def know_symbolic(self, analyzer: Analyzer) -> None:
        """Tell an analyzer what is known about symbolic tile variables."""
        for tile in self.symbolic:
            for var in tile.variables:
                analyzer.bind_positive(var)

    def analyzer_at(self, stmt: Node, *, least_size: int = 0) -> Analyzer:
        """Return an analyzer that knows all loops, iteration variables around ``stmt``."""
        made = self.analyzer(self.func_name_of(stmt), least_size=least_size)
        around = list(self.parents(stmt))
        for item in reversed(around):
            if type(item) is For:
                made.bind(item.loop_var, Range.from_min_extent(item.min, item.extent))
            elif type(item) is Block:
                for iter_var in item.iter_vars:
                    made.bind(iter_var.var, iter_var.dom)
        return made

    # ---- changing the program -----------------------------------------------------------------

    def set_func(self, func_name: str, func: BaseFunc) -> None:
        """Replace a function of the module."""
        before = self._funcs[func_name]
        if func is before:
            return
        self._history = (self.active, func_name, before, self._history)
        self._funcs = {**self._funcs, func_name: func}
        self._mod = None
        if func_name in self._indexes:
            self._indexes = {k: v for k, v in self._indexes.items() if k != func_name}

    def replace(
        self,
        src_sref: Any,
        tgt_stmt: Block | BlockRealize | For | Stmt,
        block_sref_reuse: Mapping[Block, Block] | None = None,
    ) -> None:
        """Replace a statement, or that of an sref: the single edit of a primitive.

        ``block_sref_reuse`` tells which new blocks take the place of which old ones: handles of
        these refer to them from now on.
        """
        old: Any = src_sref if isinstance(src_sref, Stmt) else src_sref.stmt
        new: Any = tgt_stmt
        if new is old:
            return
        func_name = self.func_name_of(old)
        parents = self.index(func_name).parents
        parent = parents[old]
        while parent is not None:
            made = _with_child(parent, old, new)
            old, new = parent, made
            parent = parents[parent]
        func = self._funcs[func_name]
        assert isinstance(func, PrimFunc)
        made = PrimFunc.of_fields(func.params, func.buffer_map, new, func.ret_dtype, func.attrs)
        self.set_func(func_name, made)
        for before, after in (block_sref_reuse or {}).items():
            if before.name != after.name:
                self.note_rename(func_name, before.name, after.name)

    def replace_all(self, mapping: Mapping[Any, Any]) -> None:
        """Replace several statements, none of which is inside another."""
        if not mapping:
            return
        func_name = self.func_name_of(next(iter(mapping)))
        func = self._funcs[func_name]
        assert isinstance(func, PrimFunc)
        self.set_func(func_name, func.replace(body=self.rebuilt(func.body, mapping)))

    def rebuilt(self, stmt: Stmt, mapping: Mapping[Any, Any]) -> Any:
        """Return ``stmt`` with statements below it replaced; the state is unchanged."""
        parents = self.index(self.func_name_of(stmt)).parents
        touched: set[Any] = set()
        for old in mapping:
            current = parents[old]
            while current is not None and current not in touched:
                touched.add(current)
                current = parents[current]

        def go(node: Stmt) -> Any:
            if node in mapping:
                return mapping[node]
            if node not in touched:
                return node
            if type(node) is SeqStmt:
                return seq(go(item) for item in node.stmts)
            return node.map_children(go)

        return go(stmt)

    def removal(self, stmt: Stmt) -> tuple[Any, Any]:
        """Return the replacement ``(old, new)`` that removes ``stmt`` and emptied loops.

        Raises ``ScheduleError`` if nothing would be left of the scope.
        """
        parents = self.index(self.func_name_of(stmt)).parents
        old = stmt
        while True:
            parent = parents[old]
            if type(parent) is SeqStmt:
                return parent, seq(item for item in parent.stmts if item is not old)
            if type(parent) not in (For, IfThenElse) or (
                type(parent) is IfThenElse and parent.else_case is not None
            ):
                raise self.error(
                    "the block is the only statement of its scope and can't be removed", stmt
                )
            old = parent

    def note_rename(self, func_name: str, old: str, new: str) -> None:
        """Let handles of a renamed block refer to it under its new name."""
        self._renamed = {**self._renamed, (func_name, old): new}

    def fresh_block_name(self, func_name: str, base: str) -> str:
        """Return a block name that the function doesn't have."""
        blocks = self.index(func_name).blocks
        name, number = base, 0
        while name in blocks:
            number += 1
            name = f"{base}_{number}"
        return name

    # ---- saying no ----------------------------------------------------------------------------

    def error(
        self, rule: Text, *culprits: Node, remedy: Text = "", func: BaseFunc | None = None
    ) -> ScheduleError:
        """Make the error of the running primitive; ``culprits`` are marked in the program.

        It shows ``func``, else the function that the culprits are in.
        """
        if self.error_render_level == "none":
            return schedule_error(self.active, "refused (error_render_level='none')")
        if self.error_render_level == "fast":
            return schedule_error(self.active, rule)
        for culprit in culprits:
            for index in self._indexes.values():
                if culprit in index.parents:
                    func = index.func
        if func is None and len(self._indexes) == 1:
            func = next(iter(self._indexes.values())).func
        return schedule_error(self.active, rule, remedy=remedy, func=func, culprits=culprits)


def trivially_true(condition: Expr) -> bool:
    """Whether a predicate is the constant true."""
    return is_const(condition, 1)


def _formulas(func: PrimFunc) -> list[Expr]:
    """Extents of a function's buffers that are formulas of sizes: no buffer has fewer elements."""
    extents = [extent for buffer in func.buffers for extent in buffer.shape]
    return [extent for extent in extents if type(extent) not in (Var, IntImm)]
