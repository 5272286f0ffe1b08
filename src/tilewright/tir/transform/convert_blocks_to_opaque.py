"""Replace the iteration variables of blocks by their values.

Blocks become opaque: they still hold predicate, allocations, matched buffers and annotations, but
no iteration variables.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir import Expr, Mutator, Var
from tilewright.support.errors import LowerError
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import BlockRealize
from tilewright.tir.transform.base import FunctionTransform


class ConvertBlocksToOpaque(FunctionTransform):
    """Substitute the bindings of all blocks."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        return func.map_children(_Substituter({}).visit)


class _Substituter(Mutator):
    def __init__(self, values: dict[Var, Expr]) -> None:
        self.values = values

    def visit_Var(self, node: Var) -> Any:
        return self.values.get(node, node)

    def visit_BlockRealize(self, node: BlockRealize) -> Any:
        block = node.block
        if block.init is not None:
            raise LowerError(f"block {block.name!r} still has an init: run LowerInitBlock first")
        # Values belong to the enclosing scope, the predicate too.
        values = tuple(self.visit(value) for value in node.iter_values)
        predicate = self.visit(node.predicate)
        for iter_var, value in zip(block.iter_vars, values):
            self.values[iter_var.var] = value
        made = block.replace(iter_vars=()) if block.iter_vars else block
        made = made.map_children(self.visit)
        if made is block and predicate is node.predicate and not values:
            return node
        return BlockRealize((), predicate, made)
