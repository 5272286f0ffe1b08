"""TVM's module of functions over statements; they are those of ``tir.functor``."""

from __future__ import annotations

from tilewright.tir.functor import (
    StmtExprMutator,
    StmtExprVisitor,
    StmtFunctor,
    StmtMutator,
    StmtVisitor,
    ir_transform,
    post_order_visit,
    pre_order_visit,
    renew_defs,
    substitute,
)

__all__ = [
    "StmtExprMutator", "StmtExprVisitor", "StmtFunctor", "StmtMutator", "StmtVisitor",
    "ir_transform", "post_order_visit", "pre_order_visit", "renew_defs", "substitute",
]  # fmt: skip
