"""What a function computes from its weights alone: parameters after the first ``num_input``."""

from __future__ import annotations

from tilewright.ir import free_vars
from tilewright.relax.analysis.uses import is_impure, used_graph_vars
from tilewright.relax.expr import Function, MatchCast, RelaxVar
from tilewright.relax.struct_info import defined_vars
from tilewright.support.errors import VerifyError

NUM_INPUT = "num_input"
"""Attribute of graph functions: the number of parameters that differ from call to call.

Those after them are weights.
"""


def weights_of(function: Function) -> tuple[RelaxVar, ...]:
    """Return the parameters after the first ``num_input``.

    Raises ``VerifyError`` if the attribute is no number of parameters.
    """
    count = function.attrs[NUM_INPUT]
    if not isinstance(count, int) or not 0 <= count <= len(function.params):
        raise VerifyError(
            f"{NUM_INPUT} must be from 0 to {len(function.params)}, the number of parameters; "
            f"found {count!r}"
        )
    return function.params[count:]


def computable_at_compile_time(func: Function) -> list[RelaxVar]:
    """Weights, and variables that are computed from nothing else, in order.

    They can be computed once, when the weights are loaded. Without the attribute ``num_input`` a
    function has no weights. What has effects, or needs extents that only inputs define, is left
    out.
    """
    if NUM_INPUT not in func.attrs:
        return []
    weights = weights_of(func)
    known: dict[RelaxVar, None] = dict.fromkeys(weights)
    extents = set(defined_vars([weight.struct_info for weight in weights]))
    for binding in func.bindings:
        value = binding.value
        if (
            not isinstance(binding, MatchCast)
            and not is_impure(value)
            and all(var in known for var in used_graph_vars(value))
            and extents.issuperset(free_vars(value))
        ):
            known.setdefault(binding.var)
    return list(known)
