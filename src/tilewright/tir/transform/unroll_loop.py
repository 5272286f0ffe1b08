"""Unroll loops.

Three kinds of loop are unrolled: those of kind ``unrolled``; short serial loops below a loop or
block annotation ``pragma_auto_unroll_max_step``; and loops that index a register tile. A register
tile is a small buffer of constant size: if all loops that index it can be unrolled, its elements
live in registers, which is what gives tiled kernels their speed. A loop with that annotation stays
if its copies would be more steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.ir import (
    IntImm,
    Ramp,
    Var,
    as_int,
    contains,
    dtypes,
    is_const,
    pass_option,
    pre_order,
)
from tilewright.tir.attrs import AUTO_STEP
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import (
    SERIAL,
    UNROLLED,
    Allocate,
    AttrStmt,
    BufferStore,
    Evaluate,
    For,
    Stmt,
    While,
)
from tilewright.tir.transform.base import FunctionTransform, StmtMutator
from tilewright.tir.transform.effects import memory_read
from tilewright.tir.transform.fold_conditions import Bounds
from tilewright.tir.transform.iteration_copies import unrolled


@dataclass(frozen=True)
class UnrollLoopConfig:
    """The pass option ``tir.UnrollLoop``: which loops that nothing marks are unrolled, and how.

    Serial loops are if they run at most ``auto_max_step`` statements (an annotation
    ``pragma_auto_unroll_max_step`` says otherwise), or have at most ``auto_max_extent`` iterations,
    and at most ``auto_max_depth`` loops are nested in them. Without ``explicit_unroll`` they are
    marked as unrolled, for the compiler of the generated code, and copied only as register tiles
    need it, which ``unroll_local_access`` turns on.
    """

    auto_max_step: int = 0
    auto_max_depth: int = 8
    auto_max_extent: int = 0
    explicit_unroll: bool = True
    unroll_local_access: bool = True


_OPTION = pass_option(
    "tir.UnrollLoop",
    UnrollLoopConfig,
    UnrollLoopConfig(),
    "Which loops `UnrollLoop` unrolls that nothing marks, and how.",
)


class UnrollLoop(FunctionTransform):
    """Unroll loops whose copies stay below ``max_steps`` statements in all.

    ``tile_bytes`` is the size up to which a buffer counts as a register tile, ``tile_steps`` the
    number of statements up to which loops over one are unrolled. The pass option
    ``tir.UnrollLoop``, an ``UnrollLoopConfig``, says more.
    """

    def __init__(
        self, max_steps: int = 2048, tile_bytes: int = 4096, tile_steps: int = 256
    ) -> None:
        self.max_steps = max_steps
        self.tile_bytes = tile_bytes
        self.tile_steps = tile_steps

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        option = _OPTION.value()
        tile_bytes = self.tile_bytes if option.unroll_local_access else -1
        marked = _TileLoops(tile_bytes, self.tile_steps).find(func.body)
        return func.map_children(_Unroller(self.max_steps, marked, option).visit)


_has_load = contains(BufferLoad)


class _TileLoops:
    """Finds the loops that must be unrolled for register tiles to be registers."""

    def __init__(self, tile_bytes: int, tile_steps: int) -> None:
        self.tile_bytes = tile_bytes
        self.tile_steps = tile_steps
        self.tiles: set[Any] = set()  # data variables
        self.gathered: set[object] = set()  # those of tiles that are read or written with a stride
        self.loops: dict[Var, For] = {}
        self.parents: dict[For, tuple[For, ...]] = {}
        self.steps: dict[For, int] = {}  # of a loop's body, as ``count_steps`` says
        self.of_tile: dict[Any, set[For]] = {}

    def find(self, body: Stmt) -> set[For]:
        self._walk(body, ())
        chosen: set[For] = set()
        for data, loops in self.of_tile.items():
            if data not in self.gathered and all(self._may_unroll(loop, loops) for loop in loops):
                chosen |= loops
        return chosen

    def _is_tile(self, buffer: Buffer) -> bool:
        size = dtypes.bytes_of(buffer.dtype)
        for extent in buffer.shape:
            if not isinstance(extent, IntImm):
                return False
            size *= extent.value
        # What wasn't put into registers on purpose, such as a row between two stages, belongs
        # there only if it leaves room for others.
        return size <= self.tile_bytes // (1 if buffer.scope == "local" else 4)

    def _walk(self, node: Any, path: tuple[For, ...]) -> int:
        """Note what is below a node inside the loops ``path``; return its number of steps."""
        kind = type(node)
        if kind is For:
            self.loops[node.loop_var] = node
            self.parents[node] = path
            steps = self.steps[node] = self._walk(node.body, (*path, node))
            return _copied_steps(node, steps)
        if kind is BufferLoad or kind is BufferStore:
            if node.buffer.data in self.tiles:
                self._note(node)
        elif kind is Allocate and self._is_tile(node.buffer):
            self.tiles.add(node.buffer.data)
        steps = 0
        for item in node.child_nodes():
            if isinstance(item, Stmt) or (self.tiles and _has_load(item)):
                steps += self._walk(item, path)
        return 1 if kind is BufferStore or kind is Evaluate else steps

    def _note(self, access: BufferLoad | BufferStore) -> None:
        """Note the loops that a tile is indexed by."""
        data = access.buffer.data
        found = self.of_tile.setdefault(data, set())
        for index in access.indices:
            if type(index) is Ramp and not is_const(index.stride, 1):
                # Lanes from several registers would have to be put together one by one.
                self.gathered.add(data)
            for item in pre_order(index):
                if type(item) is Var and item in self.loops:
                    found.add(self.loops[item])

    def _may_unroll(self, loop: For, loops: set[For]) -> bool:
        """Whether the copies made by unrolling ``loops`` stay few at this nest."""
        if loop.kind not in (SERIAL, UNROLLED) or as_int(loop.extent) is None:
            return False
        if as_int(loop.min) is None:
            return False
        most = min(self.tile_steps, _annotated_step(loop.annotations, self.tile_steps))
        total = self.steps[loop]
        for outer in (loop, *self.parents[loop]):
            if outer in loops:
                total *= as_int(outer.extent) or 1
        return total <= most


def count_steps(stmt: Stmt) -> int:
    """Stores and calls in a statement, loops that will stay counted once."""
    if isinstance(stmt, For):
        return _copied_steps(stmt, count_steps(stmt.body))
    if isinstance(stmt, (BufferStore, Evaluate)):
        return 1
    return sum(count_steps(item) for item in stmt.child_nodes() if isinstance(item, Stmt))


def _copied_steps(loop: For, steps: int) -> int:
    return steps * (as_int(loop.extent) or 1) if loop.kind == UNROLLED else steps


def _trip_steps(stmt: Stmt) -> int | None:
    """Statements executed, or ``None`` if that isn't constant."""
    if isinstance(stmt, For):
        extent, inner = as_int(stmt.extent), _trip_steps(stmt.body)
        return None if extent is None or inner is None else extent * inner
    if isinstance(stmt, (BufferStore, Evaluate)):
        return 1
    if isinstance(stmt, While):
        return None
    total = 0
    for item in stmt.child_nodes():
        if isinstance(item, Stmt):
            steps = _trip_steps(item)
            if steps is None:
                return None
            total += steps
    return total


class _Unroller(StmtMutator):
    def __init__(self, max_steps: int, marked: set[For], option: UnrollLoopConfig) -> None:
        self.max_steps = max_steps
        self.marked = marked
        self.option = option
        self.auto_step = option.auto_max_step
        self.ranges: dict[Var, Bounds] = {}  # of the loops around

    def visit_BufferStore(self, node: BufferStore) -> BufferStore:
        return node

    def visit_AttrStmt(self, node: AttrStmt) -> Any:
        if node.key != AUTO_STEP:
            return self.generic_visit(node)
        before, self.auto_step = self.auto_step, as_int(node.value) or 0
        body = self.visit(node.body)
        self.auto_step = before
        return body

    def visit_For(self, node: For) -> Stmt:
        self._note(node)
        before = self.auto_step
        self.auto_step = _annotated_step(node.annotations, before)
        if not self._wanted(node):
            made: Stmt = self.generic_visit(node)
            if not self.option.explicit_unroll and self._automatic(node):
                assert isinstance(made, For)
                made = made.replace(kind=UNROLLED)
            self.auto_step = before
            return made
        # Directly nested loops are unrolled at once: copies of copies would cost time.
        chain = [node]
        while type(chain[-1].body) is For and isinstance(chain[-1].body.min, IntImm):
            inner: For = chain[-1].body
            self._note(inner)
            outside = self.auto_step
            self.auto_step = _annotated_step(inner.annotations, outside)
            if not self._wanted(inner):
                self.auto_step = outside
                break
            chain.append(inner)
        made = self.visit(chain[-1].body)
        self.auto_step = before
        steps, first = count_steps(made), len(chain)
        while first and steps * (as_int(chain[first - 1].extent) or 0) <= self.max_steps:
            first -= 1
            steps *= as_int(chain[first].extent) or 0
        if first < len(chain):
            made = unrolled(chain[first:], made, self.ranges)
        for loop in reversed(chain[:first]):
            kind = SERIAL if loop.kind == UNROLLED else loop.kind
            made = loop.replace(body=made, kind=kind)
        return made

    def _note(self, loop: For) -> None:
        """Remember the range of a loop whose body is about to be visited."""
        low, extent = as_int(loop.min), as_int(loop.extent)
        if low is not None and extent is not None and extent > 0:
            self.ranges[loop.loop_var] = low, low + extent - 1

    def _wanted(self, loop: For) -> bool:
        # A start that is read from memory may have changed by the second copy.
        return (
            as_int(loop.extent) is not None
            and (loop in self.marked or self._copied(loop))
            and not memory_read(loop.min)
        )

    def _copied(self, loop: For) -> bool:
        """Whether a loop that isn't a tile's is to be unrolled here, not by a compiler later."""
        return self.option.explicit_unroll and (loop.kind == UNROLLED or self._automatic(loop))

    def _automatic(self, loop: For) -> bool:
        """Whether a serial loop is unrolled without being marked."""
        option = self.option
        if loop.kind != SERIAL or not (self.auto_step or option.auto_max_extent):
            return False
        if _depth(loop.body) > option.auto_max_depth:
            return False
        steps = _trip_steps(loop)
        if steps is None:
            return False
        return steps <= self.auto_step or 0 < (as_int(loop.extent) or 0) <= option.auto_max_extent


def _depth(stmt: Stmt) -> int:
    """The most loops that are nested in a statement."""
    inner = (_depth(item) for item in stmt.child_nodes() if isinstance(item, Stmt))
    return max(inner, default=0) + (type(stmt) is For)


def _annotated_step(annotations: Mapping[str, object], inherited: int) -> int:
    value = annotations.get(AUTO_STEP)
    if value is None:
        return inherited
    number = as_int(value)
    return inherited if number is None else number
