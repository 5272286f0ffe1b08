"""How much code a scheduled function becomes, estimated before it is lowered.

Counted are vector instructions: operations on data and accesses to memory, a vector of several
registers once for each, and lanes that don't lie side by side one by one. Loops count once, unless
they are going to be unrolled: those of kind ``unrolled``, and those inside the nest that a register
tile (a buffer of scope ``local``) belongs to, as long as their copies stay few. What indices cost,
guards and what later passes simplify is not known here, so the number is good for telling code of
ten thousand lines from code of a thousand, not for more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tilewright.ir import (
    Call,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    IRModule,
    Select,
    Var,
    as_int,
    collect,
    dtypes,
    least_lanes,
    pre_order,
)
from tilewright.tir.analysis.block_kind import linear_terms
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import (
    UNROLLED,
    VECTORIZED,
    BlockRealize,
    BufferStore,
    Evaluate,
    For,
    Stmt,
)

_TILE_BYTES = 4096
"""Size up to which a local buffer is a register tile, others up to a fourth."""
_TILE_STEPS = 256
"""Copies up to which lowering unrolls loops over a register tile (``transform.UnrollLoop``)."""
_MOST_COPIES = 2048
"""Copies up to which it unrolls loops that a schedule marks."""
_GATHERED = 2
"""Instructions for each lane that is loaded or stored by itself."""

Loops = tuple[For, ...]
Terms = Mapping[Var, int] | None
"""An index as coefficients of loop variables, ``None`` if it isn't a sum of multiples."""


class _Leaf(NamedTuple):
    """A store or call with the loops around it, and what block variables stand for."""

    node: Any
    loops: Loops
    values: Mapping[Var, Terms]


def estimate_code_size(target: IRModule | PrimFunc, vector_bits: int = 256) -> int:
    """Return about how many vector instructions a function becomes (a module: all of its own)."""
    if isinstance(target, IRModule):
        funcs = [func for func in target.functions.values() if isinstance(func, PrimFunc)]
        return sum(estimate_code_size(func, vector_bits) for func in funcs)
    leaves: list[_Leaf] = []
    _collect(target.body, (), {}, leaves)
    tiles = _tile_loops(leaves)
    return sum(_Counter(leaf, tiles, vector_bits).statement(leaf.node) for leaf in leaves)


def _collect(stmt: Stmt, loops: Loops, values: Mapping[Var, Terms], found: list[_Leaf]) -> None:
    if isinstance(stmt, (BufferStore, Evaluate)):
        found.append(_Leaf(stmt, loops, values))
    elif isinstance(stmt, For):
        _collect(stmt.body, (*loops, stmt), values, found)
    elif isinstance(stmt, BlockRealize):
        block = stmt.block
        known = dict(values)
        for iter_var, value in zip(block.iter_vars, stmt.iter_values):
            known[iter_var.var] = _terms(value, values)
        if block.init is not None:
            _collect(block.init, loops, known, found)
        _collect(block.body, loops, known, found)
    else:
        for item in stmt.child_nodes():
            if isinstance(item, Stmt):
                _collect(item, loops, values, found)


def _terms(expr: Any, values: Mapping[Var, Terms]) -> Terms:
    """An index in terms of loop variables; parts of a panel's width lie side by side."""
    if type(expr) is FloorMod and type(expr.b) is IntImm:
        return _terms(expr.a, values)
    if type(expr) is FloorDiv and type(expr.b) is IntImm:
        inner = _terms(expr.a, values)
        if inner is None:
            return None
        width = expr.b.value
        return {loop: factor // width for loop, factor in inner.items() if factor >= width}
    found = linear_terms(expr)
    if found is None:
        return None
    made: dict[Var, int] = {}
    for var, factor in found[0].items():
        known = values.get(var, {var: 1})
        if known is None:
            return None
        for loop, times in known.items():
            made[loop] = made.get(loop, 0) + factor * times
    return made


def _variables(expr: Expr, values: Mapping[Var, Terms]) -> set[Var]:
    """Loop variables that an index or a condition depends on."""
    used: set[Var] = set()
    for item in pre_order(expr):
        if type(item) is Var:
            used.update(values.get(item) or {item: 1})
    return used


# ---- what is unrolled -----------------------------------------------------------------------


def _tile_loops(leaves: Sequence[_Leaf]) -> set[For]:
    """Loops that lowering unrolls to keep register tiles in registers."""
    uses: dict[Buffer, list[tuple[_Leaf, set[For]]]] = {}
    for leaf in leaves:
        if isinstance(leaf.node, BufferStore):
            accesses: list[BufferStore | BufferLoad] = [leaf.node, *_loads(leaf.node.value)]
            for access in accesses:
                used: set[Var] = set()
                for index in access.indices:
                    used |= _variables(index, leaf.values)
                indexing = {loop for loop in leaf.loops if loop.loop_var in used}
                uses.setdefault(access.buffer, []).append((leaf, indexing))
    chosen: set[For] = set()
    for buffer, found in uses.items():
        shared = set(found[0][0].loops).intersection(*[leaf.loops for leaf, _ in found])
        tile = [loops - shared for _, loops in found]
        limit = _TILE_BYTES // (1 if buffer.scope == "local" else 4)
        size = max(map(_copies, tile)) * dtypes.bytes_of(buffer.dtype)
        unrolled = [{loop for loop in loops if loop.kind != VECTORIZED} for loops in tile]
        steps = [_steps(leaf, loops) for (leaf, _), loops in zip(found, unrolled)]
        if size <= limit and max(steps) <= _TILE_STEPS:
            chosen.update(*unrolled)
    return chosen


def _steps(leaf: _Leaf, tile: set[For]) -> int:
    """Copies of a statement inside a tile's loops, those that are unrolled anyway included."""
    first = next((place for place, loop in enumerate(leaf.loops) if loop in tile), 0)
    return _copies({x for x in leaf.loops[first:] if x in tile or x.kind == UNROLLED})


def _loads(expr: Expr) -> list[BufferLoad]:
    return collect(expr, BufferLoad)


def _copies(loops: set[For]) -> int:
    total = 1
    for loop in loops:
        total *= as_int(loop.extent) or 1
    return total


# ---- what is counted ------------------------------------------------------------------------


class _Counter:
    """Counts the instructions of all copies of one statement."""

    def __init__(self, leaf: _Leaf, tiles: set[For], vector_bits: int) -> None:
        self.values = leaf.values
        self.vector_bits = vector_bits
        self.copies, self.lanes = 1, 1
        self.vector: Var | None = None
        self.known: set[Var] = set()  # loop variables that are numbers in each copy
        for loop in reversed(leaf.loops):
            extent = as_int(loop.extent) or 1
            if loop.kind == VECTORIZED:
                self.lanes, self.vector = extent, loop.loop_var
            elif extent == 1 or self._is_unrolled(loop, extent, tiles):
                self.copies *= extent
                self.known.add(loop.loop_var)

    def _is_unrolled(self, loop: For, extent: int, tiles: set[For]) -> bool:
        marked = loop.kind == UNROLLED or loop in tiles
        return marked and self.copies * extent <= _MOST_COPIES

    def statement(self, node: BufferStore) -> int:
        size = self.expr(node.value)
        if isinstance(node, BufferStore):
            size += self.access(node)
        return self.copies * size

    def expr(self, node: Expr) -> int:
        if isinstance(node, BufferLoad):
            return self.access(node)
        parts = [self.expr(item) for item in node.child_nodes() if isinstance(item, Expr)]
        if not parts:
            return 0
        condition = _condition(node)
        if condition is not None and _variables(condition, self.values) <= self.known:
            return max(parts[1:])
        return sum(parts) + self.registers(node.dtype)

    def registers(self, dtype: str) -> int:
        bits = dtypes.bits_of(dtype) * least_lanes(dtypes.lanes_of(dtype)) * self.lanes
        return -(-bits // self.vector_bits)

    def access(self, node: BufferLoad | BufferStore) -> int:
        """Instructions that move the lanes of one access."""
        steps = [self.step(index) for index in node.indices] if self.lanes > 1 else []
        if not any(steps):
            return 1
        if any(steps[:-1]) or steps[-1] != 1:
            return _GATHERED * self.lanes
        return self.registers(node.buffer.dtype)

    def step(self, index: Expr) -> int:
        """By how much the vector loop moves an index; 2 stands for what isn't known."""
        terms = _terms(index, self.values)
        if terms is None:
            return 2 if self.vector in _variables(index, self.values) else 0
        return 0 if self.vector is None else terms.get(self.vector, 0)


def _condition(node: Expr) -> Expr | None:
    """The condition of an expression that chooses between two others."""
    if isinstance(node, Select):
        return node.condition
    if isinstance(node, Call) and node.op.name == "if_then_else":
        return node.args[0]
    return None
