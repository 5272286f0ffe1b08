"""The part of the parser that reads loops: ``for``, ``while``, and how they are left.

A loop with a step is a loop over the number of its iterations: ``for i in range(2, 16, 3)`` reads
as ``for i in range(5)`` with ``i * 3 + 2`` for ``i``. So schedules, passes and code generators know
loops of step 1 only.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable
from typing import Any

from tilewright.ir import Expr, Range, Var, call, const, set_span
from tilewright.script.operators import to_value
from tilewright.tir.loop_exits import BREAK, own_exits
from tilewright.tir.script import declarations as decl
from tilewright.tir.script.assignments import AssignmentParser
from tilewright.tir.script.frames import flatten
from tilewright.tir.stmt import SERIAL, UNROLLED, Evaluate, For, LetStmt, Stmt, While


class LoopParser(AssignmentParser):
    """Reads loops, and what stands for them while parsing."""

    def suite(self, nodes: Iterable[ast.stmt], *, own_scope: bool = True) -> Stmt:
        """Parse statements into one."""
        raise NotImplementedError(f"{type(self).__name__} must define suite")

    def loop_suite(self, nodes: Iterable[ast.stmt]) -> Stmt:
        """Parse the body of a loop, which ``break`` and ``continue`` are about."""
        self.block.loops += 1
        body = self.suite(nodes)
        self.block.loops -= 1
        return body

    # ---- for -----------------------------------------------------------------------------

    def _for(self, node: ast.For) -> Stmt | list[Stmt]:
        if node.orelse:
            self.fail(node.orelse[0], "a loop takes no else")
        loops = self._loops_of(node.iter)
        if not isinstance(loops, decl.Loops):
            return self._unroll(node, loops)
        self.scope.push()
        loops, bound = decl.over_steps(loops)
        variables = self._loop_variables(node.target, loops)
        body = self.loop_suite(node.body)
        self.scope.pop()
        if loops.nest[-1].kind not in (SERIAL, UNROLLED) and BREAK in own_exits(body):
            kind = loops.nest[-1].kind
            self.fail(node, f"break leaves serial loops only; this one is {kind}")
        span = self.source.span(node)
        for var, loop in reversed(list(zip(variables, loops.nest))):
            hints = dict(loop.annotations)
            minimum, extent = loop.minimum, loop.extent
            if loop.step is not None:
                minimum = const(0, extent.dtype)
            body = For(var, minimum, extent, loop.kind, body, loop.thread, hints)
            set_span(body, span)
        for var, value in reversed(bound):
            body = LetStmt(var, value, body)
        return body

    def _loop_variables(self, target: ast.expr, loops: decl.Loops) -> list[Var]:
        """Bind the names of loops to their variables; a name may take several of them."""
        groups = self._loop_names(target, len(loops.nest))
        variables: list[Var] = []
        for part, names in groups:
            values: list[Expr] = []
            for name in names:
                loop = loops.nest[len(variables)]
                if name != "_" and any(name == other.name for other in variables):
                    self.fail(part, f"two loops of a grid are named {name!r}")
                var = Var(name, loop.dtype or loop.extent.dtype)
                variables.append(var)
                if loop.thread is not None:
                    self.tags[var] = loop.thread
                if loop.step is None:
                    self.loops[var] = Range.from_min_extent(loop.minimum, loop.extent)
                    values.append(var)
                else:
                    values.append(loop.minimum + var * loop.step)
            if isinstance(part, ast.Name) and names == [part.id]:
                self.scope.define(part.id, values[0])
            else:
                inner = part.value if isinstance(part, ast.Starred) else part
                self.scope.define(self._target_name(inner), tuple(values))
        return variables

    def _loop_names(self, target: ast.expr, count: int) -> list[tuple[ast.expr, list[str]]]:
        """Return the parts of a target, and the names of the loops that each takes."""
        if isinstance(target, ast.Name) and count != 1:
            return [(target, [f"{target.id}_{place}" for place in range(count)])]
        parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        starred = [part for part in parts if isinstance(part, ast.Starred)]
        rest = count - (len(parts) - len(starred))
        if len(starred) > 1 or rest < 0 or (rest and not starred):
            self.fail(target, f"{len(parts)} variables for {count} loops")
        made: list[tuple[ast.expr, list[str]]] = []
        for part in parts:
            if isinstance(part, ast.Starred):
                base = self._target_name(part.value)
                made.append((part, [f"{base}_{place}" for place in range(rest)]))
            else:
                made.append((part, [self._target_name(part)]))
        return made

    def _loops_of(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Call) and self.named(node.func) is builtins.range:
            arguments = [to_value(argument) for argument in self._items(node.args)]
            if node.keywords or not 1 <= len(arguments) <= 3:
                self.fail(node, "range takes a stop, or a start, a stop and a step")
            start, stop = (0, arguments[0]) if len(arguments) == 1 else arguments[:2]
            step = arguments[2] if len(arguments) == 3 else None
            return self.guard(node, decl.serial, start, stop, step=step)
        return self.eval(node)

    def _unroll(self, node: ast.For, values: object) -> list[Stmt]:
        """Run a loop over Python values while parsing."""
        if not isinstance(values, Iterable) or isinstance(values, (str, Expr)):
            found = ast.unparse(node.iter)
            self.fail(node.iter, f"`{found}` is no loop; use T.serial, T.grid, range or a list")
        made: list[Stmt] = []
        self.copies += 1
        outside, self.block.loops = self.block.loops, 0
        for value in self.iterate(node.iter, values):
            self.scope.push()
            self._bind(node.target, value)
            made.append(self.suite(node.body))
            self.scope.pop()
        self.block.loops = outside
        self.copies -= 1
        return flatten(made)

    # ---- while, break, continue ------------------------------------------------------------

    def _while(self, node: ast.While) -> Stmt:
        if node.orelse:
            self.fail(node.orelse[0], "a loop takes no else")
        condition = self.check_condition(node.test, self.eval(node.test))
        return While(condition, self.loop_suite(node.body))

    def _leave(self, node: ast.Break | ast.Continue) -> Stmt:
        """A ``break`` or ``continue``, of the innermost loop."""
        name = type(node).__name__.lower()
        if not self.block.loops:
            self.fail(
                node, f"{name} stands inside a loop, in the same block as that; a loop over Python "
                "values is none"
            )  # fmt: skip
        return Evaluate(call(f"{name}_loop"))
