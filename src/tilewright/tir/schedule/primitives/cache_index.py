"""``cache_index``: index arithmetic computed once, before the block that uses it.

Divisions and remainders in the indices of a gather, a resize or a reshape are recomputed for each
element. Their values depend on few axes of the block, so a small table of them is computed first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilewright.ir import (
    INDEX,
    Add,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Mutator,
    Range,
    Sub,
    Var,
    and_,
    as_int,
    const,
    expr_equal,
    free_vars,
    pre_order,
    substitute,
)
from tilewright.tir import (
    NO_OP,
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
    Stmt,
    fresh_name,
    seq,
)
from tilewright.tir.attrs import TRUSTED_REGIONS
from tilewright.tir.schedule.handles import BlockRV
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.schedule.primitives._copy import anchor_of, element, insert
from tilewright.tir.schedule.primitives._scope import buffer_names, scope_of
from tilewright.tir.schedule.state import ScheduleState
from tilewright.tir.schedule.vocabulary import StorageScope
from tilewright.tir.walk import defined_inside

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule

_ARITHMETIC = (Add, Sub, Mul, FloorDiv, FloorMod, Min, Max)


@primitive
def cache_index(
    sch: Schedule, block: BlockRV, storage_scope: StorageScope, cse_thresh: int = 0
) -> list[BlockRV]:
    """Compute the indices by which ``block`` reads in advance, into buffers of ``storage_scope``.

    It caches the largest expressions in the indices of loads that occur more than ``cse_thresh``
    times (0: each index that is more than an axis plus a constant) and depend only on axes of the
    block; each gets one buffer, over the axes that it uses. Returns the blocks that compute them,
    an empty list if there are none.

    Preconditions:
        - ``cse_thresh`` is not negative
        - the axes that a cached expression uses start at zero, and their ranges depend on no loop
        - the block is inside another block
    Before:
        for i, j in T.grid(8, 16):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi // 2, (vj * 3 + 1) % 16] * T.float32(2)
    After ``cache_index(B, "global")``:
        for ax0 in T.serial(8):
            with T.block("index_0"):
                v0 = T.axis.spatial(8, ax0)
                index_var_0[v0] = v0 // 2
        for ax0 in T.serial(16):
            with T.block("index_1"):
                v0 = T.axis.spatial(16, ax0)
                index_var_1[v0] = (v0 * 3 + 1) % 16
        for i, j in T.grid(8, 16):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(A[vi // 2, (vj * 3 + 1) % 16], index_var_0[vi], index_var_1[vj])
                T.writes(B[vi, vj])
                T.block_attr({"trusted_regions": True})
                B[vi, vj] = A[index_var_0[vi], index_var_1[vj]] * T.float32(2)
    """
    state: ScheduleState = sch.state
    realize = state.get_block(block)
    scope = scope_of(state, realize)
    if cse_thresh < 0:
        raise state.error(f"cse_thresh is {cse_thresh}; it says how often an expression may occur")
    chosen = _chosen(realize.block, cse_thresh)
    if not chosen:
        return []
    domain = {iter_var.var: iter_var for iter_var in realize.block.iter_vars}
    for expr in chosen:
        for var in free_vars(expr):
            if var in domain and as_int(domain[var].dom.min) != 0:
                raise state.error(
                    f"axis {var.name} of block {realize.block.name!r} doesn't start at zero",
                    realize,
                )
            if var in domain and not scope.is_fixed(realize, domain[var]):
                raise state.error(
                    f"the range of axis {var.name} of block {realize.block.name!r} depends on the "
                    "loops around it",
                    realize,
                )
    names = buffer_names(state, scope.func_name)
    blocks = dict.fromkeys(state.index(scope.func_name).blocks)
    made: list[Stmt] = []
    table: list[tuple[Expr, BufferLoad]] = []
    handles: list[BlockRV] = []
    for number, expr in enumerate(chosen):
        axes = [item for item in realize.block.iter_vars if item.var in set(free_vars(expr))]
        buffer = Buffer(
            fresh_name(f"index_var_{number}", names),
            tuple(axis.dom.extent for axis in axes),
            expr.dtype,
            scope=storage_scope,
        )
        taken = set(blocks)
        name = fresh_name(f"index_{number}", taken)
        blocks[name] = None
        made.append(_table_nest(expr, axes, buffer, name))
        table.append((expr, BufferLoad(buffer, tuple(axis.var for axis in axes))))
        handles.append(BlockRV(scope.func_name, name))
    changed = _Replacer(table).visit_Block(realize.block)
    anchor = anchor_of(scope, [], [realize], before=True)
    renamed = {realize: realize.replace(block=changed)}
    insert(scope, anchor, seq(*made), NO_OP, renamed, [load.buffer for _, load in table])
    return handles


def _chosen(block: Block, threshold: int) -> list[Expr]:
    """Return the expressions to cache, in order of appearance; none occurs inside another."""
    hidden = defined_inside(block)
    domain = {iter_var.var for iter_var in block.iter_vars}
    counts: list[tuple[Expr, int]] = []

    def find(expr: Expr) -> int | None:
        return next((n for n, (known, _) in enumerate(counts) if expr_equal(known, expr)), None)

    def count(expr: Expr) -> None:
        for item in pre_order(expr):
            if isinstance(item, Expr) and _is_worth_it(item, domain, hidden):
                number = find(item)
                if number is None:
                    counts.append((item, 1))
                else:
                    counts[number] = (counts[number][0], counts[number][1] + 1)

    indices = _load_indices(block)
    for index in indices:
        count(index)
    found: list[Expr] = []

    def choose(expr: Any) -> None:
        number = find(expr) if isinstance(expr, _ARITHMETIC) else None
        if number is not None and counts[number][1] > threshold:
            if not any(expr_equal(known, expr) for known in found):
                found.append(expr)
            return
        if not isinstance(expr, BufferLoad):
            for item in expr.child_nodes():
                choose(item)

    for index in indices:
        choose(index)
    return found


def _load_indices(block: Block) -> list[Expr]:
    return [
        index
        for root in (block.body, block.init)
        if root is not None
        for item in pre_order(root)
        if type(item) is BufferLoad
        for index in item.indices
    ]


def _is_worth_it(expr: Expr, domain: set[Var], hidden: set[Any]) -> bool:
    """Whether an expression computes something from axes and can be evaluated anywhere."""
    if not isinstance(expr, _ARITHMETIC) or expr.dtype != INDEX:
        return False
    if isinstance(expr, (Add, Sub)) and isinstance(expr.b, IntImm) and type(expr.a) is Var:
        return False
    uses_axis = False
    for item in pre_order(expr):
        if isinstance(item, Var):
            if item in hidden:
                return False
            uses_axis = uses_axis or item in domain
        elif isinstance(item, (FloorDiv, FloorMod)):
            if not as_int(item.b):
                return False  # Under a condition that is not here, the divisor may be zero.
        elif not isinstance(item, (IntImm, *_ARITHMETIC)):
            return False
    return uses_axis


def _table_nest(expr: Expr, axes: list[IterVar], buffer: Buffer, name: str) -> Stmt:
    fresh: Mapping[Var, Var] = {axis.var: Var(f"v{number}") for number, axis in enumerate(axes)}
    where = tuple(fresh.values())
    block = Block(
        tuple(IterVar(axis.dom, fresh[axis.var], SPATIAL) for axis in axes),
        (),
        (element(buffer, where),),
        name,
        BufferStore(buffer, substitute(expr, fresh), where),
    )
    loops = tuple(Var(f"ax{number}") for number in range(len(axes)))
    nest: Stmt = BlockRealize(loops, and_(), block)
    for var, axis in zip(reversed(loops), reversed(axes)):
        nest = For(var, const(0), axis.dom.extent, SERIAL, nest)
    return nest


class _Replacer(Mutator):
    """Replaces cached expressions in the indices of loads by reads of their tables."""

    def __init__(self, table: list[tuple[Expr, BufferLoad]]) -> None:
        self.table = table

    def visit_BufferLoad(self, node: BufferLoad) -> Expr:
        return BufferLoad(node.buffer, tuple(map(self._index, node.indices)))

    def _index(self, expr: Expr) -> Any:
        if isinstance(expr, BufferLoad):
            return self.visit(expr)
        if isinstance(expr, _ARITHMETIC):
            for known, load in self.table:
                if expr_equal(known, expr):
                    return load
        return expr.map_children(self._index)

    def visit_BufferRegion(self, node: BufferRegion) -> BufferRegion:
        return node

    def visit_Range(self, node: Range) -> Range:
        return node

    def visit_Block(self, node: Block) -> Block:
        init = None if node.init is None else self.visit(node.init)
        made: Block = node.replace(body=self.visit(node.body), init=init)
        # It reads the same elements as before, and the tables. What these hold shows in no index.
        loads = {
            item.buffer: item
            for root in (made.body, made.init)
            for item in (pre_order(root) if root is not None else ())
            if type(item) is BufferLoad
        }
        tables = tuple(
            element(load.buffer, load.indices) for _, load in self.table if load.buffer in loads
        )
        if not tables:
            return made
        return made.replace(
            reads=(*made.reads, *tables),
            annotations={**made.annotations, TRUSTED_REGIONS: True},
        )


__all__ = ["cache_index"]
