"""The gradient of recurrent layers: that of their steps, one after another."""

from __future__ import annotations

from tilewright.ir import as_int
from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxCall, RelaxExpr, Tuple
from tilewright.relax.gradients.registry import differentiate_as
from tilewright.support.errors import VerifyError
from tilewright.topi.nn.recurrent import CELLS, Activations

_TENSORS = Activations(op.sigmoid, op.tanh, op.nn.relu)


@differentiate_as("nn.recurrence")
def _recurrence(call: RelaxCall) -> RelaxExpr:
    x, weight, bias, *states = call.args
    gates = CELLS[call.attrs["cell"]].gates
    axis = 1 if call.attrs["batch_first"] else 0
    steps = as_int(x.shape[axis])
    if steps is None:
        raise VerifyError(f"the gradient of a recurrence needs to know its steps: {x.shape[axis]}")
    outputs: dict[int, RelaxExpr] = {}
    for step in reversed(range(steps)) if call.attrs["reverse"] else range(steps):
        row = op.squeeze(op.strided_slice(x, [axis], [step], [step + 1]), axis)
        products = op.matmul(states[0], weight) + bias
        parts = (op.split(item, gates, 1) for item in (row, products))
        given, own = ([item[number] for number in range(gates)] for item in parts)
        states = list(CELLS[call.attrs["cell"]].step(_TENSORS, given, own, states))
        outputs[step] = states[0]
    y = op.stack([outputs[step] for step in range(steps)], axis)
    return Tuple((y, *states))
