"""Rewriting what patterns match: one call at a time, or several bindings together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.ir import Expr, IRModule, Var, substitute
from tilewright.relax.analysis import remove_all_unused, use_counts, used_graph_vars
from tilewright.relax.branches import map_blocks
from tilewright.relax.dpl.context import Match, PatternContext
from tilewright.relax.dpl.matching import Bindings, Matching
from tilewright.relax.dpl.pattern import (
    CallPattern,
    ConstantPattern,
    DFPattern,
    ExprPattern,
    GlobalVarPattern,
    TuplePattern,
    WildcardPattern,
)
from tilewright.relax.expr import (
    Binding,
    Constant,
    DataflowBlock,
    DataflowVar,
    Function,
    FunctionRef,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    Tuple,
    TupleGetItem,
    VarBinding,
)
from tilewright.relax.rewriter import FunctionRewriter
from tilewright.relax.struct_info import StructInfo, TensorStructInfo, extents_of, prove_equal
from tilewright.support.errors import VerifyError

CallRewriter = Callable[[RelaxExpr, Match], RelaxExpr]
"""Takes the value that matched, and what each pattern matched; returns a value (or the same)."""

BindingsRewriter = Callable[[Match, Bindings], Mapping[RelaxVar, RelaxExpr]]
"""Takes what each pattern matched, and the block's bindings; returns new values of variables."""


class ValueRewriter(FunctionRewriter):
    """Rebuilds functions; ``self.values`` has the value of each new variable bound so far."""

    isolated = ("values",)

    def rewrite(self, function: Function) -> Function:
        """Rebuild one function."""
        self.values: dict[RelaxVar, RelaxExpr] = {}
        return super().rewrite(function)

    def rewrite_binding(self, binding: Binding) -> None:
        """Rebuild a binding and note its value."""
        if isinstance(binding, VarBinding):
            self.values[binding.var] = self.resolve(binding.value)
        super().rewrite_binding(binding)

    def bind(self, var: RelaxVar, value: RelaxExpr) -> None:
        """Bind a variable; another name of a variable is replaced by it within a block."""
        if isinstance(value, RelaxVar) and isinstance(var, DataflowVar):
            self.mapping[var] = value
            return
        value = self.builder.normalize(value)
        super().bind(var, value)
        self.values[self.mapping.get(var, var)] = value


class ReplacingRewriter(ValueRewriter):
    """Rebuilds functions, and removes what becomes unused."""

    def rewrite(self, function: Function) -> Function:
        """Rebuild one function."""
        self.uses = use_counts(function)
        made = super().rewrite(function)
        return made if made is function else remove_all_unused(made)

    def value_used_once(self, operand: RelaxExpr) -> RelaxExpr | None:
        """What a variable is bound to, if nothing else uses it."""
        if not isinstance(operand, RelaxVar) or self.uses.get(operand) != 1:
            return None
        return self.values.get(operand)


def rewrite_call(pattern: DFPattern, rewriter: CallRewriter, func: Function) -> Function:
    """Replace each value that matches ``pattern`` by what ``rewriter(value, matched)`` returns.

    ``matched`` maps patterns to operands as they stand in the graph: variables and constants, so
    using one computes nothing twice. Bindings that become unused are removed. Returning ``value``
    leaves it as it is; what a rewriter returns is not matched again.
    """
    made = _PatternRewriter([(pattern, rewriter)]).rewrite(func)
    return func if made is func else remove_all_unused(made)


class _PatternRewriter(ValueRewriter):
    def __init__(self, rules: Sequence[tuple[DFPattern, CallRewriter]]) -> None:
        super().__init__()
        self.rules = rules

    def rewrite_value(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        for pattern, rewriter in self.rules:
            matching = Matching(self.values)
            if matching.matches(pattern, value):
                found = {p: o for p, o in matching.found.items() if isinstance(o, RelaxExpr)}
                made = rewriter(value, found)
                if not isinstance(made, RelaxExpr):
                    raise VerifyError(
                        f"a rewriter returns a graph value, got {type(made).__name__} {made!r}"
                    )
                if made is not value:
                    return made
        return value


def rewrite_bindings(ctx: PatternContext, rewriter: BindingsRewriter, func: Function) -> Function:
    """Replace bindings of dataflow blocks where all patterns of a context match.

    ``rewriter(matched, bindings)`` returns new values by variable; ``{}`` leaves this match as it
    is. A value that was replaced is not looked at again. Bindings are put into an order that has
    what the new values use before them.

    Raises ``VerifyError`` if there is none, as a new value uses what depends on it.
    """
    body = map_blocks(
        func.body,
        lambda block: (
            _rewrite_block(ctx, rewriter, block) if isinstance(block, DataflowBlock) else block
        ),
    )
    if body is func.body:
        return func
    return remove_all_unused(_Renewer().rewrite(func.replace(body=body)))


def _rewrite_block(
    ctx: PatternContext, rewriter: BindingsRewriter, block: DataflowBlock
) -> DataflowBlock:
    replaced: dict[RelaxVar, RelaxExpr] = {}
    refused: set[tuple[int, ...]] = set()
    values = {b.var: b.value for b in block.bindings if isinstance(b, VarBinding)}
    progress = True
    while progress:
        progress = False
        for found in ctx.matches(block, replaced):
            key = tuple(map(id, found.values()))
            if key in refused:
                continue
            refused.add(key)
            made = rewriter(found, values)
            for var in made:
                if var not in values:
                    raise VerifyError(f"{var!r} can't be replaced: the block doesn't bind it")
            if made:
                replaced.update(made)
                progress = True
                break
    if not replaced:
        return block
    bindings = [
        VarBinding(b.var, replaced[b.var]) if b.var in replaced else b for b in block.bindings
    ]
    return DataflowBlock(tuple(in_dependency_order(bindings)))


def in_dependency_order(bindings: Sequence[Binding]) -> list[Binding]:
    """Order bindings so that each comes after those it uses, else as they were.

    Raises ``VerifyError`` if they use each other in a circle.
    """
    of = {binding.var: binding for binding in bindings}
    made: list[Binding] = []
    done: set[RelaxVar] = set()
    for first in bindings:
        way: list[tuple[Binding, list[RelaxVar]]] = []
        opened = {first.var}
        if first.var not in done:
            way.append((first, used_graph_vars(first.value)[::-1]))
        while way:
            binding, uses = way[-1]
            if not uses:
                way.pop()
                opened.discard(binding.var)
                done.add(binding.var)
                made.append(binding)
                continue
            var = uses.pop()
            if var in of and var not in done:
                if var in opened:
                    raise VerifyError(f"the new value of {var!r} depends on {var!r} itself")
                opened.add(var)
                way.append((of[var], used_graph_vars(of[var].value)[::-1]))
    return made


class _Renewer(FunctionRewriter):
    """Normalises values and infers struct info again."""

    def rewrite_binding(self, binding: Binding) -> None:
        if isinstance(binding, VarBinding):
            self.bind(binding.var, self.resolve(binding.value))
        else:
            super().rewrite_binding(binding)


class PatternMatchingRewriter:
    """A rewriter of functions and modules: patterns with what replaces them, in order of priority.

    ``rewriter(func)`` and ``rewriter(mod)`` apply it; ``a | b`` tries ``b`` where ``a`` doesn't
    apply.
    """

    def __init__(self, rules: Sequence[tuple[DFPattern, CallRewriter]]) -> None:
        self.rules = tuple(rules)

    @staticmethod
    def from_pattern(
        pattern: DFPattern, func: Callable[[RelaxExpr, Match], RelaxExpr | None]
    ) -> ExprPatternRewriter:
        """Make one of a pattern and a function: ``ExprPatternRewriter``."""
        return ExprPatternRewriter(pattern, func)

    @staticmethod
    def from_module(mod: IRModule) -> PatternMatchingRewriter:
        """Make one of a module with two graph functions, ``pattern`` and ``replacement``.

        Their parameters, the same in both, stand for any value of their dtype and shape; symbolic
        extents match any extent, the same one wherever they occur.

        Raises ``VerifyError`` if the functions or their parameters don't fit.
        """
        return _from_functions(mod)

    def __or__(self, other: PatternMatchingRewriter) -> OrRewriter:
        return OrRewriter(self, other)

    def __call__(self, target: Any) -> Any:
        """Rewrite a graph function, or all of a module."""
        if isinstance(target, IRModule):
            return target.map_functions(lambda _, function: self(function), Function)
        if not isinstance(target, Function):
            raise VerifyError(
                "a PatternMatchingRewriter takes a graph function or an IRModule, got "
                f"{type(target).__name__}"
            )
        made = _PatternRewriter(self.rules).rewrite(target)
        return target if made is target else remove_all_unused(made)


class ExprPatternRewriter(PatternMatchingRewriter):
    """A rewriter of one pattern by a function ``(value, matched) -> value``; ``None``: as it was.

    ``matched`` is as for :func:`rewrite_call`.
    """

    def __init__(
        self, pattern: DFPattern, func: Callable[[RelaxExpr, Match], RelaxExpr | None]
    ) -> None:
        self.pattern, self.func = pattern, func

        def rewrite(value: RelaxExpr, matched: Match) -> RelaxExpr:
            made = func(value, matched)
            return value if made is None else made

        super().__init__([(pattern, rewrite)])


class OrRewriter(PatternMatchingRewriter):
    """``lhs``, and where that doesn't apply ``rhs``."""

    def __init__(self, lhs: PatternMatchingRewriter, rhs: PatternMatchingRewriter) -> None:
        self.lhs, self.rhs = lhs, rhs
        super().__init__((*lhs.rules, *rhs.rules))


def _from_functions(mod: IRModule) -> PatternMatchingRewriter:
    if not isinstance(mod, IRModule):
        raise VerifyError(f"a rewriter is made of an IRModule, got {type(mod).__name__}")
    before, after = mod["pattern"], mod["replacement"]
    for name, function in (("pattern", before), ("replacement", after)):
        if not isinstance(function, Function):
            raise VerifyError(f"{name!r} must be a graph function, got {type(function).__name__}")
    if len(before.params) != len(after.params):
        raise VerifyError(
            f"pattern and replacement take the same parameters, got {len(before.params)} and "
            f"{len(after.params)}"
        )
    params: dict[RelaxVar, DFPattern] = {param: WildcardPattern() for param in before.params}
    root = _as_pattern(_nested(before), params)

    def rewrite(value: RelaxExpr, matched: Match) -> RelaxExpr | None:
        extents: dict[Var, Expr] = {}
        mapping: dict[Any, Any] = {}
        for old, new in zip(before.params, after.params):
            # A parameter that the pattern doesn't use has nothing that it could stand for.
            operand = matched.get(params[old])
            if operand is None or not _unify(old.struct_info, operand.struct_info, extents):
                return None
            own: dict[Var, Expr] = {}
            if not _unify(new.struct_info, operand.struct_info, own):
                return None
            mapping.update(own)
            mapping[new] = operand
        made: RelaxExpr = substitute(_nested(after), mapping)
        return made

    return PatternMatchingRewriter.from_pattern(root, rewrite)


def _nested(function: Function) -> RelaxExpr:
    """The result of a function as one expression over its parameters."""
    values: dict[RelaxVar, RelaxExpr] = {}
    for binding in function.bindings:
        if not isinstance(binding, VarBinding):
            raise VerifyError("a function that stands for a pattern has no match_cast")
        values[binding.var] = substitute(binding.value, values)
    result: RelaxExpr = substitute(function.body.body, values)
    return result


def _as_pattern(expr: RelaxExpr, known: dict[Any, DFPattern]) -> DFPattern:
    """The pattern of an expression; one object in it is one pattern."""
    if expr not in known:
        known[expr] = _new_pattern(expr, known)
    return known[expr]


def _new_pattern(expr: RelaxExpr, known: dict[Any, DFPattern]) -> DFPattern:
    if isinstance(expr, Constant):
        data = expr.data
        return _SameConstant(data.dtype.name, data.tobytes(), data.shape)
    if isinstance(expr, Tuple):
        return TuplePattern([_as_pattern(item, known) for item in expr.fields])
    if isinstance(expr, TupleGetItem):
        return _as_pattern(expr.tuple_value, known)[expr.index]
    if isinstance(expr, FunctionRef):
        return GlobalVarPattern(expr.name)
    if isinstance(expr, RelaxCall):
        args = [_as_pattern(arg, known) for arg in expr.args]
        return CallPattern(ExprPattern(expr.op), args).has_attr(expr.attrs)
    raise VerifyError(f"{expr!r} can't be part of a pattern that is given as a function")


class _SameConstant(ConstantPattern):
    """A constant of these values."""

    def __init__(self, dtype: str, data: bytes, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.expected = (dtype, data, shape)

    def ways(self, operand: RelaxExpr, matching: Matching) -> Any:
        """Compare contents."""
        found = matching.value(operand)
        if isinstance(found, Constant):
            data = found.data
            if (data.dtype.name, data.tobytes(), data.shape) == self.expected:
                yield


def _unify(want: StructInfo, have: StructInfo, extents: dict[Var, Expr]) -> bool:
    """Whether struct infos agree, symbolic extents of ``want`` being those noted for them."""
    if type(want) is not type(have):
        return False
    if isinstance(want, TensorStructInfo) and isinstance(have, TensorStructInfo):
        if want.dtype != have.dtype:
            return False
        if not want.has_shape:
            return want.ndim in (-1, have.ndim)
    ours, theirs = extents_of(want), extents_of(have)
    if len(ours) != len(theirs):
        return False
    for extent, actual in zip(ours, theirs):
        if type(extent) is Var:
            known = extents.setdefault(extent, actual)
        else:
            known = substitute(extent, extents)
        if not prove_equal(known, actual):
            return False
    return True
