"""Drop what the program states by ``T.assume``, once no pass asks any more."""

from __future__ import annotations

from tilewright.ir import Call
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import NO_OP, Evaluate, For, IfThenElse, Stmt, is_no_op
from tilewright.tir.transform.base import FunctionTransform, StmtMutator


class RemoveAssume(FunctionTransform):
    """Remove the statements ``T.assume(condition)``, and loops and branches of nothing else."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        return func.map_children(_Remover().visit)


def is_assumption(stmt: Stmt) -> bool:
    """Whether a statement says what holds, by ``T.assume``."""
    return (
        isinstance(stmt, Evaluate)
        and isinstance(stmt.value, Call)
        and stmt.value.op.name == "assume"
    )


class _Remover(StmtMutator):
    def visit_Evaluate(self, node: Evaluate) -> Stmt:
        return NO_OP if is_assumption(node) else node

    def visit_For(self, node: For) -> Stmt:
        made: For = self.generic_visit(node)
        return NO_OP if made is not node and is_no_op(made.body) else made

    def visit_IfThenElse(self, node: IfThenElse) -> Stmt:
        made: IfThenElse = self.generic_visit(node)
        if made is node or not is_no_op(made.then_case):
            return made
        empty = made.else_case is None or is_no_op(made.else_case)
        return NO_OP if empty else made
