"""Move conditions and bound values out of loops on which they don't depend.

    for i:                       if n > 3:
        let v = m * 2                let v = m * 2
        if n > 3:           ──>      for i: A[i] = v
            A[i] = v

``HoistInvariants`` does this where it pays; here the user says what is hoisted, and all of that is,
until copies of loops have grown to several hundred statements. Nothing is evaluated that might not
have been, unless it is proven not to trap.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from tilewright.ir import Expr, Let, Mutator, Var, pass_option, pre_order
from tilewright.support.errors import VerifyError
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import THREAD_BINDING, For, LetStmt, Stmt
from tilewright.tir.transform.base import FunctionTransform, SeqMutator, inside_loop
from tilewright.tir.transform.effects import may_trap
from tilewright.tir.transform.hoist import (
    LoopMutator,
    Unswitcher,
    conditions_below,
    defined_below,
    is_invariant,
)

_MOST_COPIED = 256
"""Stores and calls that copies of loops may add to a function: each condition may double them."""


class HoistedConditionals(enum.Flag):
    """Which conditions are hoisted.

    Of branches, of conditional values, and those that use variables of threads or virtual threads.
    """

    Never = 0
    IfElseStmt = 1
    IfElseExpr = 2
    BooleanExpression = 4
    UsingBlockVar = 8
    All = 15


class HoistedLetBindings(enum.Flag):
    """Which bound values are hoisted: those a hoisted condition needs, statements, expressions."""

    Never = 0
    RequiredByConditional = 1
    Bind = 2
    LetExpr = 4
    All = 7
    RequiredByCondition = RequiredByConditional  # older names
    LetStmt = Bind


@dataclass(frozen=True)
class HoistExpressionConfig:
    """The pass option ``tir.HoistExpression``: what the pass hoists if it isn't told itself."""

    hoisted_conditionals: HoistedConditionals | int = HoistedConditionals.All
    hoisted_let_bindings: HoistedLetBindings | int = HoistedLetBindings.All


@dataclass(frozen=True)
class HoistIfThenElseConfig:
    """The pass option ``tir.HoistIfThenElse``: are branches on variables of threads hoisted?"""

    support_block_scope_hoisting: bool = False


_EXPRESSION = pass_option(
    "tir.HoistExpression",
    HoistExpressionConfig,
    HoistExpressionConfig(),
    "What `HoistExpression` hoists.",
)
_IF_THEN_ELSE = pass_option(
    "tir.HoistIfThenElse",
    HoistIfThenElseConfig,
    HoistIfThenElseConfig(),
    "Whether `HoistIfThenElse` hoists branches on variables of threads.",
)


class HoistExpression(FunctionTransform):
    """Hoist loop-invariant conditions and bound values out of loops.

    Loops are copied for the other side of a condition. ``BooleanExpression`` is about parts of a
    conjunction, which are conditions of their own anyway. What isn't given is said by the pass
    option ``tir.HoistExpression``, a ``HoistExpressionConfig``.
    """

    def __init__(
        self,
        hoisted_conditionals: HoistedConditionals | int | None = None,
        hoisted_let_bindings: HoistedLetBindings | int | None = None,
    ) -> None:
        self.hoisted_conditionals = hoisted_conditionals
        self.hoisted_let_bindings = hoisted_let_bindings

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        option = _EXPRESSION.value()
        kinds, bindings = self.hoisted_conditionals, self.hoisted_let_bindings
        kinds = HoistedConditionals(option.hoisted_conditionals if kinds is None else kinds)
        bindings = HoistedLetBindings(option.hoisted_let_bindings if bindings is None else bindings)
        if bindings:
            needed = _conditions(func, kinds) if not (bindings & ~_REQUIRED) else None
            func = func.map_children(_LetHoister(func, bindings, needed).visit)
        if kinds:
            func = func.map_children(_ConditionHoister(func, kinds).visit)
        return func


class HoistIfThenElse(FunctionTransform):
    """Hoist loop-invariant branches out of loops.

    Branches on variables of threads stay where they are, unless ``support_block_scope_hoisting`` of
    the pass option ``tir.HoistIfThenElse`` says otherwise; with the ``variant`` ``"basic"`` always.

    Raises ``VerifyError`` for another variant.
    """

    def __init__(self, variant: str | None = None) -> None:
        if variant not in (None, "basic"):
            raise VerifyError(
                f"HoistIfThenElse: the variant {variant!r} is unknown; it is None or 'basic'"
            )
        self.variant = variant

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        kinds = HoistedConditionals.IfElseStmt
        if self.variant is None and _IF_THEN_ELSE.value().support_block_scope_hoisting:
            kinds |= HoistedConditionals.UsingBlockVar
        return func.map_children(_ConditionHoister(func, kinds).visit)


_REQUIRED = HoistedLetBindings.RequiredByConditional


class _ConditionHoister(Unswitcher):
    def __init__(self, func: PrimFunc, kinds: HoistedConditionals) -> None:
        super().__init__(func, _MOST_COPIED)
        self.kinds = kinds
        self.threads = {
            item.loop_var
            for item in pre_order(func.body)
            if isinstance(item, For) and item.kind == THREAD_BINDING
        }

    def candidates(self, body: Stmt) -> list[Expr]:
        found = conditions_below(
            body,
            bool(self.kinds & HoistedConditionals.IfElseStmt),
            bool(self.kinds & HoistedConditionals.IfElseExpr),
        )
        if self.kinds & HoistedConditionals.UsingBlockVar:
            return found
        return [item for item in found if not _uses(item, self.threads)]


def _uses(expr: Expr, variables: set[Var]) -> bool:
    return any(item in variables for item in pre_order(expr) if type(item) is Var)


def _conditions(func: PrimFunc, kinds: HoistedConditionals) -> set[Var]:
    """The variables in conditions that are to be hoisted."""
    found = conditions_below(
        func.body,
        bool(kinds & HoistedConditionals.IfElseStmt),
        bool(kinds & HoistedConditionals.IfElseExpr),
    )
    return {item for condition in found for item in pre_order(condition) if type(item) is Var}


class _LetHoister(LoopMutator):
    """Moves bindings before the outermost loop in which their values don't change."""

    def __init__(self, func: PrimFunc, kinds: HoistedLetBindings, needed: set[Var] | None) -> None:
        super().__init__(func)
        self.kinds = kinds
        self.needed = needed

    def visit_For(self, node: For) -> Stmt:
        with inside_loop(self.analyzer, node):
            body = self.visit(node.body)
        made = node if body is node.body else node.replace(body=body)
        if node.kind == THREAD_BINDING:
            return made
        bindings: list[tuple[Var, Expr]] = []
        while True:  # what depended on a binding may not depend on the loop either
            taker = _Taker(self, made)
            body = taker.visit(made.body)
            if not taker.found:
                break
            made = made.replace(body=body)
            bindings += taker.found
        result: Stmt = made
        for var, value in reversed(bindings):
            result = LetStmt(var, value, result)
        return result

    def wants(self, node: Any) -> bool:
        """Whether a binding is of a kind that is hoisted."""
        if self.kinds & (HoistedLetBindings.Bind if type(node) is LetStmt else _LET_EXPR):
            return True
        return bool(self.kinds & _REQUIRED) and (self.needed is None or node.var in self.needed)


_LET_EXPR = HoistedLetBindings.LetExpr


class _Taker(SeqMutator):
    """Takes the invariant bindings out of a loop's body."""

    def __init__(self, hoister: _LetHoister, loop: For) -> None:
        self.hoister = hoister
        self.loop = loop
        self.inside = defined_below(loop)
        self.found: list[tuple[Var, Expr]] = []

    def _take(self, node: Any) -> bool:
        hoister = self.hoister
        if not (
            hoister.wants(node)
            and is_invariant(node.value, self.inside, self.loop, hoister.effects)
            and not may_trap(node.value, hoister.analyzer)
        ):
            return False
        self.found.append((node.var, node.value))
        return True

    def visit_LetStmt(self, node: LetStmt) -> Stmt:
        if self._take(node):
            return self.visit(node.body)  # type: ignore[no-any-return]
        return self.generic_visit(node)

    def visit_Let(self, node: Let) -> Any:
        if self._take(node):
            return self.visit(node.body)
        return Mutator.generic_visit(self, node)
