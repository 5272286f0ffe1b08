"""Turn selections whose sides may trap into conditional values.

A ``Select`` evaluates both sides, an ``if_then_else`` only one: where a side reads memory that the
condition guards, or calls, both must not be evaluated.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir import Select, Var, dtypes, if_then_else, not_
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import For, IfThenElse, Stmt
from tilewright.tir.transform.base import FunctionTransform, function_analyzer, inside_loop
from tilewright.tir.transform.effects import BufferMutator, is_pure, may_trap


class RewriteUnsafeSelect(FunctionTransform):
    """Make ``if_then_else`` of each ``Select`` with a side not proven harmless.

    Harmless are loads in bounds, divisions by what isn't zero, and pure functions. Selections of
    vectors by vectors stay: their lanes have one branch each.
    """

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        return func.map_children(_Rewriter(func).visit)


class _Rewriter(BufferMutator):
    def __init__(self, func: PrimFunc) -> None:
        super().__init__()
        self.analyzer = function_analyzer(func)

    def visit_Var(self, node: Var) -> Var:
        return node

    def visit_For(self, node: For) -> Stmt:
        minimum, extent = self.visit(node.min), self.visit(node.extent)
        with inside_loop(self.analyzer, node):
            body = self.visit(node.body)
        same = minimum is node.min and extent is node.extent and body is node.body
        return node if same else node.replace(min=minimum, extent=extent, body=body)

    def visit_IfThenElse(self, node: IfThenElse) -> Stmt:
        condition = self.visit(node.condition)
        with self.analyzer.constraint(condition):
            then_case = self.visit(node.then_case)
        else_case = node.else_case
        if else_case is not None:
            with self.analyzer.constraint(not_(condition)):
                else_case = self.visit(else_case)
        return node.replace(condition=condition, then_case=then_case, else_case=else_case)

    def visit_Select(self, node: Select) -> Any:
        made = node.map_children(self.visit)
        if dtypes.lanes_of(made.condition.dtype) > 1:
            return made
        sides = (made.true_value, made.false_value)
        if not any(may_trap(side, self.analyzer) or not is_pure(side) for side in sides):
            return made
        return if_then_else(made.condition, *sides)
