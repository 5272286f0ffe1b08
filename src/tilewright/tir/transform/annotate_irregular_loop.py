"""Mark loops that are left early, so that later passes keep their order and their form."""

from __future__ import annotations

from tilewright.support.errors import LowerError
from tilewright.tir.attrs import IRREGULAR_LOOP
from tilewright.tir.function import PrimFunc
from tilewright.tir.loop_exits import own_exits
from tilewright.tir.stmt import SERIAL, For, Stmt
from tilewright.tir.transform.base import FunctionTransform, StmtMutator


class AnnotateIrregularLoop(FunctionTransform):
    """Annotate each loop that has a ``break`` or a ``continue`` with ``irregular_loop_mark``.

    Raises ``LowerError`` where such a loop is no serial one: its iterations have an order.
    """

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        return func.map_children(_Annotator().visit)


class _Annotator(StmtMutator):
    def visit_For(self, node: For) -> Stmt:
        made: For = self.generic_visit(node)
        exits = own_exits(made.body)
        if not exits:
            return made
        if made.kind != SERIAL:
            raise LowerError(
                f"AnnotateIrregularLoop: the {made.kind} loop {made.loop_var.name} is left by "
                f"{' and '.join(sorted(exits))}; only a serial loop can be"
            )
        return made.replace(annotations={**made.annotations, IRREGULAR_LOOP: 1})
