"""Move out of loops what is the same in every iteration: conditions and expensive expressions.

*Conditions*: ``for i: if c: A else: B`` becomes ``if c: for i: A else: for i: B`` where ``c`` does
not depend on the loop (also for a part ``c`` of a conjunction, and for conditional values). The
loop is copied, so that growth is bounded.
*Expressions*: divisions, loads and math functions become a ``LetStmt`` before the outermost loop
in which they don't change.

Nothing is evaluated that might not have been, unless it is proven not to trap: a hoisted division
has a nonzero divisor, a hoisted load is in bounds whether or not the loop runs.

Not in the default order for CPUs: LoopPartition cuts loops at conditions on them, and the emitter
for LLVM places each expression in the outermost scope that it can be in: no kernel gained. It is
for code generators that write expressions where they stand. The pass option
``tir.hoist_invariants`` puts it in.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir import (
    FALSE,
    TRUE,
    And,
    Broadcast,
    Call,
    Cast,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Mutator,
    Not,
    Or,
    Ramp,
    StringImm,
    Var,
    and_,
    dtypes,
    if_then_else,
    not_,
    or_,
    pass_option,
    pre_order,
)
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.rewrite import renew_definitions
from tilewright.tir.stmt import (
    NO_OP,
    THREAD_BINDING,
    Allocate,
    Block,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    Stmt,
)
from tilewright.tir.transform.base import (
    FunctionTransform,
    SeqMutator,
    StmtMutator,
    function_analyzer,
    inside_loop,
)
from tilewright.tir.transform.effects import (
    EffectTable,
    ExprTable,
    is_pure,
    may_trap,
    memory_read,
)

_LEAVES = (Var, IntImm, FloatImm, StringImm)
_COSTS: dict[type, int] = {FloorDiv: 8, FloorMod: 8, BufferLoad: 8, Cast: 1, Ramp: 1, Broadcast: 1}

UNSWITCH_LIMIT = pass_option(
    "tir.unswitch_limit",
    int,
    64,
    "Stores and calls that copies of loops may add to a function, when conditions are hoisted.",
)


class HoistInvariants(FunctionTransform):
    """Hoist invariant conditions and expressions out of loops.

    Copies of loop bodies add at most ``unswitch_limit`` stores and calls to a function (0: never
    copy; the pass option ``tir.unswitch_limit`` overrides). Expressions are hoisted from a cost of
    ``min_cost`` on: an addition counts 1, a division, load or math function 8.
    """

    def __init__(self, unswitch_limit: int = UNSWITCH_LIMIT.default, min_cost: int = 8) -> None:
        self.unswitch_limit = unswitch_limit
        self.min_cost = min_cost

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        if not any(type(item) is For for item in pre_order(func.body)):
            return func
        limit = UNSWITCH_LIMIT.value(self.unswitch_limit)
        func = func.map_children(Unswitcher(func, limit).visit)
        return func.map_children(_Hoister(func, self.min_cost).visit)


def expr_cost(expr: Expr) -> int:
    """Roughly what evaluating an expression costs, in additions."""
    total = 0
    for item in pre_order(expr):
        kind = type(item)
        if kind in _LEAVES or isinstance(item, Buffer):
            continue
        total += _COSTS.get(kind, 8 if kind is Call else 1)
    return total


def defined_below(stmt: Stmt) -> set[object]:
    """Variables, buffers and pointers that a statement and those below it define."""
    found: set[Any] = set()
    for item in pre_order(stmt):
        kind = type(item)
        if kind is For:
            found.add(item.loop_var)  # type: ignore[attr-defined]
        elif kind is LetStmt or kind is Let:
            found.add(item.var)  # type: ignore[attr-defined]
        elif kind is Allocate or kind is DeclBuffer:
            found.add(item.buffer)  # type: ignore[attr-defined]
            if kind is Allocate:
                found.add(item.buffer.data)  # type: ignore[attr-defined]
        elif kind is Block:
            found.update(axis.var for axis in item.iter_vars)  # type: ignore[attr-defined]
            found.update(item.alloc_buffers)  # type: ignore[attr-defined]
            found.update(match.buffer for match in item.match_buffers)  # type: ignore[attr-defined]
    return found


def is_invariant(expr: Expr, inside: set[object], stmt: Stmt, effects: EffectTable) -> bool:
    """Whether an expression has one value throughout ``stmt``, which defines ``inside``."""
    if any(item in inside for item in pre_order(expr) if type(item) is Var or type(item) is Buffer):
        return False
    return is_pure(expr) and not effects.of(stmt).disturbs(memory_read(expr))


class LoopMutator(StmtMutator):
    """Keeps an analyzer up to date about the loops around."""

    def __init__(self, func: PrimFunc) -> None:
        self.analyzer = function_analyzer(func)
        self.effects = EffectTable(func)
        self.table = ExprTable()

    def inside(self, node: For) -> For:
        """Rewrite a loop's body, knowing its range."""
        with inside_loop(self.analyzer, node):
            body = self.visit(node.body)
        return node if body is node.body else node.replace(body=body)


class Unswitcher(LoopMutator):
    """Moves conditions out of loops, copying these at most ``limit`` times."""

    def __init__(self, func: PrimFunc, limit: int) -> None:
        super().__init__(func)
        self.left = limit

    def visit_For(self, node: For) -> Stmt:
        if node.kind == THREAD_BINDING:
            return self.inside(node)
        condition = self._condition(node)
        if condition is None:
            return self.inside(node)
        yes = node.replace(body=self._assuming(node.body, condition, True))
        no = node.replace(body=self._assuming(node.body, condition, False))
        if yes.body is NO_OP and no.body is NO_OP:
            return NO_OP
        then_case = self.visit(yes)
        if no.body is NO_OP:
            return IfThenElse(condition, then_case)
        self.left -= _steps(no.body)
        return IfThenElse(condition, then_case, self.visit(renew_definitions(no)))

    def candidates(self, body: Stmt) -> list[Expr]:
        """The conditions that may be hoisted, outermost first."""
        return conditions_below(body)

    def _assuming(self, body: Stmt, condition: Expr, holds: bool) -> Stmt:
        made: Stmt = _Assume(self.table, self.table.number(condition), holds).visit(body)
        return made

    def _condition(self, loop: For) -> Expr | None:
        """A condition in a loop that doesn't depend on it and is worth the copy."""
        inside: set[Any] | None = None
        for candidate in self.candidates(loop.body):
            if inside is None:
                inside = defined_below(loop)
            if not is_invariant(candidate, inside, loop, self.effects):
                continue
            if may_trap(candidate, self.analyzer):
                continue
            other = self._assuming(loop.body, candidate, False)
            if other is NO_OP or _steps(other) <= self.left:
                return candidate
        return None


def conditions_below(body: Stmt, of_stmts: bool = True, of_values: bool = True) -> list[Expr]:
    """Scalar conditions below a statement, conjunctions taken apart; outermost first.

    Those of branches (``of_stmts``) and of conditional values (``of_values``).
    """
    found: list[Expr] = []
    for item in pre_order(body):
        condition = None
        if of_stmts and type(item) is IfThenElse:
            condition = item.condition
        elif of_values and type(item) is Call and item.op.name == "if_then_else":
            condition = item.args[0]
        if condition is None or dtypes.lanes_of(condition.dtype) > 1:
            continue
        stack: list[Any] = [condition]
        while stack:
            part = stack.pop()
            if type(part) is And:
                stack += [part.b, part.a]
            elif not isinstance(part, IntImm):
                found.append(part)
    return found


def _steps(stmt: Stmt) -> int:
    return sum(type(item) in (BufferStore, Evaluate) for item in pre_order(stmt))


class _Assume(SeqMutator):
    """Puts in what a condition is known to be, and drops what then never runs."""

    def __init__(self, table: ExprTable, condition: int, holds: bool) -> None:
        self.table = table
        self.condition = condition
        self.value = TRUE if holds else FALSE

    def visit_Expr(self, node: Expr) -> Any:
        if node.dtype == "bool" and self.table.number(node) == self.condition:
            return self.value
        made: Any = node.map_children(self.visit)
        if made is node:
            return node
        if type(made) is And or type(made) is Or:
            return and_(made.a, made.b) if type(made) is And else or_(made.a, made.b)
        if type(made) is Not:
            return not_(made.a)
        if type(made) is Call and made.op.name == "if_then_else":
            return if_then_else(*made.args)
        return made

    def visit_IfThenElse(self, node: IfThenElse) -> Stmt:
        condition = self.visit(node.condition)
        if isinstance(condition, IntImm):
            taken = node.then_case if condition.value else node.else_case
            return NO_OP if taken is None else self.visit(taken)
        return node.map_children(self.visit)

    def visit_For(self, node: For) -> Stmt:
        made = node.map_children(self.visit)
        return NO_OP if made.body is NO_OP else made

    def visit_LetStmt(self, node: LetStmt) -> Stmt:
        made = node.map_children(self.visit)
        return NO_OP if made.body is NO_OP and is_pure(made.value) else made

    def visit_Allocate(self, node: Allocate) -> Stmt:
        made = node.map_children(self.visit)
        return NO_OP if made.body is NO_OP else made


class UnswitchChoices(FunctionTransform):
    """Hoist conditions that choose between values which both read memory out of loops.

    ``for k: s += A[k] if c else B[k]`` becomes two loops under a test, which know what they read;
    a branch in each iteration keeps loads from being shared and moved. Other choices (a value or a
    constant) are cheaper as masks. Copies are bounded as in ``HoistInvariants``.
    """

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        if not _choices_below(func.body):
            return func
        return func.map_children(_ChoiceUnswitcher(func, UNSWITCH_LIMIT.value()).visit)


class _ChoiceUnswitcher(Unswitcher):
    def candidates(self, body: Stmt) -> list[Expr]:
        return _choices_below(body)


def _choices_below(body: Stmt) -> list[Expr]:
    """Scalar conditions of conditional values below a statement, if both values read memory."""
    return [
        item.args[0]
        for item in pre_order(body)
        if type(item) is Call
        and item.op.name == "if_then_else"
        and dtypes.lanes_of(item.args[0].dtype) == 1
        and not isinstance(item.args[0], IntImm)
        and all(memory_read(arm) for arm in item.args[1:])
    ]


class _Hoister(LoopMutator):
    def __init__(self, func: PrimFunc, min_cost: int) -> None:
        super().__init__(func)
        self.min_cost = min_cost

    def visit_For(self, node: For) -> Stmt:
        if node.kind == THREAD_BINDING:
            return self.inside(node)
        finder = _Finder(self, node)
        body = finder.visit(node.body)
        if not finder.found:
            return self.inside(node)
        made: Stmt = self.inside(node.replace(body=body))
        for var, value in reversed(list(finder.found.values())):
            made = LetStmt(var, value, made)
        return made


class _Finder(Mutator):
    """Replaces the invariant expressions of a loop's body by variables, the largest first."""

    def __init__(self, owner: _Hoister, loop: For) -> None:
        self.owner = owner
        self.loop = loop
        self.inside = defined_below(loop)
        self.found: dict[int, tuple[Var, Expr]] = {}
        self.refused: set[int] = set()

    def visit_Expr(self, node: Expr) -> Expr:
        if type(node) in _LEAVES:
            return node
        number = self.owner.table.number(node)
        known = self.found.get(number)
        if known is not None:
            return known[0]
        if number not in self.refused:
            if self._movable(node):
                var = Var(f"inv{len(self.found)}", node.dtype)
                self.found[number] = (var, node)
                return var
            self.refused.add(number)
        return node.map_children(self.visit)

    def visit_Buffer(self, node: Buffer) -> Buffer:
        return node

    def visit_Let(self, node: Let) -> Expr:
        return node

    def visit_Block(self, node: Block) -> Stmt:
        # What a block reads belongs to it: the variables of loops can't be seen inside.
        return node

    def _movable(self, expr: Expr) -> bool:
        return (
            expr.dtype != "handle"
            and expr_cost(expr) >= self.owner.min_cost
            and is_invariant(expr, self.inside, self.loop, self.owner.effects)
            and not may_trap(expr, self.owner.analyzer)
        )
