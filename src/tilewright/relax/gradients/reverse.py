"""Reverse accumulation: from the gradient of a result to those of what it depends on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tilewright.ir import GlobalVar, dtypes, substitute
from tilewright.relax import ops as op
from tilewright.relax.analysis import used_graph_vars
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.branches import If
from tilewright.relax.expr import (
    Binding,
    MatchCast,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    SeqExpr,
    Tuple,
    TupleGetItem,
    VarBinding,
    is_atom,
)
from tilewright.relax.gradients.registry import DECOMPOSITIONS, GRADIENTS
from tilewright.relax.registry import RelaxOp, is_call_to, usual_form
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
        return any(map(has_gradient, info.fields))
    return isinstance(info, TensorStructInfo) and dtypes.is_float(info.dtype)


class Reverse:
    """Gradients of variables, accumulated from the last binding to the first."""

    def __init__(self, builder: BlockBuilder, wanted: Iterable[RelaxVar]) -> None:
        self.builder = builder
        self.depends = set(wanted)
        """Variables whose gradients are wanted, or needed on the way."""
        self.adjoints: dict[RelaxVar, Adjoint] = {}
        self.bindings: Sequence[Binding] = ()

    def run(self, bindings: Sequence[Binding], result: RelaxExpr, adjoint: Adjoint) -> None:
        """Go back from the gradient of a result through the bindings that make it."""
        self.bindings = bindings
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
        elif is_call_to(value, "grad.end_checkpoint"):
            assert isinstance(value, RelaxCall)
            self.through_checkpoint(value.args[0], self.bound(adjoint, f"{var.name}_adjoint"))
        elif isinstance(value, RelaxCall):
            self.through_call(var, value, self.bound(adjoint, f"{var.name}_adjoint"))
        elif isinstance(value, If):
            self.through_branches(value, adjoint, var)
        elif isinstance(value, TupleGetItem):
            info = value.tuple_value.struct_info
            assert isinstance(info, TupleStructInfo)
            parts: list[Adjoint] = [None] * len(info.fields)
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
            parts = adjoint.fields if isinstance(adjoint, Tuple) else adjoint
            for item, part in zip(expr.fields, parts):
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
        name = call.op.key
        plain = usual_form(call)
        if plain is not None:
            self.through_expression(plain, adjoint)
            return
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
        decompose = DECOMPOSITIONS.get(call.op.key, call.op.decompose)
        made = None if decompose is None else decompose(call)
        if made is None:
            raise VerifyError(
                f"operator {call.op.key} has no gradient, and {var.name} needs it; "
                "relax.gradients.register_gradient adds one, op.grad.no_grad stops gradients; "
                + near_matches(call.op.key, [*GRADIENTS, *DECOMPOSITIONS])
            )
        self.through_expression(made, adjoint)

    def through_expression(self, made: RelaxExpr, adjoint: Adjoint) -> None:
        """Compute what a call is again, and go back through it."""
        bindings: list[Binding] = []
        result = linear(self.builder, made, bindings, {})
        inner = Reverse(self.builder, self.depends)
        inner.run(bindings, result, adjoint)
        own = {binding.var for binding in bindings}
        for name, part in inner.adjoints.items():
            if name not in own:
                self.add(name, part)

    def through_checkpoint(self, value: RelaxExpr, adjoint: Adjoint) -> None:
        """Compute what lies between marks again, and go back through that."""
        bindings: list[Binding] = []
        mapping: dict[RelaxExpr, RelaxExpr] = {}
        for binding in self.marked(value):
            again = renewed(self.builder, binding.value, mapping)
            if isinstance(binding, MatchCast):
                var = self.builder.match_cast(again, binding.struct_info, binding.var.name)
            else:
                var = self.builder.emit(again, binding.var.name)
            mapping[binding.var] = var
            bindings.append(binding.replace(value=again, var=var))
        inner = Reverse(self.builder, self.depends)
        inner.run(bindings, substitute(value, mapping), adjoint)
        for name, part in inner.adjoints.items():
            if name not in mapping.values():
                self.add(name, part)

    def marked(self, value: RelaxExpr) -> list[Binding]:
        """The bindings that a value depends on, back to marks of either kind, in order."""
        needed = set(used_graph_vars(value))
        found: list[Binding] = []
        for binding in reversed(self.bindings):
            marks = ("grad.start_checkpoint", "grad.end_checkpoint")
            if binding.var in needed and not any(is_call_to(binding.value, m) for m in marks):
                found.append(binding)
                needed.update(used_graph_vars(binding.value))
        return found[::-1]

    def through_branches(self, value: If, adjoint: Adjoint, var: RelaxVar) -> None:
        """Compute the branch that was taken again, and go back through it."""
        wanted = [
            v for v in used_graph_vars(value) if v in self.depends and has_gradient(v.struct_info)
        ]
        if not wanted:
            return
        given = filled(adjoint, var.struct_info)
        # Bound before, so that both branches see it.
        bound = self.bound(list(given.fields) if isinstance(given, Tuple) else given, var.name)

        def back(branch: SeqExpr) -> RelaxExpr:
            bindings, result = emit_again(self.builder, branch, {})
            inner = Reverse(self.builder, self.depends)
            inner.run(bindings, result, self.cast(bound, result.struct_info))
            found = (filled(inner.adjoints.get(v), v.struct_info) for v in wanted)
            return Tuple(tuple(found))

        first, second = value.branches
        made = self.builder.emit_if(
            value.cond, lambda: back(first), lambda: back(second), f"{var.name}_adjoint"
        )
        for number, name in enumerate(wanted):
            self.add(name, TupleGetItem(made, number))

    def cast(self, adjoint: Adjoint, info: StructInfo) -> Adjoint:
        """A gradient with the shape that is known of what it is the gradient of."""
        known = isinstance(info, TensorStructInfo) and isinstance(adjoint, RelaxExpr)
        if not known or same_struct_info(adjoint.struct_info, info):
            return adjoint
        return self.builder.match_cast(adjoint, info)


def emit_again(
    builder: BlockBuilder, body: SeqExpr, mapping: dict[RelaxExpr, RelaxExpr]
) -> tuple[list[Binding], RelaxExpr]:
    """Emit what a body binds, to new variables; give the bindings and the result."""
    made = []
    for binding in (item for block in body.blocks for item in block.bindings):
        var = RelaxVar(binding.var.name, binding.var.struct_info)
        made.append(binding.replace(value=renewed(builder, binding.value, mapping), var=var))
        builder.emit_binding(made[-1])
        mapping[binding.var] = var
    result: RelaxExpr = substitute(body.body, mapping)
    return made, result


def renewed(
    builder: BlockBuilder, value: RelaxExpr, mapping: dict[RelaxExpr, RelaxExpr]
) -> RelaxExpr:
    """A value with its variables replaced; branches bind variables of their own."""
    if not isinstance(value, If):
        made: RelaxExpr = substitute(value, mapping)
        return made

    def again(branch: SeqExpr) -> SeqExpr:
        return builder.build_branch(lambda: emit_again(builder, branch, dict(mapping))[1])

    return If(substitute(value.cond, mapping), *map(again, value.branches))


def filled(adjoint: Adjoint, info: StructInfo) -> Any:
    """A gradient as an expression: zeros where nothing flows back, a ``Tuple`` of tuples."""
    if isinstance(info, TupleStructInfo):
        parts = [None] * len(info.fields) if adjoint is None else _items(adjoint)
        return Tuple(tuple(filled(part, field) for part, field in zip(parts, info.fields)))
    if adjoint is not None:
        return adjoint
    if not isinstance(info, TensorStructInfo) or not info.has_shape:
        raise VerifyError(f"the gradient of {info!r} is zeros of an unknown shape")
    return op.zeros(info.shape, info.dtype)


def _items(adjoint: Adjoint) -> list[Any]:
    return list(adjoint.fields if isinstance(adjoint, Tuple) else adjoint)


def linear(
    builder: BlockBuilder,
    expr: RelaxExpr,
    bindings: list[Binding],
    known: dict[RelaxExpr, RelaxExpr],
) -> RelaxExpr:
    """Emit an expression, operands first and each once, and list the bindings."""

    def of(item: object) -> Any:
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
        bindings.append(VarBinding(var, value))
    made: RelaxExpr = of(expr)
    return made
