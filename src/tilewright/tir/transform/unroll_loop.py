"""Unroll loops.

Three kinds of loop are unrolled: those of kind ``unrolled``; short serial loops below a loop or
block annotation ``pragma_auto_unroll_max_step``; and loops that index a register tile. A register
tile is a small buffer of constant size: if all loops that index it can be unrolled, its elements
live in registers, which is what gives tiled kernels their speed. A loop with that annotation stays
if its copies would be more steps.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from tilewright.ir import (
    EQ,
    FALSE,
    GE,
    GT,
    INDEX,
    LE,
    LT,
    NE,
    TRUE,
    Add,
    And,
    Broadcast,
    Call,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Mul,
    Node,
    Ramp,
    Select,
    Sub,
    Var,
    add,
    and_,
    as_int,
    const,
    contains,
    dtypes,
    floordiv,
    floormod,
    is_const,
    mul,
    pre_order,
    sub,
)
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.rewrite import renew_definitions
from tilewright.tir.stmt import (
    AUTO_STEP,
    NO_OP,
    SERIAL,
    UNROLLED,
    Allocate,
    AttrStmt,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    Stmt,
    While,
    seq,
)
from tilewright.tir.transform.base import FunctionTransform, SeqMutator, StmtMutator, statements
from tilewright.tir.transform.effects import memory_read
from tilewright.tir.transform.fold_conditions import Bounds, decided

EXPLICIT = "pragma_unroll_explicit"


class UnrollLoop(FunctionTransform):
    """Unroll loops whose copies stay below ``max_steps`` statements in all.

    ``tile_bytes`` is the size up to which a buffer counts as a register tile, ``tile_steps`` the
    number of statements up to which loops over one are unrolled.
    """

    def __init__(
        self, max_steps: int = 2048, tile_bytes: int = 4096, tile_steps: int = 256
    ) -> None:
        self.max_steps = max_steps
        self.tile_bytes = tile_bytes
        self.tile_steps = tile_steps

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        marked = _TileLoops(self.tile_bytes, self.tile_steps).find(func.body)
        return func.map_children(_Unroller(self.max_steps, marked).visit)


_has_load = contains(BufferLoad)


class _TileLoops:
    """Finds the loops that must be unrolled for register tiles to be registers."""

    def __init__(self, tile_bytes: int, tile_steps: int) -> None:
        self.tile_bytes = tile_bytes
        self.tile_steps = tile_steps
        self.tiles: set[Any] = set()  # data variables
        self.gathered: set[Any] = set()  # those of tiles that are read or written with a stride
        self.loops: dict[Var, For] = {}
        self.parents: dict[For, list[For]] = {}
        self.of_tile: dict[Any, set[For]] = {}

    def find(self, body: Stmt) -> set[For]:
        for item in (body, *statements(body)):
            if isinstance(item, Allocate) and self._is_tile(item.buffer):
                self.tiles.add(item.buffer.data)
        if not self.tiles:
            return set()
        self._walk(body, [])
        steps: dict[For, int] = {}
        chosen: set[For] = set()
        for data, loops in self.of_tile.items():
            if data not in self.gathered and all(
                self._may_unroll(loop, loops, steps) for loop in loops
            ):
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

    def _walk(self, node: Any, path: list[For]) -> None:
        if isinstance(node, For):
            self.loops[node.loop_var] = node
            self.parents[node] = list(path)
            path.append(node)
            self._walk(node.body, path)
            path.pop()
            return
        if isinstance(node, (BufferLoad, BufferStore)) and node.buffer.data in self.tiles:
            found = self.of_tile.setdefault(node.buffer.data, set())
            for index in node.indices:
                if type(index) is Ramp and not is_const(index.stride, 1):
                    # Lanes from several registers would have to be put together one by one.
                    self.gathered.add(node.buffer.data)
                for item in pre_order(index):
                    if type(item) is Var and item in self.loops:
                        found.add(self.loops[item])
        for item in node.child_nodes():
            if isinstance(item, Stmt) or _has_load(item):
                self._walk(item, path)

    def _may_unroll(self, loop: For, loops: set[For], steps: dict[For, int]) -> bool:
        """Whether the copies made by unrolling ``loops`` stay few at this nest."""
        if loop.kind not in (SERIAL, UNROLLED) or as_int(loop.extent) is None:
            return False
        if as_int(loop.min) is None:
            return False
        most = min(self.tile_steps, _annotated_step(loop.annotations, self.tile_steps))
        total = count_steps(loop.body)
        for outer in (loop, *self.parents[loop]):
            if outer in loops:
                total *= as_int(outer.extent) or 1
        return total <= most


def count_steps(stmt: Any) -> int:
    """Stores and calls in a statement, loops that will stay counted once."""
    if isinstance(stmt, For):
        inner = count_steps(stmt.body)
        return inner * (as_int(stmt.extent) or 1) if stmt.kind == UNROLLED else inner
    if isinstance(stmt, (BufferStore, Evaluate)):
        return 1
    return sum(count_steps(item) for item in stmt.child_nodes() if isinstance(item, Stmt))


def _trip_steps(stmt: Any) -> int | None:
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
    def __init__(self, max_steps: int, marked: set[For]) -> None:
        self.max_steps = max_steps
        self.marked = marked
        self.auto_step = 0
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

    def visit_For(self, node: For) -> Any:
        self._note(node)
        before = self.auto_step
        self.auto_step = _annotated_step(node.annotations, before)
        if not self._wanted(node):
            made = self.generic_visit(node)
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
        if as_int(loop.extent) is None or memory_read(loop.min):
            return False
        return loop.kind == UNROLLED or loop in self.marked or self._automatic(loop)

    def _automatic(self, loop: For) -> bool:
        if not self.auto_step or loop.kind != SERIAL:
            return False
        steps = _trip_steps(loop)
        return steps is not None and steps <= self.auto_step


def _annotated_step(annotations: Mapping[str, Any], inherited: int) -> int:
    value = annotations.get(AUTO_STEP)
    if value is None:
        return inherited
    number = as_int(value)
    return inherited if number is None else number


_has_definition = contains(For, LetStmt, Allocate, DeclBuffer)


def unrolled(loops: Sequence[For], body: Stmt, ranges: Mapping[Var, Bounds] | None = None) -> Stmt:
    """Return the copies of the body of a nest of loops, one per iteration.

    ``ranges`` are those of loops around, which decide conditions.
    """
    copies: list[Stmt] = []
    renew = _has_definition(body)
    substituter = _FoldingSubstituter([loop.loop_var for loop in loops], body, ranges or {})
    turns = [
        [(number, loop.min + number) for number in range(as_int(loop.extent) or 0)]
        for loop in loops
    ]
    for turn in product(*turns):
        made = substituter.copy(body, *zip(*turn))
        copies.append(renew_definitions(made) if renew and copies else made)
    return seq(copies)


class _FoldingSubstituter(SeqMutator):
    """Puts values in place of variables and folds the constants that arise.

    A node is made once for all copies in which its own variables have the same values: in a tile of
    12 x 4 most expressions depend on the row or on the column. A sum of multiples of the variables
    and something else becomes that other thing, which all copies share, plus a number.
    """

    def __init__(self, variables: Sequence[Var], body: Stmt, ranges: Mapping[Var, Bounds]) -> None:
        self.variables = variables
        self.ranges = ranges
        self.values: dict[Var, Expr] = {}
        # For each node that uses variables, a bit for each of them.
        self._uses: dict[Node, int] = {}
        # What was made of nodes: by the variables that they use and their values, and those of the
        # copy at hand.
        self._made: dict[tuple[int, tuple[int, ...]], dict[Node, Any]] = {}
        self._present: dict[int, dict[Node, Any]] = {}
        self._note_uses(body, {var: 1 << place for place, var in enumerate(variables)}, set())
        self._masks = set(self._uses.values())
        self._numeric: dict[Var, int] = {}  # values that are numbers
        self._shared: dict[Node, tuple[Expr, dict[Var, int]] | None] = {}

    def _note_uses(self, node: Any, bits: Mapping[Node, int], free: set[Node]) -> int:
        """Fill the table of uses; ``free`` are nodes without any."""
        used = 0
        if type(node) is Var:
            used = bits.get(node, 0)
        else:
            known = self._uses
            for item in node.child_nodes():
                found = known.get(item)
                if found is not None:
                    used |= found
                elif item not in free:
                    used |= self._note_uses(item, bits, free)
        if used:
            self._uses[node] = used
        else:
            free.add(node)
        return used

    def copy(self, body: Stmt, numbers: Sequence[int], values: Sequence[Expr]) -> Any:
        """Return the copy of one iteration; ``numbers`` tells iterations apart."""
        self.values = dict(zip(self.variables, values))
        self._numeric = {
            var: value.value for var, value in self.values.items() if type(value) is IntImm
        }
        places = range(len(numbers))
        for bits in self._masks:
            key = bits, tuple([numbers[place] for place in places if bits >> place & 1])
            made = self._made.get(key)
            if made is None:
                made = self._made[key] = {}
            self._present[bits] = made
        return self.visit(body)

    def visit(self, node: Any) -> Any:
        """Rewrite a node, or take what was made of it before."""
        used = self._uses.get(node)
        if used is None:
            return node
        present = self._present[used]
        made = present.get(node)
        if made is None:
            made = present[node] = super().visit(node)
        return made

    def visit_BufferStore(self, node: BufferStore) -> Any:
        visit = self.visit
        return BufferStore(node.buffer, visit(node.value), tuple([visit(i) for i in node.indices]))

    def visit_BufferLoad(self, node: BufferLoad) -> Any:
        visit = self.visit
        return BufferLoad(node.buffer, tuple([visit(i) for i in node.indices]))

    def visit_Ramp(self, node: Ramp) -> Any:
        return Ramp(self.visit(node.base), self.visit(node.stride), node.lanes)

    def visit_Var(self, node: Var) -> Any:
        return self.values.get(node, node)

    def _sum(self, node: Any) -> Any:
        """An index that is a sum: what it is without the variables, plus a number."""
        if node.dtype != INDEX or len(self._numeric) < len(self.variables):
            return self.visit_BinaryExpr(node)
        found = self._apart(node)
        if found is None:
            return self.visit_BinaryExpr(node)
        rest: Any = found[0]
        factors = found[1]
        numeric = self._numeric
        number = sum([factor * numeric[var] for var, factor in factors.items()])
        if type(rest) is IntImm:
            return const(rest.value + number)
        if type(rest) is Add and type(rest.b) is IntImm:
            rest, number = rest.a, number + rest.b.value
        return Add(rest, const(number)) if number else rest

    visit_Add = visit_Sub = visit_Mul = _sum

    def _apart(self, node: Any) -> tuple[Expr, dict[Var, int]] | None:
        """An expression with zeros for the variables, and their factors, if it is linear in them.

        Constants come last in the sum.
        """
        if node not in self._uses:
            return node, {}
        if node in self._shared:
            return self._shared[node]
        made = None
        if type(node) is Var:
            made = const(0), {node: 1}
        elif type(node) in (Add, Sub, Mul):
            a, b = self._apart(node.a), self._apart(node.b)
            if a is not None and b is not None:
                made = _combined(type(node), a, b)
        self._shared[node] = made
        return made

    def visit_BinaryExpr(self, node: Any) -> Any:
        a, b = self.visit(node.a), self.visit(node.b)
        if a is node.a and b is node.b:
            return node
        build = _FOLD.get(type(node)) if a.dtype == b.dtype else None
        if is_const(b, 0) and type(node) in (FloorDiv, FloorMod):
            build = None  # stands where it is never evaluated
        return type(node)(a, b) if build is None else build(a, b)

    def visit_CompareExpr(self, node: Any) -> Any:
        a, b = self.visit(node.a), self.visit(node.b)
        if a is node.a and b is node.b:
            return node
        if type(a) is IntImm and type(b) is IntImm and type(node) in _COMPARE:
            return TRUE if _COMPARE[type(node)](a.value, b.value) else FALSE
        made = type(node)(a, b)
        known = decided(made, self.ranges)
        if known is not None:
            return known
        if type(node) is And:
            if a.dtype == "bool":
                return and_(a, b)
            for first, second in ((a, b), (b, a)):
                value = _known_lanes(first)
                if value is not None:
                    return second if value else first
        return made

    def visit_Call(self, node: Call) -> Any:
        made = self.generic_visit(node)
        if made.op.name == "if_then_else":
            known = _known_lanes(made.args[0])
            if known is not None:
                return made.args[1] if known else made.args[2]
        return made

    def visit_Select(self, node: Select) -> Any:
        condition = self.visit(node.condition)
        if isinstance(condition, IntImm):
            return self.visit(node.true_value if condition.value else node.false_value)
        return self.generic_visit(node)

    def visit_IfThenElse(self, node: IfThenElse) -> Any:
        condition = self.visit(node.condition)
        if not isinstance(condition, IntImm):
            return self.generic_visit(node)
        if condition.value:
            return self.visit(node.then_case)
        return NO_OP if node.else_case is None else self.visit(node.else_case)


def _combined(
    kind: Any, a: tuple[Expr, dict[Var, int]], b: tuple[Expr, dict[Var, int]]
) -> tuple[Expr, dict[Var, int]] | None:
    """Sum, difference or product of two linear expressions, each as its rest and its factors."""
    if kind is Mul:
        if b[1] or type(b[0]) is not IntImm:
            a, b = b, a
        by = b[0]
        if b[1] or type(by) is not IntImm:
            return None
        rest, number = _without_constant(a[0])
        made = rest * by + number * by.value
        return made, {var: factor * by.value for var, factor in a[1].items()}
    sign = 1 if kind is Add else -1
    (first, x), (second, y) = _without_constant(a[0]), _without_constant(b[0])
    factors = dict(a[1])
    for var, factor in b[1].items():
        factors[var] = factors.get(var, 0) + sign * factor
    return (first + second if sign > 0 else first - second) + (x + sign * y), factors


def _without_constant(expr: Any) -> tuple[Expr, int]:
    """Split a sum's last constant off."""
    if type(expr) is IntImm:
        return const(0), expr.value
    if type(expr) is Add and type(expr.b) is IntImm:
        return expr.a, expr.b.value
    return expr, 0


def _known_lanes(condition: Expr) -> int | None:
    """The value of a condition that is the same constant in all lanes."""
    value = condition.value if isinstance(condition, Broadcast) else condition
    return value.value if isinstance(value, IntImm) else None


_COMPARE: dict[Any, Any] = {
    LT: operator.lt,
    LE: operator.le,
    GT: operator.gt,
    GE: operator.ge,
    EQ: operator.eq,
    NE: operator.ne,
}
_FOLD: dict[Any, Any] = {Add: add, Sub: sub, Mul: mul, FloorDiv: floordiv, FloorMod: floormod}
