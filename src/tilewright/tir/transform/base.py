"""What lowering passes share: a pass that maps each PrimFunc, and facts about loops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ClassVar

from tilewright.arith import Analyzer
from tilewright.ir import (
    TRUE,
    Expr,
    IntImm,
    IRModule,
    Mutator,
    Pass,
    Range,
    Var,
    annotated,
    contains,
    not_,
    pre_order,
)
from tilewright.tir.analysis.data_variables import know_data
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import BlockRealize, For, IfThenElse, SeqStmt, Stmt, seq


class FunctionTransform(Pass):
    """A pass that rewrites PrimFuncs one by one; others stay as they are."""

    def transform(self, mod: IRModule) -> IRModule:
        """Apply ``transform_function`` to each PrimFunc."""
        return mod.map_functions(lambda _, func: self.transform_function(func), PrimFunc)

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Return the rewritten function."""
        raise NotImplementedError(f"{type(self).__name__} must define transform_function(func)")


class SeqMutator(Mutator):
    """A mutator by which a statement may become several, or nothing: sequences stay flat."""

    def visit_SeqStmt(self, node: SeqStmt) -> Stmt:
        """Join what the statements have become."""
        made = node.map_children(self.visit)
        return node if made is node else seq(made)


class StmtMutator(SeqMutator):
    """A mutator of statements, which leaves expressions as they are."""

    def visit_Expr(self, node: Expr) -> Expr:
        """Don't go into an expression."""
        return node


class AnnotatedBlocks(Mutator):
    """A mutator that rewrites blocks with an ``annotation``, which goes; expressions stay."""

    annotation: ClassVar[str]

    def __init__(self, analyzer: Analyzer) -> None:
        self.analyzer = analyzer

    @classmethod
    def applied(cls, func: PrimFunc) -> PrimFunc:
        """Return the function with its annotated blocks rewritten."""
        if not contains(annotated(cls.annotation))(func.body):
            return func
        return func.map_children(cls(function_analyzer(func)).visit)

    def visit_Expr(self, node: Expr) -> Expr:
        """Don't go into an expression."""
        return node

    def visit_BlockRealize(self, node: BlockRealize) -> BlockRealize:
        """Rewrite the block if it is annotated."""
        known = node.block.annotations
        if not known.get(self.annotation):
            made: BlockRealize = self.generic_visit(node)
            return made
        rest = {key: value for key, value in known.items() if key != self.annotation}
        return self.rewritten(node.replace(block=node.block.replace(annotations=rest)))

    def rewritten(self, node: BlockRealize) -> BlockRealize:
        """Return what becomes of a block; its annotation is gone."""
        raise NotImplementedError(f"{type(self).__name__} must define rewritten(node)")


class Replacing(Mutator):
    """A mutator that puts ``values`` in place of variables."""

    values: dict[Var, Any]

    def visit_Var(self, node: Var) -> Any:
        """Return what stands for a variable."""
        return self.values.get(node, node)


def function_analyzer(func: PrimFunc) -> Analyzer:
    """Return an analyzer that knows that the sizes in a function's signature are not negative.

    Inside loops over them they are positive, which ``Analyzer.bind`` learns. It also knows the
    variables that stand for data.
    """
    analyzer = Analyzer()
    sizes = func.symbolic_vars()
    for var in sizes:
        analyzer.limit(var, 0)
    know_data(analyzer, func)
    return analyzer


def bind_loop(analyzer: Analyzer, loop: For) -> None:
    """Tell an analyzer the range of a loop's variable."""
    analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent), override=True)


def visit_branches(visitor: Any, analyzer: Analyzer, node: IfThenElse) -> tuple[Stmt, Stmt | None]:
    """Visit both branches of a condition, each knowing whether it holds."""
    with analyzer.constraint(node.condition):
        then_case = visitor.visit(node.then_case)
    if node.else_case is None:
        return then_case, None
    with analyzer.constraint(not_(node.condition)):
        return then_case, visitor.visit(node.else_case)


def inside_loop(
    analyzer: Analyzer, loop: For, minimum: Expr | None = None, extent: Expr | None = None
) -> AbstractContextManager[None]:
    """Know a loop's range in a ``with`` block.

    Inside, the loop runs at least once, which says something about its extent that need not hold
    outside. ``minimum`` and ``extent`` are the loop's ends in a better form.
    """
    minimum = loop.min if minimum is None else minimum
    extent = loop.extent if extent is None else extent
    domain = Range.from_min_extent(minimum, extent)
    if isinstance(extent, IntImm):
        analyzer.bind(loop.loop_var, domain, override=True)
        return nullcontext()  # nothing is learnt that doesn't hold outside
    return _known_inside(analyzer, loop.loop_var, domain)


@contextmanager
def _known_inside(analyzer: Analyzer, var: Var, domain: Range) -> Iterator[None]:
    with analyzer.constraint(TRUE):
        analyzer.bind(var, domain, override=True)
        yield


def is_positive_constant(expr: Expr) -> bool:
    """Whether an extent is a constant of at least one."""
    return isinstance(expr, IntImm) and expr.value >= 1


def uses_any(expr: Expr, variables: Iterable[Var]) -> bool:
    """Whether an expression uses one of some variables."""
    wanted = set(variables)
    return any(type(item) is Var and item in wanted for item in pre_order(expr))
