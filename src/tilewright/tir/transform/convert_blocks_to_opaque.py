"""Replace the iteration variables of blocks by their values.

Blocks become opaque: they still hold predicate, allocations, matched buffers and annotations, but
no iteration variables.
"""

from __future__ import annotations

from tilewright.ir import Expr, Var, contains, substitute
from tilewright.support.errors import LowerError
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import Block, BlockRealize, Stmt
from tilewright.tir.transform.base import FunctionTransform, Replacing


class ConvertBlocksToOpaque(FunctionTransform):
    """Substitute the bindings of all blocks."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        return func.map_children(_Substituter({}).visit)


_has_block = contains(Block)


class _Substituter(Replacing):
    def __init__(self, values: dict[Var, Expr]) -> None:
        self.values = values

    def visit_BlockRealize(self, node: BlockRealize) -> Stmt:
        block = node.block
        if block.init is not None:
            raise LowerError(f"block {block.name!r} still has an init: run LowerInitBlock first")
        # Values belong to the enclosing scope, the predicate too.
        outer = self.values
        values = [substitute(value, outer) for value in node.iter_values]
        predicate = substitute(node.predicate, outer)
        self.values = {**outer, **dict(zip((item.var for item in block.iter_vars), values))}
        made = block.replace(iter_vars=()) if block.iter_vars else block
        if _has_block(block.body):
            made = made.map_children(self.visit)
        else:
            made = substitute(made, self.values)
        self.values = outer
        if made is block and predicate is node.predicate and not values:
            return node
        return BlockRealize((), predicate, made)
