"""Bring nested divisions, as splitting and fusing loops leaves them, to one form.

``x // a // b`` becomes ``x // (a * b)``; ``x % (a * b) // b`` becomes ``x // b % a``, and
``x % (a * b) % b`` becomes ``x % b``: at most one quotient, then at most one remainder. What is
equal then looks equal, to common subexpression elimination and to readers. The identities are
those of ``arith``, which needs ``a`` and ``b`` to be positive; extents of loops and sizes of
parameters are known to be.

Not in the default order: Simplify, which is, brings all index arithmetic to this form and more.
This pass touches nothing but nested divisions.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir import Call, Expr, FloorDiv, FloorMod, pre_order
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import For, Stmt
from tilewright.tir.transform.base import FunctionTransform, function_analyzer, inside_loop
from tilewright.tir.transform.effects import BufferMutator

_DIVISIONS = (FloorDiv, FloorMod)


class RenormalizeSplitPattern(FunctionTransform):
    """Rewrite divisions of divisions."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        return func.map_children(_Renormalizer(func).visit)


class _Renormalizer(BufferMutator):
    def __init__(self, func: PrimFunc) -> None:
        super().__init__()
        self.analyzer = function_analyzer(func)

    def visit_For(self, node: For) -> Stmt:
        start, extent = self.visit(node.min), self.visit(node.extent)
        with inside_loop(self.analyzer, node):
            body = self.visit(node.body)
        if start is node.min and extent is node.extent and body is node.body:
            return node
        return node.replace(min=start, extent=extent, body=body)

    def visit_FloorDiv(self, node: FloorDiv) -> Expr:
        return self._divide(node)

    def visit_FloorMod(self, node: FloorMod) -> Expr:
        return self._divide(node)

    def _divide(self, node: Expr) -> Expr:
        made: Expr = self.generic_visit(node)
        if not any(isinstance(item, _DIVISIONS) for item in pre_order(made.a)):  # type: ignore[attr-defined]
            return made
        if any(type(item) is Call for item in pre_order(made)):
            return made
        simple = self.analyzer.simplify(made)
        return simple if _divisions(simple) < _divisions(made) or _is_split(simple) else made


def _divisions(expr: Expr) -> int:
    return sum(isinstance(item, _DIVISIONS) for item in pre_order(expr))


def _is_split(expr: Any) -> bool:
    """Whether an expression is ``x // a % b`` (one quotient inside one remainder)."""
    return type(expr) is FloorMod and type(expr.a) is FloorDiv
