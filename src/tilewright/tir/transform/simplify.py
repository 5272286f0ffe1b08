"""Simplify expressions in the light of the loops and conditions around them; drop no-ops."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from tilewright.arith import Analyzer, Extension
from tilewright.ir import Expr, IntImm, Mutator, dtypes, not_, pass_option
from tilewright.tir.buffer import BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import (
    NO_OP,
    THREAD_BINDING,
    Allocate,
    AssertStmt,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    is_no_op,
    seq,
)
from tilewright.tir.transform.base import FunctionTransform, function_analyzer, inside_loop
from tilewright.tir.transform.effects import memory_read


@dataclass(frozen=True)
class StmtSimplifyConfig:
    """The pass option ``tir.StmtSimplify``: parts of the simplifier that must be there.

    The first and last always are; the second, a normal form of conditions, isn't.
    """

    transitively_prove_inequalities: bool = True
    convert_boolean_to_and_of_ors: bool = False
    apply_constraints_to_boolean_branches: bool = True


_OPTION = pass_option(
    "tir.StmtSimplify",
    StmtSimplifyConfig,
    StmtSimplifyConfig(),
    "Parts of the simplifier that `Simplify` must have.",
)


class Simplify(FunctionTransform):
    """Simplify index arithmetic and conditions; remove branches never taken and empty loops.

    Raises ``VerifyError`` if the pass option ``tir.StmtSimplify`` asks for more than there is.
    """

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        option = _OPTION.value()
        analyzer = function_analyzer(func)
        if option is not _OPTION.default:
            analyzer.enabled_extensions = _extensions(option)
        return func.map_children(StmtSimplifier(analyzer).visit)


def _extensions(option: StmtSimplifyConfig) -> Extension:
    chosen = (
        (option.transitively_prove_inequalities, Extension.TransitivelyProveInequalities),
        (option.convert_boolean_to_and_of_ors, Extension.ConvertBooleanToAndOfOrs),
        (option.apply_constraints_to_boolean_branches, Extension.ApplyConstraintsToBooleanBranches),
    )
    return reduce(or_, (part for wanted, part in chosen if wanted), Extension.NoExtensions)


StmtSimplify = Simplify  # TVM's name


class StmtSimplifier(Mutator):
    """Rewrites statements with an analyzer that learns on the way down."""

    def __init__(self, analyzer: Analyzer) -> None:
        self.analyzer = analyzer

    def visit_Expr(self, node: Expr) -> Expr:
        return self.analyzer.simplify(node)

    def visit_IntImm(self, node: IntImm) -> Expr:
        return node

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        indices = tuple(map(self.visit, node.indices))
        value = self.visit(node.value)
        if value is node.value and all(a is b for a, b in zip(indices, node.indices)):
            return node
        return BufferStore(node.buffer, value, indices)

    def visit_SeqStmt(self, node: SeqStmt) -> Stmt:
        stmts = tuple(map(self.visit, node.stmts))
        if all(a is b for a, b in zip(stmts, node.stmts)) and not any(map(is_no_op, stmts)):
            return node
        return seq(stmts)

    def visit_For(self, node: For) -> Any:
        """A loop without iterations goes, one of a single iteration is its body."""
        minimum, extent = self.visit(node.min), self.visit(node.extent)
        if isinstance(extent, IntImm):
            if extent.value <= 0:
                return NO_OP
            if extent.value == 1 and node.kind != THREAD_BINDING:
                if memory_read(minimum):
                    # The body may change what the start was read from.
                    self.analyzer.note_let(node.loop_var, minimum)
                    return LetStmt(node.loop_var, minimum, self.visit(node.body))
                self.analyzer.bind(node.loop_var, minimum, override=True)
                return self.visit(node.body)
        with inside_loop(self.analyzer, node, minimum, extent):
            body = self.visit(node.body)
        if is_no_op(body):
            return NO_OP
        if minimum is node.min and extent is node.extent and body is node.body:
            return node
        return node.replace(min=minimum, extent=extent, body=body)

    def visit_IfThenElse(self, node: IfThenElse) -> Stmt:
        """A branch whose condition is known is the side taken."""
        condition = self.visit(node.condition)
        if isinstance(condition, IntImm):
            taken = node.then_case if condition.value else node.else_case
            return NO_OP if taken is None else self.visit(taken)
        if dtypes.lanes_of(condition.dtype) > 1:
            then_case = self.visit(node.then_case)
            else_case = None if node.else_case is None else self.visit(node.else_case)
        else:
            with self.analyzer.constraint(condition):
                then_case = self.visit(node.then_case)
            else_case = None
            if node.else_case is not None:
                with self.analyzer.constraint(not_(condition)):
                    else_case = self.visit(node.else_case)
        if else_case is not None and is_no_op(else_case):
            else_case = None
        if is_no_op(then_case) and else_case is None and not _reads(condition):
            return NO_OP
        if (
            condition is node.condition
            and then_case is node.then_case
            and else_case is node.else_case
        ):
            return node
        return IfThenElse(condition, then_case, else_case)

    def visit_LetStmt(self, node: LetStmt) -> Any:
        """What is known of a definition is known in the body."""
        value = self.visit(node.value)
        if isinstance(value, IntImm):
            self.analyzer.bind(node.var, value, override=True)
            return self.visit(node.body)
        self.analyzer.note_let(node.var, value)
        body = self.visit(node.body)
        return (
            node
            if value is node.value and body is node.body
            else node.replace(value=value, body=body)
        )

    def visit_AssertStmt(self, node: AssertStmt) -> Stmt:
        """A check that can't fail goes."""
        condition = self.visit(node.condition)
        if isinstance(condition, IntImm) and condition.value:
            return NO_OP
        return node if condition is node.condition else node.replace(condition=condition)

    def visit_Allocate(self, node: Allocate) -> Stmt:
        body = self.visit(node.body)
        if is_no_op(body):
            return NO_OP
        return node if body is node.body else node.replace(body=body)


def _reads(expr: Any) -> bool:
    return isinstance(expr, BufferLoad) or any(map(_reads, expr.child_nodes()))
