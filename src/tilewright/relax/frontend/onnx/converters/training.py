"""Training: ``Gradient``, from the domain of previews."""

from __future__ import annotations

from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxVar
from tilewright.relax.frontend.onnx.converters.base import Context, Tensor, Value, converts
from tilewright.relax.gradients import Reverse, filled


@converts("ai.onnx.preview.training.Gradient")
def _gradient(
    ctx: Context, *inputs: Value, xs: tuple[str, ...], y: str, zs: tuple[str, ...] = ()
) -> tuple[Value, ...]:
    """Gradients of (the sum of) ``y`` for ``xs``, as a function of ``xs`` and ``zs`` alone."""
    given = [ctx.tensor(value, "an input") for value in inputs]
    names = (*xs, *zs)
    if len(given) != len(names) or any(
        value is not ctx.named(name) for value, name in zip(inputs, names)
    ):
        raise ctx.error(f"its inputs must be the values that it names: {', '.join(names)}")
    wanted = given[: len(xs)]
    if not all(isinstance(value, RelaxVar) for value in wanted):
        raise ctx.error("gradients for constants are not supported")
    result: Tensor = ctx.tensor(ctx.named(y), "y")
    reverse = Reverse(ctx.builder, wanted)  # type: ignore[arg-type]
    leaves = [value for value in given if isinstance(value, RelaxVar)]
    bindings = [item for item in ctx.builder.bindings if item.var not in leaves]
    reverse.run(bindings, result, op.ones(result.shape, result.dtype))
    return tuple(
        filled(reverse.adjoints.get(value), value.struct_info)  # type: ignore[call-overload]
        for value in wanted
    )
