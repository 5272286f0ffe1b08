"""The gradients of operators: one rule for each, under the operator's name.

A rule takes the variable that a call is bound to, the call, the gradient of the variable and the
block builder, and gives the gradient of each operand::

    @register_gradient("tanh")
    def tanh(orig_var, orig_call, output_grad, ctx):
        return [output_grad * (1.0 - orig_var * orig_var)]

It returns expressions, in A-normal form or not, one for each argument of the call; ``None`` where
nothing flows back. The gradient of a variable that is a tuple is a ``Tuple``; that of an operand
that is a tuple a list. Operators without a rule that have a ``decompose`` are differentiated as
what they decompose to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.expr import RelaxCall, RelaxExpr, RelaxVar
from tilewright.support.errors import VerifyError

Gradients = Sequence[Any]
"""One for each argument: an expression, ``None``, or a list of these for a tuple."""

GradientRule = Callable[[RelaxVar, RelaxCall, Any, BlockBuilder], Gradients]

GRADIENTS: dict[str, GradientRule] = {}
"""Rules by the name of the operator."""

_LEVELS: dict[str, int] = {}
"""The level of the rule of each operator that states one."""

_USUAL_LEVEL = 10

DECOMPOSITIONS: dict[str, Callable[[RelaxCall], RelaxExpr]] = {}
"""For operators whose gradient is that of other operators: what computes the same."""

Rule = TypeVar("Rule", bound=GradientRule)
Decomposition = TypeVar("Decomposition", bound=Callable[[RelaxCall], RelaxExpr])


@overload
def register_gradient(
    op_name: str, fgradient: None = None, level: int = 10, *, override: bool = False
) -> Callable[[Rule], Rule]: ...


@overload
def register_gradient(
    op_name: str, fgradient: GradientRule, level: int = 10, *, override: bool = False
) -> GradientRule: ...


def register_gradient(
    op_name: str, fgradient: GradientRule | None = None, level: int = 10, *, override: bool = False
) -> Any:
    """Register the rule of an operator; a decorator without ``fgradient``.

    Of two rules the one with the higher ``level`` is taken; those here are of level 10.

    Raises ``VerifyError`` for an operator that has a rule of that level, unless it is to
    ``override`` it.
    """

    def declare(rule: Rule) -> Rule:
        name = op_name.removeprefix("relax.")
        if name in GRADIENTS or name in DECOMPOSITIONS:
            present = _LEVELS.get(name, _USUAL_LEVEL)
            if level < present and not override:
                return rule
            if level == present and not override:
                raise VerifyError(
                    f"operator {name} has a gradient; override=True or a level above {level} "
                    "replaces it"
                )
        _LEVELS[name] = level
        DECOMPOSITIONS.pop(name, None)
        GRADIENTS[name] = rule
        return rule

    return declare if fgradient is None else declare(fgradient)


def differentiate_as(op_name: str) -> Callable[[Decomposition], Decomposition]:
    """Register what computes the same as an operator, of operators that have rules.

    The backward pass computes it again, so the forward one keeps the operator and stores nothing.
    """

    def declare(decomposition: Decomposition) -> Decomposition:
        DECOMPOSITIONS[op_name] = decomposition
        return decomposition

    return declare


def without_gradient(*names: str) -> None:
    """Register operators through which nothing flows back."""
    for name in names:
        register_gradient(name, lambda var, call, grad, ctx: [None] * len(call.args))
