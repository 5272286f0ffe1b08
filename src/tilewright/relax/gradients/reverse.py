"""Reverse accumulation: from the gradient of a result to those of what it depends on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tilewright.ir import GlobalVar, dtypes
from tilewright.relax import ops as op
from tilewright.relax.analysis import used_graph_vars
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.expr import (
    Binding,
    MatchCast,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    Tuple,
    TupleGetItem,
    VarBinding,
    is_atom,
)
from tilewright.relax.gradients.registry import DECOMPOSITIONS, GRADIENTS
from tilewright.relax.registry import RelaxOp
from tilewright.relax.struct_info import (
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    same_struct_info,
)
from tilewright.support.errors import VerifyError
from tilewright.support.registry import near_matches

Adjoint = Any
"""A gradient: an expression, a list of gradients for a tuple, ``None`` for zero."""


def has_gradient(info: StructInfo) -> bool:
    """Whether a value consists of floating-point tensors, at least partly."""
    if isinstance(info, TupleStructInfo):
        return any(map(has_gradient, info.fields_))
    return isinstance(info, TensorStructInfo) and dtypes.is_float(info.dtype)


class Reverse:
    """Gradients of variables, accumulated from the last binding to the first."""

    def __init__(self, builder: BlockBuilder, wanted: Iterable[RelaxVar]) -> None:
        self.builder = builder
        self.depends = set(wanted)
        """Variables whose gradients are wanted, or needed on the way."""
        self.adjoints: dict[RelaxVar, Adjoint] = {}

    def run(self, bindings: Sequence[Binding], result: RelaxExpr, adjoint: Adjoint) -> None:
        """Go back from the gradient of a result through the bindings that make it."""
        for binding in bindings:
            if any(var in self.depends for var in used_graph_vars(binding.value)):
                self.depends.add(binding.var)
        self.add(result, adjoint)
        for binding in reversed(bindings):
            adjoint = self.adjoints.get(binding.var)
            if adjoint is not None and binding.var in self.depends:
                self.pass_on(binding, adjoint)

    def pass_on(self, binding: Binding, adjoint: Adjoint) -> None:
        """Add what the gradient of a binding's variable gives its operands."""
        value, var = binding.value, binding.var
        if isinstance(binding, MatchCast):
            have = value.struct_info
            if not same_struct_info(have, binding.struct_info) and isinstance(adjoint, RelaxExpr):
                adjoint = self.builder.match_cast(adjoint, have)
            self.add(value, adjoint)
        elif isinstance(value, RelaxCall):
            self.through_call(var, value, self.bound(adjoint, f"{var.name}_adjoint"))
        elif isinstance(value, TupleGetItem):
            info = value.tuple_value.struct_info
            assert isinstance(info, TupleStructInfo)
            parts: list[Adjoint] = [None] * len(info.fields_)
            parts[value.index] = adjoint
            self.add(value.tuple_value, parts)
        else:
            self.add(value, adjoint)

    def bound(self, adjoint: Adjoint, name: str) -> Adjoint:
        """An adjoint whose expressions are variables."""
        if isinstance(adjoint, list):
            return [self.bound(item, name) for item in adjoint]
        if adjoint is None or is_atom(adjoint):
            return adjoint
        return self.builder.emit(adjoint, name)

    def add(self, expr: RelaxExpr, adjoint: Adjoint) -> None:
        """Add to the gradient of an operand."""
        if adjoint is None:
            return
        if isinstance(expr, Tuple):
            parts = adjoint.items if isinstance(adjoint, Tuple) else adjoint
            for item, part in zip(expr.items, parts):
                self.add(item, part)
        elif isinstance(expr, RelaxVar) and expr in self.depends and has_gradient(expr.struct_info):
            self.adjoints[expr] = self.sum(self.adjoints.get(expr), adjoint)

    def sum(self, a: Adjoint, b: Adjoint) -> Adjoint:
        """The sum of two gradients of one value."""
        if a is None or b is None:
            return b if a is None else a
        if not any(isinstance(item, (list, Tuple)) for item in (a, b)):
            return op.add(a, b)
        return [self.sum(x, y) for x, y in zip(_items(a), _items(b))]

    def through_call(self, var: RelaxVar, call: RelaxCall, adjoint: Adjoint) -> None:
        """Apply the rule of a call's operator."""
        if not isinstance(call.op, RelaxOp):
            what = call.op.name if isinstance(call.op, GlobalVar) else repr(call.op)
            raise VerifyError(
                f"the call of {what} has no gradient: run relax.transform.InlineFunctions first"
            )
        name = call.op.name
        rule = GRADIENTS.get(name)
        if rule is None:
            self.through_decomposition(var, call, adjoint)
            return
        made = rule(var, call, filled(adjoint, var.struct_info), self.builder)
        if len(made) != len(call.args):
            raise VerifyError(
                f"the gradient of {name} must have one item for each of its {len(call.args)} "
                f"arguments, it has {len(made)}"
            )
        for arg, part in zip(call.args, made):
            self.add(arg, part)

    def through_decomposition(self, var: RelaxVar, call: RelaxCall, adjoint: Adjoint) -> None:
        """Compute a call again by simpler operators, and go back through these."""
        decompose = DECOMPOSITIONS.get(call.op.name, call.op.decompose)
        made = None if decompose is None else decompose(call)
        if made is None:
            raise VerifyError(
                f"operator {call.op.name} has no gradient, and {var.name} needs it; "
                "relax.gradients.register_gradient adds one, op.grad.no_grad stops gradients; "
                + near_matches(call.op.name, [*GRADIENTS, *DECOMPOSITIONS])
            )
        bindings: list[Binding] = []
        result = linear(self.builder, made, bindings, {})
        inner = Reverse(self.builder, self.depends)
        inner.run(bindings, result, adjoint)
        own = {binding.var for binding in bindings}
        for name, part in inner.adjoints.items():
            if name not in own:
                self.add(name, part)


def filled(adjoint: Adjoint, info: StructInfo) -> Any:
    """A gradient as an expression: zeros where nothing flows back, a ``Tuple`` of tuples."""
    if isinstance(info, TupleStructInfo):
        parts = [None] * len(info.fields_) if adjoint is None else _items(adjoint)
        return Tuple(tuple(filled(part, field) for part, field in zip(parts, info.fields_)))
    if adjoint is not None:
        return adjoint
    if not isinstance(info, TensorStructInfo) or not info.has_shape:
        raise VerifyError(f"the gradient of {info!r} is zeros of an unknown shape")
    return op.zeros(info.shape, info.dtype)


def _items(adjoint: Adjoint) -> list[Any]:
    return list(adjoint.items if isinstance(adjoint, Tuple) else adjoint)


def linear(
    builder: BlockBuilder,
    expr: RelaxExpr,
    bindings: list[Binding],
    known: dict[RelaxExpr, RelaxExpr],
) -> RelaxExpr:
    """Emit an expression, operands first and each once, and list the bindings."""

    def of(item: Any) -> Any:
        return known.get(item, item) if isinstance(item, RelaxExpr) else item

    # No recursion: the steps of a recurrent layer are as deep as they are many.
    waiting = [expr]
    while waiting:
        item = waiting[-1]
        missing = [
            operand
            for operand in item.child_nodes()
            if isinstance(operand, RelaxExpr) and not is_atom(operand) and operand not in known
        ]
        if missing:
            waiting += missing
            continue
        waiting.pop()
        if item in known or is_atom(item):
            continue
        value = item.map_children(of)
        if isinstance(item, Tuple):
            known[item] = value
            continue
        var = known[item] = builder.emit(value)
        bindings.append(VarBinding(value, var))
    made: RelaxExpr = of(expr)
    return made
