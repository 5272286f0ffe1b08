"""Double buffering: fetch the tile of the next iteration while this one is computed.

A block with the annotation ``double_buffer_scope`` (the position of a buffer among its writes) asks
that this buffer gets two versions: the innermost serial loop that allocates the buffer becomes a
software pipeline of two stages, in which the block runs one iteration ahead.
"""

from __future__ import annotations

from tilewright.ir import (
    Expr,
    Mutator,
    Var,
    annotated,
    contains,
    pre_order,
)
from tilewright.support.errors import LowerError
from tilewright.tir.attrs import DOUBLE_BUFFER, PIPELINE_ORDER, PIPELINE_STAGE
from tilewright.tir.buffer import Buffer
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import SERIAL, Allocate, Block, BlockRealize, For, SeqStmt, Stmt
from tilewright.tir.transform.base import FunctionTransform
from tilewright.tir.walk import statements

_has_annotation = contains(annotated(DOUBLE_BUFFER))


class InjectDoubleBuffer(FunctionTransform):
    """Turn the blocks' annotations into those of a pipeline; runs while there are blocks.

    ``InjectSoftwarePipeline`` does the rest, and checks that nothing changes its meaning.
    """

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        if not _has_annotation(func.body):
            return func
        wanted: dict[Var, Block] = {}
        for block in statements(func):
            if isinstance(block, Block) and DOUBLE_BUFFER in block.annotations:
                wanted[annotated_buffer(block, DOUBLE_BUFFER).data] = block
        if not wanted:
            return func
        rewriter = _Rewriter(wanted)
        made = func.map_children(rewriter.visit)
        if rewriter.wanted:
            data, block = next(iter(rewriter.wanted.items()))
            raise LowerError(
                f"block {block.name!r}: {data.name} can't be double-buffered, since no serial "
                "loop allocates it: compute_at the block under the loop that uses its tiles"
            )
        return made


def annotated_buffer(block: Block, key: str) -> Buffer:
    """The buffer that a block's annotation names by its position among the writes."""
    number = block.annotations[key]
    number = getattr(number, "value", number)
    if not isinstance(number, int) or not 0 <= number < len(block.writes):
        raise LowerError(
            f"block {block.name!r}: annotation {key} is {number!r}; it names one of the block's "
            f"{len(block.writes)} writes by number"
        )
    return block.writes[number].buffer


class _Rewriter(Mutator):
    def __init__(self, wanted: dict[Var, Block]) -> None:
        self.wanted = wanted

    def visit_Expr(self, node: Expr) -> Expr:
        return node

    def visit_BlockRealize(self, node: BlockRealize) -> Stmt:
        made: BlockRealize = self.generic_visit(node)
        if DOUBLE_BUFFER not in made.block.annotations:
            return made
        rest = {k: v for k, v in made.block.annotations.items() if k != DOUBLE_BUFFER}
        return made.replace(block=made.block.replace(annotations=rest))

    def visit_For(self, node: For) -> Stmt:
        body = node.body
        own = set()
        while isinstance(body, Allocate):
            own.add(body.buffer.data)
            body = body.body
        chosen = [block for data, block in self.wanted.items() if data in own]
        made: For = self.generic_visit(node)
        if not chosen or node.kind != SERIAL:
            return made
        for data in own & set(self.wanted):
            del self.wanted[data]
        parts = body.stmts if isinstance(body, SeqStmt) else (body,)
        stages = [int(not any(item in chosen for item in pre_order(part))) for part in parts]
        if PIPELINE_STAGE in node.annotations or len(set(stages)) < 2:
            return made
        return made.replace(
            annotations={
                **made.annotations,
                PIPELINE_STAGE: stages,
                PIPELINE_ORDER: list(range(len(stages))),
            }
        )
