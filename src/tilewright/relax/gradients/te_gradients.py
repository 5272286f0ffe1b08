"""Gradients that a user writes in ``te``, of tensor functions that are called by name.

@register_te_gradient("scaled_grad")
def scaled_grad(output_grad, x, *, k):
    return [te.compute(x.shape, lambda *i: output_grad(*i) * k)]

lv = bb.emit(bb.call_te_with_grad(scaled, x, te_grad_name="scaled_grad",
                                  te_grad_kwargs={"k": 2.0}))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.call_tir import call_tir_operands
from tilewright.relax.expr import RelaxCall, RelaxVar, TupleGetItem
from tilewright.relax.gradients.registry import Gradients, register_gradient
from tilewright.relax.struct_info import TupleStructInfo
from tilewright.support.errors import VerifyError
from tilewright.support.registry import near_matches

TEGradient = Callable[..., Any]
"""``function(output_grad, *arguments, **kwargs)`` gives a ``te`` tensor for each argument."""

_FUNCTIONS: dict[str, TEGradient] = {}
Function = TypeVar("Function", bound=TEGradient)


def register_te_gradient(te_grad_name: str, te_grad_func: TEGradient | None = None) -> Any:
    """Register the gradient that calls of ``call_tir_with_grad`` name; a decorator without it.

    The function takes the gradient of the result (a list of several), the arguments and the call's
    ``te_grad_kwargs``, and returns the list of the arguments' gradients.

    Raises ``VerifyError`` if another function has the name.
    """

    def declare(function: Function) -> Function:
        if _FUNCTIONS.setdefault(te_grad_name, function) is not function:
            raise VerifyError(f"there is a gradient named {te_grad_name!r} already")
        return function

    return declare if te_grad_func is None else declare(te_grad_func)


@register_gradient("call_tir_with_grad")
def _call_tir_with_grad(
    var: RelaxVar, call: RelaxCall, output_grad: Any, ctx: BlockBuilder
) -> Gradients:
    name = call.attrs["te_grad_name"]
    function = _FUNCTIONS.get(name)
    if function is None:
        raise VerifyError(
            f"no gradient is registered as {name!r}: relax.training.utils.register_te_gradient "
            f"does so; {near_matches(name, list(_FUNCTIONS))}"
        )
    _, args, _ = call_tir_operands(call)
    options = dict(call.attrs["te_grad_kwargs"])
    made = ctx.emit_te(function, output_grad, *args, primfunc_name_hint=name, **options)
    several = isinstance(made.struct_info, TupleStructInfo)
    count = len(made.struct_info.fields) if isinstance(made.struct_info, TupleStructInfo) else 1
    if count != len(args):
        raise VerifyError(
            f"{name} must give a gradient for each of the {len(args)} arguments, it gives {count}"
        )
    parts = [TupleGetItem(made, number) for number in range(count)] if several else [made]
    return [None, parts]
