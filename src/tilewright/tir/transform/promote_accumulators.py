"""Keep what a loop accumulates in registers instead of memory.

A reduction loop such as ``for k: C[i, j] = C[i, j] + ...`` reads and writes the same elements in
each iteration. If all accesses of a buffer inside a loop are at places that don't depend on
it, they are copied to a small local buffer before the loop and back after it. LLVM turns the local
buffer into registers. Runs after unrolling, so that whole tiles can be promoted.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir import (
    Call,
    Expr,
    IntImm,
    Mutator,
    Ramp,
    Var,
    as_int,
    const,
    dtypes,
    pre_order,
)
from tilewright.tir.buffer import Buffer, BufferLoad, decl_buffer
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import (
    SERIAL,
    Allocate,
    BufferStore,
    Evaluate,
    For,
    LetStmt,
    SeqStmt,
    Stmt,
    seq,
)
from tilewright.tir.transform.base import FunctionTransform, StmtMutator

#: Larger tiles would be spilt to memory anyway.
MAX_BYTES = 4096


class PromoteAccumulators(FunctionTransform):
    """Move elements that a serial loop updates in place into local buffers around it."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        stores = _Stores()
        stores.walk(func.body, 0, {})
        if not any(stores.candidates.values()):
            return func
        return func.map_children(_Promoter(stores).visit)


_NO_VARIABLES: frozenset[object] = frozenset()


class _Stores:
    """Finds the memory whose elements each loop may keep, by its data variables.

    It is stored to inside, at places that don't depend on that loop or on those inside.
    """

    def __init__(self) -> None:
        self.tiles: set[Var] = set()  # small buffers: registers already if indexed by constants
        self.candidates: dict[For, set[Var]] = {}
        self._levels: dict[Var, int] = {}  # of loop variables

    def walk(self, stmt: Stmt, level: int, depends: dict[Var, int]) -> None:
        """Go through a statement; ``depends`` collects on which level's loops places depend."""
        if isinstance(stmt, BufferStore):
            data = stmt.buffer.data
            depends[data] = max(depends.get(data, 0), self._level(stmt, level))
            return
        if isinstance(stmt, For):
            self._levels[stmt.loop_var] = level + 1
            below: dict[Var, int] = {}
            self.walk(stmt.body, level + 1, below)
            self.candidates[stmt] = {data for data, most in below.items() if most <= level}
            for data, most in below.items():
                depends[data] = max(depends.get(data, 0), most)
            return
        if isinstance(stmt, Allocate):
            depends[stmt.buffer.data] = level  # another one in each iteration
            if all(isinstance(extent, IntImm) for extent in stmt.buffer.shape):
                self.tiles.add(stmt.buffer.data)
        for item in stmt.child_nodes():
            if isinstance(item, Stmt):
                self.walk(item, level, depends)

    def _level(self, store: BufferStore, level: int) -> int:
        """The innermost level, at most ``level``, with which the place of a store may change."""
        index = store.indices[0]
        base = index.base if type(index) is Ramp else index
        if type(base) is IntImm:
            return level if store.buffer.data in self.tiles else 0
        levels = self._levels
        return max(
            [levels.get(item, 0) for item in pre_order(index) if type(item) is Var], default=0
        )


class _Access:
    """Accesses of one buffer inside a loop."""

    __slots__ = ("buffer", "indices", "ok", "read", "stored")

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.indices: dict[Any, Expr] = {}
        self.ok = True
        self.read = False
        self.stored = False

    def stays(self, inside: Collection[Var]) -> bool:
        """Whether it is at the same places throughout: of data that is there, at no loaded index.

        ``inside`` are the variables that the loop and what is in it define.
        """
        return self.buffer.data not in inside and not any(
            type(item) is BufferLoad or (type(item) is Var and item in inside)
            for index in self.indices.values()
            for item in pre_order(index)
        )


class _Promoter(StmtMutator):
    def __init__(self, stores: _Stores) -> None:
        self.analyzer = Analyzer()
        self.tiles = stores.tiles
        self.candidates = stores.candidates

    def visit_BufferStore(self, node: BufferStore) -> BufferStore:
        return node

    def visit_For(self, node: For) -> Stmt:
        if node.kind != SERIAL or (as_int(node.extent) or 0) < 2:
            return self.generic_visit(node)
        slots = self._slots(node)
        if not slots:
            return self.generic_visit(node)
        before: list[Stmt] = []
        after: list[Stmt] = []
        locals_: list[Buffer] = []
        replaced: dict[tuple[Any, Any], tuple[Buffer, Expr]] = {}
        for access, places in slots:
            size = sum(dtypes.lanes_of(index.dtype) for _, index in places)
            local = decl_buffer(
                (size,), access.buffer.dtype, f"{access.buffer.name}_acc", scope="local"
            )
            locals_.append(local)
            offset = 0
            for key, index in places:
                lanes = dtypes.lanes_of(index.dtype)
                place: Expr = const(offset)
                if lanes > 1:
                    place = Ramp(place, const(1), lanes)
                offset += lanes
                replaced[access.buffer.data, key] = (local, place)
                if access.read:
                    before.append(BufferStore(local, BufferLoad(access.buffer, (index,)), (place,)))
                after.append(BufferStore(access.buffer, BufferLoad(local, (place,)), (index,)))
        body = _Redirect(replaced, self.key).visit(node.body)
        made = seq(*before, node.replace(body=body), *after)
        for local in reversed(locals_):
            made = Allocate(local, made)
        return made

    def key(self, index: Expr) -> Any:
        """What tells places apart: the polynomial's variable part, its constant, and the lanes."""
        base = index.base if isinstance(index, Ramp) else index
        if type(base) is IntImm:
            return _NO_VARIABLES, base.value, dtypes.lanes_of(index.dtype)
        poly = dict(self.analyzer.poly(base))
        start = poly.pop((), 0)
        return frozenset(poly.items()), start, dtypes.lanes_of(index.dtype)

    def _slots(self, loop: For) -> list[tuple[_Access, list[tuple[Any, Expr]]]]:
        """Buffers whose elements may live in registers during ``loop``, with the places."""
        found = self._accesses(loop)
        if found is None:
            return []
        made = []
        for access in found.values():
            if not (access.ok and access.stored):
                continue
            places = list(access.indices.items())
            size = sum(key[2] for key, _ in places) * dtypes.bytes_of(access.buffer.dtype)
            if size > MAX_BYTES or any(key[0] != places[0][0][0] for key, _ in places):
                continue
            if not places[0][0][0] and access.buffer.data in self.tiles:
                continue
            places.sort(key=lambda item: item[0][1])
            starts = [(key[1], key[2]) for key, _ in places]
            if all(a + n <= b for (a, n), (b, _) in pairwise(starts)):
                made.append((access, places))
        return made

    def _accesses(self, loop: For) -> dict[Var, _Access] | None:
        """All accesses below a loop by data variable; ``None`` if something unknown runs there."""
        stored = self.candidates[loop]
        if not stored:
            return None
        found: dict[Var, _Access] = {}
        inside: set[Var] = {loop.loop_var}
        stack: list[tuple[Any, bool]] = [(loop.body, True)]
        while stack:
            node, sure = stack.pop()
            kind = type(node)
            if kind is For:
                inside.add(node.loop_var)
                # What only some iterations reach must not be touched before the loop.
                if node.kind != SERIAL:
                    return None
                sure = sure and (as_int(node.extent) or 0) >= 1
            elif kind is BufferStore or kind is BufferLoad:
                if node.buffer.data in stored:
                    self._note(found, node, sure)
            elif kind is Call:
                if node.op.effect in ("update", "opaque") and node.op.name != "prefetch":
                    return None
                if node.op.name in ("address_of", "access_ptr"):
                    return None
                sure = sure and node.op.name != "if_then_else"
            elif kind not in (SeqStmt, Evaluate) and isinstance(node, Stmt):
                if isinstance(node, LetStmt):
                    inside.add(node.var)
                elif isinstance(node, Allocate):
                    inside.add(node.buffer.data)
                else:
                    sure = False
            stack.extend((item, sure) for item in node.child_nodes() if type(item) is not Buffer)
        for access in found.values():
            access.ok = access.ok and access.stays(inside)
        return found

    def _note(self, found: dict[Var, _Access], node: Any, sure: bool) -> None:
        access = found.get(node.buffer.data)
        if access is None:
            access = found[node.buffer.data] = _Access(node.buffer)
        if type(node) is BufferStore:
            access.stored = True
        else:
            access.read = True
        if not access.ok:
            return
        index = node.indices[0]
        if dtypes.is_scalable(index.dtype):
            access.ok = False  # no local buffer has the size
            return
        contiguous = dtypes.lanes_of(index.dtype) == 1 or (
            isinstance(index, Ramp) and isinstance(index.stride, IntImm) and index.stride.value == 1
        )
        if not sure or not contiguous or node.buffer.dtype != access.buffer.dtype:
            access.ok = False
            return
        access.indices.setdefault(self.key(index), index)


class _Redirect(Mutator):
    """Sends accesses to the local buffers."""

    def __init__(self, places: dict[tuple[Any, Any], tuple[Buffer, Expr]], key: Any) -> None:
        self.places = places
        self.key = key
        self.data = {data for data, _ in places}

    def visit_BufferLoad(self, node: BufferLoad) -> BufferLoad:
        if node.buffer.data not in self.data:
            return self.generic_visit(node)
        local, place = self.places[node.buffer.data, self.key(node.indices[0])]
        return BufferLoad(local, (place,))

    def visit_BufferStore(self, node: BufferStore) -> BufferStore:
        made = self.generic_visit(node)
        if node.buffer.data not in self.data:
            return made
        local, place = self.places[node.buffer.data, self.key(node.indices[0])]
        return BufferStore(local, made.value, (place,))
