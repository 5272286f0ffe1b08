"""``SubroutineMixin``: modules whose ``forward`` becomes a graph function of its own."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from tilewright.relax.expr import RelaxExpr, RelaxVar
from tilewright.relax.frontend.nn.tensor import (
    Object,
    Parameter,
    Tensor,
    current_builder,
    emit,
    unwrapped_result,
)
from tilewright.relax.rewriter import renew_symbols
from tilewright.support.errors import VerifyError


class SubroutineMixin:
    """Let a class with ``define_subroutine = True`` be a function that its users call.

    Modules that compute the same share one function.
    """

    define_subroutine: ClassVar[bool] = False
    forward: Callable[..., Any]

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """All parameters with dotted names."""
        raise NotImplementedError(f"{type(self).__name__} must define named_parameters")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "forward" in vars(cls):
            cls.forward = _as_subroutine(cls.forward)


def _as_subroutine(forward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(forward)
    def call(self: SubroutineMixin, *args: object, **kwargs: object) -> Any:
        if not self.define_subroutine:
            return forward(self, *args, **kwargs)
        return _call_subroutine(self, forward, args, kwargs)

    return call


def _call_subroutine(
    module: SubroutineMixin,
    forward: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    builder = current_builder()
    inner: list[RelaxVar] = []
    outer: list[RelaxExpr] = []

    def as_param(value: object, name: str) -> Any:
        if not isinstance(value, (Tensor, Object)):
            raise VerifyError(
                f"{type(module).__name__} is a subroutine, which takes tensors, not {value!r}"
            )
        var = RelaxVar(name, value._expr.struct_info)
        inner.append(var)
        outer.append(value._expr)
        return Tensor(var) if isinstance(value, Tensor) else Object(_expr=var, _name=name)

    inputs = [as_param(value, getattr(value._expr, "name", "x")) for value in args]
    named = {name: as_param(value, name) for name, value in kwargs.items()}
    held = [(param, param._bound) for _, param in module.named_parameters()]
    try:
        for param, bound in held:
            param._bound = as_param(param, getattr(bound, "name", "weight"))._expr

        def body() -> RelaxExpr:
            with builder.dataflow():
                result = unwrapped_result(forward(module, *inputs, **named), "forward")
                return builder.emit_output(result)

        function = renew_symbols(builder.build_function(inner, body))
    finally:
        for param, bound in held:
            param._bound = bound
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(module).__name__).lower()
    return emit(builder.call_function(builder.add_func(function, name), *outer), f"{name}_output")
