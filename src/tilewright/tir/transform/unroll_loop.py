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
from dataclasses import dataclass
from itertools import product
from typing import Any

from tilewright.ir import (
    DEFINITIONS,
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
    BinaryExpr,
    Broadcast,
    Call,
    CompareExpr,
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
    defined_symbols,
    dtypes,
    floordiv,
    floormod,
    is_const,
    mul,
    pass_option,
    pre_order,
    sub,
)
from tilewright.tir.attrs import AUTO_STEP
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.rewrite import Renewer
from tilewright.tir.stmt import (
    NO_OP,
    SERIAL,
    UNROLLED,
    Allocate,
    AttrStmt,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    Stmt,
    While,
    seq,
)
from tilewright.tir.transform.base import FunctionTransform, SeqMutator, StmtMutator
from tilewright.tir.transform.effects import memory_read
from tilewright.tir.transform.fold_conditions import Bounds, decided


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


_has_definitions = contains(DEFINITIONS)


def unrolled(loops: Sequence[For], body: Stmt, ranges: Mapping[Var, Bounds] | None = None) -> Stmt:
    """Return the copies of the body of a nest of loops, one per iteration.

    ``ranges`` are those of loops around, which decide conditions.
    """
    copier = _Copier([loop.loop_var for loop in loops], body, ranges or {})
    turns = product(*[enumerate(_turns(loop)) for loop in loops])
    return seq([copier.copy(*zip(*turn)) for turn in turns])


def _turns(loop: For) -> list[Expr]:
    """The values of the variable of a loop of constant length."""
    start, extent = as_int(loop.min), as_int(loop.extent) or 0
    if start is None:
        return [loop.min + number for number in range(extent)]
    return list(map(const, range(start, start + extent)))


#: An index that is linear in some variables: what doesn't depend on them (zero, or without a number
#: at its end), a number, and the factors of the variables.
_Linear = tuple[Expr, int, dict[Var, int]]
_ZERO = const(0)


class _Copier(SeqMutator, Renewer):
    """Puts values in place of variables and folds the constants that arise.

    Each copy but the first has definitions of its own. A node is made once for all copies in which
    its own variables have the same values: in a tile of 12 x 4 most expressions depend on the row
    or on the column. A sum of multiples of the variables and something else becomes that other
    thing, which all copies share, plus a number.
    """

    def __init__(self, variables: Sequence[Var], body: Stmt, ranges: Mapping[Var, Bounds]) -> None:
        super().__init__({}, body)
        self.variables = variables
        self.ranges = dict(ranges)
        self._copies = 0
        # For each node that uses variables, a bit for each of them; one more if it depends on what
        # the body defines, or defines it.
        self._uses: dict[Node, int] = {}
        self._free: set[Node] = set()  # nodes without any
        # What was made of nodes: by the variables that they use and their values, and those of the
        # copy at hand.
        self._made: dict[tuple[int, tuple[int, ...]], dict[Node, Any]] = {}
        self._present: dict[int, dict[Node, Any]] = {}
        self._bits: dict[object, int] = {var: 1 << place for place, var in enumerate(variables)}
        self._own = 1 << len(variables)
        if _has_definitions(body):
            self._note_definitions(body)
        self._note_uses(body)
        # The bits of each set of variables, and their places.
        self._masks = [
            (bits, [place for place in range(len(variables) + 1) if bits >> place & 1])
            for bits in {*self._bits.values(), *self._uses.values()}
        ]
        self._numeric: dict[Var, int] = {}  # values, if all of them are numbers
        self._shared: dict[Node, _Linear | None] = {}

    def _note_definitions(self, body: Stmt) -> None:
        for item in pre_order(body, _has_definitions):
            for symbol in () if isinstance(item, Buffer) else defined_symbols(item):
                self._bits[symbol] = self._bits[item] = self._own
                if isinstance(symbol, Buffer):
                    self._bits[symbol.data] = self._own

    def _note_uses(self, node: Node) -> int:
        """Fill the table of uses."""
        known, free = self._uses, self._free
        used = self._bits.get(node, 0)
        for item in node.child_nodes():
            found = known.get(item)
            if found is not None:
                used |= found
            elif item not in free:
                used |= self._note_uses(item)
        if used:
            known[node] = used
        else:
            free.add(node)
        return used

    def copy(self, numbers: Sequence[int], values: Sequence[Expr]) -> Any:
        """Return the copy of one iteration; ``numbers`` tells iterations apart."""
        numeric = [value.value for value in values if isinstance(value, IntImm)]
        whole = len(numeric) == len(values)
        self._numeric = dict(zip(self.variables, numeric)) if whole else {}
        numbers = *numbers, self._copies
        for bits, places in self._masks:
            key = bits, tuple([numbers[place] for place in places])
            made = self._made.get(key)
            if made is None:
                made = self._made[key] = {}
            self._present[bits] = made
        for var, value in zip(self.variables, values):
            self._present[self._bits[var]][var] = value
        self.mapping = self._present.get(self._own, {})
        copied = self.visit(self.root)
        self._copies += 1
        return copied

    def define(self, symbol: Any) -> Any:
        """Return what a copy has in place of a variable or buffer that the body defines."""
        if not self._copies:
            return symbol
        made = super().define(symbol)
        if symbol in self.ranges:
            self.ranges[made] = self.ranges[symbol]
        return made

    def visit(self, node: Expr | Node | Stmt) -> Any:
        """Rewrite a node, or take what was made of it before."""
        used = self._uses.get(node)
        if used is None:
            return node
        present = self._present[used]
        made = present.get(node)
        if made is None:
            if used != self._own:
                kind = type(node)
                made = (self._table.get(kind) or self._find(kind))(self, node)
            elif self._copies:
                made = self.generic_visit(node)  # only the symbols change
            else:
                made = node
            present[node] = made
        return made

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        visit = self.visit
        buffer = self.mapping.get(node.buffer, node.buffer)
        return BufferStore(buffer, visit(node.value), tuple(map(visit, node.indices)))

    def visit_BufferLoad(self, node: BufferLoad) -> Expr:
        visit = self.visit
        buffer = self.mapping.get(node.buffer, node.buffer)
        return BufferLoad(buffer, tuple(map(visit, node.indices)))

    def visit_Ramp(self, node: Ramp) -> Expr:
        return Ramp(self.visit(node.base), self.visit(node.stride), node.lanes)

    def _sum(self, node: Any) -> Any:
        """An index that is a sum: what it is without the variables, plus a number."""
        if node.dtype != INDEX or not self._numeric:
            return self.visit_BinaryExpr(node)
        found = self._shared[node] if node in self._shared else self._apart(node)
        if found is None:
            return self.visit_BinaryExpr(node)
        rest, number, factors = found
        for var, factor in factors.items():
            number += factor * self._numeric[var]
        if type(rest) is IntImm:
            return const(number)
        rest = self.visit(rest)
        return Add(rest, const(number)) if number else rest

    visit_Add = visit_Sub = visit_Mul = _sum

    def _apart(self, node: Any) -> _Linear | None:
        """What an expression is without the variables, if it is linear in them."""
        if self._uses.get(node, self._own) == self._own:
            if type(node) is IntImm:
                return _ZERO, node.value, {}
            if type(node) is Add and type(node.b) is IntImm:
                return node.a, node.b.value, {}
            return node, 0, {}
        if node in self._shared:
            return self._shared[node]
        made = None
        if type(node) is Var:
            made = _ZERO, 0, {node: 1}
        elif type(node) in (Add, Sub, Mul):
            a, b = self._apart(node.a), self._apart(node.b)
            if a is not None and b is not None:
                made = _combined(type(node), a, b)
                if made is not None:
                    self._note_uses(made[0])
        self._shared[node] = made
        return made

    def visit_BinaryExpr(self, node: BinaryExpr) -> Expr:
        a, b = self.visit(node.a), self.visit(node.b)
        if a is node.a and b is node.b:
            return node
        build = type(node)
        if (is_const(a) or is_const(b) or a is b) and a.dtype == b.dtype:
            build = _FOLD.get(build, build)
        return build(a, b)

    def visit_CompareExpr(self, node: CompareExpr) -> Any:
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


def _combined(kind: object, a: _Linear, b: _Linear) -> _Linear | None:
    """Sum, difference or product of two linear expressions."""
    if kind is Mul:
        if b[2] or type(b[0]) is not IntImm:
            a, b = b, a
        if b[2] or type(b[0]) is not IntImm:
            return None
        by = b[1]
        rest = _ZERO if a[0] is _ZERO else a[0] * by
        return rest, a[1] * by, {var: factor * by for var, factor in a[2].items()}
    sign = 1 if kind is Add else -1
    factors = dict(a[2])
    for var, factor in b[2].items():
        factors[var] = factors.get(var, 0) + sign * factor
    if a[0] is _ZERO and sign > 0:
        rest = b[0]
    elif b[0] is _ZERO:
        rest = a[0]
    else:
        rest = add(a[0], b[0]) if sign > 0 else sub(a[0], b[0])
    return rest, a[1] + sign * b[1], factors


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
