"""Lower ``break`` and ``continue``: flags in registers, and conditions on what would be left out.

    for i in range(n):
        if done(i): break
        work(i)

becomes

    left[0] = 0; count[0] = 0
    while count[0] < n and left[0] == 0:
        i = count[0]
        if done(i): left[0] = 1
        else: work(i)
        count[0] = count[0] + 1

A loop around blocks stays a ``for``, so that their axes keep their ranges; then its body runs under
the condition. Runs first of all: no other pass, schedule or code generator knows the statements.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import TRUE, Expr, and_, call, const, is_const
from tilewright.support.errors import LowerError
from tilewright.tir.buffer import Buffer, BufferLoad, decl_buffer
from tilewright.tir.function import PrimFunc
from tilewright.tir.loop_exits import BREAK, CONTINUE, exit_of, has_loop_exits, own_exits
from tilewright.tir.steps import Steps
from tilewright.tir.stmt import (
    SERIAL,
    UNROLLED,
    Allocate,
    AttrStmt,
    BlockRealize,
    BufferStore,
    DeclBuffer,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
    seq,
)
from tilewright.tir.transform.base import FunctionTransform, StmtMutator
from tilewright.tir.walk import statements


class LowerLoopExits(FunctionTransform):
    """Replace ``break`` and ``continue`` by conditions.

    Raises ``LowerError`` where a loop whose iterations run at once is left.
    """

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        if not has_loop_exits(func):
            return func
        return func.replace(body=_Lowering().visit(func.body))


class _Loop:
    """The flags of one loop, which are made when they are needed."""

    def __init__(self) -> None:
        self.flags: dict[str, Buffer] = {}

    def raise_flag(self, name: str) -> Stmt:
        """Note that the loop, or its iteration, is left."""
        short = "left" if name == BREAK else "skipped"
        flag = self.flags.setdefault(name, _register(short))
        return BufferStore(flag, const(1, "int32"), (const(0),))

    def lowered(self, names: frozenset[str]) -> Expr:
        """Whether none of the exits of these names has been taken."""
        conditions = [_read(self.flags[name]) == 0 for name in sorted(names & self.flags.keys())]
        return and_(*conditions) if conditions else TRUE


def _register(name: str, dtype: str = "int32") -> Buffer:
    return decl_buffer((1,), dtype, name, scope="local")


def _read(buffer: Buffer) -> BufferLoad:
    return BufferLoad(buffer, (const(0),))


def _reset(buffer: Buffer) -> Stmt:
    return BufferStore(buffer, const(0, buffer.dtype), (const(0),))


class _Lowering(StmtMutator):
    """Rewrites loops, the innermost first."""

    def visit_For(self, node: For) -> Stmt:
        exits = own_exits(node.body)
        if not exits:
            return node.replace(body=self.visit(node.body))
        if BREAK in exits and node.kind not in (SERIAL, UNROLLED):
            raise LowerError(
                f"break leaves the {node.kind} loop over {node.loop_var.name!r}: iterations that "
                "run at once can't be left out; make the loop serial"
            )
        loop = _Loop()
        body = self._body(node.body, loop)
        left = loop.flags.get(BREAK)
        if left is None:
            return node.replace(body=body)
        blocks = any(type(item) is BlockRealize for item in (body, *statements(body)))
        if blocks:
            made: Stmt = node.replace(body=IfThenElse(_read(left) == 0, body))
        else:
            made = self._counted(node, body, left)
        return Allocate(left, seq(_reset(left), made))

    def visit_While(self, node: While) -> Stmt:
        if not own_exits(node.body):
            return node.replace(body=self.visit(node.body))
        loop = _Loop()
        body = self._body(node.body, loop)
        left = loop.flags.get(BREAK)
        if left is None:
            return node.replace(body=body)
        # A condition that a loop was left for is not asked again: it may read what isn't there.
        go_on = call("if_then_else", _read(left) == 0, node.condition, const(False, "bool"))
        made = While(go_on, body)
        return Allocate(left, seq(_reset(left), made))

    def _counted(self, node: For, body: Stmt, left: Buffer) -> Stmt:
        """A loop that ends as soon as it is left."""
        count = _register("count", node.extent.dtype)
        limits = Steps()  # a loop's range is evaluated once: its body may change what that reads
        start, extent = (
            part if is_const(part) else limits(part) for part in (node.min, node.extent)
        )
        value = start + _read(count)
        if value.dtype != node.loop_var.dtype:
            value = value.astype(node.loop_var.dtype)
        step = BufferStore(count, _read(count) + const(1, count.dtype), (const(0),))
        bound = LetStmt(node.loop_var, value, body)
        made: Stmt = While(and_(_read(count) < extent, _read(left) == 0), seq(bound, step))
        made = Allocate(count, seq(_reset(count), made))
        for var, limit in reversed(limits.bound):
            made = LetStmt(var, limit, made)
        return made

    def _body(self, body: Stmt, loop: _Loop) -> Stmt:
        """The body of a loop that is left from inside."""
        made = self._lower([body], loop, last=True)
        skipped = loop.flags.get(CONTINUE)
        return made if skipped is None else Allocate(skipped, seq(_reset(skipped), made))

    def _lower(self, stmts: Sequence[Stmt], loop: _Loop, last: bool) -> Stmt:
        """Statements of a loop's body; ``last`` if nothing of the body follows them."""
        todo = list(reversed(stmts))
        made: list[Stmt] = []
        while todo:
            stmt = todo.pop()
            if type(stmt) is SeqStmt:
                todo += reversed(stmt.stmts)
                continue
            exits = own_exits(stmt)
            if not exits:
                made.append(self.visit(stmt))
                continue
            rest = todo[::-1]
            name = exit_of(stmt)
            if name is not None:  # what follows is never reached
                if name == BREAK or not last:
                    made.append(loop.raise_flag(name))
            elif type(stmt) is IfThenElse and (_leaves(stmt.then_case) or _leaves(stmt.else_case)):
                made.append(self._branch(stmt, rest, loop, last))
            else:
                made.append(self._inside(stmt, loop, last and not rest))
                if rest:
                    follows = self._lower(rest, loop, last)
                    made.append(IfThenElse(loop.lowered(exits), follows))
            break
        return seq(*made)

    def _branch(self, node: IfThenElse, rest: list[Stmt], loop: _Loop, last: bool) -> Stmt:
        """A branch one of whose cases leaves: what follows belongs to the other."""
        then, other = [node.then_case], [] if node.else_case is None else [node.else_case]
        if _leaves(node.then_case):
            other += rest
        else:
            then += rest
        made = self._lower(then, loop, last)
        return IfThenElse(node.condition, made, self._lower(other, loop, last) if other else None)

    def _inside(self, stmt: Stmt, loop: _Loop, last: bool) -> Stmt:
        """A statement that may leave, and may not."""
        if type(stmt) is IfThenElse:
            return self._branch(stmt, [], loop, last)
        if isinstance(stmt, (LetStmt, AttrStmt, Allocate, DeclBuffer)):
            return stmt.replace(body=self._lower([stmt.body], loop, last))
        name = stmt.block.name if type(stmt) is BlockRealize else type(stmt).__name__
        raise LowerError(f"a loop is left from inside of the block {name!r}, which runs as a whole")


def _leaves(stmt: Stmt | None) -> bool:
    """Whether a statement leaves the loop around it for sure."""
    while stmt is not None:
        if exit_of(stmt) is not None:
            return True
        if type(stmt) is SeqStmt:
            if any(exit_of(item) is not None for item in stmt.stmts):
                return True
            stmt = stmt.stmts[-1] if stmt.stmts else None
        elif type(stmt) is IfThenElse:
            return _leaves(stmt.then_case) and _leaves(stmt.else_case)
        elif isinstance(stmt, (LetStmt, AttrStmt, Allocate, DeclBuffer)):
            stmt = stmt.body
        else:
            return False
    return False
