"""Drop stores of ``T.undef()``: memory that such a store leaves alone holds any value as well."""

from __future__ import annotations

from typing import Any

from tilewright.ir import Call, Expr, Var, pre_order
from tilewright.support.errors import LowerError
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import NO_OP, BufferStore, LetStmt, Stmt
from tilewright.tir.transform.base import FunctionTransform, SeqMutator
from tilewright.tir.transform.effects import is_pure


class RemoveStoreUndef(FunctionTransform):
    """Remove stores whose value is made of ``T.undef()``, also through a variable.

    Raises ``LowerError`` where ``T.undef()`` is used for anything else, or if such a value or the
    indices of its store have side effects.
    """

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        return func.map_children(_Remover().visit)


class _Remover(SeqMutator):
    def __init__(self) -> None:
        self.undefined: set[Any] = set()

    def _holds_undef(self, expr: Expr) -> bool:
        return any(
            item in self.undefined
            if type(item) is Var
            else type(item) is Call and item.op.name == "undef"
            for item in pre_order(expr)
        )

    def visit_LetStmt(self, node: LetStmt) -> Stmt:
        if not self._holds_undef(node.value):
            return self.generic_visit(node)
        _require_pure(node.value, f"value of {node.var.name}")
        self.undefined.add(node.var)
        return self.visit(node.body)  # type: ignore[no-any-return]

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        if not self._holds_undef(node.value):
            return self.generic_visit(node)
        _require_pure(node.value, f"value stored in {node.buffer.name}")
        for index in node.indices:
            self.visit(index)
            _require_pure(index, f"index of a store of an undefined value in {node.buffer.name}")
        return NO_OP

    def visit_Expr(self, node: Expr) -> Expr:
        if self._holds_undef(node):
            raise LowerError(
                f"RemoveStoreUndef: `{node!r}` uses T.undef() for more than a value to store"
            )
        return node


def _require_pure(expr: Expr, what: str) -> None:
    if not is_pure(expr):
        raise LowerError(
            f"RemoveStoreUndef: the {what} goes with the store, but has side effects, `{expr!r}`; "
            "compute it in a statement before"
        )
